// SPDX-License-Identifier: Apache-2.0
// A command, without a shell, that must end in time. It and all that it started in its process
// group are killed at the deadline; it ends with us. Its input is empty; what it prints is bounded.
// (Launches of a run, which are held, frozen and outlive us: harness/run.)
#ifndef UPGATE_COMMON_CHILD_H
#define UPGATE_COMMON_CHILD_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"

struct child_opts {
    int64_t deadline_ns;               // CLOCK_MONOTONIC
    const volatile sig_atomic_t *stop; // not 0: it is ended now; NULL: nobody asks for that
    bool shows; // what it prints goes to our stderr, and is not in `output` and `said`
};

struct child_end {
    int code; // exit status; -1: ended by `signal`
    int signal;
    char *output;   // stdout, 64 KiB at most, never NULL; the caller's
    char said[300]; // the last line of its stderr, plain
};

// 0 where it ended by itself, well or not: *ret is filled. -ETIMEDOUT; -EINTR by `stop`; -ECHILD
// where our SIGCHLD is ignored, so that its exit status is nobody's; -ENOENT, -EACCES and the like
// of one that could not be started: in words.
int child_run(
        char *const *argv, const struct child_opts *opts, struct child_end *ret, struct error *err);
// The program of this name in PATH; a name with a slash is itself. NULL: there is none that we may
// run. The caller frees.
char *child_find_program(const char *name);
// -EIO in words where it did not end with 0.
int child_judge(const struct child_end *end, const char *name, struct error *err);

#endif
