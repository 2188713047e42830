// SPDX-License-Identifier: Apache-2.0
// What one look at a recording that goes on has read, for the next one: a window of ten seconds that is looked at every two has eight
// tenths of its rows in common with the one before. Rows stay as they were written, but for the waits that go on: each second these are
// written anew, behind all others. One owner thread.
#ifndef UPGATE_STALLS_KEPT_H
#define UPGATE_STALLS_KEPT_H

#include "reports/analyse/stalls/trace.h"

struct stalls_kept {
    struct trace rows; // gaps, shorts and samples with ids in place of threads, and texts; nothing else
    size_t gap_count, short_count; // of them, those that stay
    int64_t gap_row, gap_in;       // of the last one that stays; row 0: none is there
    int64_t sample_row, sample_at;
    bool waits; // one that goes on has been read: what stands from there on is read again
};

// Drops what does not belong to the trace's window, or all.
void kept_begin(struct stalls_kept *kept, struct store *store, const struct trace *trace);
// Behind each row that was read into kept->rows.
void kept_note_gap(struct stalls_kept *kept, int64_t row, const struct trace_gap *gap);
void kept_note_sample(struct stalls_kept *kept, int64_t row, const struct trace_sample *sample);
// All rows that are there, into the trace; then drops those that are read again.
void kept_place(struct stalls_kept *kept, const struct trace_maps *maps, struct trace *trace);
void kept_clear(struct stalls_kept *kept);

#endif
