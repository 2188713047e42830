// SPDX-License-Identifier: Apache-2.0
// Ranks that are stages of a pipeline, or in groups of some of them. There a rank that is waited
// for may itself wait for the one that is late, and while a pipeline fills and drains all wait in
// turns, also in a clean run: who is late is told by what it does that is no communication
// (late_ranks.c). Here are the times in which a rank communicates and has nothing else to do, and
// of the others' waits those that are its doing: in which it works. While it waits, it is the doing
// of whom it waits for, and so on. Where that leads into a transfer, or to somebody who was not
// recorded, it is nobody's.
#include "reports/analyse/stalls/ranks/ranks_find.h"

#include <stdlib.h>
#include <string.h>

#include "common/containers/search.h"
#include "common/containers/vector.h"
#include "common/strings.h"

enum {
    WORK_DEPTH_MAX = 64, // ranks, each of which waits for the next: more than a pipeline has stages
    WORK_LOOKS_MAX = 256 // at waits of others, a wait in the mean. In a damaged store they go round
                         // in circles
};

struct work_wait { // of a row, without overlaps
    int64_t begin, end;
    uint32_t last;
};

struct work_chain {
    struct ranks *ranks;
    struct work_wait *waits; // a row's side by side, by begin
    size_t wait_count;
    size_t *first; // [row_count + 1]
    size_t looks;  // that are left
};

// ---- what holds a rank up ----

void ranks_put_idle(struct ranks *ranks, const struct trace_busy *busy, int64_t begin, int64_t end,
        size_t waiter, size_t last)
{
    size_t at = trace_idle_from(busy, begin);
    struct trace_window piece;
    while (trace_idle(busy, &at, &begin, end, &piece))
        ranks_put_late(ranks, piece.begin, piece.end, waiter, last);
}

// All communications of a row, by begin.
static void work_hold(struct ranks *ranks, const struct ranks_wait *waits, size_t count,
        const struct trace_busy *busy)
{
    struct rank_row *row = &ranks->rows[waits[0].row];
    row->held_first = ranks->held_count;
    for (size_t i = 0; i < count;) {
        int64_t begin = waits[i].begin, end = waits[i].end;
        for (i++; i < count && waits[i].begin <= end; i++)
            end = waits[i].end > end ? waits[i].end : end;
        size_t at = trace_idle_from(busy, begin);
        struct trace_window piece;
        while (trace_idle(busy, &at, &begin, end, &piece))
            vector_push(ranks->held, ranks->held_count, piece);
    }
    row->held_count = ranks->held_count - row->held_first;
}

static void work_put(struct work_chain *chain, int64_t begin, int64_t end, uint32_t last,
        const struct trace_busy *busy)
{
    size_t at = trace_idle_from(busy, begin);
    struct trace_window piece;
    while (trace_idle(busy, &at, &begin, end, &piece))
        vector_push(
                chain->waits, chain->wait_count, (struct work_wait){piece.begin, piece.end, last});
}

// For whom a row waits when. Of several at a time it is the one who comes last.
static void work_waits(struct work_chain *chain, const struct ranks_wait *waits, size_t count,
        const struct trace_busy *busy)
{
    const struct ranks_wait *now = NULL;
    for (size_t i = 0; i < count; i++) {
        const struct ranks_wait *next = &waits[i];
        if (next->came <= next->begin || (now && next->came <= now->came))
            continue;
        if (now)
            work_put(chain, now->begin, next->begin < now->came ? next->begin : now->came,
                    now->last, busy);
        now = next;
    }
    if (now)
        work_put(chain, now->begin, now->came, now->last, busy);
}

// ---- whose doing it is ----

// Is it surely in that time that `waiter` waits for the row? On two nodes as far as
// ranks_surely_later: what is shorter may be the clocks' doing.
static bool work_is_sure(
        const struct ranks *ranks, uint32_t waiter, uint32_t row, int64_t begin, int64_t end)
{
    return ranks_surely_later(ranks, row, end, waiter, begin);
}

// Of [begin, end), in which `waiter` waits for the row, what that one works in.
static void work_own(struct ranks *ranks, uint32_t waiter, uint32_t row, int64_t begin, int64_t end)
{
    const struct rank_row *one = &ranks->rows[row];
    const struct trace_busy held = {
            .spans = ranks->held + one->held_first, .count = one->held_count};
    size_t at = trace_idle_from(&held, begin);
    struct trace_window piece;
    while (trace_idle(&held, &at, &begin, end, &piece))
        if (work_is_sure(ranks, waiter, row, piece.begin, piece.end))
            ranks_put_late(ranks, piece.begin, piece.end, waiter, row);
}

static void work_blame(struct work_chain *chain, uint32_t waiter, uint32_t row, int64_t begin,
        int64_t end, int depth)
{
    size_t last = chain->first[row + 1];
    for (size_t i = search_between(
                 middle, chain->first[row], last, chain->waits[middle].end > begin);
            i < last && chain->waits[i].begin < end && chain->looks; i++) {
        const struct work_wait *one = &chain->waits[i];
        int64_t from = one->begin > begin ? one->begin : begin,
                to = one->end < end ? one->end : end;
        chain->looks--;
        work_own(chain->ranks, waiter, row, begin, from);
        if (one->last != waiter && depth < WORK_DEPTH_MAX &&
                work_is_sure(chain->ranks, waiter, row, from, to))
            work_blame(chain, waiter, one->last, from, to, depth + 1);
        begin = to;
    }
    if (chain->looks)
        work_own(chain->ranks, waiter, row, begin, end);
}

static int work_by_row(const void *left, const void *right)
{
    const struct ranks_wait *a = left, *b = right;
    return trace_order(a->row, b->row) ?: trace_order(a->begin, b->begin) ?:
           trace_order(a->came, b->came);
}

void ranks_work_of(struct ranks *ranks, struct ranks_wait *waits, size_t count, bool gpus)
{
    static const struct trace_busy no_gpu = {0};
    struct work_chain chain = {
            .ranks = ranks, .first = xcalloc(ranks->row_count + 1, sizeof *chain.first)};
    size_t at = 0;
    if (count)
        qsort(waits, count, sizeof *waits, work_by_row);
    for (size_t row = 0; row < ranks->row_count; row++) {
        size_t first = at;
        chain.first[row] = chain.wait_count;
        while (at < count && waits[at].row == row)
            at++;
        if (at == first)
            continue;
        const struct trace_busy *busy =
                gpus ? &ranks->trace->busy[ranks->rows[row].process] : &no_gpu;
        work_hold(ranks, waits + first, at - first, busy);
        work_waits(&chain, waits + first, at - first, busy);
    }
    chain.first[ranks->row_count] = chain.wait_count;
    chain.looks = WORK_LOOKS_MAX * chain.wait_count;
    for (uint32_t row = 0; row < ranks->row_count; row++)
        for (size_t i = chain.first[row]; i < chain.first[row + 1]; i++)
            work_blame(
                    &chain, row, chain.waits[i].last, chain.waits[i].begin, chain.waits[i].end, 0);
    free(chain.waits);
    free(chain.first);
}

// ---- on the host ----

static int work_by_begin(const void *left, const void *right)
{
    const struct ranks_wait *a = left, *b = right;
    return trace_order(a->begin, b->begin);
}

static int work_by_node(const void *left, const void *right, void *ranks)
{
    const struct ranks_wait *a = left, *b = right;
    uint32_t of_a = ranks_node_of(ranks, a->row), of_b = ranks_node_of(ranks, b->row);
    return trace_order(of_a, of_b) ?: work_by_begin(a, b);
}

bool ranks_clocks_known(const struct ranks *ranks)
{
    for (size_t i = 1; i < ranks->row_count; i++)
        if (trace_residual_ns(ranks->trace, ranks->rows[0].process, ranks->rows[i].process) < 0)
            return false;
    return true;
}

// Somebody waits in all of [begin, end), and in each part of it that is for who works there. node:
// of whom alone these are; TRACE_NONE: of all.
static void work_shared(
        struct ranks *ranks, const struct ranks_wait *waits, size_t count, uint32_t node)
{
    for (size_t i = 0; i < count;) {
        int64_t begin = waits[i].begin, end = waits[i].end;
        uint32_t first = waits[i].row, second = TRACE_NONE;
        for (i++; i < count && waits[i].begin < end; i++) {
            end = waits[i].end > end ? waits[i].end : end;
            second = second == TRACE_NONE && waits[i].row != first ? waits[i].row : second;
        }
        for (uint32_t row = 0; row < ranks->row_count; row++) {
            uint32_t waiter = row == first ? second : first;
            if (waiter != TRACE_NONE && (node == TRACE_NONE || ranks_node_of(ranks, row) == node))
                work_own(ranks, waiter, row, begin, end);
        }
    }
}

// Ranks of a node have one clock: whom they wait for there is known however little is known of the
// clocks of others.
static void work_shared_on_nodes(struct ranks *ranks, struct ranks_wait *waits, size_t count)
{
    if (count)
        qsort_r(waits, count, sizeof *waits, work_by_node, ranks);
    for (size_t first = 0, end; first < count; first = end) {
        uint32_t node = ranks_node_of(ranks, waits[first].row);
        for (end = first + 1; end < count && ranks_node_of(ranks, waits[end].row) == node; end++)
            ;
        work_shared(ranks, waits + first, end - first, node);
    }
}

void ranks_work_of_waits(struct ranks *ranks)
{
    struct ranks_wait *waits = xcalloc(ranks->wait_count + 1, sizeof *waits);
    size_t count = 0;
    ranks->held = xcalloc(ranks->wait_count + 1, sizeof *ranks->held);
    ranks->held_count = ranks->wait_count;
    if (ranks->wait_count)
        memcpy(ranks->held, ranks->waits, ranks->wait_count * sizeof *ranks->held);
    for (uint32_t row = 0; row < ranks->row_count; row++) {
        struct rank_row *one = &ranks->rows[row];
        one->told = true;
        one->held_times = 1;
        one->held_first = one->wait_first;
        one->held_count = one->wait_count;
        for (size_t i = one->wait_first; i < one->wait_first + one->wait_count; i++)
            waits[count++] = (struct ranks_wait){
                    .begin = ranks->waits[i].begin, .end = ranks->waits[i].end, .row = row};
    }
    if (count)
        qsort(waits, count, sizeof *waits, work_by_begin);
    if (ranks_clocks_known(ranks)) {
        work_shared(ranks, waits, count, TRACE_NONE);
        if (ranks->trace->node_count > 1)
            work_shared_on_nodes(ranks, waits, count);
    }
    free(waits);
}
