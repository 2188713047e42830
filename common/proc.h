// SPDX-License-Identifier: Apache-2.0
// What the kernel tells of a process in /proc/PID: stat, status, maps, smaps. dir is that directory
// ("/proc/17", "/proc/17/task/18", or a test's own). Functions return 0, -ESRCH when the process is
// gone, -EBADMSG for text that is none of the kernel's, or -errno.
#ifndef UPGATE_COMMON_PROC_H
#define UPGATE_COMMON_PROC_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

struct proc_stat {
    char comm[64]; // as the kernel has it: any bytes
    char state;    // 'R', 'S', 'D', 'T', 't', 'Z', 'X', …
    pid_t parent;
    uint32_t flags, threads; // PF_…
    int64_t nice;
    uint64_t start_ticks; // since boot, by clock_boottime_ns(), whatever time namespace we are in
    uint64_t code_begin, code_end, stack_begin; // 0 or 1 without permission
    uint32_t realtime_priority, policy;
};
int proc_stat_read(const char *dir, struct proc_stat *ret);
int proc_stat_of(pid_t pid, struct proc_stat *ret);
bool proc_stat_ended(const struct proc_stat *stat); // a zombie, too
enum { PROC_TICK_NS = 10000000 };                   // of start_ticks
// Of one pid: the same process? By start_ticks of two who tell, which differ by one where their
// time namespaces are no whole ticks apart.
bool proc_same_start(uint64_t start_ticks, uint64_t as_told);

// What stands behind "KEY:\t" in status.
int proc_status_read(const char *dir, const char *key, char *ret, size_t size);
int64_t proc_status_number(const char *dir, const char *key); // the first number of it; -1
// of one reading
int proc_status_numbers(const char *dir, const char *const *keys, int count, int64_t *ret);
pid_t proc_tgid(pid_t tid); // the process of a thread; or a negative code as above
// The value of a variable in the environment that the process was started with (the first 1 MiB of
// it), the caller's. NULL: unset, or not to be read.
char *proc_variable(const char *dir, const char *name);
// of an environment that was read, with a zero behind it
char *proc_variable_of(const char *text, size_t len, const char *name);
// The pid of the process, or the tid of a task, as we know it and as it knows it itself: in the
// innermost namespace. Returns how many namespaces deep it stands, seen from here; 0: it is gone.
int proc_pids(const char *dir, pid_t *ret_outer, pid_t *ret_inner);
pid_t proc_inner_pid(const char *dir); // 0: it is gone
// The pid, as we know it, of the process that calls itself `inner` in a pid namespace (the inode of
// /proc/PID/ns/pid; ours or 0: no search). Reads of each process until it is found, a millisecond
// for hundreds. -1: none that can be seen from here.
pid_t proc_outer_pid(pid_t inner, uint64_t pid_namespace);
pid_t proc_outer_tid(pid_t outer_pid, pid_t inner_tid); // of a thread of it, likewise; -1

struct proc_mapping {
    uint64_t begin, end, offset, inode;
    dev_t device;
    char permissions[8]; // "r-xp"
    char *path; // as the kernel spells it ("\012" is a newline, " (deleted)" follows); "" for none
};
// A line of maps, with or without its line end; it is written to, and path points into it. False:
// no such line.
bool proc_mapping_parse(char *line, struct proc_mapping *ret);

struct proc_maps {
    FILE *file;
    char *line;
    size_t room;
};
int proc_maps_open(const char *dir, struct proc_maps *ret);
// The same, of a process that may hold its mmap lock for long, for which the kernel waits: the
// process that waits for files reads it. -EAGAIN: it is not to be had in time, or was not a moment
// ago.
int proc_maps_ask(const char *dir, struct proc_maps *ret);
// ret is valid until the next call
bool proc_maps_next(struct proc_maps *maps, struct proc_mapping *ret);
int proc_maps_close(struct proc_maps *maps); // -EIO: it was not read to its end

// smaps: the kernel walks the pages of the process for it and holds its mmap lock meanwhile, so
// only of one that stands still.
struct proc_usage {
    struct proc_mapping mapping;
    int64_t resident_bytes;  // pages of it in memory, those that it shares with others too
    int64_t anonymous_bytes; // of them, pages that no file holds: private memory, and what was
                             // written to of a file
};
struct proc_smaps {
    struct proc_maps lines;
    char *header; // of the mapping that was returned
    size_t room;
    bool ahead; // the line that was read last is a header
};
int proc_smaps_open(const char *dir, struct proc_smaps *ret);
// ret is valid until the next call
bool proc_smaps_next(struct proc_smaps *smaps, struct proc_usage *ret);
int proc_smaps_close(struct proc_smaps *smaps); // -EIO: it was not read to its end

#endif
