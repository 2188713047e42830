// SPDX-License-Identifier: Apache-2.0
// Which rank the others wait for. A collective ends on every rank soon after the last one has come
// to it, so a rank that is late costs all of them the same; who is late is told by NCCL's rows,
// which have the same sequence number on each rank. Why: what that rank's host did from its arrival
// at the collective before until this one, against what the others did meanwhile; when its host was
// in time and its kernel was not, what its device did. Without NCCL, host_path has named the rank
// that was waited for. Reads a launch and its tree, writes names into the tree; one owner thread.
#include <stdlib.h>
#include <string.h>

#include "common/containers/search.h"
#include "common/containers/sort.h"
#include "common/strings.h"
#include "reports/analyse/diff/explain/stragglers.h"
#include "reports/analyse/diff/path/host_path.h"
#include "reports/analyse/names/names.h"

enum { CASES_MAX = 200 }; // collectives looked at for the reason

static int by_time(const void *left, const void *right)
{
    const struct arrival *a = left, *b = right;
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    if (a->enqueued != b->enqueued)
        return a->enqueued < b->enqueued ? -1 : 1;
    return (a->sequence > b->sequence) - (a->sequence < b->sequence);
}

// Of the rank's windows, which one it was in; SIZE_MAX: in none.
static size_t window_of(const struct launch_trace *trace, uint32_t rank, int64_t at)
{
    const struct launch_rank *here = &trace->ranks[rank];
    size_t end = (size_t)here->window_first + here->window_count;
    size_t i = search_between(middle, here->window_first, end, trace->windows[middle].end > at);
    return i < end && trace->windows[i].begin <= at ? i - here->window_first : SIZE_MAX;
}

static void arrivals_load(struct search *search)
{
    const struct launch_trace *trace = search->trace;
    // when the kernels began: on every rank, or by the calls on every rank
    bool told = trace->nccl_count > 0;
    for (size_t i = 0; i < trace->nccl_count; i++)
        told &= trace->nccl[i].rank >= trace->rank_count || trace->nccl[i].kernel_begin > 0;
    search->told = told;
    search->arrivals = xcalloc(trace->nccl_count + 1, sizeof *search->arrivals);
    for (size_t i = 0; i < trace->nccl_count; i++) {
        const struct launch_nccl *row = &trace->nccl[i];
        if (row->rank >= trace->rank_count || row->ranks < 2)
            continue;
        search->arrivals[search->arrival_count++] =
                (struct arrival){.communicator = row->communicator,
                        .sequence = row->sequence,
                        .rank = row->rank,
                        .enqueued = row->enqueued,
                        .at = told ? row->kernel_begin : row->enqueued,
                        .begin = row->kernel_begin,
                        .end = row->kernel_end};
    }
    qsort(search->arrivals, search->arrival_count, sizeof *search->arrivals, by_time);
    for (size_t i = 0; i < search->arrival_count; i++) {
        struct arrival *arrival = &search->arrivals[i];
        bool same = i && arrival[-1].rank == arrival->rank;
        arrival->before = same ? arrival[-1].enqueued : arrival->enqueued;
    }
    sort_in_place(search->arrivals, search->arrival_count, x, y,
            x->communicator != y->communicator   ? x->communicator < y->communicator
                    : x->sequence != y->sequence ? x->sequence < y->sequence
                    : x->at != y->at             ? x->at < y->at
                                                 : x->rank < y->rank);
}

// Collectives that each of their ranks has one row of, inside of a window.
static void lates_find(struct search *search)
{
    const struct launch_trace *trace = search->trace;
    search->lates = xcalloc(search->arrival_count + 1, sizeof *search->lates);
    for (size_t first = 0, end; first < search->arrival_count; first = end) {
        const struct arrival *row = &search->arrivals[first];
        int64_t wait = 0;
        for (end = first; end < search->arrival_count; end++)
            if (search->arrivals[end].communicator != row->communicator ||
                    search->arrivals[end].sequence != row->sequence)
                break;
        const struct arrival *last = &search->arrivals[end - 1];
        size_t window = window_of(trace, last->rank, last->at);
        bool whole = end - first >= 2 && window != SIZE_MAX;
        for (size_t i = first; i < end && whole; i++) {
            wait += last->at - search->arrivals[i].at;
            for (size_t j = i + 1; j < end && whole; j++)
                // sequence numbers of one rank repeat: another launch
                whole = search->arrivals[j].rank != search->arrivals[i].rank;
        }
        if (whole)
            search->lates[search->late_count++] = (struct late){.first = first,
                    .count = end - first,
                    .late_ns = last->at - last[-1].at,
                    .wait_ns = wait / (int64_t)(end - first - 1),
                    .window = (uint32_t)window};
    }
}

// --- why

struct deed { // something done by the late rank, beyond what the others did
    enum diff_deed kind;
    const char *name, *raw; // short, as in the trace
    int64_t ns;
};

static void deed_take(struct deed *best, struct cost_tree *tree, enum diff_deed kind,
        const char *name, int64_t ns)
{
    char label[NAMES_LENGTH_MAX] = "";
    if (ns <= best->ns)
        return;
    names_label(name, label, sizeof label, NAMES_LENGTH_MAX - 1);
    *best = (struct deed){.kind = kind,
            .name = cost_tree_text(tree, label),
            .raw = cost_tree_text(tree, name),
            .ns = ns};
}

static enum diff_deed deed_of(enum cost_kind kind)
{
    return kind == COST_FUNCTION ? DIFF_DEED_FUNCTION
            : kind == COST_STALL ? DIFF_DEED_STALL
                                 : DIFF_DEED_HOST;
}

struct total { // by kind and name, over all places
    const char *name;
    int64_t late, others;
    uint8_t kind;
};

static int by_name(const void *left, const void *right)
{
    const struct total *a = left, *b = right;
    return a->kind != b->kind ? (a->kind < b->kind ? -1 : 1) : strcmp(a->name, b->name);
}

// Window 0 of the tree is the late rank's, 1 the others'.
static void host_compare(
        struct cost_tree *scratch, int64_t others, struct deed *best, struct cost_tree *tree)
{
    struct total *totals = xcalloc(scratch->node_count + 1, sizeof *totals);
    for (size_t i = 0; i < scratch->row_count; i++) {
        const struct cost_row *row = &scratch->rows[i];
        const struct cost_node *node = &scratch->nodes[row->node];
        totals[row->node].name = node->name;
        totals[row->node].kind = node->kind;
        *(row->window ? &totals[row->node].others : &totals[row->node].late) += row->ns;
    }
    size_t count = 0;
    for (size_t i = 0; i < scratch->node_count; i++)
        if (totals[i].name)
            totals[count++] = totals[i];
    qsort(totals, count, sizeof *totals, by_name);
    for (size_t i = 0; i < count;) {
        struct total sum = totals[i];
        for (i++; i < count && !by_name(&sum, &totals[i]); i++) {
            sum.late += totals[i].late;
            sum.others += totals[i].others;
        }
        // waits are no cause of their own
        if (sum.kind != COST_GAP && sum.kind != COST_SYNC && sum.kind != COST_COLLECTIVE)
            deed_take(best, tree, deed_of(sum.kind), sum.name, sum.late - sum.others / others);
    }
    free(totals);
}

static int64_t overlap(int64_t a_begin, int64_t a_end, int64_t b_begin, int64_t b_end)
{
    int64_t begin = a_begin > b_begin ? a_begin : b_begin, end = a_end < b_end ? a_end : b_end;
    return end > begin ? end - begin : 0;
}

// Busy time of each kernel of a rank in [begin, end), times `weight` into sums.
static void device_add(const struct launch_trace *trace, uint32_t rank, int64_t begin, int64_t end,
        double weight, double *sums)
{
    // ops last far less than 10 ms; what began before that is left out
    int64_t from = begin - 10000000;
    for (size_t i = search_first(middle, trace->op_count, trace->ops[middle].start >= from);
            i < trace->op_count && trace->ops[i].start < end; i++) {
        const struct launch_op *op = &trace->ops[i];
        const struct launch_work *work = &trace->works[op->work];
        if (work->rank == rank && work->kernel < trace->kernel_count &&
                !trace->kernels[work->kernel].comm)
            sums[work->kernel] +=
                    weight * (double)overlap(op->start, op->start + op->dur, begin, end);
    }
}

static void call_add(const struct launch_trace *trace, const struct arrival *arrival,
        struct deed *best, struct cost_tree *tree)
{
    int64_t from = arrival->before - 100000000; // longer ones than 100 ms are left out
    for (size_t i = search_first(middle, trace->call_count, trace->calls[middle].begin >= from);
            i < trace->call_count && trace->calls[i].begin < arrival->enqueued; i++)
        if (trace->calls[i].rank == arrival->rank && trace->calls[i].name)
            deed_take(best, tree, DIFF_DEED_CALL, trace->calls[i].name,
                    overlap(trace->calls[i].begin, trace->calls[i].end, arrival->before,
                            arrival->enqueued));
}

// What the rank did in the collectives that it was last to, at most CASES_MAX of them, spread over
// the launch; longer than the others by ns, over all of these collectives.
static struct deed why(struct search *search, uint32_t rank, int64_t count, struct cost_tree *tree)
{
    const struct launch_trace *trace = search->trace;
    struct cost_tree *scratch = cost_tree_new();
    struct host_path *host = host_path_new(trace, scratch);
    double *sums = xcalloc(trace->kernel_count + 1, sizeof *sums);
    int64_t others = 1, seen = 0, looked = 0, every = 1 + (count - 1) / CASES_MAX, host_late = 0,
            late = 0;
    struct deed best = {0};
    for (uint32_t i = 0; i < 2; i++)
        cost_tree_window(scratch,
                &(struct cost_window){.pair = trace->pair, .couple = -1, .rank = i, .steps = 1});
    for (size_t i = 0; i < search->late_count; i++) {
        const struct arrival *rows = &search->arrivals[search->lates[i].first];
        size_t n = search->lates[i].count;
        if (rows[n - 1].rank != rank || seen++ % every)
            continue;
        int64_t next = INT64_MIN; // of the others, who was enqueued last
        for (size_t k = 0; k < n; k++) {
            if (trace->host)
                host_path_add(host, rows[k].rank, rows[k].before, rows[k].enqueued, COST_HOST_RUN,
                        k + 1 < n);
            device_add(trace, rows[k].rank, rows[k].before, rows[k].at,
                    k + 1 < n ? -1.0 / (double)(n - 1) : 1.0, sums);
            next = k + 1 < n && rows[k].enqueued > next ? rows[k].enqueued : next;
        }
        looked++;
        others = (int64_t)n - 1;
        late += search->lates[i].late_ns;
        host_late += rows[n - 1].enqueued > next ? rows[n - 1].enqueued - next : 0;
    }
    if (host_late * 2 >= late) {
        host_compare(scratch, others, &best, tree);
        seen = 0;
        // no host side: at least its calls
        for (size_t i = 0; i < search->late_count && !trace->host; i++) {
            const struct arrival *rows = &search->arrivals[search->lates[i].first];
            if (rows[search->lates[i].count - 1].rank == rank && !(seen++ % every))
                call_add(trace, &rows[search->lates[i].count - 1], &best, tree);
        }
    } else {
        for (size_t i = 0; i < trace->kernel_count; i++)
            deed_take(&best, tree, DIFF_DEED_KERNEL,
                    trace->kernels[i].name ? trace->kernels[i].name : "?", (int64_t)sums[i]);
    }
    host_path_free(host);
    cost_tree_free(scratch);
    free(sums);
    // of calls: one alone
    best.ns = looked && (host_late * 2 < late || trace->host) ? best.ns / looked * count : 0;
    return best;
}

// --- without NCCL

// What the rank's host did more than the others' in the same steps, at most CASES_MAX windows of
// each.
static struct deed why_by_windows(
        const struct launch_trace *trace, uint32_t rank, struct cost_tree *tree)
{
    struct cost_tree *scratch = cost_tree_new();
    struct host_path *host = host_path_new(trace, scratch);
    struct deed best = {0};
    int64_t looked = 0, steps = 0; // of the rank: looked at, and all
    for (uint32_t i = 0; i < 2; i++)
        cost_tree_window(scratch,
                &(struct cost_window){.pair = trace->pair, .couple = -1, .rank = i, .steps = 1});
    for (uint32_t i = 0; i < trace->ranks[rank].window_count; i++)
        steps += trace->windows[trace->ranks[rank].window_first + i].steps;
    for (uint32_t k = 0; k < trace->rank_count; k++) {
        uint32_t every = 1 + trace->ranks[k].window_count / CASES_MAX;
        for (uint32_t i = 0; i < trace->ranks[k].window_count; i += every) {
            const struct launch_window *window = &trace->windows[trace->ranks[k].window_first + i];
            host_path_add(host, k, window->begin, window->end, COST_HOST_RUN, k != rank);
            looked += k == rank ? window->steps : 0;
        }
    }
    host_compare(scratch, (int64_t)trace->rank_count - 1, &best, tree);
    host_path_free(host);
    cost_tree_free(scratch);
    best.ns = looked ? best.ns / looked * steps : 0;
    return best;
}

size_t stragglers_find(const struct launch_trace *trace, struct cost_tree *tree, bool reasons,
        struct straggler *ret, size_t max)
{
    struct search search = {.trace = trace};
    size_t count = 0;
    if (trace->rank_count < 2 || !max)
        return 0;
    struct straggler *all = xcalloc(trace->rank_count, sizeof *all);
    search.steps = xcalloc(trace->rank_count, sizeof *search.steps);
    for (size_t i = 0; i < trace->window_count; i++)
        if (trace->windows[i].rank < trace->rank_count)
            search.steps[trace->windows[i].rank] += trace->windows[i].steps;
    arrivals_load(&search);
    lates_find(&search);
    stragglers_exposed(&search);
    // who is only counted counts as well where it never came last
    if (stragglers_sum(&search, tree, all))
        for (; count < max && count < trace->rank_count && (all[count].last_count || !reasons);
                count++) {
            ret[count] = all[count];
            uint32_t rank = ret[count].rank;
            if (!reasons || ret[count].excess <= 0)
                continue; // it comes last no more often than the others: what it did then is no
                          // reason for anything
            struct deed did = search.late_count ? why(&search, rank, ret[count].last_count, tree)
                    : trace->host               ? why_by_windows(trace, rank, tree)
                                                : (struct deed){0};
            ret[count].deed = did.kind;
            ret[count].why = did.name;
            ret[count].why_name = did.raw;
            ret[count].why_ns_step = did.ns / (search.steps[rank] ? search.steps[rank] : 1);
        }
    free(search.arrivals);
    free(search.lates);
    free(search.steps);
    free(all);
    return count;
}
