// SPDX-License-Identifier: Apache-2.0
// Communications as NCCL told them: collectives by communicator and sequence number, sends and
// receives by their order between two ranks. A kernel that communicates holds its rank up from when
// the GPU has nothing else to do. Where ranks send to each other they are stages of a pipeline: the
// first one sends before it receives, any other one comes behind the one that it receives from
// first.
#include <stdlib.h>

#include "common/containers/search.h"
#include "common/containers/vector.h"
#include "common/strings.h"
#include "reports/analyse/stalls/what_if/what_if_comms.h"

enum { NCCL_EXPOSED_NS = 5000 }; // what lies between two kernels of a stream anyway

struct nccl_one {
    int64_t communicator;
    int64_t number; // sequence; of a message, which between its two
    int64_t begin, end;
    int32_t from, to; // -1: a collective
    int32_t ranks;
    uint32_t row;
    bool sends;
};

static int64_t nccl_exposed(const struct trace *trace, uint32_t process, int64_t begin, int64_t end)
{
    const struct trace_busy *busy = &trace->busy[process];
    size_t behind = search_first(middle, busy->count, busy->spans[middle].begin >= end);
    int64_t idle =
            behind && busy->spans[behind - 1].end > begin ? busy->spans[behind - 1].end : begin;
    return end - idle >= NCCL_EXPOSED_NS ? idle : end;
}

// By communicator, and of messages by their two ranks: in each all is in one order.
static int nccl_by_channel(const struct nccl_one *a, const struct nccl_one *b)
{
    return trace_order(a->communicator, b->communicator) ?: trace_order(a->from, b->from) ?:
           trace_order(a->to, b->to);
}

static int nccl_by_group(const void *left, const void *right)
{
    const struct nccl_one *a = left, *b = right;
    return nccl_by_channel(a, b) ?: trace_order(a->number, b->number) ?:
           trace_order(a->row, b->row);
}

static bool nccl_same_group(const struct nccl_one *a, const struct nccl_one *b)
{
    return !nccl_by_channel(a, b) && a->number == b->number;
}

static int nccl_by_stream(const void *left, const void *right)
{
    const struct nccl_one *a = left, *b = right;
    return nccl_by_channel(a, b) ?: trace_order(a->row, b->row) ?:
           trace_order(a->sends, b->sends) ?: trace_order(a->begin, b->begin);
}

// Messages between two ranks, numbered on each side.
static void nccl_number(struct nccl_one *list, size_t count)
{
    if (count)
        qsort(list, count, sizeof *list, nccl_by_stream);
    for (size_t i = 0; i < count; i++)
        list[i].number = i && !nccl_by_channel(&list[i], &list[i - 1]) &&
                        list[i].row == list[i - 1].row && list[i].sends == list[i - 1].sends
                ? list[i - 1].number + 1
                : 0;
}

static struct nccl_one *nccl_collect(const struct ranks *ranks, size_t *ret_count)
{
    const struct trace *trace = ranks->trace;
    uint32_t *row_of = ranks_row_of(ranks);
    struct nccl_one *list = xcalloc(trace->nccl_count + trace->send_count + 1, sizeof *list);
    size_t count = 0;
    for (size_t i = 0; i < trace->send_count; i++) {
        const struct trace_send *one = &trace->sends[i];
        if (row_of[one->process] != TRACE_NONE && one->from != one->to)
            list[count++] = (struct nccl_one){.communicator = one->communicator,
                    .begin = one->kernel_begin,
                    .end = one->kernel_end,
                    .from = one->from,
                    .to = one->to,
                    .ranks = 2,
                    .row = row_of[one->process],
                    .sends = one->sends};
    }
    nccl_number(list, count);
    for (size_t i = 0; i < trace->nccl_count; i++) {
        const struct trace_nccl *one = &trace->nccl[i];
        if (row_of[one->process] != TRACE_NONE)
            list[count++] = (struct nccl_one){.communicator = one->communicator,
                    .number = one->sequence,
                    .begin = one->kernel_begin,
                    .end = one->kernel_end,
                    .from = -1,
                    .to = -1,
                    .ranks = one->ranks,
                    .row = row_of[one->process]};
    }
    free(row_of);
    *ret_count = count;
    return list;
}

// ---- stages ----

struct nccl_first { // message of a row
    int64_t begin;
    bool sends;
    uint32_t peer; // row
};

// The other side of a message: next to it where both are there.
static uint32_t nccl_peer(const struct nccl_one *list, size_t count, size_t i)
{
    if (i && nccl_same_group(&list[i - 1], &list[i]))
        return list[i - 1].row;
    return i + 1 < count && nccl_same_group(&list[i + 1], &list[i]) ? list[i + 1].row : TRACE_NONE;
}

// As many ranks in each stage, and each has one. list: by group.
static void nccl_stages(struct what_if_comms *comms, const struct nccl_one *list, size_t count)
{
    size_t rows = comms->ranks->row_count, found = 0, stages = 0;
    struct nccl_first *first = xcalloc(rows + 1, sizeof *first);
    uint32_t *stage_of = xcalloc(rows + 1, sizeof *stage_of),
             *sizes = xcalloc(rows + 1, sizeof *sizes);
    for (size_t i = 0; i < rows; i++)
        first[i].begin = INT64_MAX;
    for (size_t i = 0; i < count; i++) {
        uint32_t row = list[i].row,
                 peer = list[i].from < 0 ? TRACE_NONE : nccl_peer(list, count, i);
        if (peer != TRACE_NONE && list[i].begin < first[row].begin)
            first[row] = (struct nccl_first){list[i].begin, list[i].sends, peer};
    }
    for (size_t i = 0; i < rows; i++) { // the way back to who sends first
        uint32_t at = (uint32_t)i, steps = 0;
        while (first[at].begin < INT64_MAX && !first[at].sends && steps < rows) {
            at = first[at].peer;
            steps++;
        }
        if (first[at].begin == INT64_MAX || steps == rows)
            break;
        stage_of[i] = steps;
        stages = steps + 1 > stages ? steps + 1 : stages;
        sizes[steps]++;
        found++;
    }
    bool even = found == rows && stages > 1;
    for (size_t i = 0; i < stages && even; i++)
        even = sizes[i] == sizes[0];
    if (even) {
        comms->stage_of = stage_of;
        comms->stage_count = stages;
    } else {
        free(stage_of);
    }
    free(sizes);
    free(first);
}

static bool nccl_complete(const struct nccl_one *list, size_t first, size_t end)
{
    bool fits = end - first == (size_t)list[first].ranks;
    for (size_t i = first; i < end && fits; i++)
        fits = list[i].begin > 0 && list[i].end >= list[i].begin &&
                (i == first || list[i].row != list[i - 1].row) &&
                (list[i].from < 0 || i == first || list[i].sends != list[i - 1].sends);
    return fits;
}

void what_if_align_nccl(struct what_if_comms *comms)
{
    const struct ranks *ranks = comms->ranks;
    size_t count, streams = 0;
    struct nccl_one *list = nccl_collect(ranks, &count);
    if (count)
        qsort(list, count, sizeof *list, nccl_by_group);
    nccl_stages(comms, list, count);
    for (size_t first = 0, end; first < count; first = end) {
        for (end = first + 1; end < count && nccl_same_group(&list[first], &list[end]); end++)
            ;
        streams += first == 0 || nccl_by_channel(&list[first], &list[first - 1]);
        if (!nccl_complete(list, first, end)) {
            comms->odd++;
            comms->whole++;
            comms->group_count++; // a number without members
            continue;
        }
        for (size_t i = first; i < end; i++)
            vector_push(comms->list, comms->count,
                    ((struct what_if_comm){.begin = list[i].begin,
                            .end = list[i].end,
                            .row = list[i].row,
                            .group = (uint32_t)comms->group_count,
                            .exposed = nccl_exposed(ranks->trace, ranks->rows[list[i].row].process,
                                    list[i].begin, list[i].end),
                            .stream = (uint32_t)streams - 1}));
        comms->group_count++;
        comms->whole++;
    }
    comms->stream_count = streams;
    free(list);
}
