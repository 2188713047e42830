// SPDX-License-Identifier: Apache-2.0
// The critical path of a launch with a GPU: interval unions of what ran on the device, class by class (cost_class); where it ran
// nothing, what the host did, by host_path. Every instant of a window gets one leaf. Kernels are leaves below their phase and
// module, the k-th of their kind in a step one of its own, so that steps can be aligned. Busy time is kept beside the time on the
// path: a kernel that got slower behind another one has more of the first alone.
#ifndef UPGATE_DIFF_GPU_PATH_H
#define UPGATE_DIFF_GPU_PATH_H

#include "reports/analyse/diff/path/cost_tree.h"
#include "reports/analyse/diff/path/host_path.h"
#include "reports/analyse/diff/trace/launch_trace.h"

// Adds all windows of the launch to the tree: with has_gpu by the GPU's path, else by the host's alone. The first time for the
// launch. Also fills cost_tree windows.
void launch_path_add(const struct launch_trace *trace, struct host_path *host, struct cost_tree *tree);

// Who came last to the collectives of a launch, and by how much. Waits of the others for it are the cost.
struct straggler {
    uint32_t rank;          // index in trace->ranks
    int64_t last_count;     // collectives it came last to, of `collectives`
    int64_t collectives;
    int64_t late_ns_mean;   // behind the one before it, when it was last
    int64_t wait_ns_step;   // what the others waited for it, a step
    int64_t exposed_ns_step; // and had nothing else to do meanwhile
    double excess, variance; // of last_count beyond its share; by how much that spreads from window to window
    const char *why;        // what it did meanwhile: "cpu_function gemm", "stall fsync"; NULL: not known
    const char *why_label;  // the same without its kind
    int64_t why_ns_step;    // by how much it did that longer than the others, a step; 0: not known
};
// By NCCL's rows, or without NCCL by the ranks' arrival at the waits for each other. Returns the number filled, at most max,
// worst first. Names live in the tree.
size_t stragglers_find(const struct launch_trace *trace, struct host_path *host, struct cost_tree *tree, struct straggler *ret,
                       size_t max);
// The same without the reasons, which take most of the time.
size_t stragglers_count(const struct launch_trace *trace, const struct cost_tree *tree, struct straggler *ret, size_t max);

#endif
