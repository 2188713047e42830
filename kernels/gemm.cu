// SPDX-License-Identifier: Apache-2.0
// The rate that every ratio of a matrix kernel is taken to: the side's own cuBLASLt, bfloat16, 8192 x 8192 x 8192, sums in float32, inputs
// random (zeros run some 13 % faster), the best of the algorithms that it proposes.
//     nvcc -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a -I. -c kernels/gemm.cu
// The library is opened at run time, so that the build needs none: UPGATE_CUBLASLT, or libcublasLt.so.13 or .12. Declared here is what
// its ABI has had since 11.0.
#include "kernels/bench.h"

#include <cuda_bf16.h>
#include <dlfcn.h>
#include <library_types.h>

#define GEMM_SIZE 8192
#define GEMM_WORKSPACE ((size_t)64 << 20)
#define ALGORITHMS 8

struct lt_heuristic {
    uint64_t algorithm[8];
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
};

struct lt {
    int (*create)(void **handle);
    int (*desc_create)(void **desc, int compute, int scale_type);
    int (*desc_set)(void *desc, int attribute, const void *value, size_t bytes);
    int (*layout_create)(void **layout, int type, uint64_t rows, uint64_t columns, int64_t stride);
    int (*preference_create)(void **preference);
    int (*preference_set)(void *preference, int attribute, const void *value, size_t bytes);
    int (*heuristic)(void *handle, void *desc, void *a, void *b, void *c, void *d, void *preference, int wanted, struct lt_heuristic *results,
                     int *ret_count);
    int (*matmul)(void *handle, void *desc, const void *alpha, const void *a, void *a_layout, const void *b, void *b_layout,
                  const void *beta, const void *c, void *c_layout, void *d, void *d_layout, const void *algorithm, void *workspace,
                  size_t workspace_bytes, cudaStream_t stream);
};

struct gemm_problem {
    struct lt lt;
    void *handle, *desc, *layout;
    struct lt_heuristic algorithms[ALGORITHMS];
    int count;
    void *a, *b, *c, *workspace;
};

static void lt_must(int status, const char *call)
{
    if (status == 0)
        return;
    fprintf(stderr, "upgate_kernels: cuBLASLt: %s: status %d\n", call, status);
    exit(4);
}

static bool lt_open(struct lt *lt)
{
    const char *asked = getenv("UPGATE_CUBLASLT");
    const struct {
        const char *name;
        void *to;
    } symbols[] = {{"cublasLtCreate", &lt->create},
                   {"cublasLtMatmulDescCreate", &lt->desc_create},
                   {"cublasLtMatmulDescSetAttribute", &lt->desc_set},
                   {"cublasLtMatrixLayoutCreate", &lt->layout_create},
                   {"cublasLtMatmulPreferenceCreate", &lt->preference_create},
                   {"cublasLtMatmulPreferenceSetAttribute", &lt->preference_set},
                   {"cublasLtMatmulAlgoGetHeuristic", &lt->heuristic},
                   {"cublasLtMatmul", &lt->matmul}};
    void *library = asked ? dlopen(asked, RTLD_NOW | RTLD_LOCAL) : NULL;
    for (const char *name : {"libcublasLt.so.13", "libcublasLt.so.12"})
        if (!library && !asked)
            library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "upgate_kernels: no cuBLASLt, ratios to it are 0: %s; UPGATE_CUBLASLT=path of libcublasLt.so\n", dlerror());
        return false;
    }
    for (const auto &symbol : symbols) {
        void *found = dlsym(library, symbol.name);
        if (!found) {
            fprintf(stderr, "upgate_kernels: %s\n", dlerror());
            return false;
        }
        memcpy(symbol.to, &found, sizeof found);
    }
    return true;
}

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
    const int compute_32f = 68, transposed = 1, desc_transa = 3, preference_workspace = 1;
    const size_t workspace = GEMM_WORKSPACE;
    void *preference = NULL;

    if (!lt_open(&p->lt))
        return false;
    lt_must(p->lt.create(&p->handle), "create");
    lt_must(p->lt.desc_create(&p->desc, compute_32f, CUDA_R_32F), "desc_create");
    lt_must(p->lt.desc_set(p->desc, desc_transa, &transposed, sizeof transposed), "desc_set");
    lt_must(p->lt.layout_create(&p->layout, CUDA_R_16BF, GEMM_SIZE, GEMM_SIZE, GEMM_SIZE), "layout_create");
    lt_must(p->lt.preference_create(&preference), "preference_create");
    lt_must(p->lt.preference_set(preference, preference_workspace, &workspace, sizeof workspace), "preference_set");
    lt_must(p->lt.heuristic(p->handle, p->desc, p->layout, p->layout, p->layout, p->layout, preference, ALGORITHMS, p->algorithms, &p->count),
            "heuristic");
    if (p->count < 1) {
        fprintf(stderr, "upgate_kernels: no algorithm of cuBLASLt for %d x %d in bfloat16, ratios to it are 0\n", GEMM_SIZE, GEMM_SIZE);
        return false;
    }
    p->a = gemm_draw(bench);
    p->b = gemm_draw(bench);
    BENCH_CHECK(cudaMalloc(&p->c, (size_t)GEMM_SIZE * GEMM_SIZE * 2));
    BENCH_CHECK(cudaMalloc(&p->workspace, GEMM_WORKSPACE));
    return true;
}

static void gemm_launch(void *arg, int, cudaStream_t stream)
{
    const struct gemm_problem *p = (const struct gemm_problem *)arg;
    const float one = 1, zero = 0;
    lt_must(p->lt.matmul(p->handle, p->desc, &one, p->a, p->layout, p->b, p->layout, &zero, p->c, p->layout, p->c, p->layout,
                         p->algorithms[0].algorithm, p->workspace, GEMM_WORKSPACE, stream),
            "matmul");
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
