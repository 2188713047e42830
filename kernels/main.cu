// SPDX-License-Identifier: Apache-2.0
// upgate_kernels: checks and times the kernels of this directory on the first GPU. Writes a line of
// JSON for each timed shape and each wrong result. ci/gpu/kernels runs it and prints the table.
//     upgate_kernels host  [NAME…]     what needs no GPU: refusals, references against other code
//     upgate_kernels check [NAME…]     many shapes of random inputs against float64
//     upgate_kernels quick [NAME…]     fewer and smaller ones, for compute-sanitizer
//     upgate_kernels time  [NAME…]     the shapes of the table, checked and timed
//     upgate_kernels tune  [NAME…]     the same, and every variant of a kernel that has some
//     upgate_kernels sides SIDE=DIRECTORY… [NAME…]
//                                      the shapes of the table by kernels of other compilers too
//                                      (*.cubin there): each side's checked, then timed in turns
//                                      with the program's own
// UPGATE_KERNELS_SECONDS: no suite begins later than that.
// Exit 0: all right; 1: a wrong result (a ratio below its target is ci/gpu/kernels' to judge); 2:
// usage; 4: CUDA failed, or there was nothing that a suite could check (no cuBLASLt).
#include "kernels/bench.h"
#include "kernels/sides.h"

#include <algorithm>
#include <time.h>
#include <unistd.h>

static const struct suite *const suites[] = {&suite_norm, &suite_bag_forward, &suite_bag_update,
        &suite_adam, &suite_attention, &suite_cross_entropy, &suite_hash, &suite_cache,
        &suite_interaction, &suite_mlp, &suite_gemm, &suite_comm, &suite_pointwise,
        &suite_binary_entropy};

static int usage()
{
    fprintf(stderr,
            "usage: upgate_kernels host|check|quick|time|tune [NAME...]\n       upgate_kernels sides SIDE=DIRECTORY... [NAME...]\nnames:");
    for (const struct suite *suite : suites)
        fprintf(stderr, " %s", suite->name);
    fprintf(stderr, "\n");
    return 2;
}

static const struct suite *find(const char *name)
{
    for (const struct suite *suite : suites)
        if (strcmp(name, suite->name) == 0)
            return suite;
    return NULL;
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
        fprintf(stderr,
                "upgate_kernels: %s has compute capability %d.%d; these kernels are built for 9.0 (Hopper)\n",
                properties.name, properties.major, properties.minor);
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
            properties.name, properties.multiProcessorCount, properties.l2CacheSize, driver,
            runtime, (unsigned long long)seed);
}

// Whether collectives are left out, unless they are named: of one GPU there are none; and a checker
// of memory has NCCL's kernels to look at.
static bool leave_comm_out(const char *mode)
{
    int devices = 0;
    BENCH_CHECK(cudaGetDeviceCount(&devices));
    const bool quick = strcmp(mode, "quick") == 0;
    if (devices >= 2 && !quick)
        return false;
    printf("{\"suite\": \"%s\", \"mode\": \"%s\", \"left_out\": \"%s\"}\n", suite_comm.name, mode,
            quick ? "kernels of a library" : "one GPU");
    return true;
}

// What the device has just checked and timed of a suite. Returns failures.
static int suite_ends(struct bench *bench, const struct suite *suite, const char *mode,
        const char *side, int *unchecked)
{
    bench_release(bench);
    printf("{\"suite\": \"%s\", \"mode\": \"%s\", \"side\": \"%s\", \"cases\": %d, \"failures\": %d}\n",
            suite->name, mode, side, bench->cases, bench->failures);
    fflush(stdout);
    if (bench->cases == 0) {
        fprintf(stderr, "upgate_kernels: %s: nothing was checked\n", suite->name);
        ++*unchecked;
    }
    return bench->failures;
}

// One suite on the device: its check by every other side, then what the mode asks for.
static int run_suite(struct bench *bench, const struct suite *suite, const char *mode, bool timed,
        int *unchecked)
{
    int failures = 0;
    for (int side = 1; side < sides_count(); side++) {
        bench->cases = bench->failures = 0;
        bench->quick = true;
        sides_use(side);
        suite->check(bench);
        sides_use(0);
        bench->quick = false;
        failures += suite_ends(bench, suite, "quick", sides_name(side), unchecked);
    }
    bench->cases = bench->failures = 0;
    (timed ? suite->time : suite->check)(bench);
    return failures + suite_ends(bench, suite, mode, sides_name(0), unchecked);
}

int main(int argc, char **argv)
{
    struct bench bench = {};
    int failures = 0, unchecked = 0, first = 2;

    if (argc < 2)
        return usage();
    const char *mode = argv[1], *seconds = getenv("UPGATE_KERNELS_SECONDS");
    const bool host = strcmp(mode, "host") == 0, tune = strcmp(mode, "tune") == 0,
               others = strcmp(mode, "sides") == 0;
    const bool timed = tune || others || strcmp(mode, "time") == 0;
    if (!host && !timed && strcmp(mode, "check") != 0 && strcmp(mode, "quick") != 0)
        return usage();
#ifdef UPGATE_KERNELS_QUICK
    if (timed) {
        fprintf(stderr,
                "upgate_kernels: %s: this program was compiled quickly, to slow kernels; build it with -DUPGATE_KERNELS_QUICK=OFF\n",
                mode);
        return 2;
    }
#endif
    while (others && first < argc && strchr(argv[first], '='))
        first++;
    if (others && first == 2)
        return usage();
    std::vector<const struct suite *> wanted; // in the order in which they are named
    for (int i = first; i < argc; i++) {
        wanted.push_back(find(argv[i]));
        if (!wanted.back())
            return usage();
    }
    const bool all = wanted.empty();
    if (all)
        wanted.assign(std::begin(suites), std::end(suites));
    if (!host)
        open_device(&bench, mode);
    if (all && !host && leave_comm_out(mode))
        wanted.erase(std::find(wanted.begin(), wanted.end(), &suite_comm));
    for (int i = 2; i < first; i++)
        sides_open(argv[i]);
    bench.tune = tune;
    const time_t begin = time(NULL);
    for (const struct suite *suite : wanted) {
        if (host) {
            const int failed = suite->host();
            printf("%s: %d failures\n", suite->name, failed);
            failures += failed;
        } else if (seconds && time(NULL) - begin > atol(seconds))
            printf("{\"suite\": \"%s\", \"mode\": \"%s\", \"left_out\": \"%s s are over\"}\n",
                    suite->name, mode, seconds);
        else
            failures += run_suite(&bench, suite, mode, timed, &unchecked);
    }
    return failures ? 1 : unchecked ? 4 : 0;
}
