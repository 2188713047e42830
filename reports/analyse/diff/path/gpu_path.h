// SPDX-License-Identifier: Apache-2.0
// The critical path of a launch with a GPU: interval unions of what ran on the device, class by
// class (cost_class); where it ran nothing, what the host did, by host_path. Every instant of a
// window gets one leaf. Kernels are leaves below their phase and module, the k-th of their kind in
// a step one of its own, so that steps can be aligned. Busy time is kept beside the time on the
// path: a kernel that got slower behind another one has more of the first alone.
#ifndef UPGATE_DIFF_GPU_PATH_H
#define UPGATE_DIFF_GPU_PATH_H

#include "reports/analyse/diff/path/cost_tree.h"
#include "reports/analyse/diff/path/host_path.h"
#include "reports/analyse/trace/launch/launch_trace.h"

// Adds all windows of the launch to the tree: with has_gpu by the GPU's path, else by the host's
// alone. The first time for the launch. Also fills cost_tree windows.
void launch_path_add(
        const struct launch_trace *trace, struct host_path *host, struct cost_tree *tree);

#endif
