// SPDX-License-Identifier: Apache-2.0
// The other durations that a job is replayed with. All of them go over the operations by kind and
// step, as replay.c has sorted them.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "reports/analyse/replay/replay_graph.h"

static void if_measured(const struct replay *replay, int64_t *ret)
{
    if (replay->job.op_count)
        memcpy(ret, replay->durations, replay->job.op_count * sizeof *ret);
}

// Behind the last operation in by_kind, from `first` on, of the same kind; with by_step, of the
// same step, too.
static size_t if_run(const struct replay *replay, size_t first, bool by_step)
{
    const struct replay_op *ops = replay->job.ops, *one = &ops[replay->by_kind[first]];
    size_t end = first + 1;
    while (end < replay->job.op_count && ops[replay->by_kind[end]].kind == one->kind &&
            (!by_step || ops[replay->by_kind[end]].step == one->step))
        end++;
    return end;
}

// What the rank of by_kind[first] computes of the run that ends at `end`; *ret_end: behind its last
// operation, as they stand by rank.
static double if_rank_sum(const struct replay *replay, size_t first, size_t end, size_t *ret_end)
{
    const struct replay_op *ops = replay->job.ops;
    double sum = 0;
    size_t i = first;
    for (; i < end && ops[replay->by_kind[i]].rank == ops[replay->by_kind[first]].rank; i++)
        sum += ops[replay->by_kind[i]].communicates ? 0
                                                    : (double)replay->durations[replay->by_kind[i]];
    *ret_end = i;
    return sum;
}

void replay_if_even(const struct replay *replay, int64_t *ret)
{
    if_measured(replay, ret);
    for (size_t first = 0, end, rank_end; first < replay->job.op_count; first = end) {
        double all = 0;
        size_t ranks = 0;
        end = if_run(replay, first, true);
        for (size_t i = first; i < end; i = rank_end) {
            double sum = if_rank_sum(replay, i, end, &rank_end);
            all += sum;
            ranks += sum > 0;
        }
        for (size_t i = first; i < end; i = rank_end) {
            double sum = if_rank_sum(replay, i, end, &rank_end);
            for (size_t k = i; k < rank_end && sum > 0; k++)
                if (!replay->job.ops[replay->by_kind[k]].communicates)
                    ret[replay->by_kind[k]] =
                            (int64_t)((double)replay->durations[replay->by_kind[k]] * all /
                                            (double)ranks / sum +
                                    0.5);
        }
    }
}

void replay_if_instant(const struct replay *replay, int64_t *ret)
{
    if_measured(replay, ret);
    for (size_t i = 0; i < replay->job.op_count; i++)
        if (replay->job.ops[i].communicates)
            ret[i] = 0;
}

static int if_by_value(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

static int64_t if_middle(const int64_t *sorted, size_t count)
{
    return count % 2 ? sorted[count / 2]
                     : sorted[count / 2 - 1] + (sorted[count / 2] - sorted[count / 2 - 1]) / 2;
}

void replay_if_ideal(const struct replay *replay, int64_t *ret)
{
    int64_t *values = xcalloc(replay->job.op_count + 1, sizeof *values);
    for (size_t first = 0, end; first < replay->job.op_count; first = end) {
        double sum = 0;
        size_t computes = 0, count = 0;
        end = if_run(replay, first, false);
        for (size_t i = first; i < end; i++) {
            uint32_t op = replay->by_kind[i];
            if (replay->job.ops[op].communicates) {
                values[count++] = replay->durations[op];
            } else {
                sum += (double)replay->durations[op];
                computes++;
            }
        }
        qsort(values, count, sizeof *values, if_by_value);
        for (size_t i = first; i < end; i++) {
            uint32_t op = replay->by_kind[i];
            ret[op] = replay->job.ops[op].communicates ? if_middle(values, count)
                                                       : (int64_t)(sum / (double)computes + 0.5);
        }
    }
    free(values);
}

bool replay_if_balanced(const struct replay *replay, int64_t *ret)
{
    const struct replay_job *job = &replay->job;
    if (!job->stage_of || job->stage_count < 2)
        return false;
    double *work = xcalloc(job->stage_count, sizeof *work),
           *ranks = xcalloc(job->stage_count, sizeof *ranks), mean = 0;
    bool all = true;
    for (size_t i = 0; i < job->rank_count; i++)
        ranks[job->stage_of[i]]++;
    for (size_t i = 0; i < job->op_count; i++)
        work[job->stage_of[job->ops[i].rank]] +=
                job->ops[i].communicates ? 0 : (double)replay->durations[i];
    for (size_t i = 0; i < job->stage_count; i++) {
        all &= work[i] > 0;
        work[i] /= ranks[i] > 0 ? ranks[i] : 1;
        mean += work[i] / (double)job->stage_count;
    }
    if_measured(replay, ret);
    for (size_t i = 0; i < job->op_count && all; i++)
        if (!job->ops[i].communicates)
            ret[i] = (int64_t)((double)replay->durations[i] * mean /
                            work[job->stage_of[job->ops[i].rank]] +
                    0.5);
    free(work);
    free(ranks);
    return all;
}

// ---- without the late ones ----

// An operation of one kind: of a late rank, or of one of the others.
struct if_one {
    int64_t value; // what it is ordered by: beyond the others' mean of its step; where there is one
                   // other rank only, all of it
    int64_t others; // their mean
    uint32_t rank, op;
};

struct if_kind {
    struct if_one *late, *others;
    size_t late_count, other_count;
    bool alone; // there is one other rank
};

static int if_by_rank(const void *left, const void *right)
{
    const struct if_one *a = left, *b = right;
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    if (a->value != b->value)
        return a->value < b->value ? -1 : 1;
    return (a->op > b->op) - (a->op < b->op);
}

static int if_by_one(const void *left, const void *right)
{
    const struct if_one *a = left, *b = right;
    return (a->value > b->value) - (a->value < b->value);
}

static size_t if_rank_end(const struct if_one *list, size_t first, size_t count)
{
    size_t end = first + 1;
    while (end < count && list[end].rank == list[first].rank)
        end++;
    return end;
}

// by_kind[first, end), which are of one step.
static void if_collect(const struct replay *replay, const bool *ranks, size_t first, size_t end,
        struct if_kind *kind)
{
    double sum = 0;
    size_t count = 0;
    for (size_t i = first; i < end; i++) {
        uint32_t op = replay->by_kind[i];
        if (!ranks[replay->job.ops[op].rank] && !replay->job.ops[op].communicates) {
            sum += (double)replay->durations[op];
            count++;
        }
    }
    if (!count)
        return;
    int64_t mean = (int64_t)(sum / (double)count + 0.5);
    // What one of the others is off their mean varies less than what a rank apart from them would
    // be.
    double more = count > 1 ? sqrt((double)(count + 1) / (double)(count - 1)) : 0;
    kind->alone |= count == 1;
    for (size_t i = first; i < end; i++) {
        uint32_t op = replay->by_kind[i], rank = replay->job.ops[op].rank;
        if (replay->job.ops[op].communicates)
            continue;
        int64_t off = replay->durations[op] - mean;
        if (ranks[rank])
            kind->late[kind->late_count++] = (struct if_one){off, mean, rank, op};
        else
            kind->others[kind->other_count++] =
                    (struct if_one){(int64_t)((double)off * more), mean, rank, op};
    }
}

// The others' noise, sorted: what is usual for each of them is none.
static void if_noise(const struct replay *replay, struct if_kind *kind)
{
    for (size_t i = 0; i < kind->other_count && kind->alone; i++)
        kind->others[i].value = replay->durations[kind->others[i].op];
    for (size_t i = 0; i < kind->late_count && kind->alone; i++)
        kind->late[i].value = replay->durations[kind->late[i].op];
    qsort(kind->others, kind->other_count, sizeof *kind->others, if_by_rank);
    for (size_t first = 0, end; first < kind->other_count && !kind->alone; first = end) {
        end = if_rank_end(kind->others, first, kind->other_count);
        int64_t usual = kind->others[first + (end - first) / 2].value;
        for (size_t i = first; i < end; i++)
            kind->others[i].value -= usual;
    }
    qsort(kind->others, kind->other_count, sizeof *kind->others, if_by_one);
}

// One late rank's operations of a kind, by value: the least one gets the least of the others'
// noise, and so on.
static void if_like_others(const struct replay *replay, const struct if_kind *kind, size_t first,
        size_t end, int64_t *ret)
{
    enum { STEPS_LEAST = 8 };
    size_t count = end - first;
    double beyond = 0;
    for (size_t i = first; i < end; i++)
        beyond += (double)(replay->durations[kind->late[i].op] - kind->late[i].others);
    for (size_t i = first; i < end && beyond > 0; i++) {
        const struct if_one *one = &kind->late[i];
        int64_t noise = kind->others[(2 * (i - first) + 1) * kind->other_count / (2 * count)].value;
        int64_t like = count < STEPS_LEAST ? one->others
                : kind->alone              ? noise
                                           : one->others + noise;
        ret[one->op] = like > 0 ? like : 0;
    }
}

// Of what a late rank was made shorter by, the share that it works longer than the others of its
// stage in all; 1: no more than that.
static double if_share_of(const struct replay_job *job, const bool *ranks, size_t rank,
        const double *sums, const double *likes)
{
    double others = 0, cut = sums[rank] - likes[rank];
    size_t count = 0;
    for (size_t i = 0; i < job->rank_count; i++) {
        if (ranks[i] || (job->stage_of && job->stage_of[i] != job->stage_of[rank]))
            continue;
        others += sums[i];
        count++;
    }
    double beyond = count ? sums[rank] - others / (double)count : 0;
    return beyond > 0 && cut > beyond ? beyond / cut : 1;
}

// In all a late rank works no less than the others do. Place by place it would: what its host does
// before a communication, theirs do behind it, while their GPUs wait for it, and of each place only
// what it does longer is taken.
static void if_keep_sums(const struct replay *replay, const bool *ranks, int64_t *ret)
{
    const struct replay_job *job = &replay->job;
    double *sums = xcalloc(job->rank_count + 1, sizeof *sums),
           *likes = xcalloc(job->rank_count + 1, sizeof *likes),
           *shares = xcalloc(job->rank_count + 1, sizeof *shares);
    for (size_t i = 0; i < job->op_count; i++) {
        if (job->ops[i].communicates)
            continue;
        sums[job->ops[i].rank] += (double)replay->durations[i];
        likes[job->ops[i].rank] += (double)ret[i];
    }
    for (size_t i = 0; i < job->rank_count; i++)
        shares[i] = ranks[i] ? if_share_of(job, ranks, i, sums, likes) : 1;
    for (size_t i = 0; i < job->op_count; i++)
        if (!job->ops[i].communicates && shares[job->ops[i].rank] < 1)
            ret[i] = replay->durations[i] +
                    (int64_t)((double)(ret[i] - replay->durations[i]) * shares[job->ops[i].rank]);
    free(sums);
    free(likes);
    free(shares);
}

void replay_if_without(const struct replay *replay, const bool *ranks, int64_t *ret)
{
    struct if_kind kind = {.late = xcalloc(replay->job.op_count + 1, sizeof *kind.late),
            .others = xcalloc(replay->job.op_count + 1, sizeof *kind.others)};
    if_measured(replay, ret);
    for (size_t first = 0, end; first < replay->job.op_count; first = end) {
        kind.late_count = kind.other_count = 0;
        kind.alone = false;
        end = if_run(replay, first, false);
        for (size_t step = first, step_end; step < end; step = step_end) {
            step_end = if_run(replay, step, true);
            if_collect(replay, ranks, step, step_end, &kind);
        }
        if (!kind.late_count)
            continue;
        if_noise(replay, &kind);
        qsort(kind.late, kind.late_count, sizeof *kind.late, if_by_rank);
        for (size_t one = 0, behind; one < kind.late_count; one = behind) {
            behind = if_rank_end(kind.late, one, kind.late_count);
            if_like_others(replay, &kind, one, behind, ret);
        }
    }
    if_keep_sums(replay, ranks, ret);
    free(kind.late);
    free(kind.others);
}
