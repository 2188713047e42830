// SPDX-License-Identifier: Apache-2.0
// What the answers are made of: one moment of a store, read in one transaction. Either a rollout
// (tables rollout_*) or a run of `upgate ab` (tables run, verdict, cell). A store that is missing
// or cannot be read is a snapshot as well: one with a problem.
#ifndef UPGATE_HARNESS_CANARY_SERVE_SNAPSHOT_H
#define UPGATE_HARNESS_CANARY_SERVE_SNAPSHOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/containers/arena.h"
#include "common/error.h"

enum {
    SNAPSHOT_STAGES_MAX = 256,
    SNAPSHOT_CELLS_MAX = 4096,
    SNAPSHOT_RULES_MAX = 64,
    SNAPSHOT_SOURCES_MAX = 64
};
enum snapshot_arm { SNAPSHOT_BASELINE, SNAPSHOT_CANDIDATE, SNAPSHOT_ARMS };

struct snapshot_counts { // of one arm
    int64_t requests, errors, truncated, wrong;
};

struct snapshot_stage {
    int64_t number;
    const char *name, *result; // result: NULL while it goes on, or has not begun
    double percent;
    bool aa, begun, ended;                      // aa: both arms are the baseline
    struct snapshot_counts arms[SNAPSHOT_ARMS]; // in this stage
};

struct snapshot_cell {    // the newest of each stage and metric, or of each workload and metric
    int64_t stage;        // rollout
    const char *workload; // run; else NULL
    const char *metric, *verdict;
    double value, low, high, threshold; // ratios; wrong answers: counts. NaN: not known
    double evidence, needed;            // rollout: logs of e-values. NaN: not known
    int64_t requests, missing, pairs;   // -1: not known
    bool gating;                        // else observed: it decides nothing
};

struct snapshot_rule { // rollbacks so far by the rule that decided
    const char *rule;
    int64_t count;
};

struct snapshot_source {
    const char *kind;
    int64_t number, seen, kept, dropped, lost, late;
};

enum snapshot_kind { SNAPSHOT_NOTHING, SNAPSHOT_ROLLOUT, SNAPSHOT_RUN };

struct snapshot {
    struct arena *arena; // of every text here
    enum snapshot_kind kind;
    const char *name;    // in the paths; never NULL
    const char *problem; // why nothing can be said; NULL: none
    int64_t read_ns;     // CLOCK_MONOTONIC, of the last look at the store that succeeded; 0: never

    // rollout
    const char *state, *reason;
    bool has_stage; // false: not begun
    int64_t stage;
    // of the candidate: as read back; as the last decision wants it. NaN: not known
    double percent, wanted;
    bool rolls_back;      // decided, and not carried out yet
    int64_t heartbeat_ns; // CLOCK_REALTIME, of the controller
    bool controlled;      // a controller is at work
    int64_t since_ns;
    int up[SNAPSHOT_ARMS]; // -1: not known
    double alpha;          // NaN: not known
    struct snapshot_stage *stages;
    int stage_count;
    struct snapshot_rule *rules;
    int rule_count;
    struct snapshot_source *sources;
    int source_count;

    // run

    // run_id of a rollout's store: NULL where it has none
    const char *run_id, *run_kind, *run_state;
    const char *verdict, *verdict_reason; // NULL: not judged yet

    // both
    struct snapshot_cell *cells;
    int cell_count;
};

struct snapshot *snapshot_new(const char *name); // of SNAPSHOT_NOTHING, "no measurement yet"
void snapshot_free(struct snapshot *snapshot);   // NULL ok
// NULL: none
const struct snapshot_stage *snapshot_find_stage(const struct snapshot *snapshot, int64_t number);

// Reads a store again and again; keeps it open and adds up only the seconds that are new. One owner
// thread.
struct snapshot_reader;
struct snapshot_reader *snapshot_reader_new(const char *path, const char *name);
void snapshot_reader_free(struct snapshot_reader *reader); // NULL ok

// Looks at the store, and reads it where it has changed. Gives the newest snapshot, owned by the
// reader and valid until its next call. *ret_problem_code: 0, or why this look failed (the snapshot
// is then that of the last look that did not, until it is ten seconds old, and err says what is
// wrong); -EINVAL will not get better: not a store, a recording, the rollout of another name.
const struct snapshot *snapshot_read(
        struct snapshot_reader *reader, int *ret_problem_code, struct error *err);

enum { SNAPSHOT_OLD_S = 10 }; // a store that could not be read for so long is as none

#endif
