// SPDX-License-Identifier: Apache-2.0
// The Python frames of a thread of another process, read from outside with process_vm_readv, or
// named only, where somebody else has walked them: the target is never stopped, signalled or
// written to. CPython 3.8 to 3.14 with a GIL, Linux on x86-64 and arm64; 3.13 and later by the
// offsets that the interpreter itself publishes (_Py_DebugOffsets), older ones by layout_table.c,
// generated from the interpreters' own headers.
//
// The frames of a thread that sleeps cannot change, so its walk is exact. Those of a running thread
// may be torn; then a flag says so, and no wrong pointer is ever followed without a check or a
// bound. A struct pystack serves one thread of the caller at a time. Reading another user's process
// takes CAP_SYS_PTRACE.
#ifndef UPGATE_TRACER_PYSTACK_PYSTACK_H
#define UPGATE_TRACER_PYSTACK_PYSTACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/error.h"

#define PYSTACK_FRAMES_MAX 256 // of one walk; deeper stacks are cut at the root end
#define PYSTACK_STRING_MAX \
    1024 // bytes of a name or a file's path, with the NUL; longer ones are cut

enum pystack_flag {
    PYSTACK_UNSURE = 1 << 0, // the leaf moved while it was read: the thread was running
    PYSTACK_TORN =
            1 << 1, // the chain ended in a bad pointer or a cycle: what came before it is kept
    PYSTACK_CUT = 1 << 2,     // there are more frames than max
    PYSTACK_HAS_GIL = 1 << 3, // the thread held its interpreter's GIL when the walk began
    PYSTACK_IN_GC = 1 << 4,   // its interpreter was collecting garbage (done by the GIL's holder)
};

// One frame. The strings are valid UTF-8 and never NULL; they belong to the struct pystack and are
// valid until the next pystack_walk or pystack_close of it: copy what is kept.
struct pystack_frame {
    const char *function; // co_qualname from 3.11, co_name before; "?" when unreadable
    const char
            *file;  // co_filename as the interpreter has it (may be relative); "?" when unreadable
    int line;       // of the instruction being executed; 0: not known
    int first_line; // of the function; 0: not known
    uint64_t code;  // address of the code object: the same for the same function while it lives
};

struct pystack;

// Find the interpreter of process tgid (a host pid), its version and its state.
// -ENOENT: no Python in this process (or not yet: ask again after it has loaded its libraries);
// -ENOTSUP: a Python that is not supported, with the version in words; -ESRCH: no such process;
// -EPERM: may not read it; -EIO: its files could not be read. Costs some ms for an interpreter with
// a large symbol table. *ret is untouched on failure.
int pystack_open(pid_t tgid, struct pystack **ret, struct error *err);
void pystack_close(struct pystack *ps); // NULL is allowed

// "3.11.2": from the process's own memory or, before 3.11, its files.
const char *pystack_version(const struct pystack *ps);

// Walk thread tid (a host tid). At most max frames (and PYSTACK_FRAMES_MAX), leaf first;
// *ret_count may be 0: the thread runs no Python just now. *ret_flags: enum pystack_flag, may be
// NULL. -ENOENT: the thread has no Python state (a thread of a C library); -ESRCH: the process is
// gone, or runs another program now (close it; open again if wanted); -EPERM; -EIO. err as in
// pystack_open; pass NULL where the text is not wanted, formatting it costs about a microsecond.
int pystack_walk(struct pystack *ps, pid_t tid, struct pystack_frame *frames, size_t max,
        size_t *ret_count, unsigned *ret_flags, struct error *err);

// Where the structures of its interpreter stand, for who walks them himself (layout.h). Valid until
// pystack_close.
struct layout;
const struct layout *pystack_layout(const struct pystack *ps, uint64_t *ret_runtime);

// A frame that somebody else has found: its code object, and the instruction in it.
struct pystack_place {
    uint64_t code;
    int64_t offset; // in bytes; -2: before the first; INT64_MAX: not known
};

// Names of the frames at these places (at most PYSTACK_FRAMES_MAX), as pystack_walk gives them.
// Each code object is read once after a pystack_refresh, unless `read` is false or the process has
// ended: then its memory is left alone, and what was known is taken. first_line -1: there is no
// such code object, or it is not known.
void pystack_name(struct pystack *ps, const struct pystack_place *places, size_t count, bool read,
        struct pystack_frame *frames);
// What is named from now on is read again first; `all`: all that has been named, now. True: since
// the last time one was found gone, or another one in its place.
bool pystack_refresh(struct pystack *ps, bool all);

// The host tid of the thread that has this tid in the process's own pid namespace. -ENOENT: none.
int pystack_host_tid(struct pystack *ps, uint32_t own, pid_t *ret_tid);

// The thread (host tid) that holds the GIL of the main interpreter; 0: nobody. -ESRCH etc. as
// above.
int pystack_gil_holder(struct pystack *ps, pid_t *ret_tid, struct error *err);

// Counters of this pystack since it was opened, to tell what a walk costs.
struct pystack_stats {
    uint64_t walks; // that returned 0
    uint64_t reads; // system calls that read memory
};
void pystack_stats_read(const struct pystack *ps, struct pystack_stats *ret);

#endif
