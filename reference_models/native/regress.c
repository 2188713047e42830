// SPDX-License-Identifier: Apache-2.0
// Planted regressions (regress.h). Each kind is a function of its own whose name says what it is,
// so that a profile of the workload reads like one of a real program.
#include "reference_models/native/regress.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "common/strings.h"

enum {
    REGRESS_COLD_STEPS = 3,         // not yet what a step takes later
    REGRESS_BUFFER_BYTES = 4 << 20, // more than a second-level cache
    REGRESS_UNIT_BYTES = 64 << 10,  // some microseconds
    REGRESS_PAGE_BYTES = 4096,
    REGRESS_LOG_BYTES = 4096,
    REGRESS_SLEEP_LEAST_NS = 60000 // shorter sleeps are mostly the timer's slack
};

struct regress {
    const struct plant *plant;
    struct pool *pool;
    double step_ns; // mean of a step without the plants; newer ones count more
    double owed_ns[PLANT_SHARE_COUNT];
    int64_t begin_ns, own_ns;
    uint64_t steps;
    unsigned char *buffer, *other, *pages;
    size_t at;
    volatile uint64_t sink;
    int log_fd, stat_fd;
    bool straggles, helped;
    pthread_t helper;
    pthread_mutex_t lock;
    sem_t go, taken;
    atomic_bool stop;
    int64_t hold_ns; // of the lock, or of the rival's work
};

static int64_t regress_now_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void regress_sleep(int64_t ns)
{
    struct timespec left = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    nanosleep(&left, NULL);
}

// --- one unit of each kind -----------------------------------------------------------------------

// Inlined, a profile would show the caller; the calls of libc must stay what they are.
#ifdef __clang__
#define REGRESS_APART __attribute__((noinline)) // it makes no clones
#else
#define REGRESS_APART __attribute__((noinline, noclone))
#endif
#define REGRESS_UNIT REGRESS_APART static void

REGRESS_UNIT regress_compute(struct regress *regress)
{
    uint64_t value = regress->sink;
    for (int i = 0; i < 4000; i++)
        value = (value ^ value >> 29) * 0x9e3779b97f4a7c15u + 1;
    regress->sink = value;
}

REGRESS_UNIT regress_fill(struct regress *regress)
{
    memset(regress->buffer + regress->at, (int)regress->steps, REGRESS_UNIT_BYTES);
    __asm__ volatile("" : : "r"(regress->buffer) : "memory");
}

REGRESS_UNIT regress_copy(struct regress *regress)
{
    memcpy(regress->buffer + regress->at, regress->other + regress->at, REGRESS_UNIT_BYTES);
    __asm__ volatile("" : : "r"(regress->buffer) : "memory");
}

// As an allocator does that gives its memory back after every step.
REGRESS_UNIT regress_fault(struct regress *regress)
{
    madvise(regress->pages, REGRESS_UNIT_BYTES, MADV_DONTNEED);
    for (size_t i = 0; i < REGRESS_UNIT_BYTES; i += REGRESS_PAGE_BYTES)
        regress->pages[i] = 1;
}

// As a library does that looks at its own memory use now and then.
REGRESS_UNIT regress_syscall(struct regress *regress)
{
    char text[256];
    for (int i = 0; i < 4; i++)
        if (pread(regress->stat_fd, text, sizeof text, 0) > 0)
            regress->sink += (unsigned char)text[0];
}

REGRESS_UNIT regress_fsync(struct regress *regress)
{
    if (pwrite(regress->log_fd, regress->buffer, REGRESS_LOG_BYTES, 0) == REGRESS_LOG_BYTES)
        fsync(regress->log_fd);
}

// --- somebody else in the process ----------------------------------------------------------------

static void *regress_holder(void *arg)
{
    struct regress *regress = arg;
    pthread_setname_np(pthread_self(), "plant-holder");
    while (sem_wait(&regress->go) == 0 && !atomic_load(&regress->stop)) {
        pthread_mutex_lock(&regress->lock);
        sem_post(&regress->taken);
        regress_sleep(regress->hold_ns);
        pthread_mutex_unlock(&regress->lock);
    }
    return NULL;
}

REGRESS_APART static uint64_t regress_rival_work(int64_t ns)
{
    uint64_t value = 1;
    for (int64_t end_ns = regress_now_ns(CLOCK_THREAD_CPUTIME_ID) + ns;
            regress_now_ns(CLOCK_THREAD_CPUTIME_ID) < end_ns;)
        for (int i = 0; i < 1000; i++)
            value = (value ^ value >> 29) * 0x9e3779b97f4a7c15u + 1;
    return value;
}

static void *regress_rival(void *arg)
{
    struct regress *regress = arg;
    pthread_setname_np(pthread_self(), "plant-rival");
    while (sem_wait(&regress->go) == 0 && !atomic_load(&regress->stop))
        regress->sink += regress_rival_work(regress->hold_ns);
    return NULL;
}

REGRESS_APART static void regress_wait_lock(struct regress *regress, double owed_ns)
{
    regress->hold_ns = (int64_t)owed_ns;
    sem_post(&regress->go);
    while (sem_wait(&regress->taken) && errno == EINTR)
        ;
    pthread_mutex_lock(&regress->lock);
    pthread_mutex_unlock(&regress->lock);
}

// --- the shares of a step ------------------------------------------------------------------------

// Repeats a unit until what is owed is paid. *ret_ns: what it took.
static void regress_repeat(
        struct regress *regress, enum plant_share kind, void (*unit)(struct regress *))
{
    double *owed_ns = &regress->owed_ns[kind],
           target_ns = regress->plant->share[kind] * regress->step_ns;
    if (target_ns <= 0)
        return;
    *owed_ns += target_ns;
    int64_t begin_ns = regress_now_ns(CLOCK_MONOTONIC), now_ns = begin_ns;
    for (; *owed_ns > (double)(now_ns - begin_ns); now_ns = regress_now_ns(CLOCK_MONOTONIC)) {
        unit(regress);
        regress->at = (regress->at + REGRESS_UNIT_BYTES) % REGRESS_BUFFER_BYTES;
    }
    regress->own_ns += now_ns - begin_ns;
    *owed_ns -= (double)(now_ns - begin_ns);
    // What a hiccup in a unit took is not saved for ever: it would hide the plant for many steps.
    if (*owed_ns < -10 * target_ns)
        *owed_ns = -10 * target_ns;
}

void regress_begin(struct regress *regress)
{
    if (!regress)
        return;
    regress->own_ns = 0;
    regress->begin_ns = regress_now_ns(CLOCK_MONOTONIC);
}

void regress_data(struct regress *regress)
{
    if (!regress)
        return;
    double *owed_ns = &regress->owed_ns[PLANT_SHARE_SLEEP];
    *owed_ns += regress->plant->share[PLANT_SHARE_SLEEP] * regress->step_ns;
    if (*owed_ns > REGRESS_SLEEP_LEAST_NS) {
        int64_t begin_ns = regress_now_ns(CLOCK_MONOTONIC);
        regress_sleep((int64_t)*owed_ns);
        int64_t took_ns = regress_now_ns(CLOCK_MONOTONIC) - begin_ns;
        regress->own_ns += took_ns;
        *owed_ns -= (double)took_ns;
    }
    if (regress->straggles)
        regress_repeat(regress, PLANT_SHARE_STRAGGLE, regress_compute);
}

void regress_forward(struct regress *regress)
{
    if (!regress)
        return;
    regress_repeat(regress, PLANT_SHARE_COMPUTE, regress_compute);
    regress_repeat(regress, PLANT_SHARE_FILL, regress_fill);
    regress_repeat(regress, PLANT_SHARE_COPY, regress_copy);
    regress_repeat(regress, PLANT_SHARE_FAULT, regress_fault);
    regress_repeat(regress, PLANT_SHARE_SYSCALL, regress_syscall);
    regress_repeat(regress, PLANT_SHARE_FSYNC, regress_fsync);
    double lock_ns = regress->plant->share[PLANT_SHARE_LOCK] * regress->step_ns;
    double rival_ns = regress->plant->share[PLANT_SHARE_RIVAL] * regress->step_ns;
    if (lock_ns > 0) {
        int64_t begin_ns = regress_now_ns(CLOCK_MONOTONIC);
        regress_wait_lock(regress, lock_ns);
        regress->own_ns += regress_now_ns(CLOCK_MONOTONIC) - begin_ns;
    } else if (rival_ns > 0) {
        regress->hold_ns = (int64_t)rival_ns;
        regress->own_ns += regress->hold_ns; // it has it from the one CPU that both may use
        sem_post(&regress->go);
    }
}

void regress_end(struct regress *regress)
{
    if (!regress)
        return;
    int64_t step_ns = regress_now_ns(CLOCK_MONOTONIC) - regress->begin_ns;
    pool_step(regress->pool, step_ns);
    double plain_ns = (double)(step_ns - regress->own_ns);
    if (++regress->steps <= REGRESS_COLD_STEPS || plain_ns <= 0)
        return;
    if (regress->step_ns > 0 && plain_ns > 2 * regress->step_ns)
        plain_ns = 2 * regress->step_ns; // it was disturbed
    regress->step_ns += (regress->step_ns > 0 ? 0.1 : 1) * (plain_ns - regress->step_ns);
}

// --- begin and end -------------------------------------------------------------------------------

static int regress_open(struct regress *regress, struct error *err)
{
    const struct plant *plant = regress->plant;
    if (plant->share[PLANT_SHARE_SYSCALL] > 0) {
        regress->stat_fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
        if (regress->stat_fd < 0)
            return error_set(err, -errno, "failed to open '/proc/self/statm': %s", strerror(errno));
    }
    if (plant->share[PLANT_SHARE_FSYNC] > 0) {
        // /var/tmp: on a disk where there is one, and /tmp often is memory.
        char *path = xstrdup("/var/tmp/upgate-plant-XXXXXX");
        regress->log_fd = mkostemp(path, O_CLOEXEC);
        int rc = regress->log_fd < 0 ? -errno : 0;
        if (rc == 0)
            unlink(path);
        free(path);
        if (rc)
            return error_set(err, rc, "failed to make a file in '/var/tmp': %s", strerror(-rc));
    }
    return 0;
}

static int regress_help(struct regress *regress, struct error *err)
{
    const struct plant *plant = regress->plant;
    bool lock = plant->share[PLANT_SHARE_LOCK] > 0;
    if (!lock && plant->share[PLANT_SHARE_RIVAL] <= 0)
        return 0;
    int rc = pthread_create(&regress->helper, NULL, lock ? regress_holder : regress_rival, regress);
    if (rc)
        return error_set(err, -rc, "failed to start the thread of a plant: %s", strerror(rc));
    regress->helped = true;
    return 0;
}

static unsigned char *regress_memory(void)
{
    void *memory = mmap(NULL, REGRESS_BUFFER_BYTES, PROT_READ | PROT_WRITE,
            MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

int regress_new(const struct plant *plant, struct pool *pool, bool last,
        struct regress **ret_regress, struct error *err)
{
    *ret_regress = NULL;
    bool any = plant->op_share > 0;
    for (size_t i = 0; i < PLANT_SHARE_COUNT; i++)
        any |= plant->share[i] > 0;
    if (!any)
        return 0;
    struct regress *regress = xcalloc(1, sizeof *regress);
    *regress = (struct regress){
            .plant = plant, .pool = pool, .straggles = last, .log_fd = -1, .stat_fd = -1};
    pthread_mutex_init(&regress->lock, NULL);
    sem_init(&regress->go, 0, 0);
    sem_init(&regress->taken, 0, 0);
    if (plant->op_share > 0)
        pool_set_op(pool, plant->op, plant->op_name, plant->op_share);
    regress->buffer = regress_memory();
    regress->other = regress_memory();
    regress->pages = regress_memory();
    int rc = regress->buffer && regress->other && regress->pages
            ? regress_open(regress, err)
            : error_set(err, -ENOMEM, "failed to plant: out of memory");
    if (rc == 0)
        madvise(regress->pages, REGRESS_BUFFER_BYTES, MADV_NOHUGEPAGE); // one fault a page
    if (rc == 0)
        rc = regress_help(regress, err);
    if (rc) {
        regress_free(regress);
        return rc;
    }
    *ret_regress = regress;
    return 0;
}

void regress_free(struct regress *regress)
{
    if (!regress)
        return;
    if (regress->helped) {
        atomic_store(&regress->stop, true);
        sem_post(&regress->go);
        pthread_join(regress->helper, NULL);
    }
    unsigned char *memory[] = {regress->buffer, regress->other, regress->pages};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        if (memory[i])
            munmap(memory[i], REGRESS_BUFFER_BYTES);
    if (regress->log_fd >= 0)
        close(regress->log_fd);
    if (regress->stat_fd >= 0)
        close(regress->stat_fd);
    pthread_mutex_destroy(&regress->lock);
    sem_destroy(&regress->go);
    sem_destroy(&regress->taken);
    free(regress);
}
