// SPDX-License-Identifier: Apache-2.0
// The planted data of the recommender. A sample is a function of (seed, step, row) only: threads
// may draw samples in any order. Reads nothing.
#include "reference_models/native/models/dlrm_data.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define DLRM_ZIPF 1.05
#define DLRM_TEACHER_BIAS (-0.4) // clicks are the rarer answer

// Sizes skewed as in production: many small tables, a few that hold most of the rows; bags
// likewise. With large's loss a rate of 0.2 ends in NaN within 300 steps, one of 0.1 falls for
// 1,000: half of that.
const struct dlrm_shape dlrm_shapes[MODEL_SIZE_COUNT] = {
        [MODEL_SIZE_SMALL] = {.tables = 4,
                .dim = 16,
                .batch = 256,
                .bottom = 64,
                .top1 = 128,
                .top2 = 64,
                .rate = 0.2,
                .table = {{20, 1}, {300, 2}, {2000, 4}, {8000, 8}}},
        [MODEL_SIZE_DEMO] = {.tables = 8,
                .dim = 32,
                .batch = 576,
                .bottom = 128,
                .top1 = 256,
                .top2 = 128,
                .rate = 0.2,
                .table = {{10, 1}, {100, 1}, {500, 2}, {2000, 4}, {10000, 8}, {30000, 8},
                        {60000, 16}, {100000, 24}}},
        [MODEL_SIZE_LARGE] = {.tables = 16,
                .dim = 64,
                .batch = 2048,
                .pool = 8, // drawing half a million ids takes longer than a step of a GPU
                .bottom = 256,
                .top1 = 512,
                .top2 = 256,
                .rate = 0.05,
                .table = {{10, 1}, {30, 1}, {100, 1}, {300, 1}, {1000, 2}, {3000, 2}, {10000, 4},
                        {20000, 4}, {50000, 8}, {100000, 8}, {200000, 16}, {300000, 16},
                        {500000, 32}, {700000, 32}, {1000000, 64}, {2000000, 64}}},
};

int dlrm_data_init(
        struct dlrm_data *data, const struct dlrm_shape *shape, uint64_t seed, struct error *err)
{
    *data = (struct dlrm_data){.shape = shape, .seed = seed};
    struct rng rng = rng_stream(seed, RNG_USE_TEACHER, DLRM_TABLES_MAX);
    for (size_t i = 0; i < DLRM_DENSE; i++)
        data->dense[i] = 1.5 * rng_signed(&rng);
    for (size_t t = 0; t < shape->tables; t++) {
        size_t rows = shape->table[t].rows;
        int rc = zipf_init(&data->zipf[t], rows, DLRM_ZIPF, err);
        if (rc)
            return rc;
        data->teacher[t] = malloc(rows * sizeof *data->teacher[t]);
        if (!data->teacher[t])
            return error_set(
                    err, -ENOMEM, "failed to plant a teacher of %zu rows: out of memory", rows);
        rng = rng_stream(seed, RNG_USE_TEACHER, t);
        double spread = 1.5 / sqrt((double)shape->table[t].bag);
        for (size_t i = 0; i < rows; i++)
            data->teacher[t][i] = spread * rng_signed(&rng);
    }
    return 0;
}

void dlrm_data_free(struct dlrm_data *data)
{
    for (size_t t = 0; t < DLRM_TABLES_MAX; t++) {
        zipf_free(&data->zipf[t]);
        free(data->teacher[t]);
        data->teacher[t] = NULL;
    }
}

void dlrm_data_sample(const struct dlrm_data *data, uint64_t step, size_t row, double *dense,
        uint32_t *const *ids, double *ret_label)
{
    const struct dlrm_shape *shape = data->shape;
    if (shape->pool)
        step %= shape->pool;
    struct rng rng = rng_stream(data->seed, RNG_USE_INPUT, step * shape->batch + row);
    double odds = DLRM_TEACHER_BIAS;
    for (size_t i = 0; i < DLRM_DENSE; i++) {
        dense[i] = rng_signed(&rng);
        odds += data->dense[i] * dense[i];
    }
    for (size_t t = 0; t < shape->tables; t++) {
        uint32_t bag = shape->table[t].bag;
        uint32_t *to = ids[t] + row * bag;
        for (uint32_t i = 0; i < bag; i++) {
            to[i] = (uint32_t)zipf_draw(&data->zipf[t], &rng);
            odds += data->teacher[t][to[i]];
        }
    }
    *ret_label = rng_uniform(&rng) < 1 / (1 + exp(-odds)) ? 1 : 0;
}
