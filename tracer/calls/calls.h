// SPDX-License-Identifier: Apache-2.0
// Steps of a program that marks none: the calls of a function of native code, seen by breakpoints
// of the kernel (bpf/calls.bpf.c) and said in the program's stead in the file of the step protocol.
// A step is an outermost call, from its first instruction to where it has returned. With `holds`
// the gate of that file holds: the process stops where it has returned (before the first step: at
// its entry), and is let go when it is granted more.
//
// A thread of its own reads what the kernel tells. The reader's owner may use the reader meanwhile.
#ifndef UPGATE_TRACER_CALLS_CALLS_H
#define UPGATE_TRACER_CALLS_CALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/error.h"
#include "harness/steps/reader.h"

struct native_calls;

struct native_calls_opts {
    const char *symbol;   // "symbol:NAME", "symbol:LIBRARY:NAME"
    struct reader *steps; // where they are said; lives longer
    const pid_t *pids;
    size_t pid_count;
    bool running; // they run already: what they map is looked at now; else each waits before its
                  // exec
    bool no_children; // what they start later is left out
    bool holds; // processes stand still at the gate, and for some 100 us at each exec and dlopen
                // until the function is found
    uint32_t control_ppm;
};

// 0; -EPERM, -ENOTSUP: in words, what the machine does not allow.
int native_calls_start(
        const struct native_calls_opts *opts, struct native_calls **ret_calls, struct error *err);
// It has given up: the program runs on, and what it was cut by does not hold. From any thread; NULL
// ok.
bool native_calls_left(const struct native_calls *calls);
// All that the kernel has told until now is in the file when it returns, and every process goes on.
// NULL ok, twice ok.
void native_calls_stop(struct native_calls *calls);
// After native_calls_stop: "calls of process_batch in libserve.so", or NULL and why there were no
// steps: words without an end.
const char *native_calls_found(const struct native_calls *calls, const char **ret_why);
void native_calls_free(struct native_calls *calls); // NULL ok

#endif
