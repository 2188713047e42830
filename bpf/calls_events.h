/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What the BPF programs of bpf/calls.bpf.c and their reader share: calls of one function, each a
 * step. Times are CLOCK_MONOTONIC in ns, ids are those of the first pid namespace.
 */
#ifndef UPGATE_BPF_CALLS_EVENTS_H
#define UPGATE_BPF_CALLS_EVENTS_H

#ifndef __bpf__
#include <linux/types.h>
#endif

enum {
    UG_CALLS_PROCESSES = 1024, /* that call the function; a power of two */
    UG_CALLS_SITES = 16,       /* places of a process from which it calls it */
    UG_CALLS_FREE = -1,        /* granted: no gate */
};

enum ug_call_kind {
    UG_CALL_STEP = 1,   /* the outermost call has ended */
    UG_CALL_ENTER = 2,  /* one has begun from a place that is not known, or before a closed gate */
    UG_CALL_EXEC = 3,   /* a process has become another program */
    UG_CALL_LOADED = 4, /* its loader has mapped a library, or is about to */
    UG_CALL_EXIT = 5,   /* its last thread ends; value = its exit code as the kernel has it */
};

enum ug_call_flag {
    UG_CALL_HELD = 1,       /* the process was told to stop: the gate is closed */
    UG_CALL_STOPPED = 2,    /* or for us to look at it */
    UG_CALL_UNRETURNED = 4, /* left by an exception or longjmp: it ends where the next one begins */
    UG_CALL_STRETCH = 8, /* a control: it is to be made longer by `value` ns, which took too long in
                            the kernel */
};

struct ug_call_event {
    __u32 kind, flags;
    __u32 tgid, tid;
    __u32 process; /* index into the states; of EXEC, LOADED and EXIT nothing */
    __u32 step;
    __u64 begin_ns, end_ns;
    __u64 site; /* where it returns to */
    __u64 value;
};

/* Of one process. The programs write all but sites and site_count. */
struct ug_call_state {
    __u32 tgid;
    __u32 owner; /* the thread that is in the outermost call; 0: none */
    __u32 steps; /* that have ended */
    __u32 site_count;
    __u64 sp; /* at its entry */
    __u64 begin_ns;
    __u64 misplaced; /* calls inside a call, and of other threads meanwhile */
    __u64 dropped;   /* steps that found no room in the ring */
    __u64 unheld;    /* times that the process could not be stopped */
    __u64 control_ns;
    __u64 idle; /* places it returns to, met without a call */
    __u64 sites[UG_CALLS_SITES];
};

_Static_assert(sizeof(struct ug_call_event) == 56, "event");
_Static_assert(sizeof(struct ug_call_state) == 72 + 8 * UG_CALLS_SITES, "state");

#endif
