// SPDX-License-Identifier: Apache-2.0
// Which rank is late beyond chance. In a clean run each rank is waited for now and then, and about
// as long as the others; how much that varies is measured on the recording itself: the window is
// cut into blocks, in each of them the time for which a rank was waited for is set against the
// others' mean, and a rank is named when the mean over the blocks is several of its standard
// errors. What others took from a rank's thread, by turns on its CPU, is no fault of the rank's,
// unless neighbours that are there all the time took most of it. One cause of its own that explains
// its lateness, such as a disk, is evidence enough, however seldom it strikes. Where nobody is
// late, and all wait all the same, the connections between more than two ranks may tell whose
// messages are (late_network.c). Where ranks are stages of a pipeline, or in groups (ranks_work.c),
// what is compared so is not for how long a rank was waited for, but how long it did something else
// than communicate, with the one in the middle of the others: one stage that has less to do makes
// no late ones of all the rest.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/containers/map.h"
#include "common/containers/search.h"
#include "common/containers/vector.h"
#include "common/strings.h"
#include "reports/analyse/stalls/ranks/ranks.h"

// Student's t with 23 degrees of freedom exceeds 4 with probability 0.0003: of 8 ranks one is named
// by chance in 420 clean recordings.
const double late_rank_errors = 4;
const double late_rank_share = 0.01; // of the window: what costs less is not worth a line
// A neighbour is there all the time who takes turns in half of the blocks. Beside clean jobs of two
// ranks on two CPUs, with this project's tests and three programs that never sleep, one of those
// was in 14, but had a sixth of the turns: where the job's own ranks share a CPU, all neighbours
// together have less than half.
enum { LATE_STEADY_BLOCKS = LATE_BLOCKS / 2 };

enum late_found { // what became of a rank that is waited for
    LATE_LITTLE,  // it costs less than is worth a line, or, by_work, nobody waits for it
    LATE_DOUBTED, // who comes late is not known
    LATE_FOUNDED,
};

struct late_row { // of a rank
    struct trace_window *spans;
    uint32_t *waiters; // of each span the row that waited first
    size_t span_count, waiter_count;
    double late[LATE_BLOCKS], taken[LATE_BLOCKS]; // waited for, or by_work: worked; of it by turns
                                                  // of others on its CPU
    double late_ns;                               // of spans
    double worked;                                // by_work: late, of all blocks
    uint32_t job; // of the rows that are compared with each other; 0: all of them are
    size_t place, job_first, job_count; // by_work, where it is told: in order; of those of its job
    enum late_found found;
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
    uint32_t *order; // by_work: rows that are told, by job and how long they work
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

static void late_spread(
        const struct late_search *search, int64_t begin, int64_t end, double share, double *blocks)
{
    double length = (double)(search->end - search->begin) / LATE_BLOCKS;
    for (int i = (int)((double)(begin - search->begin) / length); i < LATE_BLOCKS && i >= 0; i++) {
        int64_t from = search->begin + (int64_t)(length * i),
                to = search->begin + (int64_t)(length * (i + 1));
        if (from >= end)
            break;
        blocks[i] += share * (double)parts_overlap(begin, end, from, to);
    }
}

static int late_block(const struct late_search *search, int64_t at)
{
    int block = (int)((double)(at - search->begin) * LATE_BLOCKS /
            (double)(search->end - search->begin));
    return block < 0 ? 0 : block < LATE_BLOCKS ? block : LATE_BLOCKS - 1;
}

// When both were last let go by a collective before `at`; `at`: that is not known.
static int64_t late_parted(
        const struct late_search *search, size_t index, uint32_t waiter, int64_t at)
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

// For how long the rank waited for a CPU in [begin, end). by: of each process the turns that it had
// of that; NULL ok.
static int64_t late_queued(const struct late_search *search, size_t index, int64_t begin,
        int64_t end, struct late_turns *by)
{
    const struct work *work = search->work;
    int64_t queued = 0;
    uint32_t last, first = parts_range(work, search->ranks->rows[index].thread, begin, end, &last);
    for (uint32_t k = first; k < last; k++) {
        const struct part *part = &work->parts[k];
        int64_t ns = part->cause == CAUSE_CPU_CONTENTION
                ? parts_overlap(part->begin, part->end, begin, end)
                : 0;
        queued += ns;
        if (!ns || !by || part->culprit == TRACE_NONE)
            continue;
        struct late_turns *one = &by[work->trace->threads[part->culprit].process];
        one->ns += ns;
        one->blocks |= 1U << late_block(search, part->begin > begin ? part->begin : begin);
    }
    return queued;
}

// A span goes into its blocks, and what others took of it from the rank: the turns that it waited
// for a CPU since the last collective, also before anybody waited for it, beyond those of who came
// first.
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
            late_spread(search, span->begin, span->end, taken < length ? taken / length : 1,
                    row->taken);
        row->late_ns += length;
    }
}

// What no wait on the host tells: the time on the CPU in calls that communicate, and waits below
// the threshold. Stages differ in the number of those.
static void late_calls(const struct late_search *search, const struct rank_row *rank, double *held)
{
    const struct trace *trace = search->ranks->trace;
    const struct trace_thread *thread = &trace->threads[rank->thread];
    for (uint32_t i = trace_sample_from(trace, rank->thread, search->begin);
            i < thread->sample_first + thread->sample_count && trace->samples[i].at < search->end;
            i++) {
        const struct trace_sample *sample = &trace->samples[i];
        // in MPI it is a wait
        if (ranks_communicates(trace, sample) &&
                !marks_has(trace_marks(trace, sample->user), MARK_MPI))
            held[late_block(search, sample->at)] += (double)trace->tick_ns;
    }
    for (size_t i = rank->short_first; i < rank->short_first + rank->short_count; i++) {
        const struct trace_gap *gap = &trace->shorts[search->ranks->shorts[i]];
        if (gap->out >= search->begin && gap->in <= search->end && ranks_waits(trace, gap))
            held[late_block(search, gap->out)] += (double)trace->short_ns;
    }
}

// How long the rank did anything but communicate, block by block, and how long of that it waited
// for a CPU.
static void late_work(struct late_search *search, size_t index)
{
    const struct ranks *ranks = search->ranks;
    const struct rank_row *rank = &ranks->rows[index];
    struct late_row *row = &search->rows[index];
    double length = (double)(search->end - search->begin) / LATE_BLOCKS, held[LATE_BLOCKS] = {0};
    for (size_t i = rank->held_first; i < rank->held_first + rank->held_count; i++) {
        const struct trace_window *one = &ranks->held[i];
        int64_t begin = one->begin > search->begin ? one->begin : search->begin,
                end = one->end < search->end ? one->end : search->end;
        if (begin < end)
            late_spread(search, begin, end, rank->held_times, held);
    }
    if (!ranks->nccl)
        late_calls(search, rank, held);
    for (int b = 0; b < LATE_BLOCKS; b++) {
        int64_t from = search->begin + (int64_t)(length * b),
                to = search->begin + (int64_t)(length * (b + 1));
        row->late[b] = length - held[b];
        double queued = (double)late_queued(search, index, from, to, NULL),
               most = row->late[b] > 0 ? row->late[b] : 0;
        row->taken[b] = queued < most ? queued : most;
        row->worked += row->late[b];
    }
}

struct late_pair {      // of ranks of which one waits for the other
    uint32_t low, high; // rows
    int64_t ns;
};

// The lowest row of those that a row is connected with.
static uint32_t late_lowest(struct late_row *rows, uint32_t at)
{
    while (rows[at].job != at) {
        rows[at].job = rows[rows[at].job].job; // half of the way, for who comes next
        at = rows[at].job;
    }
    return at;
}

// Ranks that lose by waiting for each other, directly or over others: only they are compared. Those
// of another job, or of a group that serves other requests, may do anything. With waits on the host
// it is not known who waits for whom.
static void late_connect(struct late_search *search)
{
    const struct ranks *ranks = search->ranks;
    struct late_pair *pairs = NULL;
    struct map by_rows = {0};
    size_t pair_count = 0;
    for (size_t i = 0; i < ranks->late_count; i++) {
        const struct rank_late *late = &ranks->lates[i];
        uint32_t low = late->last < late->waiter ? late->last : late->waiter,
                 high = late->last < late->waiter ? late->waiter : late->last;
        uint32_t *at = map_put(&by_rows, (uint64_t)low << 32 | high);
        if (*at == MAP_NONE) {
            *at = (uint32_t)pair_count;
            vector_push(pairs, pair_count, (struct late_pair){.low = low, .high = high});
        }
        pairs[*at].ns += parts_overlap(late->begin, late->end, search->begin, search->end);
    }
    for (uint32_t i = 0; i < ranks->row_count; i++)
        search->rows[i].job = i;
    for (size_t i = 0; i < pair_count; i++) {
        uint32_t a = late_lowest(search->rows, pairs[i].low),
                 b = late_lowest(search->rows, pairs[i].high);
        if ((double)pairs[i].ns >= late_rank_share * (double)(search->end - search->begin))
            search->rows[a > b ? a : b].job = a < b ? a : b;
    }
    for (uint32_t i = 0; i < ranks->row_count; i++)
        search->rows[i].job = late_lowest(search->rows, i);
    free(pairs);
    map_free(&by_rows);
}

static bool late_told(const struct late_search *search, size_t index)
{
    return !search->ranks->by_work || search->ranks->rows[index].told;
}

static int late_by_work(const void *left, const void *right, void *rows)
{
    const uint32_t *a = left, *b = right;
    const struct late_row *of = rows;
    if (of[*a].job != of[*b].job)
        return of[*a].job < of[*b].job ? -1 : 1;
    if (of[*a].worked != of[*b].worked)
        return of[*a].worked < of[*b].worked ? -1 : 1;
    return (*a > *b) - (*a < *b);
}

static void late_put_order(struct late_search *search)
{
    size_t count = 0;
    search->order = xcalloc(search->ranks->row_count, sizeof *search->order);
    for (uint32_t i = 0; i < search->ranks->row_count; i++)
        if (late_told(search, i))
            search->order[count++] = i;
    qsort_r(search->order, count, sizeof *search->order, late_by_work, search->rows);
    for (size_t first = 0, end; first < count; first = end) {
        for (end = first + 1; end < count &&
                search->rows[search->order[end]].job == search->rows[search->order[first]].job;
                end++)
            ;
        for (size_t i = first; i < end; i++) {
            struct late_row *row = &search->rows[search->order[i]];
            row->place = i;
            row->job_first = first;
            row->job_count = end - first;
        }
    }
}

// The one in the middle of the others of its job, of an even number the one that works longer.
// TRACE_NONE: there are no others.
static uint32_t late_middle(const struct late_search *search, size_t index)
{
    const struct late_row *row = &search->rows[index];
    if (row->job_count < 2)
        return TRACE_NONE;
    size_t at = row->job_first + (row->job_count - 1) / 2;
    return search->order[at < row->place ? at : at + 1];
}

// Below 0 where what stands for lost communications is more than a block has: cut off there, that
// rank seemed to work longer than it did.
static double late_of(const struct late_search *search, size_t index, int block, bool own)
{
    const struct late_row *row = &search->rows[index];
    double one = row->late[block] - (own ? row->taken[block] : 0);
    return one > 0 || (search->ranks->by_work && search->ranks->nccl) ? one : 0;
}

// Of many ranks that wait for years, as a damaged store says, the sum is cut.
static void late_add_waited(struct late_rank *one, int64_t ns)
{
    one->ranks_ns += ns < TRACE_SUM_END - one->ranks_ns ? ns : TRACE_SUM_END - one->ranks_ns;
}

double late_errors(const double *more, int blocks, double *ret_sum)
{
    double sum = 0, squares = 0;
    for (int b = 0; b < blocks; b++) {
        sum += more[b];
        squares += more[b] * more[b];
    }
    double mean = sum / blocks, variance = squares / blocks - mean * mean;
    double error = sqrt((variance > 0 ? variance : 0) / (blocks - 1));
    *ret_sum = sum;
    return sum <= 0 ? 0 : error > 0 ? mean / error : INFINITY;
}

// By how much longer a rank is waited for than the others in the mean, block by block; by_work,
// works than the one in the middle of those of its job: of two, the mean would make late ones of
// two ranks, as the third has less to do. own: without what neighbours took. False: there are no
// others.
static bool late_more(const struct late_search *search, size_t index, bool own, double *ret_more)
{
    bool by_work = search->ranks->by_work;
    uint32_t middle = by_work ? late_middle(search, index) : TRACE_NONE;
    size_t count = by_work ? middle != TRACE_NONE : search->ranks->row_count - 1;
    size_t first = by_work && count ? middle : 0,
           end = by_work ? first + count : search->ranks->row_count;
    for (int b = 0; b < LATE_BLOCKS; b++) {
        double others = 0;
        for (size_t i = first; i < end; i++)
            if (i != index)
                others += late_of(search, i, b, own);
        ret_more[b] = count ? late_of(search, index, b, own) - others / (double)count : 0;
    }
    return count > 0;
}

// Is it waited for so little in all that it cannot be by so much more than the others? Of many
// ranks nearly all are, and need no look at the others.
static bool late_is_little(const struct late_search *search, size_t index, double least)
{
    double all = 0;
    for (int b = 0; b < LATE_BLOCKS; b++)
        all += late_of(search, index, b, false);
    return !search->ranks->by_work && all < least;
}

// How many standard errors that is.
static double late_test(
        const struct late_search *search, size_t index, bool own, double *ret_excess)
{
    double more[LATE_BLOCKS];
    late_more(search, index, own, more);
    return late_errors(more, LATE_BLOCKS, ret_excess);
}

// The same by_work: how long each of the others communicated while they waited for it, and had
// nothing else to do.
static void late_held(const struct late_search *search, struct late_rank *one)
{
    const struct ranks *ranks = search->ranks;
    int64_t most = -1;
    for (uint32_t row = 0; row < ranks->row_count; row++) {
        const struct rank_row *other = &ranks->rows[row];
        size_t at = other->held_first, last = at + other->held_count;
        int64_t ns = 0;
        for (size_t i = 0; i < one->span_count && row != one->row; i++) {
            while (at < last && ranks->held[at].end <= one->spans[i].begin)
                at++;
            for (size_t k = at; k < last && ranks->held[k].begin < one->spans[i].end; k++)
                ns += parts_overlap(ranks->held[k].begin, ranks->held[k].end, one->spans[i].begin,
                        one->spans[i].end);
        }
        late_add_waited(one, ns);
        if (row == one->row || ns <= most)
            continue;
        most = ns;
        one->waiter = row;
    }
}

// Who waited most for it, and how long all waited together.
static void late_waiters(const struct late_search *search, struct late_rank *one)
{
    const struct ranks *ranks = search->ranks;
    if (ranks->by_work) {
        late_held(search, one);
        return;
    }
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
        late_add_waited(one, ns);
        if (waited[late->waiter] > waited[one->waiter])
            one->waiter = late->waiter;
    }
    free(waited);
    free(until);
}

static int late_by_cost(const void *left, const void *right)
{
    const struct late_rank *a = left, *b = right;
    return trace_order(b->total_ns, a->total_ns) ?: trace_order(a->row, b->row);
}

// Causes that strike by themselves, seldom or often, and need no statistics.
static bool late_explained(const struct late_rank *one)
{
    return one->cause < CAUSE_UNKNOWN && one->cause != CAUSE_CPU_CONTENTION &&
            one->cause != CAUSE_PYTHON_GC && one->deed_ns * 2 >= one->total_ns;
}

// Does every rank lose turns to other ranks? Then there are more of them than CPUs, and who goes
// second is late: that is no fault of either.
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
        crowded = (double)lost >= late_rank_share * (double)(search->end - search->begin);
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
        queued += late_queued(search, index,
                late_parted(search, index, row->waiters[i], row->spans[i].begin), row->spans[i].end,
                by);
    by[ranks->rows[index].process].blocks = 0;
    for (size_t i = 0; i < ranks->row_count && search->crowded; i++)
        by[ranks->rows[i].process].blocks = 0;
    for (size_t i = 0; i < count; i++)
        steady += __builtin_popcount(by[i].blocks) >= LATE_STEADY_BLOCKS ? by[i].ns : 0;
    free(by);
    return steady > 0 && steady * 2 >= queued;
}

// In a pipeline that fills and drains all wait for each rank at times: of the waits for it only as
// much is its lateness as it works longer, which is their ends. False: that is not worth a line, as
// the others do not wait for it.
static bool late_cut(struct late_row *row, double more, double least)
{
    double share = row->late_ns > more ? more / row->late_ns : 1;
    if (row->late_ns < least)
        return false;
    for (size_t i = 0; i < row->span_count; i++) {
        struct trace_window *span = &row->spans[i];
        span->begin = span->end - (int64_t)(share * (double)(span->end - span->begin));
    }
    row->late_ns *= share;
    return true;
}

static void late_judge(struct late_search *search, size_t index, struct late_ranks *ret)
{
    struct late_row *row = &search->rows[index];
    double window = (double)(search->end - search->begin), least = late_rank_share * window, all,
           own;
    if (!late_told(search, index) || late_is_little(search, index, least))
        return;
    double errors_all = late_test(search, index, false, &all),
           errors = late_test(search, index, true, &own);
    if (all < least || (search->ranks->by_work && !late_cut(row, all, least)))
        return;
    struct late_rank one = {.row = (uint32_t)index,
            .spans = row->spans,
            .span_count = row->span_count,
            .total_ns = (int64_t)row->late_ns,
            .excess_ns = (int64_t)fmin(all, (double)TRACE_SUM_END),
            .errors = errors,
            .waiter = index == 0,
            .cause = CAUSE_COUNT};
    late_why(search->ranks, search->work, search->begin, search->end, &one);
    row->found = one.unfounded ? LATE_DOUBTED : LATE_FOUNDED;
    bool often = errors >= late_rank_errors && own >= least;
    bool neighbours = errors_all >= late_rank_errors && late_has_neighbour(search, index);
    if (one.unfounded || (!often && !neighbours && !late_explained(&one)))
        return;
    if (!often && neighbours)
        one.errors = errors_all;
    row->spans = NULL;
    late_waiters(search, &one);
    vector_push(ret->list, ret->count, one);
}

// Is it worth a look who is late when? Where somebody is named, though not by connections, as waits
// do not tell then; or where one block alone costs what a late rank must cost, as a checkpoint of
// one rank may, without what neighbours took. By work a block is no evidence: one that is shorter
// than a step has some stages at work and others not.
static bool late_stands_out(const struct late_search *search, const struct late_ranks *found)
{
    double more[LATE_BLOCKS] = {0}, most = 0;
    if (found->count)
        return !found->list[0].by_connections;
    for (size_t i = 0; i < search->ranks->row_count && !search->ranks->by_work; i++)
        if (search->rows[i].found == LATE_FOUNDED && late_more(search, i, true, more))
            for (int b = 0; b < LATE_BLOCKS; b++)
                most = fmax(most, more[b]);
    return most >= late_rank_share * (double)(search->end - search->begin);
}

static double *late_shares(const struct late_search *search)
{
    const struct ranks *ranks = search->ranks;
    double length = (double)(search->end - search->begin) / LATE_BLOCKS;
    double *shares = xcalloc(ranks->row_count * LATE_BLOCKS, sizeof *shares);
    for (size_t i = 0; i < ranks->row_count; i++) {
        const struct late_row *row = &search->rows[i];
        double more[LATE_BLOCKS] = {0};
        bool known = row->found != LATE_DOUBTED && late_told(search, i) &&
                (!ranks->by_work || late_more(search, i, false, more));
        for (size_t b = 0; b < LATE_BLOCKS; b++) {
            // else nobody waits for it, or not for long
            double ns = !ranks->by_work ? row->late[b] : row->found == LATE_FOUNDED ? more[b] : 0;
            shares[i * LATE_BLOCKS + b] = known ? fmin(fmax(ns / length, 0), 1) : NAN;
        }
    }
    return shares;
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
    for (size_t i = 0; i < ranks->row_count && ranks->by_work; i++)
        late_work(&search, i);
    if (ranks->by_work && ranks->nccl)
        late_connect(&search);
    if (ranks->by_work)
        late_put_order(&search);
    search.crowded = late_crowded(&search);
    for (size_t i = 0; i < ranks->row_count; i++)
        late_judge(&search, i, ret_late);
    struct late_rank slow;
    if (!ret_late->count &&
            late_network(ranks, begin, end, late_rank_errors, late_rank_share, &slow))
        vector_push(ret_late->list, ret_late->count, slow);
    if (late_stands_out(&search, ret_late))
        ret_late->shares = late_shares(&search);
    if (ret_late->count)
        qsort(ret_late->list, ret_late->count, sizeof *ret_late->list, late_by_cost);
    for (size_t i = 0; i < ranks->row_count; i++) {
        free(search.rows[i].spans);
        free(search.rows[i].waiters);
    }
    free(search.rows);
    free(search.order);
}

void late_ranks_free(struct late_ranks *stragglers)
{
    for (size_t i = 0; i < stragglers->count; i++)
        free(stragglers->list[i].spans);
    free(stragglers->list);
    free(stragglers->shares);
    *stragglers = (struct late_ranks){0};
}
