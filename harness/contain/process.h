// SPDX-License-Identifier: Apache-2.0
// Facts about processes from /proc, small and cheap. A process that is gone answers -1, never an
// error.
#ifndef UPGATE_HARNESS_CONTAIN_PROCESS_H
#define UPGATE_HARNESS_CONTAIN_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

int64_t process_start_ticks(pid_t pid); // proc_stat.start_ticks: a reused pid's differ; -1 = gone
bool process_running(pid_t pid);        // exists, and is neither stopped nor a zombie
// What it had in memory at most (VmHWM of status), and what it has of files now (RssFile; 0 before
// Linux 4.5). One read of one file, which takes no lock of the process. False: gone, or a kernel
// thread.
bool process_memory(pid_t pid, int64_t *ret_peak_bytes, int64_t *ret_file_bytes);
// The root, its descendants, the children of its keeper (0 = none: keeper.h) with theirs, and every
// process whose environment holds UPGATE_STEPS=mark; who is older than the upgate of a launch's
// mark is not asked. Returns how many.
int process_find_tree(pid_t root, pid_t keeper, const char *mark, pid_t *pids, int max);
// The same without a look at every process of the machine (20 us, not 1 ms): the descendants of the
// keeper by the lists of children, which leaves nobody out. Where that cannot be,
// process_find_tree().
int process_follow_tree(pid_t root, pid_t keeper, const char *mark, pid_t *pids, int max);

// In a forked child that is to outlive us: a session of its own, deaf to signals, every descriptor
// closed but fd, which becomes the one returned, and lock (-1: none), which stays open until it
// ends. The name must not hold ours: `pkill upgate` shall end upgate alone.
int process_detach(const char *name, int fd, int lock);
// SIGKILL to the children of the caller until none is left, at most until the deadline. For a
// subreaper that is everything that descends from it.
void process_kill_children(int64_t deadline_ns);

#endif
