// SPDX-License-Identifier: Apache-2.0
// The reference models as a whole: the gradient of every parameter against finite differences in
// fp64, losses that fall on what there is to learn, the same bits for the same seed, and float32
// close to the float64 run that anchors it.
#include <errno.h>
#include <stdlib.h>

#include "reference_models/native/model.h"
#include "reference_models/native/models/dlrm_cached_data.h"
#include "reference_models/native/models/vision_data.h"
#include "reference_models/native/ops/alltoall.h"
#include "reference_models/native/rng.h"
#include "runner.h"

static struct model *model_new(
        const struct model_ops *ops, struct model_opts opts, size_t threads, struct pool **ret_pool)
{
    struct model *model = NULL;
    struct error err = {0};
    CHECK_INT(pool_new(threads, ret_pool, NULL), 0);
    opts.pool = *ret_pool;
    CHECK_INT(ops->create(&opts, &model, &err), 0);
    return model;
}

static double model_loss(const struct model_ops *ops, struct model *model)
{
    ops->forward(model);
    return ops->loss(model);
}

// The gradient as the update applied it: (before - after) / rate, of plain SGD.
static double *claimed_gradient(const struct model_ops *ops, struct model *model,
        const struct model_param *params, size_t count, double rate)
{
    size_t total = 0, at = 0;
    for (size_t i = 0; i < count; i++)
        total += params[i].count;
    double *before = malloc(total * sizeof *before), *claimed = malloc(total * sizeof *claimed);
    for (size_t i = 0; i < count; at += params[i++].count)
        memcpy(before + at, params[i].value, params[i].count * sizeof *before);
    model_loss(ops, model);
    ops->backward(model);
    ops->update(model);
    at = 0;
    for (size_t i = 0; i < count; at += params[i++].count) {
        double *value = params[i].value;
        for (size_t j = 0; j < params[i].count; j++)
            claimed[at + j] = (before[at + j] - value[j]) / rate;
        memcpy(value, before + at, params[i].count * sizeof *before);
    }
    free(before);
    return claimed;
}

// Of each parameter: the value with the largest gradient and some drawn by chance.
static void check_param(const struct model_ops *ops, struct model *model,
        const struct model_param *param, const double *claimed, struct rng *rng, double step)
{
    double *value = param->value;
    size_t steepest = 0;
    for (size_t j = 0; j < param->count; j++) {
        if (fabs(claimed[j]) > fabs(claimed[steepest]))
            steepest = j;
    }
    for (int probe = 0; probe < 3; probe++) {
        size_t j = probe == 0 ? steepest : (size_t)rng_below(rng, param->count);
        double old = value[j];
        value[j] = old + step;
        double above = model_loss(ops, model);
        value[j] = old - step;
        double below = model_loss(ops, model);
        value[j] = old;
        double measured = (above - below) / (2 * step);
        CHECK_DBL(claimed[j], measured, 1e-6 * fabs(measured) + 2e-9);
        if (fabs(claimed[j] - measured) > 1e-6 * fabs(measured) + 2e-9)
            runner_fail(__FILE__, __LINE__, "parameter %s[%zu]", param->name, j);
        if (probe == 0)
            CHECK(fabs(measured) > 1e-6); // every parameter has a say
    }
}

static void check_gradients(
        const struct model_ops *ops, const char *text_path, const struct model_ranks *ranks)
{
    struct model_opts opts = {.seed = 5,
            .size = MODEL_SIZE_SMALL,
            .train = true,
            .plain_sgd = true,
            .learning_rate = 0.125,
            .text_path = text_path,
            .ranks = ranks};
    struct pool *pool;
    struct model *model = model_new(ops, opts, 1, &pool);
    struct rng rng = rng_stream(1, 0, 0);
    size_t count, at = 0;
    const struct model_param *params = ops->params(model, &count);
    ops->load(model, 0);
    double *claimed = claimed_gradient(ops, model, params, count, opts.learning_rate);
    for (size_t i = 0; i < count; at += params[i++].count)
        check_param(ops, model, &params[i], claimed + at, &rng, 1e-6);
    free(claimed);
    ops->destroy(model);
    pool_free(pool);
}

TEST(dlrm_gradient)
{
    check_gradients(&dlrm_ops_f64, NULL, NULL);
}

TEST(transformer_gradient)
{
    check_gradients(&transformer_ops_f64, "/nonexistent", NULL);
}

TEST(transformer_of_ranks_gradient)
{
    static const struct model_ranks alone = {.rank = 0};
    check_gradients(&transformer_ops_f64, "/nonexistent", &alone);
}

TEST(hstu_gradient)
{
    check_gradients(&hstu_ops_f64, NULL, NULL);
}

TEST(dlrm_cached_gradient)
{
    check_gradients(&dlrm_cached_ops_f64, NULL, NULL);
}

static void meet_nobody(void *arg)
{
    (void)arg;
}

// Of one rank; tests/unit/test_native_sharded.c has more of them.
TEST(dlrm_sharded_gradient)
{
    struct alltoall alltoall = {.ranks = 1, .meet = meet_nobody};
    struct model_ranks alone = {.alltoall = &alltoall};
    CHECK_INT(
            dlrm_sharded_ops_f64.boxes(
                    &(struct model_opts){.size = MODEL_SIZE_SMALL, .train = true}, &alltoall, NULL),
            0);
    alltoall.memory = aligned_alloc(ALLTOALL_ALIGN, alltoall_bytes(&alltoall));
    memset(alltoall.memory, 0, alltoall_bytes(&alltoall));
    check_gradients(&dlrm_sharded_ops_f64, NULL, &alone);
    free(alltoall.memory);
}

// Norms that put every other channel far above 0 and the rest far below, so that no difference
// crosses a corner of a relu. Behind the first one of a block the inputs are what is left of them:
// 0, or above.
TEST(vision_gradient)
{
    static const struct vision_shape shape = {
            .image = 5, .stages = 2, .blocks = 1, .channels = {3, 4}, .batch = 2, .pool = 2};
    struct model_opts opts = {.seed = 5,
            .train = true,
            .plain_sgd = true,
            .learning_rate = 0.125,
            .vision_shape = &shape};
    const struct model_ops *ops = &vision_ops_f64;
    struct pool *pool;
    struct model *model = model_new(ops, opts, 1, &pool);
    struct rng rng = rng_stream(1, 0, 0);
    size_t count, at = 0;
    const struct model_param *params = ops->params(model, &count);
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; strcmp(params[i].name, "norm.bias") == 0 && j < params[i].count; j++)
            ((double *)params[i].value)[j] = j % 2 ? -4.5 : 4.5;
    ops->load(model, 0);
    double *claimed = claimed_gradient(ops, model, params, count, opts.learning_rate);
    for (size_t i = 0; i < count; at += params[i++].count)
        check_param(ops, model, &params[i], claimed + at, &rng, 4e-6);
    CHECK_INT(count, 3 * 6 + 2);
    free(claimed);
    ops->destroy(model);
    pool_free(pool);
}

static double train_step(const struct model_ops *ops, struct model *model, uint64_t step)
{
    ops->load(model, step);
    double loss = model_loss(ops, model);
    ops->backward(model);
    ops->update(model);
    return loss;
}

// Mean loss of the first and last ten steps.
static void check_learns(const struct model_ops *ops, struct model_opts opts, uint64_t steps,
        double first_near, double first_tolerance, double last_below)
{
    struct pool *pool;
    opts.train = true;
    struct model *model = model_new(ops, opts, 1, &pool);
    double first = 0, last = 0;
#ifdef __SANITIZE_ADDRESS__ // half of the test's time: what is learnt is asked of the fast build
    steps = 10;
    last_below = INFINITY;
#endif
    for (uint64_t step = 0; step < steps; step++) {
        double loss = train_step(ops, model, step);
        if (step == 0)
            first = loss;
        if (step + 10 >= steps)
            last += loss / 10;
    }
    CHECK_DBL(first, first_near, first_tolerance);
    CHECK(last < last_below);
    ops->destroy(model);
    pool_free(pool);
}

TEST(dlrm_learns_the_planted_teacher)
{
    struct model_opts opts = {.seed = 1, .size = MODEL_SIZE_SMALL};
    check_learns(&dlrm_ops_f32, opts, 90, log(2), 0.05, 0.64);
}

TEST(hstu_learns_its_pool)
{
    struct model_opts opts = {.seed = 1, .size = MODEL_SIZE_SMALL};
    check_learns(&hstu_ops_f32, opts, 400, 0.73, 0.1, 0.5);
}

// What torch/hstu.py gives for the same seed, in float64: the same model and inputs, written twice.
TEST(hstu_is_the_model_of_pytorch)
{
    static const double losses[] = {0.726160657478857, 0.613883633625633, 0.850879612820592,
            0.741745380416865, 0.74819339075124, 0.621962191300355, 0.712863421706727,
            0.679558464613145};
    struct model_opts opts = {.seed = 3, .size = MODEL_SIZE_SMALL, .train = true};
    struct pool *pool;
    struct model *model = model_new(&hstu_ops_f64, opts, 1, &pool);
    size_t count;
    for (uint64_t step = 0; step < sizeof losses / sizeof *losses; step++) {
        CHECK_DBL(train_step(&hstu_ops_f64, model, step), losses[step], 2e-15);
        const double *logits = hstu_ops_f64.logits(model, &count);
        if (step == 0)
            CHECK_DBL(logits[7], -0.3780500325, 1e-10);
    }
    CHECK_INT(count, 16);
    hstu_ops_f64.destroy(model);
    pool_free(pool);
    opts.train = false;
    model = model_new(&hstu_ops_f64, opts, 1, &pool);
    hstu_ops_f64.load(model, 0);
    hstu_ops_f64.forward(model);
    const double *logits = hstu_ops_f64.logits(model, &count);
    CHECK_INT(count, 16);
    CHECK_DBL(logits[0], -0.788724875716, 1e-11);
    CHECK_DBL(logits[7], 0.432958891341, 1e-11);
    hstu_ops_f64.destroy(model);
    pool_free(pool);
}

// One batch of four images: below log(4) it has learnt which is which. tests/e2e/torch_variants.py
// holds losses and answers against PyTorch's.
TEST(vision_learns_a_batch)
{
    struct vision_shape shape = vision_shapes[MODEL_SIZE_SMALL];
    struct model_opts opts = {.seed = 1, .size = MODEL_SIZE_SMALL, .vision_shape = &shape};
    shape.pool = 1;
    check_learns(&vision_ops_f32, opts, 80, log(10), 0.8, 1.2);
}

// Statistics come from the first batch, whatever was asked before.
TEST(vision_answers_do_not_depend_on_what_was_asked_before)
{
    const struct model_ops *ops = &vision_ops_f64;
    struct model_opts opts = {.seed = 3, .size = MODEL_SIZE_SMALL};
    struct pool *pool;
    struct model *model = model_new(ops, opts, 1, &pool);
    size_t count, pooled = vision_shapes[MODEL_SIZE_SMALL].pool;
    double first[4 * VISION_CLASSES];
    for (uint64_t step = 0; step <= pooled; step++) {
        ops->load(model, step);
        ops->forward(model);
        const double *logits = ops->logits(model, &count);
        CHECK_INT(count, sizeof first / sizeof *first);
        if (step == 0)
            memcpy(first, logits, sizeof first);
        // the pool begins again
        CHECK((memcmp(first, logits, sizeof first) == 0) == (step % pooled == 0));
    }
    ops->destroy(model);
    pool_free(pool);
}

static void check_vision_refused(const struct vision_shape *shape, size_t batch, const char *words)
{
    struct model_opts opts = {.vision_shape = shape, .batch = batch};
    struct model *model = NULL;
    struct error err = {0};
    CHECK_INT(pool_new(1, &opts.pool, NULL), 0);
    CHECK_INT(vision_ops_f32.create(&opts, &model, &err), -EINVAL);
    CHECK_CONTAINS(err.text, words);
    CHECK(model == NULL);
    pool_free(opts.pool);
}

TEST(vision_refused)
{
    const struct vision_shape own = vision_shapes[MODEL_SIZE_SMALL];
    struct vision_shape shape = own;
    for (int size = 0; size < MODEL_SIZE_COUNT; size++)
        CHECK_INT(vision_shape_check(&vision_shapes[size], NULL), 0);
    check_vision_refused(&own, ((size_t)1 << 20) + 1, "a batch of 1048577 images");
    shape.stages = 0;
    check_vision_refused(&shape, 0, "a network of 0 stages: it has 1 to 8");
    shape.stages = 9;
    check_vision_refused(&shape, 0, "a network of 9 stages");
    shape = own;
    shape.blocks = 9;
    check_vision_refused(&shape, 0, "9 blocks in each of 2 stages: there are 1 to 8");
    shape = own;
    shape.channels[1] = 0;
    check_vision_refused(&shape, 0, "stage 1 has 0 channels");
    shape = own;
    shape.image = 0;
    check_vision_refused(&shape, 0, "images of 0 rows");
    shape = own;
    shape.pool = 0;
    check_vision_refused(&shape, 0, "a pool of 0 batches");
    shape = own;
    shape.image = 2;
    check_vision_refused(&shape, 1,
            "one value of each channel, which has no variance: take a larger batch or image");
}

// Steps of a small dlrm-cached; ret: their losses.
static void cached_run(const struct dlrm_cached_shape *shape, size_t rows, uint64_t steps,
        double *ret, struct model_note *ret_notes)
{
    const struct model_ops *ops = &dlrm_cached_ops_f32;
    struct model_opts opts = {.seed = 3,
            .size = MODEL_SIZE_SMALL,
            .train = true,
            .cache_rows = rows,
            .dlrm_cached_shape = shape};
    struct pool *pool;
    struct model *model = model_new(ops, opts, 1, &pool);
    for (uint64_t step = 0; step < steps; step++)
        ret[step] = train_step(ops, model, step);
    CHECK_INT(ops->notes(model, ret_notes), 3);
    CHECK_STR(ret_notes[0].name, "cache_hits");
    CHECK_STR(ret_notes[1].name, "cache_misses");
    CHECK_STR(ret_notes[2].name, "new_ids");
    ops->destroy(model);
    pool_free(pool);
}

// tests/e2e/torch_variants.py holds the losses and counts against PyTorch's.
TEST(dlrm_cached_computes_the_same_with_any_cache)
{
    enum { STEPS = 24 }; // in the first ten the size's own rows hardly have to leave
    double least[STEPS], own[STEPS], whole[STEPS];
    struct model_note least_note[MODEL_NOTES_MAX], own_note[MODEL_NOTES_MAX],
            whole_note[MODEL_NOTES_MAX];
    cached_run(NULL, 256, STEPS, least, least_note);
    cached_run(NULL, 0, STEPS, own, own_note);
    cached_run(NULL, 4000, STEPS, whole, whole_note);
    CHECK(memcmp(least, whole, sizeof whole) == 0);
    CHECK(memcmp(own, whole, sizeof whole) == 0);
    CHECK(whole[0] != whole[STEPS - 1] && isfinite(whole[STEPS - 1]));
    CHECK_INT(whole_note[1].value, whole_note[2].value); // what is never evicted is fetched once
    CHECK_INT(own_note[2].value, whole_note[2].value);
    CHECK_INT(own_note[0].value + own_note[1].value, whole_note[0].value + whole_note[1].value);
    CHECK(own_note[1].value > own_note[2].value && own_note[0].value > 0);
    CHECK(least_note[1].value > least_note[2].value);
}

TEST(dlrm_cached_keeps_every_row_in_a_store_that_grows)
{
    enum { STEPS = 24 };
    static const struct dlrm_cached_shape shape = {.tables = 1,
            .dim = 4,
            .batch = 128,
            .drift = 1000,
            .cache = 3968,
            .table = {{1000000, 16}}};
    double least[STEPS], whole[STEPS];
    struct model_note note[MODEL_NOTES_MAX];
    cached_run(&shape, 0, STEPS, least, note);
    CHECK(note[2].value > 2 * 4096); // blocks of the store
    cached_run(&shape, 100000, STEPS, whole, note);
    CHECK(memcmp(least, whole, sizeof whole) == 0);
}

static void check_cached_refused(const struct model_opts *asked, const char *words)
{
    struct model_opts opts = *asked;
    struct model *model = NULL;
    struct error err = {0};
    CHECK_INT(pool_new(1, &opts.pool, NULL), 0);
    CHECK_INT(dlrm_cached_ops_f32.create(&opts, &model, &err), -EINVAL);
    CHECK_CONTAINS(err.text, words);
    CHECK(model == NULL);
    pool_free(opts.pool);
}

TEST(dlrm_cached_refused)
{
    struct dlrm_cached_shape shape = dlrm_cached_shapes[MODEL_SIZE_SMALL];
    check_cached_refused(&(struct model_opts){.size = MODEL_SIZE_SMALL, .cache_rows = 255},
            "a cache of 255 rows is too small: a batch may name 256 different ids, and all of their rows are in it; --cache 256");
    check_cached_refused(
            &(struct model_opts){.size = MODEL_SIZE_SMALL, .batch = 64}, "--cache 512 or more");
    check_cached_refused(
            &(struct model_opts){.size = MODEL_SIZE_SMALL, .cache_rows = ((size_t)1 << 30) + 1},
            "a cache of 1073741825 rows");
    shape.table[1].bag = 0;
    check_cached_refused(
            &(struct model_opts){.dlrm_cached_shape = &shape}, "the bags of table 1 are empty");
    shape.table[1] = (struct dlrm_table_shape){0, 2};
    check_cached_refused(
            &(struct model_opts){.dlrm_cached_shape = &shape}, "table 1 has 0 popular ids");
    shape.tables = 0;
    check_cached_refused(&(struct model_opts){.dlrm_cached_shape = &shape}, "0 tables");
    shape = dlrm_cached_shapes[MODEL_SIZE_SMALL];
    shape.dim = 257;
    check_cached_refused(&(struct model_opts){.dlrm_cached_shape = &shape}, "rows of 257 values");
}

TEST(transformer_learns_text)
{
    struct model_opts opts = {.seed = 1, .size = MODEL_SIZE_SMALL};
    check_learns(&transformer_ops_f32, opts, 40, log(256), 0.8, 4);
}

TEST(transformer_learns_generated_text)
{
    struct model_opts opts = {.seed = 1, .size = MODEL_SIZE_SMALL, .text_path = "/nonexistent"};
    check_learns(&transformer_ops_f32, opts, 40, log(256), 0.8, 4);
}

struct trace {
    double loss[6];
    uint64_t bits; // of parameters and logits at the end
};

static struct trace run_trace(
        const struct model_ops *ops, uint64_t seed, size_t threads, double extra)
{
    struct model_opts opts = {.seed = seed, .size = MODEL_SIZE_SMALL, .train = true};
    struct pool *pool;
    struct model *model = model_new(ops, opts, threads, &pool);
    struct trace trace = {.bits = 0};
    pool_set_extra(pool, extra);
    for (uint64_t step = 0; step < 6; step++)
        trace.loss[step] = train_step(ops, model, step);
    size_t params_count, count;
    const struct model_param *params = ops->params(model, &params_count);
    for (size_t i = 0; i < params_count; i++) {
        const unsigned char *bytes = params[i].value;
        for (size_t j = 0; j < params[i].count * ops->real_bytes; j++)
            trace.bits = trace.bits * 1099511628211u ^ bytes[j];
    }
    const unsigned char *logits = ops->logits(model, &count);
    for (size_t j = 0; j < count * ops->real_bytes; j++)
        trace.bits = trace.bits * 1099511628211u ^ logits[j];
    ops->destroy(model);
    pool_free(pool);
    return trace;
}

static void check_same_bits(const struct model_ops *ops)
{
    struct trace first = run_trace(ops, 3, 1, 0), again = run_trace(ops, 3, 1, 0);
    struct trace threads = run_trace(ops, 3, 3, 0), slow = run_trace(ops, 3, 1, 0.3);
    struct trace other = run_trace(ops, 4, 1, 0);
    CHECK(memcmp(&first, &again, sizeof first) == 0);
    CHECK(memcmp(&first, &threads, sizeof first) == 0);
    CHECK(memcmp(&first, &slow, sizeof first) == 0); // a planted slow-down changes no result
    CHECK(first.bits != other.bits);
    CHECK(first.loss[0] != other.loss[0]);
}

TEST(dlrm_same_seed_same_bits)
{
    check_same_bits(&dlrm_ops_f32);
}

TEST(transformer_same_seed_same_bits)
{
    check_same_bits(&transformer_ops_f32);
}

TEST(hstu_same_seed_same_bits)
{
    check_same_bits(&hstu_ops_f32);
}

TEST(dlrm_cached_same_seed_same_bits)
{
    check_same_bits(&dlrm_cached_ops_f32);
}

TEST(vision_same_seed_same_bits)
{
    check_same_bits(&vision_ops_f32);
}

static void check_anchor(const struct model_ops *float32, const struct model_ops *float64)
{
    struct trace narrow = run_trace(float32, 3, 1, 0), wide = run_trace(float64, 3, 1, 0);
    CHECK(narrow.loss[0] != wide.loss[0]);
    CHECK_DBL(narrow.loss[0], wide.loss[0], 1e-6);
    CHECK_DBL(narrow.loss[5], wide.loss[5], 1e-3);
}

TEST(float32_follows_float64)
{
    check_anchor(&dlrm_ops_f32, &dlrm_ops_f64);
    check_anchor(&transformer_ops_f32, &transformer_ops_f64);
    check_anchor(&hstu_ops_f32, &hstu_ops_f64);
    check_anchor(&dlrm_cached_ops_f32, &dlrm_cached_ops_f64);
    check_anchor(&vision_ops_f32, &vision_ops_f64);
}

// hstu's requests have more targets than its steps: hstu_is_the_model_of_pytorch() holds both.
// dlrm-cached's and vision's are other batches.
TEST(inference_equals_the_forward_of_training)
{
    const struct model_ops *all[] = {&dlrm_ops_f32, &transformer_ops_f32};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct pool *pool[2];
        struct model *model[2];
        const void *logits[2];
        size_t count;
        for (int train = 0; train < 2; train++) {
            struct model_opts opts = {.seed = 9, .size = MODEL_SIZE_SMALL, .train = train};
            model[train] = model_new(all[i], opts, 1, &pool[train]);
            all[i]->load(model[train], 17);
            all[i]->forward(model[train]);
            logits[train] = all[i]->logits(model[train], &count);
        }
        CHECK(memcmp(logits[0], logits[1], count * all[i]->real_bytes) == 0);
        for (int train = 0; train < 2; train++) {
            all[i]->destroy(model[train]);
            pool_free(pool[train]);
        }
    }
}

// Prefill and decode, a byte at a time out of the cache, give what one pass over the whole sequence
// gives.
TEST(decoding_equals_one_pass)
{
    enum { DECODE = 11, BATCH = 8, CONTEXT = 32, BYTES = 256 };
    const struct model_ops *ops = &transformer_ops_f64;
    struct pool *pool[2];
    struct model *model[2];
    const double *logits[2];
    size_t count[2];
    for (size_t i = 0; i < 2; i++) {
        struct model_opts opts = {.seed = 9, .size = MODEL_SIZE_SMALL, .decode = i ? DECODE : 0};
        model[i] = model_new(ops, opts, 1, &pool[i]);
        pool_set_extra(pool[i], i ? 0.4 : 0); // repeats change nothing
        for (uint64_t step = 0; step < 2; step++) {
            ops->load(model[i], step);
            ops->forward(model[i]);
            if (i)
                ops->decode(model[i]);
        }
        logits[i] = ops->logits(model[i], &count[i]);
    }
    CHECK_INT(count[0], BATCH * CONTEXT * BYTES);
    CHECK_INT(count[1], (DECODE + 1) * BATCH * BYTES);
    for (size_t i = 0; i <= DECODE; i++)
        for (size_t b = 0; b < BATCH; b++)
            for (size_t j = 0; j < BYTES; j++)
                CHECK_DBL(logits[1][(i * BATCH + b) * BYTES + j],
                        logits[0][(b * CONTEXT + CONTEXT - DECODE - 1 + i) * BYTES + j], 1e-12);
    for (size_t i = 0; i < 2; i++) {
        ops->destroy(model[i]);
        pool_free(pool[i]);
    }
    struct model_opts opts = {.size = MODEL_SIZE_SMALL, .decode = CONTEXT};
    struct model *none = NULL;
    struct error err = {0};
    CHECK_INT(pool_new(1, &opts.pool, NULL), 0);
    CHECK_INT(ops->create(&opts, &none, &err), -EINVAL);
    CHECK(strstr(err.text, "32 bytes to decode are too many") != NULL);
    pool_free(opts.pool);
}
