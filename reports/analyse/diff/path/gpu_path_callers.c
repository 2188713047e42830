// SPDX-License-Identifier: Apache-2.0
// Which Python functions an operation was launched from. The stack of a launch is not recorded, but
// a sample of the launching thread on its way to a launch shows it: each sample is a vote for the
// next operation that its thread launches. A thousand samples say of a few operations alone who
// called them, and of a run of them nearly always. One rank; one owner thread.
#include <stdlib.h>

#include "common/strings.h"
#include "reports/analyse/diff/path/gpu_path_parts.h"
#include "reports/analyse/diff/path/host_path_index.h"

enum {
    CALLERS_AHEAD_NS = 200000, // a sample longer before a launch says nothing about it
    CALLERS_MAX = 1 << 18      // in a tree
};

struct callers_thread {
    uint32_t next, end; // of trace->host->samples
};

struct gpu_callers {
    struct callers_thread *threads;
    size_t count;
};

struct gpu_callers *gpu_callers_new(const struct gpu_path *path)
{
    const struct launch_trace *trace = path->trace;
    const struct trace *host = trace->host;
    if (!host || !host->sample_count)
        return NULL;
    struct gpu_callers *callers = xcalloc(1, sizeof *callers);
    callers->threads = xcalloc(host->thread_count + 1, sizeof *callers->threads);
    callers->count = host->thread_count;
    for (size_t i = 0; i < trace->work_count; i++) {
        const struct launch_work *work = &trace->works[i];
        if (work->rank != path->rank || work->thread >= callers->count)
            continue;
        const struct trace_thread *thread = &host->threads[work->thread];
        callers->threads[work->thread] = (struct callers_thread){
                thread->sample_first, thread->sample_first + thread->sample_count};
    }
    return callers;
}

void gpu_callers_free(struct gpu_callers *callers)
{
    if (callers)
        free(callers->threads);
    free(callers);
}

void gpu_callers_add(struct gpu_path *path, const struct launch_op *op, uint32_t leaf)
{
    struct gpu_callers *callers = path->callers;
    uint32_t at = path->trace->works[op->work].thread;
    if (at >= callers->count || op->call_ago == UINT32_MAX)
        return;
    struct callers_thread *thread = &callers->threads[at];
    const struct trace_sample *samples = path->trace->host->samples;
    int64_t begin = gpu_call_begin(op),
            end = begin + (op->call_dur == UINT32_MAX ? 0 : op->call_dur);
    for (; thread->next < thread->end && samples[thread->next].at <= end; thread->next++)
        if (samples[thread->next].at >= begin - CALLERS_AHEAD_NS &&
                path->tree->caller_count < CALLERS_MAX)
            host_path_callers(path->host, samples[thread->next].python, leaf);
}
