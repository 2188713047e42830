// SPDX-License-Identifier: Apache-2.0
// The host's lanes of a timeline: of each thread what it ran (samples between two waits, runs of
// one function taken together), what it waited for and why, its CUDA calls below that; of the
// threads that make the steps the Python functions too. Reads a trace in memory.
#include <stdlib.h>
#include <string.h>

#include "common/containers/vector.h"
#include "common/strings.h"
#include "reports/render/html/timeline/html_timeline.h"

enum { TIMELINE_THREADS_MAX = 48, TIMELINE_DEPTH_MAX = 48, TIMELINE_NOTE_FRAMES = 4 };

// A stretch of a thread with one Python stack.
struct timeline_piece {
    int64_t begin, end;
    uint32_t python; // 0: none
};

struct timeline_pieces {
    struct timeline_piece *items;
    size_t count;
};

static void pieces_add(struct timeline_pieces *pieces, int64_t begin, int64_t end, uint32_t python)
{
    vector_push(pieces->items, pieces->count, (struct timeline_piece){begin, end, python});
}

static const struct trace_frame *timeline_leaf(const struct trace *trace, uint32_t stack)
{
    const struct trace_stack *row = &trace->stacks[stack];
    return row->count ? &trace->frames[trace->stack_frames[row->first]] : NULL;
}

static uint32_t timeline_frame_name(
        struct timeline_host *host, const struct trace_frame *frame, const char *class)
{
    const char *file = frame->module ? string_base_name(frame->module) : NULL;
    if (!file || strcmp(file, frame->name) == 0 || (frame->kind != 'p' && frame->name[0] != '['))
        return html_lanes_name(host->lanes, class, frame->name, NULL);
    char *text = xasprintf("%s (%s)", frame->name, file);
    uint32_t name = html_lanes_name(host->lanes, class, text, frame->name);
    free(text);
    return name;
}

// A function without a name by what it is inside of, as long as that is known.
static uint32_t timeline_inside_name(
        struct timeline_host *host, const struct trace_frame *frame, const char *inside)
{
    // the latter as `diff` calls it
    char *text = xasprintf("%s (inside %s)", frame->name, inside),
         *match = xasprintf("[inside %s]", inside);
    uint32_t name = html_lanes_name(host->lanes, "host_run", text, match);
    free(text);
    free(match);
    return name;
}

static uint32_t timeline_running(struct timeline_host *host, const struct trace_sample *sample)
{
    const struct trace_frame *frame = timeline_leaf(host->trace, sample->kernel);
    if (!frame && (frame = timeline_leaf(host->trace, sample->user)) != NULL) {
        const char *inside = trace_inside(host->trace, sample->user, 0);
        if (inside)
            return timeline_inside_name(host, frame, inside);
    }
    if (!frame)
        frame = timeline_leaf(host->trace, sample->python);
    return frame ? timeline_frame_name(host, frame, "host_run")
                 : html_lanes_name(host->lanes, "host_run", "(running)", NULL);
}

// What ran in [begin, end) between two waits: each sample speaks for the time to the middle between
// it and the next, but for no more than a tick: beyond that nothing is known.
static void timeline_run(struct timeline_host *host, uint32_t thread, int64_t begin, int64_t end,
        struct timeline_pieces *pieces)
{
    const struct trace *trace = host->trace;
    const struct trace_thread *row = &trace->threads[thread];
    uint32_t last = row->sample_first + row->sample_count;
    int64_t reach = trace->tick_ns, from = begin;
    int64_t run_begin = 0, run_end = 0;
    uint32_t run_name = LAUNCH_TRACE_NONE;
    for (uint32_t i = trace_sample_from(trace, thread, begin);
            i < last && trace->samples[i].at < end; i++) {
        const struct trace_sample *sample = &trace->samples[i];
        int64_t to = i + 1 < last && trace->samples[i + 1].at < end
                ? sample->at + (trace->samples[i + 1].at - sample->at) / 2
                : end;
        int64_t low = from < sample->at - reach ? sample->at - reach : from;
        int64_t high = to > sample->at + reach ? sample->at + reach : to;
        uint32_t name = timeline_running(host, sample);
        pieces_add(pieces, low, high, sample->python);
        if (run_name != name || low > run_end) {
            if (run_name != LAUNCH_TRACE_NONE)
                html_lanes_event(host->lanes, run_begin, run_end, run_name, 0, UINT32_MAX);
            run_begin = low, run_name = name;
        }
        run_end = high;
        from = to;
    }
    if (run_name != LAUNCH_TRACE_NONE)
        html_lanes_event(host->lanes, run_begin, run_end, run_name, 0, UINT32_MAX);
    else if (end - begin <= 3 * reach)
        html_lanes_event(host->lanes, begin, end,
                html_lanes_name(host->lanes, "host_run", "(ran, not sampled)", NULL), 0,
                UINT32_MAX);
}

// The part of the stall analysis that most of the wait belongs to; NULL: nothing to do, or not
// known.
static const struct part *timeline_part(
        const struct timeline_host *host, const struct trace_gap *gap)
{
    const struct part *best = NULL;
    int64_t best_ns = 0;
    uint32_t last = 0;
    if (!host->work || !host->work->part_first)
        return NULL;
    for (uint32_t i = parts_range(host->work, gap->thread, gap->out, gap->in, &last); i < last;
            i++) {
        const struct part *part = &host->work->parts[i];
        int64_t ns = parts_overlap(part->begin, part->end, gap->out, gap->in);
        if (ns > best_ns)
            best = part, best_ns = ns;
    }
    return best;
}

static uint32_t timeline_gap_note(
        struct timeline_host *host, const struct trace_gap *gap, const struct part *part)
{
    const struct trace *trace = host->trace;
    const struct trace_stack *row = &trace->stacks[gap->kernel];
    struct strbuf text = {0};
    for (uint32_t i = 0, shown = 0; i < row->count && shown < TIMELINE_NOTE_FRAMES; i++) {
        const char *name = trace->frames[trace->stack_frames[row->first + i]].name;
        if (!strstr(name, "schedule"))
            strbuf_add(&text, "%s%s", shown++ ? " < " : "in ", name);
    }
    if (part && part->culprit != TRACE_NONE)
        strbuf_add(&text, "%sheld up by %s (thread %d)", text.len ? "; " : "",
                trace->threads[part->culprit].comm, trace->threads[part->culprit].tid);
    else if (gap->waker != TRACE_NONE)
        strbuf_add(&text, "%swoken by %s (thread %d)", text.len ? "; " : "",
                trace->threads[gap->waker].comm, trace->threads[gap->waker].tid);
    uint32_t note = html_lanes_note(host->lanes, text.text);
    strbuf_free(&text);
    return note;
}

static void timeline_gap(struct timeline_host *host, const struct trace_gap *gap)
{
    const struct part *part = timeline_part(host, gap);
    const struct stall_cause *cause =
            part && part->cause < CAUSE_COUNT ? causes_row(part->cause) : NULL;
    uint32_t name = cause ? html_lanes_name(host->lanes, "stall", cause->title, cause->id)
                          : html_lanes_name(host->lanes, "idle", "waits", NULL);
    html_lanes_event(host->lanes, gap->out, gap->in, name, 0, timeline_gap_note(host, gap, part));
}

static void timeline_thread(
        struct timeline_host *host, uint32_t thread, struct timeline_pieces *pieces)
{
    const struct trace *trace = host->trace;
    const struct trace_thread *row = &trace->threads[thread];
    uint32_t last = row->gap_first + row->gap_count;
    int64_t at = host->begin;
    for (uint32_t i = trace_gap_from(trace, thread, host->begin);
            i < last && trace->gaps[i].out < host->end; i++) {
        const struct trace_gap *gap = &trace->gaps[i];
        if (gap->out > at)
            timeline_run(host, thread, at, gap->out, pieces);
        timeline_gap(host, gap);
        pieces_add(pieces, gap->out < host->begin ? host->begin : gap->out, gap->in, gap->python);
        at = gap->in > at ? gap->in : at;
    }
    if (at < host->end)
        timeline_run(host, thread, at, host->end, pieces);
}

// The Python stack over time, a row a depth: a function stays open as long as it and all that
// called it stay the same.
struct timeline_open {
    uint32_t names[TIMELINE_DEPTH_MAX];
    int64_t begins[TIMELINE_DEPTH_MAX];
    uint32_t depth;
};

static void timeline_close(
        struct timeline_host *host, struct timeline_open *open, uint32_t depth, int64_t at)
{
    for (; open->depth > depth; open->depth--)
        html_lanes_event(host->lanes, open->begins[open->depth - 1], at,
                open->names[open->depth - 1], open->depth - 1, UINT32_MAX);
}

static void timeline_python(struct timeline_host *host, const struct timeline_pieces *pieces)
{
    const struct trace *trace = host->trace;
    struct timeline_open open = {.depth = 0};
    int64_t before = host->begin;
    for (size_t i = 0; i < pieces->count; i++) {
        const struct timeline_piece *piece = &pieces->items[i];
        const struct trace_stack *row = &trace->stacks[piece->python];
        if (!piece->python && piece->begin - before < 2 * trace->tick_ns &&
                piece->end - piece->begin < trace->tick_ns)
            continue; // a walk that came too late says nothing
        uint32_t depth = row->count < TIMELINE_DEPTH_MAX ? row->count : TIMELINE_DEPTH_MAX,
                 same = 0;
        uint32_t names[TIMELINE_DEPTH_MAX];
        for (uint32_t d = 0; d < depth; d++)
            names[d] = timeline_frame_name(host,
                    &trace->frames[trace->stack_frames[row->first + row->count - 1 - d]], "python");
        while (same < depth && same < open.depth && names[same] == open.names[same])
            same++;
        timeline_close(host, &open, same, before > piece->begin ? piece->begin : before);
        for (uint32_t d = same; d < depth; d++) {
            open.names[d] = names[d];
            open.begins[d] = piece->begin;
        }
        open.depth = depth;
        before = piece->end;
    }
    timeline_close(host, &open, 0, before);
}

static bool timeline_is_seen(const struct timeline_host *host, uint32_t thread)
{
    const struct trace *trace = host->trace;
    const struct trace_thread *row = &trace->threads[thread];
    if (!trace_is_target(trace, thread))
        return false;
    uint32_t sample = trace_sample_from(trace, thread, host->begin);
    if (sample < row->sample_first + row->sample_count && trace->samples[sample].at < host->end)
        return true;
    uint32_t gap = trace_gap_from(trace, thread, host->begin),
             last = row->gap_first + row->gap_count;
    for (; gap < last && trace->gaps[gap].out < host->end; gap++)
        if (row->working || timeline_part(host, &trace->gaps[gap]))
            return true;
    return false;
}

static bool timeline_makes_steps(const struct timeline_host *host, uint32_t thread)
{
    for (size_t i = 0; host->launch && i < host->launch->rank_count; i++)
        if (host->launch->ranks[i].thread == thread)
            return true;
    return !host->launch && host->trace->threads[thread].leads;
}

static void timeline_lane(struct timeline_host *host, uint32_t thread, bool leads)
{
    const struct trace_thread *row = &host->trace->threads[thread];
    struct timeline_pieces pieces = {0};
    char *title = xasprintf("%s %d \xe2\x80\x9c%s\xe2\x80\x9d",
            row->main ? "main thread" : "thread", row->tid, row->comm);
    html_lanes_open(host->lanes, host->side, HTML_LANE_THREAD, title);
    timeline_thread(host, thread, &pieces);
    timeline_calls(host, thread);
    bool python = false;
    for (size_t i = 0; i < pieces.count; i++)
        python |= pieces.items[i].python != 0;
    if (leads && python) {
        char *stack = xasprintf("Python of %s", title);
        html_lanes_open(host->lanes, host->side, HTML_LANE_PYTHON, stack);
        timeline_python(host, &pieces);
        free(stack);
    }
    free(pieces.items);
    free(title);
}

void timeline_host(struct timeline_host *host)
{
    size_t shown = 0, seen = 0;
    for (int pass = 0; pass < 2 && host->trace; pass++) { // threads that make the steps first
        for (uint32_t thread = 0; thread < host->trace->thread_count; thread++) {
            if (timeline_makes_steps(host, thread) != (pass == 0) ||
                    !timeline_is_seen(host, thread))
                continue;
            if (shown < TIMELINE_THREADS_MAX && ++shown)
                timeline_lane(host, thread, pass == 0);
            seen++;
        }
    }
    host->threads_left_out = seen - shown;
    if (host->launch && host->launch->has_gpu && seen == 0) {
        html_lanes_open(host->lanes, host->side, HTML_LANE_THREAD, "CUDA calls");
        timeline_calls(host, LAUNCH_TRACE_NONE);
    }
}
