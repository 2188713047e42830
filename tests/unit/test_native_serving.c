// SPDX-License-Identifier: Apache-2.0
// Requests in rows of a batch: the score of a row is its own, whatever stands in the others and
// however many there are.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "reference_models/native/model.h"
#include "tests/unit/runner.h"

#define BATCH 8

static const struct model_ops *const all_ops[] = {
        &dlrm_ops_f32, &dlrm_ops_f64, &transformer_ops_f32, &transformer_ops_f64};
static struct pool *pool;

static struct model *model_of(const struct model_ops *ops, size_t batch)
{
    struct error err = {0};
    if (!pool)
        CHECK_INT(pool_new(1, &pool, &err), 0);
    struct model_opts opts = {.seed = 5, .size = MODEL_SIZE_SMALL, .batch = batch, .pool = pool};
    struct model *model = NULL;
    CHECK_INT(ops->create(&opts, &model, &err), 0);
    return model;
}

// Numbers that every model takes: 0..255, and whole.
static size_t request_of(
        const struct model_ops *ops, const struct model *model, int which, double *values)
{
    size_t least, most = ops->request_values(model, &least);
    size_t count = least + (size_t)which % (most - least + 1);
    for (size_t i = 0; i < count; i++)
        values[i] = (double)((which * 37 + (int)i * 11) % 256);
    return count;
}

static double score_alone(
        const struct model_ops *ops, struct model *model, const double *values, size_t count)
{
    CHECK_INT(ops->put(model, 0, values, count, NULL), 0);
    ops->set_rows(model, 1);
    ops->forward(model);
    return ops->score(model, 0);
}

TEST(a_row_has_its_own_score)
{
    for (size_t o = 0; o < sizeof all_ops / sizeof *all_ops; o++) {
        const struct model_ops *ops = all_ops[o];
        struct model *model = model_of(ops, BATCH), *other = model_of(ops, BATCH);
        double values[BATCH][4096], alone[BATCH];
        size_t count[BATCH];
        for (int i = 0; i < BATCH; i++) {
            count[i] = request_of(ops, model, i, values[i]);
            alone[i] = score_alone(ops, other, values[i], count[i]);
        }
        for (size_t rows = 1; rows <= BATCH; rows++) {
            for (size_t row = 0; row < rows; row++) // another place in each round
                CHECK_INT(ops->put(model, row, values[(row + rows) % BATCH],
                                  count[(row + rows) % BATCH], NULL),
                        0);
            ops->set_rows(model, rows);
            ops->forward(model);
            for (size_t row = 0; row < rows; row++)
                CHECK_DBL(ops->score(model, row), alone[(row + rows) % BATCH],
                        ops->real_bytes == 4 ? 2e-5 : 1e-12);
        }
        CHECK(fabs(alone[0] - alone[1]) > 1e-6); // and inputs matter
        ops->destroy(model);
        ops->destroy(other);
    }
}

TEST(bad_numbers_leave_the_row_as_it_was)
{
    for (size_t o = 0; o < sizeof all_ops / sizeof *all_ops; o++) {
        const struct model_ops *ops = all_ops[o];
        struct model *model = model_of(ops, BATCH);
        double values[4096];
        size_t count = request_of(ops, model, 3, values);
        double before = score_alone(ops, model, values, count);
        const double bad[] = {NAN, INFINITY, -INFINITY, -1, 1e300};
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
            double good = values[count - 1];
            struct error err = {0};
            values[count - 1] = bad[i];
            values[0] += 1;
            CHECK_INT(ops->put(model, 0, values, count, &err), -EINVAL);
            CHECK_CONTAINS(err.text, "features[");
            values[0] -= 1;
            values[count - 1] = good;
            ops->forward(model);
            CHECK_DBL(ops->score(model, 0), before, 0);
        }
        ops->destroy(model);
    }
}

TEST(dlrm_ids_wrap_around_and_begin_again)
{
    const struct model_ops *ops = &dlrm_ops_f64;
    struct model *model = model_of(ops, 2);
    size_t least, most = ops->request_values(model, &least);
    double values[4096] = {0};
    for (size_t i = least - 1; i < most; i++)
        values[i] = 7;
    double all = score_alone(ops, model, values, most);
    CHECK_DBL(score_alone(ops, model, values, least), all, 0); // one id in every slot
    for (size_t i = least - 1; i < most; i++)
        values[i] = 7 + 20.0 * 300 * 2000 * 8000; // a multiple of every table's rows
    CHECK_DBL(score_alone(ops, model, values, most), all, 0);
    values[least - 1] = 8;
    CHECK(score_alone(ops, model, values, most) != all);
    CHECK(all > 0 && all < 1);
    ops->destroy(model);
}

// The probabilities of all bytes that may come last sum to 1, also in a row that held a longer text
// before.
TEST(transformer_scores_are_log_probabilities)
{
    const struct model_ops *ops = &transformer_ops_f64;
    struct model *model = model_of(ops, 64);
    size_t least, most = ops->request_values(model, &least);
    double text[4096];
    for (size_t i = 0; i < most; i++)
        text[i] = (double)(i * 5 % 256);
    for (size_t row = 0; row < 64; row++)
        CHECK_INT(ops->put(model, row, text, most, NULL), 0);
    double sum = 0;
    for (int last = 0; last < 256; last++) {
        text[9] = last;
        CHECK_INT(ops->put(model, (size_t)last % 64, text, 10, NULL), 0);
        if (last % 64 < 63)
            continue;
        ops->set_rows(model, 64);
        ops->forward(model);
        for (size_t row = 0; row < 64; row++)
            sum += exp(ops->score(model, row));
    }
    CHECK_DBL(sum, 1, 1e-9);
    CHECK_INT(least, 2);
    ops->destroy(model);
}
