// SPDX-License-Identifier: Apache-2.0
// twins: do the models on the GPU learn as the CPU's do? Runs both from the same start on the same
// inputs, the CPU's in float32 (tests/unit/test_native_models.c holds that to float64), and prints
// their losses, how far the answers of the first step and what it changed in each parameter are
// apart, and what a step takes on the GPU, waits and copies included.
//     twins MODEL SIZE STEPS [MODEL SIZE STEPS]...
// Exit 0: all within the tolerance, 1: one is not, 2: usage, 4: the machine refused.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "contracts/exit_code.h"
#include "reference_models/native/args.h"
#include "reference_models/native/models/hstu_data.h"

// bfloat16 rounds by 0.4 % at most, a mean of many losses averages it: what is left is how the
// rounded weights drift.
#define TWINS_LOSS_LIMIT 0.01
#define TWINS_ANSWER_LIMIT 0.03 // norm of the difference over that of the answers
#define TWINS_CHANGE_LIMIT \
    0.15 // likewise of a parameter's change in the first step; that of Adam is its gradients'
         // signs, and not compared

static const struct twins {
    const struct model_ops *cpu, *cuda;
    bool adam;
} twins_models[] = {
        {&dlrm_ops_f32, &dlrm_ops_cuda, false},
        {&transformer_ops_f32, &transformer_ops_cuda, true},
        {&hstu_ops_f32, &hstu_ops_cuda, false},
        {&dlrm_cached_ops_f32, &dlrm_cached_ops_cuda, false},
        {&vision_ops_f32, &vision_ops_cuda, false},
};

// hstu's demo on the GPU, which has no heads of 32: of 128, with histories that a CPU follows
// within a second.
static const struct hstu_shape twins_hstu = {.layers = 2,
        .width = 256,
        .heads = 2,
        .users = 8,
        .history = 512,
        .targets = 32,
        .items = 50000,
        .pool = 2,
        .rate = 0.01};

static double twins_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static double twins_step(const struct model_ops *ops, struct model *model, uint64_t step)
{
    ops->load(model, step);
    ops->forward(model);
    double loss = ops->loss(model);
    ops->backward(model);
    ops->update(model);
    return ops->settle ? ops->settle(model) : loss;
}

// The norm of the difference over that of b; with `start`: over that of how far b is from it.
static double twins_apart(const float *a, const float *b, size_t count, const float *start)
{
    double square = 0, whole = 0;
    for (size_t i = 0; i < count; i++) {
        double off = (double)a[i] - (double)b[i],
               own = (double)b[i] - (start ? (double)start[i] : 0);
        square += off * off;
        whole += own * own;
    }
    return whole > 0 ? sqrt(square / whole) : sqrt(square);
}

static void *twins_memory(size_t bytes)
{
    void *memory = malloc(bytes + 1);
    if (memory)
        return memory;
    fprintf(stderr, "twins: no memory for a copy of the parameters; a smaller size?\n");
    exit(EXIT_CODE_OPERATIONAL);
}

// A copy of each parameter.
static float **twins_start(const struct model_param *param, size_t count)
{
    float **start = twins_memory(count * sizeof *start);
    for (size_t i = 0; i < count; i++) {
        start[i] = twins_memory(param[i].count * sizeof **start);
        memcpy(start[i], param[i].value, param[i].count * sizeof **start);
    }
    return start;
}

static double twins_changes(const struct model_param *cpu, const struct model_param *cuda,
        float *const *start, size_t count)
{
    double worst = 0;
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        double apart = twins_apart(cuda[i].value, cpu[i].value, cpu[i].count, start[i]);
        if (!(apart <= worst)) { // NaN too
            at = i;
            worst = apart;
        }
    }
    printf("  the first step changed %s (parameter %zu of %zu) most differently: %.2f %% apart\n",
            cpu[at].name, at + 1, count, worst * 100);
    return worst;
}

// What a model counts, such as the hits of a cache whose books both keep alike, is the same.
static bool twins_counts(
        const struct twins *twins, const struct model *cpu, const struct model *cuda)
{
    struct model_note wanted[MODEL_NOTES_MAX], got[MODEL_NOTES_MAX];
    size_t count = twins->cpu->notes ? twins->cpu->notes(cpu, wanted) : 0;
    if (count && twins->cuda->notes(cuda, got) != count)
        return false;
    bool same = true;
    for (size_t i = 0; i < count; i++) {
        printf("  %s: %llu on the CPU, %llu on the GPU\n", wanted[i].name,
                (unsigned long long)wanted[i].value, (unsigned long long)got[i].value);
        same = same && wanted[i].value == got[i].value;
    }
    return same;
}

static bool twins_compare(
        const struct twins *twins, struct model *cpu, struct model *cuda, uint64_t steps)
{
    double took = 0, worst = 0, apart = 0, changes = 0;
    size_t count, params = 0;
    const struct model_param *param = twins->cpu->params(cpu, &params);
    float **start = twins->adam ? NULL : twins_start(param, params);
    for (uint64_t step = 0; step < steps; step++) {
        double begin = twins_now(), on_cuda = twins_step(twins->cuda, cuda, step),
               ms = (twins_now() - begin) * 1e3;
        double on_cpu = twins_step(twins->cpu, cpu, step),
               off = fabs(on_cuda - on_cpu) / fabs(on_cpu);
        if (step == 0) {
            const float *cuda_logits = twins->cuda->logits(cuda, &count),
                        *cpu_logits = twins->cpu->logits(cpu, &count);
            apart = twins_apart(cuda_logits, cpu_logits, count, NULL);
            changes = start
                    ? twins_changes(param, twins->cuda->params(cuda, &params), start, params)
                    : 0;
        }
        took = step == 1 || ms < took ? ms : took;
        worst = off > worst || isnan(off) ? off : worst;
        if (step < 3 || step + 1 == steps || step % (steps / 10 + 1) == 0)
            printf("  step %3llu: loss %.6f on the CPU, %.6f on the GPU\n",
                    (unsigned long long)step, on_cpu, on_cuda);
        fflush(stdout);
    }
    for (size_t i = 0; start && i < params; i++)
        free(start[i]);
    free(start);
    bool ok = worst <= TWINS_LOSS_LIMIT && apart <= TWINS_ANSWER_LIMIT &&
            changes <= TWINS_CHANGE_LIMIT;
    ok = twins_counts(twins, cpu, cuda) && ok;
    printf("  %s: losses at most %.2f %% apart, answers of the first step %.2f %%; the best step took %.3f ms on the GPU\n",
            ok ? "agree" : "DIFFER", worst * 100, apart * 100, took);
    return ok;
}

static int twins_run(
        const struct twins *twins, enum model_size size, uint64_t steps, struct pool *pool)
{
    struct model_opts opts = {.seed = 1, .size = size, .train = true, .pool = pool};
    struct model *cpu = NULL, *cuda = NULL;
    struct error err = {0};
    if (size == MODEL_SIZE_DEMO)
        opts.hstu_shape = &twins_hstu;
    printf("%s %s\n", twins->cuda->name, args_size_name(size));
    int rc = twins->cuda->create(&opts, &cuda, &err);
    if (rc == 0)
        rc = twins->cpu->create(&opts, &cpu, &err);
    bool ok = rc == 0 && twins_compare(twins, cpu, cuda, steps);
    if (rc)
        fprintf(stderr, "twins: %s\n", err.text);
    twins->cuda->destroy(cuda);
    twins->cpu->destroy(cpu);
    return rc ? error_exit_code(rc) : ok ? EXIT_CODE_PASS : EXIT_CODE_FAIL;
}

int main(int argc, char **argv)
{
    int worst = argc < 4 || argc % 3 != 1 ? EXIT_CODE_USAGE : EXIT_CODE_PASS;
    struct pool *pool = NULL;
    struct error err = {0};
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    if (pool_new(cpus < 1 ? 1 : cpus > 64 ? 64 : (size_t)cpus, &pool, &err)) {
        fprintf(stderr, "twins: %s\n", err.text);
        return EXIT_CODE_OPERATIONAL;
    }
    for (int i = 1; i + 2 < argc && worst != EXIT_CODE_USAGE; i += 3) {
        int code = EXIT_CODE_USAGE;
        for (size_t m = 0; m < sizeof twins_models / sizeof *twins_models; m++)
            for (int size = 0; size < MODEL_SIZE_COUNT; size++)
                if (strcmp(argv[i], twins_models[m].cuda->name) == 0 &&
                        strcmp(argv[i + 1], args_size_name((enum model_size)size)) == 0)
                    code = twins_run(&twins_models[m], (enum model_size)size,
                            strtoull(argv[i + 2], NULL, 10), pool);
        worst = code > worst ? code : worst;
    }
    pool_free(pool);
    if (worst == EXIT_CODE_USAGE)
        fprintf(stderr, "usage: twins MODEL SIZE STEPS [MODEL SIZE STEPS]...\n");
    return worst;
}
