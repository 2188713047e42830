// SPDX-License-Identifier: Apache-2.0
// State of a session, shared by session.c (the loop), session_pair.c (one pair), calibrate.c and
// traced.c.
#ifndef UPGATE_HARNESS_RUN_SESSION_INTERNAL_H
#define UPGATE_HARNESS_RUN_SESSION_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "harness/gate/gate.h"
#include "harness/plan/plan.h"
#include "harness/run/launch.h"
#include "harness/run/pair.h"
#include "harness/run/session.h"
#include "harness/run/session_store.h"
#include "reports/render/verdict/progress.h"
#include "tracer/store/store.h"

enum {
    SESSION_FAILURES_MAX = 2, // failed pairs in a row after which a workload is given up
    SESSION_BESIDE_MAX = 2,   // pairs that failed while both sides were alive, after which `auto`
                              // runs them one after the other
    SESSION_LOST_MAX = 3,     // pairs in a row for which a node was lost, after which the run ends
    SESSION_FAILURES_ALL = 8, // and in all: where good ones come between. Seven of one side alone
                              // are told from chance
    SESSION_CELLS_MAX = 16    // of a workload, on the display
};

struct session_workload {
    int64_t id; // in the store
    const struct plan_workload *plan;
    enum plan_interleave interleave; // AUTO until known
    char *note;
    double rate_per_s;
    uint64_t steps;       // of the next pair
    uint64_t block_steps; // 0 = not known yet
    int64_t look_target;  // valid pairs at which the other workloads have their turn
    int failures;         // in a row
    int failures_all;
    bool broken; // given up
    int beside;  // of `auto`, as long as nothing is known: pairs that failed while both sides were
                 // alive, not for want of memory
    char *apart; // why launches run one after the other, from the last one of those on; else NULL
    int steps_seen;   // bit mask of the sides of which a launch made step calls
    bool finds_steps; // of a command: steps are looked for, as long as that is of use
    bool steps_open;  // how many its launches make is not known yet
    uint64_t voids;
    int64_t pair_ns_sum;
    int pair_count;
    int64_t arrival_ns; // on several nodes: the longest way to a first step so far; 0 = not known
                        // yet
};

struct session {
    const struct session_opts *opts;
    struct plan *plan;
    bool plan_owned;
    bool aa;
    struct store *store;
    bool claimed; // the store names us as its writer
    struct launch_env env;
    char *cpus_text;
    struct session_workload *workloads;
    json_t *process_facts[PLAN_SIDES]; // fingerprint_process of the held process
    bool fingerprinted[PLAN_SIDES];
    json_t *begun_with[PLAN_SIDES]; // of a run that is gone on with: its fingerprint of a side,
                                    // until this part has shown the same; else NULL
    json_t *inputs;      // what the store says of directory and scripts (inputs.h); NULL: nothing
    struct nodes *nodes; // where there are several; else NULL
    struct session_peers *peers; // likewise
    int lost;                    // pairs in a row for which another node was lost
    bool traced_told;            // why launches are not traced, or not wholly
    bool launched;               // a pair was stored
    // of a run that was done and is gone on with: when, by the wall clock; else 0
    int64_t ended_before_ns;
    // What the display shows.
    int workload_idx;
    const char *phase;
    struct gate_need need;
    int64_t started_ns;
    struct progress_state shown;
    struct progress_cell cells[SESSION_CELLS_MAX];
};

// One pair, on all nodes: as pair_run. What other nodes say has become of it is in *ret_pair.
int session_run_pair(struct session *session, const struct session_workload *workload,
        const char *phase, struct pair_spec *spec, struct pair **ret_pair, struct error *err);
// Into the store, with what the other nodes have recorded of it.
int session_put_pair(struct session *session, struct session_pair_row *row,
        const struct pair_spec *spec, const struct pair *pair, struct error *err);
// Node 0: are the sides of the other nodes the same as here? Asked behind each pair until it is
// known, once; what is not does not pass.
int session_compare_nodes(struct session *session, struct error *err);
// The loop of a node that is not the first: does what node 0 says. *ret_exit: that of node 0.
int session_follow(struct session *session, enum exit_code *ret_exit, struct error *err);
void session_peers_init(struct session *session);     // where it is one of several
void session_peers_free(struct session_peers *peers); // NULL ok

// From session_pair.c.
int64_t session_next_idx(
        struct session *session, const struct session_workload *workload, const char *phase);
void session_on_held(void *arg, int side, pid_t pid);
int session_store_result(struct session *session, struct session_workload *workload,
        const char *phase, int64_t idx, const struct pair_spec *spec, const struct pair *pair,
        struct error *err);

extern volatile int session_stop; // set by SIGINT, SIGTERM, SIGHUP

// When the run ends, if it ends now: what was done and had nothing left to make has ended when it
// had before.
int64_t session_ended_wall_ns(const struct session *session);

// One pair of a workload, retried by the rules of `auto`, stored. 0: go on (look at broken);
// -errno: the session ends with this error.
int session_pair(struct session *session, struct session_workload *workload, const char *phase,
        struct error *err);
bool session_failed_too_often(const struct session_workload *workload);
// What a workload's note says of sides that cannot be alive together. Caller frees.
char *session_apart_note(const char *reason);
// A pair of the baseline against itself, side b held longer.
int session_pair_control(struct session *session, struct session_workload *workload,
        const struct gate_control *control, struct error *err);
// The open-loop request rate of an inference workload: half of what the baseline can do.
int session_find_rate(
        struct session *session, struct session_workload *workload, struct error *err);
// Launches of the baseline alone that parity asks for after this pair: its float64 anchor, a seed
// run twice.
int session_parity(struct session *session, struct session_workload *workload, struct error *err);
// A pair of the phase 'traced', which is stored and counts for nothing. hooks: its on_start,
// on_tick, arg and stop are used. *ret_pair_id is 0 when it was stopped; its failure is no failure
// of the session.
int session_pair_traced(struct session *session, struct session_workload *workload,
        const struct pair_spec *hooks, int64_t *ret_pair_id, struct error *err);
// What a side's processes get in their environment, before anything of ours; NULL: unset, or an
// image's.
const char *session_variable(const struct plan_side *side, const char *name);
void session_display(struct session *session); // what the state now says
void session_tick(void *arg);                  // refreshes the display

#endif
