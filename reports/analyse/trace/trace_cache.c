// SPDX-License-Identifier: Apache-2.0
// Rows, stacks and names between two looks of stalls --live.
#include "reports/analyse/trace/trace_cache.h"

#include <stdlib.h>

#include "common/containers/vector.h"
#include "common/strings.h"

enum {
    CACHE_ROWS_MAX = 1 << 16, // 7 MB: six thousand waits a second of a window of ten; who has more
                              // reads them at each look
    CACHE_TEXTS_MAX = 4096,
    CACHE_NAMES_MAX = 1 << 14, // stacks, and frames: a window of the job that is measured has some
                               // 3,000 of each; 2 MB
    CACHE_FRAME_IDS_MAX = 1 << 19, // 2 MB
};

struct trace_cache *trace_cache_new(void)
{
    return xcalloc(1, sizeof(struct trace_cache));
}

static void cache_names_clear(struct cache_names *names)
{
    map_free(&names->stack_at);
    map_free(&names->frame_at);
    free(names->stacks);
    free(names->frame_ids);
    free(names->frames);
    arena_free(names->arena);
    *names = (struct cache_names){0};
}

void trace_cache_free(struct trace_cache *cache)
{
    if (!cache)
        return;
    cache_clear(cache);
    cache_names_clear(&cache->names);
    free(cache);
}

void cache_clear(struct trace_cache *cache)
{
    struct cache_names names = cache->names;
    free(cache->rows.gaps);
    free(cache->rows.shorts);
    free(cache->rows.samples);
    free(cache->rows.texts);
    arena_free(cache->rows.arena);
    *cache = (struct trace_cache){.names = names};
}

// Is the last row that was read still the one with its number? Of a table that --max-size has
// emptied numbers are given anew.
static bool cache_holds(struct store *store, const char *sql, int64_t row, int64_t at)
{
    int64_t found = 0;
    return !row || (store_get_int(store, &found, NULL, sql, "i", row) == 0 && found == at);
}

static size_t cache_since(struct trace_gap *gaps, size_t count, int64_t from_ns)
{
    size_t left = 0;
    for (size_t i = 0; i < count; i++)
        if (gaps[i].in >= from_ns)
            gaps[left++] = gaps[i];
    return left;
}

void cache_begin(struct trace_cache *cache, struct store *store, const struct trace *trace)
{
    struct trace *rows = &cache->rows;
    size_t left = 0;
    if (rows->recording_id != trace->recording_id || rows->from_ns > trace->from_ns ||
            !cache_holds(store, "SELECT in_ns FROM gap WHERE rowid = ?", cache->gap_row,
                    cache->gap_in) ||
            !cache_holds(store, "SELECT at_ns FROM sample WHERE rowid = ?", cache->sample_row,
                    cache->sample_at))
        cache_clear(cache);
    rows->recording_id = trace->recording_id;
    rows->from_ns = trace->from_ns;
    if (!rows->arena) {
        rows->arena = arena_new();
        vector_push(rows->texts, rows->text_count, "");
    }
    cache->gap_count = rows->gap_count = cache_since(rows->gaps, rows->gap_count, rows->from_ns);
    cache->short_count = rows->short_count =
            cache_since(rows->shorts, rows->short_count, rows->from_ns);
    for (size_t i = 0; i < rows->sample_count; i++)
        if (rows->samples[i].at >= rows->from_ns)
            rows->samples[left++] = rows->samples[i];
    rows->sample_count = left;
    cache->waits = false;
}

void cache_note_gap(struct trace_cache *cache, int64_t row, const struct trace_gap *gap)
{
    cache->waits |= (gap->flags & UG_GAP_UNFINISHED) != 0;
    if (cache->waits)
        return;
    cache->gap_row = row;
    cache->gap_in = gap->in;
    cache->gap_count = cache->rows.gap_count;
    cache->short_count = cache->rows.short_count;
}

void cache_note_sample(struct trace_cache *cache, int64_t row, const struct trace_sample *sample)
{
    cache->sample_row = row;
    cache->sample_at = sample->at;
}

static uint32_t cache_thread(const struct trace_ids *threads, uint32_t id)
{
    return id == TRACE_NONE ? TRACE_NONE : trace_ids_find(threads, id);
}

// False: its thread is not of this recording.
static bool cache_place_gap(const struct trace_ids *threads, struct trace_gap *gap)
{
    gap->thread = cache_thread(threads, gap->thread);
    gap->waker = cache_thread(threads, gap->waker);
    gap->next = cache_thread(threads, gap->next);
    gap->before = cache_thread(threads, gap->before);
    gap->owner = cache_thread(threads, gap->owner);
    return gap->thread != TRACE_NONE;
}

void cache_place(struct trace_cache *cache, const struct trace_ids *threads, struct trace *trace)
{
    struct trace *rows = &cache->rows;
    for (size_t i = 1; i < rows->text_count; i++) // they may be read for longer than they are kept
        vector_push(trace->texts, trace->text_count, arena_copy(trace->arena, rows->texts[i]));
    for (size_t i = 0; i < rows->gap_count; i++) {
        struct trace_gap gap = rows->gaps[i];
        if (cache_place_gap(threads, &gap))
            vector_push(trace->gaps, trace->gap_count, gap);
    }
    for (size_t i = 0; i < rows->short_count; i++) {
        struct trace_gap gap = rows->shorts[i];
        if (cache_place_gap(threads, &gap))
            vector_push(trace->shorts, trace->short_count, gap);
    }
    for (size_t i = 0; i < rows->sample_count; i++) {
        struct trace_sample sample = rows->samples[i];
        sample.thread = cache_thread(threads, sample.thread);
        if (sample.thread != TRACE_NONE)
            vector_push(trace->samples, trace->sample_count, sample);
    }
    rows->gap_count = cache->gap_count;
    rows->short_count = cache->short_count;
    if (rows->gap_count + rows->short_count + rows->sample_count > CACHE_ROWS_MAX ||
            rows->text_count > CACHE_TEXTS_MAX)
        cache_clear(cache);
}

const struct cache_stack *cache_stack_of(const struct cache_names *names, uint32_t id)
{
    uint32_t at = map_get(&names->stack_at, id);
    return at == MAP_NONE ? NULL : &names->stacks[at];
}

void cache_stack_add(
        struct cache_names *names, uint32_t id, char kind, const uint32_t *frame_ids, size_t count)
{
    enum { NAMED_MIN = 2 }; // "[not resolved]" is one frame, a Python stack before its names none
    if (count < NAMED_MIN)
        return;
    *map_put(&names->stack_at, id) = (uint32_t)names->stack_count;
    struct cache_stack stack = {(uint32_t)names->frame_id_count, (uint32_t)count, kind};
    vector_push(names->stacks, names->stack_count, stack);
    for (size_t i = 0; i < count; i++)
        vector_push(names->frame_ids, names->frame_id_count, frame_ids[i]);
}

struct cache_frame *cache_frame_of(const struct cache_names *names, uint32_t id)
{
    uint32_t at = map_get(&names->frame_at, id);
    return at == MAP_NONE ? NULL : &names->frames[at];
}

void cache_frame_add(struct cache_names *names, uint32_t id, const struct trace_frame *frame)
{
    if (!names->arena)
        names->arena = arena_new();
    *map_put(&names->frame_at, id) = (uint32_t)names->frame_count;
    struct cache_frame known = {.name = arena_copy(names->arena, frame->name),
            .module = arena_copy(names->arena, frame->module),
            .line = frame->line,
            .starts = frame->starts};
    vector_push(names->frames, names->frame_count, known);
}

void cache_names_trim(struct cache_names *names)
{
    if (names->stack_count > CACHE_NAMES_MAX || names->frame_count > CACHE_NAMES_MAX ||
            names->frame_id_count > CACHE_FRAME_IDS_MAX)
        cache_names_clear(names);
}
