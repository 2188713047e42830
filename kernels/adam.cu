// SPDX-License-Identifier: Apache-2.0
// Adam over all parameters, float32: param, grad, m, v [count]; with its check and timing.
//     nvcc -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a -I. -c kernels/adam.cu
// Bytes: 16 a parameter read, 12 written. 12 operations a parameter: bound by memory. The reference
// is ops_adam of the native models in float64.
#include "kernels/bench.h"

#include "kernels/device.cuh"

#define ADAM_BLOCK 256

struct adam_params {
    float rate, epsilon, beta1, beta2, correction1, correction2; // rate and correction1: multiplied
};

static __device__ __forceinline__ void adam_one(
        const struct adam_params &p, float grad, float &param, float &m, float &v)
{
    m = p.beta1 * m + (1 - p.beta1) * grad;
    v = p.beta2 * v + (1 - p.beta2) * grad * grad;
    param -= p.rate * p.correction1 * m / (sqrtf(v * p.correction2) + p.epsilon);
}

static __global__ void __launch_bounds__(ADAM_BLOCK) adam_vectors(struct adam_params p,
        int64_t vectors, const float4 *__restrict__ grads, float4 *params, float4 *ms, float4 *vs)
{
    const int64_t i = (int64_t)blockIdx.x * ADAM_BLOCK + threadIdx.x;
    if (i >= vectors)
        return;
    const float4 grad = __ldcs(grads + i);
    float4 param = __ldcs(params + i), m = __ldcs(ms + i), v = __ldcs(vs + i);
    adam_one(p, grad.x, param.x, m.x, v.x);
    adam_one(p, grad.y, param.y, m.y, v.y);
    adam_one(p, grad.z, param.z, m.z, v.z);
    adam_one(p, grad.w, param.w, m.w, v.w);
    __stcs(params + i, param);
    __stcs(ms + i, m);
    __stcs(vs + i, v);
}

// What is left after the last whole vector.
static __global__ void adam_rest(struct adam_params p, int64_t begin, int64_t end,
        const float *grads, float *params, float *ms, float *vs)
{
    const int64_t i = begin + threadIdx.x;
    if (i < end)
        adam_one(p, grads[i], params[i], ms[i], vs[i]);
}

#ifndef __CUDACC_RTC__ // what the host does: NVRTC takes the kernels alone
int kernel_adam(const struct kernel_update *update, int64_t count, const float *grad, float *param,
        float *m, float *v, cudaStream_t stream, struct error *err)
{
    if (!(update->step >= 1 && update->beta1 >= 0 && update->beta1 < 1 && update->beta2 >= 0 &&
                update->beta2 < 1))
        return error_set(err, -EINVAL,
                "Adam: step %lld, beta1 %g, beta2 %g: from 1; from 0 to below 1",
                (long long)update->step, (double)update->beta1, (double)update->beta2);
    if (!(update->epsilon > 0))
        return error_set(err, -EINVAL, "Adam: epsilon is %g: it must be more than 0",
                (double)update->epsilon);
    if (count < 1 || count > (int64_t)4 * ADAM_BLOCK * INT32_MAX)
        return error_set(err, -EINVAL, "Adam: %lld parameters: 1 to %lld are supported",
                (long long)count, (long long)4 * ADAM_BLOCK * INT32_MAX);
    if (!grad || !param || !m || !v ||
            ((uintptr_t)grad | (uintptr_t)param | (uintptr_t)m | (uintptr_t)v) % 16 != 0)
        return error_set(err, -EINVAL,
                "Adam: grad, param, m or v is NULL or does not start at a multiple of 16 bytes");
    const struct adam_params p = {update->rate, update->epsilon, update->beta1, update->beta2,
            (float)(1 / (1 - pow((double)update->beta1, (double)update->step))),
            (float)(1 / (1 - pow((double)update->beta2, (double)update->step)))};
    const int64_t vectors = count / 4;
    if (vectors)
        adam_vectors<<<(unsigned)((vectors + ADAM_BLOCK - 1) / ADAM_BLOCK), ADAM_BLOCK, 0,
                stream>>>(
                p, vectors, (const float4 *)grad, (float4 *)param, (float4 *)m, (float4 *)v);
    if (count % 4)
        adam_rest<<<1, 4, 0, stream>>>(p, vectors * 4, count, grad, param, m, v);
    return device_error(cudaGetLastError(), "launch adam", err);
}

struct adam_case {
    struct kernel_update update;
    int64_t count;
    float *grad, *param, *m, *v;
};

static void launch_adam(void *arg, int, cudaStream_t stream)
{
    struct error err;
    struct adam_case *t = (struct adam_case *)arg;
    bench_must(
            kernel_adam(&t->update, t->count, t->grad, t->param, t->m, t->v, stream, &err), &err);
}

// Two steps from random m and v (v not below 0) against the reference. The memory stays.
static double adam_error(struct bench *bench, struct adam_case *t, int64_t count)
{
    const size_t n = (size_t)count;
    std::vector<double> grad, param, m, v;
    double worst = 0;

    t->update = {KERNEL_ADAM, 0.01f, 1e-8f, 0.9f, 0.999f, 0, NULL};
    t->count = count;
    t->grad = (float *)bench_draw(bench, KERNEL_FLOAT32, n, 1, false, &grad);
    t->param = (float *)bench_draw(bench, KERNEL_FLOAT32, n, 1, false, &param);
    t->m = (float *)bench_draw(bench, KERNEL_FLOAT32, n, 0.1, false, &m);
    t->v = (float *)bench_draw(bench, KERNEL_FLOAT32, n, 0.9, true, &v);
    for (t->update.step = 1; t->update.step <= 2; t->update.step++) {
        const struct adam adam = {t->update.rate, t->update.beta1, t->update.beta2,
                t->update.epsilon, (uint64_t)t->update.step};
        launch_adam(t, 0, bench->stream);
        ops_adam(bench->pool, n, &adam, grad.data(), param.data(), m.data(), v.data());
    }
    BENCH_CHECK(cudaStreamSynchronize(bench->stream));
    const struct {
        const float *got;
        const std::vector<double> *want;
    } outputs[] = {{t->param, &param}, {t->m, &m}, {t->v, &v}};
    for (const auto &output : outputs) {
        const std::vector<double> got = bench_download(KERNEL_FLOAT32, output.got, n);
        worst = std::max(worst, bench_error(got.data(), output.want->data(), n, 1e-6));
    }
    return worst;
}

static void adam_check(struct bench *bench)
{
    static const int64_t counts[] = {1, 3, 4, 5, 1023, 1024, 1025, 99999};
    for (int64_t count : counts) {
        struct adam_case t;
        char name[96];
        snprintf(name, sizeof name, "%lld float32", (long long)count);
        bench_expect(bench, adam_error(bench, &t, count), 1e-6, "adam", name);
        bench_release(bench);
    }
}

static void adam_time(struct bench *bench)
{
    struct adam_case t;
    struct bench_row row = {"adam", "67108864 float32", 0, 1e-6, 28.0 * 67108864, 0.95};
    row.error = adam_error(bench, &t, 67108864);
    bench_report(bench, &row, bench_time(bench, launch_adam, &t, 1));
    bench_release(bench);
}

static int adam_host()
{
    alignas(16) static float memory[4];
    struct kernel_update good = {KERNEL_ADAM, 0.01f, 1e-8f, 0.9f, 0.999f, 1, NULL}, bad = good;
    struct error err;
    int failures = 0;
    bad.step = 0;
    failures += bench_refused(
            kernel_adam(&bad, 4, memory, memory, memory, memory, 0, &err), &err, "step 0");
    failures += bench_refused(
            kernel_adam(&good, 0, memory, memory, memory, memory, 0, &err), &err, "0 parameters");
    failures += bench_refused(kernel_adam(&good, 4, memory + 1, memory, memory, memory, 0, &err),
            &err, "multiple of 16");
    bad = good;
    bad.epsilon = 0;
    failures += bench_refused(
            kernel_adam(&bad, 4, memory, memory, memory, memory, 0, &err), &err, "epsilon");
    return failures;
}

const struct suite suite_adam = {"adam", adam_host, adam_check, adam_time};
#endif
