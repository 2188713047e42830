// SPDX-License-Identifier: Apache-2.0
// What waits for a GPU cost, where it was recorded what that did. As long as it works, on kernels
// of the program or in a communication, nothing is lost: a program that its GPU paces has to wait
// for it somewhere. (Time in which other ranks hold a communication up is a straggler's, or
// nobody's fault.) Lost is the time in which it has nothing to do for the program, be it that
// another process has its kernels there: within the wait, and behind it, up to the next wait, but
// no more in all than the GPU had worked on while the host waited. Had the host not waited, it
// would have been so far ahead with what it launches then. Where it sleeps there, or is held up by
// a cause of its own, it would have done so earlier, or have waited longer for its input: that uses
// up the lead, and is not told as this. So the parts of such waits are replaced by parts of these
// times.
#include <stdlib.h>

#include "common/containers/vector.h"
#include "reports/analyse/stalls/parts.h"

// so near to each other idle times of a wait become one of as much: there may be thousands in a
// second
enum { GPU_JOIN_NS = 1000000 };
// CUPTI hands its records over once a second, and only of what has ended
static const int64_t gpu_comes_ns = 3000000000;

struct gpu_waits {
    const struct work *work;
    struct part *parts; // the new ones
    size_t count, capacity;
    int64_t recent; // a GPU whose last operation ended behind that may have others of which the
                    // records are still to come
};

bool gpu_waits_is(enum cause cause)
{
    return cause == CAUSE_GPU_SYNC || cause == CAUSE_ALLOC_RETRY;
}

bool gpu_waits_any(const struct work *work)
{
    bool any = false;
    for (size_t i = 0; i < work->part_count && !any; i++)
        any = gpu_waits_is(work->parts[i].cause);
    return any;
}

// Idle time, of the same wait as the one before it, and near to that.
static bool gpu_goes_on(const struct gpu_waits *waits, const struct part *like, int64_t begin,
        enum part_split split)
{
    const struct part *last = waits->count ? &waits->parts[waits->count - 1] : NULL;
    return last && last->notes & NOTE_GPU_KNOWN && last->split == split &&
            last->thread == like->thread && last->cause == like->cause && last->gap == like->gap &&
            last->sample == like->sample && begin >= last->end && begin - last->end < GPU_JOIN_NS;
}

static void gpu_put(struct gpu_waits *waits, const struct part *like, int64_t begin, int64_t end,
        enum part_split split, unsigned notes)
{
    if (begin >= end)
        return;
    if (notes & NOTE_GPU_KNOWN && gpu_goes_on(waits, like, begin, split)) {
        struct part *last = &waits->parts[waits->count - 1];
        last->begin += begin - last->end;
        last->end = end;
        return;
    }
    waits->parts =
            vector_reserve(waits->parts, &waits->capacity, waits->count + 1, sizeof *waits->parts);
    struct part *part = &waits->parts[waits->count++];
    *part = *like;
    part->begin = begin;
    part->end = end;
    part->split = (uint8_t)split;
    part->notes |= (uint16_t)notes;
}

// [begin, end) behind the wait, but for when the thread is off the CPU.
static void gpu_put_running(
        struct gpu_waits *waits, const struct part *wait, int64_t begin, int64_t end)
{
    const struct trace *trace = waits->work->trace;
    const struct trace_thread *thread = &trace->threads[wait->thread];
    for (uint32_t i = trace_gap_from(trace, wait->thread, begin);
            i < thread->gap_first + thread->gap_count && begin < end; i++) {
        const struct trace_gap *gap = &trace->gaps[i];
        if (gap->out < wait->end)
            continue; // the wait itself, until it was on the CPU again
        gpu_put(waits, wait, begin, gap->out < end ? gap->out : end, SPLIT_ON_CPU, NOTE_GPU_KNOWN);
        begin = gap->in > begin ? gap->in : begin;
    }
    gpu_put(waits, wait, begin, end, SPLIT_ON_CPU, NOTE_GPU_KNOWN);
}

// Behind the wait the thread launches: all of [begin, end) but for its parts of other causes.
static void gpu_put_behind(
        struct gpu_waits *waits, const struct part *wait, int64_t begin, int64_t end)
{
    const struct work *work = waits->work;
    if (!trace_clip(work->trace, &begin, &end))
        return;
    uint32_t last, first = parts_range(work, wait->thread, begin, end, &last);
    for (uint32_t i = first; i < last && begin < end; i++) {
        const struct part *other = &work->parts[i];
        if (gpu_waits_is(other->cause) || other->end <= begin)
            continue;
        gpu_put_running(waits, wait, begin, other->begin < end ? other->begin : end);
        begin = other->end;
    }
    gpu_put_running(waits, wait, begin, end);
}

// When the thread waits for its GPU again, behind part i; known_end: not before that.
static int64_t gpu_next(const struct gpu_waits *waits, uint32_t i, int64_t known_end)
{
    const struct work *work = waits->work;
    for (uint32_t k = i + 1;
            k < work->part_first[work->parts[i].thread + 1] && work->parts[k].begin < known_end;
            k++)
        if (gpu_waits_is(work->parts[k].cause))
            return work->parts[k].begin;
    return known_end;
}

// behind: what lies behind the wait counts, too.
static void gpu_part(struct gpu_waits *waits, const struct trace_busy *gpu, uint32_t i, bool behind)
{
    const struct part *part = &waits->work->parts[i];
    int64_t known = gpu->spans[0].begin, known_end = gpu->spans[gpu->count - 1].end;
    int64_t begin = part->begin > known ? part->begin : known,
            end = part->end < known_end ? part->end : known_end;
    enum part_split split = (enum part_split)part->split;
    struct trace_window piece;
    // Before the first of its operations that was recorded, and behind the last one.
    gpu_put(waits, part, part->begin, part->end < known ? part->end : known, split,
            STALL_DOUBT_GPU_UNKNOWN);
    if (known_end < waits->recent)
        gpu_put(waits, part, part->begin > known_end ? part->begin : known_end, part->end, split,
                STALL_DOUBT_GPU_UNKNOWN);
    if (begin >= end)
        return;
    int64_t from = begin, lead = end - begin;
    size_t at = trace_idle_from(gpu, from);
    while (trace_idle(gpu, &at, &from, end, &piece)) {
        gpu_put(waits, part, piece.begin, piece.end, split, NOTE_GPU_KNOWN);
        lead -= piece.end - piece.begin;
    }
    if (!behind || end < part->end)
        return;
    int64_t reach = gpu_next(waits, i, known_end);
    from = end;
    at = trace_idle_from(gpu, from);
    while (lead > 0 && trace_idle(gpu, &at, &from, reach, &piece)) {
        int64_t lost = piece.end - piece.begin < lead ? piece.end - piece.begin : lead;
        gpu_put_behind(waits, part, piece.begin, piece.begin + lost);
        lead -= lost;
    }
}

void gpu_waits_take(struct work *work, const bool *late, bool live)
{
    const struct trace *trace = work->trace;
    struct gpu_waits waits = {.work = work,
            .recent =
                    live ? trace->windows[trace->window_count - 1].end - gpu_comes_ns : INT64_MAX};
    if (!trace->gpus || !gpu_waits_any(work))
        return;
    for (uint32_t i = 0; i < work->part_count; i++) {
        const struct part *part = &work->parts[i];
        const struct trace_thread *thread = &trace->threads[part->thread];
        const struct trace_busy *gpu = &trace->gpus[thread->process];
        bool waits_for = gpu_waits_is(part->cause);
        if (waits_for && gpu->count)
            gpu_part(&waits, gpu, i, thread->paces && !late[thread->process]);
        else
            gpu_put(&waits, part, part->begin, part->end, (enum part_split)part->split,
                    waits_for ? STALL_DOUBT_GPU_UNKNOWN : 0);
    }
    free(work->parts);
    work->parts = waits.parts;
    work->part_count = waits.count;
    work->part_capacity = waits.capacity;
    parts_sort(work);
}
