// SPDX-License-Identifier: Apache-2.0
// The GPU's lanes of a timeline: what ran on each stream, the calls that launched it, collective
// operations. Reads a launch in memory.
#include <stdlib.h>
#include <string.h>

#include "common/containers/vector.h"
#include "common/strings.h"
#include "reports/render/html/timeline/html_timeline.h"

enum { TIMELINE_STREAMS_MAX = 32 };

static const char *timeline_op_class(
        const struct launch_trace *launch, const struct launch_work *work)
{
    if (work->kernel == LAUNCH_TRACE_NONE)
        return work->kind == 1 ? "gpu_compute" : "copy";
    return launch->kernels[work->kernel].comm ? "comm_exposed" : "gpu_compute";
}

static uint32_t timeline_op_name(struct timeline_host *host, const struct launch_work *work)
{
    const struct launch_trace *launch = host->launch;
    const char *class = timeline_op_class(launch, work);
    if (work->kernel != LAUNCH_TRACE_NONE)
        return html_lanes_name(host->lanes, class, launch->kernels[work->kernel].name, NULL);
    static const struct {
        uint8_t kind;
        const char *name;
    } kinds[] = {{1, "CUDA graph"}, {17, "copy HtoD"}, {18, "copy DtoH"}, {24, "copy DtoD"},
            {25, "copy HtoH"}, {26, "copy PtoP"}, {80, "set"}};
    const char *name = "copy";
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (kinds[i].kind == work->kind)
            name = kinds[i].name;
    return html_lanes_name(host->lanes, class, name, NULL);
}

static uint32_t timeline_op_note(struct timeline_host *host, const struct launch_work *work)
{
    struct strbuf text = {0};
    if (work->kernel != LAUNCH_TRACE_NONE) {
        const struct launch_kernel *kernel = &host->launch->kernels[work->kernel];
        strbuf_add(&text, "grid %ux%ux%u, block %ux%ux%u, %u registers, %u B shared",
                kernel->grid[0], kernel->grid[1], kernel->grid[2], kernel->block[0],
                kernel->block[1], kernel->block[2], kernel->registers, kernel->shared_bytes);
    } else if (work->bytes > 0) {
        strbuf_add(&text, "%lld bytes", (long long)work->bytes);
    }
    uint32_t note = html_lanes_note(host->lanes, text.text);
    strbuf_free(&text);
    return note;
}

static bool timeline_op_inside(const struct timeline_host *host, const struct launch_op *op)
{
    return op->start < host->end && op->start + op->dur > host->begin;
}

static bool timeline_op_called(const struct timeline_host *host, const struct launch_op *op)
{
    if (op->call_ago == UINT32_MAX)
        return false;
    int64_t begin = op->start - op->call_ago;
    return begin < host->end && begin + op->call_dur > host->begin;
}

// A launch has ten million operations, a window of it some thousands: they are looked for once.
void timeline_find_ops(struct timeline_host *host)
{
    const struct launch_trace *launch = host->launch;
    for (size_t i = 0; i < launch->op_count; i++)
        if (timeline_op_inside(host, &launch->ops[i]) || timeline_op_called(host, &launch->ops[i]))
            vector_push(host->ops, host->op_count, (uint32_t)i);
}

void timeline_streams(struct timeline_host *host)
{
    const struct launch_trace *launch = host->launch;
    uint32_t *names = xcalloc(launch->work_count + 1, sizeof *names),
             *notes = xcalloc(launch->work_count + 1, sizeof *notes);
    uint8_t *named = xcalloc(launch->work_count + 1, 1);
    uint32_t *used =
            xcalloc(launch->stream_count + 1, sizeof *used); // rank + 1; a stream is of one process
    for (size_t i = 0; i < host->op_count; i++)
        if (timeline_op_inside(host, &launch->ops[host->ops[i]])) {
            const struct launch_work *work = &launch->works[launch->ops[host->ops[i]].work];
            used[work->stream] = work->rank < launch->rank_count ? work->rank + 1 : UINT32_MAX;
        }
    for (uint32_t stream = 0, shown = 0;
            stream < launch->stream_count && shown < TIMELINE_STREAMS_MAX; stream++) {
        if (!used[stream])
            continue;
        char *title = launch->rank_count > 1 && used[stream] != UINT32_MAX
                ? xasprintf("rank %d, GPU stream %u", launch->ranks[used[stream] - 1].rank, ++shown)
                : xasprintf("GPU stream %u", ++shown);
        html_lanes_open(host->lanes, host->side, HTML_LANE_STREAM, title);
        free(title);
        for (size_t i = 0; i < host->op_count; i++) {
            const struct launch_op *op = &launch->ops[host->ops[i]];
            const struct launch_work *work = &launch->works[op->work];
            if (work->stream != stream || !timeline_op_inside(host, op))
                continue;
            if (!named[op->work]) {
                named[op->work] = 1;
                names[op->work] = timeline_op_name(host, work);
                notes[op->work] = timeline_op_note(host, work);
            }
            html_lanes_event(host->lanes, op->start, op->start + op->dur, names[op->work], 0,
                    notes[op->work]);
        }
    }
    free(names), free(notes), free(named), free(used);
}

// Whether it belongs to a thread that has no lane of its own is told by the caller:
// LAUNCH_TRACE_NONE takes every call.
void timeline_calls(struct timeline_host *host, uint32_t thread)
{
    const struct launch_trace *launch = host->launch;
    for (size_t i = 0; launch && i < launch->call_count; i++) {
        const struct launch_call *call = &launch->calls[i];
        if ((thread != LAUNCH_TRACE_NONE && call->thread != thread) || call->end <= host->begin ||
                call->begin >= host->end)
            continue;
        const char *class = strstr(call->name, "ynchronize") ? "sync" : "call";
        html_lanes_event(host->lanes, call->begin, call->end,
                html_lanes_name(host->lanes, class, call->name, NULL), 1, UINT32_MAX);
    }
    for (size_t i = 0; i < host->op_count; i++) {
        const struct launch_op *op = &launch->ops[host->ops[i]];
        const struct launch_work *work = &launch->works[op->work];
        if ((thread != LAUNCH_TRACE_NONE && work->thread != thread) || op->call_ago == UINT32_MAX)
            continue;
        int64_t begin = op->start - op->call_ago, end = begin + op->call_dur;
        if (end > host->begin && begin < host->end)
            html_lanes_event(host->lanes, begin, end,
                    html_lanes_name(host->lanes, "call",
                            work->call_name ? work->call_name : "launch", NULL),
                    1, UINT32_MAX);
    }
}

void timeline_nccl(struct timeline_host *host)
{
    const struct launch_trace *launch = host->launch;
    bool open = false;
    for (size_t i = 0; i < launch->nccl_count; i++) {
        const struct launch_nccl *row = &launch->nccl[i];
        int64_t begin = row->kernel_begin ? row->kernel_begin : row->enqueued;
        int64_t end = row->kernel_end > begin ? row->kernel_end : begin;
        if (end < host->begin || begin >= host->end)
            continue;
        if (!open)
            html_lanes_open(host->lanes, host->side, HTML_LANE_NCCL, "NCCL");
        open = true;
        char *text = xasprintf("%s%s%s%s%s%s%s", row->function ? row->function : "collective",
                row->datatype ? " " : "", row->datatype ? row->datatype : "",
                row->algorithm ? " " : "", row->algorithm ? row->algorithm : "",
                row->protocol ? " " : "", row->protocol ? row->protocol : "");
        char *note = xasprintf("rank %u, %lld bytes, %d channels", row->rank, (long long)row->bytes,
                row->channels);
        html_lanes_event(host->lanes, begin, end,
                html_lanes_name(host->lanes, "comm_exposed", text, NULL), 0,
                html_lanes_note(host->lanes, note));
        free(text);
        free(note);
    }
}
