// SPDX-License-Identifier: Apache-2.0
// Arrivals, latencies, the account, the check of answers: the load generator without a socket.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "reference_models/load/account.h"
#include "reference_models/load/bodies.h"
#include "reference_models/load/schedule.h"
#include "tests/unit/runner.h"

TEST(even_arrivals_are_even)
{
    struct schedule schedule;
    schedule_constant(&schedule, 100, 1);
    schedule_begin(&schedule, 1, true);
    for (int i = 1; i < 100; i++)
        CHECK_DBL(schedule_next(&schedule), i / 100.0, 1e-9);
    schedule_free(&schedule);
}

// 200,000 gaps of a Poisson process at 1000/s: mean and variance are those of the exponential
// distribution, within five standard errors.
TEST(poisson_arrivals_have_exponential_gaps)
{
    struct schedule schedule;
    schedule_constant(&schedule, 1000, INFINITY);
    schedule_begin(&schedule, 7, false);
    double last = 0, sum = 0, squares = 0;
    int count = 200000;
    for (int i = 0; i < count; i++) {
        double at = schedule_next(&schedule);
        CHECK(at > last);
        sum += (at - last) * 1000;
        squares += pow((at - last) * 1000, 2);
        last = at;
    }
    CHECK_DBL(sum / count, 1, 5 / sqrt(count));
    CHECK_DBL(squares / count, 2, 5 * sqrt(20.0 / count)); // E x^4 - (E x^2)^2 = 24 - 4
    schedule_free(&schedule);
}

static void curve_file(char path[], const char *text)
{
    int fd = mkstemp(path);
    CHECK(fd >= 0);
    CHECK_INT(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

// Even arrivals along 0 -> 100/s in 10 s, then 100/s for 10 s: request n is due where the area is
// n.
TEST(a_curve_is_followed_exactly)
{
    char path[] = "/tmp/upgate-curve-XXXXXX";
    curve_file(path, "# seconds, rate\n0, 0\n10, 100\n\n20 100\n");
    struct schedule schedule;
    struct error err = {0};
    CHECK_INT(schedule_read(&schedule, path, 1, &err), 0);
    schedule_begin(&schedule, 1, true);
    int count = 0;
    double at;
    while (isfinite(at = schedule_next(&schedule))) {
        count++;
        CHECK_DBL(at, count <= 500 ? sqrt(count / 5.0) : 10 + (count - 500) / 100.0, 1e-6);
    }
    CHECK(count >= 1499 && count <= 1500);
    schedule_free(&schedule);
    CHECK_INT(schedule_read(&schedule, path, 3, &err), 0);
    schedule_begin(&schedule, 3, false);
    for (count = 0; isfinite(schedule_next(&schedule)); count++)
        ;
    CHECK_DBL(count, 4500, 5 * sqrt(4500));
    schedule_free(&schedule);
    unlink(path);
}

TEST(a_bad_curve_is_refused_by_line)
{
    static const char *const bad[][2] = {{"0 1\n1\n", ":2: a line is"},
            {"0 1\n1 x\n", ":2: a line is"}, {"0 1\n0 2\n", ":2: 0 s"},
            {"0 1\n1 -2\n", ":2: seconds are"}, {"0 1\n", "has 1 points"},
            {"0 1 2\n", ":1: a line is"}, {"0 nan\n1 1\n", ":1: seconds"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char path[] = "/tmp/upgate-curve-XXXXXX";
        curve_file(path, bad[i][0]);
        struct schedule schedule;
        struct error err = {0};
        CHECK_INT(schedule_read(&schedule, path, 1, &err), -EINVAL);
        CHECK_CONTAINS(err.text, bad[i][1]);
        unlink(path);
    }
    struct schedule schedule;
    CHECK_INT(schedule_read(&schedule, "/nonexistent/curve", 1, NULL), -EINVAL);
}

TEST(quantiles_are_within_half_a_percent)
{
    static struct histogram histogram;
    CHECK(isnan(histogram_quantile(&histogram, 0.5)));
    for (int i = 1; i <= 100000; i++)
        histogram_add(&histogram, (int64_t)i * 1000);
    CHECK_DBL(histogram_quantile(&histogram, 0.5), 50e6, 0.005 * 50e6);
    CHECK_DBL(histogram_quantile(&histogram, 0.99), 99e6, 0.005 * 99e6);
    CHECK_DBL(histogram_quantile(&histogram, 1), 100e6, 0.005 * 100e6);
    CHECK_DBL(histogram_mean(&histogram), 50000500, 1);
    histogram_add(&histogram, INT64_MAX);
    histogram_add(&histogram, -5);
    CHECK_INT(histogram.count, 100002);
    CHECK(histogram_quantile(&histogram, 1) > 8e12);
    static struct histogram small;
    histogram_add(&small, 100);
    CHECK_DBL(histogram_quantile(&small, 0.5), 100, 0);
}

TEST(the_account_balances_and_tells_sides_apart)
{
    static struct account account;
    for (int i = 0; i < OUTCOME_COUNT; i++) {
        struct account_request request = {.outcome = (enum outcome)i,
                .status = i == OUTCOME_HTTP ? 503 : 200,
                .wrong = WRONG_SCORES,
                .side = i % 2 ? "old" : "new",
                .due_ns = 1000,
                .sent_ns = 2000,
                .done_ns = 5000};
        account.sent++;
        account_add(&account, &request);
    }
    CHECK(account_balanced(&account));
    CHECK_INT(account_failed(&account), OUTCOME_COUNT - 1);
    account.extra = 1; // an answer nobody asked for is a failure, but no request
    CHECK_INT(account_failed(&account), OUTCOME_COUNT);
    CHECK(account_balanced(&account));
    CHECK_INT(account.side_count, 2);
    CHECK_INT(account.status[503], 1);
    CHECK_INT(account.wrong[WRONG_SCORES], 1);
    CHECK_INT(account.latency.count, 1);
    CHECK_DBL(histogram_quantile(&account.latency, 0.5), 4000, 20);
    account.sent++;
    CHECK(!account_balanced(&account));
    for (int i = 0; i < 40; i++) {
        char side[16];
        snprintf(side, sizeof side, "side%d", i);
        account_add(&account, &(struct account_request){.outcome = OUTCOME_OK, .side = side});
    }
    CHECK_INT(account.side_count, ACCOUNT_SIDES_MAX);
    CHECK_STR(account.sides[ACCOUNT_SIDES_MAX].name, "(others)");
    CHECK_INT(account.sides[ACCOUNT_SIDES_MAX].count[OUTCOME_OK], 40 - (ACCOUNT_SIDES_MAX - 2));
    json_t *json = account_json(&account, "http://x");
    CHECK_INT(json_array_size(json_object_get(json, "sides")), ACCOUNT_SIDES_MAX + 1);
    CHECK_INT(json_integer_value(json_object_get(json_object_get(json, "http_errors"), "503")), 1);
    json_decref(json);
}

static struct bodies *some_bodies(size_t pool)
{
    return bodies_new(&(struct bodies_opts){.kind = BODIES_DLRM,
            .least = 14,
            .most = 28,
            .long_share = 0.25,
            .pool = pool,
            .seed = 3,
            .reference = "old",
            .tolerance = 1e-4});
}

TEST(bodies_are_json_of_the_size_they_say)
{
    struct bodies *bodies = some_bodies(400);
    // A proxy that gives each of its two servers every other request gives both their share of the
    // long ones.
    int longest[2] = {0};
    for (uint64_t id = 0; id < 1200; id++) {
        struct strbuf text = {0};
        bodies_add(bodies, id, &text);
        CHECK_INT(text.len, bodies_size(bodies, id));
        json_t *root = json_loadb(text.text, text.len, 0, NULL);
        CHECK_INT(json_integer_value(json_object_get(root, "id")), id);
        size_t count = json_array_size(json_object_get(root, "features"));
        CHECK(count == 28 || (count >= 14 && count < 21));
        longest[id % 2] += count == 28;
        json_decref(root);
        strbuf_free(&text);
    }
    CHECK_INT(longest[0] + longest[1], 300);
    CHECK(longest[0] > 100 && longest[1] > 100);
    bodies_free(bodies);
}

static enum wrong check(struct bodies *bodies, uint64_t id, const char *side, const char *answer)
{
    bool compared;
    return bodies_check(bodies, id, side, answer, strlen(answer), &compared);
}

TEST(answers_are_checked)
{
    struct bodies *bodies = some_bodies(10);
    bool compared;
    // no reference yet
    CHECK_INT(check(bodies, 0, "new", "{\"id\":0,\"scores\":[0.7]}"), WRONG_NONE);
    // is the reference now
    CHECK_INT(check(bodies, 10, "old", "{\"id\":10,\"scores\":[0.5]}"), WRONG_NONE);
    CHECK_INT(check(bodies, 20, "new", "{\"id\":20,\"scores\":[0.50001]}"), WRONG_NONE);
    CHECK_INT(check(bodies, 30, "new", "{\"id\":30,\"scores\":[0.501]}"), WRONG_SCORES);
    CHECK_INT(check(bodies, 40, "old", "{\"id\":40,\"scores\":[0.501]}"), WRONG_SCORES);
    CHECK_INT(check(bodies, 50, "new", "{\"id\":50,\"scores\":[0.5,0.5]}"), WRONG_SCORES);
    static const char sixty[] = "{\"id\":60,\"scores\":[0.5]}";
    CHECK_INT(bodies_check(bodies, 60, "new", sixty, sizeof sixty - 1, &compared), WRONG_NONE);
    CHECK(compared);
    CHECK_INT(check(bodies, 60, "new", sixty), WRONG_DOUBLED);
    CHECK_INT(check(bodies, 61, "new", sixty), WRONG_DOUBLED);
    CHECK_INT(check(bodies, 61, "new", "{\"id\":62,\"scores\":[0.5]}"), WRONG_SWAPPED);
    CHECK_INT(check(bodies, 63, "new", "{\"id\":63,\"scores\":[null]}"), WRONG_NOT_FINITE);
    static const char *const malformed[] = {"", "{", "[]", "{\"id\":\"64\",\"scores\":[1]}",
            "{\"id\":64}", "{\"id\":64.0,\"scores\":[1]}", "{\"scores\":[1]}"};
    for (size_t i = 0; i < sizeof malformed / sizeof *malformed; i++)
        CHECK_INT(check(bodies, 64, "new", malformed[i]), WRONG_MALFORMED);
    CHECK_INT(check(bodies, 65, "new", "{\"id\":65,\"scores\":[]}"), WRONG_MALFORMED);
    CHECK_INT(check(bodies, 66, "new", "{\"id\":66,\"scores\":[\"1\"]}"), WRONG_MALFORMED);
    CHECK_INT(check(bodies, 67, "new", "{\"id\":67,\"scores\":[1e999]}"), WRONG_MALFORMED);
    bodies_free(bodies);
}
