// SPDX-License-Identifier: Apache-2.0
// Kinds of contributions: their words in upgate.diff/1 (INTERFACES), and what happened to one.
// Pure.
#include "reports/analyse/diff/diff.h"
#include "reports/analyse/diff/thresholds.h"

static const char *const diff_kinds[DIFF_KIND_COUNT] = {
        [DIFF_KERNEL_SLOWER] = "kernel_slower",
        [DIFF_KERNEL_ADDED] = "kernel_added",
        [DIFF_KERNEL_REMOVED] = "kernel_removed",
        [DIFF_KERNEL_REPLACED] = "kernel_replaced",
        [DIFF_CPU_FUNCTION_SLOWER] = "cpu_function_slower",
        [DIFF_CPU_FUNCTION_ADDED] = "cpu_function_added",
        [DIFF_CPU_FUNCTION_REMOVED] = "cpu_function_removed",
        [DIFF_CPU_FUNCTION_REPLACED] = "cpu_function_replaced",
        [DIFF_HOST_STALL] = "host_stall",
        [DIFF_LAUNCH_GAP] = "launch_gap",
        [DIFF_SYNC_ADDED] = "sync_added",
        [DIFF_MEMCPY] = "memcpy",
        [DIFF_COMM_EXPOSED] = "comm_exposed",
        [DIFF_DATA_WAIT] = "data_wait",
        [DIFF_PYTHON_OVERHEAD] = "python_overhead",
        [DIFF_COMPILE] = "compile",
        [DIFF_COLD_START] = "cold_start",
        [DIFF_MEMORY_ALLOC] = "memory_alloc",
        [DIFF_CLOCK_THROTTLE] = "clock_throttle",
        [DIFF_PARALLELISM] = "parallelism",
        [DIFF_CODE_UNCOMPILED] = "code_uncompiled",
        [DIFF_CODE_COMPILED] = "code_compiled",
        [DIFF_CODE_ADDED] = "code_added",
        [DIFF_CODE_REMOVED] = "code_removed",
        [DIFF_CODE_REPEATED] = "code_repeated",
        [DIFF_CODE_MOVED] = "code_moved",
        [DIFF_NATIVE_CODE] = "native_code",
};

const char *diff_kind_word(enum diff_kind kind)
{
    return kind < DIFF_KIND_COUNT ? diff_kinds[kind] : "unknown";
}

bool diff_kind_is_code(enum diff_kind kind)
{
    return kind >= DIFF_CODE_UNCOMPILED && kind <= DIFF_CODE_MOVED;
}

enum diff_change diff_change_of(const struct diff_contribution *contribution)
{
    bool before = contribution->a_ns >= 0.5, after = contribution->b_ns >= 0.5;
    bool both = before && after, less = contribution->delta_ns < 0;
    if (contribution->kind == DIFF_MEMCPY && before != after)
        return after ? DIFF_CHANGE_ADDED : DIFF_CHANGE_REMOVED;
    // Executions of a step: a fifth fewer kernels that do the same work are fused ones.
    if (contribution->kind == DIFF_KERNEL_REPLACED && both &&
            contribution->count_b < diff_fewer * contribution->count_a)
        return DIFF_CHANGE_FUSED;
    if (contribution->kind == DIFF_KERNEL_REPLACED && both &&
            contribution->count_a < diff_fewer * contribution->count_b)
        return DIFF_CHANGE_SPLIT;
    if (contribution->kind == DIFF_SYNC_ADDED && both)
        return less ? DIFF_CHANGE_SHORTER : DIFF_CHANGE_LONGER;
    return less ? DIFF_CHANGE_LESS : DIFF_CHANGE_MORE;
}
