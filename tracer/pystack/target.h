// SPDX-License-Identifier: Apache-2.0
// A Python in some memory, and the walks over it. No files and no process here: pystack.c finds the
// interpreter and gives the reader; the tests give memory of their own, hostile in every field.
#ifndef UPGATE_TRACER_PYSTACK_TARGET_H
#define UPGATE_TRACER_PYSTACK_TARGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tracer/pystack/code.h"
#include "tracer/pystack/layout.h"
#include "tracer/pystack/memory.h"
#include "tracer/pystack/pystack.h"

#define TARGET_INTERPRETERS_MAX 64
#define TARGET_THREADS_MAX 4096 // of one interpreter
#define TARGET_STEPS_MAX 2048   // frames of one chain, those of C calls between them included
#define TARGET_KNOWN 512        // threads whose state is remembered, by tid

struct target_thread {
    uint64_t address; // of its PyThreadState
    uint64_t prev, next, interpreter, pthread, native;
    uint64_t leaf_at; // where the address of the leaf frame stands
};

struct target_raw {
    uint64_t frame, code, instruction;
    size_t head; // which code head of this walk is its own
};

struct target {
    struct layout layout;
    uint64_t runtime; // address of _PyRuntime
    struct memory memory;
    struct code_cache codes;
    struct {
        uint32_t tid;
        uint64_t thread;
    } known[TARGET_KNOWN];
    struct target_raw raw[PYSTACK_FRAMES_MAX];
    uint8_t (*heads)[LAYOUT_CODE_MAX]; // the code objects of a walk
};

// layout is copied. -ENOMEM. target_clear works half-built.
int target_init(struct target *target, const struct layout *layout, uint64_t runtime, memory_fn fn,
        void *ctx);
void target_clear(struct target *target);

// Whether the structures fit the layout: every thread points back at its interpreter. -ENOENT:
// there is no interpreter yet; -ENOTSUP: they do not.
int target_check(struct target *target, struct error *err);

// The main interpreter: the first one made, which ends the list. -ENOENT: none.
int target_main_interpreter(struct target *target, uint64_t *ret);

// The state of the thread whose own idea of its tid is this one. -ENOENT: it has none.
int target_thread_find(struct target *target, uint32_t tid, struct target_thread *ret);

// The thread's own idea of its tid, from its state; 0: cannot be told.
uint32_t target_thread_tid(struct target *target, const struct target_thread *thread);
int target_thread_read(struct target *target, uint64_t address, struct target_thread *ret);

// The thread state that holds the interpreter's GIL; 0: nobody.
int target_gil_holder(struct target *target, uint64_t interpreter, uint64_t *ret);
// garbage, in the thread that holds the GIL
int target_collecting(struct target *target, uint64_t interpreter, bool *ret);

// The frames of a thread: as pystack_walk.
int target_walk(struct target *target, const struct target_thread *thread,
        struct pystack_frame *frames, size_t max, size_t *ret_count, unsigned *flags);
// The names of frames that were found otherwise: as pystack_name.
void target_name(struct target *target, const struct pystack_place *places, size_t count, bool read,
        struct pystack_frame *frames);

#endif
