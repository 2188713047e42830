// SPDX-License-Identifier: Apache-2.0
// What one look at a recording that goes on has read, for the next one: a window of ten seconds
// that is looked at every two has eight tenths of its rows in common with the one before. Rows stay
// as they were written, but for the waits that go on: each second these are written anew, behind
// all others. One owner thread.
#ifndef UPGATE_TRACE_CACHE_H
#define UPGATE_TRACE_CACHE_H

#include "common/containers/map.h"
#include "reports/analyse/trace/trace.h"

// Stacks by their numbers, and their frames. Whose names come later is not among them: it has one
// frame until then, or none.
struct cache_stack {
    uint32_t first, count; // in frame_ids
    char kind;
};
struct cache_frame {
    const char *name, *module;
    int32_t line;
    char kind;          // as trace_frame; 0: not yet
    bool starts;        // as trace_frame
    struct marks marks; // as that kind
};
struct cache_names {
    struct map stack_at, frame_at;
    struct cache_stack *stacks;
    uint32_t *frame_ids;
    struct cache_frame *frames;
    size_t stack_count, frame_id_count, frame_count;
    struct arena *arena;
};

struct trace_cache {
    struct trace
            rows; // gaps, shorts and samples with ids in place of threads, and texts; nothing else
    size_t gap_count, short_count; // of them, those that stay
    int64_t gap_row, gap_in;       // of the last one that stays; row 0: none is there
    int64_t sample_row, sample_at;
    bool waits; // one that goes on has been read: what stands from there on is read again
    struct cache_names names;
};

// Drops what does not belong to the trace's window, or all.
void cache_begin(struct trace_cache *cache, struct store *store, const struct trace *trace);
// Behind each row that was read into cache->rows.
void cache_note_gap(struct trace_cache *cache, int64_t row, const struct trace_gap *gap);
void cache_note_sample(struct trace_cache *cache, int64_t row, const struct trace_sample *sample);
// All rows that are there, into the trace; then drops those that are read again, or all where there
// are too many.
void cache_place(struct trace_cache *cache, const struct trace_ids *threads, struct trace *trace);
void cache_clear(struct trace_cache *cache); // but for names

// NULL: not there
const struct cache_stack *cache_stack_of(const struct cache_names *names, uint32_t id);
void cache_stack_add(
        struct cache_names *names, uint32_t id, char kind, const uint32_t *frame_ids, size_t count);
struct cache_frame *cache_frame_of(const struct cache_names *names, uint32_t id); // NULL: not there
void cache_frame_add(struct cache_names *names, uint32_t id, const struct trace_frame *frame);
void cache_names_trim(struct cache_names *names); // forgets all where it is too much

#endif
