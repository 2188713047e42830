// SPDX-License-Identifier: Apache-2.0
// The stalls of recordings as people and machines read them: terminal table, Markdown, and the
// document upgate.stalls/1. Shows what reports/analyse/stalls found and judges nothing. Reads the
// store for what a recording is (whose, how long, how many events); writes streams and buffers
// only.
#ifndef UPGATE_REPORTS_STALLS_VIEW_H
#define UPGATE_REPORTS_STALLS_VIEW_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "common/error.h"
#include "reports/analyse/stalls/stalls.h"
#include "reports/render/render.h"
#include "tracer/store/store.h"

// A row of table recording and what it belongs to. Strings belong to it.
struct stalls_recording {
    int64_t id;
    char *workload, *side_name; // of a traced launch of `upgate ab`; NULL: of `upgate record`
    int side;                   // 0, 1; -1 = none
    int64_t pair;               // index; -1 = none
    int64_t begin_ns, end_ns;   // end_ns 0: it was killed, or is still going on
    int64_t threshold_ns, sample_hz;
    bool python;
    struct stall_task target; // the process of the target that was seen first
    char *target_comm, *target_cmdline;
    int64_t processes, threads; // of the target
    int64_t gaps, samples, lock_waits, facts;
};

struct stalls_recordings {
    struct stalls_recording *items;
    size_t count;
    int64_t started_wall_ns; // of the run; 0 = not told
};

// In order of id. A store without the table, or without a row in it, gives count == 0.
int stalls_recordings_load(struct store *store, struct stalls_recordings *ret, struct error *err);
// The same of a store that is looked at again and again, whose rows `tally` has counted before;
// NULL: all are counted.
struct stalls_tally;
int stalls_recordings_again(struct store *store, struct stalls_tally *tally,
        struct stalls_recordings *ret, struct error *err);
void stalls_recordings_clear(struct stalls_recordings *recordings);

// One recording with what was found in it.
struct stalls_shown {
    const struct stalls_recording *recording;
    const struct stalls *stalls;
};

struct stalls_view {
    const struct stalls_shown *shown;
    size_t count;
    const struct stalls_recordings *recordings; // all of the store
    const char *path;                 // of the store; NULL: nothing is said of what else it tells
    size_t rows_max;                  // causes listed of a recording
    size_t details_from, details_max; // of them told in full
    bool heat;                        // in the terminal ranks by time are drawn
};

// Can anything be said of this recording? NULL, or a sentence that says why not; the caller frees.
char *stalls_view_nothing(const struct stalls_shown *shown);

int stalls_view_table(const struct stalls_view *view, const struct render_opts *opts, FILE *stream,
        struct error *err);
char *stalls_view_markdown(const struct stalls_view *view); // the caller frees
// upgate.stalls/1 of shown[0]; `recordings` lists what else the store has.
json_t *stalls_view_json(const struct stalls_view *view);
extern const struct stalls_words stalls_view_words; // for stalls_save()

#endif
