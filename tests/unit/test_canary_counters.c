// SPDX-License-Identifier: Apache-2.0
// Prometheus's answers and counters between two looks; seconds on the timeline.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/strings.h"
#include "harness/canary/http/http.h"
#include "harness/canary/sources/counter.h"
#include "harness/canary/sources/sources.h"
#include "harness/canary/sources/timeline.h"
#include "tests/unit/runner.h"

static struct prometheus_answer answered(const char *result)
{
    struct prometheus_answer ret;
    struct error err = {0};
    char *body = xasprintf(
            "{\"status\":\"success\",\"data\":{\"resultType\":\"vector\",\"result\":[%s]}}",
            result);
    CHECK_INT(prometheus_parse(200, body, &ret, &err), 0);
    free(body);
    return ret;
}

static struct counter_look looked(struct counter *counter, bool from_zero, const char *result)
{
    struct counter_look ret;
    struct prometheus_answer answer = answered(result);
    counter_look(counter, &answer, from_zero, &ret);
    prometheus_answer_free(&answer);
    return ret;
}

#define SUM(value) "{\"metric\":{},\"value\":[1,\"" value "\"]}"
#define RAW(name, value) "{\"metric\":{\"pod\":\"" name "\"},\"value\":[1,\"" value "\"]}"
#define LE(le, value) "{\"metric\":{\"le\":\"" le "\"},\"value\":[1,\"" value "\"]}"

TEST(counters_grow)
{
    struct counter counter = {0};
    CHECK_INT(looked(&counter, false, SUM("1000")).grown, 0); // the first look
    CHECK_INT(looked(&counter, false, SUM("1010")).grown, 10);
    CHECK_INT(looked(&counter, false, "").grown, 0); // not scraped
    CHECK_INT(looked(&counter, false, SUM("1015.5")).grown, 5);
    CHECK_INT(looked(&counter, false, SUM("1016")).grown, 1); // the half is not lost
    CHECK_INT(looked(&counter, false, SUM("1e300")).grown, 0);
    counter_free(&counter);
}

TEST(counters_that_begin_anew)
{
    struct counter counter = {0};
    looked(&counter, false, RAW("a", "1000") "," RAW("b", "500"));
    struct counter_look look = looked(&counter, false, RAW("b", "510") "," RAW("a", "7"));
    CHECK_INT(look.grown, 17); // a began anew
    CHECK_INT(look.fallen, 0);
    look = looked(&counter, false, RAW("a", "8") "," RAW("b", "511") "," RAW("c", "99999"));
    CHECK_INT(look.grown, 2); // c has a past
    CHECK(look.began);
    look = looked(&counter, true, RAW("d", "3"));
    CHECK_INT(look.grown, 3); // d has none
    counter_free(&counter);
    struct counter sum = {0};
    looked(&sum, false, SUM("1500"));
    look = looked(&sum, false, SUM("507")); // one of its parts, or all of it
    CHECK_INT(look.grown, 0);
    CHECK_INT(look.fallen, 1);
    CHECK_INT(looked(&sum, false, SUM("510")).grown, 3);
    counter_free(&sum);
    struct counter errors = {0};
    looked(&errors, true, ""); // a counter of errors comes with the first error
    CHECK_INT(looked(&errors, true, SUM("4")).grown, 4);
    counter_free(&errors);
}

static struct counter_look looked_at(struct counter *counter, double at_s, double value)
{
    char *result = xasprintf("{\"metric\":{\"pod\":\"a\"},\"value\":[%.3f,\"%.0f\"]}", at_s, value);
    struct counter_look ret = looked(counter, false, result);
    free(result);
    return ret;
}

// One of the two has scraped later: what both have counted is counted once.
TEST(two_that_answer_at_one_address)
{
    struct counter counter = {0};
    uint64_t grown = 0, behind = 0;
    for (int i = 0; i < 200; i++) { // ten events a second; each other answer is 3 s old
        struct counter_look look =
                looked_at(&counter, 100 + 5 * i, 5000 + 10 * (5 * i - (i % 2 ? 8 : 0)));
        grown += look.grown;
        behind += look.behind;
    }
    CHECK_INT(grown, 10 * 5 * 198);
    CHECK(behind > 50);
    counter_free(&counter);
    struct counter idle = {0}; // nothing is known of how fast it counts
    looked_at(&idle, 100, 5000);
    struct counter_look look = looked_at(&idle, 105, 4998);
    CHECK_INT(look.grown, 0);
    CHECK_INT(look.behind, 1);
    CHECK_INT(looked_at(&idle, 110, 5003).grown, 3);
    counter_free(&idle);
}

// What began anew is never taken for one that is behind: its events are evidence.
TEST(what_began_anew_is_counted)
{
    static const double lives[][3] = {
            // before, after, seconds between
            {5000, 40, 5},
            {5000, 90, 5},
            {5000, 600, 60},
            {60, 55, 5},
            {90, 80, 5},
            {5000, 3000, 5},
            {700, 650, 60},
    };
    for (size_t i = 0; i < sizeof lives / sizeof *lives; i++) {
        struct counter counter = {0};
        looked_at(&counter, 100, lives[i][0] - 50);
        looked_at(&counter, 105, lives[i][0]); // ten a second
        struct counter_look look = looked_at(&counter, 105 + lives[i][2], lives[i][1]);
        CHECK_INT(look.grown, (int64_t)lives[i][1]);
        CHECK_INT(look.behind, 0);
        counter_free(&counter);
    }
    // and where one is, it is so for no longer than a beginning would have needed
    struct counter counter = {0};
    looked_at(&counter, 100, 950);
    looked_at(&counter, 105, 1000);
    CHECK_INT(looked_at(&counter, 110, 990).behind, 1);
    CHECK_INT(looked_at(&counter, 160, 990).grown, 990);
    counter_free(&counter);
}

// Servers come and go, each with series of its own.
TEST(more_series_than_there_is_room_for)
{
    struct counter counter = {0};
    struct strbuf all = {0};
    for (int i = 0; i < PROMETHEUS_SAMPLES_MAX; i++)
        strbuf_add(&all, "%s{\"metric\":{\"pod\":\"%d\"},\"value\":[1,\"5\"]}", i ? "," : "", i);
    struct counter_look look = looked(&counter, true, all.text);
    CHECK(!look.full);
    look = looked(&counter, true, RAW("0", "6") "," RAW("new", "7"));
    CHECK(look.full); // nobody can say that it has counted nothing
    CHECK_INT(look.grown, 1);
    look = looked(&counter, true, RAW("0", "7"));
    CHECK(!look.full);
    counter_free(&counter);
    strbuf_free(&all);
}

// Prometheus promises no order.
TEST(many_series_in_another_order_each_time)
{
    struct counter counter = {0};
    struct counter_look look;
    struct strbuf up = {0}, down = {0};
    for (int i = 0; i < PROMETHEUS_SAMPLES_MAX; i++) {
        strbuf_add(&up, "%s{\"metric\":{\"pod\":\"%d\"},\"value\":[1,\"5\"]}", i ? "," : "", i);
        strbuf_add(&down, "%s{\"metric\":{\"pod\":\"%d\"},\"value\":[1,\"7\"]}", i ? "," : "",
                PROMETHEUS_SAMPLES_MAX - 1 - i);
    }
    struct prometheus_answer answers[] = {answered(up.text), answered(down.text)};
    counter_look(&counter, &answers[0], false, &look);
    clock_t began = clock();
    counter_look(&counter, &answers[1], false, &look);
    CHECK_INT(look.grown, 2 * PROMETHEUS_SAMPLES_MAX);
    for (int i = 0; i < 100; i++) {
        counter_look(&counter, &answers[1], false, &look);
        CHECK_INT(look.grown, 0);
    }
    CHECK_INT(counter.count, PROMETHEUS_SAMPLES_MAX);
    // 840 million comparisons, where each is looked for one by one
    CHECK(clock() - began < CLOCKS_PER_SEC);
    for (int i = 0; i < 2; i++)
        prometheus_answer_free(&answers[i]);
    counter_free(&counter);
    strbuf_free(&up);
    strbuf_free(&down);
}

TEST(what_is_no_count)
{
    struct prometheus_answer answer = answered(SUM("NaN") "," SUM("+Inf") "," SUM("-1") "," SUM(
            "x") "," SUM("") "," SUM(" 1") "," SUM("5"));
    CHECK_INT(answer.dropped, 6);
    CHECK_INT(answer.count, 1);
    prometheus_answer_free(&answer);
}

TEST(answers_that_are_none)
{
    static const struct {
        long status;
        const char *body;
        int rc;
    } cases[] = {
            {200, "", -EBADMSG},
            {200, "<html>", -EBADMSG},
            {200, "[]", -EBADMSG},
            {200, "{}", -EBADMSG},
            {200, "{\"status\":\"success\",\"data\":{\"resultType\":\"vector\",\"result\":7}}",
                    -EBADMSG},
            {200, "{\"status\":\"success\",\"data\":{\"resultType\":\"matrix\",\"result\":[]}}",
                    -EINVAL},
            {200, "{\"status\":\"error\",\"errorType\":\"x\",\"error\":\"y\"}", -EIO},
            {400, "{\"status\":\"error\",\"errorType\":\"bad_data\",\"error\":\"1:3: parse error\"}",
                    -EINVAL},
            {422, "{\"status\":\"error\",\"errorType\":\"execution\",\"error\":\"\\u001b[31m\"}",
                    -EINVAL},
            {503, "not ready", -EIO},
            {302, "", -EIO},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct prometheus_answer answer;
        struct error err = {0};
        CHECK_INT(prometheus_parse(cases[i].status, cases[i].body, &answer, &err), cases[i].rc);
        CHECK(err.text[0] && !strchr(err.text, 27));
    }
    struct prometheus_answer scalar;
    CHECK_INT(
            prometheus_parse(200,
                    "{\"status\":\"success\",\"data\":{\"resultType\":\"scalar\",\"result\":[5.5,\"7\"]}}",
                    &scalar, NULL),
            0);
    CHECK_INT(scalar.count, 1);
    CHECK_DBL(scalar.at_s, 5.5, 0);
    prometheus_answer_free(&scalar);
    char *form = prometheus_form("sum by (le)(a{b=\"\xc3\xa4\"})", 5000000000);
    CHECK_STR(form, "query=sum%20by%20%28le%29%28a%7Bb%3D%22%C3%A4%22%7D%29&timeout=5000ms");
    free(form);
}

TEST(buckets)
{
    struct counter counter = {0};
    uint32_t bins[CANARY_BINS] = {0};
    looked(&counter, false, LE("0.1", "10") "," LE("0.4", "20") "," LE("+Inf", "21"));
    looked(&counter, false, LE("+Inf", "128") "," LE("0.1", "60") "," LE("0.4", "120"));
    counter_bins(&counter, bins);
    CHECK_INT(bins[canary_bin(0.05)], 50); // the middle of 0 and 0.1
    CHECK_INT(bins[canary_bin(0.2)], 50);  // the geometric middle of 0.1 and 0.4
    CHECK_INT(bins[canary_bin(0.408)], 7); // beyond the last border
    uint64_t sum = 0;
    for (int i = 0; i < CANARY_BINS; i++)
        sum += bins[i];
    CHECK_INT(sum, 107);
    counter_free(&counter);
}

static bool add(struct timeline *timeline, enum timeline_arm arm, double at_s)
{
    struct timeline_request request = {.end_ns = (int64_t)(at_s * 1e9), .latency_s = 0.01};
    return timeline_add(timeline, arm, &request);
}

static bool take(struct timeline *timeline, double until_s, bool aa, int64_t *at,
        struct canary_second arms[CANARY_ARMS])
{
    return timeline_take(timeline, (int64_t)(until_s * 1e9), aa, at, arms);
}

TEST(seconds_come_once_and_in_order)
{
    static struct timeline timeline;
    static struct canary_second arms[CANARY_ARMS];
    int64_t at = 0, wall = 1700000000;
    timeline_begin(&timeline, 0, wall * 1000000000);
    CHECK(!take(&timeline, 50, false, &at, arms));
    CHECK(add(&timeline, TIMELINE_BASELINE, 100.2) && add(&timeline, TIMELINE_CANDIDATE, 100.9) &&
            add(&timeline, TIMELINE_BASELINE, 103.5));
    CHECK(!take(&timeline, 100.99, false, &at, arms));
    CHECK(take(&timeline, 101, false, &at, arms));
    CHECK_INT(at, wall + 100);
    CHECK_INT(arms[0].requests, 1);
    CHECK_INT(arms[1].requests, 1);
    CHECK_INT(arms[1].bins[canary_bin(0.01)], 1);
    CHECK(!add(&timeline, TIMELINE_BASELINE, 100.5)); // too late
    CHECK(add(&timeline, TIMELINE_BASELINE2, 101.5)); // late, but nothing after it was taken
    CHECK(!take(&timeline, 103, false, &at, arms));   // of neither arm
    CHECK(take(&timeline, 104, true, &at, arms));
    CHECK_INT(at, wall + 103);
    CHECK(add(&timeline, TIMELINE_BASELINE2, 104.5));
    CHECK(take(&timeline, 105, true, &at, arms));
    CHECK_INT(arms[0].requests, 0);
    CHECK_INT(arms[1].requests, 1); // the second baseline stands for the candidate
    // CLOCK_REALTIME is set back by an hour: seconds go on growing. Forward: they follow.
    timeline_tick(&timeline, 105000000000, (wall + 105 - 3600) * 1000000000);
    CHECK(add(&timeline, TIMELINE_BASELINE, 105.5) && take(&timeline, 106, false, &at, arms));
    CHECK_INT(at, wall + 105);
    timeline_tick(&timeline, 106000000000, (wall + 106 + 3600) * 1000000000);
    CHECK(add(&timeline, TIMELINE_BASELINE, 106.5) && take(&timeline, 107, false, &at, arms));
    CHECK_INT(at, wall + 106 + 3600);
    CHECK_INT(timeline.discarded, 0);
    // Nobody takes for ten minutes: the newest are kept, the others counted.
    for (int i = 0; i < 600; i++)
        CHECK(add(&timeline, TIMELINE_BASELINE, 200.5 + i));
    int64_t kept = 0, last = 0;
    for (; take(&timeline, 10000, false, &at, arms); kept++, last = at)
        CHECK(at > last);
    CHECK_INT(kept, TIMELINE_SECONDS);
    CHECK_INT(timeline.discarded, 600 - TIMELINE_SECONDS);
    CHECK_INT(timeline.totals[TIMELINE_BASELINE].requests, 605); // the late one, too
}

TEST(what_was_counted_beside_the_requests_is_not_lost)
{
    static struct timeline timeline;
    static struct canary_second arms[CANARY_ARMS];
    int64_t at = 0;
    timeline_begin(&timeline, 0, 1700000000LL * 1000000000);
    // none of its requests ended then
    timeline_at(&timeline, 1700000010, TIMELINE_CANDIDATE)->wrong = 3;
    CHECK(add(&timeline, TIMELINE_BASELINE, 10.5) && add(&timeline, TIMELINE_CANDIDATE, 11.5) &&
            add(&timeline, TIMELINE_BASELINE, 12.5));
    CHECK(add(&timeline, TIMELINE_CANDIDATE, 13.5) && add(&timeline, TIMELINE_CANDIDATE, 13.6) &&
            add(&timeline, TIMELINE_CANDIDATE, 13.7));
    static const uint64_t wrong[] = {0, 1, 0, 2};
    for (int i = 0; i < 4; i++) {
        CHECK(take(&timeline, 20, false, &at, arms));
        CHECK_INT(arms[CANARY_CANDIDATE].wrong, wrong[i]);
        CHECK_INT(arms[CANARY_BASELINE].wrong, 0);
    }
}

TEST(a_malformed_address_is_refused_without_its_password)
{
    static const char *const urls[] = {"htp://ann:secret@h:9090", "ann:secret@h:9090",
            "http:/ann:secret@h", "http:/ann:sec/secret@h"};
    for (size_t i = 0; i < sizeof urls / sizeof *urls; i++) {
        char *url = xstrdup(urls[i]), requests[] = "a", errors[] = "b";
        struct rollout_source source = {.kind = ROLLOUT_PROMETHEUS,
                .url = url,
                .queries = {{.requests = requests, .errors = errors},
                        {.requests = requests, .errors = errors}}};
        struct rollout rollout = {.sources = &source, .source_count = 1};
        struct sources *sources = NULL;
        struct error err = {0};
        CHECK_INT(sources_open(&rollout, &sources, &err), -EINVAL);
        CHECK_CONTAINS(err.text, "needs a url such as http://127.0.0.1:9090");
        CHECK(!strstr(err.text, "secret"));
        free(url);
    }
}

TEST(addresses_that_may_be_told)
{
    static const char *const cases[][2] = {
            {"http://127.0.0.1:9090/api", "http://127.0.0.1:9090/api"},
            {"https://ann:secret@h:1/hook?key=secret", "https://h:1/hook"},
            {"http://a@b:secret@h", "http://h"},
            {"http://h/@x", "http://h/@x"},
            {"http://h?secret@x", "http://h"},
            {"ann:secret@h", "h"},
            {"http://ann:sec/ret?x@h:1/a?b", "http://h:1/a"},
            {"http://[::1]/@x", "http://[::1]/@x"},
            {"http://h:1/@x", "http://h:1/@x"},
            {"", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *plain = http_url_plain(cases[i][0]);
        CHECK_STR(plain, cases[i][1]);
        free(plain);
    }
}
