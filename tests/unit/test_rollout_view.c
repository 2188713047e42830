// SPDX-License-Identifier: Apache-2.0
// A rollout's store as the reports read it: sums and quantiles of arms, what counts for whom,
// buckets of long rollouts, series that are thinned, and what is not known. The forms themselves:
// tests/e2e/rollout_report.py.
#include "reports/render/rollout/rollout_data.h"
#include "reports/render/rollout/rollout_words.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/strings.h"
#include "tests/unit/runner.h"

static const int64_t view_begin = 1795262400;

struct world {
    char directory[64];
    struct store *store;
};

static void world_sql(struct world *world, const char *sql)
{
    char *message = NULL;
    if (sqlite3_exec(store_db(world->store), sql, NULL, NULL, &message) != SQLITE_OK)
        runner_fail(__FILE__, __LINE__, "%s: %s", sql, message ? message : "");
    sqlite3_free(message);
}

static void world_make(struct world *world)
{
    struct error err = {0};
    strcpy(world->directory, "/tmp/upgate-rollout-XXXXXX");
    CHECK(mkdtemp(world->directory) != NULL && chdir(world->directory) == 0);
    CHECK_INT(store_open("r.db", STORE_CREATE, &world->store, &err), 0);
    world_sql(world,
            "INSERT INTO rollout VALUES (1, 'r', '{\"stages\": [{\"soak_ns\": 30, \"aa\": true}, {\"mirror\": 0.05}, {\"requests\": 10}]}', 'running', 2, 25,"
            " 1795262500000000000, NULL, 'soaks', 1795262500000000000, 7, 1, NULL);"
            "INSERT INTO rollout_stage VALUES (0, 'first', 5, 1795262400, NULL, 1795262410, 'passed', 0), (1, 'mirrored', 0, 1795262410, NULL, 1795262420, 'passed', NULL),"
            " (2, '25%', 25, 1795262420, NULL, NULL, NULL, NULL)");
}

static void world_second(struct world *world, int64_t at_s, int arm, int stage, uint64_t requests,
        uint64_t errors, double latency_s)
{
    static uint32_t bins[CANARY_BINS];
    static uint8_t packed[CANARY_PACKED_MAX];
    struct error err = {0};
    memset(bins, 0, sizeof bins);
    bins[canary_bin(latency_s)] = (uint32_t)(requests - errors);
    size_t size = canary_pack(bins, packed);
    CHECK_INT(store_exec(world->store, &err,
                      "INSERT INTO rollout_second VALUES (?, ?, ?, ?, ?, 0, 0, ?, 0)", "iiiiib",
                      at_s, (int64_t)arm, (int64_t)stage, (int64_t)requests, (int64_t)errors,
                      (const void *)packed, size),
            0);
}

static struct rollout_view *world_load(void)
{
    struct rollout_view *view = NULL;
    struct error err = {0};
    int rc = rollout_view_load("r.db", &view, &err);
    if (rc)
        runner_fail(__FILE__, __LINE__, "%s", err.text);
    CHECK(view != NULL);
    return view;
}

static void world_end(struct world *world)
{
    store_close(world->store);
    unlink("r.db");
    unlink("r.db-wal");
    unlink("r.db-shm");
    CHECK(chdir("/") == 0);
    rmdir(world->directory);
}

// An A/A stage is the baseline's, both arms of it; mirrored requests are no user's; each stage has
// what happened in it.
TEST(arms)
{
    struct world world;
    world_make(&world);
    for (int64_t i = 0; i < 30; i++)
        for (int arm = 0; arm < CANARY_ARMS; arm++)
            world_second(&world, view_begin + i, arm, (int)(i / 10), arm ? 10 : 100, arm,
                    arm ? 0.008 : 0.004);
    struct rollout_view *view = world_load();
    CHECK_INT(view->arms[0].sum.requests, 10 * 100 + 10 * 10 + 10 * 100);
    CHECK_INT(view->arms[1].sum.requests, 10 * 10);
    CHECK_INT(view->arms[0].sum.errors, 10);
    CHECK_INT(view->arms[1].sum.errors, 10);
    CHECK_DBL(view->arms[1].p99_s, 0.008, 0.008 * 0.02);
    CHECK_DBL(view->arms[0].p50_s, 0.004, 0.004 * 0.02);
    for (int stage = 0; stage < 3; stage++)
        CHECK_INT(view->stages[stage].arms[1].sum.requests, 100);
    CHECK(view->stages[0].aa && !view->stages[0].shadow && view->stages[1].shadow &&
            !view->stages[2].aa);
    CHECK_INT(view->stages[2].requests, 10);
    CHECK_INT(view->bucket_count, 30);
    CHECK_INT(view->width_s, 1);
    json_t *json = rollout_view_json(view);
    CHECK_INT(json_integer_value(json_object_get(
                      json_object_get(json_object_get(json, "arms"), "candidate"), "requests")),
            100);
    json_decref(json);
    rollout_view_free(view);
    world_end(&world);
}

// Not a second of it: NULL, never 0.
TEST(nothing_known)
{
    struct world world;
    world_make(&world);
    world_sql(&world, "UPDATE rollout SET stage = NULL, percent = NULL, up_baseline = NULL");
    struct rollout_view *view = world_load();
    json_t *json = rollout_view_json(view);
    CHECK(json_is_null(json_object_get(json, "stage")) &&
            json_is_null(json_object_get(json, "percent")));
    CHECK(json_is_null(
            json_object_get(json_object_get(json_object_get(json, "arms"), "baseline"), "p99_ms")));
    CHECK_INT(json_array_size(json_object_get(json, "evidence")), 0);
    json_decref(json);
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    rollout_view_status(view, stream, true);
    fclose(stream);
    CHECK_CONTAINS(text, "RUNNING");
    CHECK_CONTAINS(text, "- to the candidate");
    free(text);
    rollout_view_free(view);
    world_end(&world);
}

static char *view_status(const struct rollout_view *view)
{
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    rollout_view_status(view, stream, false);
    fclose(stream);
    return text;
}

// Names of stages, metrics, sources and rules are the plan's or the store's: neither screen nor
// Markdown obeys them.
TEST(names_are_text)
{
    struct world world;
    world_make(&world);
    world_sql(&world,
            "UPDATE rollout_stage SET name = char(27) || '[2J<b>|@team' WHERE number = 2;"
            "INSERT INTO rollout_cell VALUES (1795262430, 2, char(27) || '[31modd', 1.5, 1, 2, 1.1, 0.5, 4.6, NULL, 10, NULL, 'undecided');"
            "INSERT INTO rollout_source VALUES (0, char(27) || ']0;x' || char(7) || 'log', 1, 1, 0, 0, 0, 1795262430000000000, NULL);"
            "INSERT INTO rollout_decision VALUES (1, 1795262430000000000, 'waiting', 'running', NULL, 2, 0, 25, 'odd|<i>', 'r', 'w', NULL, NULL)");
    struct rollout_view *view = world_load();
    char *text = view_status(view), *markdown = rollout_markdown(view);
    CHECK(strchr(text, 27) == NULL && strchr(text, 7) == NULL);
    CHECK_CONTAINS(text, "stage <b>|@team (3 of 3)");
    CHECK(strstr(markdown, "<b>") == NULL && strstr(markdown, "<i>") == NULL &&
            strstr(markdown, "@team") == NULL);
    CHECK_CONTAINS(markdown, "stage &lt;b>&#124;@<!-- -->team (3 of 3)");
    CHECK_CONTAINS(markdown, " | odd&#124;&lt;i> | running | ");
    free(markdown);
    free(text);
    rollout_view_free(view);
    world_end(&world);
}

// The time of the day alone says nothing of a decision of last week, and no time says much without
// its zone.
TEST(decisions_have_their_day)
{
    struct world world;
    world_make(&world);
    world_sql(&world,
            "INSERT INTO rollout_decision VALUES (1, 1795262430000000000, 'waiting', 'running', NULL, 2, 0, 25, 'soak', 'begun', 'w', NULL, NULL), "
            "(2, 1795477800000000000, 'running', 'running', 2, 2, 25, 25, 'soak', 'at night', 'w', NULL, NULL), "
            "(3, 1795522800000000000, 'running', 'running', 2, 2, 25, 25, 'soak', 'later', 'w', NULL, NULL)");
    struct rollout_view *view = world_load();
    view->read_ns = INT64_C(1795522860000000000);
    char *text = view_status(view);
    CHECK_CONTAINS(text,
            "\ndecisions (UTC)\n12:20:00    stage passed: running, 25 % to the candidate, by w: later\n"
            // of the last 24 hours, but not of this day
            "11-23 23:50 stage passed: running, 25 % to the candidate, by w: at night\n"
            "11-21 12:00 stage passed: running, 25 % to the candidate, by w: begun\n");
    free(text);
    rollout_view_free(view);
    world_end(&world);
}

// Ten days in as many buckets as ten minutes, and no second of it lost.
TEST(long_rollout)
{
    struct world world;
    world_make(&world);
    for (int64_t hour = 0; hour < 240; hour++)
        world_second(&world, view_begin + hour * 3600, 0, 2, 7, 0, 0.001);
    struct rollout_view *view = world_load();
    CHECK(view->bucket_count <= ROLLOUT_BUCKETS_MAX + 1);
    CHECK_INT(view->from_s % view->width_s, 0);
    uint64_t sum = 0;
    for (size_t i = 0; i < view->bucket_count; i++)
        sum += view->buckets[i].arms[0].sum.requests;
    CHECK_INT(sum, 240 * 7);
    rollout_view_free(view);
    world_end(&world);
}

// Many cells are thinned evenly; the newest one is what holds.
TEST(series)
{
    struct world world;
    world_make(&world);
    world_sql(&world,
            "WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 99999) INSERT INTO rollout_cell SELECT 1795262400 + 5 * i, 2, m.name, 1.0 + i / 1e6,"
            " NULL, 9e999, 1.1, i / 1e4, 5, 1, i, NULL, CASE i WHEN 99999 THEN 'pass' ELSE 'undecided' END FROM n, (SELECT 'error_rate' AS name UNION SELECT 'latency_p99') AS m");
    struct rollout_view *view = world_load();
    CHECK_INT(view->series_count, 2);
    for (size_t i = 0; i < view->series_count; i++) {
        const struct rollout_series *series = &view->series[i];
        CHECK(series->count > ROLLOUT_POINTS_MAX / 4 && series->count <= ROLLOUT_POINTS_MAX);
        CHECK_INT(series->points[series->count - 1].at_s, 1795262400 + 5 * 99999);
        CHECK_INT(series->points[series->count - 1].verdict, ROLLOUT_PASS);
        // infinite is not known
        CHECK(isnan(series->points[0].high) && isnan(series->points[0].low));
        for (size_t j = 1; j < series->count; j++)
            CHECK(series->points[j].at_s > series->points[j - 1].at_s);
    }
    json_t *json = rollout_view_json(view),
           *cell = json_array_get(json_object_get(json, "evidence"), 0);
    CHECK_STR(json_string_value(json_object_get(cell, "verdict")), "pass");
    CHECK(json_is_null(json_object_get(cell, "bound")));
    json_decref(json);
    rollout_view_free(view);
    world_end(&world);
}

// What the outcome rests on: of each metric the latest stage in which it was decided, the failed
// ones first.
TEST(basis)
{
    struct world world;
    world_make(&world);
    for (int64_t i = 20; i < 30; i++)
        for (int arm = 0; arm < CANARY_ARMS; arm++)
            world_second(&world, view_begin + i, arm, 2, 1000, arm ? 5 : 1, arm ? 0.008 : 0.004);
    world_sql(&world,
            "INSERT INTO rollout_stage (number, name, percent, begin_s) VALUES (3, '100%', 100, 1795262430);"
            // of the A/A stage: no news of the candidate
            "INSERT INTO rollout_cell VALUES (1795262429, 0, 'latency_p50', 9, 8, 10, 1.1, 9, 5, 1, 100, NULL, 'fail'),"
            " (1795262429, 2, 'error_rate', 1.2, 0.9, 1.4, 1.5, -1, 5, 1, 100, NULL, 'pass'),"
            // no numbers of both arms
            " (1795262429, 2, 'latency_mean', 1.03, 1, 1.05, 1.1, -1, 5, 1, 100, NULL, 'pass'),"
            " (1795262429, 2, 'latency_p50', 2.1, NULL, 3.2, 1.1, 6, 5, 1, 100, NULL, 'fail'),"
            " (1795262439, 3, 'error_rate', NULL, NULL, NULL, 1.5, -1, 5, 1, 100, NULL, 'undecided');");
    struct rollout_view *view = world_load();
    char *text = rollout_basis(view);
    CHECK_STR(text,
            "Median latency in stage 25%: 7.95 ms against the baseline's 3.97 ms; estimate 2.1 times, at most 3.2 times; allowed: up to +10 %.\n"
            "Error rate in stage 25%: 0.5 % against the baseline's 0.1 %; estimate +20 %, at most +40 %; allowed: up to +50 %.\n"
            "Mean latency in stage 25%: +3.0 % against the baseline's, at most +5.0 %; allowed: up to +10 %.\n");
    free(text);
    rollout_view_free(view);
    world_sql(&world,
            "UPDATE rollout SET state = 'rolled_back', plan = json_insert(plan, '$.gate', json('{\"alpha\": 0.01}'));"
            "INSERT INTO rollout_decision (at_ns, state_from, state_to, rule, reason, who) VALUES (1795262440000000000, 'running', 'rolled_back', 'evidence', 'x', 'controller')");
    view = world_load();
    text = rollout_basis(view);
    CHECK_CONTAINS(text,
            "in that stage: 10,000 requests of the candidate, 10,000 of the baseline. Of candidates that equal the baseline at most 1 % are");
    free(text);
    rollout_view_free(view);
    // Of the candidate alone there is a lower end and no estimate; without any there is neither.
    world_sql(&world,
            "UPDATE rollout_second SET rejected = 250 * arm; UPDATE rollout_cell SET value = NULL, low = 0 WHERE metric = 'error_rate';"
            "INSERT INTO rollout_cell VALUES (1795262429, 2, 'rejected_rate', NULL, 10.2, NULL, 1.5, 20, 5, 1, 100, NULL, 'fail')");
    view = world_load();
    text = rollout_basis(view);
    CHECK_CONTAINS(text,
            "Rejected rate in stage 25%: 25 % against the baseline's 0 %; at least 10.2 times; allowed: up to +50 %.\n");
    CHECK(!strstr(text, "at least 0"));
    free(text);
    rollout_view_free(view);
    world_end(&world);
}

TEST(refused)
{
    static const char *const damages[][2] = {
            {"UPDATE rollout SET percent = -1", "share of the traffic is -1 %"},
            {"UPDATE rollout SET plan = 'x'", "its plan is no JSON object"},
            {"UPDATE rollout_stage SET percent = 400 WHERE number = 1", "stage 1 has 400 %"},
            {"INSERT INTO rollout_second VALUES (1795262400, 2, 0, 1, 0, 0, 0, x'', 0)",
                    "has an arm 2"},
            {"INSERT INTO rollout_second VALUES (1795262400, 1, 0, 1, 2, 0, 0, x'', 0)",
                    "1 requests, 2 errors"},
            {"INSERT INTO rollout_second VALUES (1795262400, 1, 0, 1, 0, 0, 0, x'80', 0)",
                    "no packed bins"},
            {"INSERT INTO rollout_second VALUES (-4, 1, 0, 1, 0, 0, 0, x'', 0)", "second -4"},
            {"INSERT INTO rollout_decision VALUES (1, 5, 'running', 'up', 0, 0, 0, 0, 'soak', 'r', 'w', NULL, NULL)",
                    "leads to the state 'up'"},
            {"INSERT INTO rollout_recording VALUES (3, 'p', 1, 2, NULL)",
                    "a recording is of arm 3"},
    };
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        struct world world;
        struct rollout_view *view = NULL;
        struct error err = {0};
        world_make(&world);
        world_sql(&world, damages[i][0]);
        CHECK_INT(rollout_view_load("r.db", &view, &err), -EBADMSG);
        CHECK_CONTAINS(err.text, damages[i][1]);
        CHECK_CONTAINS(err.text, "r.db");
        CHECK(view == NULL);
        world_end(&world);
    }
}

TEST(no_rollout)
{
    struct world world;
    struct rollout_view *view = NULL;
    struct error err = {0};
    world_make(&world);
    world_sql(&world, "DELETE FROM rollout");
    CHECK_INT(rollout_view_load("r.db", &view, &err), -EINVAL);
    CHECK_CONTAINS(err.text, "holds no rollout");
    CHECK(rollout_view_load("none.db", &view, &err) != 0 && view == NULL);
    world_end(&world);
}

TEST(words)
{
    char buf[NUMBERS_SIZE];
    CHECK_STR(rollout_percent(25, buf), "25 %");
    CHECK_STR(rollout_percent(1.171875, buf), "1.2 %"); // 3 of 256
    CHECK_STR(rollout_percent(0, buf), "0 %");
    CHECK_STR(rollout_percent(NAN, buf), "-");
    CHECK_STR(rollout_rate(0, 0, buf), "-");
    CHECK_STR(rollout_rate(0, 5, buf), "0 %");
    CHECK_STR(rollout_rate(1, 800, buf), "0.125 %");
    CHECK_STR(rollout_change(1.031, buf), "+3.1 %");
    CHECK_STR(rollout_change(0.5, buf), "-50 %");
    CHECK_STR(rollout_change(INFINITY, buf), "-");
    CHECK_STR(rollout_cell_value("wrong_answers", 3, buf), "3");
    CHECK_STR(rollout_cell_value("wrong_answers", 1e300, buf), "-");
    CHECK_INT(rollout_state_by_word("rolled_back"), ROLLOUT_ROLLED_BACK);
    CHECK_INT(rollout_state_by_word("flying"), -1);
    CHECK_STR(rollout_metric_title("mine"), "mine");
    CHECK_STR(rollout_rule_title("soak"), "stage passed");
    CHECK_STR(rollout_clock(-1, buf), "-");
}
