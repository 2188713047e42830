// SPDX-License-Identifier: Apache-2.0
// The programs of bpf/calls.bpf.c: loaded, attached to places in files, read. What their events
// mean, and what follows from them, is tracer/calls. One owner thread.
#ifndef UPGATE_BPF_CALLS_H
#define UPGATE_BPF_CALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "bpf/calls_events.h"
#include "common/error.h"

struct call_programs;

struct call_programs_opts {
    bool holds;           // processes are stopped
    bool no_children;     // processes that are born later are left out
    uint32_t control_ppm; // every call is made longer by this share; 0: none
    uint32_t granted;     // at first
};

typedef void (*call_programs_fn)(void *arg, const struct ug_call_event *event);

// -EPERM, -ENOTSUP as capture_open().
int call_programs_open(const struct call_programs_opts *opts, call_programs_fn callback, void *arg,
        struct call_programs **ret_programs, struct error *err);
// A process, and with `children` those that descend from it already.
int call_programs_follow(
        struct call_programs *programs, pid_t tgid, bool children, struct error *err);
// of those that are followed
void call_programs_each(
        struct call_programs *programs, void (*each)(void *arg, pid_t tgid), void *arg);

enum call_place { CALL_PLACE_FUNCTION, CALL_PLACE_RETURN, CALL_PLACE_LOADER };
// A breakpoint in every process that maps the file open at fd, now or later, at that byte of it.
int call_programs_attach(struct call_programs *programs, enum call_place place, int fd,
        uint64_t offset, struct error *err);

// Calls back for what is there; waits for nothing. call_programs_fd() is readable when there is
// something that must not wait.
int call_programs_read(struct call_programs *programs);
int call_programs_fd(const struct call_programs *programs);

// shared with the programs
struct ug_call_state *call_programs_state(struct call_programs *programs, uint32_t process);
// of processes that have called
uint32_t call_programs_count(const struct call_programs *programs);
void call_programs_grant(struct call_programs *programs, uint32_t granted);
// libraries need not be looked at any more
void call_programs_found(struct call_programs *programs);
// no breakpoint of CALL_PLACE_RETURN is left, and no site is known
void call_programs_forget_returns(struct call_programs *programs);
void call_programs_detach(struct call_programs *programs); // no breakpoint is left
void call_programs_close(struct call_programs *programs);  // NULL ok

#endif
