/*
 * Part of the writer's side of the step protocol: the gate, and the schedule of an open loop. Not
 * to be included alone; upgate_step.h is the way in. Sleeps here, never on the step path.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef UPGATE_CONTRACTS_STEP_GATE_H
#define UPGATE_CONTRACTS_STEP_GATE_H

#include "contracts/step_writer.h"

static inline long ug_impl_futex(
        uint32_t *word, int op, uint32_t value, const struct timespec *timeout)
{
    return syscall(SYS_futex, word, op, value, timeout, NULL, 0);
}

/* Tells the harness that something changed; a system call only if it sleeps. */
static inline void ug_impl_notify(struct ug_step_header *header)
{
    __atomic_fetch_add(&header->event, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&header->waiting, __ATOMIC_SEQ_CST) != 0) {
        ug_impl_futex(&header->event, FUTEX_WAKE, 1, NULL);
    }
}

/* 8 random bytes that the kernel gives every exec'ed image: tells exec from a second copy of us. */
static inline uint64_t ug_impl_image(void)
{
    uint64_t image = 0;
    const void *random_bytes = (const void *)(uintptr_t)getauxval(AT_RANDOM);

    if (random_bytes != NULL) {
        memcpy(&image, random_bytes, sizeof(image));
    }
    return image;
}

/* The harness keeps a POSIX lock on the first byte of the file for as long as it lives: the kernel
 * drops it at its death, and the answer holds across pid namespaces and reused pids. */
static UG_IMPL_COLD bool ug_impl_harness_alive(const struct ug_step_state *s)
{
    struct flock lock;
    struct stat status;
    bool alive = false;
    int fd;

    if (s->header->harness_pid == (uint32_t)getpid() &&
            s->header->harness_image == ug_impl_image()) {
        return true; /* a process sees no locks of its own */
    }
    fd = open(s->path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    memset(&lock, 0, sizeof(lock));
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    lock.l_len = 1;
    if (ug_impl_fstat(fd, &status) == 0 && status.st_dev == s->file_device &&
            status.st_ino == s->file_inode && syscall(SYS_fcntl, fd, F_GETLK, &lock) == 0) {
        alive = lock.l_type != F_UNLCK;
    }
    close(fd);
    return alive;
}

/* Publishes that we stand at the gate. False: no need to wait. */
static UG_IMPL_COLD bool ug_impl_hold_begin(struct ug_step_state *s)
{
    uint32_t bits;

    if (s->orphan) {
        return false;
    }
    s->in_step = 0;
    s->hold_begin_ns = ug_impl_now_ns();
    __atomic_store_n(&s->slot->hold_begin_ns, s->hold_begin_ns, __ATOMIC_RELAXED);
    __atomic_store_n(&s->slot->hold_tid, (uint32_t)syscall(SYS_gettid), __ATOMIC_RELAXED);
    bits = __atomic_exchange_n(&s->slot->request, 0, __ATOMIC_ACQ_REL);
    if (bits != 0 && s->report != NULL) {
        s->report(bits, s->report_arg);
    }
    __atomic_fetch_add(&s->slot->hold_count, 1, __ATOMIC_RELAXED);
    __atomic_store_n(&s->slot->state, UG_SLOT_HELD, __ATOMIC_SEQ_CST);
    ug_impl_notify(s->header);
    return true;
}

/* Waits until the gate opens, a signal arrives or a second passed. True: go on, the gate is open.
 */
static UG_IMPL_COLD bool ug_impl_hold_wait(struct ug_step_state *s)
{
    struct timespec timeout = {(time_t)(UG_IMPL_ALIVE_CHECK_NS / 1000000000ull), 0};
    uint32_t granted = __atomic_load_n(&s->slot->granted, __ATOMIC_ACQUIRE);
    int saved_errno = errno;

    if (ug_impl_gate_closed(s, s->step) && !s->orphan) {
        long rc = ug_impl_futex(&s->slot->granted, FUTEX_WAIT, granted, &timeout);

        if (rc < 0 && errno == ETIMEDOUT && !ug_impl_harness_alive(s)) {
            s->orphan = 1;
        }
    }
    errno = saved_errno;
    return s->orphan || !ug_impl_gate_closed(s, s->step);
}

static UG_IMPL_COLD void ug_impl_hold_end(struct ug_step_state *s)
{
    uint64_t end_ns;

    __atomic_store_n(&s->slot->state, UG_SLOT_RUNNING, __ATOMIC_RELEASE);
    end_ns = ug_impl_now_ns();
    ug_impl_put(s, UG_RECORD_HOLD, s->hold_begin_ns, end_ns, 0, NULL);
    if (s->arrival_ns != 0) {
        s->arrival_ns += end_ns - s->hold_begin_ns;
    }
    s->in_step = 1;
    s->nested = 0;
}

/* Gives up the step that is open, or that waits at the gate: it never was. */
static UG_IMPL_COLD void ug_impl_abandon(struct ug_step_state *s)
{
    __atomic_store_n(&s->slot->state, UG_SLOT_RUNNING, __ATOMIC_RELEASE);
    s->in_step = 0;
    s->nested = 0;
    s->phases = 0;
    __atomic_store_n(&s->owner, 0, __ATOMIC_RELEASE);
}

static UG_IMPL_COLD void ug_impl_hold(struct ug_step_state *s)
{
    if (ug_impl_hold_begin(s)) {
        while (!ug_impl_hold_wait(s)) {
        }
        ug_impl_hold_end(s);
    }
}

/* ---- open loop ---- */

static inline uint64_t ug_impl_random(uint64_t state[4])
{
    /* xoshiro256** of Blackman and Vigna (public domain algorithm) */
    uint64_t x = state[1] * 5, result = ((x << 7) | (x >> 57)) * 9, t = state[1] << 17;

    state[2] ^= state[0];
    state[3] ^= state[1];
    state[1] ^= state[2];
    state[0] ^= state[3];
    state[2] ^= t;
    state[3] = (state[3] << 45) | (state[3] >> 19);
    return result;
}

static inline double ug_impl_uniform(uint64_t state[4])
{
    return (double)(ug_impl_random(state) >> 11) * (1.0 / 9007199254740992.0);
}

/* Exponential with mean 1 by von Neumann's comparisons: no log(), so that two C libraries, or two
 * compilers, draw the same schedule to the bit. */
static inline double ug_impl_exponential(uint64_t state[4])
{
    for (double whole = 0;; whole += 1) {
        double first = ug_impl_uniform(state), last = first;
        unsigned run = 1;

        for (;;) {
            double next = ug_impl_uniform(state);

            if (next >= last) {
                break;
            }
            last = next;
            run++;
        }
        if (run % 2 == 1) {
            return whole + first;
        }
    }
}

static inline void ug_impl_schedule(struct ug_step_state *s, double rate_per_s, uint64_t seed)
{
    for (int i = 0; i < 4; i++) {
        uint64_t z = (seed += 0x9e3779b97f4a7c15ull); /* splitmix64 */

        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
        s->rng[i] = z ^ (z >> 31);
    }
    s->gap_ns = rate_per_s >= 1e-6 && rate_per_s <= 1e9 ? 1e9 / rate_per_s : 0;
    s->arrival_ns = 0;
}

/* The next arrival, or 0 in a closed loop. */
static inline uint64_t ug_impl_next_arrival(struct ug_step_state *s)
{
    if (!(s->gap_ns > 0)) {
        return 0;
    }
    if (s->arrival_ns == 0) {
        s->arrival_ns = ug_impl_now_ns();
    }
    s->arrival_ns += (uint64_t)(ug_impl_exponential(s->rng) * s->gap_ns);
    return s->arrival_ns;
}

/* Sleeps and spins until the arrival; false when a signal came first. */
static inline bool ug_impl_await(uint64_t arrival_ns)
{
    uint64_t now_ns = ug_impl_now_ns();

    if (now_ns + UG_IMPL_ARRIVAL_SPIN_NS < arrival_ns) {
        uint64_t until_ns = arrival_ns - UG_IMPL_ARRIVAL_SPIN_NS;
        struct timespec until = {
                (time_t)(until_ns / 1000000000ull), (long)(until_ns % 1000000000ull)};

        if (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR) {
            return false;
        }
    }
    while (ug_impl_now_ns() < arrival_ns) {
    }
    return true;
}

static inline void ug_impl_arrive(struct ug_step_state *s)
{
    uint64_t arrival_ns = ug_impl_next_arrival(s);

    while (arrival_ns != 0 && !ug_impl_await(arrival_ns)) {
    }
    s->begin_ns = ug_impl_now_ns();
    s->sched_ns = arrival_ns != 0 ? arrival_ns : s->begin_ns;
}

#endif
