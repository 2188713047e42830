// SPDX-License-Identifier: Apache-2.0
// Lines of HAProxy's log: both formats behind every header, each termination state, lines that are
// none, lost ones.
#include <stdio.h>
#include <stdlib.h>

#include "common/strings.h"
#include "harness/canary/sources/log_line.h"
#include "harness/canary/sources/sequence.h"
#include "harness/canary/sources/source_clock.h"
#include "tests/unit/runner.h"

static const char json_line[] =
        "{\"upgate\":1,\"pid\":7879,\"front\":\"in\",\"seq\":12,\"back\":\"ranker\",\"server\":\"new\",\"status\":200,"
        "\"end_us\":1795396679483978,\"us\":\"804\",\"ms\":\"0\",\"term\":\"--\",\"bytes\":\"131\",\"wrong\":\"1\"}\n";
static const char text_line[] =
        "10.0.1.2:33317 [06/Feb/2009:12:14:14.655] http-in~ ranker/old 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 "
        "{1wt.eu} {} \"GET /index.html HTTP/1.1\"";

static struct log_line parsed(const char *line)
{
    struct log_line ret;
    size_t len = strlen(line);
    char *copy = malloc(len); // exactly so long: a sanitizer sees a byte behind
    memcpy(copy, line, len);
    log_line_parse(copy, len, &ret);
    struct text *parts[] = {&ret.front, &ret.back, &ret.server};
    for (int i = 0; i < 3; i++)
        if (parts[i]->at)
            parts[i]->at = line + (parts[i]->at - copy);
    free(copy);
    return ret;
}

static void check_json(const char *line)
{
    struct log_line got = parsed(line);
    CHECK_INT(got.kind, LOG_REQUEST);
    CHECK(text_is(got.front, "in") && text_is(got.back, "ranker") && text_is(got.server, "new"));
    CHECK_INT(got.status, 200);
    CHECK_INT(got.end_ns, 1795396679483978000);
    CHECK(!got.end_is_local && got.wrong && got.numbered && !got.refused);
    CHECK_INT(got.took_ns, 804000);
    CHECK_INT(got.end, LOG_END_OK);
    CHECK_INT(got.pid, 7879);
    CHECK_INT(got.sequence, 12);
}

static void check_text(const char *line)
{
    struct log_line got = parsed(line);
    CHECK_INT(got.kind, LOG_REQUEST);
    CHECK(text_is(got.front, "http-in") && text_is(got.back, "ranker") &&
            text_is(got.server, "old"));
    CHECK_INT(got.status, 200);
    CHECK_INT(got.end_ns, 1233922454655000000 + 109000000); // date -u -d '2009-02-06 12:14:14' +%s
    CHECK(got.end_is_local && !got.wrong && !got.numbered);
    CHECK_INT(got.took_ns, 109000000);
    CHECK_INT(got.end, LOG_END_OK);
}

static const char *const headers[] = {
        "",
        "<134>Nov 23 00:50:22 haproxy[7879]: ",
        "<134>Nov  3 00:50:22 host haproxy[7879]: ",
        "<134>1 2026-11-23T01:17:59.484047+00:00 - haproxy 7879 - - ",
        "<134>1 2026-11-23T01:17:59.484047+00:00 host haproxy 7879 - [exampleSDID@1234 iut=\"3\" eventID=\"{ [\"] ",
        "2026-11-23T01:17:59+01:00 host haproxy[7879]: ",
        "<6>",
};

TEST(both_formats_behind_every_header)
{
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
        char *json = xasprintf("%s%s", headers[i], json_line),
             *text = xasprintf("%s%s", headers[i], text_line);
        check_json(json);
        check_text(text);
        free(json);
        free(text);
    }
}

TEST(every_cut_of_a_line_is_no_request)
{
    char *json = xstrdup(json_line), *text = xstrdup(text_line);
    for (size_t len = strlen(json) - 2; len-- > 0;) {
        json[len] = 0;
        CHECK_INT(parsed(json).kind, LOG_UNKNOWN);
    }
    // A text line is whole from its termination state on.
    size_t whole = (size_t)(strstr(text, "----") + 4 - text);
    for (size_t len = strlen(text); len-- > 0;) {
        text[len] = 0;
        CHECK_INT(parsed(text).kind, len >= whole ? LOG_REQUEST : LOG_UNKNOWN);
    }
    free(json);
    free(text);
}

TEST(termination_states)
{
    static const struct {
        const char *state;
        int status;
        enum log_end end;
        // clang-format off
    } cases[] = {
        {"--", 200, LOG_END_OK},        {"--", 404, LOG_END_OK},         {"--", 500, LOG_END_ERROR},
        {"--", 503, LOG_END_ERROR},     {"--", -1, LOG_END_ERROR},       {"SD", 200, LOG_END_TRUNCATED},
        {"sD", 200, LOG_END_TRUNCATED}, {"SH", 502, LOG_END_ERROR},      {"sH", 504, LOG_END_ERROR},
        {"SC", 503, LOG_END_ERROR},     {"sC", 503, LOG_END_ERROR},      {"sQ", 503, LOG_END_ERROR},
        {"CD", 200, LOG_END_CLIENT},    {"CD", -1, LOG_END_CLIENT}, {"cD", 200, LOG_END_CLIENT},     {"CH", -1, LOG_END_CLIENT},
        {"CD", 500, LOG_END_ERROR},     {"cD", 503, LOG_END_ERROR},      {"CL", 502, LOG_END_ERROR},
        {"CD", 404, LOG_END_CLIENT},
        {"CC", 503, LOG_END_CLIENT},    {"CR", 400, LOG_END_BEFORE},     {"cR", 408, LOG_END_BEFORE},
        {"PR", 403, LOG_END_BEFORE},    {"PT", 500, LOG_END_BEFORE},     {"PH", 502, LOG_END_ERROR},
        {"PD", 200, LOG_END_TRUNCATED}, {"LR", 302, LOG_END_BEFORE},     {"RC", 503, LOG_END_ERROR},
        {"ID", 200, LOG_END_TRUNCATED}, {"DD", 200, LOG_END_TRUNCATED},  {"DH", 503, LOG_END_ERROR},
        {"KD", 200, LOG_END_TRUNCATED}, {"KL", 200, LOG_END_TRUNCATED},  {"UD", 200, LOG_END_TRUNCATED},
    };
    // clang-format on
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (log_end_of(cases[i].state, cases[i].status) != cases[i].end)
            runner_fail(__FILE__, __LINE__, "%s %d gives %d", cases[i].state, cases[i].status,
                    log_end_of(cases[i].state, cases[i].status));
        char *line = xasprintf(
                "1.2.3.4:5 [06/Feb/2009:12:14:14.655] in b/s 0/0/0/-1/7 %d 0 - - %s-- 1/1/1/1/0 0/0 \"GET / HTTP/1.1\"",
                cases[i].status, cases[i].state);
        struct log_line got = parsed(line);
        CHECK_INT(got.kind, LOG_REQUEST);
        CHECK_INT(got.end, cases[i].end);
        CHECK_INT(got.status, cases[i].status);
        CHECK_INT(got.refused, (cases[i].state[0] | 32) == 's' && cases[i].state[1] == 'C');
        // not of an answer that has begun
        bool given_up =
                cases[i].end == LOG_END_CLIENT && (cases[i].state[1] != 'D' || cases[i].status < 0);
        CHECK_INT(got.given_up, given_up);
        CHECK_INT(got.rejected,
                given_up || (cases[i].end <= LOG_END_CLIENT && cases[i].status == 404));
        free(line);
    }
}

TEST(what_may_be_missing)
{
    struct log_line got = parsed(
            "1.2.3.4:5 [06/Feb/2009:12:14:14.655] in b/<NOSRV> -1/-1/-1/-1/-1 503 0 - - SC-- 1/1/1/1/0 0/0 \"x\"");
    CHECK_INT(got.kind, LOG_REQUEST);
    CHECK_INT(got.end, LOG_END_BEFORE);
    CHECK_INT(got.took_ns, -1);
    CHECK_INT(got.end_ns, -1);
    // logasap, redispatch
    got = parsed(
            "::1:5 [06/Feb/2009:12:14:14.655] in b/s 0/0/0/1/+12 200 +500 - - ---- 1/1/1/1/+1 0/0 \"x\"");
    CHECK_INT(got.took_ns, 12000000);
    got = parsed(
            "{\"upgate\":1,\"back\":\"b\",\"server\":\"s\",\"status\":-1,\"us\":\"\",\"ms\":\"+12\",\"term\":\"SH\",\"wrong\":\"\"}");
    CHECK_INT(got.kind, LOG_REQUEST);
    CHECK_INT(got.took_ns, 12000000);
    CHECK_INT(got.end, LOG_END_ERROR);
    CHECK(!got.numbered && !got.wrong);
    CHECK_INT(got.end_ns, -1);
    // The clock was set forward, or back, while it was answered: the milliseconds are right.
    got = parsed(
            "{\"upgate\":1,\"back\":\"b\",\"server\":\"s\",\"status\":200,\"us\":\"3600000804\",\"ms\":\"0\",\"term\":\"--\"}");
    CHECK_INT(got.took_ns, 0);
    got = parsed(
            "{\"upgate\":1,\"back\":\"b\",\"server\":\"s\",\"status\":200,\"us\":\"-3600000804\",\"ms\":\"7\",\"term\":\"--\"}");
    CHECK_INT(got.took_ns, 7000000);
    static const char *const wrong[] = {"\"0\"", "\"\"", "\"-\"", "\"false\"", "false", "null"};
    static const char *const right[] = {"\"1\"", "\"nan\"", "true", "1"};
    for (int i = 0; i < 6 + 4; i++) {
        char *line = xasprintf(
                "{\"upgate\":1,\"back\":\"b\",\"server\":\"s\",\"status\":200,\"term\":\"--\",\"wrong\":%s}",
                i < 6 ? wrong[i] : right[i - 6]);
        CHECK_INT(parsed(line).wrong, i >= 6);
        free(line);
    }
}

TEST(lines_that_are_no_requests)
{
    static const char *const notices[] = {
            "<129>Nov 23 00:50:22 haproxy[1]: Server ranker/new is DOWN, reason: Layer4 connection problem, info: \"Connection refused\".",
            "backend ranker has no server available!",
            "Proxy in started.",
            "127.0.0.1:56059 [03/Dec/2012:17:35:10.380] frt/f1: SSL handshake failure",
    };
    static const char *const unknown[] = {
            "",
            " ",
            "\n",
            "nonsense",
            "{\"upgate\":1}",
            "{\"upgate\":1,}",
            "[06/Feb/2009:12:14:14.655]",
            "[06/Fab/2009:12:14:14.655] a b/c",
            "1.2.3.4:5 [06/Feb/2009:12:14:14.655] in b/s 1/2/3 500 -- 1/1/1/1/0 0/0", // option
                                                                                      // tcplog
            "1.2.3.4:5 [06/Feb/2009:12:14:14.655] in b/s 0/0/0/1/12 200 500 - - XX-- 1/1/1/1/0 0/0 \"x\"",
            "1.2.3.4:5 [06/Feb/2009:12:14:14.655] in b/s 0/0/0/1/x 200 500 - - ---- 1/1/1/1/0 0/0 \"x\"",
            "1.2.3.4:5 [06/Feb/2009:12:14:14.655] in bs 0/0/0/1/1 200 500 - - ---- 1/1/1/1/0 0/0 \"x\"",
            "{\"upgate\":1,\"back\":\"b\",\"server\":\"s\",\"status\":\"x\",\"term\":\"--\"}",
            "{\"upgate\":1,\"back\":\"b\",\"server\":\"s\",\"status\":200,\"term\":\"-\"}",
            "{\"upgate\":1,\"back\":\"b\",\"server\":\"s\",\"status\":200,\"term\":\"--\",\"seq\":-1}",
            "{\"upgate\":1,\"back\":\"b\",\"server\":\"s\",\"status\":200,\"term\":\"--\"} more",
            "{\"upgate\":1,\"back\":[[[[[[[[[[[[[[[[[[[[[[[[[[",
    };
    for (size_t i = 0; i < sizeof notices / sizeof *notices; i++)
        CHECK_INT(parsed(notices[i]).kind, LOG_NOTICE);
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
        if (parsed(unknown[i]).kind != LOG_UNKNOWN)
            runner_fail(__FILE__, __LINE__, "taken for a request: %s", unknown[i]);
}

// A client writes what it likes into its request; HAProxy's own words stand before it.
TEST(a_client_cannot_forge_a_line)
{
    char *line = xasprintf(
            "1.2.3.4:5 [06/Feb/2009:12:14:14.655] in b/old 0/0/0/1/12 500 500 - - SH-- 1/1/1/1/0 0/0 \"GET /%s HTTP/1.1\"",
            json_line);
    struct log_line got = parsed(line);
    CHECK_INT(got.kind, LOG_REQUEST);
    CHECK(text_is(got.server, "old"));
    CHECK_INT(got.end, LOG_END_ERROR);
    free(line);
}

TEST(numbers)
{
    static const struct {
        const char *text;
        double value;
    } good[] = {{"0", 0}, {"-1.5", -1.5}, {"1763859022.123456", 1763859022.123456}, {"1e3", 1000},
            {"2.5E-3", 0.0025}, {"+7", 7}, {".5", 0.5},
            {"123456789012345678901234567890", 123456789012345678901234567890.0}, {"0.1", 0.1},
            {"4.1", 4.1}, {"0.000000000000000000000001", 1e-24}};
    static const char *const bad[] = {
            "", "-", "e5", "1e", "1e999", "0x10", "nan", "inf", "1 ", "1..2", "1e5.5"};
    double got;
    int64_t whole;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        CHECK(text_number((struct text){good[i].text, strlen(good[i].text)}, &got));
        CHECK_DBL(got, good[i].value, fabs(good[i].value) * 1e-15);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK(!text_number((struct text){bad[i], strlen(bad[i])}, &got));
    CHECK(text_integer((struct text){"999999999999999999", 18}, &whole) &&
            whole == 999999999999999999);
    CHECK(!text_integer((struct text){"9999999999999999999", 19}, &whole));
    CHECK(!text_integer((struct text){"+", 1}, &whole) &&
            !text_integer((struct text){"1a", 2}, &whole));
}

static void sequence_run(
        struct sequence *sequence, uint64_t key, uint64_t from, uint64_t to, int64_t now_ns)
{
    for (uint64_t i = from; i < to; i++)
        sequence_add(sequence, key, i, now_ns);
}

static uint64_t sequence_settled(struct sequence *sequence, int64_t *now_ns)
{
    for (int i = 0; i < 3; i++)
        sequence_lost(sequence, *now_ns += 1000000000);
    return sequence_lost(sequence, *now_ns);
}

TEST(lost_lines)
{
    struct sequence sequence = {0};
    int64_t now = 1;
    sequence_run(&sequence, 1, 1000, 1100, now);
    CHECK_INT(sequence_settled(&sequence, &now), 0);
    sequence_run(&sequence, 1, 1105, 1110, now); // five are missing
    CHECK_INT(sequence_lost(&sequence, now), 0); // they may be on their way
    CHECK_INT(sequence_settled(&sequence, &now), 5);
    sequence_run(&sequence, 1, 1100, 1105, now); // late; what was told stays
    CHECK_INT(sequence_settled(&sequence, &now), 5);
    // Threads: one number twice, the next not at all.
    sequence_run(&sequence, 1, 1110, 1112, now);
    sequence_add(&sequence, 1, 1111, now);
    sequence_run(&sequence, 1, 1113, 1120, now);
    CHECK_INT(sequence_settled(&sequence, &now), 5);
    // Another process, and the same pid anew.
    sequence_run(&sequence, 2, 0, 50, now);
    sequence_run(&sequence, 2, 52, 60, now);
    // 2 are missing, and 5 that were told have come
    CHECK_INT(sequence_settled(&sequence, &now), 5);
    sequence_run(&sequence, 1, 1000000, 1000001, now); // a great gap is a loss …
    uint64_t lost = sequence_settled(&sequence, &now);
    CHECK_INT(lost, 1000000 - 1120 + 2);
    sequence_run(&sequence, 1, 0, 10, now); // … and a number far back is a new process
    sequence_run(&sequence, 1, UINT64_MAX - 5, UINT64_MAX, now);
    CHECK_INT(sequence_settled(&sequence, &now), lost);
    for (uint64_t key = 10; key < 1000; key++)
        sequence_run(&sequence, key, 0, 3, ++now);
    CHECK_INT(sequence_settled(&sequence, &now), lost);
}

#define CLOCK_S 1000000000LL

TEST(clocks_that_jump)
{
    struct source_clock clock;
    int64_t now = 5000 * CLOCK_S, ahead = 1700000000 * CLOCK_S, end;
    source_clock_begin(&clock, ahead, now);
    CHECK(source_clock_place(&clock, now + ahead - 5000000, now, &end));
    CHECK_INT(end, now - 5000000);
    CHECK(!source_clock_place(&clock, now + ahead + 3600 * CLOCK_S, now, &end)); // one damaged line
    CHECK(source_clock_place(&clock, now + ahead, now, &end));
    CHECK_INT(end, now);
    // Set forward by an hour: eight lines agree.
    int refused = 0;
    for (int i = 0; i < 100; i++, now += CLOCK_S / 100)
        refused += !source_clock_place(&clock, now + ahead + 3600 * CLOCK_S - 1000000, now, &end);
    CHECK_INT(refused, 7);
    CHECK(end <= now && end > now - CLOCK_S / 10);
    // Damaged lines that do not agree are never believed.
    for (int i = 0; i < 100; i++)
        CHECK(!source_clock_place(
                &clock, now + ahead + (int64_t)(4000 + 100 * i) * CLOCK_S, now, &end));
    // Set back by an hour: after 3 s.
    int64_t wrong = 0;
    for (int i = 0; i < 1000; i++, now += CLOCK_S / 100) {
        CHECK(source_clock_place(&clock, now + ahead, now, &end));
        wrong += end < now - CLOCK_S;
    }
    CHECK(wrong > 290 && wrong < 320);
    CHECK_INT(end, now - CLOCK_S / 100);
    // We were held up for 10 s and then read everything at once: nothing is misplaced.
    int64_t read_at = now + 10 * CLOCK_S;
    for (int i = 0; i < 1000; i++, now += CLOCK_S / 100) {
        CHECK(source_clock_place(&clock, now + ahead, read_at, &end));
        CHECK_INT(end, now);
    }
    // A clock that drifts back by 1 ms in a second is followed within two minutes.
    for (int i = 0; i < 300; i++, now += CLOCK_S)
        CHECK(source_clock_place(&clock, now + ahead - i * 1000000LL, now, &end));
    CHECK(now - end < CLOCK_S + 121 * 1000000LL);
}
