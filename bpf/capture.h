// SPDX-License-Identifier: Apache-2.0
// The loader of the BPF programs: attaches what the machine allows, hands records to a callback,
// reads the counters. Kernel side: capture.bpf.c (dual BSD/GPL). One thread. Everything is detached
// by the kernel when the process dies, also by kill -9: nothing is pinned.
#ifndef UPGATE_BPF_CAPTURE_H
#define UPGATE_BPF_CAPTURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "bpf/events.h"
#include "bpf/python.h"
#include "bpf/unwind.h"
#include "common/error.h"
#include "common/mapping_event.h"

struct capture;

// Code that a process of the machine, any of them, has mapped. Those of one process may come out of
// order by milliseconds; each comes before the first record whose stack may lie in it.
typedef void (*capture_mapping_callback)(void *context, const struct mapping_event *event);

struct capture_opts {
    const pid_t *pids; // targets: thread groups; their threads and, unless no_children, children
                       // born later
    size_t pid_count;
    const char *cgroup; // cgroup directory: every task in it or below is a target; or NULL
    pid_t watcher; // our parent, where it reads meanwhile what is recorded: no target, unless by
                   // its pid, as we are none; 0: it does not
    bool no_children;
    int64_t threshold_ns; // gaps and lock waits at least this long are sent
    uint32_t sample_hz;   // 0: no sampling
    bool faults; // page faults of the target are sampled, 125 a second and CPU at most, 400 at once
    size_t ring_bytes;                   // 0 = 4 MiB; power of two
    capture_mapping_callback on_mapping; // NULL: not wanted
    // whose user stacks and Python frames can be walked at one time; 0 = 256
    uint32_t processes_max;
    uint32_t miss_switch_in; // tests: of so many switches to a target one is taken as not told by
                             // the kernel; 0: none
    bool no_loop; // tests: as on a kernel without bpf_loop, and so without what asks for owners
    bool prompt;  // records wake the reader of the rings, up to 5,000 times a second, instead of
                  // waiting until it looks
};

// Processes that are targets of these pids (with their children, unless no_children) and of this
// cgroup now: for processes_max, which cannot grow afterwards. One that is so twice counts twice.
// Asks /proc only.
size_t capture_count_targets(const struct capture_opts *opts);

// What is one record to the reader. `event` points into the ring and is valid during the call only.
typedef void (*capture_callback)(void *context, const struct ug_head *event);

// -EPERM: not root and without CAP_BPF + CAP_PERFMON; -ENOTSUP: no BTF; the sentence says how to
// get it. Only the scheduler's tracepoints are a must; each other source that fails is in
// capture_missing.
int capture_open(const struct capture_opts *opts, capture_callback callback, void *context,
        struct capture **ret_capture, struct error *err);
// Calls back for what is in the rings; waits at most wait_ms. Number of records, or -errno.
int capture_poll(struct capture *capture, int wait_ms);
// -errno: neither the process nor what descends from it is a target. (Of more than UG_TARGETS_MAX
// at once those before may be.)
int capture_add_target(struct capture *capture, pid_t tgid, struct error *err);
// Ask the iterator what every thread of the targets is doing now (UG_EVENT_STATE records).
int capture_look(struct capture *capture);
// Ask for the gaps that go on, as they are now (UG_GAP_UNFINISHED). The whole gap comes later all
// the same.
int capture_waiting(struct capture *capture);
// Thread totals: switches, short gaps below the threshold and their time, run time (UG_EVENT_TOTAL
// records). Of each living target thread; of those that ended they came before.
int capture_totals(struct capture *capture);
// User stacks: tables for the programs, as bpf/unwind.h describes them. False: this machine walks
// them by frame pointers, and Python's not at all.
bool capture_unwinds(const struct capture *capture);
// UG_UNWIND_SLAB_WORDS of them
int capture_unwind_slab(struct capture *capture, uint32_t slab, const uint32_t *words);
int capture_unwind_rule(
        struct capture *capture, uint32_t number, const struct ug_unwind_rule *rule);
// NULL: it has ended.
int capture_unwind_process(
        struct capture *capture, pid_t tgid, const struct ug_unwind_process *process);
// Where the Python of a process is, for the programs that walk its frames; only where
// capture_unwinds. NULL: it has ended.
int capture_python_process(
        struct capture *capture, pid_t tgid, const struct ug_python_process *python);
bool capture_samples_faults(const struct capture *capture); // it was asked to, and can
void capture_counts(struct capture *capture, struct ug_counts ret_counts[UG_COUNTER_COUNT]);
// Records of mappings so far, and how many of them were lost. False: none are had.
bool capture_mappings(const struct capture *capture, uint64_t *ret_seen, uint64_t *ret_lost);
// Sentences: "signals: no tracepoint signal_generate on this kernel; who sent SIGSTOP is told from
// wakers only".
const char *const *capture_missing(const struct capture *capture, size_t *ret_count);
// Programs off, rings stay readable. -errno: the waits that go on could not be read.
int capture_detach(struct capture *capture);
void capture_close(struct capture *capture); // NULL ok

// For `upgate doctor`: which sources this machine allows. Loads and attaches with an empty target.
struct capture_source {
    const char *name;  // "locks"
    const char *gives; // what it tells: "who holds a kernel lock"
    bool works;
    char why[600]; // why not, and what to do
};
size_t capture_sources(struct capture_source *ret_sources, size_t max);

#endif
