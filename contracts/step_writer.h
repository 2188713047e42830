/*
 * Part of the writer's side of the step protocol: the state, the step path (no system call but the
 * clock's vDSO) and the two rings. Not to be included alone; upgate_step.h is the way in. The state
 * is one weak symbol, so that all translation units of a program share one slot.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef UPGATE_CONTRACTS_STEP_WRITER_H
#define UPGATE_CONTRACTS_STEP_WRITER_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* effective when this header comes first */
#endif

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "contracts/step_layout.h"

#if defined(__GLIBC__) && !defined(__USE_MISC)
#error "upgate_step.h: include it first, or compile with -std=gnu17 or -D_GNU_SOURCE"
#endif

#if !defined(__linux__) || !defined(__LP64__)
#error "upgate_step.h: for 64-bit Linux"
#endif

/* Another variable is for who marks the steps of a program that shall not do so itself. */
#ifndef UG_STEP_VARIABLE
#define UG_STEP_VARIABLE "UPGATE_STEPS"
#endif

#define UG_IMPL_COLD __attribute__((cold, noinline, unused))
#define UG_IMPL_RESERVE_BYTES (1u << 20) /* byte ring: memory is taken in steps of 1 MiB */
#define UG_IMPL_ALIVE_CHECK_NS 1000000000ull
#define UG_IMPL_RETRY_NS 1000000000ull
/* The default timer slack: an arrival is slept for up to here, then spun for. */
#define UG_IMPL_ARRIVAL_SPIN_NS 50000ull
#define UG_IMPL_PUT_YIELDS 1000
#define UG_IMPL_PUT_NAPS 2000 /* of 50 us and the timer's slack: some 200 ms */

enum ug_impl_status {
    UG_IMPL_UNTRIED = 0,
    UG_IMPL_ATTACHED = 1,
    UG_IMPL_OFF = 2,
    UG_IMPL_ATTACHING = 3,
};

struct ug_impl_phase {
    uint64_t begin_ns;
    char name[UG_STEP_NAME_BYTES];
};

struct ug_step_state {
    uint32_t status; /* enum ug_impl_status */
    uint32_t step;   /* index of the step that is open, or of the next */
    uintptr_t owner; /* the thread that has the step open, 0 = none */
    struct ug_step_slot *slot;
    struct ug_step_record *records;
    uint64_t head;
    uint64_t tail; /* as last seen; looked up again only when the ring seems full */
    uint64_t record_mask;
    uint64_t begin_ns;
    uint64_t sched_ns;
    uint32_t in_step; /* 0: the owner waits at the gate or only borrowed the rings */
    uint32_t nested;  /* steps begun inside the open one */
    uint32_t phases;
    uint32_t orphan; /* the harness is gone: never wait again */
    struct ug_impl_phase phase[UG_STEP_PHASE_DEPTH_MAX];
    unsigned char *bytes; /* mapped twice in a row, so that a record never wraps */
    uint64_t byte_head;
    uint64_t byte_tail;
    uint64_t byte_size;
    uint64_t byte_reserved;
    uint64_t hold_begin_ns;
    /* open loop */
    uint64_t rng[4];
    double gap_ns;       /* mean; 0 = closed loop */
    uint64_t arrival_ns; /* 0 = the first gap has not begun */
    /* hooks */
    void (*sync)(void *arg);
    void *sync_arg;
    void (*report)(uint32_t bits, void *arg);
    void *report_arg;
    /* the claim */
    struct ug_step_header *header;
    uint64_t map_bytes;
    uint64_t record_map_bytes;
    uint64_t byte_offset;
    uint64_t file_device;
    uint64_t file_inode;
    uint32_t atfork_done;
    uint32_t told;
    uint32_t putting;  /* the thread that puts a record, 0 = none: requests come from any */
    uint64_t retry_ns; /* when off: a request looks for the file again from here on; 0 = never */
    char path[512];
};

#ifdef __cplusplus
extern "C" {
#endif
extern struct ug_step_state ug_step_state_v2;
__attribute__((weak)) struct ug_step_state ug_step_state_v2;
#ifdef __cplusplus
}
#endif

static UG_IMPL_COLD void ug_impl_attach(struct ug_step_state *s);

/* ---- step path ---- */

static inline uint64_t ug_impl_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

static UG_IMPL_COLD uint64_t ug_impl_cpu_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

static inline uint64_t ug_dtype_bytes(enum ug_dtype dtype)
{
    switch (dtype) {
    case UG_DTYPE_COMPLEX128:
        return 16;
    case UG_DTYPE_FLOAT64:
    case UG_DTYPE_INT64:
    case UG_DTYPE_UINT64:
    case UG_DTYPE_COMPLEX64:
        return 8;
    case UG_DTYPE_FLOAT32:
    case UG_DTYPE_INT32:
    case UG_DTYPE_UINT32:
        return 4;
    case UG_DTYPE_FLOAT16:
    case UG_DTYPE_BFLOAT16:
    case UG_DTYPE_INT16:
    case UG_DTYPE_UINT16:
        return 2;
    case UG_DTYPE_INT8:
    case UG_DTYPE_UINT8:
    case UG_DTYPE_BOOL:
    case UG_DTYPE_FLOAT8_E4M3:
    case UG_DTYPE_FLOAT8_E5M2:
        return 1;
    case UG_DTYPE_NONE:
        break;
    }
    return 0;
}

static inline uint64_t ug_impl_product(uint64_t a, uint64_t b)
{
    uint64_t product;

    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

static inline uintptr_t ug_impl_self(void)
{
    return (uintptr_t)pthread_self();
}

static inline void ug_impl_count(uint64_t *counter)
{
    __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
}

/* Copies a name, zero-padded; a cut one is counted. */
static __attribute__((noinline, unused)) void ug_impl_copy_name(
        struct ug_step_state *s, char *to, const char *from)
{
    size_t i = 0;

    for (; from != NULL && from[i] != '\0'; i++) {
        if (i == UG_STEP_NAME_BYTES - 1) {
            ug_impl_count(&s->slot->truncated_count);
            break;
        }
        to[i] = from[i];
    }
    memset(to + i, 0, UG_STEP_NAME_BYTES - i);
}

/* Whoever puts a record, in `putting`. Bit 1 is for "given up". */
static inline uint32_t ug_impl_put_token(void)
{
    return (uint32_t)(ug_impl_self() >> 4) << 2 | 1u;
}

/* The ring of records for as long as one record takes. False: this thread has it itself, and this
 * is a signal handler; or whoever has it does not get on. A thread that lost its CPU on a busy
 * machine comes back, so it is waited for; after one that did not, the next ones only yield until
 * it does. */
static UG_IMPL_COLD bool ug_impl_put_wait(struct ug_step_state *s)
{
    const struct timespec nap = {0, 50000};
    uint32_t mine = ug_impl_put_token(), holder = 0;

    for (int tries = 0; tries < UG_IMPL_PUT_YIELDS + UG_IMPL_PUT_NAPS; tries++) {
        holder = 0;
        if (__atomic_compare_exchange_n(
                    &s->putting, &holder, mine, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
            return true;
        }
        if ((holder & ~2u) == mine || (tries >= UG_IMPL_PUT_YIELDS && (holder & 2u))) {
            break;
        }
        if (tries < UG_IMPL_PUT_YIELDS) {
            sched_yield();
        } else {
            int saved_errno = errno;

            nanosleep(&nap, NULL);
            errno = saved_errno;
        }
    }
    /* Fails where it has gone on. */
    (void)__atomic_compare_exchange_n(
            &s->putting, &holder, holder | 2u, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    ug_impl_count(&s->slot->dropped_count);
    return false;
}

static inline bool ug_impl_put_begin(struct ug_step_state *s)
{
    uint32_t nobody = 0;

    return __builtin_expect(__atomic_compare_exchange_n(&s->putting, &nobody, ug_impl_put_token(),
                                    false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED),
                   1) ||
            ug_impl_put_wait(s);
}

static inline void ug_impl_put_end(struct ug_step_state *s)
{
    __atomic_store_n(&s->putting, 0, __ATOMIC_RELEASE);
}

static inline void ug_impl_put(struct ug_step_state *s, uint32_t kind, uint64_t begin_ns,
        uint64_t end_ns, double value, const char *name)
{
    struct ug_step_record *record;

    if (__builtin_expect(!ug_impl_put_begin(s), 0)) {
        return;
    }
    if (s->head - s->tail > s->record_mask) {
        s->tail = __atomic_load_n(&s->slot->tail, __ATOMIC_ACQUIRE);
        if (s->head - s->tail > s->record_mask) {
            ug_impl_count(&s->slot->dropped_count);
            ug_impl_put_end(s);
            return;
        }
    }
    record = &s->records[s->head & s->record_mask];
    record->kind = kind;
    record->step = kind == UG_RECORD_REQUEST ? 0 : s->step;
    record->begin_ns = begin_ns;
    record->end_ns = end_ns;
    record->sched_ns = kind == UG_RECORD_STEP ? s->sched_ns : 0;
    record->value = value;
    if (name == NULL) {
        memset(record->name, 0, UG_STEP_NAME_BYTES);
    } else {
        ug_impl_copy_name(s, record->name, name);
    }
    __atomic_store_n(&s->slot->head, ++s->head, __ATOMIC_RELEASE);
    ug_impl_put_end(s);
}

/* The state, owned by this thread with no step open before; else NULL, and the call is counted. */
static inline struct ug_step_state *ug_impl_enter(void)
{
    struct ug_step_state *s = &ug_step_state_v2;
    uintptr_t none = 0;

    if (__builtin_expect(__atomic_load_n(&s->status, __ATOMIC_ACQUIRE) != UG_IMPL_ATTACHED, 0)) {
        ug_impl_attach(s);
        if (__atomic_load_n(&s->status, __ATOMIC_ACQUIRE) != UG_IMPL_ATTACHED) {
            return NULL;
        }
    }
    if (!__atomic_compare_exchange_n(
                &s->owner, &none, ug_impl_self(), false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
        if (none == ug_impl_self() && s->in_step) {
            s->nested++;
        }
        ug_impl_count(&s->slot->misplaced_count);
        return NULL;
    }
    s->in_step = 1;
    return s;
}

/* The state when this thread has a step open; else NULL, and the call is counted. */
static inline struct ug_step_state *ug_impl_inside(void)
{
    struct ug_step_state *s = &ug_step_state_v2;

    if (__atomic_load_n(&s->status, __ATOMIC_ACQUIRE) != UG_IMPL_ATTACHED) {
        return NULL;
    }
    if (__atomic_load_n(&s->owner, __ATOMIC_RELAXED) != ug_impl_self() || !s->in_step) {
        ug_impl_count(&s->slot->misplaced_count);
        return NULL;
    }
    return s;
}

static inline bool ug_impl_leave_nested(struct ug_step_state *s)
{
    if (s->nested > 0) {
        s->nested--;
        return true;
    }
    return false;
}

static inline bool ug_impl_gate_closed(const struct ug_step_state *s, uint32_t step)
{
    uint32_t granted = __atomic_load_n(&s->slot->granted, __ATOMIC_ACQUIRE);

    return granted != UG_STEP_RUN_FREE && (int32_t)(step - granted) >= 0;
}

static inline void ug_impl_phase_begin(struct ug_step_state *s, const char *name)
{
    if (s->phases < UG_STEP_PHASE_DEPTH_MAX) {
        struct ug_impl_phase *phase = &s->phase[s->phases];

        ug_impl_copy_name(s, phase->name, name);
        phase->begin_ns = ug_impl_now_ns();
    } else {
        ug_impl_count(&s->slot->truncated_count);
    }
    s->phases++;
}

static inline void ug_impl_phase_close(struct ug_step_state *s, uint64_t end_ns)
{
    s->phases--;
    if (s->phases < UG_STEP_PHASE_DEPTH_MAX) {
        const struct ug_impl_phase *phase = &s->phase[s->phases];

        ug_impl_put(s, UG_RECORD_PHASE, phase->begin_ns, end_ns, (double)s->phases, phase->name);
    }
}

static inline void ug_impl_phase_end(struct ug_step_state *s)
{
    if (s->phases > 0) {
        ug_impl_phase_close(s, ug_impl_now_ns());
    } else {
        ug_impl_count(&s->slot->misplaced_count);
    }
}

/* The positive control: works on for a share of the step's length, so that whoever measures steps,
 * blocks of them or the process finds it slower by that share. Busy, as a slower step would be.
 * What is to arrive next arrives later by the same time: a request waits for its own service only.
 */
static UG_IMPL_COLD uint64_t ug_impl_control(struct ug_step_state *s, uint64_t end_ns, uint32_t ppm)
{
    uint64_t more_ns = (uint64_t)((double)(end_ns - s->begin_ns) * 1e-6 * ppm), now_ns = end_ns;
    uint64_t cpu_ns = ug_impl_cpu_ns();

    while (now_ns < end_ns + more_ns) {
        now_ns = ug_impl_now_ns();
    }
    cpu_ns = ug_impl_cpu_ns() - cpu_ns;
    __atomic_fetch_add(&s->slot->control_wait_ns, now_ns - end_ns, __ATOMIC_RELAXED);
    __atomic_fetch_add(&s->slot->control_cpu_ns, cpu_ns, __ATOMIC_RELAXED);
    if (s->arrival_ns != 0) {
        s->arrival_ns += now_ns - end_ns;
    }
    return now_ns;
}

static inline void ug_impl_finish(struct ug_step_state *s, double samples)
{
    uint64_t end_ns;
    uint32_t control_ppm = s->header->control_ppm;

    if (s->sync != NULL && ug_impl_gate_closed(s, s->step + 1) && !s->orphan) {
        s->sync(s->sync_arg);
    }
    end_ns = ug_impl_now_ns();
    if (__builtin_expect(control_ppm != 0, 0) && !s->orphan) {
        end_ns = ug_impl_control(s, end_ns, control_ppm);
    }
    while (s->phases > 0) {
        ug_impl_phase_close(s, end_ns);
    }
    ug_impl_put(s, UG_RECORD_STEP, s->begin_ns, end_ns, samples, NULL);
    s->step++;
    __atomic_store_n(&s->slot->steps, s->step, __ATOMIC_RELEASE);
    s->in_step = 0;
    __atomic_store_n(&s->owner, 0, __ATOMIC_RELEASE);
}

/* fstat() of glibc 2.33 and later is a new symbol: by number, one binary also runs in older images.
 */
static UG_IMPL_COLD int ug_impl_fstat(int fd, struct stat *ret_status)
{
    return (int)syscall(SYS_fstat, fd, ret_status);
}

/* ---- rings of bytes; notes and texts outside a step ---- */

/* Takes memory for the byte ring up to end bytes of it, so that a full /dev/shm is a dropped record
 * and not a SIGBUS. Only in the first lap of the ring. */
static UG_IMPL_COLD bool ug_impl_reserve(struct ug_step_state *s, uint64_t end)
{
    struct stat status;
    bool ok = false;
    int saved_errno = errno;
    uint64_t want;
    int fd;

    want = (end + UG_IMPL_RESERVE_BYTES - 1) & ~(uint64_t)(UG_IMPL_RESERVE_BYTES - 1);
    if (want > s->byte_size) {
        want = s->byte_size;
    }
    fd = open(s->path, O_RDWR | O_CLOEXEC);
    if (fd >= 0) {
        if (ug_impl_fstat(fd, &status) == 0 && status.st_dev == s->file_device &&
                status.st_ino == s->file_inode) {
            int rc = EINTR;

            for (int tries = 0; rc == EINTR && tries < 100; tries++) {
                rc = posix_fallocate(fd, (off_t)(s->byte_offset + s->byte_reserved),
                        (off_t)(want - s->byte_reserved));
            }
            ok = rc == 0;
        }
        close(fd);
    }
    if (ok) {
        s->byte_reserved = want;
    }
    errno = saved_errno;
    return ok;
}

static UG_IMPL_COLD void ug_impl_put_bytes(struct ug_step_state *s, uint32_t kind, const char *name,
        uint32_t dtype, uint64_t count, const void *payload, uint64_t payload_bytes)
{
    struct ug_step_bytes head;
    uint64_t name_pad, need, offset, end;
    unsigned char *to;

    memset(&head, 0, sizeof(head));
    head.kind = kind;
    head.step = s->step;
    head.dtype = dtype;
    head.count = count;
    head.payload_bytes = payload_bytes;
    while (name != NULL && name[head.name_bytes] != '\0') {
        if (++head.name_bytes > UG_STEP_BYTE_NAME_MAX) {
            head.name_bytes = UG_STEP_BYTE_NAME_MAX;
            ug_impl_count(&s->slot->truncated_count);
            break;
        }
    }
    name_pad = (head.name_bytes + 7u) & ~7u;
    if (payload_bytes > s->byte_size || (payload == NULL && payload_bytes > 0)) {
        ug_impl_count(&s->slot->byte_dropped_count);
        return;
    }
    need = sizeof(head) + name_pad + ((payload_bytes + 7) & ~(uint64_t)7);
    if (s->byte_head + need - s->byte_tail > s->byte_size) {
        s->byte_tail = __atomic_load_n(&s->slot->byte_tail, __ATOMIC_ACQUIRE);
    }
    offset = s->byte_head & (s->byte_size - 1);
    end = offset + need > s->byte_size ? s->byte_size : offset + need;
    if (s->byte_head + need - s->byte_tail > s->byte_size ||
            (end > s->byte_reserved && !ug_impl_reserve(s, end))) {
        ug_impl_count(&s->slot->byte_dropped_count);
        return;
    }
    to = s->bytes + offset;
    memcpy(to, &head, sizeof(head));
    if (head.name_bytes > 0) {
        memset(to + sizeof(head) + name_pad - 8, 0, 8);
        memcpy(to + sizeof(head), name, head.name_bytes);
    }
    if (payload_bytes > 0) {
        memcpy(to + sizeof(head) + name_pad, payload, payload_bytes);
    }
    s->byte_head += need;
    ug_impl_count(&s->slot->byte_kept_count);
    __atomic_store_n(&s->slot->byte_head, s->byte_head, __ATOMIC_RELEASE);
}

/* The rings for one call, inside or outside a step. */
static inline struct ug_step_state *ug_impl_borrow(int *ret_borrowed)
{
    struct ug_step_state *s = &ug_step_state_v2;

    *ret_borrowed = 0;
    if (__atomic_load_n(&s->status, __ATOMIC_ACQUIRE) == UG_IMPL_ATTACHED &&
            __atomic_load_n(&s->owner, __ATOMIC_RELAXED) == ug_impl_self()) {
        return s;
    }
    s = ug_impl_enter();
    if (s != NULL) {
        s->in_step = 0;
        *ret_borrowed = 1;
    }
    return s;
}

static inline void ug_impl_return(struct ug_step_state *s, int borrowed)
{
    if (borrowed) {
        __atomic_store_n(&s->owner, 0, __ATOMIC_RELEASE);
    }
}

#endif
