// SPDX-License-Identifier: Apache-2.0
// Rows between two looks.
#include "reports/analyse/stalls/kept.h"

#include <stdlib.h>

#include "common/containers/vector.h"
#include "common/strings.h"
#include "reports/analyse/stalls/stalls.h"

enum {
    KEPT_ROWS_MAX = 1 << 16, // 7 MB: six thousand waits a second of a window of ten; who has more reads them at each look
    KEPT_TEXTS_MAX = 4096,
    KEPT_NAMES_MAX = 1 << 14,     // stacks, and frames: a window of the job that is measured has some 3,000 of each; 2 MB
    KEPT_FRAME_IDS_MAX = 1 << 19, // 2 MB
};

struct stalls_kept *stalls_kept_new(void)
{
    return xcalloc(1, sizeof(struct stalls_kept));
}

static void kept_names_clear(struct kept_names *names)
{
    map_free(&names->stack_at);
    map_free(&names->frame_at);
    free(names->stacks);
    free(names->frame_ids);
    free(names->frames);
    arena_free(names->arena);
    *names = (struct kept_names){0};
}

void stalls_kept_free(struct stalls_kept *kept)
{
    if (!kept)
        return;
    kept_clear(kept);
    kept_names_clear(&kept->names);
    free(kept);
}

void kept_clear(struct stalls_kept *kept)
{
    struct kept_names names = kept->names;
    free(kept->rows.gaps);
    free(kept->rows.shorts);
    free(kept->rows.samples);
    free(kept->rows.texts);
    arena_free(kept->rows.arena);
    *kept = (struct stalls_kept){.names = names};
}

// Is the last row that was read still the one with its number? Of a table that --max-size has emptied numbers are given anew.
static bool kept_holds(struct store *store, const char *sql, int64_t row, int64_t at)
{
    int64_t found = 0;
    return !row || (store_get_int(store, &found, NULL, sql, "i", row) == 0 && found == at);
}

static size_t kept_since(struct trace_gap *gaps, size_t count, int64_t from_ns)
{
    size_t left = 0;
    for (size_t i = 0; i < count; i++)
        if (gaps[i].in >= from_ns)
            gaps[left++] = gaps[i];
    return left;
}

void kept_begin(struct stalls_kept *kept, struct store *store, const struct trace *trace)
{
    struct trace *rows = &kept->rows;
    size_t left = 0;
    if (rows->recording_id != trace->recording_id || rows->from_ns > trace->from_ns ||
        !kept_holds(store, "SELECT in_ns FROM gap WHERE rowid = ?", kept->gap_row, kept->gap_in) ||
        !kept_holds(store, "SELECT at_ns FROM sample WHERE rowid = ?", kept->sample_row, kept->sample_at))
        kept_clear(kept);
    rows->recording_id = trace->recording_id;
    rows->from_ns = trace->from_ns;
    if (!rows->arena) {
        rows->arena = arena_new();
        vector_push(rows->texts, rows->text_count, "");
    }
    kept->gap_count = rows->gap_count = kept_since(rows->gaps, rows->gap_count, rows->from_ns);
    kept->short_count = rows->short_count = kept_since(rows->shorts, rows->short_count, rows->from_ns);
    for (size_t i = 0; i < rows->sample_count; i++)
        if (rows->samples[i].at >= rows->from_ns)
            rows->samples[left++] = rows->samples[i];
    rows->sample_count = left;
    kept->waits = false;
}

void kept_note_gap(struct stalls_kept *kept, int64_t row, const struct trace_gap *gap)
{
    kept->waits |= (gap->flags & UG_GAP_UNFINISHED) != 0;
    if (kept->waits)
        return;
    kept->gap_row = row;
    kept->gap_in = gap->in;
    kept->gap_count = kept->rows.gap_count;
    kept->short_count = kept->rows.short_count;
}

void kept_note_sample(struct stalls_kept *kept, int64_t row, const struct trace_sample *sample)
{
    kept->sample_row = row;
    kept->sample_at = sample->at;
}

static uint32_t kept_thread(const struct trace_maps *maps, uint32_t id)
{
    return id == TRACE_NONE ? TRACE_NONE : trace_ids_find(&maps->threads, id);
}

// False: its thread is not of this recording.
static bool kept_place_gap(const struct trace_maps *maps, struct trace_gap *gap)
{
    gap->thread = kept_thread(maps, gap->thread);
    gap->waker = kept_thread(maps, gap->waker);
    gap->next = kept_thread(maps, gap->next);
    gap->before = kept_thread(maps, gap->before);
    gap->owner = kept_thread(maps, gap->owner);
    return gap->thread != TRACE_NONE;
}

void kept_place(struct stalls_kept *kept, const struct trace_maps *maps, struct trace *trace)
{
    struct trace *rows = &kept->rows;
    for (size_t i = 1; i < rows->text_count; i++) // they may be read for longer than they are kept
        vector_push(trace->texts, trace->text_count, arena_copy(trace->arena, rows->texts[i]));
    for (size_t i = 0; i < rows->gap_count; i++) {
        struct trace_gap gap = rows->gaps[i];
        if (kept_place_gap(maps, &gap))
            vector_push(trace->gaps, trace->gap_count, gap);
    }
    for (size_t i = 0; i < rows->short_count; i++) {
        struct trace_gap gap = rows->shorts[i];
        if (kept_place_gap(maps, &gap))
            vector_push(trace->shorts, trace->short_count, gap);
    }
    for (size_t i = 0; i < rows->sample_count; i++) {
        struct trace_sample sample = rows->samples[i];
        sample.thread = kept_thread(maps, sample.thread);
        if (sample.thread != TRACE_NONE)
            vector_push(trace->samples, trace->sample_count, sample);
    }
    rows->gap_count = kept->gap_count;
    rows->short_count = kept->short_count;
    if (rows->gap_count + rows->short_count + rows->sample_count > KEPT_ROWS_MAX || rows->text_count > KEPT_TEXTS_MAX)
        kept_clear(kept);
}

const struct kept_stack *kept_stack_of(const struct kept_names *names, uint32_t id)
{
    uint32_t at = map_get(&names->stack_at, id);
    return at == MAP_NONE ? NULL : &names->stacks[at];
}

void kept_stack_add(struct kept_names *names, uint32_t id, char kind, const uint32_t *frame_ids, size_t count)
{
    enum { NAMED_MIN = 2 }; // "[not resolved]" is one frame, a Python stack before its names none
    if (count < NAMED_MIN)
        return;
    *map_put(&names->stack_at, id) = (uint32_t)names->stack_count;
    struct kept_stack stack = {(uint32_t)names->frame_id_count, (uint32_t)count, kind};
    vector_push(names->stacks, names->stack_count, stack);
    for (size_t i = 0; i < count; i++)
        vector_push(names->frame_ids, names->frame_id_count, frame_ids[i]);
}

struct kept_frame *kept_frame_of(const struct kept_names *names, uint32_t id)
{
    uint32_t at = map_get(&names->frame_at, id);
    return at == MAP_NONE ? NULL : &names->frames[at];
}

void kept_frame_add(struct kept_names *names, uint32_t id, const struct trace_frame *frame)
{
    if (!names->arena)
        names->arena = arena_new();
    *map_put(&names->frame_at, id) = (uint32_t)names->frame_count;
    struct kept_frame kept = {
        .name = arena_copy(names->arena, frame->name), .module = arena_copy(names->arena, frame->module), .line = frame->line};
    vector_push(names->frames, names->frame_count, kept);
}

void kept_names_trim(struct kept_names *names)
{
    if (names->stack_count > KEPT_NAMES_MAX || names->frame_count > KEPT_NAMES_MAX || names->frame_id_count > KEPT_FRAME_IDS_MAX)
        kept_names_clear(names);
}
