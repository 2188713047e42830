// SPDX-License-Identifier: Apache-2.0
// The graph: checked, brought into an order in which it can be run, and run. An operation of a
// group has ended when all of the group have begun, so what depends on one of them waits for all:
// the order is made with that in mind once, and each run is one pass.
#include "reports/analyse/replay/replay.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "reports/analyse/replay/replay_graph.h"

static int replay_check(const struct replay_job *job, struct error *err)
{
    int64_t sum = 0;
    if (job->op_count >= UINT32_MAX)
        return error_set(
                err, -EINVAL, "%zu operations are more than can be replayed", job->op_count);
    for (size_t i = 0; i < job->op_count; i++) {
        const struct replay_op *op = &job->ops[i];
        if (op->rank >= job->rank_count || op->step >= job->step_count ||
                op->kind >= job->kind_count ||
                (op->group != REPLAY_NONE && (op->group >= job->group_count || !op->communicates)))
            return error_set(err, -EINVAL,
                    "operation %zu is of no rank, step, kind or group that there is", i);
        if (op->begin_ns < 0 || op->end_ns < op->begin_ns || op->end_ns >= REPLAY_END_NS)
            return error_set(err, -EINVAL,
                    "operation %zu ends before it begins, or no clock shows its time", i);
        if (job->dep_first[i + 1] < job->dep_first[i])
            return error_set(err, -EINVAL, "operation %zu depends on less than nothing", i);
        for (size_t k = job->dep_first[i]; k < job->dep_first[i + 1]; k++)
            if (job->deps[k] >= job->op_count)
                return error_set(err, -EINVAL, "operation %zu depends on one that is not there", i);
        sum += op->end_ns - op->begin_ns;
        if (sum >= REPLAY_END_NS)
            return error_set(err, -ERANGE, "operations last longer than nine years together");
    }
    for (size_t i = 0; i < job->step_count; i++)
        if (job->step_begin_ns[i] < 0 || job->step_begin_ns[i] >= REPLAY_END_NS)
            return error_set(err, -EINVAL, "no clock shows the begin of step %zu", i);
    for (size_t i = 0; job->stage_of && i < job->rank_count; i++)
        if (job->stage_of[i] >= job->stage_count)
            return error_set(err, -EINVAL, "rank %zu is of no stage that there is", i);
    return 0;
}

// By kind, within it by step, within it as they stand: two stable passes of counting.
static void replay_count_sort(
        const struct replay_job *job, const uint32_t *from, uint32_t *to, bool by_step)
{
    size_t keys = by_step ? job->step_count : job->kind_count;
    size_t *first = xcalloc(keys + 1, sizeof *first);
    for (size_t i = 0; i < job->op_count; i++)
        first[(by_step ? job->ops[i].step : job->ops[i].kind) + 1]++;
    for (size_t i = 0; i < keys; i++)
        first[i + 1] += first[i];
    for (size_t i = 0; i < job->op_count; i++) {
        uint32_t op = from ? from[i] : (uint32_t)i;
        to[first[by_step ? job->ops[op].step : job->ops[op].kind]++] = op;
    }
    free(first);
}

// Who depends on an op, the other way round than deps.
struct replay_edges {
    size_t *first; // [op_count + 1]
    uint32_t *to;
    uint32_t *left; // [op_count]: dependencies that have not ended
};

static void replay_edges_make(const struct replay_job *job, struct replay_edges *edges)
{
    size_t count = job->op_count ? job->dep_first[job->op_count] : 0;
    edges->first = xcalloc(job->op_count + 2, sizeof *edges->first);
    edges->to = xcalloc(count + 1, sizeof *edges->to);
    edges->left = xcalloc(job->op_count + 1, sizeof *edges->left);
    for (size_t i = 0; i < job->op_count; i++)
        for (size_t k = job->dep_first[i]; k < job->dep_first[i + 1]; k++)
            edges->first[job->deps[k] + 2]++;
    for (size_t i = 0; i < job->op_count; i++)
        edges->first[i + 2] += edges->first[i + 1];
    for (size_t i = 0; i < job->op_count; i++) {
        edges->left[i] = (uint32_t)(job->dep_first[i + 1] - job->dep_first[i]);
        for (size_t k = job->dep_first[i]; k < job->dep_first[i + 1]; k++)
            edges->to[edges->first[job->deps[k] + 1]++] = (uint32_t)i;
    }
}

// The members of each group, in one array.
static void replay_members(const struct replay_job *job, size_t *first, uint32_t *members)
{
    for (size_t i = 0; i < job->op_count; i++)
        if (job->ops[i].group != REPLAY_NONE)
            first[job->ops[i].group + 2]++;
    for (size_t i = 0; i < job->group_count; i++)
        first[i + 2] += first[i + 1];
    for (size_t i = 0; i < job->op_count; i++)
        if (job->ops[i].group != REPLAY_NONE)
            members[first[job->ops[i].group + 1]++] = (uint32_t)i;
}

// `order` is the queue as well: what has been put there can begin. Gives how many could.
static size_t replay_walk(const struct replay_job *job, struct replay_edges *edges,
        const size_t *first, const uint32_t *members, uint32_t *begun, uint32_t *order)
{
    size_t count = 0;
    for (size_t i = 0; i < job->op_count; i++)
        if (!edges->left[i])
            order[count++] = (uint32_t)i;
    for (size_t at = 0; at < count; at++) {
        uint32_t group = job->ops[order[at]].group;
        const uint32_t *ended = &order[at];
        size_t ended_count = 1;
        if (group != REPLAY_NONE) {
            ended = &members[first[group]];
            ended_count = first[group + 1] - first[group];
            if (++begun[group] < ended_count)
                continue;
        }
        for (size_t i = 0; i < ended_count; i++)
            for (size_t k = edges->first[ended[i]]; k < edges->first[ended[i] + 1]; k++)
                if (--edges->left[edges->to[k]] == 0)
                    order[count++] = edges->to[k];
    }
    return count;
}

static int replay_order(struct replay *replay, struct error *err)
{
    const struct replay_job *job = &replay->job;
    struct replay_edges edges;
    size_t *first = xcalloc(job->group_count + 2, sizeof *first);
    uint32_t *members = xcalloc(job->op_count + 1, sizeof *members),
             *begun = xcalloc(job->group_count + 1, sizeof *begun);
    replay_edges_make(job, &edges);
    replay_members(job, first, members);
    size_t count = replay_walk(job, &edges, first, members, begun, replay->order);
    free(begun);
    free(members);
    free(first);
    free(edges.first);
    free(edges.to);
    free(edges.left);
    if (count < job->op_count)
        return error_set(err, -ELOOP, "%zu of %zu operations wait for each other in a circle",
                job->op_count - count, job->op_count);
    return 0;
}

static int replay_measure(struct replay *replay, struct error *err)
{
    const struct replay_job *job = &replay->job;
    int64_t sum = 0, *last = xcalloc(job->group_count + 1, sizeof *last);
    for (size_t i = 0; i < job->op_count; i++) {
        const struct replay_op *op = &job->ops[i];
        if (op->group != REPLAY_NONE && op->begin_ns > last[op->group])
            last[op->group] = op->begin_ns;
    }
    for (size_t i = 0; i < job->op_count; i++) {
        const struct replay_op *op = &job->ops[i];
        int64_t begin = op->group == REPLAY_NONE ? op->begin_ns : last[op->group],
                after = INT64_MIN;
        for (size_t k = job->dep_first[i]; k < job->dep_first[i + 1]; k++)
            after = job->ops[job->deps[k]].end_ns > after ? job->ops[job->deps[k]].end_ns : after;
        after = after == INT64_MIN ? job->step_begin_ns[op->step] : after;
        replay->durations[i] = op->end_ns > begin ? op->end_ns - begin : 0;
        replay->delays[i] = op->begin_ns > after ? op->begin_ns - after : 0;
        sum = sum < REPLAY_END_NS ? sum + replay->delays[i] : sum;
    }
    free(last);
    return sum < REPLAY_END_NS
            ? 0
            : error_set(err, -ERANGE, "operations are delayed by more than nine years together");
}

int replay_new(const struct replay_job *job, struct replay **ret_replay, struct error *err)
{
    int rc = replay_check(job, err);
    if (rc)
        return rc;
    struct replay *replay = xcalloc(1, sizeof *replay);
    replay->job = *job;
    replay->order = xcalloc(job->op_count + 1, sizeof *replay->order);
    replay->durations = xcalloc(job->op_count + 1, sizeof *replay->durations);
    replay->delays = xcalloc(job->op_count + 1, sizeof *replay->delays);
    rc = replay_order(replay, err);
    if (rc) {
        replay_free(replay);
        return rc;
    }
    uint32_t *by_step = xcalloc(job->op_count + 1, sizeof *by_step);
    replay->by_kind = xcalloc(job->op_count + 1, sizeof *replay->by_kind);
    replay_count_sort(job, NULL, by_step, true);
    replay_count_sort(job, by_step, replay->by_kind, false);
    free(by_step);
    rc = replay_measure(replay, err);
    if (rc) {
        replay_free(replay);
        return rc;
    }
    *ret_replay = replay;
    return 0;
}

void replay_free(struct replay *replay)
{
    if (!replay)
        return;
    free(replay->order);
    free(replay->by_kind);
    free(replay->durations);
    free(replay->delays);
    free(replay);
}

const int64_t *replay_durations(const struct replay *replay)
{
    return replay->durations;
}

void replay_run(
        const struct replay *replay, const int64_t *durations, bool delays, int64_t *ret_end_ns)
{
    const struct replay_job *job = &replay->job;
    // Of an operation without a group its end; of a group the last begin, which is known before
    // anybody asks for the end.
    int64_t *ends = xcalloc(job->op_count + 1, sizeof *ends),
            *last = xcalloc(job->group_count + 1, sizeof *last);
    for (size_t i = 0; i < job->step_count; i++)
        ret_end_ns[i] = INT64_MIN;
    for (size_t at = 0; at < job->op_count; at++) {
        uint32_t i = replay->order[at];
        const struct replay_op *op = &job->ops[i];
        int64_t begin = INT64_MIN;
        for (size_t k = job->dep_first[i]; k < job->dep_first[i + 1]; k++) {
            uint32_t dep = job->deps[k], group = job->ops[dep].group;
            int64_t end = group == REPLAY_NONE ? ends[dep] : last[group] + durations[dep];
            begin = end > begin ? end : begin;
        }
        begin = (begin == INT64_MIN ? job->step_begin_ns[op->step] : begin) +
                (delays ? replay->delays[i] : 0);
        if (op->group == REPLAY_NONE)
            ends[i] = begin + durations[i];
        else if (begin > last[op->group])
            last[op->group] = begin;
    }
    for (size_t i = 0; i < job->op_count; i++) {
        const struct replay_op *op = &job->ops[i];
        int64_t end = op->group == REPLAY_NONE ? ends[i] : last[op->group] + durations[i];
        ret_end_ns[op->step] = end > ret_end_ns[op->step] ? end : ret_end_ns[op->step];
    }
    free(ends);
    free(last);
}
