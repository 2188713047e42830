// SPDX-License-Identifier: Apache-2.0
// Which rank is late beyond chance. In a clean run each rank is waited for now and then, and about as long as the others; how much
// that varies is measured on the recording itself: the window is cut into blocks, in each of them the time for which a rank was
// waited for is set against the others' mean, and a rank is named when the mean over the blocks is several of its standard errors.
// What others took from a rank's thread, by turns on its CPU, is no fault of the rank's, unless neighbours that are there all the time
// took most of it. One cause of its own that explains its lateness, such as a disk, is evidence enough, however seldom it strikes.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/containers/search.h"
#include "common/containers/vector.h"
#include "common/strings.h"
#include "reports/analyse/stalls/ranks.h"

// Student's t with 23 degrees of freedom exceeds 4 with probability 0.0003: of 8 ranks one is named by chance in 420 clean recordings.
static const double late_errors = 4;
static const double late_share = 0.01;     // of the window: what costs less is not worth a line
// A neighbour is there all the time who takes turns in half of the blocks. Beside clean jobs of two ranks on two CPUs, with this project's
// tests and three programs that never sleep, one of those was in 14, but had a sixth of the turns: where the job's own ranks share a CPU,
// all neighbours together have less than half.
enum { LATE_STEADY_BLOCKS = LATE_BLOCKS / 2 };

struct late_row { // of a rank
    struct trace_window *spans;
    uint32_t *waiters; // of each span the row that waited first
    size_t span_count, waiter_count;
    double late[LATE_BLOCKS], taken[LATE_BLOCKS]; // waited for; of it by turns of others on its CPU
    double late_ns;
};

struct late_turns { // of a process, on the CPU that a rank waited for
    int64_t ns;
    uint32_t blocks; // a bit for each
};

struct late_search {
    const struct ranks *ranks;
    const struct work *work;
    int64_t begin, end;
    struct late_row *rows;
    bool crowded;
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
        if (before && begin == before->end) {
            before->end = end;
        } else {
            vector_push(row->spans, row->span_count, ((struct trace_window){begin, end}));
            vector_push(row->waiters, row->waiter_count, late->waiter);
        }
    }
}

static void late_spread(const struct late_search *search, int64_t begin, int64_t end, double share, double *blocks)
{
    double length = (double)(search->end - search->begin) / LATE_BLOCKS;
    for (int i = (int)((double)(begin - search->begin) / length); i < LATE_BLOCKS && i >= 0; i++) {
        int64_t from = search->begin + (int64_t)(length * i), to = search->begin + (int64_t)(length * (i + 1));
        if (from >= end)
            break;
        blocks[i] += share * (double)parts_overlap(begin, end, from, to);
    }
}

static int late_block(const struct late_search *search, int64_t at)
{
    int block = (int)((double)(at - search->begin) * LATE_BLOCKS / (double)(search->end - search->begin));
    return block < 0 ? 0 : block < LATE_BLOCKS ? block : LATE_BLOCKS - 1;
}

// When both were last let go by a collective before `at`; `at`: that is not known.
static int64_t late_parted(const struct late_search *search, size_t index, uint32_t waiter, int64_t at)
{
    const struct ranks *ranks = search->ranks;
    const struct rank_row *both[] = {&ranks->rows[index], &ranks->rows[waiter]};
    int64_t parted = INT64_MIN;
    for (size_t i = 0; i < 2 && !ranks->nccl; i++) {
        const struct trace_window *waits = ranks->waits + both[i]->wait_first;
        size_t next = search_first(middle, both[i]->wait_count, waits[middle].end > at);
        if (next && waits[next - 1].end > parted)
            parted = waits[next - 1].end;
    }
    return parted < search->begin ? at : parted;
}

// For how long the rank waited for a CPU in [begin, end). by: of each process the turns that it had of that; NULL ok.
static int64_t late_queued(const struct late_search *search, size_t index, int64_t begin, int64_t end, struct late_turns *by)
{
    const struct work *work = search->work;
    int64_t queued = 0;
    uint32_t last, first = parts_range(work, search->ranks->rows[index].thread, begin, end, &last);
    for (uint32_t k = first; k < last; k++) {
        const struct part *part = &work->parts[k];
        int64_t ns = part->cause == CAUSE_CPU_CONTENTION ? parts_overlap(part->begin, part->end, begin, end) : 0;
        queued += ns;
        if (!ns || !by || part->culprit == TRACE_NONE)
            continue;
        struct late_turns *one = &by[work->trace->threads[part->culprit].process];
        one->ns += ns;
        one->blocks |= 1U << late_block(search, part->begin > begin ? part->begin : begin);
    }
    return queued;
}

// A span goes into its blocks, and what others took of it from the rank: the turns that it waited for a CPU since the last collective,
// also before anybody waited for it, beyond those of who came first.
static void late_blocks(struct late_search *search, size_t index)
{
    struct late_row *row = &search->rows[index];
    for (size_t i = 0; i < row->span_count; i++) {
        const struct trace_window *span = &row->spans[i];
        int64_t parted = late_parted(search, index, row->waiters[i], span->begin);
        double length = (double)(span->end - span->begin);
        double taken = (double)(late_queued(search, index, parted, span->end, NULL) -
                                late_queued(search, row->waiters[i], parted, span->begin, NULL));
        late_spread(search, span->begin, span->end, 1, row->late);
        if (taken > 0)
            late_spread(search, span->begin, span->end, taken < length ? taken / length : 1, row->taken);
        row->late_ns += length;
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

// Does every rank lose turns to other ranks? Then there are more of them than CPUs, and who goes second is late: that is no fault of either.
static bool late_crowded(const struct late_search *search)
{
    const struct ranks *ranks = search->ranks;
    struct late_turns *by = xcalloc(search->work->trace->process_count + 1, sizeof *by);
    bool crowded = true;
    for (size_t i = 0; i < ranks->row_count && crowded; i++) {
        int64_t lost = 0;
        memset(by, 0, search->work->trace->process_count * sizeof *by);
        late_queued(search, i, search->begin, search->end, by);
        for (size_t k = 0; k < ranks->row_count; k++)
            lost += k == i ? 0 : by[ranks->rows[k].process].ns;
        crowded = (double)lost >= late_share * (double)(search->end - search->begin);
    }
    free(by);
    return crowded;
}

static bool late_has_neighbour(const struct late_search *search, size_t index)
{
    const struct late_row *row = &search->rows[index];
    const struct ranks *ranks = search->ranks;
    size_t count = search->work->trace->process_count;
    struct late_turns *by = xcalloc(count + 1, sizeof *by);
    int64_t queued = 0, steady = 0;
    for (size_t i = 0; i < row->span_count; i++)
        queued += late_queued(search, index, late_parted(search, index, row->waiters[i], row->spans[i].begin), row->spans[i].end, by);
    by[ranks->rows[index].process].blocks = 0;
    for (size_t i = 0; i < ranks->row_count && search->crowded; i++)
        by[ranks->rows[i].process].blocks = 0;
    for (size_t i = 0; i < count; i++)
        steady += __builtin_popcount(by[i].blocks) >= LATE_STEADY_BLOCKS ? by[i].ns : 0;
    free(by);
    return steady > 0 && steady * 2 >= queued;
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
    bool neighbours = errors_all >= late_errors && late_has_neighbour(search, index);
    if (one.unfounded || (!often && !neighbours && !late_explained(&one)))
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
    search.crowded = late_crowded(&search);
    for (size_t i = 0; i < ranks->row_count; i++)
        late_judge(&search, i, ret_late);
    if (ret_late->count)
        qsort(ret_late->list, ret_late->count, sizeof *ret_late->list, late_by_cost);
    for (size_t i = 0; i < ranks->row_count; i++) {
        free(search.rows[i].spans);
        free(search.rows[i].waiters);
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
