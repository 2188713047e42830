// SPDX-License-Identifier: Apache-2.0
// A communication that begins where the one before it in its stream ends was ready earlier: it
// stood in the queue, and what it depends on was done by then. When, the ranks say that it did not
// stand in the queue on: all do the same work in a step, and so it was ready after the same part of
// it. (A late rank has no queue. With the begins alone the others would seem to need it to be
// late.)
#include <stdlib.h>

#include "common/strings.h"
#include "reports/analyse/stalls/what_if/what_if_comms.h"

enum {
    READY_QUEUE_NS = 20000, // between two kernels of a queue
    READY_STEP_MAX = 4096 // communications of a step and rank, which are gone over for each of them
};

struct ready {
    struct what_if_comms *comms;
    const uint32_t *steps; // of each group
    bool *queued;          // [count]
    double *sum; // of each group: the part of the step's work that was done when it began, of those
                 // that were not queued
    uint32_t *known; // so many
};

// comms [first, end) are one row's of one step, by begin. What the row worked from its last
// communication before on, until `at`.
static int64_t ready_work(
        const struct what_if_comm *list, size_t first, size_t end, int64_t from, int64_t at)
{
    int64_t waited = 0, now = from;
    for (size_t i = first; i < end && list[i].exposed < at; i++) {
        int64_t begin = list[i].exposed > now ? list[i].exposed : now,
                until = list[i].end < at ? list[i].end : at;
        waited += until > begin ? until - begin : 0;
        now = until > now ? until : now;
    }
    return at > from ? at - from - waited : 0;
}

// When the row had done so much of it.
static int64_t ready_when(
        const struct what_if_comm *list, size_t first, size_t end, int64_t from, int64_t work)
{
    int64_t now = from;
    for (size_t i = first; i < end; i++) {
        if (list[i].exposed >= list[i].end || list[i].end <= now)
            continue;
        int64_t until = list[i].exposed > now ? list[i].exposed : now;
        if (until - now >= work)
            break;
        work -= until - now;
        now = list[i].end;
    }
    return now + work;
}

// With `put` what is known of each group is put to use, else it is collected.
static void ready_step(struct ready *ready, size_t first, size_t end, bool put)
{
    struct what_if_comm *list = ready->comms->list;
    bool before = first && list[first - 1].row == list[first].row;
    int64_t from = before ? list[first - 1].end : ready->comms->steps->begins[0],
            last = list[end - 1].exposed;
    int64_t all = ready_work(list, first, end, from, last);
    for (size_t i = first; i < end && all > 0 && end - first <= READY_STEP_MAX; i++) {
        uint32_t group = list[i].group;
        if (!put && !ready->queued[i]) {
            ready->sum[group] +=
                    (double)ready_work(list, first, end, from, list[i].begin) / (double)all;
            ready->known[group]++;
        } else if (put && ready->queued[i] && ready->known[group]) {
            int64_t at = ready_when(list, first, end, from,
                    (int64_t)(ready->sum[group] / ready->known[group] * (double)all));
            list[i].ready = at < list[i].begin ? at > from ? at : from : list[i].begin;
        }
    }
}

static void ready_walk(struct ready *ready, bool put)
{
    const struct what_if_comm *list = ready->comms->list;
    for (size_t first = 0, end; first < ready->comms->count; first = end) {
        for (end = first + 1; end < ready->comms->count && list[end].row == list[first].row &&
                ready->steps[list[end].group] == ready->steps[list[first].group];
                end++)
            ;
        ready_step(ready, first, end, put);
    }
}

void what_if_ready(struct what_if_comms *comms, const uint32_t *steps)
{
    struct ready ready = {.comms = comms,
            .steps = steps,
            .queued = xcalloc(comms->count + 1, sizeof *ready.queued),
            .sum = xcalloc(comms->group_count + 1, sizeof *ready.sum),
            .known = xcalloc(comms->group_count + 1, sizeof *ready.known)};
    size_t *before = xcalloc(comms->stream_count + 1, sizeof *before), queued = 0; // index + 1
    for (size_t i = 0; i < comms->count; i++) {
        struct what_if_comm *one = &comms->list[i];
        const struct what_if_comm *last =
                before[one->stream] ? &comms->list[before[one->stream] - 1] : NULL;
        ready.queued[i] = last && last->row == one->row && one->begin >= last->end &&
                one->begin - last->end < READY_QUEUE_NS && last->end > last->begin &&
                last->exposed > last->begin;
        queued += ready.queued[i];
        before[one->stream] = i + 1;
    }
    if (queued) {
        ready_walk(&ready, false);
        ready_walk(&ready, true);
    }
    free(before);
    free(ready.queued);
    free(ready.sum);
    free(ready.known);
}
