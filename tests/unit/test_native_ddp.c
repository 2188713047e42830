// SPDX-License-Identifier: Apache-2.0
// Data parallel training: ranks that have a part of a batch each compute what one process computes
// on all of it, whether they keep all parameters or a part; how they reduce, in which buckets or
// with how much repeated work, changes no bit; a rank that dies ends all.
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "reference_models/native/models/transformer_data.h"
#include "reference_models/native/ranks/share.h"
#include "reference_models/native/workload.h"
#include "runner.h"

enum { STEPS = 4, RANKS_MAX = 4, SEED = 3, ROWS = 4, CONTEXT = 32, PAGE = 4096 };
#define GENERATED "/nonexistent" // no texts there: those that are the same everywhere

struct results {
    double loss[RANKS_MAX][STEPS];
    uint64_t bits[RANKS_MAX]; // of all parameters, at the end
    size_t updated[RANKS_MAX];
};

struct shared {
    struct ranks_barrier barrier;
    struct results results;
};

struct training {
    struct share_plan plan;
    double extra;    // share of the work that is repeated
    int64_t dies_at; // the last rank, in this step; -1: nobody dies
    struct shared *shared;
    char *memory;
};

static double train_step(struct model *model, uint64_t step)
{
    const struct model_ops *ops = &transformer_ops_f64;
    ops->load(model, step);
    ops->forward(model);
    double loss = ops->loss(model);
    ops->backward(model);
    ops->update(model);
    return loss;
}

static uint64_t param_bits(const struct model *model)
{
    size_t count;
    uint64_t bits = 0;
    const struct model_param *params = transformer_ops_f64.params(model, &count);
    for (size_t i = 0; i < count; i++)
        bits = workload_checksum(bits, params[i].value, params[i].count * sizeof(double));
    return bits;
}

static int train_rank(uint32_t rank, void *arg)
{
    struct training *training = arg;
    struct results *results = &training->shared->results;
    struct share *share =
            share_new(&training->plan, rank, training->memory, &training->shared->barrier);
    struct model_opts opts = {.seed = SEED,
            .size = MODEL_SIZE_SMALL,
            .train = true,
            .text_path = GENERATED,
            .ranks = share_model(share)};
    struct model *model = NULL;
    if (pool_new(1, &opts.pool, NULL) || transformer_ops_f64.create(&opts, &model, NULL))
        return 1;
    pool_set_extra(opts.pool, training->extra);
    share_begin(share, opts.pool);
    for (int64_t step = 0; step < STEPS; step++) {
        if (step == training->dies_at && rank + 1 == training->plan.ranks)
            _exit(7);
        results->loss[rank][step] = train_step(model, (uint64_t)step);
    }
    share_end(share);
    results->bits[rank] = param_bits(model);
    results->updated[rank] = share_model(share)->updated;
    transformer_ops_f64.destroy(model);
    share_free(share);
    pool_free(opts.pool);
    return 0;
}

static struct training training_of(uint32_t ranks, bool sharded)
{
    struct training training = {
            .plan = {.ops = &reduce_ops_f64, .ranks = ranks, .sharded = sharded}, .dies_at = -1};
    training.plan.units = transformer_ops_f64.units(
            &(struct model_opts){.size = MODEL_SIZE_SMALL}, training.plan.first);
    return training;
}

// The wait status of the first rank that failed.
static int train(struct training training, struct results *ret)
{
    size_t head = (sizeof(struct shared) + PAGE - 1) / PAGE * PAGE,
           bytes = head + share_bytes(&training.plan);
    void *memory;
    int status = -1;
    alarm(200); // a parent or a rank that waits for ever fails here
    CHECK_INT(ranks_share(bytes, &memory, NULL), 0);
    training.shared = memory;
    training.memory = (char *)memory + head;
    CHECK_INT(ranks_run(training.plan.ranks, train_rank, &training, &status, NULL), 0);
    *ret = training.shared->results;
    ranks_unshare(memory, bytes);
    return status;
}

// One process that reads the windows of all ranks.
static void train_alone(uint32_t ranks, double loss[STEPS])
{
    static const struct model_ranks alone = {.rank = 0};
    const struct model_ops *ops = &transformer_ops_f64;
    const struct transformer_shape *shape = &transformer_shapes_ranks[MODEL_SIZE_SMALL];
    struct model_opts opts = {.seed = SEED,
            .size = MODEL_SIZE_SMALL,
            .train = true,
            .text_path = GENERATED,
            .ranks = &alone,
            .batch = ROWS * ranks};
    struct model *model = NULL;
    struct text text;
    CHECK(shape->batch == ROWS && shape->context == CONTEXT);
    CHECK_INT(transformer_data_open(GENERATED, &text, NULL), 0);
    CHECK_INT(pool_new(1, &opts.pool, NULL), 0);
    CHECK_INT(ops->create(&opts, &model, NULL), 0);
    for (uint64_t step = 0; step < STEPS; step++) {
        for (uint32_t rank = 0; rank < ranks; rank++) {
            uint32_t token[ROWS * CONTEXT], target[ROWS * CONTEXT];
            transformer_data_draw_rank(&text, shape, SEED, true, rank, step, token, target);
            for (size_t row = 0; row < ROWS; row++) {
                double values[CONTEXT + 1];
                for (size_t i = 0; i < CONTEXT; i++)
                    values[i] = token[row * CONTEXT + i];
                values[CONTEXT] = target[row * CONTEXT + CONTEXT - 1];
                CHECK_INT(ops->put(model, rank * ROWS + row, values, CONTEXT + 1, NULL), 0);
            }
        }
        ops->forward(model);
        loss[step] = ops->loss(model);
        ops->backward(model);
        ops->update(model);
    }
    ops->destroy(model);
    pool_free(opts.pool);
    text_free(&text);
}

static void check_ranks(uint32_t ranks, double first_loss)
{
    struct results results[2];
    double alone[STEPS];
    train_alone(ranks, alone);
    for (int sharded = 0; sharded < 2; sharded++) {
        struct training training = training_of(ranks, sharded);
        struct results *got = &results[sharded];
        size_t total = training.plan.first[training.plan.units], updated = 0;
        CHECK_INT(train(training, got), 0);
        // the same parameters, and rank 0 reads the same, however many there are
        CHECK_DBL(got->loss[0][0], first_loss, 0);
        for (size_t step = 0; step < STEPS; step++) {
            double mean = 0;
            for (uint32_t rank = 0; rank < ranks; rank++)
                mean += got->loss[rank][step] / ranks;
            CHECK_DBL(mean, alone[step], 1e-9);
        }
        for (uint32_t rank = 0; rank < ranks; rank++) {
            CHECK(got->bits[rank] == got->bits[0]);
            CHECK(rank == 0 || got->loss[rank][0] != got->loss[0][0]); // it reads something else
            updated += got->updated[rank];
            CHECK(got->updated[rank] <=
                    (sharded ? total / ranks + training.plan.units * REDUCE_BLOCK : total));
        }
        // sharded: every parameter is one rank's
        CHECK_INT(updated, sharded ? total : ranks * total);
    }
    for (uint32_t rank = 0; rank < ranks; rank++)
        for (size_t step = 0; step < STEPS; step++)
            CHECK_DBL(results[1].loss[rank][step], results[0].loss[rank][step], 1e-12);
}

TEST(ranks_train_as_one_process_does)
{
    double first[STEPS];
    train_alone(1, first);
    CHECK_DBL(first[0], log(256), 0.8); // it knows nothing yet
    for (uint32_t ranks = 1; ranks <= RANKS_MAX; ranks++)
        check_ranks(ranks, first[0]);
}

TEST(how_it_is_reduced_changes_no_bit)
{
    struct results plain, other;
    CHECK_INT(train(training_of(3, false), &plain), 0);
    for (int which = 0; which < 3; which++) {
        struct training training = training_of(3, false);
        training.plan.bucket_bytes = which == 0 ? 1 : 0;
        training.plan.through_root = which == 1;
        training.extra = which == 2 ? 0.5 : 0;
        CHECK_INT(train(training, &other), 0);
        CHECK(memcmp(&plain, &other, sizeof plain) == 0);
    }
    struct training sharded = training_of(3, true), slow = sharded;
    slow.extra = 0.5;
    CHECK_INT(train(sharded, &plain), 0);
    CHECK_INT(train(slow, &other), 0);
    CHECK(memcmp(&plain, &other, sizeof plain) == 0);
}

TEST(a_dead_rank_ends_the_training)
{
    for (int sharded = 0; sharded < 2; sharded++) {
        struct training training = training_of(3, sharded);
        struct results results;
        training.dies_at = 2;
        int status = train(training, &results);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
        CHECK_INT(waitpid(-1, NULL, WNOHANG), -1); // nobody left behind
        CHECK(results.loss[0][0] > 0 && results.loss[2][2] == 0);
    }
}

TEST(units_are_blocks_of_what_is_reduced)
{
    for (int size = 0; size < MODEL_SIZE_COUNT; size++) {
        size_t first[MODEL_UNITS_MAX + 1];
        size_t units = transformer_ops_f32.units(
                &(struct model_opts){.size = (enum model_size)size}, first);
        CHECK_INT(units, transformer_shapes_ranks[size].layers + 2);
        CHECK_INT(first[0], 0);
        for (size_t unit = 0; unit < units; unit++)
            CHECK(first[unit + 1] > first[unit] && first[unit + 1] % REDUCE_BLOCK == 0);
    }
}
