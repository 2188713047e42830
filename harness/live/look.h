// SPDX-License-Identifier: Apache-2.0
// A recording that is looked at while it goes on: a child records into a store that forgets what is
// old, this process reads the last seconds of it as often as it likes, and copies what is there.
// One thread.
#ifndef UPGATE_HARNESS_LIVE_LOOK_H
#define UPGATE_HARNESS_LIVE_LOOK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/error.h"
#include "harness/record/recording.h"
#include "reports/analyse/stalls/stalls.h"
#include "reports/render/stalls/stalls_view.h"
#include "tracer/store/store.h"

struct look {
    char *path;   // of the store
    char *folder; // of ours, which goes at the end; NULL: the user's store
    pid_t child;
    int report_fd;             // how the recorder ended: its struct error
    bool ended;                // the recorder has, by itself
    struct store *store;       // kept open: to read its schema is a third of a look. NULL: not yet
    struct trace_cache *cache; // rows of the last look that the next one needs again; NULL: not yet
    struct stalls_tally *tally;          // of rows that were counted; NULL: not yet
    struct stalls *stalls;               // the last look; NULL: none yet
    struct stalls_recordings recordings; // of the last look
    struct error error;                  // why the last look shows nothing
};

// opts->path NULL: a store in a folder of its own, in $TMPDIR. silent: the child has no terminal;
// what it warns of is in the store.
int look_start(
        struct look *look, const struct recording_opts *opts, bool silent, struct error *err);
// Has the recorder ended? -EAGAIN: not until then. Else how: 0, or its error.
int look_reap(struct look *look, int64_t until_ns, struct error *err);
int look_stop(struct look *look, struct error *err);
// The last window_ns. False: what was seen before stays, as the store is not there yet or is being
// written.
bool look_again(struct look *look, int64_t window_ns);
// All that is kept, at this moment, as a recording that has ended: name "night.db" makes
// "night-20261126-031207.db". The caller frees the path. -errno: nothing is left of it.
int look_save(const struct look *look, const char *name, char **ret_path, struct error *err);
void look_free(struct look *look); // behind look_stop(); removes a store of its own

#endif
