// SPDX-License-Identifier: Apache-2.0
// The other durations that a job is replayed with. All of them go over the operations by kind and step, as replay.c has sorted them.
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

// Behind the last operation in by_kind, from `first` on, of the same kind; with by_step, of the same step, too.
static size_t if_run(const struct replay *replay, size_t first, bool by_step)
{
    const struct replay_op *ops = replay->job.ops, *one = &ops[replay->by_kind[first]];
    size_t end = first + 1;
    while (end < replay->job.op_count && ops[replay->by_kind[end]].kind == one->kind && (!by_step || ops[replay->by_kind[end]].step == one->step))
        end++;
    return end;
}

void replay_if_even(const struct replay *replay, int64_t *ret)
{
    if_measured(replay, ret);
    for (size_t first = 0, end; first < replay->job.op_count; first = end) {
        double sum = 0;
        size_t count = 0;
        end = if_run(replay, first, true);
        for (size_t i = first; i < end; i++)
            if (!replay->job.ops[replay->by_kind[i]].communicates) {
                sum += (double)replay->durations[replay->by_kind[i]];
                count++;
            }
        for (size_t i = first; i < end; i++)
            if (!replay->job.ops[replay->by_kind[i]].communicates)
                ret[replay->by_kind[i]] = (int64_t)(sum / (double)count + 0.5);
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
    return count % 2 ? sorted[count / 2] : sorted[count / 2 - 1] + (sorted[count / 2] - sorted[count / 2 - 1]) / 2;
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
            ret[op] = replay->job.ops[op].communicates ? if_middle(values, count) : (int64_t)(sum / (double)computes + 0.5);
        }
    }
    free(values);
}

bool replay_if_balanced(const struct replay *replay, int64_t *ret)
{
    const struct replay_job *job = &replay->job;
    if (!job->stage_of || job->stage_count < 2)
        return false;
    double *work = xcalloc(job->stage_count, sizeof *work), *ranks = xcalloc(job->stage_count, sizeof *ranks), mean = 0;
    bool all = true;
    for (size_t i = 0; i < job->rank_count; i++)
        ranks[job->stage_of[i]]++;
    for (size_t i = 0; i < job->op_count; i++)
        work[job->stage_of[job->ops[i].rank]] += job->ops[i].communicates ? 0 : (double)replay->durations[i];
    for (size_t i = 0; i < job->stage_count; i++) {
        all &= work[i] > 0;
        work[i] /= ranks[i] > 0 ? ranks[i] : 1;
        mean += work[i] / (double)job->stage_count;
    }
    if_measured(replay, ret);
    for (size_t i = 0; i < job->op_count && all; i++)
        if (!job->ops[i].communicates)
            ret[i] = (int64_t)((double)replay->durations[i] * mean / work[job->stage_of[job->ops[i].rank]] + 0.5);
    free(work);
    free(ranks);
    return all;
}

// ---- without the late ones ----

struct if_excess {
    int64_t others, own; // the others' mean; what the rank took
    uint32_t rank, op, other_count;
};

static int if_by_rank(const void *left, const void *right)
{
    const struct if_excess *a = left, *b = right;
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    return (a->op > b->op) - (a->op < b->op);
}

// How far the sorted values go down from their middle, but for the last twentieth.
static int64_t if_spread(const int64_t *sorted, size_t count)
{
    enum { LOW_SHARE = 20 };
    return if_middle(sorted, count) - sorted[count / LOW_SHARE];
}

// What one rank took in all steps of a kind. Its noise stays as far as the others have as much: what takes longer has more.
static void if_like_others(const struct if_excess *list, size_t count, int64_t *values, int64_t *ret)
{
    enum { STEPS_LEAST = 8 };
    for (size_t i = 0; i < count; i++)
        values[i] = list[i].others;
    qsort(values, count, sizeof *values, if_by_value);
    int64_t most = (int64_t)((double)if_spread(values, count) * sqrt(list[0].other_count)); // of one of them: a mean's spread is less
    for (size_t i = 0; i < count; i++)
        values[i] = list[i].own - list[i].others;
    qsort(values, count, sizeof *values, if_by_value);
    int64_t middle = if_middle(values, count), spread = if_spread(values, count), off = middle > 0 ? middle : 0;
    spread = spread < most ? spread : most;
    for (size_t i = 0; i < count; i++) {
        int64_t rest = list[i].own - list[i].others - off;
        rest = rest > spread ? spread : rest < -spread && off ? -spread : rest;
        if (count < STEPS_LEAST)
            rest = 0;
        ret[list[i].op] = list[i].others + rest > 0 ? list[i].others + rest : 0;
    }
}

// The masked ones of by_kind[first, end), which are of one step, behind what `list` has.
static size_t if_collect(const struct replay *replay, const bool *ranks, size_t first, size_t end, struct if_excess *list, size_t count)
{
    double sum = 0;
    size_t others = 0;
    for (size_t i = first; i < end; i++) {
        uint32_t op = replay->by_kind[i];
        if (!ranks[replay->job.ops[op].rank] && !replay->job.ops[op].communicates) {
            sum += (double)replay->durations[op];
            others++;
        }
    }
    for (size_t i = first; i < end && others; i++) {
        uint32_t op = replay->by_kind[i], rank = replay->job.ops[op].rank;
        if (ranks[rank] && !replay->job.ops[op].communicates)
            list[count++] = (struct if_excess){(int64_t)(sum / (double)others + 0.5), replay->durations[op], rank, op, (uint32_t)others};
    }
    return count;
}

void replay_if_without(const struct replay *replay, const bool *ranks, int64_t *ret)
{
    struct if_excess *list = xcalloc(replay->job.op_count + 1, sizeof *list);
    int64_t *values = xcalloc(replay->job.op_count + 1, sizeof *values);
    if_measured(replay, ret);
    for (size_t first = 0, end; first < replay->job.op_count; first = end) {
        size_t count = 0;
        end = if_run(replay, first, false);
        for (size_t step = first, step_end; step < end; step = step_end) {
            step_end = if_run(replay, step, true);
            count = if_collect(replay, ranks, step, step_end, list, count);
        }
        if (count)
            qsort(list, count, sizeof *list, if_by_rank);
        for (size_t one = 0, behind; one < count; one = behind) {
            for (behind = one; behind < count && list[behind].rank == list[one].rank; behind++)
                ;
            if_like_others(&list[one], behind - one, values, ret);
        }
    }
    free(values);
    free(list);
}
