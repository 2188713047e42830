// SPDX-License-Identifier: Apache-2.0
// Measures how much slower `--plant slow:P%` really makes a step: one process and one model, steps
// in pairs with and without the plant in changing order, so that a busy machine hits both. Prints
// the median of the paired ratios as JSON. Not a test: it times. All ranks of allreduce run in turn
// here.
//     plant_share dlrm|transformer|allreduce train|infer small|demo 5% PAIRS
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/strings.h"
#include "common/units.h"
#include "contracts/exit_code.h"
#include "reference_models/native/arena.h"
#include "reference_models/native/model.h"
#include "reference_models/native/ops/reduce.h"

#define SHARE_RANKS 2

struct share {
    bool train;
    struct pool *pool[SHARE_RANKS];
    const struct model_ops *ops; // NULL: allreduce
    struct model *model;
    struct arena arena;
    struct reduce reduce[SHARE_RANKS];
};

static int share_model(struct share *share, enum model_size size, struct error *err)
{
    struct model_opts opts = {
            .seed = 1, .size = size, .train = share->train, .pool = share->pool[0]};
    return share->ops->create(&opts, &share->model, err);
}

// The sizes of allreduce.c.
static void share_reduce(struct share *share, enum model_size size)
{
    size_t count = (size_t)1 << (size == MODEL_SIZE_SMALL ? 19 : 22);
    struct arena *arena = &share->arena;
    for (uint32_t i = 0; i < SHARE_RANKS; i++) {
        struct reduce *reduce = &share->reduce[i];
        reduce->pool = share->pool[i];
        reduce->rank = i;
        reduce->ranks = SHARE_RANKS;
        reduce->count = count;
        reduce->spare = arena_alloc(arena, count, sizeof(float));
        reduce->block_square = arena_alloc(arena, count / REDUCE_BLOCK, sizeof(double));
        reduce->block_wrong = arena_alloc(arena, count / REDUCE_BLOCK, sizeof(uint64_t));
        void *input = arena_alloc(arena, count, sizeof(float));
        void *output = arena_alloc(arena, count, sizeof(float));
        for (uint32_t j = 0; j < SHARE_RANKS; j++) {
            share->reduce[j].input[i] = input;
            share->reduce[j].output[i] = output;
        }
    }
}

static void share_step(struct share *share, uint64_t step)
{
    if (share->ops) {
        share->ops->load(share->model, step);
        share->ops->forward(share->model);
        if (share->train) {
            share->ops->loss(share->model);
            share->ops->backward(share->model);
            share->ops->update(share->model);
        }
        return;
    }
    double loss;
    for (uint32_t i = 0; i < SHARE_RANKS; i++)
        reduce_ops_f32.fill(&share->reduce[i], step);
    for (uint32_t i = 0; i < SHARE_RANKS; i++)
        reduce_ops_f32.scatter(&share->reduce[i]);
    for (uint32_t i = 0; i < SHARE_RANKS; i++)
        reduce_ops_f32.gather(&share->reduce[i]);
    for (uint32_t i = 0; i < SHARE_RANKS; i++)
        reduce_ops_f32.check(&share->reduce[i], step, &loss);
}

// CPU time of a step: what others take of the core in between does not count.
static double share_time_ns(struct share *share, uint64_t step, double extra)
{
    struct timespec begin, end;
    for (uint32_t i = 0; i < SHARE_RANKS; i++)
        pool_set_extra(share->pool[i], extra);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    share_step(share, step);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    return (double)(end.tv_sec - begin.tv_sec) * 1e9 + (double)(end.tv_nsec - begin.tv_nsec);
}

static int share_compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void share_measure(struct share *share, double extra, size_t pairs)
{
    double *ratio = xcalloc(pairs, sizeof *ratio), *plain = xcalloc(pairs, sizeof *plain);
    for (uint64_t step = 0; step < 5; step++)
        share_step(share, step);
    for (size_t i = 0; i < pairs; i++) {
        double ns[2];
        for (int turn = 0; turn < 2; turn++) {
            int slow = (turn ^ (int)i) & 1;
            ns[slow] = share_time_ns(share, i, slow ? extra : 0);
        }
        plain[i] = ns[0];
        ratio[i] = log(ns[1] / ns[0]);
    }
    qsort(ratio, pairs, sizeof *ratio, share_compare);
    qsort(plain, pairs, sizeof *plain, share_compare);
    // Standard error of a median, from the quartiles of a bell: 1.2533 * iqr / 1.349 / sqrt(n).
    double spread = ratio[3 * pairs / 4] - ratio[pairs / 4];
    printf("{\"planted\": %.4f, \"found\": %.4f, \"standard_error\": %.4f, \"step_ms\": %.3f, "
           "\"pairs\": %zu}\n",
            extra, expm1(ratio[pairs / 2]), 0.929 * spread / sqrt((double)pairs),
            plain[pairs / 2] / 1e6, pairs);
    free(ratio);
    free(plain);
}

int main(int argc, char **argv)
{
    struct share share = {0};
    struct error err = {0};
    double extra;
    uint64_t pairs;
    if (argc != 6 || unit_parse_fraction(argv[4], &extra, &err) ||
            unit_parse_uint(argv[5], 4, 1000000, &pairs, &err)) {
        fprintf(stderr, "plant_share MODEL train|infer small|demo P%% PAIRS; %s\n", err.text);
        return EXIT_CODE_USAGE;
    }
    enum model_size size = strcmp(argv[3], "small") == 0 ? MODEL_SIZE_SMALL : MODEL_SIZE_DEMO;
    share.train = strcmp(argv[2], "train") == 0;
    for (uint32_t i = 0; i < SHARE_RANKS; i++) {
        if (pool_new(1, &share.pool[i], &err))
            return EXIT_CODE_OPERATIONAL;
    }
    if (strcmp(argv[1], "allreduce") != 0) {
        share.ops = strcmp(argv[1], "dlrm") == 0 ? &dlrm_ops_f32 : &transformer_ops_f32;
        if (share_model(&share, size, &err)) {
            fprintf(stderr, "plant_share: %s\n", err.text);
            return error_exit_code(err.code);
        }
    } else {
        share_reduce(&share, size);
    }
    share_measure(&share, extra, pairs);
    if (share.ops)
        share.ops->destroy(share.model);
    arena_free(&share.arena);
    for (uint32_t i = 0; i < SHARE_RANKS; i++)
        pool_free(share.pool[i]);
    return EXIT_CODE_PASS;
}
