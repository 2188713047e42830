// SPDX-License-Identifier: Apache-2.0
// A pair: one launch of each side with the same seed, both alive and taking turns (steps or
// slices), or one after the other (launches). Runs it to its end and hands out what was recorded;
// judges nothing and stores nothing. Runs on the thread of `upgate ab`.
#ifndef UPGATE_HARNESS_RUN_PAIR_H
#define UPGATE_HARNESS_RUN_PAIR_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"
#include "harness/run/launch.h"
#include "harness/run/samples.h"

struct pair_block { // as table block
    int64_t couple;
    int side;
    bool ran_first;
    // -1 for slices and launches, whose turns are kept when they are recorded
    int64_t first_step, steps;
    int64_t begin_ns, active_ns;
    struct machine_turn turn;   // as read
    struct machine_share share; // as judged once begin_ns is known
};

struct pair_spec {
    const struct plan *plan;
    const struct plan_workload *workload;
    bool equal; // a control: both sides of `plan` are the baseline, and run in its image
    enum plan_interleave interleave; // never AUTO
    uint64_t seed;                   // of the workload
    uint64_t coin_seed;              // of the order of turns
    int first_side;
    uint64_t steps;
    uint64_t block_steps; // 0 = found from the first steps
    double rate_per_s;
    const char *dtype;
    int sides; // bit mask of the sides that run: 3, or one alone (anchor, capacity)
    // Positive control: side b takes longer by this share, in parts per million; 0 = none. By its
    // step calls, or (frozen) standing still in its own turns, which count for it.
    uint32_t control_ppm;
    bool control_frozen;
    // Called while `side` is held after its first step, with the process that makes the steps. NULL
    // ok.
    void (*on_held)(void *arg, int side, pid_t pid);
    void (*on_tick)(void *arg); // now and then, from the waiting loop; NULL ok
    void (*on_start)(void *arg, int side, pid_t pid); // as in struct launch_spec; NULL ok
    void *arg;
    bool finds_steps; // as in struct launch_spec
    bool steps_open;  // of steps that are found: how many there will be is not known yet
    int steps_seen;   // bit mask of the sides that have made step calls in an earlier pair
    const struct inject *inject; // as in struct launch_spec; NULL ok
    uint32_t inject_kinds;
    // One node's part of a pair on several: nobody is frozen, for proxy threads of ranks that wait
    // work for others; blocks have as many steps on all nodes. NULL: the only one. With it:
    const struct launch_nodes *nodes;
    int64_t arrival_max_ns; // to the first step of a launch; 0: the timeout
    // Asked now and then: has this side failed on another node? Why, and it is ended; NULL: no.
    // Static until the next call.
    const char *(*on_look)(void *nodes_arg, int side);
    // Called once a side has failed here: the others need not wait for it.
    void (*on_fail)(void *nodes_arg, int side, const char *reason);
    void *nodes_arg;
    const volatile int *stop; // becomes non-zero on a signal: end the pair at once
};

enum pair_state { PAIR_VALID, PAIR_FAILED, PAIR_STOPPED };

struct pair {
    enum pair_state state;
    char *reason;               // of a failed pair
    struct launch *launches[2]; // NULL = not started
    struct samples samples[2];
    struct resident resident[2]; // of traced pairs, at the end of their steps or at their peak;
                                 // empty: not read
    json_t *covariates[2];
    struct pair_block *blocks;
    size_t block_count;
    uint64_t block_steps; // that were used
    int64_t started_ns, ended_ns;
    int64_t arrival_ns; // of turns of steps: what the slower side took to its first step
    bool has_steps;     // at least one side made a step call
    char *unseen; // why: "no function 'f' in …, on side 'new'", of steps that are seen from outside
                  // or marked by our library; else NULL
    bool missed_steps; // failed: turns of steps, and a side ended in good order without one
    bool rules_differ; // failed: steps were found, by no rule that holds for both sides
    bool skipped;      // failed: a side said that it cannot run this workload, and why
                       // (contracts/skipped.h)
    bool lost;      // failed: by another node, or for want of its steps; nothing is known about the
                    // sides
    bool timed_out; // lost: no steps came here. What has ended elsewhere has ended for that
    bool disturbed; // lost: by the machine of another node, which disturbed one side; the launches
                    // themselves went well
    int lost_side;  // whom it points at all the same; -1: nobody
    bool crowded;   // failed: a side ran out of memory beside the other, and not alone. Said by the
                    // session
    bool failed_beside;   // failed: a side ended badly while the other one was alive, or memory was
                          // too short for both
    char *start_error[2]; // a side that could not be executed at all
};

// 0, also when the pair failed or was stopped (see state); -errno only when we cannot go on (no
// memory map, no process). *ret_pair is freed with pair_free.
int pair_run(struct launch_env *env, const struct pair_spec *spec, struct pair **ret_pair,
        struct error *err);
// The rule by which the steps of both sides were found, NULL: none were, or (*ret_why, which the
// caller frees) there is none that holds for both.
const char *pair_rule(const struct pair_spec *spec, const struct pair *pair, char **ret_why);
// Steps that were found, of a warm-up say, and then most of what the launch was active for, in
// none: what it took behind the last one.
bool pair_steps_end_early(const struct pair *pair, int side, int64_t *ret_behind_ns);
void pair_free(struct launch_env *env, struct pair *pair);

uint64_t pair_random(uint64_t *state); // splitmix64: the run's recorded coin

#endif
