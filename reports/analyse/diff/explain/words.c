// SPDX-License-Identifier: Apache-2.0
// The words of upgate.diff/1 (INTERFACES) and what people read in their place. Constants only.
#include <math.h>

#include "reports/analyse/diff/diff.h"
#include "reports/analyse/diff/thresholds.h"

struct diff_kind_text {
    const char *word, *slower, *faster; // faster: where the difference is negative
};

static const struct diff_kind_text diff_kinds[DIFF_KIND_COUNT] = {
        [DIFF_KERNEL_SLOWER] = {"kernel_slower", "Kernel slower", "Kernel faster"},
        [DIFF_KERNEL_ADDED] = {"kernel_added", "Kernel added", "Kernel added"},
        [DIFF_KERNEL_REMOVED] = {"kernel_removed", "Kernel removed", "Kernel removed"},
        [DIFF_KERNEL_REPLACED] = {"kernel_replaced", "Kernel replaced", "Kernel replaced"},
        [DIFF_CPU_FUNCTION_SLOWER] = {"cpu_function_slower", "Function slower", "Function faster"},
        [DIFF_CPU_FUNCTION_ADDED] = {"cpu_function_added", "Function added", "Function added"},
        [DIFF_CPU_FUNCTION_REMOVED] = {"cpu_function_removed", "Function removed",
                "Function removed"},
        [DIFF_CPU_FUNCTION_REPLACED] = {"cpu_function_replaced", "Function replaced",
                "Function replaced"},
        [DIFF_HOST_STALL] = {"host_stall", "Host stalled", "Host stalled less"},
        [DIFF_LAUNCH_GAP] = {"launch_gap", "GPU waits for launches", "GPU waits less for launches"},
        [DIFF_SYNC_ADDED] = {"sync_added", "Wait for the GPU added", "Wait for the GPU removed"},
        [DIFF_MEMCPY] = {"memcpy", "Copies take longer", "Copies take less"},
        [DIFF_COMM_EXPOSED] = {"comm_exposed", "Communication exposed",
                "Communication less exposed"},
        [DIFF_DATA_WAIT] = {"data_wait", "Waits for data", "Waits less for data"},
        [DIFF_PYTHON_OVERHEAD] = {"python_overhead", "More time in Python", "Less time in Python"},
        [DIFF_COMPILE] = {"compile", "Compilation in the step", "Less compilation in the step"},
        [DIFF_COLD_START] = {"cold_start", "Slower first use", "Faster first use"},
        [DIFF_MEMORY_ALLOC] = {"memory_alloc", "More memory allocation", "Less memory allocation"},
        [DIFF_CLOCK_THROTTLE] = {"clock_throttle", "All kernels slower alike",
                "All kernels faster alike"},
        [DIFF_PARALLELISM] = {"parallelism", "Fewer threads at work", "More threads at work"},
        [DIFF_CODE_ADDED] = {"code_added", "Added", "Added"},
        [DIFF_CODE_REMOVED] = {"code_removed", "Removed", "Removed"},
        [DIFF_CODE_REPEATED] = {"code_repeated", "Runs more often", "Runs less often"},
        [DIFF_CODE_MOVED] = {"code_moved", "Moved into the first step",
                "Moved out of the first step"},
        [DIFF_NATIVE_CODE] = {"native_code", "Native code slower", "Native code faster"},
};

const char *diff_kind_word(enum diff_kind kind)
{
    return kind < DIFF_KIND_COUNT ? diff_kinds[kind].word : "unknown";
}

bool diff_kind_is_code(enum diff_kind kind)
{
    return kind >= DIFF_CODE_ADDED && kind <= DIFF_CODE_MOVED;
}

const char *diff_title(const struct diff_contribution *contribution)
{
    // "Copies take longer" would send the reader to look for the copies there were before.
    bool before = contribution->a_ns >= 0.5, after = contribution->b_ns >= 0.5;
    if (contribution->kind == DIFF_MEMCPY && before != after)
        return after ? "Copies added" : "Copies removed";
    // Executions of a step: a fifth fewer kernels that do the same work are fused ones.
    if (contribution->kind == DIFF_KERNEL_REPLACED && before && after &&
            contribution->count_b < diff_fewer * contribution->count_a)
        return "Kernels fused";
    if (contribution->kind == DIFF_KERNEL_REPLACED && before && after &&
            contribution->count_a < diff_fewer * contribution->count_b)
        return "Kernels split";
    if (contribution->kind == DIFF_SYNC_ADDED && before && after)
        return contribution->delta_ns < 0 ? "Shorter waits for the GPU"
                                          : "Longer waits for the GPU";
    if (contribution->kind >= DIFF_KIND_COUNT)
        return "Unknown";
    const struct diff_kind_text *text = &diff_kinds[contribution->kind];
    return contribution->delta_ns < 0 ? text->faster : text->slower;
}
