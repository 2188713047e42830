// SPDX-License-Identifier: Apache-2.0
// What could have done it: the differences of the sides' fingerprints that evidence ties to a
// contribution: a library to the frames that it holds, a default to the operators that it decides
// by their names or to the kind that it is about. What merely might have done it is not shown. At
// most five, best first. A suspect is a lead, never a proof; docs/DIFF.md says so.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "reports/analyse/diff/explain/explain.h"
#include "reports/analyse/names/names.h"

#define KIND(kind) (UINT32_C(1) << (kind))
#define KERNELS \
    (KIND(DIFF_KERNEL_SLOWER) | KIND(DIFF_KERNEL_ADDED) | KIND(DIFF_KERNEL_REMOVED) | \
            KIND(DIFF_KERNEL_REPLACED))
#define FUNCTIONS \
    (KIND(DIFF_CPU_FUNCTION_SLOWER) | KIND(DIFF_CPU_FUNCTION_ADDED) | \
            KIND(DIFF_CPU_FUNCTION_REMOVED) | KIND(DIFF_CPU_FUNCTION_REPLACED))
#define ANY UINT32_MAX

enum { SUSPECTS_MAX = 5, SUSPECTS_IMPLIED = 10 };

struct suspects_rule {
    uint32_t kinds;
    const char *name; // part of a function's, kernel's or library's name; NULL: any
    const char *path; // part of the path of a difference
    int fit;          // 1 to 100
    enum diff_suspect_why why;
    const char *of;
};

static const struct suspects_rule suspects_rules[] = {
        // The library that holds it.
        {ANY, "libtorch", "components.torch", 80, DIFF_SUSPECT_HOLDS, "libtorch"},
        {ANY, "libc10", "components.torch", 80, DIFF_SUSPECT_BELONGS, NULL},
        {ANY, "at::native", "components.torch", 78, DIFF_SUSPECT_FUNCTION_OF, "torch"},
        {ANY, "dnnl", "components.onednn", 90, DIFF_SUSPECT_FUNCTION_OF, "oneDNN"},
        {ANY, "dnnl", "onednn", 60, DIFF_SUSPECT_SETTING_OF, "oneDNN"},
        {ANY, "mkldnn", "components.onednn", 85, DIFF_SUSPECT_FUNCTION_OF, "oneDNN"},
        {ANY, "mkl_", "components.blas", 90, DIFF_SUSPECT_FUNCTION_OF, "the BLAS"},
        {ANY, "openblas", "components.blas", 90, DIFF_SUSPECT_FUNCTION_OF, "the BLAS"},
        {ANY, "blas", "components.blas", 80, DIFF_SUSPECT_FUNCTION_OF, "the BLAS"},
        {ANY, "gemm", "components.blas", 70, DIFF_SUSPECT_PRODUCT, NULL},
        {ANY, "libgomp", "components.openmp", 85, DIFF_SUSPECT_FUNCTION_OF, "OpenMP"},
        {ANY, "libiomp", "components.openmp", 85, DIFF_SUSPECT_FUNCTION_OF, "OpenMP"},
        {ANY, "GOMP_", "components.openmp", 80, DIFF_SUSPECT_FUNCTION_OF, "OpenMP"},
        {ANY, "cudnn", "components.cudnn", 90, DIFF_SUSPECT_KERNEL_OF, "cuDNN"},
        {ANY, "cublas", "components.cublas", 90, DIFF_SUSPECT_KERNEL_OF, "cuBLAS"},
        {ANY, "cutlass", "components.cublas", 70, DIFF_SUSPECT_PRODUCT, NULL},
        {ANY, "nccl", "components.nccl", 90, DIFF_SUSPECT_KERNEL_OF, "NCCL"},
        {ANY, "triton", "triton", 70, DIFF_SUSPECT_TRITON, NULL},
        {ANY, "numpy", "numpy", 70, DIFF_SUSPECT_FUNCTION_OF, "numpy"},
        {ANY, "libpython", "components.interpreter", 80, DIFF_SUSPECT_INTERPRETER, NULL},
        {ANY, "libc.so", "components.libc", 60, DIFF_SUSPECT_FUNCTION_OF, "the C library"},
        {ANY, "libm.so", "components.libc", 60, DIFF_SUSPECT_FUNCTION_OF, "the C library"},
        {ANY, "libstdc++", "components.cxx_runtime", 60, DIFF_SUSPECT_FUNCTION_OF,
                "the C++ library"},
        {ANY, "malloc", "allocator", 85, DIFF_SUSPECT_ALLOCATOR, NULL},
        {ANY, "[kernel]", "host.", 40, DIFF_SUSPECT_FUNCTION_OF, "the kernel"},
        // Defaults that fit the kind.
        {KERNELS | KIND(DIFF_CLOCK_THROTTLE), "gemm", "tf32", 85, DIFF_SUSPECT_PRODUCT_PRECISION,
                NULL},
        {KERNELS, "gemm", "fp32", 85, DIFF_SUSPECT_PRODUCT_PRECISION, NULL},
        {KERNELS, "gemm", "components.cublas", 80, DIFF_SUSPECT_PRODUCTS_OF, "cuBLAS"},
        {KERNELS, "convol", "cudnn", 75, DIFF_SUSPECT_CONVOLUTIONS_OF, "cuDNN"},
        {KERNELS, "conv2d", "cudnn", 75, DIFF_SUSPECT_CONVOLUTIONS_OF, "cuDNN"},
        {KERNELS, "fprop", "cudnn", 75, DIFF_SUSPECT_CONVOLUTIONS_OF, "cuDNN"},
        {KERNELS, "convol", "fp32", 65, DIFF_SUSPECT_CONVOLUTION_PRECISION, NULL},
        {KERNELS, "fprop", "fp32", 65, DIFF_SUSPECT_CONVOLUTION_PRECISION, NULL},
        {KERNELS, "attention", "attention", 85, DIFF_SUSPECT_ATTENTION, NULL},
        {KERNELS, "flash", "attention", 85, DIFF_SUSPECT_ATTENTION, NULL},
        {KERNELS, "softmax", "attention", 70, DIFF_SUSPECT_ATTENTION_SOFTMAX, NULL},
        {KERNELS, "bmm", "attention", 60, DIFF_SUSPECT_ATTENTION_PRODUCTS, NULL},
        {KERNELS, "triton_", "compile", 75, DIFF_SUSPECT_COMPILED, NULL},
        {KIND(DIFF_CLOCK_THROTTLE), NULL, "gpu", 80, DIFF_SUSPECT_GPU_CLOCK, NULL},
        {FUNCTIONS, "AVX", "cpu_capability", 60, DIFF_SUSPECT_VECTOR_UNITS, NULL},
        {FUNCTIONS, "DEFAULT::", "cpu_capability", 60, DIFF_SUSPECT_VECTOR_UNITS, NULL},
        {FUNCTIONS, "gemm", "threads", 35, DIFF_SUSPECT_PRODUCT_THREADS, NULL},
        {FUNCTIONS, "attention", "python.torch.attention", 80, DIFF_SUSPECT_ATTENTION, NULL},
        {FUNCTIONS, "softmax", "python.torch.attention", 60, DIFF_SUSPECT_ATTENTION_SOFTMAX, NULL},
        {KIND(DIFF_PARALLELISM), NULL, "threads", 95, DIFF_SUSPECT_THREADS, NULL},
        {KIND(DIFF_PARALLELISM), NULL, "affinity", 80, DIFF_SUSPECT_CPUS, NULL},
        {KIND(DIFF_PARALLELISM), NULL, "scheduling", 60, DIFF_SUSPECT_KIND, NULL},
        {KIND(DIFF_PARALLELISM), NULL, "cgroup", 50, DIFF_SUSPECT_KIND, NULL},
        {KIND(DIFF_PARALLELISM), NULL, "components.openmp", 50, DIFF_SUSPECT_KIND, NULL},
        {KIND(DIFF_COMM_EXPOSED), NULL, "nccl", 90, DIFF_SUSPECT_KIND, NULL},
        {KIND(DIFF_COMM_EXPOSED), NULL, "NCCL_", 95, DIFF_SUSPECT_SETTING_OF, "NCCL"},
        {KIND(DIFF_COMM_EXPOSED), NULL, "communication", 70, DIFF_SUSPECT_KIND, NULL},
        {KIND(DIFF_MEMORY_ALLOC), NULL, "alloc", 85, DIFF_SUSPECT_ALLOCATOR_SETTINGS, NULL},
        {KIND(DIFF_MEMORY_ALLOC), NULL, "MALLOC_", 90, DIFF_SUSPECT_SETTING_OF, "the allocator"},
        {KIND(DIFF_MEMORY_ALLOC) | KIND(DIFF_HOST_STALL), NULL, "transparent_hugepage", 70,
                DIFF_SUSPECT_HUGE_PAGES, NULL},
        {KIND(DIFF_MEMORY_ALLOC) | KIND(DIFF_HOST_STALL), NULL, "thp", 70, DIFF_SUSPECT_HUGE_PAGES,
                NULL},
        {KIND(DIFF_MEMORY_ALLOC) | KIND(DIFF_HOST_STALL), NULL, "numa", 60, DIFF_SUSPECT_NUMA,
                NULL},
        {KIND(DIFF_MEMORY_ALLOC), NULL, "components.libc", 40, DIFF_SUSPECT_KIND, NULL},
        {KIND(DIFF_COMPILE) | KIND(DIFF_LAUNCH_GAP) | KIND(DIFF_PYTHON_OVERHEAD), NULL, "compile",
                75, DIFF_SUSPECT_COMPILE_SETTINGS, NULL},
        {KIND(DIFF_COMPILE), NULL, "components.torch", 60, DIFF_SUSPECT_KIND, NULL},
        {KIND(DIFF_COMPILE), NULL, "triton", 60, DIFF_SUSPECT_KIND, NULL},
        {KIND(DIFF_LAUNCH_GAP) | KIND(DIFF_PYTHON_OVERHEAD), NULL, "components.interpreter", 70,
                DIFF_SUSPECT_LAUNCHES, NULL},
        {KIND(DIFF_LAUNCH_GAP) | KIND(DIFF_PYTHON_OVERHEAD), NULL, "components.torch", 55,
                DIFF_SUSPECT_OPERATORS, NULL},
        {KIND(DIFF_LAUNCH_GAP) | KIND(DIFF_SYNC_ADDED), NULL, "LAUNCH_BLOCKING", 95,
                DIFF_SUSPECT_BLOCKING, NULL},
        {KIND(DIFF_PYTHON_OVERHEAD), NULL, "gc", 50, DIFF_SUSPECT_COLLECTOR, NULL},
        {KIND(DIFF_PYTHON_OVERHEAD), NULL, "PYTHON", 60, DIFF_SUSPECT_SETTING_OF,
                "the interpreter"},
        {KIND(DIFF_HOST_STALL), NULL, "cgroup", 70, DIFF_SUSPECT_CGROUP, NULL},
        {KIND(DIFF_HOST_STALL), NULL, "rlimits", 50, DIFF_SUSPECT_KIND, NULL},
        {KIND(DIFF_HOST_STALL), NULL, "host.kernel", 50, DIFF_SUSPECT_KIND, NULL},
        {KIND(DIFF_DATA_WAIT), NULL, "components.numpy", 40, DIFF_SUSPECT_KIND, NULL},
        {KIND(DIFF_DATA_WAIT), NULL, "components.torch", 40, DIFF_SUSPECT_LOADER, NULL},
        {KIND(DIFF_DATA_WAIT), NULL, "threads", 40, DIFF_SUSPECT_KIND, NULL},
        {KIND(DIFF_COLD_START), NULL, "MODULE_LOADING", 95, DIFF_SUSPECT_LAZY_LOADING, NULL},
        {KIND(DIFF_COLD_START), NULL, "components.cuda", 60, DIFF_SUSPECT_KIND, NULL},
};

struct suspects_one {
    const json_t *difference;
    enum diff_suspect_why why;
    const char *of;
    int fit, suspicion;
    size_t order;
};

static int suspects_compare(const void *left, const void *right)
{
    const struct suspects_one *a = left, *b = right;
    int x = 2 * a->fit + a->suspicion, y = 2 * b->fit + b->suspicion;
    return x != y ? y - x : a->order < b->order ? -1 : a->order > b->order;
}

static const char *suspects_text(const json_t *difference, const char *key)
{
    const char *text = json_string_value(json_object_get(difference, key));
    return text ? text : "";
}

static bool suspects_has(const char *const *names, size_t count, const char *part)
{
    for (size_t i = 0; i < count; i++)
        if (names[i] && strcasestr(names[i], part))
            return true;
    return false;
}

// "libtorch_cpu.so" is what "libraries.torch.libtorch_cpu" is about.
static const char *suspects_module(const char *const *names, size_t count, const char *path)
{
    const char *key = strncmp(path, "libraries.", 10) == 0 ? strrchr(path, '.') : NULL;
    size_t len = key ? strlen(++key) : 0;
    for (size_t i = 0; i < count && len > 3; i++)
        if (names[i] && strncmp(names[i], key, len) == 0 &&
                (!names[i][len] || strchr(".-", names[i][len])))
            return names[i];
    return NULL;
}

static void suspects_weigh(struct suspects_one *one, const struct diff_contribution *contribution,
        const char *const *names, size_t count)
{
    // A kernel beside which another collective runs is as slow as that lets it be.
    bool beside = contribution->beside_changed && contribution->kind != DIFF_COMM_EXPOSED;
    uint32_t own = KIND(contribution->kind), kinds = own | (beside ? KIND(DIFF_COMM_EXPOSED) : 0);
    const char *path = suspects_text(one->difference, "path");
    if ((one->of = suspects_module(names, count, path))) {
        one->why = DIFF_SUSPECT_HOLDS;
        one->fit = one->suspicion < SUSPECTS_IMPLIED
                ? 30
                : 85; // behind a component that is listed itself
    }
    for (size_t i = 0; i < sizeof suspects_rules / sizeof *suspects_rules; i++) {
        const struct suspects_rule *rule = &suspects_rules[i];
        if (strncmp(path, "libraries.", 10) == 0 && one->suspicion < SUSPECTS_IMPLIED)
            continue; // "libjxl_threads" is about no threads
        if (!(rule->kinds & kinds) || rule->fit <= one->fit || !strcasestr(path, rule->path) ||
                (rule->name && !suspects_has(names, count, rule->name)))
            continue;
        one->fit = rule->fit;
        one->why = rule->kinds & own ? rule->why : DIFF_SUSPECT_BESIDE;
        one->of = rule->kinds & own ? rule->of : NULL;
    }
}

// Names of the functions, and of the libraries they are in, of what changed most.
static size_t suspects_names(const struct cost_tree *const trees[2],
        const struct diff_contribution *contribution, const struct diff_group *groups,
        const char **names, size_t max)
{
    size_t count = 0;
    for (size_t i = 0; i < contribution->group_count && i < 4; i++) {
        const struct align_group *group = groups[contribution->groups[i]].group;
        for (int side = 0; side < 2; side++) {
            const uint32_t *leaves = side ? group->b : group->a;
            size_t leaf_count = side ? group->count_b : group->count_a;
            for (size_t k = 0; k < leaf_count && k < 3 && count + 2 <= max; k++) {
                const struct cost_node *leaf = &trees[side]->nodes[leaves[k]];
                names[count++] = leaf->name;
                names[count++] = leaf->kind == COST_FUNCTION ? leaf->module : NULL;
            }
        }
    }
    return count;
}

static struct diff_suspect suspects_fact(struct arena *arena, const struct suspects_one *one)
{
    const json_t *a = json_object_get(one->difference, "a"),
                 *b = json_object_get(one->difference, "b");
    return (struct diff_suspect){.what = arena_copy(arena, suspects_text(one->difference, "what")),
            .value = {arena_copy(arena, json_string_value(a)),
                    arena_copy(arena, json_string_value(b))},
            .why = one->why,
            .of = arena_copy(arena, one->of)};
}

void diff_suspects(const json_t *differences, const struct diff_compared *compared,
        struct diff_contribution *contribution, const struct diff_group *groups)
{
    size_t count = json_array_size(differences), kept = 0;
    // what is new in a program, no library made
    if (count == 0 || (diff_kind_is_code(contribution->kind) && contribution->part_count))
        return;
    const char *names[64];
    size_t name_count = suspects_names(
            compared->trees, contribution, groups, names, sizeof names / sizeof *names);
    struct suspects_one *all = xcalloc(count, sizeof *all);
    for (size_t i = 0; i < count; i++) {
        const json_t *difference = json_array_get(differences, i);
        struct suspects_one one = {.difference = difference,
                .order = i,
                .suspicion = (int)json_integer_value(json_object_get(difference, "suspicion"))};
        suspects_weigh(&one, contribution, names, name_count);
        if (one.fit > 0)
            all[kept++] = one;
    }
    qsort(all, kept, sizeof *all, suspects_compare);
    if (kept > SUSPECTS_MAX)
        kept = SUSPECTS_MAX;
    struct diff_suspect *suspects = arena_alloc(compared->arena, kept + 1, sizeof *suspects);
    for (size_t i = 0; i < kept; i++)
        suspects[i] = suspects_fact(compared->arena, &all[i]);
    contribution->suspects = suspects;
    contribution->suspect_count = kept;
    free(all);
}
