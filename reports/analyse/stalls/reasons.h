// SPDX-License-Identifier: Apache-2.0
// What is said of a stall beside its numbers and names: kinds, with their arguments. Their
// sentences are those of reports/render/stalls (stalls_reasons.c). Strings belong to the struct
// stalls.
#ifndef UPGATE_STALLS_REASONS_H
#define UPGATE_STALLS_REASONS_H

#include <stdint.h>

// Why one is not sure: bits, in the order in which they are told.
enum stall_doubt {
    STALL_DOUBT_READER = 1 << 0,      // the lock's owner is one of possibly many readers
    STALL_DOUBT_NO_OWNER = 1 << 1,    // nobody was recorded as owner
    STALL_DOUBT_DISAGREE = 1 << 2,    // owner and waker are different tasks
    STALL_DOUBT_NO_ACTIVITY = 1 << 3, // what the culprit did was not seen
    STALL_DOUBT_INFERRED = 1 << 4,    // the culprit was concluded from the timing
    STALL_DOUBT_UNFINISHED = 1 << 5,  // the wait began before or ended after the recording
    STALL_DOUBT_SHARED = 1 << 6,      // several had their share
    STALL_DOUBT_GPU_UNKNOWN = 1 << 7, // of a wait for a GPU: what that did was not recorded
    STALL_DOUBT_NO_SAMPLES = 1 << 8,  // there is a culprit, and no samples were taken
    STALL_DOUBT_UNSEEN = 1 << 9,      // of a straggler: what it did meanwhile was not seen
    STALL_DOUBT_LOST = 1 << 10,       // events were lost while recording
    STALL_DOUBT_BITS = 11
};

// Of a wait for a GPU: what is known of what that did meanwhile.
enum stall_meanwhile {
    STALL_MEANWHILE_NO_GPU,  // any other cause
    STALL_MEANWHILE_IDLE,    // only the time counts in which it had nothing to do for who waits
    STALL_MEANWHILE_PARTLY,  // that was recorded of some of the time only
    STALL_MEANWHILE_UNKNOWN, // it was not recorded
};

// How the one who waits hangs on the other.
enum stall_via {
    VIA_NONE,
    VIA_MMAP_LOCK,
    VIA_KERNEL_LOCK,
    VIA_WAKE,
    VIA_PIPE,
    VIA_SOCKET,
    VIA_FUTEX,
    VIA_MUTEX,
    VIA_GIL,
    VIA_CPU,
    VIA_SIGNAL,
    VIA_FREEZER,
    VIA_PTRACE,
    VIA_CHILD,
    VIA_FILE,
    VIA_MEMORY,
    VIA_CAUSE,      // one of the table of causes
    VIA_COLLECTIVE, // between ranks
    VIA_MESSAGE,    // between ranks that send to each other
};

// What was waited for.
enum stall_resource_kind {
    STALL_RESOURCE_NONE,        // nothing that is known
    STALL_RESOURCE_NAMED,       // a file, a pipe or a socket: name
    STALL_RESOURCE_MMAP_LOCK,   // of process pid
    STALL_RESOURCE_KERNEL_LOCK, // address
    STALL_RESOURCE_MUTEX,       // address
    STALL_RESOURCE_GIL,
    STALL_RESOURCE_CPU,      // cpu
    STALL_RESOURCE_CPU_TIME, // most of it was taken by process name, pid
    STALL_RESOURCE_CGROUPS,  // of memory: so many, and directories of them
};

struct stall_resource {
    enum stall_resource_kind kind;
    const char *name;
    int32_t pid;
    int cpu;                      // as its node numbers it; -1: not known
    uint64_t address;             // 0: not known
    int64_t cgroups, directories; // directories -1: not known
};

#endif
