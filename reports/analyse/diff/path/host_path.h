// SPDX-License-Identifier: Apache-2.0
// The host's critical path: each instant of a window belongs to what the thread that makes the
// steps did then; while it waits for another thread of the target (a worker, another rank), to what
// that one did, as far as the evidence goes. On the CPU: the function sampled, below its phase and
// Python functions; off it: the stall's cause. Threads that spin at a barrier wait.
#ifndef UPGATE_DIFF_HOST_PATH_H
#define UPGATE_DIFF_HOST_PATH_H

#include "reports/analyse/diff/path/cost_tree.h"
#include "reports/analyse/trace/launch/launch_trace.h"

// The module of Python code that torch.compile has generated.
#define HOST_COMPILED "[inductor]"

struct arena;
struct host_path;

// Indexes the launch; the tree is the side's. trace->host may be NULL: then every instant is
// COST_IDLE.
struct host_path *host_path_new(const struct launch_trace *trace, struct cost_tree *tree);
void host_path_free(struct host_path *path); // NULL ok

// Gives the wall time [begin, end) of a rank to leaves, in window `window` of the tree; the sum is
// exactly end - begin. run: the class of an instant in which host code runs (COST_HOST_RUN; for a
// GPU that waits for it: COST_LAUNCH_BOUND).
void host_path_add(struct host_path *path, uint32_t rank, int64_t begin, int64_t end,
        enum cost_class run, uint32_t window);

// Gives every tick of the target's threads to its leaf, in window `window` of the tree: those of a
// thread that makes steps below its phase and Python functions, those of another one below "thread
// NAME". Returns their time: what the target was on a CPU for.
int64_t host_path_cpu(struct host_path *path, uint32_t window);

// Tells the tree that a sample with this Python stack was on its way to launch what `leaf` is.
void host_path_callers(struct host_path *path, uint32_t python, uint32_t leaf);

// Tells the tree which functions, of Python and native ones, all threads of the target ran in the
// launch, start-up included, but for each rank's windows, which are those of the launch that the
// path was made of. A rank without a window says nothing.
void host_path_elsewhere(struct host_path *path);

// What a file runs when it is imported: "import of xml.dom.minidom" of "xml/dom/minidom.py",
// "import of scipy" of "scipy/__init__.py". package: of what is inside of a package, that alone. In
// the arena; NULL: of no file of Python code, which exec() ran.
const char *host_path_import(struct arena *arena, const char *module, bool package);

// The node of the phase that the rank was in at an instant: for GPU leaves.
uint32_t host_path_phase(struct host_path *path, uint32_t rank, int64_t at);

#endif
