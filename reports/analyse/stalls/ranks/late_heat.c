// SPDX-License-Identifier: Apache-2.0
// Who is late when, as it is told: a row a rank; of many ranks two of each group, the one in the
// middle and the worst one. Reads the shares of late_ranks.c; all that is told lies in the trace's
// arena.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "reports/analyse/quantile.h"
#include "reports/analyse/stalls/ranks/ranks.h"

enum {
    HEAT_ROWS_MAX = 64, // of a map that people read
    HEAT_GROUPS_MAX = HEAT_ROWS_MAX / 2,
};

struct heat_rank {
    uint32_t row, node;
    size_t group;
    double sum; // of its shares
};

struct heat {
    const struct ranks *ranks;
    const struct late_ranks *stragglers;
    const char *host;
    struct stall_heat *told;
    size_t worst; // row of the worst cell
};

static const double *heat_shares(const struct heat *heat, size_t row)
{
    return heat->stragglers->shares + row * LATE_BLOCKS;
}

static struct stall_heat_row heat_row(const struct heat *heat, size_t index, size_t of, bool worst)
{
    const struct trace *trace = heat->ranks->trace;
    const struct rank_row *row = &heat->ranks->rows[index];
    const char *host = trace_host_of(trace, row->process);
    double *shares = arena_alloc(trace->arena, LATE_BLOCKS, sizeof *shares);
    memcpy(shares, heat_shares(heat, index), LATE_BLOCKS * sizeof *shares);
    return (struct stall_heat_row){.rank = row->rank,
            .pid = trace->processes[row->process].tgid,
            .host = host ? host : heat->host,
            .gpu = late_gpu(heat->ranks, (uint32_t)index),
            .of = of,
            .worst = worst,
            .shares = shares,
            .mean = quantile_mean(shares, LATE_BLOCKS)};
}

// Those of whom it is known.
static size_t heat_collect(const struct heat *heat, struct heat_rank *list)
{
    const struct ranks *ranks = heat->ranks;
    size_t count = 0;
    for (size_t i = 0; i < ranks->row_count; i++) {
        double sum = 0;
        for (size_t b = 0; b < LATE_BLOCKS; b++)
            sum += heat_shares(heat, i)[b];
        if (isfinite(sum))
            list[count++] = (struct heat_rank){
                    .row = (uint32_t)i, .node = ranks_node_of(ranks, i), .sum = sum};
    }
    return count;
}

static void heat_find_worst(struct heat *heat, const struct heat_rank *list, size_t count)
{
    size_t worst = list[0].row, block = 0;
    for (size_t i = 0; i < count; i++)
        for (size_t b = 0; b < LATE_BLOCKS; b++)
            if (heat_shares(heat, list[i].row)[b] > heat_shares(heat, worst)[block]) {
                worst = list[i].row;
                block = b;
            }
    heat->worst = worst;
    heat->told->worst = heat_row(heat, worst, 1, true);
    heat->told->worst_block = block;
}

static int heat_by_node(const void *left, const void *right)
{
    const struct heat_rank *a = left, *b = right;
    return trace_order(a->node, b->node) ?: trace_order(a->row, b->row);
}

static int heat_by_sum(const void *left, const void *right)
{
    const struct heat_rank *a = left, *b = right;
    if (a->sum != b->sum)
        return a->sum < b->sum ? -1 : 1;
    return trace_order(a->row, b->row);
}

// A group is a node; where there are more nodes than groups, several of them; of one node so many
// neighbours.
static void heat_group(struct heat_rank *list, size_t count)
{
    size_t nodes = 1, node = 0;
    qsort(list, count, sizeof *list, heat_by_node);
    for (size_t i = 1; i < count; i++)
        nodes += list[i].node != list[i - 1].node;
    for (size_t i = 0; i < count; i++) {
        node += i && list[i].node != list[i - 1].node;
        list[i].group = nodes == 1        ? i * HEAT_GROUPS_MAX / count
                : nodes > HEAT_GROUPS_MAX ? node * HEAT_GROUPS_MAX / nodes
                                          : node;
    }
}

// The one of the worst cell, which is named, stands for the worst of its group.
static void heat_put_last(const struct heat *heat, struct heat_rank *list, size_t count)
{
    for (size_t i = 0; i + 1 < count; i++)
        if (list[i].row == heat->worst) {
            struct heat_rank own = list[i];
            list[i] = list[count - 1];
            list[count - 1] = own;
        }
}

static void heat_tell(const struct heat *heat, struct heat_rank *list, size_t count)
{
    struct stall_heat *told = heat->told;
    for (size_t first = 0, end; first < count; first = end) {
        for (end = first + 1; end < count && list[end].group == list[first].group; end++)
            ;
        size_t of = end - first;
        qsort(list + first, of, sizeof *list, heat_by_sum);
        uint32_t median = list[first + (of - 1) / 2].row;
        heat_put_last(heat, list + first, of);
        if (of > 1)
            told->rows[told->row_count++] = heat_row(heat, median, of, false);
        told->rows[told->row_count++] = heat_row(heat, list[end - 1].row, of, true);
    }
}

void late_heat(const struct ranks *ranks, const struct late_ranks *stragglers, int64_t begin,
        int64_t end, const char *host, struct stall_heat *ret_heat)
{
    *ret_heat = (struct stall_heat){0};
    if (!stragglers->shares)
        return;
    struct heat heat = {.ranks = ranks, .stragglers = stragglers, .host = host, .told = ret_heat};
    struct heat_rank *list = xcalloc(ranks->row_count, sizeof *list);
    size_t count = heat_collect(&heat, list);
    if (count > 1) { // one alone is compared with nobody
        ret_heat->blocks = LATE_BLOCKS;
        ret_heat->begin_ns = begin;
        ret_heat->end_ns = end;
        ret_heat->by_work = ranks->by_work;
        ret_heat->ranks = count;
        ret_heat->unknown = ranks->row_count - count;
        ret_heat->rows = arena_alloc(ranks->trace->arena, HEAT_ROWS_MAX, sizeof *ret_heat->rows);
        heat_find_worst(&heat, list, count);
        for (size_t i = 0; i < count; i++)
            list[i].group = i;
        if (count > HEAT_ROWS_MAX)
            heat_group(list, count);
        heat_tell(&heat, list, count);
    }
    free(list);
}
