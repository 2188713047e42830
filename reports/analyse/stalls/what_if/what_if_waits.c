// SPDX-License-Identifier: Apache-2.0
// Collectives by the waits of main threads (gloo, MPI): those of several ranks that overlap, and
// end next to each other, are of one, and every rank takes part in it, for nothing else can be told
// on the host. Who does not wait came less than the threshold before the end. Where that does not
// hold (sends and receives, groups of some ranks) waits of others go on over the end of one: such
// groups are counted as odd.
#include <stdlib.h>

#include "common/containers/vector.h"
#include "common/strings.h"
#include "reports/analyse/stalls/what_if/what_if_comms.h"

enum {
    WAITS_TOGETHER_NS = 2000000,
    WAITS_GROUPS_FEW = 1000,
    WAITS_MAX = 1 << 20, // communications, which take some 350 bytes each until they are replayed:
                         // 1,024 ranks x 1,024 collectives
};

struct waits_one {
    int64_t end;
    uint32_t row, index; // of ranks->waits
};

static int waits_by_end(const void *left, const void *right)
{
    const struct waits_one *a = left, *b = right;
    return trace_order(a->end, b->end) ?: trace_order(a->row, b->row);
}

static int64_t waits_apart(const struct trace_window *a, const struct trace_window *b)
{
    return a->end > b->end ? a->end - b->end : b->end - a->end;
}

// The wait of `row` that goes with this one, which ends first of all that are left; NULL: it did
// not wait. next: behind those that are used.
static const struct trace_window *waits_partner(
        const struct ranks *ranks, const size_t *next, size_t row, size_t first, int64_t *odd_ns)
{
    size_t own_end = ranks->rows[first].wait_first + ranks->rows[first].wait_count,
           end = ranks->rows[row].wait_first + ranks->rows[row].wait_count;
    const struct trace_window *own = &ranks->waits[next[first]], *other = &ranks->waits[next[row]];
    if (next[row] == end || other->begin >= own->end)
        return NULL;
    const struct trace_window *later = next[first] + 1 < own_end ? own + 1 : NULL;
    int64_t apart = waits_apart(other, own);
    if (later && later->begin < other->end && waits_apart(other, later) < apart) {
        apart = own->end - other->begin; // so long it has been waiting for the next one
        other = NULL;
    }
    *odd_ns = apart > WAITS_TOGETHER_NS && apart > *odd_ns ? apart : *odd_ns;
    return other;
}

// All of the group of the wait that ends first.
static void waits_group(struct what_if_comms *comms, size_t *next, int64_t *left_ns, size_t first)
{
    const struct ranks *ranks = comms->ranks;
    const struct trace_window *own = &ranks->waits[next[first]];
    bool guessed = false;
    int64_t odd_ns = 0, longest_ns = own->end - own->begin;
    for (size_t row = 0; row < ranks->row_count; row++) {
        const struct trace_window *wait =
                row == first ? own : waits_partner(ranks, next, row, first, &odd_ns);
        struct what_if_comm comm = {.row = (uint32_t)row,
                .group = (uint32_t)comms->group_count,
                .stream = (uint32_t)row};
        if (wait) {
            comm.begin = wait->begin;
            comm.end = wait->end;
            longest_ns =
                    wait->end - wait->begin > longest_ns ? wait->end - wait->begin : longest_ns;
        } else {
            size_t end = ranks->rows[row].wait_first + ranks->rows[row].wait_count;
            const struct trace_window *later = next[row] < end ? &ranks->waits[next[row]] : NULL;
            comm.end = later && later->begin < own->end ? later->begin : own->end;
            comm.begin = comm.end - comms->guess_ns;
            guessed = true;
        }
        odd_ns = left_ns[row] - comm.end > odd_ns ? left_ns[row] - comm.end : odd_ns;
        comm.begin = comm.begin > left_ns[row] ? comm.begin : left_ns[row];
        comm.end = comm.end > comm.begin ? comm.end : comm.begin;
        comm.exposed = comm.begin;
        left_ns[row] = comm.end;
        vector_push(comms->list, comms->count, comm);
    }
    for (size_t row = 0; row < ranks->row_count; row++) {
        const struct what_if_comm *comm = &comms->list[comms->count - ranks->row_count + row];
        size_t end = ranks->rows[row].wait_first + ranks->rows[row].wait_count;
        while (next[row] < end && ranks->waits[next[row]].end <= comm->end)
            next[row]++;
    }
    comms->group_count++;
    comms->odd += (double)(odd_ns < longest_ns ? odd_ns : longest_ns);
    comms->whole += (double)longest_ns;
    comms->guessed += guessed;
}

void what_if_align_waits(struct what_if_comms *comms)
{
    const struct ranks *ranks = comms->ranks;
    struct waits_one *order = xcalloc(ranks->wait_count + 1, sizeof *order);
    size_t *next = xcalloc(ranks->row_count + 1, sizeof *next), count = 0;
    int64_t *left_ns = xcalloc(ranks->row_count + 1, sizeof *left_ns);
    comms->guess_ns = ranks->trace->threshold_ns > 0 ? ranks->trace->threshold_ns / 2 : 0;
    comms->stream_count = ranks->row_count;
    for (size_t row = 0; row < ranks->row_count; row++) {
        next[row] = ranks->rows[row].wait_first;
        for (size_t i = 0; i < ranks->rows[row].wait_count; i++, count++)
            order[count] = (struct waits_one){
                    ranks->waits[next[row] + i].end, (uint32_t)row, (uint32_t)(next[row] + i)};
    }
    if (count)
        qsort(order, count, sizeof *order, waits_by_end);
    for (size_t i = 0;
            i < count && (comms->group_count < WAITS_GROUPS_FEW || comms->odd * 2 < comms->whole);
            i++)
        if (comms->count + ranks->row_count > WAITS_MAX)
            comms->until_ns = comms->until_ns ? comms->until_ns : order[i].end;
        else if (next[order[i].row] == order[i].index)
            waits_group(comms, next, left_ns, order[i].row);
    free(left_ns);
    free(next);
    free(order);
}
