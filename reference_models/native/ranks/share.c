// SPDX-License-Identifier: Apache-2.0
// Where the gradients and the parts of all ranks lie in shared memory, and when they are reduced
// and gathered. Called by the model between its units (model_ranks). Computes nothing: that is
// reduce.c.
#include "reference_models/native/ranks/share.h"

#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "reference_models/native/arena.h"

struct share {
    const struct share_plan *plan;
    uint32_t rank;
    struct ranks_barrier *barrier;
    struct pool *pool;
    char *memory;
    size_t total, part; // reals: of a flat array; of what a rank keeps at most, sharded
    // where a unit begins in what a rank keeps; the last: how much that is
    size_t at[MODEL_UNITS_MAX + 1][REDUCE_RANKS_MAX];
    struct arena arena;
    char *spare;         // of repeats, see reduce.h
    size_t bucket_end;   // the units from here on are reduced
    size_t bucket_bytes; // so large a bucket gets
    struct model_ranks model;
};

// How the units are parted; the most that a rank keeps, reals.
static size_t share_parts(
        const struct share_plan *plan, size_t at[MODEL_UNITS_MAX + 1][REDUCE_RANKS_MAX])
{
    size_t most = 0;
    for (uint32_t rank = 0; rank < plan->ranks; rank++) {
        at[0][rank] = 0;
        for (size_t unit = 0; unit < plan->units; unit++) {
            struct reduce reduce = {
                    .ranks = plan->ranks, .count = plan->first[unit + 1] - plan->first[unit]};
            size_t blocks =
                    reduce_first_block(&reduce, rank + 1) - reduce_first_block(&reduce, rank);
            at[unit + 1][rank] = at[unit][rank] + blocks * REDUCE_BLOCK;
        }
        if (at[plan->units][rank] > most)
            most = at[plan->units][rank];
    }
    return most;
}

// A rank has its gradients there and, behind them, replicated: the means; sharded: its part of the
// means, its part of the parameters.
static size_t share_stride(const struct share_plan *plan, size_t part)
{
    size_t total = plan->first[plan->units];
    return (plan->sharded ? total + 2 * part : 2 * total) * plan->ops->real_bytes;
}

size_t share_bytes(const struct share_plan *plan)
{
    size_t at[MODEL_UNITS_MAX + 1][REDUCE_RANKS_MAX];
    return plan->ranks * share_stride(plan, share_parts(plan, at));
}

static char *share_place(const struct share *share, uint32_t rank, size_t reals)
{
    return share->memory + rank * share_stride(share->plan, share->part) +
            reals * share->plan->ops->real_bytes;
}

// Where a unit begins in a flat array.
static char *share_unit(const struct share *share, void *array, size_t unit)
{
    return (char *)array + share->plan->first[unit] * share->plan->ops->real_bytes;
}

// The gradients of the units begin to end, and where their means go.
static struct reduce share_reduce(const struct share *share, size_t begin, size_t end)
{
    const struct share_plan *plan = share->plan;
    struct reduce reduce = {.pool = share->pool,
            .rank = share->rank,
            .ranks = plan->ranks,
            .count = plan->first[end] - plan->first[begin],
            .through_root = plan->through_root,
            .mean = true,
            .sharded = plan->sharded,
            .spare = share_unit(share, share->spare, begin)};
    for (uint32_t rank = 0; rank < plan->ranks; rank++) {
        reduce.input[rank] = share_place(share, rank, plan->first[begin]);
        reduce.output[rank] = share_place(share, rank,
                share->total + (plan->sharded ? share->at[begin][rank] : plan->first[begin]));
    }
    return reduce;
}

// A unit's parameters, from the ranks that keep them.
static void share_gather(const struct share *share, size_t unit)
{
    struct reduce reduce = share_reduce(share, unit, unit + 1);
    for (uint32_t rank = 0; rank < share->plan->ranks; rank++)
        reduce.output[rank] =
                share_place(share, rank, share->total + share->part + share->at[unit][rank]);
    reduce.whole = share_unit(share, share->model.value, unit);
    share->plan->ops->gather(&reduce);
}

static void share_meet(const struct share *share)
{
    ranks_barrier_wait(share->barrier, share->plan->ranks);
}

// One barrier is enough for all units: nobody changes its parts before all gradients are there,
// which is after the last gather.
static void share_before(void *arg, size_t unit)
{
    const struct share *share = arg;
    if (!share->plan->sharded)
        return;
    if (unit == 0)
        share_meet(share);
    share_gather(share, unit);
}

// What others may still read of this rank is written again behind a later barrier only: its
// gradients behind the second one here, or sharded behind that of share_before(); its means behind
// the first one of the next step.
static void share_after(void *arg, size_t unit)
{
    struct share *share = arg;
    const struct share_plan *plan = share->plan;
    if (unit + 1 == plan->units) {
        share->bucket_end = plan->units;
        share->bucket_bytes = plan->bucket_bytes ? plan->bucket_bytes : SHARE_BUCKET_FIRST_BYTES;
    }
    size_t bytes = (plan->first[share->bucket_end] - plan->first[unit]) * plan->ops->real_bytes;
    if (!plan->sharded && unit > 0 && bytes < share->bucket_bytes)
        return;
    struct reduce reduce = share_reduce(share, unit, share->bucket_end);
    share_meet(share);
    plan->ops->scatter(&reduce);
    if (!plan->sharded) {
        share_meet(share);
        plan->ops->gather(&reduce);
    }
    share->bucket_end = unit;
    share->bucket_bytes = plan->bucket_bytes ? plan->bucket_bytes : SHARE_BUCKET_BYTES;
}

struct share *share_new(
        const struct share_plan *plan, uint32_t rank, void *memory, struct ranks_barrier *barrier)
{
    struct share *share = xcalloc(1, sizeof *share);
    size_t bytes = plan->ops->real_bytes;
    share->plan = plan;
    share->rank = rank;
    share->barrier = barrier;
    share->memory = memory;
    share->total = plan->first[plan->units];
    share->part = share_parts(plan, share->at);
    share->spare = arena_alloc(&share->arena, share->total, bytes);
    share->model = (struct model_ranks){.rank = rank,
            .value = arena_alloc(&share->arena, share->total, bytes),
            .grad = share_place(share, rank, 0),
            .arg = share,
            .before = share_before,
            .after = share_after};
    share->model.updated = plan->sharded ? share->at[plan->units][rank] : share->total;
    share->model.updated_grad = share_place(share, rank, share->total);
    share->model.updated_value = plan->sharded
            ? share_place(share, rank, share->total + share->part)
            : share->model.value;
    return share;
}

void share_free(struct share *share)
{
    if (!share)
        return;
    arena_free(&share->arena);
    free(share);
}

const struct model_ranks *share_model(const struct share *share)
{
    return &share->model;
}

// The start values are the same in all ranks: each takes its part of its own.
static void share_keep(const struct share *share)
{
    const struct share_plan *plan = share->plan;
    for (size_t unit = 0; unit < plan->units; unit++) {
        struct reduce reduce = share_reduce(share, unit, unit + 1);
        size_t begin = plan->first[unit] + reduce_first_block(&reduce, share->rank) * REDUCE_BLOCK;
        size_t count = share->at[unit + 1][share->rank] - share->at[unit][share->rank];
        memcpy(share_place(share, share->rank,
                       share->total + share->part + share->at[unit][share->rank]),
                (const char *)share->model.value + begin * plan->ops->real_bytes,
                count * plan->ops->real_bytes);
    }
}

// All meet here, lest the first step wait for one that starts late.
void share_begin(struct share *share, struct pool *pool)
{
    share->pool = pool;
    if (share->plan->sharded)
        share_keep(share);
    ranks_touch(share->memory, share_bytes(share->plan));
    share_meet(share);
}

void share_end(struct share *share)
{
    if (!share->plan->sharded)
        return;
    share_meet(share);
    for (size_t unit = 0; unit < share->plan->units; unit++)
        share_gather(share, unit);
}
