// SPDX-License-Identifier: Apache-2.0
// What the check and the timing of a kernel share: the device, its copy rate, memory that starts
// poisoned, random inputs, comparison with float64, and the lines that ci/gpu/kernels makes a table
// of. One thread. Dies in words when CUDA fails: a figure after that would be worth nothing.
#if !defined(UPGATE_KERNELS_BENCH_H) && !defined(__CUDACC_RTC__)
#define UPGATE_KERNELS_BENCH_H

// Of CUDA and C++ first: the header of the reference defines a macro `real`.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "kernels/kernels.h"

#define NATIVE_REAL_BITS 64
extern "C" {
#include "reference_models/native/ops/ops.h"
#include "reference_models/native/rng.h"
}

struct bench {
    struct pool *pool; // of the reference
    struct rng rng;
    cudaStream_t stream;
    size_t l2_bytes;
    bool tune;  // time every variant of a kernel
    bool quick; // fewer and smaller cases: under a checker of memory everything is slow
    std::vector<void *> memory; // on the device, freed by bench_release()
    int cases, failures;
};

// A kernel's place in the suite. host: what needs no GPU (refusals; the reference against other
// code), returns failures. check: right on fresh random inputs of many shapes. time: the shapes of
// the table, checked again, timed.
struct suite {
    const char *name;
    int (*host)();
    void (*check)(struct bench *bench);
    void (*time)(struct bench *bench);
};
extern const struct suite suite_norm, suite_bag_forward, suite_bag_update, suite_adam,
        suite_attention, suite_cross_entropy, suite_hash, suite_cache, suite_interaction, suite_mlp,
        suite_gemm, suite_comm, suite_pointwise, suite_binary_entropy;

// A line of the table. target: of the ratio, 0 where none is set.
struct bench_row {
    const char *kernel;
    char shape[96];
    double error, error_max; // norm of the difference over norm of the reference, the worst of all
                             // outputs
    double bytes;            // what must pass device memory: read once, written once
    double target;
    double operations = 0; // of the matrix units; not 0: the ratio is that of rates, to the GEMM's
    const char *beside = NULL; // what else the rate is compared with, if it is neither the copy nor
                               // the GEMM: "link", "loop"
    char note[160] = "";       // behind the line of the table
};

#define BENCH_CHECK(call) bench_died_if((call), #call, __FILE__, __LINE__)
void bench_died_if(cudaError_t error, const char *call, const char *file, int line);
void bench_must(int rc, const struct error *err); // a launcher refused what it should take

// on the device, every byte 0xff: NaN in every type
void *bench_memory(struct bench *bench, size_t bytes);
void bench_release(struct bench *bench);
void bench_poison(void *device, size_t bytes);

// count values of normal size (-scale to scale, or 1 ± scale for `around_one`), rounded to type; in
// *ret on the host and on the device.
void *bench_draw(struct bench *bench, enum kernel_type type, size_t count, double scale,
        bool around_one, std::vector<double> *ret);
void *bench_upload(struct bench *bench, const void *host, size_t bytes);
// `times` copies of what lies at `from`, one after the other.
void *bench_repeat(struct bench *bench, const void *from, size_t bytes, size_t times);
void bench_round(enum kernel_type type, double *values, size_t count);
std::vector<double> bench_download(enum kernel_type type, const void *device, size_t count);

// Norm of (got - want) over norm of want; infinite when got holds a NaN or one value is off by more
// than 64 times limit of its own size and that of the mean (a single wrong element drowns in the
// norm).
double bench_error(const double *got, const double *want, size_t count, double limit);
// Counts a case; says what failed.
bool bench_expect(
        struct bench *bench, double error, double limit, const char *what, const char *shape);

// Median time of a launch in ns, and what it is compared with, the better of before and after it:
// the rate of the copy in bytes (read and written) a ns, or of the GEMM in operations a ns (0: no
// cuBLASLt).
struct bench_timing {
    double ns, rate;
    // the most of the kernels launched: registers a thread at the launch, bytes of local memory
    // (arrays and spills) a thread; -1: not known (a launch that waits, kernels of a library)
    int registers, local;
    // of sides_time(), where there are sides; then nothing is compared with: rate 0
    std::vector<std::vector<double>> sides;
};
// sets: how many sets of inputs launch() takes in turn; enough that none is left in the L2.
struct bench_timing bench_time(struct bench *bench,
        void (*launch)(void *arg, int set, cudaStream_t stream), void *arg, int sets);
struct bench_timing bench_time_products(struct bench *bench,
        void (*launch)(void *arg, int set, cudaStream_t stream), void *arg, int sets);
double bench_ns(cudaStream_t stream, void (*launch)(void *arg, int set, cudaStream_t stream),
        void *arg, int sets, int samples);
// The mean ns of `count` launches in a row, and the count that makes SAMPLE_NS of them, after a few
// to warm up.
double bench_sample(cudaStream_t stream, void (*launch)(void *arg, int set, cudaStream_t stream),
        void *arg, int sets, int count);
int bench_launches(cudaStream_t stream, void (*launch)(void *arg, int set, cudaStream_t stream),
        void *arg, int sets);
double bench_gemm_rate(struct bench *bench); // of gemm.cu
int bench_sets(const struct bench *bench, double bytes);
void bench_report(struct bench *bench, const struct bench_row *row, struct bench_timing timing);

// For host(): rc must be -EINVAL and the sentence must hold `words`. Returns 1 and says so when
// not.
int bench_refused(int rc, const struct error *err, const char *words);

#endif
