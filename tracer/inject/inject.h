// SPDX-License-Identifier: Apache-2.0
// The library that CUDA_INJECTION64_PATH loads into a workload: its state, which its parts ask for.
// What it is for, and who switches it on, is in contracts/spool.h; others in the process see
// contracts/inject_api.h only.
#ifndef UPGATE_TRACER_INJECT_INJECT_H
#define UPGATE_TRACER_INJECT_INJECT_H

#include <stdbool.h>
#include <stdint.h>

#define UG_EXPORT __attribute__((visibility("default")))

// enum ug_spool_want that is on now, 0: dormant, ended, or a forked child. One load; any thread.
uint32_t inject_kinds(void);
// What InitializeInjection does, for NCCL, which may load us first: once a process, any thread. 0,
// or -1: no spool.
int inject_start(void);
// Told by the session: kinds are on, or off (0).
void inject_kinds_set(uint32_t kinds);
// False in a forked child: no part may touch CUPTI or the spool then.
bool inject_alive(void);
bool inject_exiting(void);
// Has the exit of the process flush. Called again once CUDA is up: whose handler is registered last
// runs first, and ours has to come before libcuda's and libcupti's.
void inject_register_exit(void);
// Wakes the control thread before its time: a buffer waits to be zeroed, a context was made. Any
// thread.
void inject_wake(void);
uint64_t inject_now_ns(void); // CLOCK_MONOTONIC
// A line on stderr when UPGATE_INJECT_DEBUG is set; not on the launch path.
void inject_debug(const char *format, ...) __attribute__((format(printf, 1, 2)));

// Correlation id of the launch the calling thread is in; set and cleared by the session's callback.
extern __thread uint32_t inject_correlation;
// Calls who listens to launches; in the launch callback.
void inject_launched(uint32_t correlation);

// A futex that several threads or processes look at.
int inject_futex_wait(const uint32_t *word, uint32_t value, uint64_t timeout_ns, bool shared);
void inject_futex_wake(const uint32_t *word, bool shared);

// A thread of the library: all signals blocked, detached. 0 or an errno.
int inject_thread(void *(*run)(void *), const char *name, uint64_t stack_bytes);

#endif
