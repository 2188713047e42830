// SPDX-License-Identifier: Apache-2.0
// Stacks taken in a tracepoint begin with the tracepoint. The BPF side leaves out its own two
// frames; how many functions of the tracepoint stand between is a matter of the kernel's compiler
// (tail calls), so those are known by their code ranges (__bpf_trace_*, __traceiter_* of
// /proc/kallsyms) and taken off here, before the callback.
#include <stdlib.h>
#include <string.h>

#include "bpf/capture_inside.h"
#include "common/containers/search.h"
#include "common/containers/vector.h"

void capture_add_tracing(struct capture *capture, uint64_t begin, uint64_t end)
{
    vector_push(capture->tracing, capture->tracing_count, (struct code_range){begin, end});
}

static int by_begin(const void *a, const void *b)
{
    const struct code_range *left = a, *right = b;

    return (left->begin > right->begin) - (left->begin < right->begin);
}

void capture_sort_tracing(struct capture *capture)
{
    if (capture->tracing_count)
        qsort(capture->tracing, capture->tracing_count, sizeof(*capture->tracing), by_begin);
}

static bool is_tracing(const struct capture *capture, uint64_t address)
{
    size_t after = search_first(i, capture->tracing_count, capture->tracing[i].begin > address);

    return after && address < capture->tracing[after - 1].end;
}

static uint16_t count_tracing(const struct capture *capture, const uint64_t *frames, uint16_t count)
{
    uint16_t tracing = 0;

    while (tracing < count && is_tracing(capture, frames[tracing]))
        tracing++;
    return tracing;
}

// Cut `count` frames at `frames` out of the copied record.
static void cut(struct ug_head *record, uint64_t *frames, uint16_t count)
{
    char *end = (char *)record + record->size;

    memmove(frames, frames + count, (size_t)(end - (char *)(frames + count)));
    record->size -= count * (uint32_t)sizeof(*frames);
}

static const struct ug_head *strip_gap(struct capture *capture, const struct ug_gap *gap)
{
    const uint64_t *frames = (const uint64_t *)(gap + 1);
    size_t wakers_at = (size_t)gap->kernel_count + gap->user_count;
    uint16_t kernel = count_tracing(capture, frames, gap->kernel_count);
    uint16_t wakers = count_tracing(capture, frames + wakers_at, gap->waker_count);
    struct ug_gap *copy = (struct ug_gap *)capture->copy;

    if (!kernel && !wakers)
        return &gap->head;
    memcpy(copy, gap, gap->head.size);
    cut(&copy->head, (uint64_t *)(copy + 1) + wakers_at, wakers);
    cut(&copy->head, (uint64_t *)(copy + 1), kernel);
    copy->kernel_count -= kernel;
    copy->waker_count -= wakers;
    return &copy->head;
}

// `frames` of a record whose kernel stack comes first; its count is at `kernel_count` of the
// record.
static const struct ug_head *strip_first(
        struct capture *capture, const struct ug_head *head, size_t frames, size_t kernel_count)
{
    const char *record = (const char *)head;
    uint16_t count, tracing;

    memcpy(&count, record + kernel_count, sizeof(count));
    tracing = count_tracing(capture, (const uint64_t *)(record + frames), count);
    if (!tracing)
        return head;
    memcpy(capture->copy, head, head->size);
    cut((struct ug_head *)capture->copy, (uint64_t *)(capture->copy + frames), tracing);
    count -= tracing;
    memcpy(capture->copy + kernel_count, &count, sizeof(count));
    return (const struct ug_head *)capture->copy;
}

const struct ug_head *capture_strip(struct capture *capture, const struct ug_head *head)
{
    if (!capture->tracing_count || head->size > sizeof(capture->copy))
        return head;
    switch (head->kind) {
    case UG_EVENT_GAP:
        return strip_gap(capture, (const struct ug_gap *)head);
    case UG_EVENT_LOCK:
        return strip_first(
                capture, head, sizeof(struct ug_lock), offsetof(struct ug_lock, kernel_count));
    case UG_EVENT_FACT:
        return strip_first(
                capture, head, sizeof(struct ug_fact), offsetof(struct ug_fact, kernel_count));
    default:
        return head;
    }
}
