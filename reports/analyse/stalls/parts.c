// SPDX-License-Identifier: Apache-2.0
// The list of parts, and what several of its makers ask.
#include "reports/analyse/stalls/parts.h"

#include <stdlib.h>

#include "common/containers/search.h"
#include "common/containers/vector.h"
#include "common/strings.h"

static int parts_by_time(const void *left, const void *right, void *samples)
{
    const uint32_t *a = left, *b = right;
    const struct trace_sample *rows = samples;
    return trace_order(rows[*a].at, rows[*b].at) ?: trace_order(*a, *b);
}

void work_init(struct work *work, struct trace *trace)
{
    *work = (struct work){.trace = trace, .taken = xcalloc(trace->gap_count + 1, 1)};
    for (uint32_t i = 0; i < trace->sample_count; i++)
        if (trace->samples[i].why & (UG_SAMPLE_OWNER | UG_SAMPLE_SPIN))
            vector_push(work->owner_samples, work->owner_sample_count, i);
    if (work->owner_sample_count)
        qsort_r(work->owner_samples, work->owner_sample_count, sizeof *work->owner_samples,
                parts_by_time, trace->samples);
    work->compilers = xcalloc(trace->process_count + 1, sizeof *work->compilers);
    for (size_t i = 0; i < trace->process_count; i++)
        if (trace->processes[i].compiler && trace->processes[i].leader != TRACE_NONE &&
                trace->processes[i].kind == TRACE_TARGET)
            work->compilers[work->compiler_count++] = (uint32_t)i;
}

void work_free(struct work *work)
{
    free(work->parts);
    free(work->part_first);
    free(work->part_reach);
    free(work->hops);
    free(work->taken);
    free(work->owner_samples);
    free(work->compilers);
    *work = (struct work){0};
}

struct part *parts_add(struct work *work, uint32_t thread, int64_t begin, int64_t end,
        enum cause cause, enum part_split split)
{
    work->parts = vector_reserve(
            work->parts, &work->part_capacity, work->part_count + 1, sizeof *work->parts);
    struct part *part = &work->parts[work->part_count++];
    *part = (struct part){.begin = begin,
            .end = end,
            .thread = thread,
            .gap = TRACE_NONE,
            .sample = TRACE_NONE,
            .culprit = TRACE_NONE,
            .waits_for = TRACE_NONE,
            .cause = (uint8_t)cause,
            .split = (uint8_t)split,
            .confidence = 0.9F};
    return part;
}

static int parts_by_begin(const void *left, const void *right)
{
    const struct part *a = left, *b = right;
    return trace_order(a->begin, b->begin) ?: trace_order(a->cause, b->cause);
}

static void parts_find_reach(struct work *work, uint32_t first, uint32_t last)
{
    int64_t reach = INT64_MIN;
    for (uint32_t i = first; i < last; i++) {
        reach = work->parts[i].end > reach ? work->parts[i].end : reach;
        work->part_reach[i] = reach;
    }
}

void parts_sort(struct work *work)
{
    size_t threads = work->trace->thread_count;
    free(work->part_first);
    free(work->part_reach);
    work->part_first = xcalloc(threads + 1, sizeof *work->part_first);
    work->part_reach = xcalloc(work->part_count + 1, sizeof *work->part_reach);
    work->parts = trace_group(work->parts, work->part_count, sizeof *work->parts,
            offsetof(struct part, thread), threads, work->part_first, parts_by_begin, NULL);
    work->part_capacity = work->part_count;
    for (size_t i = 0; i < threads; i++)
        parts_find_reach(work, work->part_first[i], work->part_first[i + 1]);
}

uint32_t parts_range(
        const struct work *work, uint32_t thread, int64_t begin, int64_t end, uint32_t *ret_last)
{
    // parts of a thread hardly overlap: a long one lies at most a few before
    enum { BACK_MAX = 64 };
    uint32_t first = work->part_first[thread], last = work->part_first[thread + 1];
    uint32_t low =
            (uint32_t)search_between(middle, first, last, work->parts[middle].begin >= begin);
    *ret_last = low;
    while (*ret_last < last && work->parts[*ret_last].begin < end)
        (*ret_last)++;
    first = low - first > BACK_MAX ? low - BACK_MAX : first;
    return (uint32_t)search_between(middle, first, low, work->part_reach[middle] > begin);
}

int64_t parts_overlap(int64_t a_begin, int64_t a_end, int64_t b_begin, int64_t b_end)
{
    int64_t begin = a_begin > b_begin ? a_begin : b_begin, end = a_end < b_end ? a_end : b_end;
    return end > begin ? end - begin : 0;
}

bool parts_blamable(const struct trace *trace, uint32_t thread)
{
    if (thread == TRACE_NONE)
        return false;
    const struct trace_process *process = &trace->processes[trace->threads[thread].process];
    return !process->own && !trace->threads[thread].own && process->kind != TRACE_IDLE;
}

enum cause parts_deed(struct marks marks, const struct parts_deed *rows, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (marks_has(marks, rows[i].mark))
            return rows[i].mark == MARK_RECLAIM && marks_has(marks, MARK_MEMCG)
                    ? CAUSE_MEMCG_RECLAIM
                    : rows[i].cause;
    return CAUSE_COUNT;
}

enum cause parts_activity(struct marks marks)
{
    static const struct parts_deed rows[] = {
            // the first that fits: what is rarer and surer stands before
            {MARK_SMAPS, CAUSE_SMAPS_READ},
            {MARK_KHUGEPAGED, CAUSE_KHUGEPAGED},
            {MARK_FORK, CAUSE_FORK_LARGE},
            {MARK_NUMA, CAUSE_NUMA_BALANCING},
            {MARK_COMPACT, CAUSE_COMPACTION},
            {MARK_POPULATE, CAUSE_PAGE_POPULATE},
            {MARK_MADVISE, CAUSE_MADVISE_STORM},
            {MARK_EXIT_MM, CAUSE_COUNT},
            {MARK_MPROTECT, CAUSE_TLB_SHOOTDOWN},
            {MARK_UNMAP, CAUSE_MUNMAP_LARGE},
            {MARK_TLB, CAUSE_TLB_SHOOTDOWN},
            {MARK_RECLAIM, CAUSE_DIRECT_RECLAIM},
            // behind reclaim, which goes through the cgroups and flushes their counters
            {MARK_RSTAT, CAUSE_RSTAT_LOCK},
            {MARK_MEMCG_STAT, CAUSE_ZOMBIE_MEMCG},
    };
    return parts_deed(marks, rows, sizeof rows / sizeof rows[0]);
}
