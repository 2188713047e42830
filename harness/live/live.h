// SPDX-License-Identifier: Apache-2.0
// `upgate stalls --live`: what holds a program up, while it does, on a screen with keys or as a
// text every few seconds. One thread; the terminal is as before at the end.
#ifndef UPGATE_HARNESS_LIVE_LIVE_H
#define UPGATE_HARNESS_LIVE_LIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "harness/record/recording.h"

struct live_opts {
    // path NULL: in the directory for temporary files, and gone at the end
    struct recording_opts recording;
    int64_t window_ns;   // that is looked at
    int64_t every_ns;    // between two looks
    int64_t duration_ns; // 0: until q, a signal, or the end of the target
    size_t rows_max;     // causes that are listed
    bool json;           // a document upgate.stalls/1 a line
    bool no_color;
};

// 0; -EINVAL: no such process, ...; other -errno: as recording_run(), or nothing can be shown.
int live_run(const struct live_opts *opts, struct error *err);

#endif
