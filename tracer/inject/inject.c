// SPDX-License-Identifier: Apache-2.0
// InitializeInjection, which the driver calls in cuInit; the control thread, which does as the
// recorder asks through the spool's header; and the manners: fork, exit, freezing, an absent
// recorder. Dormant, it is one thread asleep on a futex and one page of memory.
#include "tracer/inject/inject.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "contracts/inject_api.h"
#include "tracer/inject/cupti/cupti_load.h"
#include "tracer/inject/cupti/nvtx.h"
#include "tracer/inject/nccl/nccl.h"
#include "tracer/inject/python_start.h"
#include "tracer/inject/session.h"
#include "tracer/inject/spool/spool_writer.h"
#include "tracer/inject/tuning.h"

#define TICK_NS 100000000ull
#define DORMANT_NS 600000000000ull
// While it is dormant again, until the spool has no memory: once a second, for a reader takes its
// time; the last time also of what nobody has read.
#define GIVE_BACK_NS 1000000000ull
#define GIVE_BACKS 12u
#define EXIT_WAIT_NS 2000000000ull
#define EXIT_CLOSE_NS 200000000ull
#define EXIT_SLICE_NS 5000000ull
#define STACK_BYTES \
    (1u << 20) // CUPTI's flush and the static TLS of a PyTorch process both come out of it

// Called by libcuda through CUDA_INJECTION64_PATH. 1: go on, which is the only answer we ever give.
UG_EXPORT int InitializeInjection(void);
UG_EXPORT const struct ug_inject_api *upgate_inject_api(uint32_t version);

enum life { LIFE_UNBORN, LIFE_RUNNING, LIFE_EXITING, LIFE_GONE };

static struct {
    _Atomic uint32_t life; // enum life; GONE: a forked child
    _Atomic uint32_t kinds;
    _Atomic bool is_obeying;
    _Atomic uint32_t is_finished; // the control thread has flushed for the exit; a futex
    _Atomic(void (*)(uint32_t correlation)) launched;
    uint64_t unseen_ns; // time the control thread was awake without a new heartbeat
    uint64_t heartbeat_ns;
    uint64_t ticked_ns;
    uint64_t give_back_due_ns;
    uint32_t give_backs; // still to come
    pid_t pid;           // whose spool it is
    bool is_debug, is_asked_at_start;
} inject;

__thread uint32_t inject_correlation;

uint64_t inject_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

int inject_futex_wait(const uint32_t *word, uint32_t value, uint64_t timeout_ns, bool shared)
{
    struct timespec timeout = {.tv_sec = (time_t)(timeout_ns / 1000000000ull),
            .tv_nsec = (long)(timeout_ns % 1000000000ull)};
    int operation = shared ? FUTEX_WAIT : FUTEX_WAIT_PRIVATE;
    long result = syscall(
            SYS_futex, word, operation, value, timeout_ns == UINT64_MAX ? NULL : &timeout, NULL, 0);
    return result == 0 ? 0 : -errno;
}

void inject_futex_wake(const uint32_t *word, bool shared)
{
    syscall(SYS_futex, word, shared ? FUTEX_WAKE : FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

void inject_debug(const char *format, ...)
{
    char line[512];
    va_list arguments;
    if (!inject.is_debug)
        return;
    int head = snprintf(line, sizeof(line), "upgate inject %d: ", (int)getpid());
    va_start(arguments, format);
    int bytes = head + vsnprintf(line + head, sizeof(line) - (size_t)head - 1, format, arguments);
    va_end(arguments);
    if (bytes > (int)sizeof(line) - 2)
        bytes = (int)sizeof(line) - 2;
    line[bytes++] = '\n';
    if (write(STDERR_FILENO, line, (size_t)bytes) < 0)
        inject.is_debug = false;
}

bool inject_alive(void)
{
    uint32_t life = atomic_load_explicit(&inject.life, memory_order_relaxed);
    return life == LIFE_RUNNING || life == LIFE_EXITING;
}

bool inject_exiting(void)
{
    return atomic_load_explicit(&inject.life, memory_order_relaxed) == LIFE_EXITING;
}

uint32_t inject_kinds(void)
{
    return atomic_load_explicit(&inject.kinds, memory_order_relaxed);
}

void inject_kinds_set(uint32_t kinds)
{
    if (atomic_exchange(&inject.kinds, kinds) != kinds)
        python_kinds_changed(kinds);
}

void inject_wake(void)
{
    struct ug_spool_header *header = spool_header();
    if (header != NULL)
        inject_futex_wake(&header->generation, true);
}

void inject_launched(uint32_t correlation)
{
    void (*launched)(uint32_t correlation) =
            atomic_load_explicit(&inject.launched, memory_order_acquire);
    if (launched != NULL)
        launched(correlation);
}

int inject_thread(void *(*run)(void *), const char *name, uint64_t stack_bytes)
{
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all, before;
    int err = pthread_attr_init(&attributes);
    if (err != 0)
        return err;
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, stack_bytes);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    err = pthread_create(&thread, &attributes, run, NULL);
    if (err == EINVAL) { // the process's static TLS does not fit into so small a stack
        pthread_attr_setstacksize(&attributes, 8u << 20);
        err = pthread_create(&thread, &attributes, run, NULL);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    if (err == 0)
        pthread_setname_np(thread, name);
    return err;
}

// --- the control thread --------------------------------------------------------------------------

// A recorder that has not beaten for UG_SPOOL_STALE_NS of our own time awake is gone. Time that the
// whole process was frozen
// (`upgate ab` freezes the side that waits) does not count: a nap that took far longer than asked
// is none.
static bool is_recorder_gone(const struct ug_spool_header *header, uint64_t now_ns)
{
    uint64_t heartbeat_ns = __atomic_load_n(&header->heartbeat_ns, __ATOMIC_RELAXED);
    uint64_t slept_ns = now_ns - inject.ticked_ns;
    inject.ticked_ns = now_ns;
    if (heartbeat_ns != inject.heartbeat_ns) {
        inject.heartbeat_ns = heartbeat_ns;
        inject.unseen_ns = 0;
        return false;
    }
    inject.unseen_ns += slept_ns < 10 * TICK_NS ? slept_ns : TICK_NS;
    return inject.unseen_ns >= (uint64_t)UG_SPOOL_STALE_NS;
}

static void heartbeat_restart(void)
{
    inject.unseen_ns = 0;
    inject.ticked_ns = inject_now_ns();
}

static void obey(struct ug_spool_header *header, uint32_t generation)
{
    uint32_t want = __atomic_load_n(&header->want_state, __ATOMIC_RELAXED);
    uint32_t kinds = __atomic_load_n(&header->want_kinds, __ATOMIC_RELAXED);
    if (want == UG_SPOOL_ACTIVE && kinds != 0) {
        bool was_on = session_is_on();
        session_start(kinds, false);
        heartbeat_restart();
        if (was_on &&
                generation > 1) // the first one reads what was written before it from the beginning
            python_restart();
    } else if (session_is_on()) {
        session_stop();
    } else {
        __atomic_store_n(&header->state, UG_SPOOL_DORMANT, __ATOMIC_RELEASE);
    }
    __atomic_store_n(&header->done_generation, generation, __ATOMIC_RELEASE);
    inject_futex_wake(&header->done_generation, true);
}

// How long to sleep: a tick while it is on.
static uint64_t give_back(const struct ug_spool_header *header, uint64_t now_ns)
{
    if (session_is_on()) {
        inject.give_backs = GIVE_BACKS;
        inject.give_back_due_ns = 0;
        return TICK_NS;
    }
    if (inject.give_backs > 0 && now_ns >= inject.give_back_due_ns) {
        bool has_reader_come = __atomic_load_n(&header->generation, __ATOMIC_RELAXED) != 0;
        if (inject.give_back_due_ns != 0) // else it has only just become dormant
            spool_give_back(--inject.give_backs == 0 && has_reader_come);
        inject.give_back_due_ns = now_ns + GIVE_BACK_NS;
    }
    return inject.give_backs > 0 ? GIVE_BACK_NS : DORMANT_NS;
}

static void finish(void)
{
    session_finish();
    atomic_store(&inject.is_finished, 1);
    inject_futex_wake((uint32_t *)&inject.is_finished, false);
}

static void *control_run(void *unused)
{
    struct ug_spool_header *header = spool_header();
    uint32_t seen = 0;
    (void)unused;
    heartbeat_restart();
    for (;;) {
        if (atomic_load(&inject.life) != LIFE_RUNNING) {
            finish();
            return NULL;
        }
        uint32_t generation = __atomic_load_n(&header->generation, __ATOMIC_ACQUIRE);
        if (generation != seen) {
            // before the look at `life`: an exit waits for us
            atomic_store(&inject.is_obeying, true);
            if (atomic_load(&inject.life) == LIFE_RUNNING)
                obey(header, generation);
            atomic_store(&inject.is_obeying, false);
            seen = generation;
            continue;
        }
        uint64_t now_ns = inject_now_ns();
        if (session_is_on() && is_recorder_gone(header, now_ns))
            session_stop();
        session_tick(now_ns);
        inject_futex_wait(&header->generation, generation, give_back(header, now_ns), true);
    }
}

// --- the life of the process ---------------------------------------------------------------------

// A program that was started to be recorded may be over before its recorder has found the spool,
// which goes with it.
static void heartbeat_await(const struct ug_spool_header *header)
{
    struct timespec nap = {.tv_nsec = 2000000};
    for (int i = 0; i < 150 && inject.is_asked_at_start &&
            __atomic_load_n(&header->heartbeat_ns, __ATOMIC_RELAXED) == 0;
            i++)
        nanosleep(&nap, NULL);
}

// Two seconds at most, and none when nothing is recorded or begun: CUPTI may already be half gone.
static void on_exit_of_process(void)
{
    uint32_t running = LIFE_RUNNING;
    struct ug_spool_header *header = spool_header();
    if (header == NULL || getpid() != inject.pid) // a child whose maker knew no handlers of fork
        return;
    if (!atomic_compare_exchange_strong(&inject.life, &running, LIFE_EXITING))
        return;
    python_stop();
    uint64_t end_ns = inject_now_ns() + EXIT_WAIT_NS;
    // Woken again and again: a wake-up between its look at `life` and its sleep is lost.
    while ((inject_kinds() != 0 || atomic_load(&inject.is_obeying)) &&
            atomic_load(&inject.is_finished) == 0 && inject_now_ns() < end_ns) {
        inject_wake();
        inject_futex_wait((uint32_t *)&inject.is_finished, 0, EXIT_SLICE_NS, false);
    }
    atomic_store(&inject.kinds, 0);
    // else nothing was ever recorded
    if (__atomic_load_n(&header->threads, __ATOMIC_RELAXED) != 0) {
        uint64_t close_ns = inject_now_ns() + EXIT_CLOSE_NS;
        spool_close(end_ns > close_ns ? end_ns : close_ns);
    }
    spool_flush_thread();
    heartbeat_await(header);
    __atomic_store_n(&header->state, UG_SPOOL_ENDED, __ATOMIC_RELEASE);
    inject_futex_wake(&header->done_generation, true);
}

// The child has no control thread, and the spool and CUPTI are its parent's.
static void on_fork_in_child(void)
{
    atomic_store(&inject.life, LIFE_GONE);
    atomic_store(&inject.kinds, 0);
    python_stop();
    nccl_forget();
    nvtx_child();
    spool_forget();
}

void inject_register_exit(void)
{
    atexit(on_exit_of_process); // does its work once
}

// enum ug_spool_want of UPGATE_TRACE: 0 when it is not set, 1 is short for the usual.
static uint32_t environment_kinds(void)
{
    const char *text = getenv("UPGATE_TRACE");
    if (text == NULL || text[0] == '\0')
        return 0;
    char *end = NULL;
    unsigned long kinds = strtoul(text, &end, 0);
    if (*end != '\0' || kinds > UINT32_MAX)
        return 0;
    return kinds == 1 ? UG_WANT_DEFAULT : (uint32_t)kinds;
}

// On stderr: who has no spool cannot say why in it.
static void tell_no_spool(int err)
{
    char line[256];
    int bytes = snprintf(line, sizeof(line),
            "upgate: the GPU side of process %d cannot be recorded: failed to make its "
            "shared memory: %s%s\n",
            (int)getpid(), strerror(-err),
            err == -EFBIG ? "; raise the limit of file sizes (ulimit -f)" : "");
    if (write(STDERR_FILENO, line, (size_t)bytes) < 0)
        return; // nobody can be told
}

// is_early: inside cuInit, where the driver may not be asked anything.
static int start(bool is_early)
{
    uint32_t unborn = LIFE_UNBORN;
    if (!atomic_compare_exchange_strong(&inject.life, &unborn, LIFE_RUNNING))
        return 0; // a second time: another loader, or a forked child that starts CUDA
    tuning_read();
    inject.is_debug = tuning()->is_debug;
    inject.pid = getpid();
    cupti_load_environment();
    python_environment();
    int err = spool_create();
    if (err != 0) {
        atomic_store(&inject.life, LIFE_GONE);
        tell_no_spool(err);
        return -1;
    }
    pthread_atfork(NULL, NULL, on_fork_in_child);
    inject_register_exit();
    session_watch_steps();
    // Before the thread: the kernel that follows cuInit is in.
    uint32_t kinds = environment_kinds();
    inject.is_asked_at_start = kinds != 0;
    if (kinds != 0)
        session_start(kinds, is_early);
    if (inject_thread(control_run, "upgate-inject", STACK_BYTES) != 0) {
        session_stop();
        atomic_store(&inject.life, LIFE_GONE);
        return -1;
    }
    return 0;
}

int inject_start(void)
{
    return start(false);
}

int InitializeInjection(void)
{
    start(true);
    return 1;
}

// --- for others in the process -------------------------------------------------------------------

static uint32_t api_string(const char *text, size_t text_bytes)
{
    return inject_kinds() == 0 ? 0 : spool_string(text, text_bytes);
}

static int api_put(enum ug_spool_producer producer, const void *record)
{
    const struct ug_rec_head *head = record;
    uint32_t kinds = inject_kinds();
    if (kinds == 0 || head->bytes < sizeof(*head) || head->bytes % 8 != 0)
        return -1;
#ifdef UPGATE_INJECT_NOP
    kinds |= UG_WANT_NOTHING_KEPT;
#endif
    if ((kinds & UG_WANT_NOTHING_KEPT) != 0) {
        spool_count(producer);
        return 0;
    }
    struct ug_rec_head *copy = spool_reserve(producer, head->bytes);
    if (copy == NULL)
        return -1;
    memcpy(copy, head, head->bytes);
    if (copy->tid == 0)
        copy->tid = spool_tid();
    spool_publish(head->bytes);
    return 0;
}

static uint32_t api_correlation(void)
{
    return inject_correlation;
}

static void api_on_launch(void (*launched)(uint32_t correlation))
{
    atomic_store_explicit(&inject.launched, launched, memory_order_release);
}

const struct ug_inject_api *upgate_inject_api(uint32_t version)
{
    static const struct ug_inject_api api = {
            .version = UG_INJECT_API_VERSION,
            .bytes = sizeof(api),
            .kinds = inject_kinds,
            .string = api_string,
            .put = api_put,
            .listen = python_listen,
            .correlation = api_correlation,
            .on_launch = api_on_launch,
    };
    return version == UG_INJECT_API_VERSION ? &api : NULL;
}
