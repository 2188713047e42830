// SPDX-License-Identifier: Apache-2.0
// upgate_kernels: checks and times the kernels of this directory on the first GPU. Writes a line of JSON for each timed shape
// and each wrong result. ci/gpu/kernels runs it and prints the table.
//     upgate_kernels host  [NAME…]     what needs no GPU: refusals, references against other code
//     upgate_kernels check [NAME…]     many shapes of random inputs against float64
//     upgate_kernels quick [NAME…]     fewer and smaller ones, for compute-sanitizer
//     upgate_kernels time  [NAME…]     the shapes of the table, checked and timed
//     upgate_kernels tune  [NAME…]     the same, and every variant of a kernel that has some
// Exit 0: all right; 1: a wrong result (a ratio below its target is ci/gpu/kernels' to judge); 2: usage; 4: CUDA failed.
#include "kernels/bench.h"

#include <time.h>
#include <unistd.h>

static const struct suite *const suites[] = {&suite_norm, &suite_bag_forward, &suite_bag_update, &suite_adam,
                                             &suite_attention, &suite_cross_entropy, &suite_hash, &suite_interaction,
                                             &suite_mlp};

static int usage()
{
    fprintf(stderr, "usage: upgate_kernels host|check|quick|time|tune [NAME...]\nnames:");
    for (const struct suite *suite : suites)
        fprintf(stderr, " %s", suite->name);
    fprintf(stderr, "\n");
    return 2;
}

static bool wanted(const struct suite *suite, int count, char **names)
{
    for (int i = 0; i < count; i++)
        if (strcmp(names[i], suite->name) == 0)
            return true;
    return count == 0;
}

static bool known(const char *name)
{
    for (const struct suite *suite : suites)
        if (strcmp(name, suite->name) == 0)
            return true;
    return false;
}

static void open_device(struct bench *bench, const char *mode)
{
    cudaDeviceProp properties;
    struct error err;
    int driver = 0, runtime = 0;
    struct timespec now;

    BENCH_CHECK(cudaGetDeviceProperties(&properties, 0));
    BENCH_CHECK(cudaDriverGetVersion(&driver));
    BENCH_CHECK(cudaRuntimeGetVersion(&runtime));
    if (properties.major != 9) {
        fprintf(stderr, "upgate_kernels: %s has compute capability %d.%d; these kernels are built for 9.0 (Hopper)\n", properties.name,
                properties.major, properties.minor);
        exit(4);
    }
    clock_gettime(CLOCK_REALTIME, &now);
    const uint64_t seed = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    bench->rng = rng_stream(seed, RNG_USE_INPUT, 0);
    bench->l2_bytes = (size_t)properties.l2CacheSize;
    bench->quick = strcmp(mode, "quick") == 0;
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    bench_must(pool_new((size_t)std::min(cpus < 1 ? 1l : cpus, 64l), &bench->pool, &err), &err);
    BENCH_CHECK(cudaStreamCreateWithFlags(&bench->stream, cudaStreamNonBlocking));
    printf("{\"device\": \"%s\", \"multiprocessors\": %d, \"l2_bytes\": %d, \"driver\": %d, \"runtime\": %d, \"seed\": %llu}\n",
           properties.name, properties.multiProcessorCount, properties.l2CacheSize, driver, runtime, (unsigned long long)seed);
}

int main(int argc, char **argv)
{
    struct bench bench = {};
    int failures = 0;

    if (argc < 2)
        return usage();
    const bool host = strcmp(argv[1], "host") == 0, tune = strcmp(argv[1], "tune") == 0;
    const bool timed = tune || strcmp(argv[1], "time") == 0;
    if (!host && !timed && strcmp(argv[1], "check") != 0 && strcmp(argv[1], "quick") != 0)
        return usage();
    for (int i = 2; i < argc; i++)
        if (!known(argv[i]))
            return usage();
    if (!host)
        open_device(&bench, argv[1]);
    bench.tune = tune;
    for (const struct suite *suite : suites) {
        if (!wanted(suite, argc - 2, argv + 2))
            continue;
        if (host) {
            const int failed = suite->host();
            printf("%s: %d failures\n", suite->name, failed);
            failures += failed;
            continue;
        }
        bench.cases = bench.failures = 0;
        (timed ? suite->time : suite->check)(&bench);
        bench_release(&bench);
        printf("{\"suite\": \"%s\", \"mode\": \"%s\", \"cases\": %d, \"failures\": %d}\n", suite->name, argv[1], bench.cases, bench.failures);
        fflush(stdout);
        failures += bench.failures + (bench.cases == 0);
    }
    return failures ? 1 : 0;
}
