// SPDX-License-Identifier: Apache-2.0
// Shared by the files of the controller.
#ifndef UPGATE_HARNESS_CANARY_CONTROLLER_CONTROLLER_INTERNAL_H
#define UPGATE_HARNESS_CANARY_CONTROLLER_CONTROLLER_INTERNAL_H

#include "harness/canary/controller/controller.h"
#include "harness/canary/decide/judge.h"
#include "harness/canary/sources/sources.h"
#include "harness/canary/store/rollout_store.h"
#include "harness/canary/traffic/traffic.h"
#include "reports/analyse/canary/recent.h"

#define CONTROLLER_SECOND_NS 1000000000
#define CONTROLLER_SHARED_NS \
    30000000000 // an outage of both is spared no longer than this in a stage: the candidate may
                // have brought it about

enum {
    // seconds that wait for a locked store, 9 KiB each; then it counts as failed
    CONTROLLER_PENDING_MAX = 900,
    CONTROLLER_TEXT = 600
};

struct controller_second {
    int64_t at_s;
    int stage;
    struct canary_second arms[CANARY_ARMS];
};

struct controller {
    const struct controller_options *options;
    const struct rollout *rollout;
    struct machine_plan plan;
    struct machine machine;
    int lock_fd; // -1: none
    struct store *store;
    struct traffic *traffic;
    struct sources *sources; // NULL: could not be opened again after a jump of the clock

    // Evidence.
    struct canary_evidence *evidence;
    struct rollout_stage_row stages[MACHINE_STAGES_MAX];
    int folded_stage;   // the stage that evidence is in; -1: none
    int64_t folded_s;   // the last second that was added
    int64_t judged_s;   // the last that was judged
    int64_t unjudged_s; // of the stage, since it is judged: seconds of which nothing is known
    struct canary_cell cells[CANARY_METRICS];
    struct judge_facts facts;
    struct controller_heard { // of the stage's judged seconds
        int64_t at_s;         // the last with a request of the candidate; 0: none so far
        uint64_t baseline;    // requests of the baseline since
        int64_t unjudged_s;   // until then
    } heard;
    struct judge_answer answer;
    struct canary_recent recent; // warm-up included
    struct controller_second *pending;
    size_t pending_count;
    int64_t evidence_ns; // CLOCK_MONOTONIC of the last evidence
    bool shadowing;
    uint64_t shadow_seen;              // users' requests, of both arms
    struct sources_total shadow_total; // mirrored requests to the candidate, of this stage
    uint64_t lost_seen, lost_stored;   // log lines, by the sources; of the stage, in the store

    // Clocks, CLOCK_MONOTONIC unless said otherwise.
    int64_t wall_offset_ns;                       // CLOCK_REALTIME - CLOCK_MONOTONIC
    int64_t second_ns, look_ns, get_ns, cells_ns; // when the next one is due
    int64_t patience_ns, paused_ns;               // since when
    int64_t signalled_ns, drain_end_ns;
    int64_t since_ns, stage_since_ns; // CLOCK_REALTIME: of the state, of the stage
    int64_t before_ns; // CLOCK_REALTIME: the last sign of life of the controller before; 0: there
                       // was none
    int64_t commit_ns; // how long the last commit took

    // What is wrong, in words.
    bool store_failed, traffic_wrong;
    bool waits; // a rollback that is decided and stored: the baseline is down
    int signals;
    // since when it is decided; the last look that told ctl->up, 0: none
    int64_t back_ns, health_ns;
    int64_t store_busy_ns; // since when it has been locked; 0: it is not
    // the last good look; since when it is silent, another one; 0: it is not
    int64_t proxy_seen_ns, proxy_silent_ns, proxy_anew_ns;
    char event[CONTROLLER_TEXT]; // of the proxy, not yet stored; "": none
    char store_text[CONTROLLER_TEXT], traffic_text[CONTROLLER_TEXT];
    int up[CANARY_ARMS];
    int64_t both_down_ns; // when both were, last; 0: never
    bool shared; // at this look the candidate is spared a tripwire, for the baseline fails as well
    int64_t shared_ns, looked_ns; // how long it was, in this stage; the look before
    bool drained;

    struct rollout_request request; // taken, not yet looked at by the machine
    int64_t decision;               // the one that is being carried out
    char reason[2 * CONTROLLER_TEXT];
    bool preflighted, preflight_failed, why_begun, why_done;
    int preflight_exit;
    int64_t preflight_ns;
    char preflight_text[CONTROLLER_TEXT];
};

// controller_open.c

// store, traffic, sources; the machine as stored
int controller_open(struct controller *ctl, struct error *err);
// *ret_percent: of the candidate now; NaN: it cannot be read. *ret_forgot: see machine_start().
int controller_begin(
        struct controller *ctl, double *ret_percent, bool *ret_forgot, struct error *err);
void controller_close(struct controller *ctl); // also half open

// controller_evidence.c

// the stored seconds, when it starts
int controller_fold(struct controller *ctl, struct error *err);
void controller_take(struct controller *ctl);  // what sources and the shadow stage have
void controller_judge(struct controller *ctl); // facts and answer of the present stage
// the baseline's requests go on ending, and none of its own
bool controller_candidate_silent(const struct controller *ctl);
void controller_begin_stage(struct controller *ctl, int stage); // traffic has been read back
// what was judged is from another time, or lacks lines
void controller_judge_anew(struct controller *ctl);
// what is pending, and the heartbeat; sets store_failed
void controller_persist(struct controller *ctl, bool cells);

// controller_recent.c
void controller_recent_look(struct controller *ctl);
// another stage: what was before does not count
void controller_recent_clear(struct controller *ctl);

// controller_act.c

// of a transaction that was rolled back
void controller_store_error(struct controller *ctl, const struct error *err);
// false: ended
bool controller_apply(
        struct controller *ctl, const struct machine_step *step, enum exit_code *ret_exit);
// what changes no state; false: not stored
bool controller_note(struct controller *ctl, enum rollout_rule rule, const char *reason);
struct rollout_row controller_row(const struct controller *ctl);
// how long a pause that nobody asked for lasts
int64_t controller_wait_ns(const struct controller *ctl);

#endif
