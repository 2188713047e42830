// SPDX-License-Identifier: Apache-2.0
// What must hold before the first stage: the offline gate's verdict, free memory, GPU health,
// device access, no profiler on one arm only, the user's checks. Reads stores, /proc, /sys and
// nvidia-smi where there is one; runs the checks of the plan. Changes nothing.
#ifndef UPGATE_HARNESS_CANARY_PREFLIGHT_H
#define UPGATE_HARNESS_CANARY_PREFLIGHT_H

#include <signal.h>

#include "harness/canary/plan/rollout.h"

struct preflight {
    int exit_code; // 0: all holds. 3: a verdict or a check says no. 4: the machine lacks something
    char reason[500]; // of the first thing that does not hold; "" where all does
    char *notes;      // what differs between the sides, what could not be looked at, what the plan
                      // cannot see: lines; freed by preflight_clear()
};

// Blocks: a check may take five minutes. stop: where it is not 0 any more, checks are ended, and
// that is the reason.
void preflight_run(
        const struct rollout *rollout, const volatile sig_atomic_t *stop, struct preflight *ret);
void preflight_clear(struct preflight *preflight);

// One look each, for tests; root is put before absolute paths ("" = the machine). 0, or the exit
// code, with `ret->reason`.
int preflight_gate(const char *store, struct preflight *ret);
int preflight_memory(const char *root, double bytes, struct preflight *ret);
int preflight_check(const char *command, int64_t timeout_ns, const volatile sig_atomic_t *stop,
        struct preflight *ret);
// smi: the program's name; absent: nothing is looked at
int preflight_gpu(const char *smi, struct preflight *ret);
int preflight_gpu_memory(const char *smi, double bytes, struct preflight *ret); // on each GPU
int preflight_devices(
        const char *root, uint64_t pid, const char *cgroup, const char *arm, struct preflight *ret);
// pids[arm] 0: that arm is not looked at. record: the plan wants both arms recorded at a breach.
int preflight_profilers(
        const char *root, const uint64_t pids[CANARY_ARMS], bool record, struct preflight *ret);
void preflight_differences(const char *store, struct preflight *ret); // notes only

#endif
