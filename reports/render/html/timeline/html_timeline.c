// SPDX-License-Identifier: Apache-2.0
// One aligned couple of blocks as a timeline: steps and phases, GPU streams, threads, collectives,
// the baseline's above the candidate's. Reads the store through the loaders of traces; writes JSON.
#include "reports/render/html/timeline/html_timeline.h"

#include <math.h>
#include <stdlib.h>

#include "common/containers/vector.h"
#include "common/strings.h"
#include "common/units.h"

enum { TIMELINE_ALIGNED_MAX = 400 };

// Points of time of a side that have a partner on the other: the k-th step, the k-th phase of a
// name.
struct timeline_point {
    uint32_t name; // of the lanes'; LAUNCH_TRACE_NONE: a step
    uint32_t occurrence;
    int64_t at;
};

struct timeline_points {
    struct timeline_point *items;
    size_t count;
};

struct timeline {
    struct html_lanes *lanes;
    bool drawn[2]; // a traced launch
    uint32_t pair;
    struct timeline_points points[2];
    uint32_t first_step[2], steps[2];
    size_t threads_left_out;
};

// The stretch that is drawn: all windows of the couple, else the one that typical.c chose.
static bool timeline_window(const struct launch_trace *launch, const struct html_couple *of,
        int side, int64_t *ret_begin, int64_t *ret_end)
{
    int32_t couple = of->couple;
    bool found = false;
    for (size_t i = 0; i < launch->window_count; i++) {
        const struct launch_window *window = &launch->windows[i];
        if (couple < 0 || window->couple != couple)
            continue;
        *ret_begin = !found || window->begin < *ret_begin ? window->begin : *ret_begin;
        *ret_end = !found || window->end > *ret_end ? window->end : *ret_end;
        found = true;
    }
    if (!found && launch->window_count) {
        size_t at = launch->window_count / 2;
        if (of->workload && isfinite(of->workload->typical_ns[side]) &&
                of->workload->typical_window[side] < launch->window_count)
            at = of->workload->typical_window[side];
        const struct launch_window *window = &launch->windows[at];
        *ret_begin = window->begin;
        *ret_end = window->end;
        found = true;
    }
    return found && *ret_end > *ret_begin;
}

static void timeline_point_add(struct timeline_points *points, uint32_t name, int64_t at)
{
    uint32_t occurrence = 0;
    if (points->count == TIMELINE_ALIGNED_MAX)
        return;
    for (size_t i = 0; i < points->count; i++)
        occurrence += points->items[i].name == name;
    vector_push(points->items, points->count, (struct timeline_point){name, occurrence, at});
}

static void timeline_steps(struct timeline *timeline, struct timeline_host *host, uint32_t rank)
{
    const struct launch_trace *launch = host->launch;
    for (size_t i = 0; i < launch->step_count; i++) {
        const struct launch_step *step = &launch->steps[i];
        if (step->rank != rank || step->end <= host->begin || step->begin >= host->end)
            continue;
        char *text = xasprintf("step %u", step->idx);
        html_lanes_event(host->lanes, step->begin, step->end,
                html_lanes_name(host->lanes, "phase", text, NULL), 0, UINT32_MAX);
        free(text);
        if (rank != 0)
            continue;
        html_lanes_mark(host->lanes, host->side, step->begin);
        timeline_point_add(
                &timeline->points[host->side], LAUNCH_TRACE_NONE, step->begin - host->begin);
        if (timeline->steps[host->side]++ == 0)
            timeline->first_step[host->side] = step->idx;
    }
}

static void timeline_phases(struct timeline *timeline, struct timeline_host *host, uint32_t rank)
{
    const struct launch_trace *launch = host->launch;
    const struct launch_rank *row = &launch->ranks[rank];
    for (uint32_t i = 0; i < row->phase_count; i++) {
        const struct launch_phase *phase = &launch->phases[row->phase_first + i];
        if (phase->end <= host->begin || phase->begin >= host->end)
            continue;
        uint32_t name = html_lanes_name(host->lanes, "phase", phase->name, NULL);
        html_lanes_event(
                host->lanes, phase->begin, phase->end, name, phase->depth + 1u, UINT32_MAX);
        if (rank == 0 && phase->depth == 0 && phase->begin >= host->begin)
            timeline_point_add(&timeline->points[host->side], name, phase->begin - host->begin);
    }
}

static void timeline_side(struct timeline *timeline, const struct launch_trace *launch, int side,
        const struct html_couple *couple)
{
    struct timeline_host host = {.lanes = timeline->lanes, .launch = launch, .side = side};
    host.trace = launch->host;
    host.work = launch->host_work;
    if (!timeline_window(launch, couple, side, &host.begin, &host.end))
        return;
    html_lanes_window(host.lanes, side, host.begin, host.end);
    timeline->drawn[side] = true;
    timeline->pair = launch->pair;
    for (uint32_t rank = 0; rank < launch->rank_count; rank++) {
        char *title = launch->rank_count > 1
                ? xasprintf("rank %d: steps and phases", launch->ranks[rank].rank)
                : xstrdup("steps and phases");
        html_lanes_open(host.lanes, side, HTML_LANE_PHASE, title);
        free(title);
        timeline_steps(timeline, &host, rank);
        timeline_phases(timeline, &host, rank);
    }
    timeline_find_ops(&host);
    timeline_streams(&host);
    timeline_host(&host);
    timeline_nccl(&host);
    free(host.ops);
    timeline->threads_left_out += host.threads_left_out;
}

// A recording has no blocks: five steps in its middle, else its middle second.
static void timeline_recording(
        struct timeline *timeline, const struct trace *trace, const struct work *work)
{
    struct timeline_host host = {.lanes = timeline->lanes, .trace = trace, .work = work};
    const struct trace_window *window = &trace->windows[trace->window_count / 2];
    host.begin = window->begin + (window->end - window->begin) / 2;
    host.end = host.begin + 1000000000 < window->end ? host.begin + 1000000000 : window->end;
    size_t middle = trace->step_count / 2;
    size_t last = middle + 5 < trace->step_count ? middle + 5 : trace->step_count;
    if (trace->step_count) {
        host.begin = trace->steps[middle].begin;
        host.end = trace->steps[last - 1].end;
    }
    html_lanes_window(host.lanes, 0, host.begin, host.end);
    if (trace->step_count)
        html_lanes_open(host.lanes, 0, HTML_LANE_PHASE, "steps");
    for (size_t i = middle; i < last; i++) {
        html_lanes_event(host.lanes, trace->steps[i].begin, trace->steps[i].end,
                html_lanes_name(host.lanes, "phase", "step", NULL), 0, UINT32_MAX);
        html_lanes_mark(host.lanes, 0, trace->steps[i].begin);
    }
    timeline_host(&host);
    timeline->threads_left_out += host.threads_left_out;
}

static json_t *timeline_aligned(const struct timeline *timeline)
{
    json_t *list = json_array();
    int64_t last[2] = {-1, -1};
    for (size_t i = 0; i < timeline->points[0].count; i++) {
        const struct timeline_point *a = &timeline->points[0].items[i];
        for (size_t j = 0; j < timeline->points[1].count; j++) {
            const struct timeline_point *b = &timeline->points[1].items[j];
            if (a->occurrence != b->occurrence || a->name != b->name)
                continue;
            if (a->at > last[0] &&
                    b->at > last[1]) // steps that were run in another order are no guide
                json_array_append_new(
                        list, render_json_pair(json_integer(a->at), json_integer(b->at)));
            last[0] = a->at > last[0] ? a->at : last[0];
            last[1] = b->at > last[1] ? b->at : last[1];
            break;
        }
    }
    return list;
}

static int timeline_point_compare(const void *left, const void *right)
{
    const struct timeline_point *a = left, *b = right;
    return a->at < b->at ? -1 : a->at > b->at;
}

// Why these steps: "; 12.1 and 15.2 ms a step, next to the medians of the traced steps, ..."
static void timeline_typical(struct strbuf *text, const struct diff_workload *workload)
{
    char number[4][64];
    if (!workload || !isfinite(workload->typical_ns[0]) || !isfinite(workload->typical_ns[1]))
        return;
    for (int i = 0; i < 4; i++)
        unit_format_ns(number[i], sizeof number[i],
                (i < 2 ? workload->typical_ns : workload->typical_median_ns)[i % 2]);
    strbuf_add(text,
            "; the one nearest to the medians of the traced steps: %s and %s, medians %s and %s",
            number[0], number[1], number[2], number[3]);
}

static json_t *timeline_title(const struct timeline *timeline, const struct html_couple *couple)
{
    struct strbuf text = {0};
    static const char *const words[2] = {"baseline", "candidate"};
    for (int side = 0; side < 2; side++) {
        if (!timeline->drawn[side])
            continue;
        strbuf_add(&text, "%s%s", text.len ? ", " : "", words[side]);
        if (timeline->steps[side] > 1)
            strbuf_add(&text, " steps %u to %u", timeline->first_step[side],
                    timeline->first_step[side] + timeline->steps[side] - 1);
        else if (timeline->steps[side] == 1)
            strbuf_add(&text, " step %u", timeline->first_step[side]);
    }
    bool launch = timeline->drawn[0] || timeline->drawn[1];
    if (launch)
        strbuf_add(&text, ", traced pair %u", timeline->pair);
    if (launch && couple->couple >= 0)
        strbuf_add(&text, ", couple %d of their blocks", couple->couple);
    timeline_typical(&text, launch ? couple->workload : NULL);
    if (!launch)
        strbuf_add(&text, "the middle of the recording");
    if (timeline->threads_left_out)
        strbuf_add(&text, " (%zu more threads are not drawn)", timeline->threads_left_out);
    json_t *title = html_text(text.text, HTML_TEXT_BYTES_MAX);
    strbuf_free(&text);
    return title;
}

static int timeline_load(struct store *store, struct timeline *timeline,
        const struct html_couple *couple, struct error *err)
{
    int rc = 0;
    for (int side = 0; side < 2 && rc == 0; side++) { // one launch in memory at a time
        struct launch_trace *launch = NULL;
        if (couple->launches[side])
            rc = launch_work_load(
                    store, couple->launches[side], &(struct launch_trace_opts){0}, &launch, err);
        if (rc == 0 && launch)
            timeline_side(timeline, launch, side, couple);
        if (rc == 0)
            launch_work_free(launch);
    }
    if (rc || couple->launches[0] || couple->launches[1] || !couple->recordings[0])
        return rc;
    struct arena *arena = arena_new();
    struct trace *trace = NULL;
    rc = trace_load(store, couple->recordings[0], arena, &trace, err);
    if (rc == 0) {
        struct work work;
        work_init(&work, trace);
        work_find(&work);
        if (trace->window_count)
            timeline_recording(timeline, trace, &work);
        work_free(&work);
        trace_free(trace);
    }
    arena_free(arena);
    return rc;
}

// How long an event is as text depends on its digits: what is too large is thinned out again by
// what it was too large.
static void timeline_fit(
        struct html_lanes *lanes, const struct html_couple *couple, json_t *timeline)
{
    size_t events = couple->events, bytes;
    for (int round = 0; round < 4; round++) {
        html_lanes_reduce(lanes, events);
        html_lanes_write(lanes, timeline);
        bytes = json_dumpb(timeline, NULL, 0, JSON_COMPACT);
        if (bytes <= couple->bytes)
            return;
        size_t now = html_lanes_count(lanes, 0) + html_lanes_count(lanes, 1);
        events = (size_t)((double)now * 0.9 * (double)couple->bytes / (double)bytes);
    }
}

int html_timeline(struct store *store, const struct html_couple *couple, json_t **ret_timeline,
        struct error *err)
{
    struct timeline timeline = {.lanes = html_lanes_new(couple->workload)};
    int rc = timeline_load(store, &timeline, couple, err);
    *ret_timeline = NULL;
    if (rc == 0 && html_lanes_count(timeline.lanes, 0) + html_lanes_count(timeline.lanes, 1) == 0)
        *ret_timeline = json_null();
    if (rc == 0 && !*ret_timeline) {
        *ret_timeline = json_object();
        for (int side = 0; side < 2; side++)
            if (timeline.points[side].count)
                qsort(timeline.points[side].items, timeline.points[side].count,
                        sizeof *timeline.points[side].items, timeline_point_compare);
        json_object_set_new(*ret_timeline, "title", timeline_title(&timeline, couple));
        timeline_fit(timeline.lanes, couple, *ret_timeline);
        json_object_set_new(*ret_timeline, "aligned", timeline_aligned(&timeline));
    }
    for (int side = 0; side < 2; side++)
        free(timeline.points[side].items);
    html_lanes_free(timeline.lanes);
    return rc;
}
