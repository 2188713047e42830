// SPDX-License-Identifier: Apache-2.0
// What the ranks cost that come last, and whether they do so more often than their share. Of two
// equal ranks each comes last to about half of the collectives: only what is beyond that, and
// beyond its spread from window to window, tells a straggler. And the kernel of a collective that
// waits behind other work costs nothing: exposed is the wait in which the device had no other
// kernel. Reads a launch and its tree; one owner thread.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/containers/search.h"
#include "common/containers/sort.h"
#include "common/containers/vector.h"
#include "common/strings.h"
#include "reports/analyse/diff/explain/stragglers.h"

struct busy { // of a rank's device, merged; sum: of those before it
    int64_t begin, end, sum;
};

static bool computes(const struct launch_trace *trace, const struct launch_op *op, uint32_t rank)
{
    const struct launch_work *work = &trace->works[op->work];
    bool comm = work->kernel < trace->kernel_count && trace->kernels[work->kernel].comm;
    return work->rank == rank && work->kind < 16 && !comm;
}

static struct busy *busy_load(const struct launch_trace *trace, uint32_t rank, size_t *ret_count)
{
    size_t count = 0;
    struct busy *all = NULL;
    for (size_t i = 0; i < trace->op_count; i++) {
        const struct launch_op *op = &trace->ops[i];
        int64_t end = op->start + op->dur;
        if (!computes(trace, op, rank))
            continue;
        if (count && op->start <= all[count - 1].end) {
            all[count - 1].end = end > all[count - 1].end ? end : all[count - 1].end;
            continue;
        }
        int64_t sum = count ? all[count - 1].sum + all[count - 1].end - all[count - 1].begin : 0;
        vector_push(all, count, (struct busy){.begin = op->start, .end = end, .sum = sum});
    }
    *ret_count = count;
    return all;
}

// Of the time until `at`, how much was busy.
static int64_t busy_until(const struct busy *all, size_t count, int64_t at)
{
    size_t low = search_first(middle, count, all[middle].begin > at); // the first that begins after
    if (!low)
        return 0;
    const struct busy *last = &all[low - 1];
    return last->sum + (at < last->end ? at : last->end) - last->begin;
}

// Is it known of every rank which of its kernels are communication, and when they began?
static bool exposed_is_known(const struct search *search)
{
    const struct launch_trace *trace = search->trace;
    bool comm = false;
    for (size_t i = 0; i < trace->kernel_count; i++)
        comm |= trace->kernels[i].comm;
    return search->told && comm;
}

void stragglers_exposed(struct search *search)
{
    const struct launch_trace *trace = search->trace;
    bool known = exposed_is_known(search);
    for (size_t i = 0; i < search->late_count && !known; i++)
        search->lates[i].exposed_ns = search->lates[i].wait_ns;
    for (uint32_t rank = 0; rank < trace->rank_count && known && search->late_count; rank++) {
        size_t count;
        struct busy *busy = busy_load(trace, rank, &count);
        for (size_t i = 0; i < search->late_count; i++) {
            struct late *late = &search->lates[i];
            const struct arrival *rows = &search->arrivals[late->first];
            int64_t until = rows[late->count - 1].at, others = (int64_t)late->count - 1;
            for (size_t k = 0; k + 1 < late->count; k++)
                if (rows[k].rank == rank)
                    late->exposed_ns += (until - rows[k].at - busy_until(busy, count, until) +
                                                busy_until(busy, count, rows[k].at)) /
                            others;
        }
        free(busy);
    }
}

// --- how often

struct tally { // of a rank in a window: collectives it came last to, and its share of them
    double last, share;
};

struct tallies {
    struct tally *of; // by rank, then window
    size_t windows;
};

static struct tally *tally_at(const struct tallies *tallies, size_t rank, size_t window)
{
    return &tallies->of[rank * tallies->windows + window];
}

// Windows are independent, collectives of one step are not: the sum's variance is taken from window
// to window. It is never taken to be less than that of as many throws of dice: few windows may
// agree by chance.
static void tallies_sum(
        const struct tallies *tallies, size_t rank, size_t ranks, struct straggler *ret)
{
    double sum = 0, square = 0, share = 0;
    size_t count = 0;
    for (size_t i = 0; i < tallies->windows; i++) {
        const struct tally *tally = tally_at(tallies, rank, i);
        double excess = tally->last - tally->share;
        if (tally->share <= 0)
            continue;
        count++;
        sum += excess;
        square += excess * excess;
        share += tally->share;
    }
    double dice = share * (1 - 1 / (double)ranks);
    double spread = count > 1
            ? (square - sum * sum / (double)count) * (double)count / (double)(count - 1)
            : 0;
    ret->excess = sum;
    ret->variance = fmax(dice, spread);
}

// By the waits in the tree, where NCCL tells nothing: they are on the path.
static size_t by_waits(const struct launch_trace *trace, const struct cost_tree *tree,
        struct straggler *all, const struct tallies *tallies, const uint32_t *ordinal)
{
    size_t found = 0;
    for (size_t i = 0; i < tree->row_count; i++) {
        const struct cost_row *row = &tree->rows[i];
        const struct cost_node *node = &tree->nodes[row->node];
        int32_t rank = node->collective.rank;
        if (!node->collective.waits || rank < 0 || tree->windows[row->window].pair != trace->pair)
            continue;
        for (size_t k = 0; k < trace->rank_count; k++) {
            struct tally *tally = tally_at(tallies, k, ordinal[row->window]);
            tally->share += (double)row->count / (double)trace->rank_count;
            if (trace->ranks[k].rank != rank)
                continue;
            found++;
            tally->last += (double)row->count;
            all[k].wait_ns_step += row->ns;
            all[k].last_count += row->count;
        }
    }
    int64_t waits = 0;
    for (size_t k = 0; k < trace->rank_count; k++)
        waits += all[k].last_count;
    for (size_t k = 0; k < trace->rank_count; k++) {
        all[k].collectives = waits;
        all[k].late_ns_mean = all[k].last_count ? all[k].wait_ns_step / all[k].last_count : 0;
        all[k].wait_ns_step /= trace->rank_count > 1 ? (int64_t)trace->rank_count - 1 : 1;
        all[k].exposed_ns_step = all[k].wait_ns_step;
    }
    return found;
}

static void by_lates(
        const struct search *search, struct straggler *all, const struct tallies *tallies)
{
    for (size_t i = 0; i < search->late_count; i++) {
        const struct late *late = &search->lates[i];
        for (size_t k = 0; k < late->count; k++) {
            uint32_t rank = search->arrivals[late->first + k].rank;
            all[rank].collectives++;
            tally_at(tallies, rank, late->window)->share += 1 / (double)late->count;
        }
        uint32_t rank = search->arrivals[late->first + late->count - 1].rank;
        tally_at(tallies, rank, late->window)->last++;
        all[rank].last_count++;
        all[rank].late_ns_mean += late->late_ns;
        all[rank].wait_ns_step += late->wait_ns;
        all[rank].exposed_ns_step += late->exposed_ns;
    }
}

// Of every window of the tree, the how many-th of its rank in this launch. Returns how many a rank
// has at most.
static size_t ordinals(
        const struct launch_trace *trace, const struct cost_tree *tree, uint32_t *ret)
{
    uint32_t *next = xcalloc(trace->rank_count, sizeof *next);
    size_t most = 1;
    for (size_t i = 0; i < tree->window_count; i++) {
        const struct cost_window *window = &tree->windows[i];
        if (window->pair != trace->pair || window->rank >= trace->rank_count)
            continue;
        ret[i] = next[window->rank]++;
        most = next[window->rank] > most ? next[window->rank] : most;
    }
    free(next);
    for (size_t i = 0; i < trace->rank_count; i++)
        most = trace->ranks[i].window_count > most ? trace->ranks[i].window_count : most;
    return most;
}

bool stragglers_sum(struct search *search, const struct cost_tree *tree, struct straggler *all)
{
    const struct launch_trace *trace = search->trace;
    uint32_t *ordinal = xcalloc(tree->window_count + 1, sizeof *ordinal);
    struct tallies tallies = {.windows = ordinals(trace, tree, ordinal)};
    tallies.of = xcalloc(tallies.windows * trace->rank_count, sizeof *tallies.of);
    bool found = search->late_count || by_waits(trace, tree, all, &tallies, ordinal);
    if (search->late_count)
        by_lates(search, all, &tallies);
    for (uint32_t k = 0; k < trace->rank_count; k++) {
        int64_t steps = search->steps[k] ? search->steps[k] : 1;
        if (search->late_count && all[k].last_count)
            all[k].late_ns_mean /= all[k].last_count;
        all[k].wait_ns_step /= steps;
        all[k].exposed_ns_step /= steps;
        all[k].rank = k;
        tallies_sum(&tallies, k, trace->rank_count, &all[k]);
    }
    free(tallies.of);
    free(ordinal);
    if (found) // worst first
        sort_in_place(all, trace->rank_count, x, y,
                x->wait_ns_step != y->wait_ns_step ? x->wait_ns_step > y->wait_ns_step
                                                   : x->rank < y->rank);
    return found;
}
