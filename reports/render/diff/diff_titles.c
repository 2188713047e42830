// SPDX-License-Identifier: Apache-2.0
// What happened, and what time is spent on, in a few words: titles of contributions and of classes
// of time. Constants only.
#include "reports/render/diff/diff_words.h"

static const struct {
    const char *more, *less; // less: where the difference is negative
} titles[DIFF_KIND_COUNT] = {
        [DIFF_KERNEL_SLOWER] = {"Kernel slower", "Kernel faster"},
        [DIFF_KERNEL_ADDED] = {"Kernel added", "Kernel added"},
        [DIFF_KERNEL_REMOVED] = {"Kernel removed", "Kernel removed"},
        [DIFF_KERNEL_REPLACED] = {"Kernel replaced", "Kernel replaced"},
        [DIFF_CPU_FUNCTION_SLOWER] = {"Function slower", "Function faster"},
        [DIFF_CPU_FUNCTION_ADDED] = {"Function added", "Function added"},
        [DIFF_CPU_FUNCTION_REMOVED] = {"Function removed", "Function removed"},
        [DIFF_CPU_FUNCTION_REPLACED] = {"Function replaced", "Function replaced"},
        [DIFF_HOST_STALL] = {"Host stalled", "Host stalled less"},
        [DIFF_LAUNCH_GAP] = {"GPU waits for launches", "GPU waits less for launches"},
        [DIFF_SYNC_ADDED] = {"Wait for the GPU added", "Wait for the GPU removed"},
        [DIFF_MEMCPY] = {"Copies take longer", "Copies take less"},
        [DIFF_COMM_EXPOSED] = {"Communication exposed", "Communication less exposed"},
        [DIFF_DATA_WAIT] = {"Waits for data", "Waits less for data"},
        [DIFF_PYTHON_OVERHEAD] = {"More time in Python", "Less time in Python"},
        [DIFF_COMPILE] = {"Compilation in the step", "Less compilation in the step"},
        [DIFF_COLD_START] = {"Slower first use", "Faster first use"},
        [DIFF_MEMORY_ALLOC] = {"More memory allocation", "Less memory allocation"},
        [DIFF_CLOCK_THROTTLE] = {"All kernels slower alike", "All kernels faster alike"},
        [DIFF_PARALLELISM] = {"Fewer threads at work", "More threads at work"},
        [DIFF_CODE_UNCOMPILED] = {"No longer compiled", "No longer compiled"},
        [DIFF_CODE_COMPILED] = {"Now compiled", "Now compiled"},
        [DIFF_CODE_ADDED] = {"Added", "Added"},
        [DIFF_CODE_REMOVED] = {"Removed", "Removed"},
        [DIFF_CODE_REPEATED] = {"Runs more often", "Runs less often"},
        [DIFF_CODE_MOVED] = {"Moved into the first step", "Moved out of the first step"},
        [DIFF_NATIVE_CODE] = {"Native code slower", "Native code faster"},
};

// What says more than more or less of its kind. Of copies: "Copies take longer" would send the
// reader to look for the copies there were before.
static const char *const titles_changes[DIFF_CHANGES] = {
        [DIFF_CHANGE_ADDED] = "Copies added",
        [DIFF_CHANGE_REMOVED] = "Copies removed",
        [DIFF_CHANGE_FUSED] = "Kernels fused",
        [DIFF_CHANGE_SPLIT] = "Kernels split",
        [DIFF_CHANGE_LONGER] = "Longer waits for the GPU",
        [DIFF_CHANGE_SHORTER] = "Shorter waits for the GPU",
};

const char *diff_text_change(const struct diff_contribution *contribution)
{
    enum diff_change change = diff_change_of(contribution);
    if (titles_changes[change])
        return titles_changes[change];
    if (contribution->kind >= DIFF_KIND_COUNT)
        return "Unknown";
    return change == DIFF_CHANGE_LESS ? titles[contribution->kind].less
                                      : titles[contribution->kind].more;
}

const char *diff_text_class(enum cost_class class)
{
    static const char *const classes[COST_CLASS_COUNT] = {
            [COST_GPU_COMPUTE] = "GPU compute",
            [COST_COMM_EXPOSED] = "Exposed communication",
            [COST_COPY] = "Copies",
            [COST_LAUNCH_BOUND] = "Launch bound",
            [COST_HOST_RUN] = "Host code",
            [COST_HOST_STALLED] = "Host stalled",
            [COST_DATA_WAIT] = "Data wait",
            [COST_IDLE] = "Idle",
    };
    return (unsigned)class < COST_CLASS_COUNT ? classes[class] : "Unknown";
}
