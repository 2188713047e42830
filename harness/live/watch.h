// SPDX-License-Identifier: Apache-2.0
// `upgate record --trigger`: records for as long as it takes, and keeps only what was around the
// moments that the trigger names. What is recorded else is forgotten (--max-size). One thread.
#ifndef UPGATE_HARNESS_LIVE_WATCH_H
#define UPGATE_HARNESS_LIVE_WATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "harness/record/recording.h"

enum trigger_kind {
    TRIGGER_STALL, // one thread was held up for so long at one go, by a cause that `upgate stalls`
                   // names
    TRIGGER_STEP,  // a step took so many times the median of those that are kept
};

struct trigger {
    enum trigger_kind kind;
    int64_t stall_ns;
    double times;
};

// "stall > 500ms" or "step_time > 2x median". -EINVAL with what is known.
int trigger_parse(const char *text, struct trigger *ret, struct error *err);

struct watch_opts {
    // path: of the incidents, NAME.db becomes NAME-20261126-150512.db
    struct recording_opts recording;
    struct trigger trigger;
    const char *trigger_text;
    int64_t after_ns; // so long it is recorded further before what is kept becomes a store
    size_t keep;      // stores of this name; of more the oldest one goes, whichever watch left it
    bool json;        // upgate.incident/1, a line each
};

// A path of a store on stdout for each incident. 0, or as recording_run().
int watch_run(const struct watch_opts *opts, struct error *err);

#endif
