// SPDX-License-Identifier: Apache-2.0
// What is said of a stall beside its numbers and names: kinds, with their arguments. Their
// sentences are those of reports/render/stalls (stalls_reasons.c). Strings belong to the struct
// stalls.
#ifndef UPGATE_STALLS_REASONS_H
#define UPGATE_STALLS_REASONS_H

#include <stddef.h>
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

// What a late rank did meanwhile, and the others did not.
enum stall_deed_kind {
    STALL_DEED_UNSEEN,
    STALL_DEED_CAUSE,    // cause held it up; function: where, NULL where that was not seen
    STALL_DEED_COMPUTES, // in function
    STALL_DEED_WAITS,    // in function
    STALL_DEED_SLEEPS,   // in function
    STALL_DEED_KERNEL,   // kernel function takes its GPU longer
    STALL_DEED_KERNELS,  // all of them do, by more_share
    STALL_DEED_MESSAGES, // nothing, or that is not known: what it sends comes late
    STALL_DEED_SENDS,    // by their connection, what it sends to peer comes late
    STALL_DEED_RECEIVES, // likewise, what peer sends to it
};

struct stall_deed {
    enum stall_deed_kind kind;
    const char *cause;    // of the table of causes
    const char *function; // "prepare_features (ddp.py)"
    double more_share;
    int32_t peer_rank, peer_pid; // rank -1: not known
    double bits_per_s;           // to or from peer, while something was under way
    double retransmits;          // segments of that
};

// What was not seen.
enum stall_missing_kind {
    STALL_MISSING_SOURCE, // what this machine did not allow: text, as the recorder wrote it
    STALL_MISSING_RANKS,  // count ranks of a job of so many were not recorded
    STALL_MISSING_CLOCKS, // those of count nodes of so many are not known
    STALL_MISSING_GPUS,   // records of what they did were lost
};

enum { STALL_MISSING_RANKS_MAX = 8 };

struct stall_missing {
    enum stall_missing_kind kind;
    const char *text;
    size_t count, of;
    int32_t ranks[STALL_MISSING_RANKS_MAX]; // the first of them
};

// Why it is not known how long a step would take if.
enum stall_why_not {
    STALL_WHY_NOT_NOTHING,       // it is known, or there is nothing to ask
    STALL_WHY_NOT_LOST,          // events were lost while recording
    STALL_WHY_NOT_APART,         // the waits of its ranks do not end together
    STALL_WHY_NOT_CONTRADICTION, // the operations of its ranks contradict each other
    STALL_WHY_NOT_OFF,           // the job as it was, run again, does not take what was measured
};

#endif
