// SPDX-License-Identifier: Apache-2.0
// The rate that every ratio of a matrix kernel is taken to: the side's own cuBLASLt, bfloat16, 8192 x 8192 x 8192, sums in float32, inputs
// random (zeros run some 13 % faster), the best of the algorithms that it proposes.
//     nvcc -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a -I. -c kernels/gemm.cu
#include "kernels/bench.h"

#include "kernels/lt.h"

#include <cuda_bf16.h>
#include <library_types.h>

#define GEMM_SIZE 8192

struct gemm_problem {
    const struct lt *lt;
    void *desc, *layout;
    struct lt_heuristic algorithms[LT_ALGORITHMS];
    int count;
    void *a, *b, *c, *workspace;
};

static void *gemm_draw(struct bench *bench)
{
    std::vector<__nv_bfloat16> values((size_t)GEMM_SIZE * GEMM_SIZE);
    void *device = NULL;
    for (__nv_bfloat16 &value : values)
        value = __float2bfloat16((float)rng_signed(&bench->rng));
    BENCH_CHECK(cudaMalloc(&device, values.size() * sizeof values[0]));
    BENCH_CHECK(cudaMemcpy(device, values.data(), values.size() * sizeof values[0], cudaMemcpyHostToDevice));
    return device;
}

static bool gemm_prepare(struct bench *bench, struct gemm_problem *p)
{
    const int transposed = 1;
    struct error err;
    int rc = lt_open(&p->lt, &err);

    if (!rc)
        rc = lt_error(p->lt->desc_create(&p->desc, LT_COMPUTE_32F, CUDA_R_32F), "create a descriptor", &err);
    if (!rc)
        rc = lt_error(p->lt->desc_set(p->desc, LT_TRANSPOSE_A, &transposed, sizeof transposed), "turn the left side", &err);
    if (!rc)
        rc = lt_error(p->lt->layout_create(&p->layout, CUDA_R_16BF, GEMM_SIZE, GEMM_SIZE, GEMM_SIZE), "describe a matrix", &err);
    if (!rc)
        rc = lt_algorithms(p->lt, p->desc, p->layout, p->layout, p->layout, &p->algorithms, &p->count, &err);
    if (rc) {
        fprintf(stderr, "upgate_kernels: ratios to the GEMM are 0: %s\n", err.text);
        return false;
    }
    p->a = gemm_draw(bench);
    p->b = gemm_draw(bench);
    BENCH_CHECK(cudaMalloc(&p->c, (size_t)GEMM_SIZE * GEMM_SIZE * 2));
    BENCH_CHECK(cudaMalloc(&p->workspace, LT_WORKSPACE));
    return true;
}

static void gemm_launch(void *arg, int, cudaStream_t stream)
{
    const struct gemm_problem *p = (const struct gemm_problem *)arg;
    const float one = 1, zero = 0;
    struct error err;
    bench_must(lt_error(p->lt->matmul(p->lt->handle, p->desc, &one, p->a, p->layout, p->b, p->layout, &zero, p->c, p->layout, p->c, p->layout,
                                      p->algorithms[0].algorithm, p->workspace, LT_WORKSPACE, stream),
                        "launch the GEMM", &err),
               &err);
}

double bench_gemm_rate(struct bench *bench)
{
    static struct gemm_problem problem;
    static int state; // 0: not yet asked, 1: ready, -1: there is none
    const double operations = 2.0 * GEMM_SIZE * GEMM_SIZE * GEMM_SIZE;

    if (state == 0) {
        state = gemm_prepare(bench, &problem) ? 1 : -1;
        double best = INFINITY;
        int at = 0;
        for (int i = 0; state == 1 && i < problem.count; i++) {
            std::swap(problem.algorithms[0], problem.algorithms[i]);
            const double ns = bench_ns(bench->stream, gemm_launch, &problem, 1, 3);
            std::swap(problem.algorithms[0], problem.algorithms[i]);
            if (ns < best) {
                best = ns;
                at = i;
            }
        }
        std::swap(problem.algorithms[0], problem.algorithms[at]);
    }
    return state == 1 ? operations / bench_ns(bench->stream, gemm_launch, &problem, 1, 15) : 0;
}
