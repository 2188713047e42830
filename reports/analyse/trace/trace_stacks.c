// SPDX-License-Identifier: Apache-2.0
// The stacks that a recording's rows have, their frames, and what they mean. A store of several
// launches has the stacks of all of them, and each launch is read by itself: of 190,000 stacks one
// needs 40,000. So rows are read with ids first, and stacks and frames are read by these.
#include <stdlib.h>

#include "common/containers/search.h"
#include "common/containers/vector.h"
#include "common/strings.h"
#include "reports/analyse/names/names.h"
#include "reports/analyse/trace/trace_cache.h"
#include "reports/analyse/trace/trace_inside.h"

enum {
    STACKS_SKIP_MAX = 32 // rows in a row that nobody needs: a new search costs as much
};

struct stacks_used { // a bit for each id up to max
    uint64_t *bits;
    size_t words;
    uint32_t max;
};

struct stacks {
    struct trace *trace;
    struct stacks_used used, used_frames;
    uint32_t *index, *frame_index; // by id; of frames plus 1; 0: not there
};

static void used_add(struct stacks_used *used, uint32_t id)
{
    if (id / 64 >= used->words)
        used->bits = vector_reserve_zero(
                used->bits, &used->words, (size_t)id / 64 + 1, sizeof *used->bits);
    used->bits[id / 64] |= UINT64_C(1) << id % 64;
    used->max = id > used->max ? id : used->max;
}

static void used_drop(struct stacks_used *used, uint32_t id)
{
    used->bits[id / 64] &= ~(UINT64_C(1) << id % 64);
}

static bool used_has(const struct stacks_used *used, int64_t id)
{
    return id > 0 && id <= used->max && used->bits[id / 64] >> id % 64 & 1;
}

// The first one from `id` on; 0: none.
static uint32_t used_next(const struct stacks_used *used, int64_t id)
{
    for (; id <= used->max; id++) {
        if (!used->bits[id / 64])
            id |= 63;
        else if (used_has(used, id))
            return (uint32_t)id;
    }
    return 0;
}

static void stacks_visit(struct stacks *stacks, void (*visit)(struct stacks *, uint32_t *))
{
    struct trace *trace = stacks->trace;
    for (size_t i = 0; i < trace->gap_count + trace->short_count; i++) {
        struct trace_gap *gap =
                i < trace->gap_count ? &trace->gaps[i] : &trace->shorts[i - trace->gap_count];
        visit(stacks, &gap->kernel);
        visit(stacks, &gap->user);
        visit(stacks, &gap->python);
        visit(stacks, &gap->waker_stack);
    }
    for (size_t i = 0; i < trace->sample_count; i++) {
        visit(stacks, &trace->samples[i].kernel);
        visit(stacks, &trace->samples[i].user);
        visit(stacks, &trace->samples[i].python);
    }
    for (size_t i = 0; i < trace->lock_count; i++) {
        visit(stacks, &trace->locks[i].kernel);
        visit(stacks, &trace->locks[i].owner_stack);
    }
    for (size_t i = 0; i < trace->fact_count; i++)
        visit(stacks, &trace->facts[i].kernel);
}

static void stack_use(struct stacks *stacks, uint32_t *id)
{
    if (*id)
        used_add(&stacks->used, *id);
}

static void stack_place(struct stacks *stacks, uint32_t *id)
{
    *id = *id ? stacks->index[*id] : 0; // [0] is the empty stack
}

// Rows of a table by the ids in use, in their order. The first column is the id.
static int used_read(struct store *store, const char *sql, const struct stacks_used *used,
        struct stacks *stacks, void (*read)(struct stacks *, sqlite3_stmt *, uint32_t),
        struct error *err)
{
    for (uint32_t next = used_next(used, 1); next;) {
        sqlite3_stmt *stmt = store_query(store, err, sql, "i", (int64_t)next);
        int rc, skipped = 0;
        int64_t id = INT64_MAX - 1;
        while (skipped < STACKS_SKIP_MAX && (rc = store_step(store, stmt, err)) == 1) {
            id = sqlite3_column_int64(stmt, 0);
            if (id > used->max)
                break;
            if (used_has(used, id))
                read(stacks, stmt, (uint32_t)id);
            skipped = used_has(used, id) ? 0 : skipped + 1;
        }
        if (skipped < STACKS_SKIP_MAX && rc <= 0)
            return rc;
        sqlite3_reset(stmt);
        // Of a damaged table: behind the largest id there is none, and what is no number comes last
        // and reads as 0.
        next = id >= next && id < used->max ? used_next(used, id + 1) : 0;
    }
    return 0;
}

static void stack_push(struct stacks *stacks, uint32_t frame_id)
{
    used_add(&stacks->used_frames, frame_id);
    vector_push(stacks->trace->stack_frames, stacks->trace->stack_frame_count, frame_id);
}

// Frame ids out of a JSON array of integers. What is no digit separates.
static void stack_parse(struct stacks *stacks, struct trace_stack *row, const char *text)
{
    for (const char *at = text; *at;) {
        if (*at < '0' || *at > '9') {
            at++;
            continue;
        }
        int64_t id = 0;
        for (; *at >= '0' && *at <= '9'; at++)
            id = id < INT64_MAX / 16 ? id * 10 + (*at - '0') : id;
        if (id <= 0 || id > TRACE_STACK_ID_MAX)
            continue;
        stack_push(stacks, (uint32_t)id);
    }
    row->count = (uint32_t)stacks->trace->stack_frame_count - row->first;
}

static struct trace_stack *stack_begin(struct stacks *stacks, uint32_t id, char kind)
{
    struct trace *trace = stacks->trace;
    stacks->index[id] = (uint32_t)trace->stack_count;
    struct trace_stack *row = vector_add(trace->stacks, trace->stack_count);
    row->first = (uint32_t)trace->stack_frame_count;
    row->id = id;
    row->kind = kind;
    return row;
}

static void stack_read(struct stacks *stacks, sqlite3_stmt *stmt, uint32_t id)
{
    struct trace *trace = stacks->trace;
    const char *kind = (const char *)sqlite3_column_text(stmt, 1),
               *text = (const char *)sqlite3_column_text(stmt, 2); // NULL in a damaged file
    struct trace_stack *row = stack_begin(stacks, id, kind ? *kind : 0);
    stack_parse(stacks, row, text ? text : "");
    if (trace->cache && row->count)
        cache_stack_add(&trace->cache->names, id, kind ? *kind : 0,
                trace->stack_frames + row->first, row->count);
}

// Those that a look before has read.
static void stacks_take(struct stacks *stacks)
{
    struct trace *trace = stacks->trace;
    const struct cache_names *names = &trace->cache->names;
    for (uint32_t id = used_next(&stacks->used, 1); id;
            id = used_next(&stacks->used, (int64_t)id + 1)) {
        const struct cache_stack *kept = cache_stack_of(names, id);
        if (!kept)
            continue;
        struct trace_stack *row = stack_begin(stacks, id, kept->kind);
        row->count = kept->count;
        for (uint32_t i = 0; i < kept->count; i++)
            stack_push(stacks, names->frame_ids[kept->first + i]);
        used_drop(&stacks->used, id);
    }
}

static struct trace_frame *frame_add(
        struct stacks *stacks, uint32_t id, const char *name, const char *module, int32_t line)
{
    struct trace *trace = stacks->trace;
    struct trace_frame *row = vector_add(trace->frames, trace->frame_count);
    row->name = arena_copy(trace->arena, name);
    row->module = arena_copy(trace->arena, module);
    row->line = line;
    stacks->frame_index[id] = (uint32_t)trace->frame_count;
    return row;
}

static void frame_read(struct stacks *stacks, sqlite3_stmt *stmt, uint32_t id)
{
    struct trace *trace = stacks->trace;
    const char *name = (const char *)sqlite3_column_text(stmt, 1); // NULL in a damaged file
    struct trace_frame *row = frame_add(stacks, id, name ? name : "[unknown]",
            (const char *)sqlite3_column_text(stmt, 2), sqlite3_column_int(stmt, 3));
    row->starts = names_has_start(row->name, sqlite3_column_int64(stmt, 4));
    if (trace->cache)
        cache_frame_add(&trace->cache->names, id, row);
}

static void frames_take(struct stacks *stacks)
{
    const struct cache_names *names = &stacks->trace->cache->names;
    for (uint32_t id = used_next(&stacks->used_frames, 1); id;
            id = used_next(&stacks->used_frames, (int64_t)id + 1)) {
        const struct cache_frame *kept = cache_frame_of(names, id);
        if (!kept)
            continue;
        frame_add(stacks, id, kept->name, kept->module, kept->line)->starts = kept->starts;
        used_drop(&stacks->used_frames, id);
    }
}

// What frames mean, from the looks before, or for those that follow.
static void frames_share_marks(struct stacks *stacks, struct marks *of_frames, bool take)
{
    struct trace *trace = stacks->trace;
    for (uint32_t id = 1; trace->cache && id <= stacks->used_frames.max; id++) {
        uint32_t at = stacks->frame_index[id];
        struct cache_frame *kept = at ? cache_frame_of(&trace->cache->names, id) : NULL;
        if (!kept)
            continue;
        if (take) {
            trace->frames[at - 1].kind = kept->kind;
            of_frames[at - 1] = kept->marks;
        } else {
            kept->kind = trace->frames[at - 1].kind;
            kept->marks = of_frames[at - 1];
        }
    }
}

// Ids of frames become indexes; those that are not there are left out.
static void stack_place_frames(struct stacks *stacks, struct trace_stack *row, size_t *kept)
{
    struct trace *trace = stacks->trace;
    uint32_t first = row->first, count = row->count;
    row->first = (uint32_t)*kept;
    for (uint32_t i = first; i < first + count; i++) {
        uint32_t frame = stacks->frame_index[trace->stack_frames[i]];
        if (frame)
            trace->stack_frames[(*kept)++] = frame - 1;
    }
    row->count = (uint32_t)*kept - row->first;
}

static struct marks stack_marks(
        struct trace *trace, const struct trace_stack *row, struct marks *of_frames)
{
    struct marks marks = {{0, 0}};
    for (uint32_t i = 0; i < row->count; i++) {
        uint32_t index = trace->stack_frames[row->first + i];
        struct trace_frame *frame = &trace->frames[index];
        if (frame->kind != row->kind) { // interned by place: a frame has one kind in all its stacks
            frame->kind = row->kind;
            of_frames[index] = marks_of_function(row->kind, frame->name, frame->module);
        }
        marks = marks_join(marks, of_frames[index]);
    }
    return marks;
}

static void stacks_finish(struct stacks *stacks)
{
    struct trace *trace = stacks->trace;
    struct marks *of_frames = xcalloc(trace->frame_count + 1, sizeof *of_frames);
    size_t kept = 0;
    frames_share_marks(stacks, of_frames, true);
    for (size_t i = 1; i < trace->stack_count; i++) {
        stack_place_frames(stacks, &trace->stacks[i], &kept);
        trace->stacks[i].marks = stack_marks(trace, &trace->stacks[i], of_frames);
    }
    trace->stack_frame_count = kept;
    frames_share_marks(stacks, of_frames, false);
    free(of_frames);
    stacks_visit(stacks, stack_place);
}

int trace_load_stacks(struct trace *trace, struct store *store, struct error *err)
{
    struct stacks stacks = {.trace = trace};
    vector_push(trace->stacks, trace->stack_count, (struct trace_stack){0}); // the empty one
    stacks_visit(&stacks, stack_use);
    stacks.index = xcalloc((size_t)stacks.used.max + 1, sizeof *stacks.index);
    if (trace->cache)
        stacks_take(&stacks);
    int rc = used_read(store, "SELECT id, kind, frames FROM stack WHERE id >= ? ORDER BY id",
            &stacks.used, &stacks, stack_read, err);
    stacks.frame_index = xcalloc((size_t)stacks.used_frames.max + 1, sizeof *stacks.frame_index);
    if (!rc && trace->cache)
        frames_take(&stacks);
    if (!rc)
        rc = used_read(store,
                "SELECT id, name, module, coalesce(line, 0), coalesce(frame.offset, -1) FROM frame WHERE id >= ? "
                "ORDER BY id",
                &stacks.used_frames, &stacks, frame_read, err);
    if (!rc)
        stacks_finish(&stacks);
    if (trace->cache)
        cache_names_trim(&trace->cache->names);
    free(stacks.used.bits);
    free(stacks.used_frames.bits);
    free(stacks.index);
    free(stacks.frame_index);
    return rc;
}

uint32_t trace_stack_of(const struct trace *trace, int64_t id)
{
    // they were read by id
    uint32_t at =
            (uint32_t)search_between(middle, 1, trace->stack_count, trace->stacks[middle].id >= id);
    return at < trace->stack_count && trace->stacks[at].id == id ? at : 0;
}
