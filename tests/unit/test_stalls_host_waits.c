// SPDX-License-Identifier: Apache-2.0
// Who came last while ranks waited on the host: what ranks_host.c finds is, late by late and in
// their order, what comes of comparing each wait with all waits of all ranks, which stands here.
#include <stdlib.h>

#include "common/containers/vector.h"
#include "common/strings.h"
#include "reports/analyse/stalls/ranks/ranks_find.h"
#include "tests/unit/runner.h"

enum {
    UNIT_NS = 50000,
    ROWS_MOST = 14,
    NODES_MOST = 4,
    JOIN_UNITS = 4,
    SPAN_UNITS = 400,
    SEEDS = 1000,
    MANY = 4096,
    STEPS = 4
};

struct world {
    struct trace trace;
    struct trace_process processes[MANY];
    struct trace_node nodes[NODES_MOST];
    struct trace_window windows[2];
    struct ranks ranks;
    uint64_t seed;
};

static uint32_t below(struct world *world, uint32_t end)
{
    world->seed = world->seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(world->seed >> 33) % end;
}

static void world_open(struct world *world, uint64_t seed)
{
    world->seed = seed;
    world->ranks = (struct ranks){.trace = &world->trace};
    world->windows[0] = (struct trace_window){INT64_MIN / 4, INT64_MAX / 4};
    world->trace = (struct trace){.processes = world->processes,
            .nodes = world->nodes,
            .windows = world->windows,
            .window_count = 1};
}

static void put_row(struct world *world, uint32_t node)
{
    struct ranks *ranks = &world->ranks;
    uint32_t index = (uint32_t)ranks->row_count;
    world->processes[index] = (struct trace_process){.node = node};
    world->trace.process_count = index + 1;
    vector_push(ranks->rows, ranks->row_count,
            (struct rank_row){.process = index,
                    .thread = index,
                    .rank = (int32_t)index,
                    .wait_first = ranks->wait_count});
}

// Of the row that was put last.
static void put_wait(struct world *world, int64_t begin, int64_t end)
{
    struct ranks *ranks = &world->ranks;
    vector_push(ranks->waits, ranks->wait_count, (struct trace_window){begin, end});
    ranks->rows[ranks->row_count - 1].wait_count++;
}

// ---- each with all ----

struct plain {
    struct ranks ranks;      // its rows and waits are those of the world
    size_t unclear, several; // waits of which the clocks did not tell who came last; lates beyond
                             // the first one of a wait
};

static int64_t plain_arrival(
        const struct ranks *ranks, size_t index, int64_t begin, int64_t end, bool *ret_seen)
{
    const struct rank_row *row = &ranks->rows[index];
    const struct trace_window *best = NULL;
    for (size_t i = row->wait_first; i < row->wait_first + row->wait_count; i++) {
        const struct trace_window *wait = &ranks->waits[i];
        if (wait->end > begin && wait->begin < end &&
                (!best || llabs(wait->end - end) < llabs(best->end - end)))
            best = wait;
    }
    *ret_seen = best != NULL;
    return best ? best->begin : end - ranks->trace->threshold_ns;
}

static bool plain_compares(const struct ranks *ranks, size_t waiter, size_t other, bool own)
{
    const struct trace *trace = ranks->trace;
    bool same = trace->processes[ranks->rows[waiter].process].node ==
            trace->processes[ranks->rows[other].process].node;
    return other != waiter &&
            (own ? same
                 : trace_residual_ns(
                           trace, ranks->rows[waiter].process, ranks->rows[other].process) >= 0);
}

static bool plain_is_sure(const struct ranks *ranks, size_t waiter, const struct trace_window *wait,
        size_t last, int64_t last_ns)
{
    bool seen, sure = ranks_surely_later(ranks, last, last_ns, waiter, wait->begin);
    for (size_t i = 0; i < ranks->row_count && sure; i++)
        if (i != last && plain_compares(ranks, waiter, i, false))
            sure = ranks_surely_later(ranks, last, last_ns, i,
                    plain_arrival(ranks, i, wait->begin, wait->end, &seen));
    return sure;
}

static void plain_wait(
        struct plain *plain, size_t waiter, const struct trace_window *wait, bool own)
{
    struct ranks *ranks = &plain->ranks;
    int64_t last_ns = INT64_MIN;
    size_t last = 0, unseen = 0, compared = 1;
    bool seen, nodes = !own && ranks->trace->node_count > 1;
    for (size_t i = 0; i < ranks->row_count; i++) {
        if (!plain_compares(ranks, waiter, i, own))
            continue;
        int64_t at = plain_arrival(ranks, i, wait->begin, wait->end, &seen);
        compared++;
        unseen += !seen;
        if (at > last_ns) {
            last_ns = at;
            last = i;
        }
    }
    if (compared < 2)
        return;
    if (unseen < 2 && (!nodes || plain_is_sure(ranks, waiter, wait, last, last_ns))) {
        ranks_put_late(ranks, wait->begin, last_ns, waiter, last);
        return;
    }
    if (unseen < 2) {
        plain->unclear++;
        plain_wait(plain, waiter, wait, true);
        return;
    }
    for (size_t i = 0; i < ranks->row_count && unseen * 2 <= compared; i++) {
        if (!plain_compares(ranks, waiter, i, own))
            continue;
        int64_t at = plain_arrival(ranks, i, wait->begin, wait->end, &seen);
        if (!seen && ranks_surely_later(ranks, i, at, waiter, wait->begin))
            ranks_put_late(ranks, wait->begin, at, waiter, i);
    }
}

// By begin and waiter; equal ones as they were found.
static void plain_sort(struct ranks *ranks)
{
    for (size_t i = 1; i < ranks->late_count; i++) {
        struct rank_late one = ranks->lates[i];
        size_t at = i;
        for (; at > 0 &&
                (ranks->lates[at - 1].begin > one.begin ||
                        (ranks->lates[at - 1].begin == one.begin &&
                                ranks->lates[at - 1].waiter > one.waiter));
                at--)
            ranks->lates[at] = ranks->lates[at - 1];
        ranks->lates[at] = one;
    }
}

static struct plain plain_find(const struct world *world)
{
    struct plain plain = {.ranks = world->ranks};
    struct ranks *ranks = &plain.ranks;
    ranks->lates = NULL;
    ranks->late_count = 0;
    for (size_t i = 0; i < ranks->row_count; i++)
        for (size_t k = 0; k < ranks->rows[i].wait_count; k++)
            plain_wait(&plain, i, &ranks->waits[ranks->rows[i].wait_first + k], false);
    plain_sort(ranks);
    for (size_t i = 1; i < ranks->late_count; i++)
        plain.several += ranks->lates[i].waiter == ranks->lates[i - 1].waiter &&
                ranks->lates[i].begin == ranks->lates[i - 1].begin;
    return plain;
}

// How many lates differ.
static size_t differing(const struct ranks *got, const struct ranks *want)
{
    size_t count = got->late_count > want->late_count ? got->late_count - want->late_count
                                                      : want->late_count - got->late_count;
    for (size_t i = 0; i < got->late_count && i < want->late_count; i++) {
        const struct rank_late *a = &got->lates[i], *b = &want->lates[i];
        count += a->begin != b->begin || a->end != b->end || a->waiter != b->waiter ||
                a->last != b->last;
    }
    return count;
}

// ---- worlds ----

enum shape { SHAPE_ANY, SHAPE_BARRIER, SHAPE_EQUAL, SHAPE_NESTED, SHAPE_SPARSE, SHAPE_COUNT };

// Waits of a row, by begin and apart, as ranks.c makes them. Few different times, so that there are
// many equal ones.
static void put_waits(struct world *world, enum shape shape)
{
    uint32_t longest = shape == SHAPE_NESTED && below(world, 2) ? 120
            : shape == SHAPE_SPARSE                             ? 8
                                                                : 30,
             pause = shape == SHAPE_SPARSE ? 60 : 20;
    for (uint32_t at = below(world, 20); at < SPAN_UNITS;) {
        uint32_t length = below(world, longest); // now and then 0
        put_wait(world, (int64_t)at * UNIT_NS, (int64_t)(at + length) * UNIT_NS);
        at += length + JOIN_UNITS + below(world, pause);
    }
}

// All are let go together, or nearly so; some did not wait, or not that time.
static void put_barriers(struct world *world, bool equal)
{
    uint32_t skips = equal ? 0 : below(world, 4);
    for (uint32_t step = 0; step < 10; step++) {
        uint32_t begin = 40 * step + (equal ? 3 : below(world, 18)),
                 end = 40 * step + 30 + (equal ? 0 : below(world, 3));
        if (!skips || below(world, 8) >= skips)
            put_wait(world, (int64_t)begin * UNIT_NS, (int64_t)end * UNIT_NS);
    }
}

static void world_make(struct world *world, uint64_t seed)
{
    static const int64_t errors[] = {-1, 0, 0, 2 * UNIT_NS, 5 * UNIT_NS, 9 * UNIT_NS},
                         thresholds[] = {0, 2 * UNIT_NS, 20 * UNIT_NS};
    world_open(world, seed);
    enum shape shape = (enum shape)below(world, SHAPE_COUNT);
    uint32_t rows = 1 + below(world, ROWS_MOST);
    world->trace.node_count = below(world, 2) ? below(world, 2) : 2 + below(world, NODES_MOST - 1);
    world->trace.threshold_ns = thresholds[below(world, 3)];
    for (uint32_t i = 0; i < world->trace.node_count; i++)
        world->nodes[i].error_ns = errors[below(world, 6)];
    if (below(world, 4) == 0) { // two windows, and what lies between them does not count
        world->windows[0] = (struct trace_window){50 * UNIT_NS, 171 * UNIT_NS};
        world->windows[1] = (struct trace_window){190 * UNIT_NS, 390 * UNIT_NS};
        world->trace.window_count = 2;
    }
    for (uint32_t i = 0; i < rows; i++) {
        put_row(world,
                world->trace.node_count > 1 ? below(world, (uint32_t)world->trace.node_count) : 0);
        if (shape == SHAPE_BARRIER || shape == SHAPE_EQUAL)
            put_barriers(world, shape == SHAPE_EQUAL);
        else if (below(world, 6))
            put_waits(world, shape);
    }
}

TEST(any_waits_as_each_compared_with_all)
{
    struct world *world = xcalloc(1, sizeof *world);
    size_t lates = 0, unclear = 0, several = 0, clear = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        world_make(world, seed);
        struct plain plain = plain_find(world);
        ranks_host(&world->ranks);
        size_t differs = differing(&world->ranks, &plain.ranks);
        if (differs)
            runner_fail(__FILE__, __LINE__, "seed %llu: %zu of %zu lates differ",
                    (unsigned long long)seed, differs, plain.ranks.late_count);
        CHECK_INT(differs, 0);
        lates += plain.ranks.late_count;
        unclear += plain.unclear;
        several += plain.several;
        clear += world->trace.node_count > 1 && !plain.unclear && plain.ranks.late_count;
        free(plain.ranks.lates);
        ranks_free(&world->ranks);
    }
    // Nothing of it is empty.
    CHECK(lates > 5 * SEEDS);
    CHECK(several > SEEDS / 10);
    CHECK(unclear > SEEDS / 10);
    CHECK(clear > 0);
    free(world);
}

TEST(nobody_waits_or_nobody_else_is_there)
{
    struct world *world = xcalloc(1, sizeof *world);
    world_open(world, 1);
    ranks_host(&world->ranks);
    CHECK_INT(world->ranks.late_count, 0);
    put_row(world, 0);
    put_wait(world, 0, 100 * UNIT_NS);
    ranks_host(&world->ranks);
    CHECK_INT(world->ranks.late_count, 0);
    put_row(world, 0);
    put_row(world, 0);
    put_row(world, 0);
    ranks_host(&world->ranks); // three of four did not wait: nobody is late
    CHECK_INT(world->ranks.late_count, 0);
    ranks_free(&world->ranks);
    free(world);
}

TEST(of_those_who_come_last_together_it_is_the_first)
{
    struct world *world = xcalloc(1, sizeof *world);
    world_open(world, 1);
    for (int i = 0; i < 4; i++) {
        put_row(world, 0);
        put_wait(world, i == 1 || i == 2 ? 60 * UNIT_NS : i * UNIT_NS, 100 * UNIT_NS);
    }
    ranks_host(&world->ranks);
    CHECK_INT(world->ranks.late_count, 2); // ranks 1 and 2 wait for nobody
    for (size_t i = 0; i < world->ranks.late_count; i++) {
        CHECK_INT(world->ranks.lates[i].waiter, i ? 3 : 0);
        CHECK_INT(world->ranks.lates[i].last, 1);
        CHECK_INT(world->ranks.lates[i].end, 60 * UNIT_NS);
    }
    ranks_free(&world->ranks);
    free(world);
}

// Rank 5 does not wait in the first steps, and neither does rank 9 in the others, in which both are
// late.
TEST(many_ranks)
{
    struct world *world = xcalloc(1, sizeof *world);
    size_t of_5 = 0, of_9 = 0;
    world_open(world, 1);
    for (int i = 0; i < MANY; i++) {
        put_row(world, 0);
        for (int step = 0; step < STEPS; step++)
            if (i != 5 && (i != 9 || step < STEPS / 2))
                put_wait(world, (int64_t)step * 400 * UNIT_NS + i,
                        (int64_t)(step * 400 + 200) * UNIT_NS + i % 7);
    }
    ranks_host(&world->ranks);
    for (size_t i = 0; i < world->ranks.late_count; i++) {
        of_5 += world->ranks.lates[i].last == 5;
        of_9 += world->ranks.lates[i].last == 9;
    }
    CHECK_INT(of_5, STEPS / 2 * (MANY - 1) + STEPS / 2 * (MANY - 2));
    CHECK_INT(of_9, STEPS / 2 * (MANY - 2));
    CHECK_INT(world->ranks.late_count, of_5 + of_9);
    ranks_free(&world->ranks);
    free(world);
}
