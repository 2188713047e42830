// SPDX-License-Identifier: Apache-2.0
#include "tracer/pystack/target.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tracer/pystack/machine.h"

static const unsigned pthread_tid_at[] = {MACHINE_TID_GLIBC, MACHINE_TID_MUSL};

static uint64_t u64_at(const uint8_t *bytes, int offset)
{
    uint64_t value;
    memcpy(&value, bytes + offset, sizeof(value));
    return value;
}

int target_init(struct target *target, const struct layout *layout, uint64_t runtime, memory_fn fn,
        void *ctx)
{
    memset(target, 0, sizeof(*target));
    target->layout = *layout;
    target->runtime = runtime;
    int code = memory_init(&target->memory, fn, ctx);
    if (code == 0)
        code = code_cache_init(&target->codes, &target->layout, &target->memory);
    target->heads = calloc(PYSTACK_FRAMES_MAX, sizeof(*target->heads));
    if (code == 0 && !target->heads)
        code = -ENOMEM;
    if (code < 0)
        target_clear(target);
    return code;
}

void target_clear(struct target *target)
{
    code_cache_clear(&target->codes);
    memory_clear(&target->memory);
    free(target->heads);
    target->heads = NULL;
}

int target_thread_read(struct target *target, uint64_t address, struct target_thread *ret)
{
    const struct layout *layout = &target->layout;
    const int fields[] = {layout->thread_prev, layout->thread_next, layout->thread_interpreter,
            layout->thread_frame, layout->thread_cframe, layout->thread_id, layout->thread_native};
    uint8_t bytes[MEMORY_PAGE];
    int size = 0;
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
        if (fields[i] + 8 > size)
            size = fields[i] + 8;
    if ((size_t)size > sizeof(bytes))
        return -EFAULT;
    int code = memory_read(&target->memory, address, bytes, (size_t)size);
    if (code < 0)
        return code;
    *ret = (struct target_thread){
            .address = address,
            .prev = u64_at(bytes, layout->thread_prev),
            .next = u64_at(bytes, layout->thread_next),
            .interpreter = u64_at(bytes, layout->thread_interpreter),
            .pthread = u64_at(bytes, layout->thread_id),
            .native = layout->thread_native >= 0 ? u64_at(bytes, layout->thread_native) : 0,
            .leaf_at = layout->thread_frame >= 0
                    ? address + (uint64_t)layout->thread_frame
                    : u64_at(bytes, layout->thread_cframe) + (uint64_t)layout->cframe_frame,
    };
    return 0;
}

// What the thread's control block says; 0: nothing that could be a tid.
static bool pthread_is(struct target *target, uint64_t pthread, uint32_t tid)
{
    for (size_t i = 0; i < sizeof(pthread_tid_at) / sizeof(pthread_tid_at[0]); i++) {
        uint32_t value = 0;
        if (memory_read(&target->memory, pthread + pthread_tid_at[i], &value, sizeof(value)) == 0 &&
                value == tid)
            return true;
    }
    return false;
}

uint32_t target_thread_tid(struct target *target, const struct target_thread *thread)
{
    uint32_t value = 0;
    if (thread->native > 0 && thread->native <= INT32_MAX)
        return (uint32_t)thread->native;
    if (memory_read(&target->memory, thread->pthread + pthread_tid_at[0], &value, sizeof(value)) <
            0)
        return 0;
    return value;
}

// By native_thread_id where there is one. A child of fork without exec has its parent's there
// until 3.12, so the control block, which fork does set, decides when nobody's native id fits.
static bool thread_is(
        struct target *target, const struct target_thread *thread, uint32_t tid, bool native)
{
    return native ? thread->native == tid : pthread_is(target, thread->pthread, tid);
}

static int find_among(struct target *target, uint64_t interpreter, uint32_t tid, bool native,
        struct target_thread *ret)
{
    uint64_t at = 0;
    int code = memory_u64(
            &target->memory, interpreter + (uint64_t)target->layout.interpreter_threads, &at);
    for (size_t i = 0; i < TARGET_THREADS_MAX && code == 0 && at != 0; i++) {
        struct target_thread thread;
        code = target_thread_read(target, at, &thread);
        if (code == 0 && thread.interpreter == interpreter &&
                thread_is(target, &thread, tid, native)) {
            *ret = thread;
            return 0;
        }
        if (code == 0)
            at = thread.next;
    }
    return code == 0 || code == -EFAULT ? -ENOENT : code;
}

static int next_interpreter(struct target *target, uint64_t *at)
{
    if (*at == 0)
        return memory_u64(&target->memory,
                target->runtime + (uint64_t)target->layout.runtime_interpreters, at);
    return memory_u64(&target->memory, *at + (uint64_t)target->layout.interpreter_next, at);
}

int target_main_interpreter(struct target *target, uint64_t *ret)
{
    uint64_t at = 0, last = 0;
    for (size_t i = 0; i < TARGET_INTERPRETERS_MAX; i++) {
        int code = next_interpreter(target, &at);
        if (code < 0)
            return code;
        if (at == 0)
            break;
        last = at;
    }
    if (last == 0)
        return -ENOENT;
    *ret = last;
    return 0;
}

// A remembered state is good only while it still hangs in its interpreter's list: freed memory
// keeps its old content.
static bool known_is_good(
        struct target *target, uint64_t address, uint32_t tid, struct target_thread *ret)
{
    uint64_t back = 0;
    if (target_thread_read(target, address, ret) < 0)
        return false;
    uint64_t at = ret->prev ? ret->prev + (uint64_t)target->layout.thread_next
                            : ret->interpreter + (uint64_t)target->layout.interpreter_threads;
    if (memory_u64(&target->memory, at, &back) < 0 || back != address)
        return false;
    return ret->native == tid || pthread_is(target, ret->pthread, tid);
}

int target_thread_find(struct target *target, uint32_t tid, struct target_thread *ret)
{
    size_t slot = tid % TARGET_KNOWN;
    if (tid == 0)
        return -ENOENT;
    if (target->known[slot].tid == tid &&
            known_is_good(target, target->known[slot].thread, tid, ret))
        return 0;
    target->known[slot].tid = 0;
    for (int native = target->layout.thread_native >= 0; native >= 0; native--) {
        uint64_t at = 0;
        for (size_t i = 0; i < TARGET_INTERPRETERS_MAX; i++) {
            int code = next_interpreter(target, &at);
            if (code < 0)
                return code == -EFAULT ? -ENOENT : code;
            if (at == 0)
                break;
            code = find_among(target, at, tid, native, ret);
            if (code == 0) {
                target->known[slot].tid = tid;
                target->known[slot].thread = ret->address;
            }
            if (code != -ENOENT)
                return code;
        }
    }
    return -ENOENT;
}

int target_gil_holder(struct target *target, uint64_t interpreter, uint64_t *ret)
{
    const struct layout *layout = &target->layout;
    uint64_t gil = target->runtime + (uint64_t)layout->runtime_gil, holder = 0;
    int32_t locked = 0;
    int code = 0;
    if (layout->runtime_gil < 0)
        code = memory_u64(&target->memory, interpreter + (uint64_t)layout->interpreter_gil, &gil);
    if (code == 0)
        code = memory_read(
                &target->memory, gil + (uint64_t)layout->gil_locked, &locked, sizeof(locked));
    if (code == 0)
        code = memory_u64(&target->memory, gil + (uint64_t)layout->gil_holder, &holder);
    if (code == 0)
        *ret = locked == 1 ? holder : 0;
    return code;
}

int target_collecting(struct target *target, uint64_t interpreter, bool *ret)
{
    const struct layout *layout = &target->layout;
    uint64_t gc = layout->runtime_gc >= 0 ? target->runtime + (uint64_t)layout->runtime_gc
                                          : interpreter + (uint64_t)layout->interpreter_gc;
    int32_t collecting = 0;
    int code = memory_read(
            &target->memory, gc + (uint64_t)layout->gc_collecting, &collecting, sizeof(collecting));
    if (code == 0)
        *ret = collecting != 0;
    return code;
}

static int check_once(struct target *target, struct error *err)
{
    uint64_t at = 0, thread_at = 0, holder = 0;
    struct target_thread thread;
    memory_refresh(&target->memory);
    int code = target_main_interpreter(target, &at);
    if (code == 0)
        code = memory_u64(
                &target->memory, at + (uint64_t)target->layout.interpreter_threads, &thread_at);
    if (code == -ENOENT || (code == 0 && thread_at == 0))
        return error_set(err, -ENOENT, "its Python has not started yet, or is at its end");
    if (code == 0)
        code = target_thread_read(target, thread_at, &thread);
    if (code == 0 && thread.interpreter != at)
        code = -EFAULT;
    if (code == 0)
        code = target_gil_holder(target, at, &holder);
    if (code == -EFAULT)
        return error_set(err, -ENOTSUP,
                "the structures of its Python are not where they stand in the 3.%d of CPython: a "
                "changed or a debug build",
                target->layout.minor);
    return code;
}

int target_check(struct target *target, struct error *err)
{
    int code = 0;
    for (int attempt = 0; attempt < 3; attempt++) { // a thread may end between two reads
        code = check_once(target, err);
        if (code != -ENOTSUP)
            break;
    }
    return code;
}
