// SPDX-License-Identifier: Apache-2.0
// What a rollout's store holds, typed: written by the controller, read by it when it starts again,
// and requests written by other processes. Functions return 0 or -errno in words; writes stand
// within the caller's transaction unless said otherwise.
#ifndef UPGATE_HARNESS_CANARY_STORE_ROLLOUT_STORE_H
#define UPGATE_HARNESS_CANARY_STORE_ROLLOUT_STORE_H

#include "harness/canary/decide/machine.h"
#include "harness/canary/sources/sources.h"
#include "tracer/store/store.h"

// The path is locked (flock) for as long as the descriptor is open: one controller a rollout. The
// file is made where there is none. -EBUSY names the process that holds it. Close it after the
// store, for closing it drops SQLite's locks of this process, too.
ERROR_CHECKED int rollout_store_lock(const char *path, int *ret_fd, struct error *err);
// Does a controller hold it? Not while this process has the store open.
bool rollout_store_is_held(const char *path);
// Opens the locked file; makes the tables where it is empty. The controller waits for readers for
// 100 ms at most.
ERROR_CHECKED int rollout_store_open(const char *path, struct store **ret_store, struct error *err);

struct rollout_row { // table rollout
    char *name, *plan, *reason;
    enum rollout_state state;
    int stage;                                      // -1: not begun
    double percent;                                 // NaN: never read
    int64_t since_ns, stage_since_ns, heartbeat_ns; // stage_since_ns 0: not begun
    int64_t pid;                                    // 0: none
    int up[CANARY_ARMS];                            // 1, 0; -1: not told
};
// -ENOENT: the store has no rollout.
ERROR_CHECKED int rollout_store_read(
        struct store *store, struct rollout_row *ret_row, struct error *err);
void rollout_row_clear(struct rollout_row *row);
// A new rollout: rows of run, rollout, rollout_stage and rollout_source. In a transaction of its
// own.
ERROR_CHECKED int rollout_store_new(struct store *store, const struct rollout *rollout,
        const json_t *command_line, struct error *err);
// all but name and plan
ERROR_CHECKED int rollout_store_write(
        struct store *store, const struct rollout_row *row, struct error *err);
// pid of this process, and its end
ERROR_CHECKED int rollout_store_alive(struct store *store, bool alive, struct error *err);

struct rollout_stage_row {
    int64_t begin_s, judged_from_s, end_s; // 0: not yet
    int64_t lost;                          // log lines
};
ERROR_CHECKED int rollout_store_stage(struct store *store, int stage,
        const struct rollout_stage_row *row, const char *result, struct error *err);
ERROR_CHECKED int rollout_store_read_stage(
        struct store *store, int stage, struct rollout_stage_row *ret_row, struct error *err);

struct rollout_decision {
    int64_t id, at_ns, effect_ns; // effect_ns 0: not carried out
    enum rollout_state state_from, state_to;
    int stage_from, stage_to;
    double percent_from, percent_to;
    enum rollout_rule rule;
    const char *reason, *who;
    const char *evidence; // JSON or NULL
};
// sets its id
ERROR_CHECKED int rollout_store_decide(
        struct store *store, struct rollout_decision *decision, struct error *err);
ERROR_CHECKED int rollout_store_effect(
        struct store *store, int64_t decision, int64_t at_ns, double percent, struct error *err);
// The last decision, without its texts; clocks and proxies are events, which decide nothing.
// -ENOENT: none yet.
ERROR_CHECKED int rollout_store_last_decision(
        struct store *store, struct rollout_decision *ret_decision, struct error *err);

// Both arms of a second. One that is there already (the wall clock was set back) takes them in.
ERROR_CHECKED int rollout_store_second(struct store *store, int64_t at_s, int stage,
        const struct canary_second arms[CANARY_ARMS], struct error *err);
// All of them in order of time. each: not 0 ends it and is returned.
ERROR_CHECKED int rollout_store_seconds(struct store *store,
        int (*each)(
                void *arg, int64_t at_s, int stage, const struct canary_second arms[CANARY_ARMS]),
        void *arg, struct error *err);
ERROR_CHECKED int rollout_store_cells(struct store *store, int64_t at_s,
        const struct canary_cell *cells, int count, struct error *err);
// as in upgate.rollout/1; new reference
json_t *rollout_cells_to_json(const struct canary_cell *cells, int count);
// last_ns: wall clock, 0: never.
ERROR_CHECKED int rollout_store_source(struct store *store, int number,
        const struct source_state *state, int64_t last_ns, struct error *err);

struct rollout_request {
    int64_t id;
    enum rollout_verb verb; // REQUEST_NONE: there is none
    char who[128], reason[400];
};
ERROR_CHECKED int rollout_store_next_request(
        struct store *store, struct rollout_request *ret_request, struct error *err);
ERROR_CHECKED int rollout_store_take_request(
        struct store *store, int64_t id, int64_t at_ns, struct error *err);
// From another process, beside the controller. -EINVAL: no rollout there. In a transaction of its
// own.
ERROR_CHECKED int rollout_store_request(const char *path, enum rollout_verb verb, const char *who,
        const char *reason, struct error *err);

#endif
