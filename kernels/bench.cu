// SPDX-License-Identifier: Apache-2.0
// The bench of bench.h, and the copy that every ratio is taken to: the best of a grid-stride copy
// of 16-byte vectors and of cudaMemcpyAsync, 1 GiB to 1 GiB, bytes read plus bytes written.
//     nvcc -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a -I. -c kernels/bench.cu
#include "kernels/bench.h"

#include "kernels/device.cuh"
#include "kernels/sides.h"

#define COPY_BYTES ((size_t)1 << 30)
#define SAMPLES 15
#define SAMPLE_NS 4e6 // of one sample: some 1000 times what an event is off by

namespace of_bench // no kernel that a side must have
{
static __global__ void __launch_bounds__(512)
        copy_vectors(const uint4 *__restrict__ from, uint4 *__restrict__ to, size_t count)
{
    const size_t stride = (size_t)gridDim.x * blockDim.x;
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (; i + 3 * stride < count; i += 4 * stride) {
        const uint4 a = __ldcs(from + i), b = __ldcs(from + i + stride),
                    c = __ldcs(from + i + 2 * stride), d = __ldcs(from + i + 3 * stride);
        __stcs(to + i, a);
        __stcs(to + i + stride, b);
        __stcs(to + i + 2 * stride, c);
        __stcs(to + i + 3 * stride, d);
    }
    for (; i < count; i += stride)
        __stcs(to + i, __ldcs(from + i));
}
} // namespace of_bench

void bench_died_if(cudaError_t error, const char *call, const char *file, int line)
{
    if (error == cudaSuccess)
        return;
    fprintf(stderr, "upgate_kernels: %s:%d: %s: %s (%s)\n", file, line, call,
            cudaGetErrorString(error), cudaGetErrorName(error));
    exit(4);
}

static bool looking, refused_look; // bench_look() is at work; a launcher could not be looked at

void bench_must(int rc, const struct error *err)
{
    if (rc == 0)
        return;
    if (looking) {
        refused_look = true;
        return;
    }
    fprintf(stderr, "upgate_kernels: %s\n", err->text);
    exit(4);
}

void *bench_memory(struct bench *bench, size_t bytes)
{
    void *device = NULL;
    BENCH_CHECK(cudaMalloc(&device, bytes ? bytes : 16));
    bench->memory.push_back(device);
    bench_poison(device, bytes);
    return device;
}

void bench_release(struct bench *bench)
{
    BENCH_CHECK(cudaDeviceSynchronize());
    for (void *device : bench->memory)
        BENCH_CHECK(cudaFree(device));
    bench->memory.clear();
}

void bench_poison(void *device, size_t bytes)
{
    BENCH_CHECK(cudaMemset(device, 0xff, bytes));
    BENCH_CHECK(cudaDeviceSynchronize());
}

template <typename T> static void round_to(double *values, size_t count, std::vector<char> *ret)
{
    if (ret)
        ret->resize(count * sizeof(T));
    for (size_t i = 0; i < count; i++) {
        const T rounded = (T)(float)values[i];
        values[i] = (double)(float)rounded;
        if (ret)
            memcpy(ret->data() + i * sizeof(T), &rounded, sizeof(T));
    }
}

static void round_any(enum kernel_type type, double *values, size_t count, std::vector<char> *ret)
{
    if (type == KERNEL_FLOAT32)
        round_to<float>(values, count, ret);
    else if (type == KERNEL_FLOAT16)
        round_to<__half>(values, count, ret);
    else
        round_to<__nv_bfloat16>(values, count, ret);
}

void bench_round(enum kernel_type type, double *values, size_t count)
{
    round_any(type, values, count, NULL);
}

void *bench_draw(struct bench *bench, enum kernel_type type, size_t count, double scale,
        bool around_one, std::vector<double> *ret)
{
    std::vector<char> bytes;
    ret->resize(count);
    for (double &value : *ret)
        value = (around_one ? 1 : 0) + scale * rng_signed(&bench->rng);
    round_any(type, ret->data(), count, &bytes);
    return bench_upload(bench, bytes.data(), bytes.size());
}

void *bench_upload(struct bench *bench, const void *host, size_t bytes)
{
    void *device = bench_memory(bench, bytes);
    BENCH_CHECK(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice));
    return device;
}

void *bench_repeat(struct bench *bench, const void *from, size_t bytes, size_t times)
{
    char *device = (char *)bench_memory(bench, bytes * times);
    for (size_t i = 0; i < times; i++)
        BENCH_CHECK(cudaMemcpy(device + i * bytes, from, bytes, cudaMemcpyDeviceToDevice));
    BENCH_CHECK(cudaDeviceSynchronize());
    return device;
}

template <typename T> static void widen(const std::vector<char> &bytes, std::vector<double> &values)
{
    for (size_t i = 0; i < values.size(); i++) {
        T value;
        memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
        values[i] = (double)(float)value;
    }
}

std::vector<double> bench_download(enum kernel_type type, const void *device, size_t count)
{
    std::vector<double> values(count);
    std::vector<char> bytes(count * kernel_type_bytes(type));
    BENCH_CHECK(cudaMemcpy(bytes.data(), device, bytes.size(), cudaMemcpyDeviceToHost));
    if (type == KERNEL_FLOAT32)
        widen<float>(bytes, values);
    else if (type == KERNEL_FLOAT16)
        widen<__half>(bytes, values);
    else
        widen<__nv_bfloat16>(bytes, values);
    return values;
}

double bench_error(const double *got, const double *want, size_t count, double limit)
{
    double wrong = 0, whole = 0;
    for (size_t i = 0; i < count; i++) {
        wrong += (got[i] - want[i]) * (got[i] - want[i]);
        whole += want[i] * want[i];
    }
    const double typical = sqrt(whole / (double)(count ? count : 1));
    for (size_t i = 0; i < count; i++)
        if (!(fabs(got[i] - want[i]) <= 64 * limit * (fabs(want[i]) + typical)))
            return INFINITY;
    return whole > 0 ? sqrt(wrong / whole) : wrong > 0 ? INFINITY : 0;
}

bool bench_expect(
        struct bench *bench, double error, double limit, const char *what, const char *shape)
{
    bench->cases++;
    if (error <= limit)
        return true;
    bench->failures++;
    printf("{\"wrong\": \"%s\", \"shape\": \"%s\", \"error\": %s%g%s, \"error_max\": %g}\n", what,
            shape, std::isfinite(error) ? "" : "\"", error, std::isfinite(error) ? "" : "\"",
            limit);
    return false;
}

static double median(std::vector<double> values)
{
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

double bench_sample(cudaStream_t stream, void (*launch)(void *, int, cudaStream_t), void *arg,
        int sets, int count)
{
    static cudaEvent_t begin, end;
    float ms = 0;
    if (!begin) {
        BENCH_CHECK(cudaEventCreate(&begin));
        BENCH_CHECK(cudaEventCreate(&end));
    }
    BENCH_CHECK(cudaEventRecord(begin, stream));
    for (int i = 0; i < count; i++)
        launch(arg, i % sets, stream);
    BENCH_CHECK(cudaEventRecord(end, stream));
    BENCH_CHECK(cudaEventSynchronize(end));
    BENCH_CHECK(cudaEventElapsedTime(&ms, begin, end));
    return (double)ms * 1e6 / count;
}

int bench_launches(
        cudaStream_t stream, void (*launch)(void *, int, cudaStream_t), void *arg, int sets)
{
    bench_sample(stream, launch, arg, sets, 2 * sets);
    const int count = (int)(SAMPLE_NS / bench_sample(stream, launch, arg, sets, 2 * sets)) + 1;
    return (std::min(count, 1000) + sets - 1) / sets * sets;
}

double bench_ns(cudaStream_t stream, void (*launch)(void *, int, cudaStream_t), void *arg, int sets,
        int samples)
{
    std::vector<double> times;
    const int count = bench_launches(stream, launch, arg, sets);
    for (int i = 0; i < samples; i++)
        times.push_back(bench_sample(stream, launch, arg, sets, count));
    return median(times);
}

struct copy {
    uint4 *from, *to;
    int multiprocessors;
};

static void copy_by_kernel(void *arg, int, cudaStream_t stream)
{
    const struct copy *copy = (const struct copy *)arg;
    of_bench::copy_vectors<<<copy->multiprocessors * 4, 512, 0, stream>>>(
            copy->from, copy->to, COPY_BYTES / 16);
}

static void copy_by_engine(void *arg, int, cudaStream_t stream)
{
    const struct copy *copy = (const struct copy *)arg;
    BENCH_CHECK(
            cudaMemcpyAsync(copy->to, copy->from, COPY_BYTES, cudaMemcpyDeviceToDevice, stream));
}

static double copy_rate(struct bench *bench)
{
    static struct copy copy;
    struct error err;
    if (!copy.from) {
        bench_must(device_multiprocessors(&err, &copy.multiprocessors), &err);
        BENCH_CHECK(cudaMalloc(&copy.from, COPY_BYTES));
        BENCH_CHECK(cudaMalloc(&copy.to, COPY_BYTES));
        std::vector<uint32_t> noise(COPY_BYTES / 4); // not zeros, which can be faster
        for (uint32_t &word : noise)
            word = (uint32_t)rng_next(&bench->rng);
        BENCH_CHECK(cudaMemcpy(copy.from, noise.data(), COPY_BYTES, cudaMemcpyHostToDevice));
    }
    const double best = std::min(bench_ns(bench->stream, copy_by_kernel, &copy, 1, SAMPLES),
            bench_ns(bench->stream, copy_by_engine, &copy, 1, SAMPLES));
    BENCH_CHECK(cudaGetLastError());
    return 2.0 * (double)COPY_BYTES / best;
}

// What the kernels of a launch take, by capturing it: whatever it launches, none of it runs.
static void bench_look(cudaStream_t stream, void (*launch)(void *, int, cudaStream_t), void *arg,
        struct bench_timing *timing)
{
    cudaGraph_t graph = NULL;
    size_t count = 0;

    timing->registers = timing->local = -1;
    BENCH_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    looking = true;
    refused_look = false;
    launch(arg, 0, stream);
    looking = false;
    if (cudaStreamEndCapture(stream, &graph) == cudaSuccess && graph && !refused_look &&
            cudaGraphGetNodes(graph, NULL, &count) == cudaSuccess) {
        std::vector<cudaGraphNode_t> nodes(count);
        BENCH_CHECK(cudaGraphGetNodes(graph, nodes.data(), &count));
        for (size_t i = 0; i < count; i++) {
            cudaGraphNodeType type;
            cudaKernelNodeParams params = {};
            cudaFuncAttributes attributes;
            if (cudaGraphNodeGetType(nodes[i], &type) != cudaSuccess ||
                    type != cudaGraphNodeTypeKernel ||
                    cudaGraphKernelNodeGetParams(nodes[i], &params) != cudaSuccess ||
                    cudaFuncGetAttributes(&attributes, params.func) != cudaSuccess)
                continue;
            timing->registers = std::max(timing->registers, attributes.numRegs);
            timing->local = std::max(timing->local, (int)attributes.localSizeBytes);
        }
    }
    if (graph)
        BENCH_CHECK(cudaGraphDestroy(graph));
    cudaGetLastError(); // what could not be looked at is no error
}

static struct bench_timing time_beside(struct bench *bench, double (*rate)(struct bench *),
        void (*launch)(void *, int, cudaStream_t), void *arg, int sets)
{
    struct bench_timing timing = {};
    bench_look(bench->stream, launch, arg, &timing);
    if (sides_count() > 1) {
        timing.sides = sides_time(bench->stream, launch, arg, sets);
        timing.ns = median(timing.sides[0]);
        BENCH_CHECK(cudaGetLastError());
        return timing;
    }
    timing.rate = rate(bench);
    timing.ns = bench_ns(bench->stream, launch, arg, sets, SAMPLES);
    BENCH_CHECK(cudaGetLastError());
    timing.rate = std::max(timing.rate, rate(bench));
    return timing;
}

struct bench_timing bench_time(
        struct bench *bench, void (*launch)(void *, int, cudaStream_t), void *arg, int sets)
{
    return time_beside(bench, copy_rate, launch, arg, sets);
}

struct bench_timing bench_time_products(
        struct bench *bench, void (*launch)(void *, int, cudaStream_t), void *arg, int sets)
{
    return time_beside(bench, bench_gemm_rate, launch, arg, sets);
}

int bench_sets(const struct bench *bench, double bytes)
{
    const double sets = ceil(4 * (double)bench->l2_bytes / bytes);
    return sets < 1 ? 1 : sets > 64 ? 64 : (int)sets;
}

void bench_report(struct bench *bench, const struct bench_row *row, struct bench_timing timing)
{
    const bool products = row->operations > 0;
    const double amount = products ? row->operations : row->bytes;
    const bool right = bench_expect(bench, row->error, row->error_max, row->kernel, row->shape);
    printf("{\"kernel\": \"%s\", \"shape\": \"%s\", \"error\": %.3g, \"error_max\": %g, \"%s\": %.0f, \"ns\": %.0f, \"%s\": %.4g, "
           "\"ratio\": %.4f, \"target\": %g, \"registers\": %d, \"local\": %d, \"right\": %s",
            row->kernel, row->shape, std::isfinite(row->error) ? row->error : 1e300, row->error_max,
            products ? "operations" : "bytes", amount, timing.ns,
            row->beside        ? row->beside
                    : products ? "gemm"
                               : "copy",
            timing.rate, timing.rate > 0 ? amount / timing.ns / timing.rate : 0, row->target,
            timing.registers, timing.local, right ? "true" : "false");
    if (row->note[0])
        printf(", \"note\": \"%s\"", row->note);
    sides_print(timing.sides);
    printf("}\n");
    fflush(stdout);
}

int bench_refused(int rc, const struct error *err, const char *words)
{
    if (rc == -EINVAL && strstr(err->text, words))
        return 0;
    printf("expected a refusal with \"%s\", got %d \"%s\"\n", words, rc, rc ? err->text : "");
    return 1;
}
