// SPDX-License-Identifier: Apache-2.0
// What waits for a GPU cost, where it was recorded what that did. As long as it works, on kernels of the program or in a communication, nothing
// is lost: a program that its GPU paces has to wait for it somewhere. (Time in which other ranks hold a communication up is a straggler's, or
// nobody's fault.) Lost is the time in which it has nothing to do, be it that another process has its kernels there: within the wait, and behind
// it, as long as the GPU had worked on while the host waited, but no longer than to the next wait. Had the host not waited, it would have been so
// far ahead with what it launches then. What else holds it up there is a cause of its own. So the parts of such waits are replaced by parts of
// these times.
#include <stdlib.h>

#include "common/containers/search.h"
#include "common/containers/vector.h"
#include "reports/analyse/stalls/parts.h"

enum { GPU_JOIN_NS = 1000000 }; // so near to each other idle times of a wait become one of as much: there may be thousands in a second

struct gpu_waits {
    const struct work *work;
    struct part *parts; // the new ones
    size_t count, capacity;
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
static bool gpu_goes_on(const struct gpu_waits *waits, const struct part *like, int64_t begin, enum part_split split)
{
    const struct part *last = waits->count ? &waits->parts[waits->count - 1] : NULL;
    return last && last->notes & NOTE_GPU_KNOWN && last->split == split && last->thread == like->thread && last->cause == like->cause &&
           last->gap == like->gap && last->sample == like->sample && begin >= last->end && begin - last->end < GPU_JOIN_NS;
}

static void gpu_put(struct gpu_waits *waits, const struct part *like, int64_t begin, int64_t end, enum part_split split, unsigned notes)
{
    if (begin >= end)
        return;
    if (notes && gpu_goes_on(waits, like, begin, split)) {
        struct part *last = &waits->parts[waits->count - 1];
        last->begin += begin - last->end;
        last->end = end;
        return;
    }
    waits->parts = vector_reserve(waits->parts, &waits->capacity, waits->count + 1, sizeof *waits->parts);
    struct part *part = &waits->parts[waits->count++];
    *part = *like;
    part->begin = begin;
    part->end = end;
    part->split = (uint8_t)split;
    part->notes |= (uint16_t)notes;
}

// Behind the wait the thread launches: all of [begin, end) but for its parts of other causes.
static void gpu_put_behind(struct gpu_waits *waits, const struct part *wait, int64_t begin, int64_t end)
{
    const struct work *work = waits->work;
    uint32_t last, first = parts_range(work, wait->thread, begin, end, &last);
    for (uint32_t i = first; i < last && begin < end; i++) {
        const struct part *other = &work->parts[i];
        if (gpu_waits_is(other->cause) || other->end <= begin)
            continue;
        gpu_put(waits, wait, begin, other->begin < end ? other->begin : end, SPLIT_ON_CPU, NOTE_GPU_KNOWN);
        begin = other->end;
    }
    gpu_put(waits, wait, begin, end, SPLIT_ON_CPU, NOTE_GPU_KNOWN);
}

// Until when what the GPU idles behind part i, which ends at `end`, is lost by it.
static int64_t gpu_reach(const struct gpu_waits *waits, const struct trace_gpu *gpu, uint32_t i, int64_t begin, int64_t end)
{
    const struct work *work = waits->work;
    size_t next = search_first(middle, gpu->count, gpu->spans[middle].begin >= end);
    if (!next || gpu->spans[next - 1].end <= begin)
        return end; // it worked on nothing meanwhile
    const struct trace_window *span = &gpu->spans[next - 1];
    int64_t from = span->begin > begin ? span->begin : begin, to = span->end < end ? span->end : end, reach = to + (to - from);
    for (uint32_t k = i + 1; k < work->part_first[work->parts[i].thread + 1] && work->parts[k].begin < reach; k++)
        if (gpu_waits_is(work->parts[k].cause))
            reach = work->parts[k].begin;
    return reach;
}

// behind: what lies behind the wait counts, too.
static void gpu_part(struct gpu_waits *waits, const struct trace_gpu *gpu, uint32_t i, bool behind)
{
    const struct part *part = &waits->work->parts[i];
    const struct trace_busy busy = {.spans = gpu->spans, .count = gpu->count};
    int64_t known = gpu->spans[0].begin, known_end = gpu->spans[gpu->count - 1].end;
    int64_t begin = part->begin > known ? part->begin : known, end = part->end < known_end ? part->end : known_end;
    enum part_split split = (enum part_split)part->split;
    struct trace_window piece;
    if (begin >= end) { // before the first of its operations that was recorded, or behind the last one
        gpu_put(waits, part, part->begin, part->end, split, 0);
        return;
    }
    gpu_put(waits, part, part->begin, begin, split, 0);
    gpu_put(waits, part, end, part->end, split, 0);
    int64_t from = begin;
    size_t at = trace_idle_from(&busy, from);
    while (trace_idle(&busy, &at, &from, end, &piece))
        gpu_put(waits, part, piece.begin, piece.end, split, NOTE_GPU_KNOWN);
    int64_t reach = behind && end == part->end ? gpu_reach(waits, gpu, i, begin, end) : end;
    reach = reach < known_end ? reach : known_end;
    from = end;
    at = trace_idle_from(&busy, from);
    while (trace_idle(&busy, &at, &from, reach, &piece))
        gpu_put_behind(waits, part, piece.begin, piece.end);
}

void gpu_waits_take(struct work *work, const bool *late)
{
    const struct trace *trace = work->trace;
    struct gpu_waits waits = {.work = work};
    if (!trace->gpus || !gpu_waits_any(work))
        return;
    for (uint32_t i = 0; i < work->part_count; i++) {
        const struct part *part = &work->parts[i];
        const struct trace_thread *thread = &trace->threads[part->thread];
        const struct trace_gpu *gpu = &trace->gpus[thread->process];
        if (gpu_waits_is(part->cause) && gpu->count)
            gpu_part(&waits, gpu, i, thread->paces && !late[thread->process]);
        else
            gpu_put(&waits, part, part->begin, part->end, (enum part_split)part->split, 0);
    }
    free(work->parts);
    work->parts = waits.parts;
    work->part_count = waits.count;
    work->part_capacity = waits.capacity;
    parts_sort(work);
}
