// SPDX-License-Identifier: Apache-2.0
// Aligned groups, one by one: what each took on both sides, what it is called, and which kind of
// difference it would be. Kinds are told by the leaf that took most, by how it was matched, and by
// the place it is below. Pure.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "reports/analyse/diff/contribute/contribute.h"
#include "reports/analyse/diff/diff_input.h"
#include "reports/analyse/diff/path/host_path.h"
#include "reports/analyse/diff/thresholds.h"
#include "reports/analyse/names/names.h"
#include "reports/analyse/names/wordlists.h"

enum { GROUPS_NAMES_MAX = 3 };

// A name begins with one of these: memory is asked for, given back, or brought in by a page fault.
static const char *const groups_memory[] = {
        // libc's allocator
        "malloc", "calloc", "realloc", "__libc_malloc", "__libc_free", "_int_malloc", "_int_free",
        "_int_realloc", "cfree", "sysmalloc", "systrim", "malloc_consolidate", "unlink_chunk",
        "tcache_", "posix_memalign", "memalign", "aligned_alloc", "_mid_memalign", "operator new",
        "operator delete",
        // calls of the kernel
        "mmap", "munmap", "__mmap", "__munmap", "mremap", "madvise", "__madvise", "brk", "sbrk",
        // a page fault
        "clear_page", "clear_huge_page", "clear_subpage", "clear_user_highpage",
        "do_anonymous_page", "do_huge_pmd_anonymous_page", "asm_exc_page_fault", "exc_page_fault",
        "do_user_addr_fault", "do_mem_abort", "do_page_fault", "do_translation_fault",
        "handle_mm_fault", "__handle_mm_fault",
        // pages taken and given back, ranges of them
        "__alloc_pages", "get_page_from_freelist", "free_unref_page", "free_pages_and_swap",
        "free_pcppages_bulk", "release_pages", "unmap_page_range", "zap_pte_range",
        "zap_page_range", "do_mmap", "do_munmap", "__do_munmap", "vm_mmap",
        // other allocators
        "je_malloc", "je_free", "tc_malloc", "tc_free", "mi_malloc", "mi_free", "c10::alloc_cpu",
        "c10::free_cpu",
        // as the path names them; more of the kernel
        "page fault", "page_fault", "folio_add_lru", "rmqueue", NULL};

static const char *const groups_memory_calls[] = {"Malloc", "MemAlloc", "cudaFree", "cuMemFree",
        "HostAlloc", "HostRegister", "HostUnregister", "MemHost", "MemPool", NULL};
static const char *const groups_cold_calls[] = {"ModuleLoad", "LibraryLoad", "ModuleGetFunction",
        "LibraryGetKernel", "KernelGetFunction", "CtxCreate", "PrimaryCtxRetain", NULL};
static const char *const groups_compile_places[] = {"torch/_dynamo", "torch/_inductor",
        "torch/_functorch", "triton/compiler", "triton/runtime", NULL};

// Of these what calls compiled code, in every step of a program that is done with compiling: it is
// around a compilation too, but there the compiler is below it. Their own functions that compile
// have one of the words.
static const char *const groups_compiled_runs[] = {"torch/_dynamo/eval_frame.py",
        "torch/_dynamo/external_utils.py", "torch/_dynamo/decorators.py", "torch/_dynamo/utils.py",
        "torch/_functorch/aot_autograd.py", "torch/_functorch/_aot_autograd/runtime_wrappers.py",
        "torch/_functorch/_aot_autograd/subclass_codegen.py",
        "torch/_functorch/_aot_autograd/utils.py", "torch/_inductor/output_code.py",
        "torch/_inductor/utils.py", "torch/_inductor/runtime/triton_heuristics.py",
        "torch/_inductor/runtime/static_", "triton/runtime/jit.py", NULL};
static const char *const groups_compile_words[] = {"precompile", "autotune", "bench", NULL};

// Waits that say nothing but that there was nothing to do yet.
static const char *const groups_waits[] = {
        "sleep", "futex_wait", "epoll", "poll", "child", "pipe", "socket", NULL};

static bool groups_compiles(const struct cost_tree *tree, uint32_t node)
{
    for (; node != COST_NONE && node != 0; node = tree->nodes[node].parent) {
        const struct cost_node *place = &tree->nodes[node];
        if (place->kind == COST_PHASE && strcmp(place->name, "compile") == 0)
            return true;
        if (place->kind == COST_PYTHON && place->module && !strcmp(place->module, HOST_COMPILED))
            return false; // it runs what was compiled
        if (place->kind == COST_PYTHON && place->module &&
                words_within(place->module, groups_compile_places) &&
                (!words_within(place->module, groups_compiled_runs) ||
                        words_within(place->name, groups_compile_words)))
            return true;
    }
    return false;
}

static bool groups_in_phase(const struct cost_tree *tree, uint32_t node, const char *name)
{
    for (; node != COST_NONE && node != 0; node = tree->nodes[node].parent)
        if (tree->nodes[node].kind == COST_PHASE && strcmp(tree->nodes[node].name, name) == 0)
            return true;
    return false;
}

static bool groups_is_interpreter(const struct cost_node *leaf)
{
    return strcmp(leaf->name, "Python interpreter") == 0 ||
            strcmp(leaf->name, "garbage collection") == 0 ||
            strncmp(leaf->name, "_PyEval", 7) == 0 ||
            (leaf->module && strncmp(leaf->module, "libpython", 9) == 0) ||
            (leaf->module && strncmp(leaf->module, "python3", 7) == 0);
}

static enum diff_kind groups_by_match(enum align_match match, enum diff_kind slower)
{
    // slower, added, removed, replaced stand in this order for kernels and functions alike.
    switch (match) {
    case ALIGN_EXACT:
    case ALIGN_NORMALISED:
        return slower;
    case ALIGN_ONLY_B:
        return slower + 1;
    case ALIGN_ONLY_A:
        return slower + 2;
    default:
        return slower + 3;
    }
}

static enum diff_kind groups_host_kind(const struct cost_node *leaf, enum align_match match)
{
    if (leaf->kind == COST_STALL)
        return DIFF_HOST_STALL;
    if (leaf->kind == COST_FUNCTION && words_begin(leaf->name, groups_memory))
        return DIFF_MEMORY_ALLOC;
    if (groups_is_interpreter(leaf))
        return DIFF_PYTHON_OVERHEAD;
    if (leaf->class == COST_LAUNCH_BOUND)
        return DIFF_LAUNCH_GAP;
    if (leaf->kind == COST_GAP)
        return leaf->class == COST_HOST_STALLED || leaf->class == COST_HOST_RUN ? DIFF_HOST_STALL
                                                                                : DIFF_LAUNCH_GAP;
    if (leaf->kind != COST_FUNCTION)
        return DIFF_HOST_STALL;
    return groups_by_match(match, DIFF_CPU_FUNCTION_SLOWER);
}

static enum diff_kind groups_kind(
        const struct diff_compared *compared, const struct diff_group *group)
{
    const struct cost_tree *tree = compared->trees[group->side];
    const struct cost_node *leaf = &tree->nodes[group->leaf];
    bool gpu_idle =
            compared->has_gpu && (leaf->class == COST_LAUNCH_BOUND || leaf->class == COST_IDLE);
    bool waits = gpu_idle || (leaf->kind == COST_STALL && words_equal(leaf->name, groups_waits));
    if (leaf->class == COST_DATA_WAIT || (waits && groups_in_phase(tree, leaf->parent, "data")))
        return DIFF_DATA_WAIT;
    if (leaf->kind == COST_COLLECTIVE || leaf->class == COST_COMM_EXPOSED)
        return DIFF_COMM_EXPOSED;
    if (leaf->kind == COST_KERNEL || leaf->kind == COST_GRAPH) {
        enum diff_kind kind = groups_by_match(group->group->match, DIFF_KERNEL_SLOWER);
        if (kind != DIFF_KERNEL_REPLACED ||
                fmin(group->a, group->b) >= groups_next_to_nothing * fmax(group->a, group->b))
            return kind;
        return group->b > group->a ? DIFF_KERNEL_ADDED : DIFF_KERNEL_REMOVED;
    }
    if (leaf->kind == COST_TRANSFER)
        return DIFF_MEMCPY;
    if (groups_compiles(tree, leaf->parent))
        return DIFF_COMPILE;
    if (words_within(leaf->name, groups_cold_calls) &&
            (leaf->kind == COST_SYNC || leaf->class == COST_LAUNCH_BOUND))
        return DIFF_COLD_START;
    if (leaf->kind == COST_SYNC)
        return words_within(leaf->name, groups_memory_calls) ? DIFF_MEMORY_ALLOC : DIFF_SYNC_ADDED;
    enum diff_kind kind = groups_host_kind(leaf, group->group->match);
    // Nothing launches where there is no GPU: what is not known there is a host that stood.
    return kind == DIFF_LAUNCH_GAP && !compared->has_gpu ? DIFF_HOST_STALL : kind;
}

struct groups_names { // the leaves that took most, by name
    const char *names[GROUPS_NAMES_MAX];
    double ns[GROUPS_NAMES_MAX];
    size_t count, more;
};

static void names_add(struct groups_names *names, const char *name, double ns)
{
    for (size_t i = 0; i < names->count; i++) {
        if (strcmp(names->names[i], name) == 0) {
            names->ns[i] += ns;
            return;
        }
    }
    if (names->count == GROUPS_NAMES_MAX) {
        names->more++;
        return;
    }
    names->names[names->count] = name;
    names->ns[names->count++] = ns;
}

static const char *names_join(struct arena *arena, const struct groups_names *names)
{
    if (names->count <= 1)
        return names->count ? names->names[0] : NULL;
    struct strbuf text = {0};
    for (size_t i = 0; i < names->count; i++)
        strbuf_add(&text, "%s%s", i ? " + " : "", names->names[i]);
    if (names->more)
        strbuf_add(&text, " + %zu more", names->more);
    return diff_text(arena, &text);
}

struct diff_sums diff_leaf_sums(const struct diff_compared *compared, int side, uint32_t node)
{
    const struct cost_tree *tree = compared->trees[side];
    struct diff_sums sums = {0};
    for (uint32_t r = compared->first[side][node]; r < compared->first[side][node + 1]; r++) {
        const struct cost_row *row = &tree->rows[r];
        if (compared->units->of_window[side][row->window] == UINT32_MAX)
            continue;
        sums.ns += (double)row->ns;
        sums.busy += (double)row->busy_ns;
        sums.count += (double)row->count;
    }
    return sums;
}

static void groups_side(const struct diff_compared *compared, const struct diff_launches *launches,
        int side, struct diff_group *group, double *most)
{
    const struct align_group *aligned = group->group;
    const uint32_t *leaves = side ? aligned->b : aligned->a;
    size_t count = side ? aligned->count_b : aligned->count_a;
    const struct diff_units *units = compared->units;
    double factor = units->scale[side] / units->total_steps[side];
    struct groups_names names = {0};
    struct diff_sums all = {0};
    for (size_t i = 0; i < count; i++) {
        struct diff_sums sums = diff_leaf_sums(compared, side, leaves[i]);
        all.ns += sums.ns;
        all.busy += sums.busy;
        all.count += sums.count;
        if (sums.ns * factor > *most) {
            *most = sums.ns * factor;
            group->leaf = leaves[i];
            group->side = side;
        }
        names_add(&names, compared->trees[side]->nodes[leaves[i]].name, sums.ns);
    }
    double launch = diff_launches_sum(launches, aligned, side);
    all.ns += launch;
    all.busy += launch < 0 ? launch : 0;
    *(side ? &group->launch_b : &group->launch_a) = launch * factor;
    *(side ? &group->b : &group->a) = all.ns * factor;
    *(side ? &group->busy_b : &group->busy_a) = all.busy * factor;
    // Steps of a launch without steps are its nanoseconds: executions are told of a launch.
    double of = compared->untraced->launches ? units->pairs : units->total_steps[side];
    *(side ? &group->count_b : &group->count_a) = all.count / of;
    *(side ? &group->name_b : &group->name_a) = names_join(compared->arena, &names);
}

void diff_groups_make(const struct diff_compared *compared, const struct diff_launches *launches,
        struct diff_group *groups)
{
    const struct alignment *alignment = compared->alignment;
    for (size_t i = 0; i < alignment->count; i++) {
        struct diff_group *group = &groups[i];
        double most = -1;
        *group = (struct diff_group){.group = &alignment->groups[i]};
        groups_side(compared, launches, 0, group, &most);
        groups_side(compared, launches, 1, group, &most);
        group->kind = most < 0 ? DIFF_LAUNCH_GAP : groups_kind(compared, group);
    }
}

static int groups_by_change(const void *left, const void *right, void *of)
{
    const struct diff_group *groups = of;
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    double x = fabs(groups[a].b - groups[a].a), y = fabs(groups[b].b - groups[b].a);
    return x > y ? -1 : x < y ? 1 : a < b ? -1 : a > b;
}

void diff_groups_sort(struct diff_group *groups, uint32_t *members, size_t count)
{
    qsort_r(members, count, sizeof *members, groups_by_change, groups);
}

uint32_t *diff_groups_of(const struct diff_compared *compared, int side)
{
    const struct alignment *alignment = compared->alignment;
    const struct cost_tree *tree = compared->trees[side];
    uint32_t *groups = xcalloc(tree->node_count + 1, sizeof *groups);
    memset(groups, 0xff, (tree->node_count + 1) * sizeof *groups);
    for (size_t i = 0; i < alignment->count; i++) {
        const struct align_group *group = &alignment->groups[i];
        const uint32_t *leaves = side ? group->b : group->a;
        for (size_t k = 0; k < (side ? group->count_b : group->count_a); k++)
            groups[leaves[k]] = (uint32_t)i;
    }
    return groups;
}

void diff_groups_add(const struct diff_compared *compared, const struct diff_launches *launches,
        const struct align_group *group, double *const ns[2])
{
    diff_launches_add(launches, group, ns);
    for (int side = 0; side < 2; side++) {
        const struct cost_tree *tree = compared->trees[side];
        const uint32_t *leaves = side ? group->b : group->a;
        size_t count = side ? group->count_b : group->count_a;
        for (size_t i = 0; i < count; i++) {
            for (uint32_t r = compared->first[side][leaves[i]];
                    r < compared->first[side][leaves[i] + 1]; r++) {
                uint32_t unit = compared->units->of_window[side][tree->rows[r].window];
                if (unit != UINT32_MAX)
                    ns[side][unit] += (double)tree->rows[r].ns;
            }
        }
    }
}
