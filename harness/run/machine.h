// SPDX-License-Identifier: Apache-2.0
// What the machine did to a side in its turn, told apart from what the side did: readings of the
// scheduler before and after it, and what of the turn's time they excuse. One owner thread.
#ifndef UPGATE_HARNESS_RUN_MACHINE_H
#define UPGATE_HARNESS_RUN_MACHINE_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

#include "harness/steps/reader.h"

struct machine; // the readings of one launch

struct machine_turn {   // one turn, from the thaw of the side to its arrival; -1 = not told
    int64_t resumed_ns; // when it was thawed
    int64_t ranks;      // that made steps
    int64_t cpu_ns; // CPU time of its tree, until it was thawed again: all has come to rest by then
    int64_t step_cpu_ns; // of it, the threads that make the steps
    int64_t wait_ns;     // run-queue wait of that thread; of several ranks, the one that lost most
    int64_t foreign_ns;  // CPU time of all others on the side's CPUs
    int64_t rest_ns; // of that thread, neither running nor waiting; -1 also where it may have slept
};

#define MACHINE_NOT_TOLD ((struct machine_turn){0, 0, -1, -1, -1, -1, -1})

struct machine_share { // of one block, as in table block; -1 = not told
    int64_t wait_ns, steal_ns, machine_ns;
};

struct machine *machine_new(const cpu_set_t *cpus); // those that the side may use
void machine_free(struct machine *machine);         // NULL ok
// The side stands still and is about to be thawed. cpu_ns: of its tree so far, -1 = not told.
// Completes the turn before: true when there was one, which is then in *ret_turn.
bool machine_begin(struct machine *machine, const struct reader *reader, int64_t cpu_ns,
        struct machine_turn *ret_turn);
// Every rank has arrived, and nothing was done to the side yet. resumed_ns: when it was thawed.
void machine_end(struct machine *machine, const struct reader *reader, int64_t resumed_ns);

// What a turn says about its block, whose first step began at begin_ns.
void machine_judge(const struct machine_turn *turn, int64_t begin_ns, int64_t active_ns,
        struct machine_share *ret_share);

// Run time of all tasks on some CPUs, from the text of cpuacct.usage_percpu or /proc/schedstat; -1
// = not there.
int64_t machine_parse_percpu(const char *text, const cpu_set_t *cpus);
int64_t machine_parse_schedstat(const char *text, const cpu_set_t *cpus);

#endif
