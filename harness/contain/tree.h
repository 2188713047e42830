// SPDX-License-Identifier: Apache-2.0
// The process tree of one launch: contained, frozen, thawed, measured, killed as a whole. Three
// means, the best that the machine allows: a cgroup v2 (freeze, kill, CPU time), the v1 freezer, or
// signals to every process whose environment carries the launch's mark. One owner thread.
#ifndef UPGATE_HARNESS_CONTAIN_TREE_H
#define UPGATE_HARNESS_CONTAIN_TREE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/error.h"
#include "harness/contain/resident.h"

enum tree_means { TREE_MEANS_CGROUP2, TREE_MEANS_FREEZER1, TREE_MEANS_SIGNALS };

struct tree;

// The group directory of this upgate process, under which each launch gets its own: the best means
// found. Ends and removes what a dead upgate left behind. *ret_base is "" for signals; caller
// frees.
enum tree_means tree_detect(char **ret_base);
// The same; before is told of a directory before it is made, so that a kill in between leaves none.
enum tree_means tree_detect_telling(
        void (*before)(void *arg, const char *base), void *arg, char **ret_base);
// What says that the group directory has an owner, for as long as any process has it open; -1:
// there is none.
int tree_base_lock_fd(void);
// Remove the group directory made by tree_detect (empty by then). NULL or "" is fine.
void tree_release_base(const char *base);

// Ends every process in a cgroup and in those below it, frozen or not, and removes them all. Tries
// for a second.
void tree_end_group(const char *cgroup);

// The same, of a container that ends by itself when upgate dies (harness/image): thawed, and given
// this long to do so, for its engine has records of it to remove.
void tree_let_end(const char *cgroup, int64_t patience_ns);

// An empty tree; name must be unique under base. mark is the value of UPGATE_STEPS of the launch,
// by which its processes are found where there is no cgroup (and once more before the tree is given
// up).
int tree_new(enum tree_means means, const char *base, const char *name, const char *mark,
        struct tree **ret_tree, struct error *err);
void tree_free(struct tree *tree); // kills what is left, removes the cgroup; NULL ok

// In the child, between fork and exec: joins the tree. Async-signal-safe. 0 or -errno.
int tree_join(const struct tree *tree);
// in the parent, after fork; keeper 0 = none
void tree_set_root(struct tree *tree, pid_t root, pid_t keeper);
// Before who starts it joins: an engine of containers, which is ended with the tree, but neither
// frozen (podman's processes share locks with those of the other side) nor measured. The program is
// taken in on its own.
int tree_set_apart(struct tree *tree, struct error *err);
// A process that somebody else started. -ENOTSUP without a cgroup, or -errno.
int tree_take(struct tree *tree, pid_t pid);
// The program of a tree set apart begins now. Without a cgroup, what lives already is the engine's.
void tree_begin(struct tree *tree, pid_t program);
bool tree_is_empty(const struct tree *tree); // does nothing of it live any more?

// Freeze waits until every process has stopped: at most patience_ns, then -EINPROGRESS while the
// rest goes on stopping (a busy machine gives a process the CPU it needs to stop only when it can).
// Below 0 nobody looks: -EINPROGRESS whether it has stopped or not.
int tree_freeze(struct tree *tree, int64_t patience_ns);
// has every process stopped by now? True when all have ended
bool tree_stopped(const struct tree *tree);
int tree_thaw(struct tree *tree);
// SIGKILL to every process, thawing first; returns when none is left, or after 5 s with -ETIMEDOUT.
int tree_kill(struct tree *tree);

bool tree_holds(const struct tree *tree, pid_t pid); // a process of it, alive
// What its processes hold in memory, of a tree that stands still. 0; or why not all of it could be
// read, and *ret is empty.
int tree_resident(const struct tree *tree, struct resident *ret);
// CPU time of the tree so far; -1 when the means cannot tell (then the exit status's usage is
// used).
int64_t tree_cpu_ns(const struct tree *tree);
// Look at every live process once. Cheap: one small file a process, never smaps (which would hold
// the workload's mmap lock).
void tree_sample_memory(struct tree *tree);
// The most that its living processes had together at a look, of each its own peak until then, pages
// of files once; -1 before the first look. What a process that has ended had is not added to what
// those have that came later. Not seen: who begins and ends between two looks, and what a process
// had between the last look at it and its end (of the root the exit status tells).
int64_t tree_peak_memory_bytes(const struct tree *tree);
int tree_process_count(const struct tree *tree);  // that lived at a look, the most
const char *tree_cgroup(const struct tree *tree); // directory, or NULL
const char *tree_means_name(enum tree_means means);

#endif
