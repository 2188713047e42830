// SPDX-License-Identifier: Apache-2.0
// The models on the GPU without one: their launchers stand in tests/unit/fake_cuda. Their losses
// and answers must follow the CPU's in float64, within what bfloat16 loses; what they cannot run on
// is refused before the first step.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cuda_runtime.h>

#include "fake_comm.h"
#include "reference_models/cuda/exchange.h"
#include "reference_models/native/models/dlrm_cached_data.h"
#include "reference_models/native/models/hstu_data.h"
#include "reference_models/native/models/transformer_data.h"
#include "reference_models/native/models/vision_data.h"
#include "reference_models/native/ranks/share.h"
#include "reference_models/native/workload.h"
#include "runner.h"
#include "tests/unit/test_step_rig.h"

#ifdef __SANITIZE_ADDRESS__
#define STEPS 1 // every index once
#else
#define STEPS 4
#endif
#define CHANGE_LIMIT \
    (STEPS > 1 ? 0.15 : 0.3) // of what the steps changed; one of bfloat16's roundings is 0.004, a
                             // sum of few rows has many, and masks of relu flip

static struct pool *pool;

static struct model *model_new(const struct model_ops *ops, struct model_opts opts)
{
    struct error err = {0};
    struct model *model = NULL;
    if (!pool)
        CHECK_INT(pool_new(1, &pool, NULL), 0);
    opts.pool = pool;
    int rc = ops->create(&opts, &model, &err);
    if (rc)
        runner_fail(__FILE__, __LINE__, "create: %s", err.text);
    return model;
}

static double step_loss(const struct model_ops *ops, struct model *model, uint64_t step)
{
    ops->load(model, step);
    ops->forward(model);
    double loss = ops->loss(model);
    ops->backward(model);
    ops->update(model);
    return ops->settle ? ops->settle(model) : loss;
}

static double value_of(const struct model_ops *ops, const void *values, size_t i)
{
    return ops->real_bytes == 4 ? (double)((const float *)values)[i] : ((const double *)values)[i];
}

// The norm of the difference over that of the CPU's; with `start`: of how far each is from it.
static double difference(const struct model_ops *a, const void *x, const struct model_ops *b,
        const void *y, size_t count, const double *start)
{
    double square = 0, whole = 0;
    for (size_t i = 0; i < count; i++) {
        double d = value_of(a, x, i) - value_of(b, y, i),
               own = value_of(b, y, i) - (start ? start[i] : 0);
        square += d * d;
        whole += own * own;
    }
    return whole > 0 ? sqrt(square / whole) : square > 0;
}

// Steps of training: losses, then what every parameter became.
static void check_twins(const struct model_ops *cuda, const struct model_ops *cpu,
        struct model_opts opts, double limit)
{
    opts.train = true;
    struct model *a = model_new(cuda, opts), *b = model_new(cpu, opts);
    size_t count_a, count_b;
    const struct model_param *y = cpu->params(b, &count_b);
    double *start[64];
    for (size_t i = 0; i < count_b; i++) {
        start[i] = malloc(y[i].count * sizeof **start);
        for (size_t j = 0; j < y[i].count; j++)
            start[i][j] = value_of(cpu, y[i].value, j);
    }
    for (uint64_t step = 0; step < STEPS; step++) {
        double on_gpu = step_loss(cuda, a, step), on_cpu = step_loss(cpu, b, step);
        CHECK_DBL(on_gpu, on_cpu, limit * fabs(on_cpu));
    }
    const struct model_param *x = cuda->params(a, &count_a);
    CHECK_INT(count_a, count_b);
    for (size_t i = 0; i < count_b; i++) {
        CHECK_INT(x[i].count, y[i].count);
        double off = difference(cuda, x[i].value, cpu, y[i].value, y[i].count, start[i]);
        // A bias of keys changes no softmax: Adam makes whole steps of what rounding leaves of its
        // gradient, 0.
        bool keys = i > 0 && strcmp(y[i].name, "qkv") == 0 && strcmp(y[i - 1].name, "qkv") == 0;
        double few = cuda == &dlrm_cached_ops_cuda ? 1.3 : 1; // samples: 0.17
        if (!(off < (keys ? 1 : few * CHANGE_LIMIT)))
            runner_fail(__FILE__, __LINE__, "%s: parameter %zu, %s: its change is off by %g",
                    cuda->name, i, y[i].name, off);
        free(start[i]);
    }
    cuda->destroy(a);
    cpu->destroy(b);
    CHECK_INT(fake_cuda.allocations, 0);
}

static void check_answers(const struct model_ops *cuda, const struct model_ops *cpu,
        struct model_opts opts, double limit)
{
    struct model *a = model_new(cuda, opts), *b = model_new(cpu, opts);
    for (uint64_t step = 0; step < STEPS && step < 2; step++) {
        size_t count_a, count_b;
        cuda->load(a, step);
        cuda->forward(a);
        cpu->load(b, step);
        cpu->forward(b);
        if (opts.decode) {
            cuda->decode(a);
            cpu->decode(b);
        }
        const void *x = cuda->logits(a, &count_a), *y = cpu->logits(b, &count_b);
        CHECK_INT(count_a, count_b);
        CHECK(difference(cuda, x, cpu, y, count_b, NULL) < limit);
    }
    cuda->destroy(a);
    cpu->destroy(b);
}

TEST(dlrm_follows_the_cpu)
{
    struct model_opts opts = {.seed = 3, .size = MODEL_SIZE_DEMO, .batch = 64};
    check_twins(&dlrm_ops_cuda, &dlrm_ops_f64, opts, 0.004);
    check_answers(&dlrm_ops_cuda, &dlrm_ops_f64, opts, 0.02);
}

// Heads of 64: the size that has them, of fewer and shorter sequences.
TEST(transformer_follows_the_cpu)
{
    struct model_opts opts = {
            .seed = 3, .size = MODEL_SIZE_LARGE, .batch = 1, .text_path = "/nonexistent"};
    check_twins(&transformer_ops_cuda, &transformer_ops_f32, opts, 0.02);
}

TEST(transformer_answers_as_the_cpu_does)
{
    struct model_opts opts = {
            .seed = 3, .size = MODEL_SIZE_LARGE, .batch = 2, .text_path = "/nonexistent"};
    check_answers(&transformer_ops_cuda, &transformer_ops_f32, opts, 0.02);
    opts.decode = 5;
    check_answers(&transformer_ops_cuda, &transformer_ops_f32, opts, 0.02);
}

// Heads of 64, short histories, two batches of different lengths in turn.
TEST(hstu_follows_the_cpu)
{
    static const struct hstu_shape shape = {.layers = 2,
            .width = 128,
            .heads = 2,
            .users = 4,
            .history = 40,
            .targets = 5,
            .items = 300,
            .pool = 2,
            .rate = 0.05};
    struct model_opts opts = {.seed = 3, .hstu_shape = &shape};
    // 1.1 % in a build without fused multiply-add
    check_twins(&hstu_ops_cuda, &hstu_ops_f64, opts, 0.03);
    check_answers(&hstu_ops_cuda, &hstu_ops_f64, opts, 0.02);
}

// Rows that the kernels take, and few ids.
static const struct dlrm_cached_shape cached_shape = {.tables = 2,
        .dim = 32,
        .batch = 32,
        .drift = 4,
        .cache = 420,
        .table = {{400, 3}, {50, 2}}};

TEST(dlrm_cached_follows_the_cpu)
{
    struct model_opts opts = {
            .seed = 3, .batch = 128, .cache_rows = 1024, .dlrm_cached_shape = &cached_shape};
    check_twins(&dlrm_cached_ops_cuda, &dlrm_cached_ops_f64, opts, 0.01);
    check_answers(&dlrm_cached_ops_cuda, &dlrm_cached_ops_f64, opts, 0.02);
}

static void check_notes(const struct model_ops *a, const struct model *x, const struct model_ops *b,
        const struct model *y, struct model_note *ret)
{
    struct model_note wanted[MODEL_NOTES_MAX];
    CHECK_INT(a->notes(x, ret), 3);
    CHECK_INT(b->notes(y, wanted), 3);
    for (int i = 0; i < 3; i++) {
        CHECK_STR(ret[i].name, wanted[i].name);
        CHECK_INT(ret[i].value, wanted[i].value);
    }
}

// As many rows as a batch may name, where the look-ahead is cut short; some leave; none does: the
// counts of every step are the CPU's, and no loss depends on how many rows fit.
TEST(dlrm_cached_counts_as_the_cpu_does_with_any_cache)
{
    enum { CACHED_STEPS = STEPS > 1 ? 12 : 3 };
    static const size_t rows[] = {256, 420, 4000};
    double losses[3][CACHED_STEPS];
    for (size_t i = 0; i < 3; i++) {
        struct model_opts opts = {.seed = 3,
                .train = true,
                .cache_rows = rows[i],
                .dlrm_cached_shape = &cached_shape};
        struct model *a = model_new(&dlrm_cached_ops_cuda, opts),
                     *b = model_new(&dlrm_cached_ops_f32, opts);
        struct model_note note[MODEL_NOTES_MAX];
        for (uint64_t step = 0; step < CACHED_STEPS; step++) {
            double on_cpu = step_loss(&dlrm_cached_ops_f32, b, step);
            losses[i][step] = step_loss(&dlrm_cached_ops_cuda, a, step);
            CHECK_DBL(losses[i][step], on_cpu, 0.01 * on_cpu);
            check_notes(&dlrm_cached_ops_cuda, a, &dlrm_cached_ops_f32, b, note);
        }
        // what leaves is fetched again
        CHECK(i == 2 ? note[1].value == note[2].value
                     : i == 1 || STEPS == 1 || note[1].value > note[2].value);
        CHECK(memcmp(losses[i], losses[0], sizeof losses[0]) == 0);
        dlrm_cached_ops_cuda.destroy(a);
        dlrm_cached_ops_f32.destroy(b);
        CHECK_INT(fake_cuda.allocations, 0);
    }
}

TEST(dlrm_cached_keeps_every_row_in_a_store_that_grows)
{
    static const struct dlrm_cached_shape shape = {.tables = 1,
            .dim = 32,
            .batch = 64,
            .drift = 1000,
            .cache = 8128,
            .table = {{1000000, 64}}};
    struct model_opts opts = {.seed = 3, .dlrm_cached_shape = &shape};
    struct model *a = model_new(&dlrm_cached_ops_cuda, opts),
                 *b = model_new(&dlrm_cached_ops_f32, opts);
    struct model_note note[MODEL_NOTES_MAX];
    size_t count;
    for (uint64_t step = 0; step < 14; step++) {
        dlrm_cached_ops_cuda.load(a, step);
        dlrm_cached_ops_cuda.forward(a);
        dlrm_cached_ops_f32.load(b, step);
        dlrm_cached_ops_f32.forward(b);
        const void *x = dlrm_cached_ops_cuda.logits(a, &count),
                   *y = dlrm_cached_ops_f32.logits(b, &count);
        CHECK(difference(&dlrm_cached_ops_cuda, x, &dlrm_cached_ops_f32, y, count, NULL) < 0.02);
    }
    check_notes(&dlrm_cached_ops_cuda, a, &dlrm_cached_ops_f32, b, note);
    CHECK(note[2].value > 16384); // a block of the store
    dlrm_cached_ops_cuda.destroy(a);
    dlrm_cached_ops_f32.destroy(b);
    CHECK_INT(fake_cuda.allocations, 0);
}

static void check_refused(
        const struct model_ops *ops, struct model_opts opts, int rc, const char *words)
{
    struct error err = {0};
    struct model *model = NULL;
    if (!pool)
        CHECK_INT(pool_new(1, &pool, NULL), 0);
    opts.pool = pool;
    CHECK_INT(ops->create(&opts, &model, &err), rc);
    CHECK(strstr(err.text, words) != NULL);
    if (!strstr(err.text, words))
        runner_fail(__FILE__, __LINE__, "said '%s', not '%s'", err.text, words);
    CHECK(model == NULL);
    CHECK_INT(fake_cuda.allocations, 0);
}

// Both kinds of blocks, images of odd sizes in every stage.
static const struct vision_shape small_images = {
        .image = 9, .stages = 2, .blocks = 2, .channels = {8, 16}, .batch = 5, .pool = 2};

TEST(vision_follows_the_cpu)
{
    struct model_opts opts = {.seed = 3, .vision_shape = &small_images};
    setenv("UPGATE_CUDNN", FAKE_CUDNN, 1);
    check_twins(&vision_ops_cuda, &vision_ops_f64, opts, 0.001);
    opts.plain_sgd = true;
    check_twins(&vision_ops_cuda, &vision_ops_f64, opts, 0.001);
    check_answers(&vision_ops_cuda, &vision_ops_f64, opts, 0.001);
}

TEST(vision_without_cudnn_is_refused)
{
    static const struct vision_shape odd = {
            .image = 9, .stages = 1, .blocks = 1, .channels = {12}, .batch = 5, .pool = 2};
    struct model_opts opts = {.seed = 3, .train = true, .vision_shape = &small_images};
    setenv("UPGATE_CUDNN", "/nonexistent/libcudnn.so.9", 1);
    check_refused(&vision_ops_cuda, opts, -ENOSYS,
            "no cuDNN: tried that of UPGATE_CUDNN: /nonexistent/libcudnn.so.9");
    setenv("UPGATE_CUDNN", "libm.so.6", 1);
    check_refused(&vision_ops_cuda, opts, -ENOSYS,
            "this cuDNN has no cudnnGetVersion: 8 and 9 have it; UPGATE_CUDNN=");
    opts.vision_shape = &odd;
    check_refused(&vision_ops_cuda, opts, -EINVAL,
            "12 channels are not supported on the GPU: a multiple of 8 is");
    CHECK_INT(error_exit_code(-ENOSYS), 4);
}

// A side's `cuda:` directory, in lib64/ or lib/; it comes before the loader's path.
TEST(vision_takes_the_cudnn_of_the_side)
{
    static char directory[] = "/tmp/upgate-cudnn-XXXXXX";
    char path[256];
    struct model_opts opts = {.seed = 3, .vision_shape = &small_images};
    CHECK(runner_directory(directory) != NULL);
    snprintf(path, sizeof path, "%s/lib", directory);
    CHECK_INT(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/lib/libcudnn.so.8", directory);
    CHECK_INT(symlink(FAKE_CUDNN, path), 0);
    unsetenv("UPGATE_CUDNN");
    setenv("CUDA_HOME", directory, 1);
    vision_ops_cuda.destroy(model_new(&vision_ops_cuda, opts));
    CHECK_INT(fake_cuda.allocations, 0);
}

TEST(what_cannot_run_is_refused)
{
    struct model_opts opts = {.seed = 3, .size = MODEL_SIZE_DEMO, .batch = 64, .train = true};
    const struct fake_cuda usual = fake_cuda;
    struct model_opts decode = {.size = MODEL_SIZE_LARGE, .decode = 256};
    check_refused(&transformer_ops_cuda, (struct model_opts){.size = MODEL_SIZE_DEMO}, -EINVAL,
            "heads of 16");
    check_refused(
            &hstu_ops_cuda, (struct model_opts){.size = MODEL_SIZE_DEMO}, -EINVAL, "heads of 32");
    check_refused(&transformer_ops_cuda, decode, -EINVAL, "256 bytes to decode are too many");
    check_refused(&transformer_ops_cuda,
            (struct model_opts){.size = MODEL_SIZE_LARGE, .train = true, .plain_sgd = true},
            -EINVAL, "plain SGD is not supported on the GPU: Adam is");
    check_refused(
            &dlrm_ops_cuda, (struct model_opts){.size = MODEL_SIZE_SMALL}, -EINVAL, "rows of 16");
    check_refused(&dlrm_cached_ops_cuda, (struct model_opts){.size = MODEL_SIZE_SMALL}, -EINVAL,
            "rows of 8 are not supported on the GPU");
    check_refused(&dlrm_cached_ops_cuda,
            (struct model_opts){
                    .train = true, .plain_sgd = true, .dlrm_cached_shape = &cached_shape},
            -EINVAL,
            "rows that learn by plain SGD are not supported on the GPU: by Adagrad they are");
    check_refused(&dlrm_cached_ops_cuda,
            (struct model_opts){.size = MODEL_SIZE_DEMO, .cache_rows = 3711}, -EINVAL,
            "a cache of 3711 rows is too small: a batch may name 3712 different ids, and all of their rows are in it; --cache 3712 or more");
    setenv("UPGATE_KERNELS", "/nonexistent", 1);
    check_refused(&dlrm_ops_cuda, opts, -EINVAL, "UPGATE_KERNELS: no .cubin in /nonexistent");
    unsetenv("UPGATE_KERNELS");
    fake_cuda.driver = 0;
    check_refused(&dlrm_ops_cuda, opts, -ENODEV, "there is no NVIDIA driver");
    fake_cuda.driver = 12040;
    check_refused(
            &dlrm_ops_cuda, opts, -ENODEV, "takes programs up to CUDA 12.4, this one is of 13.0");
    fake_cuda = usual;
    fake_cuda.gpus = 0;
    check_refused(&dlrm_ops_cuda, opts, -ENODEV, "there is no GPU");
    fake_cuda = usual;
    fake_cuda.major = 8;
    check_refused(&dlrm_ops_cuda, opts, -EINVAL,
            "this GPU has compute capability 8.0; the kernels are built for 9.0 (Hopper); --device cpu needs none");
    fake_cuda.major = 10;
    check_refused(&transformer_ops_cuda, (struct model_opts){.size = MODEL_SIZE_LARGE}, -EINVAL,
            "this GPU has compute capability 10.0");
    check_refused(&hstu_ops_cuda, (struct model_opts){.size = MODEL_SIZE_LARGE}, -EINVAL,
            "this GPU has compute capability 10.0");
    CHECK_INT(error_exit_code(-EINVAL), 2);
    fake_cuda = usual;
    fake_cuda.memory = (size_t)80 << 20;
    check_refused(&dlrm_ops_cuda, opts, -ENOMEM,
            "no room on the GPU for a table: 12.2 MiB more are needed");
    fake_cuda.memory = (size_t)66 << 20;
    check_refused(&dlrm_cached_ops_cuda,
            (struct model_opts){.size = MODEL_SIZE_DEMO, .cache_rows = 100000}, -ENOMEM,
            "no room on the GPU for the rows of the cache (--cache): 12.2 MiB more are needed");
    fake_cuda = usual;
}

static void create_dlrm(void *side)
{
    if (side)
        setenv("UPGATE_KERNELS", side, 1);
    dlrm_ops_cuda.destroy(model_new(
            &dlrm_ops_cuda, (struct model_opts){.seed = 3, .size = MODEL_SIZE_DEMO, .batch = 64}));
}

// How many kernels are the side's and how many the program's is in the store; of the program alone
// nothing is.
TEST(kernels_of_another_compiler_are_noted)
{
    struct rig rig = rig_make(&(struct reader_opts){.open = true});
    CHECK_INT(rig_join(rig_fork(create_dlrm, "whole")), 0);
    rig_drain(&rig, 0);
    CHECK_INT(rig_count(&rig, UG_RECORD_NOTE), 2);
    CHECK_STR(rig_find(&rig, UG_RECORD_NOTE, 0)->name, "kernels_of_side");
    CHECK_DBL(rig_find(&rig, UG_RECORD_NOTE, 0)->value, 334, 0);
    CHECK_STR(rig_find(&rig, UG_RECORD_NOTE, 1)->name, "kernels_of_program");
    CHECK_DBL(rig_find(&rig, UG_RECORD_NOTE, 1)->value, 12, 0);
    CHECK_INT(rig_join(rig_fork(create_dlrm, NULL)), 0);
    CHECK_INT(reader_slot_count(rig.reader), 1); // nothing to say
    rig_free(&rig);
}

// --- several ranks -------------------------------------------------------------------------------

#define RANKS 2

static struct transformer_shape ranks_shape = {
        .layers = 2, .dim = 128, .heads = 2, .context = 32, .batch = 1};

struct ranks_shared {
    struct ranks_barrier fake, cpu;
    struct exchange_meeting meeting;
    uint64_t checksum[RANKS];
    size_t calls;
};

struct ranks_run {
    struct exchange_plan plan;
    struct ranks_shared *shared;
    struct share_plan cpu; // ranks 0: the CPU is not asked
    char *memory;
};

static struct model_opts ranks_opts(const struct model_ranks *ranks)
{
    return (struct model_opts){.seed = 3,
            .size = MODEL_SIZE_LARGE,
            .train = true,
            .text_path = "/nonexistent",
            .ranks = ranks,
            .transformer_shape = &ranks_shape};
}

static uint64_t ranks_checksum(const struct model *model)
{
    size_t count;
    uint64_t checksum = 0;
    const struct model_param *params = transformer_ops_cuda.params(model, &count);
    for (size_t i = 0; i < count; i++)
        checksum = workload_checksum(checksum, params[i].value, params[i].count * 4);
    return checksum;
}

// The checks that the runner counts are those of its own process: here it is the exit code that
// says it.
static int ranks_train(uint32_t rank, void *arg)
{
    struct ranks_run *run = arg;
    const struct model_ops *cpu = &transformer_ops_f32, *cuda = &transformer_ops_cuda;
    struct model_ranks own = {.rank = rank, .arg = &run->plan};
    struct model *a = model_new(cuda, ranks_opts(&own)), *b = NULL;
    struct share *share = NULL;
    bool ok = true;
    const struct model_param *x, *y;
    double *start = NULL;
    size_t count;
    if (run->cpu.ranks) {
        share = share_new(&run->cpu, rank, run->memory, &run->shared->cpu);
        b = model_new(cpu, ranks_opts(share_model(share)));
        share_begin(share, pool);
        y = cpu->params(b, &count);
        start = calloc(y->count, sizeof *start);
        for (size_t i = 0; i < y->count; i++)
            start[i] = value_of(cpu, y->value, i);
    }
    for (uint64_t step = 0; step < STEPS; step++) {
        double on_gpu = step_loss(cuda, a, step), on_cpu = b ? step_loss(cpu, b, step) : on_gpu;
        if (!(fabs(on_gpu - on_cpu) <= 0.02 * fabs(on_cpu))) {
            fprintf(stderr, "rank %u, step %d: loss %g, the CPU's %g\n", rank, (int)step, on_gpu,
                    on_cpu);
            ok = false;
        }
    }
    run->shared->checksum[rank] = ranks_checksum(a);
    if (rank == 0)
        run->shared->calls = fake_comm_world.calls;
    if (share)
        share_end(share);
    if (start) { // of the table of bytes
        x = cuda->params(a, &count);
        y = cpu->params(b, &count);
        double off = difference(cuda, x->value, cpu, y->value, y->count, start);
        if (!(off < 2 * CHANGE_LIMIT)) {
            fprintf(stderr, "rank %u: the change of the table is off by %g\n", rank, off);
            ok = false;
        }
        free(start);
    }
    cuda->destroy(a);
    cpu->destroy(b);
    share_free(share);
    if (fake_cuda.allocations) {
        fprintf(stderr, "rank %u: %zu allocations are left\n", rank, fake_cuda.allocations);
        ok = false;
    }
    return ok ? 0 : 1;
}

// Trains, and returns the checksum that all ranks have; how many collectives rank 0 took part in.
static uint64_t check_ranks(bool sharded, size_t bucket_bytes, bool with_cpu, size_t *ret_calls)
{
    const struct fake_cuda usual = fake_cuda;
    const size_t slot = (size_t)(ranks_shape.dim > 512 ? 24 : 4) << 20;
    struct ranks_run run = {
            .plan = {.ranks = RANKS, .sharded = sharded, .bucket_bytes = bucket_bytes}};
    void *memory = NULL, *slots = NULL, *shared_cpu = NULL;
    int status = 0;
    if (with_cpu) {
        const struct model_opts opts = ranks_opts(NULL);
        run.cpu = (struct share_plan){.ops = &reduce_ops_f32, .ranks = RANKS, .sharded = sharded};
        run.cpu.units = transformer_ops_f32.units(&opts, run.cpu.first);
        CHECK_INT(ranks_share(share_bytes(&run.cpu), &shared_cpu, NULL), 0);
        run.memory = shared_cpu;
    }
    CHECK_INT(ranks_share(sizeof *run.shared, &memory, NULL), 0);
    CHECK_INT(ranks_share(RANKS * slot, &slots, NULL), 0);
    run.shared = memory;
    run.plan.meeting = &run.shared->meeting;
    fake_comm_world =
            (struct fake_comm_world){.barrier = &run.shared->fake, .memory = slots, .slot = slot};
    fake_cuda.gpus = RANKS;
    CHECK_INT(ranks_run(RANKS, ranks_train, &run, &status, NULL), 0);
    CHECK_INT(status, 0);
    fake_cuda = usual;
    uint64_t checksum = run.shared->checksum[0];
    CHECK(checksum == run.shared->checksum[1]);
    *ret_calls = run.shared->calls;
    ranks_unshare(memory, sizeof *run.shared);
    ranks_unshare(slots, RANKS * slot);
    if (shared_cpu)
        ranks_unshare(shared_cpu, share_bytes(&run.cpu));
    return checksum;
}

// The CPU's ranks read the same windows and start alike; however the parameters are parted and
// sent, the bits are the same.
TEST(ranks_follow_the_cpus)
{
    size_t calls, small_calls, sharded_calls;
    uint64_t checksum = check_ranks(false, 0, true, &calls);
    CHECK(check_ranks(false, 1, false, &small_calls) == checksum);
    CHECK(check_ranks(true, 0, false, &sharded_calls) == checksum);
    CHECK_INT(calls, 2 * STEPS); // the blocks and what is behind them are hardly more than a first
                                 // bucket; the tables
    CHECK_INT(small_calls, 4 * STEPS);       // a unit each
    CHECK_INT(sharded_calls, 8 * STEPS + 4); // gathered and scattered, and all gathered at the end
}

// Rows of the tables that are cut in two.
TEST(ranks_of_wide_rows_follow_the_cpus)
{
    size_t calls;
    ranks_shape = (struct transformer_shape){
            .layers = 1, .dim = 640, .heads = 10, .context = 16, .batch = 1};
    check_ranks(false, 0, true, &calls);
    CHECK_INT(calls, 2 * STEPS);
}

static int ranks_die(uint32_t rank, void *arg)
{
    struct ranks_run *run = arg;
    const struct model_ranks own = {.rank = rank, .arg = &run->plan};
    struct model *model = model_new(&transformer_ops_cuda, ranks_opts(&own));
    if (rank == 0)
        step_loss(&transformer_ops_cuda, model, 0); // waits for the other one
    transformer_ops_cuda.destroy(model);
    return rank ? 3 : 0;
}

TEST(a_rank_that_ends_ends_the_others)
{
    const size_t slot = (size_t)4 << 20;
    struct ranks_run run = {.plan = {.ranks = RANKS}};
    void *memory = NULL, *slots = NULL;
    int status = 0;
    CHECK_INT(ranks_share(sizeof *run.shared, &memory, NULL), 0);
    CHECK_INT(ranks_share(RANKS * slot, &slots, NULL), 0);
    run.shared = memory;
    run.plan.meeting = &run.shared->meeting;
    fake_comm_world =
            (struct fake_comm_world){.barrier = &run.shared->fake, .memory = slots, .slot = slot};
    fake_cuda.gpus = RANKS;
    CHECK_INT(ranks_run(RANKS, ranks_die, &run, &status, NULL), 0);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 3);
    ranks_unshare(memory, sizeof *run.shared);
    ranks_unshare(slots, RANKS * slot);
}

TEST(ranks_that_cannot_run_are_refused)
{
    const struct fake_cuda usual = fake_cuda;
    struct exchange_meeting *meeting = NULL;
    void *memory = NULL;
    CHECK_INT(ranks_share(sizeof *meeting, &memory, NULL), 0);
    meeting = memory;
    struct exchange_plan plan = {.ranks = 2, .meeting = meeting};
    const struct model_ranks own = {.rank = 0, .arg = &plan};
    struct model_opts small = ranks_opts(&own);
    fake_cuda.gpus = 1;
    check_refused(&transformer_ops_cuda, ranks_opts(&own), -EINVAL,
            "2 ranks need a GPU each, and this machine shows 1; --ranks 1");
    fake_cuda.gpus = 2;
    check_refused(&transformer_ops_cuda, ranks_opts(&own), -ENOSYS, "UPGATE_NCCL=");
    small.transformer_shape = NULL;
    small.size = MODEL_SIZE_DEMO;
    check_refused(&transformer_ops_cuda, small, -EINVAL, "heads of 32");
    fake_cuda.gpus = 3;
    plan.ranks = 3;
    plan.sharded = true;
    check_refused(&transformer_ops_cuda, ranks_opts(&own), -EINVAL,
            "3 ranks cannot share the parameters");
    fake_cuda = usual;
    ranks_unshare(memory, sizeof *meeting);
}
