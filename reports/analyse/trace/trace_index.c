// SPDX-License-Identifier: Apache-2.0
// After reading: rows side by side for each thread and each CPU, and which threads work. Rows are
// nearly in the order of time as they were written: a counting sort keeps it, and a part that is
// out of order is sorted.
#include <stdlib.h>
#include <string.h>

#include "common/containers/search.h"
#include "common/containers/vector.h"
#include "common/strings.h"
#include "reports/analyse/trace/trace_inside.h"

// ---- windows ----

bool trace_clip(const struct trace *trace, int64_t *begin, int64_t *end)
{
    size_t low = search_first(middle, trace->window_count, trace->windows[middle].end > *begin);
    int64_t best_begin = 0, best_end = 0;
    for (; low < trace->window_count && trace->windows[low].begin < *end; low++) {
        int64_t from = *begin > trace->windows[low].begin ? *begin : trace->windows[low].begin;
        int64_t to = *end < trace->windows[low].end ? *end : trace->windows[low].end;
        if (to - from > best_end - best_begin) {
            best_begin = from;
            best_end = to;
        }
    }
    *begin = best_begin;
    *end = best_end;
    return best_end > best_begin;
}

static void trace_clip_rows(struct trace *trace)
{
    size_t kept = 0;
    for (size_t i = 0; i < trace->gap_count; i++) {
        struct trace_gap *row = &trace->gaps[i];
        if (!trace_clip(trace, &row->out, &row->in))
            continue;
        if (row->waking)
            row->waking = row->waking < row->out ? row->out
                    : row->waking > row->in      ? row->in
                                                 : row->waking;
        trace->gaps[kept++] = *row;
    }
    trace->gap_count = kept;
    kept = 0;
    for (size_t i = 0; i < trace->short_count; i++)
        if (trace_clip(trace, &trace->shorts[i].out, &trace->shorts[i].in))
            trace->shorts[kept++] = trace->shorts[i];
    trace->short_count = kept;
    kept = 0;
    for (size_t i = 0; i < trace->lock_count; i++)
        if (trace_clip(trace, &trace->locks[i].begin, &trace->locks[i].end))
            trace->locks[kept++] = trace->locks[i];
    trace->lock_count = kept;
    kept = 0;
    for (size_t i = 0; i < trace->sample_count; i++) {
        int64_t begin = trace->samples[i].at, end = begin < INT64_MAX ? begin + 1 : begin;
        if (trace->window_count == 1 || trace_clip(trace, &begin, &end))
            trace->samples[kept++] = trace->samples[i];
        else
            vector_push(trace->outside, trace->outside_count, trace->samples[i]);
    }
    trace->sample_count = kept;
}

// ---- order ----

// Of rows that begin with their time.
static int trace_by_time(const void *left, const void *right)
{
    int64_t a, b;
    memcpy(&a, left, sizeof a);
    memcpy(&b, right, sizeof b);
    return trace_order(a, b);
}
_Static_assert(offsetof(struct trace_gap, out) == 0 && offsetof(struct trace_sample, at) == 0 &&
                offsetof(struct trace_lock, begin) == 0,
        "rows begin with their time");

bool trace_sort(void *rows, size_t count, size_t size, int (*compare)(const void *, const void *))
{
    for (size_t i = 1; i < count; i++)
        if (compare((char *)rows + (i - 1) * size, (char *)rows + i * size) > 0) {
            qsort(rows, count, size, compare);
            return false;
        }
    return true;
}

static uint32_t trace_group_of(const void *row, size_t offset)
{
    uint32_t group;
    memcpy(&group, (const char *)row + offset, sizeof group);
    return group;
}

void *trace_group(void *rows, size_t count, size_t size, size_t offset, size_t groups,
        uint32_t *starts, int (*compare)(const void *, const void *), bool *ret_sorted)
{
    bool sorted = true;
    memset(starts, 0, (groups + 1) * sizeof *starts);
    for (size_t i = 0; i < count; i++)
        starts[trace_group_of((char *)rows + i * size, offset) + 1]++;
    for (size_t i = 0; i < groups; i++)
        starts[i + 1] += starts[i];
    char *grouped = xcalloc(count + 1, size);
    uint32_t *at = xcalloc(groups + 1, sizeof *at);
    memcpy(at, starts, groups * sizeof *at);
    for (size_t i = 0; i < count; i++) {
        const char *row = (char *)rows + i * size;
        memcpy(grouped + (size_t)at[trace_group_of(row, offset)]++ * size, row, size);
    }
    free(at);
    free(rows);
    for (size_t i = 0; i < groups; i++)
        sorted &= trace_sort(
                grouped + (size_t)starts[i] * size, starts[i + 1] - starts[i], size, compare);
    if (ret_sorted)
        *ret_sorted = sorted;
    return grouped;
}

// Where trace_group puts each sample.
static uint32_t *trace_sample_moves(const struct trace *trace)
{
    uint32_t *moves = xcalloc(trace->sample_count + 1, sizeof *moves);
    uint32_t *at = xcalloc(trace->thread_count + 2, sizeof *at);
    for (size_t i = 0; i < trace->sample_count; i++)
        at[trace->samples[i].thread + 1]++;
    for (size_t i = 0; i < trace->thread_count; i++)
        at[i + 1] += at[i];
    for (size_t i = 0; i < trace->sample_count; i++)
        moves[i] = at[trace->samples[i].thread]++;
    free(at);
    return moves;
}

// True: no thread's samples had to be sorted.
static bool trace_index_threads(struct trace *trace)
{
    bool sorted;
    size_t threads = trace->thread_count;
    uint32_t *gaps = xcalloc(threads + 1, sizeof *gaps),
             *samples = xcalloc(threads + 1, sizeof *samples),
             *locks = xcalloc(threads + 1, sizeof *locks);
    trace->gaps = trace_group(trace->gaps, trace->gap_count, sizeof *trace->gaps,
            offsetof(struct trace_gap, thread), threads, gaps, trace_by_time, NULL);
    trace->samples = trace_group(trace->samples, trace->sample_count, sizeof *trace->samples,
            offsetof(struct trace_sample, thread), threads, samples, trace_by_time, &sorted);
    trace->locks = trace_group(trace->locks, trace->lock_count, sizeof *trace->locks,
            offsetof(struct trace_lock, thread), threads, locks, trace_by_time, NULL);
    for (size_t i = 0; i < threads; i++) {
        struct trace_thread *thread = &trace->threads[i];
        thread->gap_first = gaps[i];
        thread->gap_count = gaps[i + 1] - gaps[i];
        thread->sample_first = samples[i];
        thread->sample_count = samples[i + 1] - samples[i];
        thread->lock_first = locks[i];
        thread->lock_count = locks[i + 1] - locks[i];
    }
    free(gaps);
    free(samples);
    free(locks);
    return sorted;
}

struct trace_pick {
    int64_t at;
    uint32_t sample, cpu;
};

// Who was seen on each CPU besides the target's own working threads: asked for when somebody waited
// for that CPU. Sorted by time within the CPU.
static void trace_index_cpus(struct trace *trace)
{
    for (size_t i = 0; i < trace->sample_count; i++)
        if (trace->samples[i].cpu >= (int)trace->cpu_count)
            trace->cpu_count = (size_t)trace->samples[i].cpu + 1;
    free(trace->cpu_first);
    free(trace->cpu_samples);
    trace->cpu_first = xcalloc(trace->cpu_count + 1, sizeof *trace->cpu_first);
    struct trace_pick *picks = xcalloc(trace->sample_count + 1, sizeof *picks);
    size_t count = 0;
    trace->cpu_samples = xcalloc(trace->sample_count + 1, sizeof *trace->cpu_samples);
    for (size_t i = 0; i < trace->sample_count; i++)
        if (trace->samples[i].cpu >= 0)
            picks[count++] = (struct trace_pick){
                    trace->samples[i].at, (uint32_t)i, (uint32_t)trace->samples[i].cpu};
    picks = trace_group(picks, count, sizeof *picks, offsetof(struct trace_pick, cpu),
            trace->cpu_count, trace->cpu_first, trace_by_time, NULL);
    for (size_t i = 0; i < count; i++)
        trace->cpu_samples[i] = picks[i].sample;
    free(picks);
}

uint32_t trace_sample_from(const struct trace *trace, uint32_t thread, int64_t at)
{
    uint32_t first = trace->threads[thread].sample_first,
             end = first + trace->threads[thread].sample_count;
    return (uint32_t)search_between(middle, first, end, trace->samples[middle].at >= at);
}

uint32_t trace_gap_from(const struct trace *trace, uint32_t thread, int64_t at)
{
    uint32_t first = trace->threads[thread].gap_first,
             end = first + trace->threads[thread].gap_count;
    return (uint32_t)search_between(middle, first, end, trace->gaps[middle].in > at);
}

size_t trace_fact_from(const struct trace *trace, int64_t at)
{
    return search_first(middle, trace->fact_count, trace->facts[middle].begin >= at);
}

uint32_t trace_cpu_sample_from(const struct trace *trace, int cpu, int64_t at)
{
    return (uint32_t)search_between(middle, trace->cpu_first[cpu], trace->cpu_first[cpu + 1],
            trace->samples[trace->cpu_samples[middle]].at >= at);
}

int64_t trace_ran_ns(const struct trace *trace, uint32_t thread, int64_t begin, int64_t end)
{
    return (int64_t)(trace_sample_from(trace, thread, end) -
                   trace_sample_from(trace, thread, begin)) *
            trace->tick_ns;
}

// ---- threads of ours ----

// The C library's part of a thread's begin: by its names, or, where it has none, by its file.
static bool trace_starts_threads(const struct trace_frame *frame, const char *file)
{
    static const char *const names[] = {
            "clone3", "__clone3", "clone", "__clone", "start_thread", "thread_start"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (!strcmp(frame->name, names[i]))
            return true;
    return file &&
            (!strncmp(file, "libc.so", 7) || !strncmp(file, "libpthread", 10) ||
                    !strncmp(file, "ld-musl", 7));
}

// Does the stack end in our library, below what starts every thread? ret_told: it says who began
// the thread.
static bool trace_begins_in_ours(const struct trace *trace, uint32_t stack, bool *ret_told)
{
    const struct trace_stack *row = &trace->stacks[stack];
    for (uint32_t i = row->count; i > 0; i--) {
        const struct trace_frame *frame = &trace->frames[trace->stack_frames[row->first + i - 1]];
        const char *file = frame->module ? string_base_name(frame->module) : NULL;
        if (trace_starts_threads(frame, file))
            continue;
        *ret_told |= file != NULL;
        return file && !strncmp(file, "libupgate_inject", 16);
    }
    return false;
}

// Our library's threads in the target are told by where they begin: its calls stand on the stacks
// of the program's threads too. Where no stack was kept, by their names, in a process that has the
// library.
static void trace_find_ours(struct trace *trace)
{
    enum { LOOK_MAX = 32 }; // a thread has one begin: a few stacks say it
    for (uint32_t i = 0; i < trace->thread_count; i++) {
        struct trace_thread *thread = &trace->threads[i];
        bool told = false;
        if (thread->main)
            continue;
        for (uint32_t k = 0; k < thread->gap_count && k < LOOK_MAX && !thread->own; k++)
            thread->own =
                    trace_begins_in_ours(trace, trace->gaps[thread->gap_first + k].user, &told);
        for (uint32_t k = 0; k < thread->sample_count && k < LOOK_MAX && !thread->own; k++)
            thread->own = trace_begins_in_ours(
                    trace, trace->samples[thread->sample_first + k].user, &told);
        if (!told && trace->processes[thread->process].has_library)
            thread->own = !strcmp(thread->comm, "upgate-inject") ||
                    !strcmp(thread->comm, "upgate-python");
    }
}

// A thread works when it is on the CPU for a fiftieth of the window, by the recorder's sum, else by
// its samples, else by what its gaps leave. Pools that wait for work do less.
static void trace_find_workers(struct trace *trace)
{
    enum { WORKS_SHARE = 50 };
    for (size_t i = 0; i < trace->thread_count; i++) {
        struct trace_thread *thread = &trace->threads[i];
        if (thread->run_ns < 0 && trace->tick_ns)
            thread->run_ns = thread->sample_count * trace->tick_ns;
        if (thread->run_ns < 0) {
            thread->run_ns = trace->window_ns;
            for (uint32_t k = 0; k < thread->gap_count; k++)
                thread->run_ns -= trace->gaps[thread->gap_first + k].in -
                        trace->gaps[thread->gap_first + k].out;
        }
        thread->working = trace_is_target(trace, (uint32_t)i) &&
                (thread->run_ns >= trace->window_ns / WORKS_SHARE ||
                        (thread->main && trace->step_count));
    }
    bool main_works = false;
    for (size_t i = 0; i < trace->thread_count; i++)
        main_works |= trace->threads[i].main && trace->threads[i].working;
    for (size_t i = 0; i < trace->thread_count; i++)
        trace->threads[i].leads =
                trace->threads[i].working && (trace->threads[i].main || !main_works);
    for (size_t i = 0; i < trace->gap_count; i++) {
        const struct trace_gap *gap = &trace->gaps[i];
        if (gap->next != TRACE_NONE && gap->next_prio >= 0 && gap->next_prio < 100)
            trace->threads[gap->next].real_time = true;
        if (gap->before != TRACE_NONE && gap->before_prio >= 0 && gap->before_prio < 100)
            trace->threads[gap->before].real_time = true;
        struct trace_process *process = &trace->processes[trace->threads[gap->thread].process];
        if (gap->python) {
            process->python = true;
            if (gap->in < process->python_read_ns)
                process->python_read_ns = gap->in;
        }
    }
}

void trace_index(struct trace *trace)
{
    trace_clip_rows(trace);
    trace_index_cpus(trace); // first: as written, the samples of a CPU are in order
    uint32_t *moves = trace_sample_moves(trace);
    if (trace_index_threads(trace))
        for (size_t i = 0; i < trace->sample_count; i++)
            trace->cpu_samples[i] = moves[trace->cpu_samples[i]];
    else
        trace_index_cpus(trace);
    free(moves);
    trace_find_ours(trace);
    trace_find_workers(trace);
}
