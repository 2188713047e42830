// SPDX-License-Identifier: Apache-2.0
// Which rank is late beyond chance. In a clean run each rank is waited for now and then, and about as long as the others; how much
// that varies is measured on the recording itself: the window is cut into blocks, in each of them the time for which a rank was
// waited for is set against the others' mean, and a rank is named when the mean over the blocks is several of its standard errors.
// What the machine's neighbours took from a rank's thread is no fault of the rank's, unless one of them is there all the time. One
// cause of its own that explains its lateness, such as a disk, is evidence enough, however seldom it strikes.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/search.h"
#include "common/strings.h"
#include "common/vector.h"
#include "reports/analyse/stalls/ranks.h"

// Student's t with 23 degrees of freedom exceeds 4 with probability 0.0003: of 8 ranks one is named by chance in 420 clean recordings.
static const double late_errors = 4;
static const double late_share = 0.01;     // of the window: what costs less is not worth a line
// A neighbour is a reason where it takes turns in half of the blocks: who passes by is in fewer. Beside a clean job of two ranks on two
// CPUs, with a test suite, a build and a program that never sleeps, nobody was in more than 7 of 24.
enum { LATE_STEADY_BLOCKS = LATE_BLOCKS / 2 };

struct late_row { // of a rank
    struct trace_window *spans;
    size_t span_count;
    double late[LATE_BLOCKS], taken[LATE_BLOCKS]; // waited for; of it off the CPU for others
    double late_ns;
    uint32_t *taken_by; // of each process a bit for each block in which it had the CPU meanwhile
};

struct late_search {
    const struct ranks *ranks;
    const struct work *work;
    int64_t begin, end;
    struct late_row *rows;
};

static void late_spans(struct late_search *search)
{
    const struct ranks *ranks = search->ranks;
    for (size_t i = 0; i < ranks->late_count; i++) {
        const struct rank_late *late = &ranks->lates[i];
        struct late_row *row = &search->rows[late->last];
        int64_t begin = late->begin > search->begin ? late->begin : search->begin;
        int64_t end = late->end < search->end ? late->end : search->end;
        struct trace_window *before = row->span_count ? &row->spans[row->span_count - 1] : NULL;
        if (before && begin < before->end)
            begin = before->end;
        if (begin >= end)
            continue;
        if (before && begin == before->end)
            before->end = end;
        else
            vector_push(row->spans, row->span_count, ((struct trace_window){begin, end}));
    }
}

static void late_spread(const struct late_search *search, int64_t begin, int64_t end, double *blocks)
{
    double length = (double)(search->end - search->begin) / LATE_BLOCKS;
    for (int i = (int)((double)(begin - search->begin) / length); i < LATE_BLOCKS && i >= 0; i++) {
        int64_t from = search->begin + (int64_t)(length * i), to = search->begin + (int64_t)(length * (i + 1));
        if (from >= end)
            break;
        blocks[i] += (double)parts_overlap(begin, end, from, to);
    }
}

static int late_block(const struct late_search *search, int64_t at)
{
    int block = (int)((double)(at - search->begin) * LATE_BLOCKS / (double)(search->end - search->begin));
    return block < 0 ? 0 : block < LATE_BLOCKS ? block : LATE_BLOCKS - 1;
}

// A span goes into its blocks, and what others took of it from the rank's thread.
static void late_blocks(struct late_search *search, size_t index)
{
    const struct work *work = search->work;
    struct late_row *row = &search->rows[index];
    uint32_t thread = search->ranks->rows[index].thread;
    row->taken_by = xcalloc(work->trace->process_count + 1, sizeof *row->taken_by);
    for (size_t i = 0; i < row->span_count; i++) {
        const struct trace_window *span = &row->spans[i];
        late_spread(search, span->begin, span->end, row->late);
        row->late_ns += (double)(span->end - span->begin);
        uint32_t last, first = parts_range(work, thread, span->begin, span->end, &last);
        for (uint32_t k = first; k < last; k++) {
            const struct part *part = &work->parts[k];
            int64_t begin = part->begin > span->begin ? part->begin : span->begin;
            int64_t end = part->end < span->end ? part->end : span->end;
            if (part->cause != CAUSE_CPU_CONTENTION || begin >= end)
                continue;
            late_spread(search, begin, end, row->taken);
            if (part->culprit != TRACE_NONE)
                row->taken_by[work->trace->threads[part->culprit].process] |= 1U << late_block(search, begin);
        }
    }
}

// How many standard errors a rank is waited for longer than the others in the mean. own: without what neighbours took.
static double late_test(const struct late_search *search, size_t index, bool own, double *ret_excess)
{
    size_t count = search->ranks->row_count;
    double sum = 0, squares = 0;
    for (int b = 0; b < LATE_BLOCKS; b++) {
        double mine = 0, others = 0;
        for (size_t i = 0; i < count; i++) {
            double one = search->rows[i].late[b] - (own ? search->rows[i].taken[b] : 0);
            *(i == index ? &mine : &others) += one > 0 ? one : 0;
        }
        double more = mine - others / (double)(count - 1);
        sum += more;
        squares += more * more;
    }
    double mean = sum / LATE_BLOCKS, variance = squares / LATE_BLOCKS - mean * mean;
    double error = sqrt((variance > 0 ? variance : 0) / (LATE_BLOCKS - 1));
    *ret_excess = sum;
    return sum <= 0 ? 0 : error > 0 ? mean / error : INFINITY;
}

// Who waited most for it, and how long all waited together.
static void late_waiters(const struct late_search *search, struct late_rank *one)
{
    const struct ranks *ranks = search->ranks;
    int64_t *waited = xcalloc(ranks->row_count + 1, sizeof *waited);
    int64_t *until = xcalloc(ranks->row_count + 1, sizeof *until);
    for (size_t i = 0; i < ranks->late_count; i++) {
        const struct rank_late *late = &ranks->lates[i];
        if (late->last != one->row)
            continue;
        int64_t begin = late->begin > until[late->waiter] ? late->begin : until[late->waiter];
        int64_t ns = parts_overlap(begin, late->end, search->begin, search->end);
        until[late->waiter] = late->end > until[late->waiter] ? late->end : until[late->waiter];
        waited[late->waiter] += ns;
        one->ranks_ns += ns;
        if (waited[late->waiter] > waited[one->waiter])
            one->waiter = late->waiter;
    }
    free(waited);
    free(until);
}

static int late_by_cost(const void *left, const void *right)
{
    const struct late_rank *a = left, *b = right;
    if (a->total_ns != b->total_ns)
        return a->total_ns > b->total_ns ? -1 : 1;
    return (a->row > b->row) - (a->row < b->row);
}

// Causes that strike by themselves, seldom or often, and need no statistics.
static bool late_explained(const struct late_rank *one)
{
    return one->cause < CAUSE_UNKNOWN && one->cause != CAUSE_CPU_CONTENTION && one->cause != CAUSE_PYTHON_GC &&
           one->deed_ns * 2 >= one->total_ns;
}

static bool late_has_neighbour(const struct late_search *search, const struct late_row *row)
{
    for (size_t i = 0; i < search->work->trace->process_count; i++)
        if (__builtin_popcount(row->taken_by[i]) >= LATE_STEADY_BLOCKS)
            return true;
    return false;
}

static void late_judge(struct late_search *search, size_t index, struct late_ranks *ret)
{
    struct late_row *row = &search->rows[index];
    double window = (double)(search->end - search->begin), least = late_share * window, all, own;
    double errors_all = late_test(search, index, false, &all), errors = late_test(search, index, true, &own);
    if (all < least)
        return;
    struct late_rank one = {.row = (uint32_t)index, .spans = row->spans, .span_count = row->span_count,
                            .total_ns = (int64_t)row->late_ns, .excess_ns = (int64_t)all, .errors = errors,
                            .waiter = index == 0, .cause = CAUSE_COUNT};
    late_why(search->ranks, search->work, search->begin, search->end, &one);
    bool often = errors >= late_errors && own >= least;
    bool neighbours = errors_all >= late_errors && late_has_neighbour(search, row);
    if (!often && !neighbours && !late_explained(&one))
        return;
    if (!often && neighbours)
        one.errors = errors_all;
    row->spans = NULL;
    late_waiters(search, &one);
    vector_push(ret->list, ret->count, one);
}

void late_ranks_find(const struct ranks *ranks, const struct work *work, int64_t begin, int64_t end,
                     struct late_ranks *ret_late)
{
    struct late_search search = {.ranks = ranks, .work = work, .begin = begin, .end = end};
    *ret_late = (struct late_ranks){0};
    if (ranks->row_count < 2 || begin >= end)
        return;
    search.rows = xcalloc(ranks->row_count, sizeof *search.rows);
    late_spans(&search);
    for (size_t i = 0; i < ranks->row_count; i++)
        late_blocks(&search, i);
    for (size_t i = 0; i < ranks->row_count; i++)
        late_judge(&search, i, ret_late);
    if (ret_late->count)
        qsort(ret_late->list, ret_late->count, sizeof *ret_late->list, late_by_cost);
    for (size_t i = 0; i < ranks->row_count; i++) {
        free(search.rows[i].spans);
        free(search.rows[i].taken_by);
    }
    free(search.rows);
}

void late_ranks_free(struct late_ranks *stragglers)
{
    for (size_t i = 0; i < stragglers->count; i++)
        free(stragglers->list[i].spans);
    free(stragglers->list);
    *stragglers = (struct late_ranks){0};
}
