// SPDX-License-Identifier: Apache-2.0
// The raw rows of one pair in memory: its launches, their steps by rank, the blocks of its turns.
// A number that is NULL in the store is NAN here, a count -1.
#ifndef UPGATE_GATE_PAIR_ROWS_H
#define UPGATE_GATE_PAIR_ROWS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"
#include "harness/plan/plan.h"
#include "tracer/store/store.h"

enum launch_fate {      // launch.state
    LAUNCH_FATE_ABSENT, // no row: never tried
    LAUNCH_FATE_OK,
    LAUNCH_FATE_CRASHED,
    LAUNCH_FATE_TIMEOUT,
    LAUNCH_FATE_OOM,
    LAUNCH_FATE_NOT_STARTED,
    LAUNCH_FATE_STOPPED,  // by us: it was alive and well
    LAUNCH_FATE_ABORTED,  // crashed by its own act: an abort signal, or an exit code behind a step
                          // call
    LAUNCH_FATE_NO_STEPS, // no word of the store: ended in good order, in turns of steps, without
                          // one
    LAUNCH_FATE_SKIPPED,  // it said that it cannot be run here, and why
    LAUNCH_FATE_EXITED,   // crashed by an exit code, without a step call
    LAUNCH_FATE_COUNT
};
enum pair_fate { PAIR_FATE_VALID, PAIR_FATE_VOID, PAIR_FATE_FAILED, PAIR_FATE_COUNT };
enum pair_phase { // pair.phase
    PAIR_PHASE_PILOT,
    PAIR_PHASE_MAIN,
    PAIR_PHASE_CONFIRM,
    PAIR_PHASE_ANCHOR,
    PAIR_PHASE_TRACED,
    PAIR_PHASE_CONTROL, // side b is the baseline too, held longer
    PAIR_PHASE_COUNT
};

// Of a row p of table pair: a side ended badly while the other one was alive. On several nodes that
// may have been so on another one.
#define PAIR_ROWS_BESIDE_SQL \
    "EXISTS (SELECT 1 FROM launch l JOIN launch o ON o.pair_id = l.pair_id AND o.side <> l.side WHERE l.pair_id = p.id AND " \
    "l.state NOT IN ('ok', 'stopped') AND ((o.started_ns <= l.ended_ns AND l.ended_ns <= o.ended_ns) OR " \
    "(SELECT CASE WHEN json_valid(host) THEN json_extract(host, '$.nodes') END FROM run) > 1))"

struct pair_head {                // one row of table pair, without its launches
    int64_t id, idx, seed, steps; // steps -1: not said
    enum pair_phase phase;
    enum pair_fate fate;
    enum plan_interleave interleave;
    int void_side; // -1: none
    bool requests; // of a workload in mode infer: a step is a request
    bool beside;   // it failed, and the other side was alive when the first one did
};

struct rank_rows {
    int64_t rank;
    int count; // steps; the arrays are in order of idx
    int64_t *idx, *begin_ns, *dur_ns;
    double *late_ns, *samples; // NAN: not measured
};

struct launch_rows {
    int64_t id;
    enum launch_fate fate;
    double active_ns, cpu_ns, peak_memory_bytes, peak_gpu_memory_bytes, compile_ns, startup_ns;
    double recompiles; // graphs compiled over those of the first step
    double requests, requests_failed, requests_wrong; // of servers that tell them
    int64_t steps;                                    // -1: made no step call
    struct rank_rows *ranks;
    int rank_count;
};

struct block_rows { // both sides of one couple
    int64_t couple;
    int64_t first_step[PLAN_SIDES], steps[PLAN_SIDES],
            active_ns[PLAN_SIDES]; // first_step, steps -1: slices
    double machine_ns[PLAN_SIDES]; // of active_ns, what the machine took; NAN: not known
};

struct pair_rows {
    struct pair_head head;
    struct launch_rows sides[PLAN_SIDES];
    struct block_rows *blocks;
    int block_count;
};

// Heads of all pairs of a workload, in the order they ran; the caller frees *ret_heads.
int pair_heads_load(struct store *store, int64_t workload_id, struct pair_head **ret_heads,
        int *ret_count, struct error *err);
// with_steps false: launches only (fates, sums), for pairs that are not measured.
int pair_rows_load(struct store *store, const struct pair_head *head, bool with_steps,
        struct pair_rows *ret_rows, struct error *err);
void pair_rows_clear(struct pair_rows *rows);

#endif
