// SPDX-License-Identifier: Apache-2.0
// Threads that wait at a futex between pieces of work. Two words carry everything: `round` is
// raised by the caller when there is work, `pending` is counted down by the workers when theirs is
// done. A wait spins for some microseconds before it sleeps, as work comes in bursts within a step.
#include "reference_models/native/pool.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define POOL_SPINS 300 // about 10 us with the pause of recent cores
#define POOL_GOLDEN 0.6180339887498949
#define POOL_KINDS_MAX 128 // a power of two; the models have about 35

struct pool_worker {
    struct pool *pool;
    size_t idx;
    pthread_t thread;
};

// What is owed in repeats of one kind of work.
struct pool_kind {
    pool_fn fn;
    double debt;
};

// What pool_set_op() asked for. Means are over steps, newer ones count more.
struct pool_planted {
    enum pool_op op;
    const char *name;           // NULL: nothing
    double share, extra;        // of a step; of the kind's work, found from it
    double plain_ns, repeat_ns; // of the kind in this step
    double step_ns, kind_ns;    // means of a step without what was planted, and of the kind in it
    uint64_t steps;
};

struct pool {
    size_t threads;
    struct pool_worker *workers; // threads - 1 of them
    size_t started;
    bool stop;
    const struct pool_work *work; // valid while a round runs
    size_t repeat;                // items each thread repeats in this round
    double offset;                // where in its part it starts to, 0..1
    double extra;                 // share of work to repeat
    struct pool_planted planted;
    struct pool_kind kinds[POOL_KINDS_MAX]; // hashed by fn
    _Alignas(64) atomic_uint round;
    _Alignas(64) atomic_uint pending;
};

static void pool_futex_wait(atomic_uint *word, unsigned int value)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void pool_futex_wake(atomic_uint *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static void pool_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void pool_part(const struct pool *pool, size_t idx, size_t *ret_begin, size_t *ret_end)
{
    const struct pool_work *work = pool->work;
    size_t grain = work->grain ? work->grain : 1;
    size_t grains = (work->count + grain - 1) / grain;
    size_t begin = grains * idx / pool->threads * grain;
    size_t end = grains * (idx + 1) / pool->threads * grain;
    *ret_begin = begin < work->count ? begin : work->count;
    *ret_end = end < work->count ? end : work->count;
}

// The share of one thread, then the repeats. They start at a place that wanders from call to call,
// so that dear and cheap items of one call get their turns alike.
static void pool_run_part(const struct pool *pool, size_t idx)
{
    const struct pool_work *work = pool->work;
    size_t begin, end;
    pool_part(pool, idx, &begin, &end);
    if (begin == end)
        return;
    work->fn(work->arg, begin, end, false);
    size_t first = begin + (size_t)(pool->offset * (double)(end - begin));
    for (size_t left = pool->repeat; left > 0;) {
        size_t chunk = left < end - first ? left : end - first;
        work->fn(work->arg, first, first + chunk, true);
        left -= chunk;
        first = begin;
    }
}

static void *pool_worker_run(void *arg)
{
    const struct pool_worker *worker = arg;
    struct pool *pool = worker->pool;
    unsigned int seen = 0;
    for (;;) {
        for (int spin = 0; atomic_load_explicit(&pool->round, memory_order_acquire) == seen;
                spin++) {
            if (spin < POOL_SPINS)
                pool_relax();
            else
                pool_futex_wait(&pool->round, seen);
        }
        seen++;
        if (pool->stop)
            return NULL;
        pool_run_part(pool, worker->idx);
        if (atomic_fetch_sub_explicit(&pool->pending, 1, memory_order_acq_rel) == 1)
            pool_futex_wake(&pool->pending);
    }
}

static void pool_start_round(struct pool *pool)
{
    atomic_store_explicit(&pool->pending, (unsigned int)pool->started, memory_order_relaxed);
    atomic_fetch_add_explicit(&pool->round, 1, memory_order_release);
    pool_futex_wake(&pool->round);
}

int pool_new(size_t threads, struct pool **ret_pool, struct error *err)
{
    if (threads < 1 || threads > POOL_THREADS_MAX)
        return error_set(err, -EINVAL, "failed to start %zu threads: accepted are 1 to %d", threads,
                POOL_THREADS_MAX);
    struct pool *pool = aligned_alloc(64, sizeof *pool);
    struct pool_worker *workers = calloc(threads, sizeof *workers);
    if (!pool || !workers) {
        free(pool);
        free(workers);
        return error_set(err, -ENOMEM, "failed to start %zu threads: out of memory", threads);
    }
    memset(pool, 0, sizeof *pool);
    pool->threads = threads;
    pool->workers = workers;
    for (size_t i = 0; i + 1 < threads; i++) {
        workers[i] = (struct pool_worker){.pool = pool, .idx = i + 1};
        int rc = pthread_create(&workers[i].thread, NULL, pool_worker_run, &workers[i]);
        if (rc) {
            pool_free(pool);
            return error_set(err, -rc, "failed to start thread %zu of %zu: %s", i + 2, threads,
                    strerror(rc));
        }
        pool->started++;
    }
    *ret_pool = pool;
    return 0;
}

void pool_free(struct pool *pool)
{
    if (!pool)
        return;
    pool->stop = true;
    if (pool->started)
        pool_start_round(pool);
    for (size_t i = 0; i < pool->started; i++)
        pthread_join(pool->workers[i].thread, NULL);
    free(pool->workers);
    free(pool);
}

void pool_set_extra(struct pool *pool, double share)
{
    pool->extra = share;
}

static struct pool_kind *pool_find_kind(struct pool *pool, const struct pool_work *work)
{
    size_t place = (size_t)(((uintptr_t)work->fn * 0x9e3779b97f4a7c15u) >> 57);
    for (size_t probe = 0; probe < POOL_KINDS_MAX; probe++) {
        struct pool_kind *kind = &pool->kinds[(place + probe) % POOL_KINDS_MAX];
        if (kind->fn == work->fn)
            return kind;
        if (!kind->fn) {
            // The first debt is a part of an item, another for each kind: else all would fall due
            // in the same step, and late.
            kind->fn = work->fn;
            kind->debt = pool->offset * work->cost;
            return kind;
        }
    }
    return &pool->kinds[place]; // more kinds than places: two share one
}

// Items each thread repeats: what the debt pays for. In items of the fullest thread, because that
// one is the time of the call.
static void pool_charge(struct pool *pool, const struct pool_work *work, double extra)
{
    pool->repeat = 0;
    if (extra <= 0 || work->cost <= 0)
        return;
    pool->offset += POOL_GOLDEN;
    if (pool->offset >= 1)
        pool->offset -= 1;
    struct pool_kind *kind = pool_find_kind(pool, work);
    double items = (double)((work->count + pool->threads - 1) / pool->threads);
    kind->debt += extra * items * work->cost;
    pool->repeat = (size_t)(kind->debt / work->cost);
    kind->debt -= (double)pool->repeat * work->cost;
}

// --- one kind that is planted --------------------------------------------------------------------

void pool_set_op(struct pool *pool, enum pool_op op, const char *name, double share)
{
    pool->planted = (struct pool_planted){.op = op, .name = name, .share = share};
}

bool pool_adds(const struct pool *pool, const char *name)
{
    const struct pool_planted *planted = &pool->planted;
    return planted->name && planted->op == POOL_OP_ADDED && strcmp(planted->name, name) == 0;
}

static int64_t pool_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void pool_step(struct pool *pool, int64_t step_ns)
{
    enum { COLD_STEPS = 3 }; // caches and clocks are not yet what they will be
    const double newest = 0.1;
    struct pool_planted *planted = &pool->planted;
    if (!planted->name)
        return;
    double step = (double)step_ns - planted->repeat_ns, kind = planted->plain_ns;
    if (planted->op == POOL_OP_ADDED)
        step -= kind;
    planted->plain_ns = planted->repeat_ns = 0;
    if (++planted->steps <= COLD_STEPS || kind <= 0 || step <= 0)
        return;
    double share = planted->step_ns > 0 ? newest : 1;
    if (share < 1 && step > 2 * planted->step_ns)
        step = 2 * planted->step_ns; // it was disturbed
    if (share < 1 && kind > 2 * planted->kind_ns)
        kind = 2 * planted->kind_ns;
    planted->step_ns += share * (step - planted->step_ns);
    planted->kind_ns += share * (kind - planted->kind_ns);
    planted->extra = planted->share * planted->step_ns / planted->kind_ns;
    if (planted->op == POOL_OP_ADDED)
        planted->extra = planted->extra > 1 ? planted->extra - 1 : 0;
}

static void pool_run(struct pool *pool)
{
    if (pool->started == 0) {
        pool_run_part(pool, 0);
        return;
    }
    pool_start_round(pool);
    pool_run_part(pool, 0);
    unsigned int left;
    for (int spin = 0; (left = atomic_load_explicit(&pool->pending, memory_order_acquire));
            spin++) {
        if (spin < POOL_SPINS)
            pool_relax();
        else
            pool_futex_wait(&pool->pending, left);
    }
}

static void pool_for_planted(struct pool *pool, const struct pool_work *work)
{
    struct pool_planted *planted = &pool->planted;
    struct pool_work copy = *work;
    if (planted->op == POOL_OP_REPLACE && work->other)
        copy.fn = work->other;
    pool->work = &copy;
    pool_charge(pool, &copy, pool->extra + planted->extra);
    int64_t begin_ns = pool_now_ns();
    pool_run(pool);
    double took_ns = (double)(pool_now_ns() - begin_ns);
    double items = (double)((work->count + pool->threads - 1) / pool->threads);
    double plain_ns = took_ns * items / (items + (double)pool->repeat);
    planted->plain_ns += plain_ns;
    planted->repeat_ns += took_ns - plain_ns;
}

void pool_for(struct pool *pool, const struct pool_work *work)
{
    if (work->count == 0)
        return;
    if (pool->planted.name && work->name && strcmp(pool->planted.name, work->name) == 0) {
        pool_for_planted(pool, work);
        return;
    }
    pool->work = work;
    pool_charge(pool, work, pool->extra);
    pool_run(pool);
}
