// SPDX-License-Identifier: Apache-2.0
// What of a launch is compared: its steps, blocks and phases, and the windows made of them. The
// first steps, until the launch is steady by the gate's own rule (steady.h over the slowest rank; 5
// steps where it never gets steady), are cold, but never more than half of all. Reads tables step,
// block, phase_span.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/containers/search.h"
#include "common/containers/vector.h"
#include "common/strings.h"
#include "reports/analyse/steady.h"
#include "reports/analyse/trace/launch/launch_trace_inside.h"
#include "tracer/store/ranges.h"

enum {
    COLD_STEPS = 5, // as the gate's warm-up where steps never get steady
    GROUP_STEPS_MAX =
            10, // a GPU's window without turns: it runs behind its host, a single step says little
    GROUPS_MIN = 20
};

static int steps_blocks(struct load *load)
{
    sqlite3_stmt *stmt = store_query(load->store, load->err,
            "SELECT couple, begin_ns, active_ns, coalesce(first_step, -1) AS first_step, coalesce(steps, 0) AS steps FROM "
            "block WHERE pair_id = ? AND side = ? ORDER BY couple",
            "ii", load->pair_id, (int64_t)load->trace->side);
    if (!stmt)
        return load->err->code;
    int rc;
    while ((rc = store_step(load->store, stmt, load->err)) == 1) {
        int64_t couple = sqlite3_column_int64(stmt, 0), begin = sqlite3_column_int64(stmt, 1),
                length = sqlite3_column_int64(stmt, 2);
        int64_t first_step = sqlite3_column_int64(stmt, 3), steps = sqlite3_column_int64(stmt, 4);
        if (length < 0 || couple < 0 || couple > INT32_MAX || first_step > UINT32_MAX ||
                steps < 0 || steps > UINT32_MAX)
            continue;
        vector_push(load->blocks, load->block_count,
                (struct load_block){begin, begin + length, first_step < 0 ? -1 : first_step, steps,
                        (int32_t)couple});
    }
    return rc;
}

static uint32_t steps_rank(const struct launch_trace *trace, int64_t rank)
{
    for (uint32_t i = 0; i < trace->rank_count; i++)
        if (trace->ranks[i].rank == rank)
            return i;
    return LAUNCH_TRACE_NONE;
}

int load_steps(struct load *load)
{
    struct launch_trace *trace = load->trace;
    sqlite3_stmt *stmt = store_query(load->store, load->err,
            "SELECT rank, idx, begin_ns, dur_ns FROM step WHERE launch_id = ? ORDER BY rank, idx",
            "i", trace->launch_id);
    if (!stmt)
        return load->err->code;
    int rc;
    while ((rc = store_step(load->store, stmt, load->err)) == 1) {
        int64_t idx = sqlite3_column_int64(stmt, 1), begin = sqlite3_column_int64(stmt, 2),
                length = sqlite3_column_int64(stmt, 3);
        uint32_t rank = steps_rank(trace, sqlite3_column_int64(stmt, 0));
        if (rank == LAUNCH_TRACE_NONE || idx < 0 || idx >= UINT32_MAX || load->started < 0 ||
                length < 0)
            continue;
        vector_push(trace->steps, trace->step_count,
                (struct launch_step){load->started + begin, load->started + begin + length, rank,
                        (uint32_t)idx});
    }
    return rc ? rc : steps_blocks(load);
}

int load_phases(struct load *load)
{
    enum { LOOK_BACK = 64 }; // a step has few phases, the same in all
    struct launch_trace *trace = load->trace;
    sqlite3_stmt *stmt = store_query(load->store, load->err,
            "SELECT rank, begin_ns, depth, dur_ns, name FROM phase_span WHERE launch_id = ? ORDER BY rank, "
            "begin_ns, depth",
            "i", trace->launch_id);
    if (!stmt)
        return load->err->code;
    int rc;
    while ((rc = store_step(load->store, stmt, load->err)) == 1) {
        uint32_t rank = steps_rank(trace, sqlite3_column_int64(stmt, 0));
        int64_t begin = sqlite3_column_int64(stmt, 1), depth = sqlite3_column_int64(stmt, 2),
                length = sqlite3_column_int64(stmt, 3);
        const char *text = (const char *)sqlite3_column_text(stmt, 4), *name = NULL;
        if (rank == LAUNCH_TRACE_NONE || !text || depth < 0 || load->started < 0 || length < 0)
            continue;
        for (size_t i = trace->phase_count, n = 0; i && n < LOOK_BACK && !name; i--, n++)
            name = strcmp(trace->phases[i - 1].name, text) ? NULL : trace->phases[i - 1].name;
        struct launch_phase *row = vector_add(trace->phases, trace->phase_count);
        *row = (struct launch_phase){load->started + begin, load->started + begin + length,
                name ? name : arena_copy(trace->arena, text), rank,
                (uint8_t)(depth < UINT8_MAX ? depth : UINT8_MAX)};
        struct launch_rank *of = &trace->ranks[rank];
        of->phase_first = of->phase_count ? of->phase_first : (uint32_t)trace->phase_count - 1;
        of->phase_count++;
    }
    return rc;
}

// ---- cold steps ----

// Steps of the rank: *ret_last is one behind the last.
static size_t steps_of(const struct launch_trace *trace, uint32_t rank, size_t *ret_last)
{
    size_t first = 0;
    while (first < trace->step_count && trace->steps[first].rank != rank)
        first++;
    size_t last = first;
    while (last < trace->step_count && trace->steps[last].rank == rank)
        last++;
    *ret_last = last;
    return first;
}

// Index of the first step that counts.
static uint32_t steps_start(const struct launch_trace *trace)
{
    size_t first = 0, last = 0;
    int64_t longest = -1;
    for (uint32_t rank = 0; rank < trace->rank_count; rank++) {
        size_t end, begin = steps_of(trace, rank, &end);
        int64_t sum = 0;
        for (size_t i = begin; i < end; i++) {
            int64_t length = trace->steps[i].end - trace->steps[i].begin;
            sum += length < RANGE_NS_END - sum ? length : 0;
        }
        if (begin < end && sum > longest) {
            longest = sum;
            first = begin;
            last = end;
        }
    }
    int count = last - first > INT32_MAX / 2 ? INT32_MAX / 2 : (int)(last - first);
    if (!count)
        return 0;
    double *durations = xcalloc((size_t)count, sizeof *durations);
    for (int i = 0; i < count; i++) {
        const struct launch_step *step = &trace->steps[first + (size_t)i];
        durations[i] = step->end > step->begin ? (double)(step->end - step->begin) : 1;
    }
    struct steady_result steady = steady_detect(durations, count, NULL);
    free(durations);
    int start = steady_reached(steady.state) ? steady.start : COLD_STEPS;
    start = start > count / 2 ? COLD_STEPS : start;
    return trace->steps[first + (size_t)(start > count / 2 ? count / 2 : start)].idx;
}

// ---- windows ----

struct windows {
    struct launch_window *rows;
    size_t count;
};

// In the order of time, inside the recording, without overlaps; what is damaged is left out.
static void windows_add(struct load *load, struct windows *made, struct launch_window window)
{
    if (window.begin < 0 || window.begin < load->recording_begin ||
            window.end > load->recording_end) {
        load->steps_outside += window.steps;
        return;
    }
    const struct launch_window *last = made->count ? &made->rows[made->count - 1] : NULL;
    if (last && last->rank == window.rank && window.begin < last->end)
        window.begin = last->end;
    if (window.begin >= window.end)
        return;
    vector_push(made->rows, made->count, window);
}

// A window a step; of launches that took turns, with the couple of the block that it is in.
static void windows_of_steps(struct load *load, uint32_t rank, struct windows *made)
{
    const struct launch_trace *trace = load->trace;
    size_t last, block = 0;
    for (size_t i = steps_of(trace, rank, &last); i < last; i++) {
        const struct launch_step *step = &trace->steps[i];
        while (block < load->block_count &&
                load->blocks[block].first_step + load->blocks[block].steps <= step->idx)
            block++;
        if (load->block_count &&
                (block == load->block_count || load->blocks[block].first_step > step->idx))
            continue;
        windows_add(load, made,
                (struct launch_window){step->begin, step->end, rank, step->idx, 1,
                        load->block_count ? load->blocks[block].couple : -1});
    }
}

static void windows_of_blocks(struct load *load, uint32_t rank, struct windows *made)
{
    const struct launch_trace *trace = load->trace;
    size_t last, i = steps_of(trace, rank, &last);
    for (size_t block = 0; block < load->block_count; block++) {
        int64_t first_step = load->blocks[block].first_step,
                behind = first_step + load->blocks[block].steps;
        while (i < last && trace->steps[i].idx < first_step)
            i++;
        size_t first = i;
        while (i < last && trace->steps[i].idx < behind)
            i++;
        if (i > first) // also where a step in the middle was lost
            windows_add(load, made,
                    (struct launch_window){trace->steps[first].begin, trace->steps[i - 1].end, rank,
                            trace->steps[first].idx,
                            trace->steps[i - 1].idx - trace->steps[first].idx + 1,
                            load->blocks[block].couple});
    }
}

// Without turns: groups of neighbouring steps.
static void windows_of_groups(struct load *load, uint32_t rank, struct windows *made)
{
    const struct launch_trace *trace = load->trace;
    size_t last, first = steps_of(trace, rank, &last), size = (last - first) / GROUPS_MIN;
    size = size < 1 ? 1 : size > GROUP_STEPS_MAX ? GROUP_STEPS_MAX : size;
    for (size_t i = first; i < last; i += size) {
        size_t end = i + size < last ? i + size : last;
        windows_add(load, made,
                (struct launch_window){trace->steps[i].begin, trace->steps[end - 1].end, rank,
                        trace->steps[i].idx, trace->steps[end - 1].idx - trace->steps[i].idx + 1,
                        -1});
    }
}

// Without steps, or where they were frozen in their middle: the slices, or the launch.
static void windows_of_launch(struct load *load, uint32_t rank, struct windows *made)
{
    for (size_t i = 0; i < load->block_count; i++)
        windows_add(load, made,
                (struct launch_window){load->blocks[i].begin, load->blocks[i].end, rank, 0, 1,
                        load->blocks[i].couple});
    if (load->block_count)
        return;
    int64_t begin = load->started > load->recording_begin ? load->started : load->recording_begin;
    int64_t end = load->ended < load->recording_end ? load->ended : load->recording_end;
    windows_add(load, made, (struct launch_window){begin, end, rank, 0, 1, -1});
}

// How many of the first ones are cold: begun before step `start`, at most half of the steps.
static size_t windows_cold(const struct windows *made, uint32_t start, bool has_steps)
{
    uint64_t steps = 0, cold = 0;
    for (size_t i = 0; i < made->count; i++)
        steps += made->rows[i].steps;
    size_t count = 0;
    for (; count < made->count; count++) {
        if (has_steps ? made->rows[count].first_step >= start : count > 0)
            break;
        cold += made->rows[count].steps;
        if (cold * 2 > steps)
            break;
    }
    return count;
}

static int spans_by_begin(const void *left, const void *right)
{
    const struct load_span *a = left, *b = right;
    return (a->begin > b->begin) - (a->begin < b->begin);
}

static void spans_add(struct load_spans *spans, const struct windows *made)
{
    for (size_t i = 0; i < made->count; i++)
        vector_push(spans->spans, spans->count,
                (struct load_span){made->rows[i].begin, made->rows[i].end});
}

static void spans_join(struct load_spans *spans)
{
    trace_sort(spans->spans, spans->count, sizeof *spans->spans, spans_by_begin);
    size_t kept = 0;
    for (size_t i = 0; i < spans->count; i++) {
        struct load_span *last = kept ? &spans->spans[kept - 1] : NULL;
        if (last && spans->spans[i].begin <= last->end)
            last->end = spans->spans[i].end > last->end ? spans->spans[i].end : last->end;
        else
            spans->spans[kept++] = spans->spans[i];
    }
    spans->count = kept;
}

static void windows_clear(struct load *load)
{
    struct launch_trace *trace = load->trace;
    trace->window_count = trace->cold_count = 0;
    load->steps_outside = 0;
    for (size_t i = 0; load->spans && i <= trace->rank_count; i++)
        free(load->spans[i].spans);
    free(load->spans);
    load->spans = xcalloc(trace->rank_count + 1, sizeof *load->spans);
}

void load_windows(struct load *load)
{
    struct launch_trace *trace = load->trace;
    bool sliced = load->block_count && load->blocks[0].first_step < 0;
    windows_clear(load);
    trace->has_steps = trace->step_count && !sliced;
    uint32_t start = trace->has_steps ? steps_start(trace) : 0;
    for (uint32_t rank = 0; rank < trace->rank_count; rank++) {
        struct windows made = {0};
        if (!trace->has_steps)
            windows_of_launch(load, rank, &made);
        else if (!trace->has_gpu)
            windows_of_steps(load, rank, &made);
        else if (load->block_count)
            windows_of_blocks(load, rank, &made);
        else
            windows_of_groups(load, rank, &made);
        size_t cold = windows_cold(&made, start, trace->has_steps);
        trace->ranks[rank].window_first = (uint32_t)trace->window_count;
        trace->ranks[rank].window_count = (uint32_t)(made.count - cold);
        for (size_t i = 0; i < cold; i++)
            vector_push(trace->cold, trace->cold_count, made.rows[i]);
        for (size_t i = cold; i < made.count; i++)
            vector_push(trace->windows, trace->window_count, made.rows[i]);
        spans_add(&load->spans[rank], &made);
        spans_add(&load->spans[trace->rank_count], &made);
        free(made.rows);
    }
    for (size_t i = 0; i <= trace->rank_count; i++)
        spans_join(&load->spans[i]);
}

bool load_spans_seek(struct load_spans *spans, int64_t begin, int64_t end)
{
    const struct load_span *rows = spans->spans;
    size_t at = spans->at;
    if (at < spans->count && rows[at].end <= begin) // most come in the order of time
        at++;
    if ((at < spans->count && rows[at].end <= begin) || (at && rows[at - 1].end > begin))
        at = search_first(middle, spans->count, rows[middle].end > begin);
    spans->at = at;
    if (at == spans->count || rows[at].begin >= (end > begin ? end : begin + 1))
        return false;
    spans->last = rows[at];
    return true;
}
