// SPDX-License-Identifier: Apache-2.0
// One launch: a fresh process tree of one side's workload, with its step reader. Started held (its
// first step waits at the gate) and thawed. Knows how long it was active. One owner thread.
#ifndef UPGATE_HARNESS_RUN_LAUNCH_H
#define UPGATE_HARNESS_RUN_LAUNCH_H

#include <jansson.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/error.h"
#include "harness/contain/guardian.h"
#include "harness/contain/inject.h"
#include "harness/contain/keeper.h"
#include "harness/contain/tree.h"
#include "harness/image/hold.h"
#include "harness/image/image.h"
#include "harness/plan/plan.h"
#include "harness/run/machine.h"
#include "harness/steps/reader.h"
#include "tracer/calls/calls.h"

// What is the same for every launch of a run.
struct launch_env {
    enum tree_means means;
    const char *base; // of the cgroups
    struct guardian *guardian;
    cpu_set_t cpus;
    bool cpus_named;                 // by the plan
    char *python_dir;                // where `import upgate` is found
    char *models_dir;                // holds native/ and torch/
    uint64_t count;                  // launches so far: unique names
    struct image images[PLAN_SIDES]; // of the sides that are images, opened
    // by which steps are marked in programs; library NULL: no workload has such
    struct inject inject;
    // what their last container said of itself; magic 0: none yet
    struct inside_hello guests[PLAN_SIDES];
};

// Where a launch is a node's part of a job on several.
struct launch_nodes {
    int node, count;
    const char *master;    // the host of node 0
    int ports[PLAN_SIDES]; // free there, of each side
};

struct launch_spec {
    const struct plan_side *side;
    const struct plan_workload *workload;
    uint64_t steps, seed;
    double rate_per_s;
    const char *dtype; // "float32", "float64"
    int64_t oom_kills; // of the machine before it starts (host_oom_kills); -1 = not told
    // Called with the process while it waits before exec: who wants to see all of a launch attaches
    // here. The launch begins when it returns. NULL ok.
    void (*on_start)(void *arg, int side_idx, pid_t pid);
    void *arg;
    int side_idx;
    int image_idx;        // of env.images and env.guests: the side of the plan that `side` is. In a
                          // control pair both are the baseline
    uint32_t control_ppm; // positive control: each of its steps takes so much longer; 0 = none
    const struct inject *inject;      // of a traced launch whose GPU side is recorded, else NULL
    uint32_t inject_kinds;            // enum ug_spool_want
    const struct launch_nodes *nodes; // NULL: the only one
    bool held_only;                   // is never frozen: its turns end at the gate
    bool finds_steps; // of a program that makes no step calls: of Python, or by a symbol
    // becomes non-zero on a signal: a container is not waited for any more. NULL ok
    const volatile int *stop;
};

enum launch_state { // names as in the store
    LAUNCH_RUNNING,
    LAUNCH_OK,
    LAUNCH_CRASHED,
    LAUNCH_TIMEOUT,
    LAUNCH_OOM,
    LAUNCH_NOT_STARTED,
    LAUNCH_STOPPED
};

struct launch {
    struct tree *tree;
    struct keeper *keeper; // waits for the root
    struct reader *reader;
    // who sees its steps, where they are calls of a native function; else NULL
    struct native_calls *calls;
    struct machine *machine; // what the machine does to it in its turns
    char *steps_path;
    pid_t pid;     // of the root; of a container: its engine, while the program lives. -1 = it has
                   // ended
    pid_t program; // the process that is the workload: the root, or the first of the container
    int pid_fd;    // readable when the program has exited
    struct image_hold *hold; // of a container: the line to it
    int engine_fd; // of a container: readable when the root, its engine, has exited; -1 = as pid_fd
    char *hold_path;
    int output_fd;                // stdout and stderr of the tree, an unlinked file
    int64_t output_trimmed_bytes; // at its beginning, given back
    enum launch_state state;
    int exit_code, exit_signal; // -1 = none
    int64_t started_ns, ended_ns;
    int64_t active_ns;               // so far, without the turn that is going on
    int64_t active_since_ns;         // 0 = frozen or held
    int64_t resumed_ns;              // when its last turn began; 0 = it was never stopped
    int64_t freeze_count, freeze_ns; // cost of the turns: time spent in freeze and thaw,
    int64_t machine_read_ns;         // and in readings of the machine
    int64_t overlap_ns;       // CPU time it used in turns of the other side, not having stopped yet
    int64_t overlap_steal_ns; // what the hypervisor took of all CPUs in those turns: CPU time may
                              // count it
    int64_t unstopped_cpu_ns; // its CPU time when such a turn began; -1 = it had stopped
    int64_t unstopped_steal_ns; // of the machine, at that moment
    bool unlooked;              // was told to stop, and nobody has looked yet whether it has
    int64_t look_weight;        // turns that the look at this one stands for
    bool held_only;             // as in struct launch_spec; then
    int64_t held_cpu_ns;       // CPU time it used while it was held: what its helpers did for other
                               // nodes, or spun
    int64_t held_from_ns;      // its CPU time when that began; -1 = not told, or it has its turn
    int64_t control_ns;        // of active_ns: frozen for a control
    int64_t cpu_ns;            // at the end; -1 = not told
    int64_t peak_memory_bytes; // -1 = it was too short to be seen
    int64_t before_exec_bytes; // resident then, as a copy of us: the exit status counts that too
    int64_t next_sample_ns;    // of memory
    int sample_count;
    int64_t oom_kills_before;
};

// The CPUs that a launch of a workload is pinned to, the same on both sides.
cpu_set_t launch_cpus(const struct launch_env *env, const struct plan_workload *workload);

// Start it, active and with every slot's gate closed at step 0. -ENOENT/-EACCES/-ENOEXEC with the
// program's name when it cannot be executed; -EINTR: spec.stop, before a container had begun.
int launch_start(struct launch_env *env, const struct launch_spec *spec, struct launch **ret_launch,
        struct error *err);
// Its turn begins or ends. patience_ns: how long to wait until the tree stands still; a tree that
// was held at its gate has little left to do. What it still does is measured in overlap_ns: with a
// patience below 0 if launch_look is called once the other side goes on, some 20 us later, instead
// of waiting for it; weight: where only one of so many turns is looked at.
void launch_resume(struct launch *launch);
void launch_suspend(struct launch *launch, int64_t patience_ns);
void launch_look(struct launch *launch, int64_t weight);
// Has it ended by itself? Fills state, exit code, ended_ns, CPU time. Samples memory now and then.
bool launch_ended(struct launch *launch);
// Wait until it ends by itself or until the deadline. True = ended.
bool launch_wait(struct launch *launch, int64_t deadline_ns);
// thaws first; no-op when it has ended
void launch_kill(struct launch *launch, enum launch_state state);
int64_t launch_active_ns(const struct launch *launch);
int launch_free_port(void); // of this machine, at this moment
char *launch_output_tail(const struct launch *launch, size_t bytes); // caller frees
void launch_free(struct launch_env *env, struct launch *launch);     // kills what is left; NULL ok
const char *launch_state_name(enum launch_state state);

// The library that marks this launch's steps; NULL: it needs none. It is loaded by the launch's
// environment, if its C library can.
const struct inject *launch_steps_inject(
        const struct launch_env *env, const struct launch_spec *spec);

// Directories of our own Python package and models, beside the running program (build tree or
// installed).
int launch_env_find(struct launch_env *env, struct error *err);

#endif
