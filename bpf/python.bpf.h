/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Python frames of the running thread, from the interpreter's own structures: bpf/python.h says
 * where they stand, and the recorder fills its map as it finds interpreters. A thread's state is
 * the one that has its pthread_self(), on x86-64 the base of fs; where it was found is kept in the
 * thread's storage. Nothing is locked: it is the thread itself that is interrupted, so its chain of
 * frames is at rest.
 */
#ifndef UPGATE_BPF_PYTHON_BPF_H
#define UPGATE_BPF_PYTHON_BPF_H

#include "bpf/common.bpf.h"
#include "bpf/python.h"

const volatile bool have_python = false;

enum {
    PYTHON_THREADS_MAX = 64, /* and interpreters; who has more is read from outside */
    PYTHON_STEPS_MAX = 160,  /* frames, and the entries of the interpreter's loop between them */
    PYTHON_OWNED_BY_C = 3,   /* frame.owner of those, from 3.12 */
    PYTHON_GIL_BYTES = 256,  /* of its structure: 208 and 216 */
};

enum python_how { PYTHON_WALKED, PYTHON_MISSED };
enum python_for { PYTHON_SWITCH, PYTHON_SAMPLE, PYTHON_FAULT, PYTHON_FOR_COUNT };

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 1); /* set by the loader */
    __type(key, __u32);
    __type(value, struct ug_python_process);
} python_processes SEC(".maps");

struct python_state {
    __u64 self;   /* pthread_self() */
    __u64 thread; /* its state; 0: not found yet */
    __u64 frame;  /* the next one */
    __u64 futex;  /* what it waits at; 0: nothing */
    __u32 tgid;
    __u32 count;
    __u32 holder; /* of the GIL, when it waits for that: its tid in its own namespace */
    __u32 collects;
    __u64 frames[UG_PSTACK_MAX + 1];
    __u8 bytes[UG_PYTHON_FRAME_BYTES + 8];
};
struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, PYTHON_FOR_COUNT);
    __type(key, __u32);
    __type(value, struct python_state);
} python_states SEC(".maps");

static __always_inline long python_read(void *to, __u32 bytes, __u64 from)
{
    return bpf_probe_read_user(to, bytes, (void *)from);
}

/* Whether the state at `thread` is the thread's and has a frame: that comes next. */
static __always_inline bool python_is(
        struct python_state *state, struct ug_python_process *process, __u64 thread)
{
    __u64 id = 0, frame = 0;

    if (python_read(&id, sizeof(id), thread + process->thread_id) || id != state->self ||
            python_read(&frame, sizeof(frame), thread + process->thread_frame))
        return false;
    if (process->cframe_frame != UG_PYTHON_NONE &&
            (!frame || python_read(&frame, sizeof(frame), frame + process->cframe_frame)))
        return false;
    state->frame = frame;
    return frame;
}

struct python_walk {
    struct python_state *state;
    struct ug_python_process *process;
    __u64 interpreter, thread; /* the next ones */
    int how;
};

/* Interpreters and the threads of each, until one fits. */
static long python_each_thread(__u64 i, struct python_walk *walk)
{
    struct ug_python_process *process = walk->process;
    __u64 thread = walk->thread, interpreter = walk->interpreter;

    if (!thread && !interpreter) {
        walk->how = PYTHON_WALKED; /* it is in no Python */
        return 1;
    }
    if (!thread)
        return python_read(
                       &walk->thread, sizeof(thread), interpreter + process->interpreter_threads) ||
                python_read(&walk->interpreter, sizeof(interpreter),
                        interpreter + process->interpreter_next);
    if (python_is(walk->state, process, thread)) {
        walk->state->thread = thread;
        walk->how = PYTHON_WALKED;
        return 1;
    }
    return python_read(&walk->thread, sizeof(thread), thread + process->thread_next) != 0;
}

static __always_inline __u64 python_field(struct python_state *state, __u32 at)
{
    return *(__u64 *)(state->bytes + index_of(at, UG_PYTHON_FRAME_BYTES));
}

static __always_inline __u64 python_word(
        struct python_state *state, struct ug_python_process *process)
{
    /* without 3.14's tag */
    __u64 code = python_field(state, process->frame_code) >> UG_PYTHON_CODE_ALIGN_BITS;
    __u64 place = python_field(state, process->frame_instruction);

    if (process->minor >= 11)
        place = (place - (code << UG_PYTHON_CODE_ALIGN_BITS) - process->code_start) >> 1;
    else if (process->minor == 10)
        place = (__s64)(__s32)place; /* f_lasti: counted in instructions there, in bytes before */
    else
        place = (__s64)(__s32)place >> 1;
    place++;
    if (place >= UG_PYTHON_PLACES)
        place = UG_PYTHON_PLACES - 1;
    return code << UG_PYTHON_PLACE_BITS | place;
}

/* One frame further. */
static long python_each_frame(__u64 i, struct python_walk *walk)
{
    struct python_state *state = walk->state;
    struct ug_python_process *process = walk->process;
    __u32 bytes = index_of(process->frame_bytes, UG_PYTHON_FRAME_BYTES);

    if (!state->frame || state->count >= UG_PSTACK_MAX)
        return 1;
    if (python_read(state->bytes, bytes, state->frame)) {
        walk->how = PYTHON_MISSED;
        return 1;
    }
    if (process->frame_owner == UG_PYTHON_NONE ||
            state->bytes[index_of(process->frame_owner, UG_PYTHON_FRAME_BYTES)] <
                    PYTHON_OWNED_BY_C) {
        state->frames[index_of(state->count, UG_PSTACK_MAX + 1)] = python_word(state, process);
        state->count++;
    }
    state->frame = python_field(state, process->frame_back);
    return 0;
}

static __always_inline __u64 python_gil_holder(struct ug_python_process *process, __u64 gil)
{
    __u64 holder = 0;
    __u32 locked = 0;

    python_read(&locked, sizeof(locked), gil + process->gil_locked);
    if (locked == 1)
        python_read(&holder, sizeof(holder), gil + process->gil_holder);
    return holder;
}

/* Who has the GIL it waits for, and whether it is collecting garbage. */
static __always_inline void python_gil(
        struct python_state *state, struct ug_python_process *process)
{
    __u64 interpreter = 0, gil = process->gil, gc = process->gc, holder, id = 0;
    __u32 collecting = 0;

    python_read(&interpreter, sizeof(interpreter), state->thread + process->thread_interpreter);
    if (!gc)
        gc = interpreter + process->interpreter_gc;
    if (!gil)
        python_read(&gil, sizeof(gil), interpreter + process->interpreter_gil);
    python_read(&collecting, sizeof(collecting), gc + process->gc_collecting);
    if (collecting && python_gil_holder(process, gil) == state->thread)
        state->collects = 1;
    if (state->futex - gil >= PYTHON_GIL_BYTES)
        return;
    holder = python_gil_holder(process, gil);
    if (!holder || holder == state->thread)
        return;
    if (process->thread_native != UG_PYTHON_NONE)
        python_read(&state->holder, sizeof(state->holder), holder + process->thread_native);
    else if (!python_read(&id, sizeof(id), holder + process->thread_id))
        python_read(&state->holder, sizeof(state->holder), id + process->control_tid);
}

__attribute__((noinline)) int python_run(__u32 which)
{
    struct python_state *state = bpf_map_lookup_elem(&python_states, &which);
    struct python_walk walk = {.state = state, .how = PYTHON_MISSED};

    if (!have_python || !state)
        return PYTHON_MISSED;
    walk.process = bpf_map_lookup_elem(&python_processes, &state->tgid);
    if (!walk.process)
        return PYTHON_MISSED;
    if (!state->thread || !python_is(state, walk.process, state->thread)) {
        state->thread = 0;
        if (!python_read(&walk.interpreter, sizeof(walk.interpreter), walk.process->interpreters))
            bpf_loop(PYTHON_THREADS_MAX, python_each_thread, &walk, 0);
        if (!state->thread)
            return walk.how;
    }
    walk.how = PYTHON_WALKED;
    python_gil(state, walk.process);
    bpf_loop(PYTHON_STEPS_MAX, python_each_frame, &walk, 0);
    return walk.how;
}

/* The frames of current into UG_PSTACK_MAX words at `to`. NULL: it is no known Python's, or has to
 * be read from outside. */
static __always_inline struct python_state *take_python(
        struct task_struct *task, struct thread *thread, __u64 futex, __u32 which, void *to)
{
#if defined(__TARGET_ARCH_x86)
    struct python_state *state;
    __u32 tgid = task->tgid, count;
    int how;

    if (!have_python || !bpf_map_lookup_elem(&python_processes, &tgid))
        return NULL;
    state = bpf_map_lookup_elem(&python_states, &which);
    if (!state)
        return NULL;
    state->self = task->thread.fsbase;
    state->thread = thread->python;
    state->frame = 0;
    state->futex = futex;
    state->tgid = tgid;
    state->count = 0;
    state->holder = 0;
    state->collects = 0;
    how = python_run(which);
    thread->python = state->thread;
    if (how != PYTHON_WALKED)
        return NULL;
    count = state->count;
    KEEP_VALUE(count);
    count &= UG_PSTACK_MAX; /* a power of two, less 1 */
    bpf_probe_read_kernel(to, count * 8, state->frames);
    return state;
#else
    return NULL;
#endif
}

/* The same behind what stands in the scratch before `at`, for a sample or a page fault; where the
 * record ends then. */
static __always_inline __u32 append_python(struct scratch *scratch, struct task_struct *task,
        __u32 which, __u32 at, __u32 *why, __u16 *count)
{
    struct python_state *python;
    struct thread *thread = thread_of(task);

    if (!thread)
        return at;
    KEEP_VALUE(at);
    at &= 2047;
    python = take_python(task, thread, 0, which, scratch->bytes + at);
    if (!python)
        return at;
    *why |= UG_SAMPLE_PYTHON | (python->collects ? UG_SAMPLE_PYTHON_GC : 0);
    *count = python->count;
    return at + python->count * 8;
}

#endif
