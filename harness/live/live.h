// SPDX-License-Identifier: Apache-2.0
// `upgate stalls --live`: what holds a program up, while it does. A child records into a store that forgets what is old; this
// process reads it every few seconds and shows the causes of the last ones. One thread; the terminal is as before at the end.
#ifndef UPGATE_HARNESS_LIVE_LIVE_H
#define UPGATE_HARNESS_LIVE_LIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/error.h"

struct live_opts {
    const pid_t *pids;
    size_t pid_count;
    const char *cgroup; // directory, or NULL
    const char *path;   // the store stays there; NULL: in the directory for temporary files, and gone at the end
    int64_t window_ns;  // that is looked at
    int64_t every_ns;   // between two looks
    int64_t duration_ns; // 0: until q, a signal, or the end of the target
    int64_t max_bytes;  // of the store
    size_t rows_max;    // causes that are listed
    bool json;          // a document upgate.stalls/1 a line
    bool no_color;
    const char *command_line; // of upgate, JSON array
};

// 0; -EINVAL: no such process, ...; other -errno: as recording_run(), or nothing can be shown.
int live_run(const struct live_opts *opts, struct error *err);

#endif
