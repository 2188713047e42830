// SPDX-License-Identifier: Apache-2.0
// The tables rollout_* of a rollout's store into a snapshot. Whatever a table holds, the snapshot
// is bounded: at most so many stages, cells, rules and sources as snapshot.h says.
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/containers/vector.h"
#include "common/strings.h"
#include "harness/canary/serve/snapshot_tables.h"

enum {
    SUMS_ROWS = 1000, // at a time: 2 ms
    SUMS_AHEAD_S = 5  // a second's rows are written within two seconds of it
};

const char *snapshot_text(struct snapshot *snapshot, sqlite3_stmt *stmt, int column)
{
    const char *text = sqlite3_column_type(stmt, column) == SQLITE_TEXT
            ? (const char *)sqlite3_column_text(stmt, column)
            : NULL;
    char *copy = arena_copy_utf8(snapshot->arena, text);
    if (!copy)
        return NULL;
    string_make_plain(copy, strlen(copy));
    for (char *at = copy; *at; at++)
        if (*at == '\n')
            *at = ' '; // one line in a log, a label, an event of Flagger
    return copy;
}

double snapshot_double(sqlite3_stmt *stmt, int column)
{
    int type = sqlite3_column_type(stmt, column);
    return type == SQLITE_FLOAT || type == SQLITE_INTEGER ? sqlite3_column_double(stmt, column)
                                                          : NAN;
}

int64_t snapshot_int(sqlite3_stmt *stmt, int column)
{
    return sqlite3_column_type(stmt, column) == SQLITE_INTEGER ? sqlite3_column_int64(stmt, column)
                                                               : -1;
}

void snapshot_sums_clear(struct snapshot_sums *sums)
{
    free(sums->stages);
    *sums = (struct snapshot_sums){0};
}

static struct snapshot_counts *sums_at(struct snapshot_sums *sums, int64_t stage, int64_t arm)
{
    if (arm < 0 || arm >= SNAPSHOT_ARMS)
        return NULL;
    for (int i = 0; i < sums->count; i++)
        if (sums->stages[i].stage == stage)
            return &sums->stages[i].arms[arm];
    if (sums->count == SNAPSHOT_STAGES_MAX)
        return NULL;
    struct snapshot_sum *sum = vector_add(sums->stages, sums->count);
    sum->stage = stage;
    return &sum->arms[arm];
}

static void count_add(int64_t *sum, int64_t more)
{
    if (more > 0 && *sum <= INT64_MAX - more)
        *sum += more;
}

// A few rows at a time, each read a transaction of its own: while a reader reads, the controller
// cannot commit, and it waits for a tenth of a second at most. A store of a day is read within a
// second.
static int sums_chunk(
        struct store *store, struct snapshot_sums *sums, int *ret_rows, struct error *err)
{
    sqlite3_stmt *stmt = store_query(store, err,
            "SELECT at_s, arm, stage, requests, errors, truncated, wrong FROM rollout_second "
            "WHERE (at_s, arm) > (?, ?) ORDER BY at_s, arm LIMIT ?",
            "iii", sums->last_s, sums->last_arm, (int64_t)SUMS_ROWS);
    int rc = stmt ? 1 : -EIO;
    *ret_rows = 0;
    while (rc > 0 && (rc = store_step(store, stmt, err)) > 0) {
        struct snapshot_counts *counts =
                sums_at(sums, snapshot_int(stmt, 2), snapshot_int(stmt, 1));
        sums->last_s = snapshot_int(stmt, 0);
        sums->last_arm = snapshot_int(stmt, 1);
        ++*ret_rows;
        if (!counts)
            continue;
        count_add(&counts->requests, snapshot_int(stmt, 3));
        count_add(&counts->errors, snapshot_int(stmt, 4));
        count_add(&counts->truncated, snapshot_int(stmt, 5));
        count_add(&counts->wrong, snapshot_int(stmt, 6));
    }
    return rc;
}

int snapshot_load_sums(struct store *store, struct snapshot_sums *sums, struct error *err)
{
    int64_t alive_ns = 0;
    int rc = store_get_int(store, &alive_ns, err, "SELECT heartbeat_ns FROM rollout", ""),
        rows = SUMS_ROWS;
    // The controller's clock was set back: it now adds to seconds that were counted. All of them
    // again.
    if (rc == 0 && sums->last_s > alive_ns / 1000000000 + SUMS_AHEAD_S)
        snapshot_sums_clear(sums);
    while (rc == 0 && rows == SUMS_ROWS)
        rc = sums_chunk(store, sums, &rows, err);
    return rc;
}

// What the plan says, as the rollout keeps it. New reference; NULL: it cannot be read, and every
// metric counts.
static json_t *plan_load(struct snapshot *snapshot, const char *text)
{
    json_t *plan = text ? json_loads(text, 0, NULL) : NULL;
    const json_t *alpha = json_object_get(json_object_get(plan, "gate"), "alpha");
    double value = json_is_number(alpha) ? json_number_value(alpha) : NAN;
    snapshot->alpha = value > 0 && value < 1 ? value : NAN;
    return plan;
}

static bool plan_observes(const json_t *plan, const char *metric)
{
    const json_t *metrics = json_object_get(json_object_get(plan, "gate"), "metrics");
    return json_is_true(json_object_get(json_object_get(metrics, metric), "observe"));
}

static bool plan_compares_baselines(const json_t *plan, int64_t stage)
{
    return stage >= 0 &&
            json_is_true(json_object_get(
                    json_array_get(json_object_get(plan, "stages"), (size_t)stage), "aa"));
}

static int load_head(
        struct store *store, struct snapshot *snapshot, json_t **ret_plan, struct error *err)
{
    sqlite3_stmt *stmt = store_query(store, err,
            "SELECT name, state, stage, percent, since_ns, reason, heartbeat_ns, up_baseline, up_candidate, plan, "
            "pid FROM rollout",
            "");
    int rc = stmt ? store_step(store, stmt, err) : -EIO;
    if (rc <= 0)
        return rc ? rc : error_set(err, -ENOENT, "'%s': the rollout is gone", store_path(store));
    const char *name = snapshot_text(snapshot, stmt, 0);
    if (!name || strcmp(name, snapshot->name) != 0) {
        rc = error_set(err, -EINVAL, "'%s' is the store of rollout '%s', not of '%s'",
                store_path(store), name ? name : "", snapshot->name);
        sqlite3_reset(stmt);
        return rc;
    }
    snapshot->kind = SNAPSHOT_ROLLOUT;
    snapshot->problem = NULL;
    snapshot->state = snapshot_text(snapshot, stmt, 1);
    snapshot->has_stage = sqlite3_column_type(stmt, 2) == SQLITE_INTEGER;
    snapshot->stage = snapshot_int(stmt, 2);
    snapshot->percent = snapshot_double(stmt, 3);
    snapshot->since_ns = snapshot_int(stmt, 4);
    snapshot->reason = snapshot_text(snapshot, stmt, 5);
    snapshot->heartbeat_ns = snapshot_int(stmt, 6);
    for (int arm = 0; arm < SNAPSHOT_ARMS; arm++) {
        int64_t up = snapshot_int(stmt, 7 + arm);
        snapshot->up[arm] = up < 0 ? -1 : up != 0;
    }
    *ret_plan = plan_load(snapshot,
            sqlite3_column_type(stmt, 9) == SQLITE_TEXT ? (const char *)sqlite3_column_text(stmt, 9)
                                                        : NULL);
    snapshot->controlled = sqlite3_column_type(stmt, 10) == SQLITE_INTEGER;
    return store_step_end(store, stmt, err);
}

// In an A/A stage the second arm is a baseline, too: none of its requests is the candidate's.
static void stage_counts(struct snapshot_stage *stage, const struct snapshot_sum *sum)
{
    memcpy(stage->arms, sum->arms, sizeof stage->arms);
    if (!stage->aa)
        return;
    struct snapshot_counts *to = &stage->arms[SNAPSHOT_BASELINE],
                           *from = &stage->arms[SNAPSHOT_CANDIDATE];
    count_add(&to->requests, from->requests);
    count_add(&to->errors, from->errors);
    count_add(&to->truncated, from->truncated);
    count_add(&to->wrong, from->wrong);
    *from = (struct snapshot_counts){0};
}

static int load_stages(struct store *store, const struct snapshot_sums *sums, const json_t *plan,
        struct snapshot *snapshot, struct error *err)
{
    snapshot->stages = arena_alloc(snapshot->arena, SNAPSHOT_STAGES_MAX, sizeof *snapshot->stages);
    sqlite3_stmt *stmt = store_query(store, err,
            "SELECT number, name, percent, result, begin_s, end_s FROM rollout_stage "
            "ORDER BY number LIMIT ?",
            "i", (int64_t)SNAPSHOT_STAGES_MAX);
    int rc = stmt ? 1 : -EIO;
    while (rc > 0 && (rc = store_step(store, stmt, err)) > 0) {
        struct snapshot_stage *stage = &snapshot->stages[snapshot->stage_count++];
        const char *name = snapshot_text(snapshot, stmt, 1);
        *stage = (struct snapshot_stage){.number = snapshot_int(stmt, 0),
                .name = name ? name : "",
                .percent = snapshot_double(stmt, 2),
                .result = snapshot_text(snapshot, stmt, 3),
                .begun = snapshot_int(stmt, 4) >= 0,
                .ended = snapshot_int(stmt, 5) >= 0};
        stage->aa = plan_compares_baselines(plan, stage->number);
        for (int i = 0; i < sums->count; i++)
            if (sums->stages[i].stage == stage->number)
                stage_counts(stage, &sums->stages[i]);
    }
    return rc;
}

static void cell_take(struct snapshot *snapshot, const json_t *plan, sqlite3_stmt *stmt)
{
    const char *metric = snapshot_text(snapshot, stmt, 1),
               *verdict = snapshot_text(snapshot, stmt, 2);
    snapshot->cells[snapshot->cell_count++] = (struct snapshot_cell){.stage = snapshot_int(stmt, 0),
            .metric = metric ? metric : "",
            .verdict = verdict ? verdict : "",
            .gating = !metric || !plan_observes(plan, metric),
            .value = snapshot_double(stmt, 3),
            .low = snapshot_double(stmt, 4),
            .high = snapshot_double(stmt, 5),
            .threshold = snapshot_double(stmt, 6),
            .evidence = snapshot_double(stmt, 7),
            .needed = snapshot_double(stmt, 8),
            .requests = snapshot_int(stmt, 9),
            .missing = snapshot_int(stmt, 10),
            .pairs = -1};
}

// The newest cell of each stage and metric, each found by the key: the table has one every five
// seconds.
static int load_cells(
        struct store *store, const json_t *plan, struct snapshot *snapshot, struct error *err)
{
    snapshot->cells = arena_alloc(snapshot->arena, SNAPSHOT_CELLS_MAX, sizeof *snapshot->cells);
    for (int i = 0; i < snapshot->stage_count; i++) {
        int64_t number = snapshot->stages[i].number;
        const char *metric = "";
        int rc = 1;
        while (rc > 0 && snapshot->cell_count < SNAPSHOT_CELLS_MAX) {
            sqlite3_stmt *stmt = store_query(store, err,
                    "SELECT stage, metric, verdict, value, low, high, threshold, evidence, needed, requests, missing "
                    "FROM rollout_cell WHERE stage = ?1 AND metric = (SELECT min(metric) FROM rollout_cell "
                    "WHERE stage = ?1 AND metric > ?2) ORDER BY at_s DESC LIMIT 1",
                    "is", number, metric);
            rc = stmt ? store_step(store, stmt, err) : -EIO;
            if (rc > 0) {
                cell_take(snapshot, plan, stmt);
                const char *raw = (const char *)sqlite3_column_text(stmt, 1);
                // as it is stored: the next search starts there
                metric = raw ? arena_copy(snapshot->arena, raw) : "";
                rc = raw ? store_step(store, stmt, err) : 0;
                rc = rc == 0 && raw ? 1 : rc;
            }
        }
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int load_decisions(struct store *store, struct snapshot *snapshot, struct error *err)
{
    snapshot->rules = arena_alloc(snapshot->arena, SNAPSHOT_RULES_MAX, sizeof *snapshot->rules);
    sqlite3_stmt *stmt = store_query(store, err,
            "SELECT rule, count(*) FROM rollout_decision WHERE state_to = 'rolled_back' AND state_from <> state_to "
            "GROUP BY rule LIMIT ?",
            "i", (int64_t)SNAPSHOT_RULES_MAX);
    int rc = stmt ? 1 : -EIO;
    while (rc > 0 && (rc = store_step(store, stmt, err)) > 0) {
        const char *rule = snapshot_text(snapshot, stmt, 0);
        snapshot->rules[snapshot->rule_count++] =
                (struct snapshot_rule){rule ? rule : "", snapshot_int(stmt, 1)};
    }
    if (rc)
        return rc;
    stmt = store_query(store, err,
            "SELECT percent_to, state_to = 'rolled_back' AND effect_ns IS NULL FROM rollout_decision ORDER BY id DESC LIMIT 1",
            "");
    rc = stmt ? store_step(store, stmt, err) : -EIO;
    if (rc > 0) {
        snapshot->wanted = snapshot_double(stmt, 0);
        snapshot->rolls_back = snapshot_int(stmt, 1) == 1;
        rc = store_step(store, stmt, err);
    }
    return rc;
}

static int load_sources(struct store *store, struct snapshot *snapshot, struct error *err)
{
    snapshot->sources =
            arena_alloc(snapshot->arena, SNAPSHOT_SOURCES_MAX, sizeof *snapshot->sources);
    sqlite3_stmt *stmt = store_query(store, err,
            "SELECT kind, number, seen, kept, dropped, lost, late FROM rollout_source "
            "ORDER BY number LIMIT ?",
            "i", (int64_t)SNAPSHOT_SOURCES_MAX);
    int rc = stmt ? 1 : -EIO;
    while (rc > 0 && (rc = store_step(store, stmt, err)) > 0) {
        const char *kind = snapshot_text(snapshot, stmt, 0);
        snapshot->sources[snapshot->source_count++] = (struct snapshot_source){kind ? kind : "",
                snapshot_int(stmt, 1), snapshot_int(stmt, 2), snapshot_int(stmt, 3),
                snapshot_int(stmt, 4), snapshot_int(stmt, 5), snapshot_int(stmt, 6)};
    }
    return rc;
}

int snapshot_load_rollout(struct store *store, const struct snapshot_sums *sums,
        struct snapshot *snapshot, struct error *err)
{
    json_t *plan = NULL;
    int rc = load_head(store, snapshot, &plan, err);
    if (rc == 0)
        rc = load_stages(store, sums, plan, snapshot, err);
    if (rc == 0)
        rc = load_cells(store, plan, snapshot, err);
    json_decref(plan);
    if (rc == 0)
        rc = load_decisions(store, snapshot, err);
    if (rc == 0)
        rc = load_sources(store, snapshot, err);
    if (rc == 0) {
        char *uuid = store_get_text(store, "SELECT uuid FROM run", "");
        if (uuid) {
            string_make_utf8(uuid, strlen(uuid));
            string_make_plain(uuid, strlen(uuid));
        }
        snapshot->run_id = arena_copy(snapshot->arena, uuid);
        free(uuid);
    }
    return rc;
}
