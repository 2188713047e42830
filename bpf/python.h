/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What the BPF programs know of the CPython in a process, so that they walk the frames of its
 * threads themselves: addresses and offsets as tracer/pystack has them. The frames of a record are
 * words, leaf first: where the frame is in its code, counted in instructions of two bytes, and the
 * address of the code object.
 */
#ifndef UPGATE_BPF_PYTHON_H
#define UPGATE_BPF_PYTHON_H

#ifndef __bpf__
#include <linux/types.h>
#endif

enum {
    /* a power of two; what is read of a frame has less: 108 in 3.8, 80 from 3.11 */
    UG_PYTHON_FRAME_BYTES = 128,
    /* of a word: instructions before the frame's, and 1 more; all set: not known */
    UG_PYTHON_PLACE_BITS = 20,
    UG_PYTHON_PLACES = 1 << UG_PYTHON_PLACE_BITS,
    UG_PYTHON_CODE_ALIGN_BITS = 3,
};

#define UG_PYTHON_NONE 0xffffffffu /* this version has no such field */

struct ug_python_process {
    __u64 interpreters; /* where the address of the first interpreter's state stands */
    __u64 gil;          /* 0: at interpreter_gil of the interpreter stands its address */
    __u64 gc;           /* 0: at interpreter_gc of the interpreter */
    __u32 minor;        /* of 3.minor */
    __u32 interpreter_next, interpreter_threads, interpreter_gil, interpreter_gc;
    __u32 gil_holder, gil_locked, gc_collecting;
    __u32 thread_next, thread_interpreter, thread_id, thread_native;
    __u32 thread_frame, cframe_frame; /* cframe_frame not NONE: at thread_frame stands the address
                                         of a cframe */
    __u32 control_tid; /* where the control block of the C library has a thread's tid */
    __u32 frame_bytes, frame_back, frame_code, frame_instruction, frame_owner;
    __u32 code_start;
    __u32 reserved;
};

_Static_assert(sizeof(struct ug_python_process) == 112, "struct ug_python_process");

#endif
