// SPDX-License-Identifier: Apache-2.0
// The reader of `upgate canary serve` against real stores: a rollout's while it is written, a
// run's, and files that are neither.
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/clock.h"
#include "harness/canary/serve/snapshot.h"
#include "tests/unit/runner.h"
#include "tracer/store/store.h"

static char dir[] = "/tmp/upgate-serve-XXXXXX", path[64];

static void run_sql(sqlite3 *db, const char *sql)
{
    char *message = NULL;
    if (sqlite3_exec(db, sql, NULL, NULL, &message) != SQLITE_OK)
        runner_fail(__FILE__, __LINE__, "%s: %s", sql, message);
    sqlite3_free(message);
}

static struct store *world_store(void)
{
    struct store *store = NULL;
    struct error err = {0};
    if (!path[0] && runner_directory(dir))
        snprintf(path, sizeof path, "%s/x.rollout.db", dir);
    unlink(path);
    if (store_open(path, STORE_CREATE, &store, &err))
        runner_fail(__FILE__, __LINE__, "%s", err.text);
    return store;
}

// The tables that a store of schema 6 has, made where an older one has them not, and a rollout in
// its second stage.
static struct store *world_rollout_store(void)
{
    struct store *store = world_store();
    run_sql(store_db(store),
            "CREATE TABLE IF NOT EXISTS rollout (id INTEGER PRIMARY KEY, name TEXT NOT NULL, plan TEXT NOT NULL, state TEXT NOT NULL, stage INTEGER,"
            " percent REAL, since_ns INTEGER NOT NULL, stage_since_ns INTEGER, reason TEXT NOT NULL, heartbeat_ns INTEGER NOT NULL, pid INTEGER,"
            " up_baseline INTEGER, up_candidate INTEGER) STRICT;"
            "CREATE TABLE IF NOT EXISTS rollout_stage (number INTEGER PRIMARY KEY, name TEXT NOT NULL, percent REAL NOT NULL, begin_s INTEGER,"
            " judged_from_s INTEGER, end_s INTEGER, result TEXT, lost INTEGER) STRICT;"
            "CREATE TABLE IF NOT EXISTS rollout_second (at_s INTEGER, arm INTEGER, stage INTEGER NOT NULL, requests INTEGER NOT NULL,"
            " errors INTEGER NOT NULL, truncated INTEGER NOT NULL, wrong INTEGER NOT NULL, bins BLOB NOT NULL,"
            " rejected INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (at_s, arm)) STRICT,"
            " WITHOUT ROWID;"
            "CREATE TABLE IF NOT EXISTS rollout_cell (at_s INTEGER, stage INTEGER, metric TEXT, value REAL, low REAL, high REAL, threshold REAL,"
            " evidence REAL, needed REAL, dispersion REAL, requests INTEGER, missing INTEGER, verdict TEXT NOT NULL,"
            " PRIMARY KEY (stage, metric, at_s)) STRICT, WITHOUT ROWID;"
            "CREATE TABLE IF NOT EXISTS rollout_decision (id INTEGER PRIMARY KEY, at_ns INTEGER NOT NULL, state_from TEXT NOT NULL,"
            " state_to TEXT NOT NULL, stage_from INTEGER, stage_to INTEGER, percent_from REAL, percent_to REAL, rule TEXT NOT NULL,"
            " reason TEXT NOT NULL, who TEXT NOT NULL, evidence TEXT, effect_ns INTEGER) STRICT;"
            "CREATE TABLE IF NOT EXISTS rollout_source (number INTEGER PRIMARY KEY, kind TEXT NOT NULL, seen INTEGER, kept INTEGER, dropped INTEGER,"
            " lost INTEGER, late INTEGER, last_ns INTEGER, problem TEXT) STRICT;");
    run_sql(store_db(store),
            "INSERT INTO rollout VALUES (1, 'x', '{\"gate\": {\"alpha\": 0.02, \"metrics\": {\"error_rate\": {\"observe\": true}, \"latency_p99\": {\"observe\": false}}}, \"stages\": [{\"aa\": true}, {\"aa\": false}]}', 'running', 1, 5.1, 7,"
            " 8, 'stage 5% began', 100000000000000, 4711, 1, NULL);"
            "INSERT INTO rollout_stage VALUES (0, 'aa', 0, 10, 11, 20, 'passed', 0), (1, '5%', 5, 21, 26, NULL, NULL, 0), (2, '100%', 100, NULL, NULL, NULL, NULL, NULL);"
            "INSERT INTO rollout_second VALUES (11, 0, 0, 100, 1, 0, 0, x'', 0), (11, 1, 0, 50, 2, 1, 0, x'', 0), (30, 0, 1, 95, 0, 0, 0, x'', 0), (30, 1, 1, 5, 1, 0, 3, x'', 0);"
            "INSERT INTO rollout_cell VALUES (25, 1, 'latency_p99', 1.5, NULL, NULL, 1.1, 0, 5, 1, 2, 9, 'undecided'),"
            " (30, 1, 'latency_p99', 1.2, 1.1, 1.3, 1.1, 1, 5, 1, 5, NULL, 'fail'), (30, 1, 'error_rate', 2, NULL, NULL, 1.5, 0, 5, 1, 5, 70, 'undecided'),"
            " (15, 0, 'error_rate', 1, NULL, NULL, 1.5, 0, 5, 1, 5, NULL, 'pass');"
            "INSERT INTO rollout_decision (at_ns, state_from, state_to, percent_to, rule, reason, who) VALUES (1, 'running', 'rolled_back', 0, 'evidence', 'r', 'w'),"
            " (2, 'running', 'running', 25, 'soak', 'r', 'w');"
            "INSERT INTO rollout_source VALUES (0, 'haproxy_log', 10, 9, 1, NULL, 0, 5, NULL);");
    return store;
}

static const struct snapshot *look(struct snapshot_reader *reader, int want)
{
    struct error err = {0};
    int rc = 0;
    const struct snapshot *snapshot = snapshot_read(reader, &rc, &err);
    if (rc != want)
        runner_fail(__FILE__, __LINE__, "%d, not %d: %s", rc, want, err.text);
    CHECK(snapshot != NULL);
    return snapshot;
}

TEST(a_rollout)
{
    struct store *store = world_rollout_store();
    struct snapshot_reader *reader = snapshot_reader_new(path, "x");
    const struct snapshot *got = look(reader, 0);
    CHECK_INT(got->kind, SNAPSHOT_ROLLOUT);
    CHECK(!got->problem && got->has_stage && got->controlled);
    CHECK_STR(got->state, "running");
    CHECK_INT(got->stage, 1);
    CHECK_DBL(got->percent, 5.1, 0);
    CHECK_DBL(got->wanted, 25, 0);
    CHECK_DBL(got->alpha, 0.02, 0);
    CHECK_INT(got->up[SNAPSHOT_BASELINE], 1);
    CHECK_INT(got->up[SNAPSHOT_CANDIDATE], -1);
    CHECK_INT(got->stage_count, 3);
    // an A/A stage: both are baselines
    CHECK_INT(got->stages[0].arms[SNAPSHOT_BASELINE].requests, 150);
    CHECK_INT(got->stages[0].arms[SNAPSHOT_CANDIDATE].requests, 0);
    CHECK_INT(got->stages[1].arms[SNAPSHOT_CANDIDATE].requests, 5);
    CHECK_INT(got->stages[1].arms[SNAPSHOT_CANDIDATE].wrong, 3);
    CHECK(got->stages[1].begun && !got->stages[1].ended && !got->stages[2].begun);
    CHECK_INT(got->cell_count, 3);
    CHECK_STR(got->cells[2].metric, "latency_p99");
    CHECK(got->cells[2].gating && !got->cells[1].gating);
    CHECK(got->stages[0].aa && !got->stages[1].aa);
    CHECK_STR(got->cells[2].verdict, "fail"); // the newest
    CHECK(isnan(got->cells[1].low) && got->cells[1].missing == 70);
    CHECK_INT(got->rule_count, 1);
    CHECK_INT(got->rules[0].count, 1);
    CHECK_INT(got->sources[0].lost, -1);
    CHECK(!got->rolls_back);
    run_sql(store_db(store), "DELETE FROM rollout_decision WHERE id = 2");
    CHECK(look(reader, 0)->rolls_back);
    snapshot_reader_free(reader);
    store_close(store);
}

TEST(only_what_is_new)
{
    struct store *store = world_rollout_store();
    struct snapshot_reader *reader = snapshot_reader_new(path, "x");
    const struct snapshot *first = look(reader, 0);
    CHECK(look(reader, 0) == first); // nothing was committed: not read again
    run_sql(store_db(store),
            "INSERT INTO rollout_second VALUES (31, 0, 1, 90, 0, 0, 0, x'', 0), (31, 1, 1, 10, 1, 0, 0, x'', 0)");
    const struct snapshot *second = look(reader, 0);
    CHECK_INT(second->stages[1].arms[SNAPSHOT_CANDIDATE].requests, 15);
    CHECK_INT(second->stages[1].arms[SNAPSHOT_BASELINE].requests, 185);
    // Many rows, in chunks that end within a second, too.
    run_sql(store_db(store),
            "WITH RECURSIVE n (i) AS (SELECT 100 UNION ALL SELECT i + 1 FROM n WHERE i < 2600) "
            "INSERT INTO rollout_second SELECT i, a, 1, 1 + a, 0, 0, 0, x'', 0 FROM n, (SELECT 0 AS a UNION ALL SELECT 1)");
    const struct snapshot *third = look(reader, 0);
    CHECK_INT(third->stages[1].arms[SNAPSHOT_BASELINE].requests, 185 + 2501);
    CHECK_INT(third->stages[1].arms[SNAPSHOT_CANDIDATE].requests, 15 + 2 * 2501);
    // The clock was set back by an hour: a second that was counted takes more in.
    run_sql(store_db(store),
            "UPDATE rollout SET heartbeat_ns = 12000000000; UPDATE rollout_second SET requests = 1005 WHERE at_s = 30 AND arm = 1");
    CHECK_INT(look(reader, 0)->stages[1].arms[SNAPSHOT_CANDIDATE].requests, 1015 + 2 * 2501);
    snapshot_reader_free(reader);
    store_close(store);
}

TEST(a_commit_is_not_kept_waiting)
{
    struct store *store = world_rollout_store();
    struct snapshot_reader *reader = snapshot_reader_new(path, "x");
    look(reader, 0);
    sqlite3_busy_timeout(store_db(store), 0); // a read that was left open would be seen
    run_sql(store_db(store), "UPDATE rollout SET state = 'promoted'");
    CHECK_STR(look(reader, 0)->state, "promoted");
    run_sql(store_db(store), "BEGIN EXCLUSIVE"); // and the writer's lock leaves the last snapshot
    const struct snapshot *kept = look(reader, -EBUSY);
    CHECK_STR(kept->state, "promoted");
    run_sql(store_db(store), "UPDATE rollout SET state = 'paused'; COMMIT");
    CHECK_STR(look(reader, 0)->state, "paused");
    snapshot_reader_free(reader);
    store_close(store);
}

TEST(a_store_comes_and_goes)
{
    if (!path[0] && runner_directory(dir))
        snprintf(path, sizeof path, "%s/x.rollout.db", dir);
    unlink(path);
    struct snapshot_reader *reader = snapshot_reader_new(path, "x");
    CHECK_CONTAINS(look(reader, -ENOENT)->problem, "no measurement yet");
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    CHECK(fd >= 0);
    // a controller that has just locked it
    CHECK_CONTAINS(look(reader, -ENOENT)->problem, "no measurement yet");
    close(fd);
    store_close(world_store()); // its tables, no rollout in them
    CHECK_CONTAINS(look(reader, 0)->problem, "no measurement yet");
    store_close(world_rollout_store()); // another file of the same name
    CHECK_STR(look(reader, 0)->state, "running");
    unlink(path);
    const struct snapshot *kept = look(reader, -ENOENT);
    CHECK_STR(kept->state, "running"); // until it is ten seconds old, which verdict_of() sees
    CHECK(kept->read_ns > 0 && kept->read_ns <= clock_monotonic_ns());
    snapshot_reader_free(reader);
}

TEST(of_another_name)
{
    store_close(world_rollout_store());
    struct snapshot_reader *reader = snapshot_reader_new(path, "y");
    const struct snapshot *got = look(reader, -EINVAL);
    CHECK_INT(got->kind, SNAPSHOT_NOTHING);
    CHECK_CONTAINS(got->problem, "no store of this rollout");
    snapshot_reader_free(reader);
}

TEST(not_a_store)
{
    unlink(path[0] ? path : "/nonexistent");
    if (!path[0] && runner_directory(dir))
        snprintf(path, sizeof path, "%s/x.rollout.db", dir);
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && write(fd, "this is no database", 19) == 19);
    close(fd);
    struct snapshot_reader *reader = snapshot_reader_new(path, "x");
    CHECK_CONTAINS(look(reader, -EINVAL)->problem, "no store");
    snapshot_reader_free(reader);
}

TEST(hostile_rows)
{
    struct store *store = world_rollout_store();
    run_sql(store_db(store),
            "UPDATE rollout SET reason = 'a' || char(10) || char(27) || '[31m' || CAST(x'ff41' AS TEXT), percent = 9e999;"
            "DELETE FROM rollout_stage; WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 999) "
            "INSERT INTO rollout_stage SELECT i, 's', -9e999, 9223372036854775807, NULL, -1, 'x', -1 FROM n;"
            "WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 9999) "
            "INSERT INTO rollout_cell SELECT 1, i % 100, 'm' || i, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'undecided' FROM n;"
            "INSERT INTO rollout_second VALUES (50, 7, 1, 9, 0, 0, 0, x'', 0), (51, 1, 1, -9, 0, 0, 0, x'', 0),"
            " (52, 1, 1, 9223372036854775807, 0, 0, 0, x'', 0), (53, 1, 1, 9223372036854775807, 0, 0, 0, x'', 0)");
    struct snapshot_reader *reader = snapshot_reader_new(path, "x");
    const struct snapshot *got = look(reader, 0);
    CHECK(!strchr(got->reason, '\n') && !strchr(got->reason, 27));
    CHECK_INT(got->stage_count, SNAPSHOT_STAGES_MAX);
    CHECK(got->cell_count <= SNAPSHOT_CELLS_MAX);
    CHECK(got->stages[1].arms[SNAPSHOT_CANDIDATE].requests > 0);
    snapshot_reader_free(reader);
    store_close(store);
}

TEST(a_run)
{
    struct store *store = world_store();
    run_sql(store_db(store),
            "INSERT INTO run (id, uuid, kind, state, upgate_version, started_wall_ns, seed, plan, command_line, host, host_key)"
            " VALUES (1, 'u', 'ab', 'done', '0', 0, 7, '{}', '[]', '{}', 'k');"
            "INSERT INTO cell (workload, metric, unit, direction, gating, ratio, ci_lower, ci_upper, alpha, pairs, margin, verdict, improved, reason)"
            " VALUES ('w', 'step_time', 'ns', 'lower', 1, 1.01, 1.0, 1.02, 0.004, 10, 0.02, 'pass', 0, ''),"
            " ('w', 'throughput', '1/s', 'higher', 0, NULL, NULL, NULL, 0.004, 0, 0.25, 'unchecked', 0, '');"
            "INSERT INTO verdict VALUES (1, 'pass', 'all pass', NULL, '{}', 1, 1, '', 0);");
    struct snapshot_reader *reader = snapshot_reader_new(path, "x");
    const struct snapshot *got = look(reader, 0);
    CHECK_INT(got->kind, SNAPSHOT_RUN);
    CHECK_STR(got->verdict, "pass");
    CHECK_INT(got->cell_count, 2);
    CHECK_DBL(got->cells[0].threshold, 1.02, 1e-12);
    CHECK_DBL(got->cells[1].threshold, 0.8, 1e-12);
    CHECK_DBL(got->alpha, 0.004, 0);
    run_sql(store_db(store), "UPDATE run SET kind = 'record'");
    CHECK_CONTAINS(look(reader, -EINVAL)->problem, "no store of this rollout");
    snapshot_reader_free(reader);
    store_close(store);
}
