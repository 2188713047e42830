// SPDX-License-Identifier: Apache-2.0
// Facts about processes from /proc, small and cheap. A process that is gone answers -1, never an error.
#ifndef UPGATE_HARNESS_RUN_PROCESS_H
#define UPGATE_HARNESS_RUN_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

int64_t process_start_ticks(pid_t pid);       // field 22 of stat: tells a reused pid apart; -1 = gone
bool process_running(pid_t pid);              // exists, and is neither stopped nor a zombie
int64_t process_peak_memory_bytes(pid_t pid); // VmHWM of status; -1 = gone or a kernel thread
// The root, its descendants, and every process whose environment holds UPGATE_STEPS=mark (a
// descendant that was re-parented, or made its own session). Returns how many.
int process_find_tree(pid_t root, const char *mark, pid_t *pids, int max);
// The same without a look at every process of the machine (20 us, not 1 ms): descendants by the lists
// of children, and orphans, who come to us as the subreaper. Where that cannot be, process_find_tree().
int process_follow_tree(pid_t root, const char *mark, pid_t *pids, int max);
// Wait for zombies that were re-parented to us, leaving our own launches (process_own) to their owner.
void process_reap_orphans(void);
// End every child of ours that nobody owns, and their children, who come to us then: descendants of a
// launch that is over, whatever they did to hide. Only while no launch lives.
void process_kill_orphans(void);
void process_own(pid_t pid);    // this child is waited for by its owner
void process_disown(pid_t pid);

#endif
