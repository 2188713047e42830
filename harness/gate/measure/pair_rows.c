// SPDX-License-Identifier: Apache-2.0
// Reads tables pair, launch, step, step_phase, launch_value and block for one pair. Judges nothing.
#include "harness/gate/measure/pair_rows.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "common/containers/vector.h"
#include "contracts/skipped.h"

static const char *const pair_fate_names[PAIR_FATE_COUNT] = {"valid", "void", "failed"};
static const char *const pair_phase_names[PAIR_PHASE_COUNT] = {
        "pilot", "main", "confirm", "anchor", "traced", "control"};
static const char *const launch_fate_names[LAUNCH_FATE_COUNT] = {
        "", "ok", "crashed", "timeout", "oom", "not_started", "stopped", "", "", "", ""};

// The index of the column's word; -EINVAL for one that the schema does not know.
static int pair_rows_word(sqlite3_stmt *stmt, int column, const char *const *words, int count)
{
    const char *text = (const char *)sqlite3_column_text(stmt, column);
    for (int i = 0; text && i < count; i++)
        if (strcmp(words[i], text) == 0)
            return i;
    return -EINVAL;
}

static enum plan_interleave pair_rows_interleave(sqlite3_stmt *stmt, int column)
{
    int known = plan_interleave_by_name((const char *)sqlite3_column_text(stmt, column));
    return known < 0 ? PLAN_INTERLEAVE_AUTO : (enum plan_interleave)known;
}

int pair_heads_load(struct store *store, int64_t workload_id, struct pair_head **ret_heads,
        int *ret_count, struct error *err)
{
    sqlite3_stmt *stmt = store_query(store, err,
            "SELECT id, idx, seed, steps, phase, state, interleave, void_side, "
            "(SELECT mode FROM workload w WHERE w.id = workload_id) = 'infer', "
            "state = 'failed' AND " PAIR_ROWS_BESIDE_SQL " "
            "FROM pair p WHERE workload_id = ? ORDER BY id",
            "i", workload_id);
    if (!stmt)
        return -EIO;
    struct pair_head *heads = NULL;
    int count = 0, rc;
    while ((rc = store_step(store, stmt, err)) == 1) {
        vector_push(heads, count,
                (struct pair_head){.id = sqlite3_column_int64(stmt, 0),
                        .idx = sqlite3_column_int64(stmt, 1),
                        .seed = sqlite3_column_int64(stmt, 2),
                        .steps = store_int64(stmt, 3, -1),
                        .phase = (enum pair_phase)pair_rows_word(
                                stmt, 4, pair_phase_names, PAIR_PHASE_COUNT),
                        .fate = (enum pair_fate)pair_rows_word(
                                stmt, 5, pair_fate_names, PAIR_FATE_COUNT),
                        .interleave = pair_rows_interleave(stmt, 6),
                        .void_side = (int)store_int64(stmt, 7, -1),
                        .requests = sqlite3_column_int(stmt, 8) != 0,
                        .beside = sqlite3_column_int(stmt, 9) != 0});
    }
    if (rc < 0) {
        free(heads);
        return rc;
    }
    *ret_heads = heads;
    *ret_count = count;
    return 0;
}

static void rank_rows_clear(struct rank_rows *rank)
{
    free(rank->idx);
    free(rank->begin_ns);
    free(rank->dur_ns);
    free(rank->late_ns);
    free(rank->samples);
}

static void rank_rows_room(struct rank_rows *rank)
{
    size_t count = (size_t)rank->count;
    rank->idx = vector_room(rank->idx, count, sizeof *rank->idx);
    rank->begin_ns = vector_room(rank->begin_ns, count, sizeof *rank->begin_ns);
    rank->dur_ns = vector_room(rank->dur_ns, count, sizeof *rank->dur_ns);
    rank->late_ns = vector_room(rank->late_ns, count, sizeof *rank->late_ns);
    rank->samples = vector_room(rank->samples, count, sizeof *rank->samples);
}

static int pair_rows_load_steps(struct store *store, struct launch_rows *launch, struct error *err)
{
    sqlite3_stmt *stmt = store_query(store, err,
            "SELECT rank, idx, begin_ns, dur_ns, late_ns, samples FROM step "
            "WHERE launch_id = ? ORDER BY rank, idx",
            "i", launch->id);
    if (!stmt)
        return -EIO;
    struct rank_rows *rank = NULL;
    int rc;
    while ((rc = store_step(store, stmt, err)) == 1) {
        int64_t number = sqlite3_column_int64(stmt, 0);
        if (!rank || rank->rank != number) {
            rank = vector_add(launch->ranks, launch->rank_count);
            rank->rank = number;
        }
        rank_rows_room(rank);
        int i = rank->count++;
        rank->idx[i] = sqlite3_column_int64(stmt, 1);
        rank->begin_ns[i] = sqlite3_column_int64(stmt, 2);
        rank->dur_ns[i] = sqlite3_column_int64(stmt, 3);
        rank->late_ns[i] = store_double(stmt, 4);
        rank->samples[i] = store_double(stmt, 5);
        if (rank->idx[i] < 0 || (i && rank->idx[i] <= rank->idx[i - 1]))
            return store_damaged(store, err, "the steps of a launch are not numbered in order");
    }
    return rc;
}

// Compile time: the phase of that name, else what the workload noted about itself. And the time to
// the first step, of the last rank to come there. Requests of all ranks and nodes.
static int pair_rows_load_values(struct store *store, struct launch_rows *launch, struct error *err)
{
    sqlite3_stmt *stmt = store_query(store, err,
            "SELECT coalesce((SELECT max(total_ns) FROM step_phase WHERE launch_id = ?1 AND name = "
            "'compile'), "
            "(SELECT max(value) FROM launch_value WHERE launch_id = ?1 AND name = 'compile_time_ns')), "
            "(SELECT max(value) FROM launch_value WHERE launch_id = ?1 AND name = 'startup_time_ns'), "
            "(SELECT 1.0 * max(g.value) / nullif(max(g.value) - coalesce(max(r.value), 0), 0) FROM launch_value g LEFT JOIN launch_value r "
            "ON r.launch_id = g.launch_id AND r.name = 'recompiles' WHERE g.launch_id = ?1 AND g.name = 'compiled_graphs'), "
            "(SELECT sum(value) FROM launch_value WHERE launch_id = ?1 AND name = 'upgate.requests'), "
            "(SELECT sum(value) FROM launch_value WHERE launch_id = ?1 AND name = 'upgate.requests_failed'), "
            "(SELECT sum(value) FROM launch_value WHERE launch_id = ?1 AND name = 'upgate.requests_wrong')",
            "i", launch->id);
    if (!stmt)
        return -EIO;
    int rc = store_step(store, stmt, err);
    if (rc < 0)
        return rc;
    launch->compile_ns = store_double(stmt, 0);
    launch->startup_ns = store_double(stmt, 1);
    launch->recompiles = store_double(stmt, 2);
    launch->requests = store_double(stmt, 3);
    launch->requests_failed = store_double(stmt, 4);
    launch->requests_wrong = store_double(stmt, 5);
    sqlite3_reset(stmt);
    return 0;
}

static int pair_rows_load_blocks(struct store *store, struct pair_rows *rows, struct error *err)
{
    sqlite3_stmt *stmt = store_query(store, err,
            "SELECT a.couple, a.first_step, a.steps, a.active_ns, b.first_step, b.steps, "
            "b.active_ns, a.machine_ns, b.machine_ns FROM block a "
            "JOIN block b ON b.pair_id = a.pair_id AND b.couple = a.couple AND b.side = 1 "
            "WHERE a.pair_id = ? AND a.side = 0 ORDER BY a.couple",
            "i", rows->head.id);
    if (!stmt)
        return -EIO;
    int rc;
    while ((rc = store_step(store, stmt, err)) == 1) {
        vector_push(rows->blocks, rows->block_count,
                (struct block_rows){.couple = sqlite3_column_int64(stmt, 0),
                        .first_step = {store_int64(stmt, 1, -1), store_int64(stmt, 4, -1)},
                        .steps = {store_int64(stmt, 2, -1), store_int64(stmt, 5, -1)},
                        .active_ns = {sqlite3_column_int64(stmt, 3), sqlite3_column_int64(stmt, 6)},
                        .machine_ns = {store_double(stmt, 7), store_double(stmt, 8)}});
    }
    return rc;
}

// Nobody else ends a process in one of these ways: it was the program, not the machine. A shell
// that started it says so by 128 and the signal.
static bool pair_rows_signalled(int64_t exit_code, int64_t exit_signal)
{
    static const int signals[] = {SIGABRT, SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGSYS};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        if (exit_signal == signals[i] || (exit_signal <= 0 && exit_code == 128 + signals[i]))
            return true;
    return false;
}

static enum launch_fate pair_rows_crash(int64_t exit_code, int64_t exit_signal, int64_t steps)
{
    if (pair_rows_signalled(exit_code, exit_signal))
        return LAUNCH_FATE_ABORTED;
    if (exit_signal > 0 || exit_code <= 0)
        return LAUNCH_FATE_CRASHED;
    return steps < 0 ? LAUNCH_FATE_EXITED : LAUNCH_FATE_ABORTED;
}

static int pair_rows_load_launches(struct store *store, struct pair_rows *rows, struct error *err)
{
    sqlite3_stmt *stmt = store_query(store, err,
            "SELECT id, side, state, active_ns, cpu_ns, peak_memory_bytes, "
            "peak_gpu_memory_bytes, steps, exit_code, exit_signal, "
            "instr(stderr_tail, '" UG_SKIPPED_WORD "') FROM launch WHERE pair_id = ?",
            "i", rows->head.id);
    if (!stmt)
        return -EIO;
    int rc;
    while ((rc = store_step(store, stmt, err)) == 1) {
        int fate = pair_rows_word(stmt, 2, launch_fate_names, LAUNCH_FATE_COUNT);
        fate = fate < 0 ? LAUNCH_FATE_CRASHED : fate;
        if (fate == LAUNCH_FATE_CRASHED)
            fate = pair_rows_crash(
                    store_int64(stmt, 8, -1), store_int64(stmt, 9, -1), store_int64(stmt, 7, -1));
        if (fate == LAUNCH_FATE_EXITED && store_int64(stmt, 8, -1) == UG_SKIPPED_STATUS &&
                store_int64(stmt, 10, -1) > 0)
            fate = LAUNCH_FATE_SKIPPED;
        rows->sides[sqlite3_column_int64(stmt, 1) != 0] =
                (struct launch_rows){.id = sqlite3_column_int64(stmt, 0),
                        .fate = (enum launch_fate)fate,
                        .active_ns = store_double(stmt, 3),
                        .cpu_ns = store_double(stmt, 4),
                        .peak_memory_bytes = store_double(stmt, 5),
                        .peak_gpu_memory_bytes = store_double(stmt, 6),
                        .compile_ns = NAN,
                        .startup_ns = NAN,
                        .recompiles = NAN,
                        .requests = NAN,
                        .requests_failed = NAN,
                        .requests_wrong = NAN,
                        .steps = store_int64(stmt, 7, -1)};
    }
    return rc;
}

int pair_rows_load(struct store *store, const struct pair_head *head, bool with_steps,
        struct pair_rows *ret_rows, struct error *err)
{
    struct pair_rows rows = {.head = *head};
    for (int side = 0; side < PLAN_SIDES; side++)
        rows.sides[side] = (struct launch_rows){.active_ns = NAN,
                .cpu_ns = NAN,
                .peak_memory_bytes = NAN,
                .peak_gpu_memory_bytes = NAN,
                .compile_ns = NAN,
                .startup_ns = NAN,
                .recompiles = NAN,
                .requests = NAN,
                .requests_failed = NAN,
                .requests_wrong = NAN,
                .steps = -1};
    int rc = pair_rows_load_launches(store, &rows, err);
    for (int side = 0; side < PLAN_SIDES && rc == 0 && with_steps; side++) {
        if (rows.sides[side].fate == LAUNCH_FATE_ABSENT)
            continue;
        rc = pair_rows_load_steps(store, &rows.sides[side], err);
        if (rc == 0)
            rc = pair_rows_load_values(store, &rows.sides[side], err);
    }
    if (rc == 0 && with_steps)
        rc = pair_rows_load_blocks(store, &rows, err);
    if (rc) {
        pair_rows_clear(&rows);
        return rc;
    }
    *ret_rows = rows;
    return 0;
}

void pair_rows_clear(struct pair_rows *rows)
{
    for (int side = 0; side < PLAN_SIDES; side++) {
        for (int i = 0; i < rows->sides[side].rank_count; i++)
            rank_rows_clear(&rows->sides[side].ranks[i]);
        free(rows->sides[side].ranks);
    }
    free(rows->blocks);
    *rows = (struct pair_rows){0};
}
