// SPDX-License-Identifier: Apache-2.0
// Processes and threads of a plant. Every child dies with its parent (PR_SET_PDEATHSIG), has its
// name before anybody is told its pid, and looks at share->stop. Runs in the director and, after
// fork, in the children.
#include "reference_models/plants/plant.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/strings.h"

// 90 s: 3 GiB touched on a machine that is busy with other tests.
#define READY_MAX_NS (90 * 1000 * PLANT_MS)
// A page cache of the neighbour's own: 4 MiB, rewritten.
#define NEIGHBOUR_FILE_BYTES (4 << 20)

int64_t plant_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

void plant_sleep_ns(int64_t ns)
{
    struct timespec left = {ns / 1000000000, ns % 1000000000};
    while (ns > 0 && nanosleep(&left, &left) && errno == EINTR) {
    }
}

void plant_burn_ns(int64_t ns)
{
    struct timespec cpu;
    int64_t end = 0;
    for (;;) {
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu);
        int64_t used = cpu.tv_sec * INT64_C(1000000000) + cpu.tv_nsec;
        if (!end)
            end = used + ns;
        if (used >= end)
            return;
        for (volatile int i = 0; i < 2000; i = i + 1) {
        }
    }
}

void plant_pin(int cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)cpu, &set);
    sched_setaffinity(0, sizeof(set), &set); // of the caller only; without it the plant is weaker
}

bool plant_stopped(const struct plant *plant)
{
    return atomic_load(&plant->share->stop) != 0;
}

bool plant_due(void)
{
    static int64_t next_ns;
    int64_t now_ns = plant_now_ns();
    bool due = next_ns && now_ns >= next_ns;
    if (due || !next_ns)
        next_ns = now_ns + PLANT_DUE_NS;
    return due;
}

void plant_every(struct plant *plant, int64_t period_ns, plant_fn fn, void *arg)
{
    int64_t next = plant_now_ns();
    while (!plant_stopped(plant)) {
        fn(plant, arg);
        atomic_fetch_add(&plant->share->acts, 1);
        next += period_ns;
        int64_t left = next - plant_now_ns();
        if (left < 0)
            next -= left; // it took longer than the period: from now on again
        plant_sleep_ns(left);
    }
}

// In the new child: its name, its death with the parent, the signals of a program that just began.
static void child_settle(struct plant *plant, pid_t parent, const char *comm)
{
    close(plant->janitor_fd);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(0);
    prctl(PR_SET_NAME, comm);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    // The first line of stdout is the director's.
    dup2(STDERR_FILENO, STDOUT_FILENO);
}

int plant_helper(struct plant *plant, const char *comm, plant_fn fn, void *arg, pid_t *ret_pid,
        struct error *err)
{
    if (plant->child_count == PLANT_CHILDREN_MAX)
        return error_set(err, -E2BIG, "more than %d processes", PLANT_CHILDREN_MAX);
    int named[2];
    if (pipe2(named, O_CLOEXEC))
        return error_set(err, -errno, "failed to make a pipe: %s", strerror(errno));
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid < 0) {
        int rc = error_set(err, -errno, "failed to start %s: %s", comm, strerror(errno));
        close(named[0]);
        close(named[1]);
        return rc;
    }
    if (pid == 0) {
        child_settle(plant, parent, comm);
        close(named[0]);
        close(named[1]); // it has its name: the director may go on
        fn(plant, arg);
        _exit(0);
    }
    close(named[1]);
    char byte;
    while (read(named[0], &byte, 1) < 0 && errno == EINTR) {
    }
    close(named[0]);
    plant->children[plant->child_count++] = pid;
    if (ret_pid)
        *ret_pid = pid;
    return 0;
}

int plant_victim(struct plant *plant, const char *comm, plant_fn fn, void *arg, struct error *err)
{
    int rc = plant_helper(plant, comm, fn, arg, &plant->victim_pid, err);
    if (rc)
        return rc;
    int64_t deadline = plant_now_ns() + READY_MAX_NS;
    while (!atomic_load(&plant->share->ready)) {
        int status;
        if (waitpid(plant->victim_pid, &status, WNOHANG) == plant->victim_pid)
            return error_set(err, -ECHILD, "%s ended before its first step (status %#x)", comm,
                    (unsigned int)status);
        if (plant_now_ns() > deadline)
            return error_set(err, -ETIMEDOUT, "%s took no step in 90 s", comm);
        plant_sleep_ns(5 * PLANT_MS);
    }
    uint32_t told = atomic_load(&plant->share->culprit_pid);
    if (told)
        plant->culprits[plant->culprit_count++] = (pid_t)told;
    return 0;
}

int plant_culprit(struct plant *plant, const char *comm, plant_fn fn, void *arg, struct error *err)
{
    if (plant->innocent)
        return 0;
    pid_t pid;
    int rc = plant_helper(plant, comm, fn, arg, &pid, err);
    if (rc)
        return rc;
    plant->culprits[plant->culprit_count++] = pid;
    snprintf(plant->culprit_comm, sizeof(plant->culprit_comm), "%s", comm);
    return 0;
}

void plant_blame_self(struct plant *plant)
{
    atomic_store(&plant->share->culprit_pid, (uint32_t)getpid());
}

struct thread_start {
    struct plant *plant;
    char comm[16];
    int cpu;
    plant_fn fn;
    void *arg;
};

static void *thread_main(void *arg)
{
    struct thread_start *start = arg;
    prctl(PR_SET_NAME, start->comm);
    if (start->cpu >= 0)
        plant_pin(start->cpu);
    start->fn(start->plant, start->arg);
    free(start);
    return NULL;
}

void plant_thread(struct plant *plant, const char *comm, int cpu, plant_fn fn, void *arg)
{
    struct thread_start *start = xcalloc(1, sizeof(*start));
    *start = (struct thread_start){.plant = plant, .cpu = cpu, .fn = fn, .arg = arg};
    snprintf(start->comm, sizeof(start->comm), "%s", comm);
    pthread_t thread;
    int rc = pthread_create(&thread, NULL, thread_main, start);
    if (rc) {
        fprintf(stderr, "plant: failed to start thread %s: %s\n", comm, strerror(rc));
        _exit(4);
    }
    pthread_detach(thread);
}

static void sibling_thread(struct plant *plant, void *arg)
{
    const struct plant_sibling *sibling = arg;
    while (!atomic_load(&plant->share->ready))
        plant_sleep_ns(PLANT_MS);
    plant_every(plant, sibling->period_ns, sibling->act, NULL);
}

static void sibling_victim(struct plant *plant, void *arg)
{
    const struct plant_sibling *sibling = arg;
    if (sibling->memory)
        plant_memory(plant->size_bytes);
    if (!plant->innocent) {
        plant_blame_self(plant);
        plant_thread(plant, sibling->comm, plant->cpu_other, sibling_thread, arg);
    }
    plant_steps(plant, sibling->operation, NULL);
}

int plant_victim_sibling(
        struct plant *plant, const struct plant_sibling *sibling, struct error *err)
{
    if (!plant->innocent)
        snprintf(plant->culprit_comm, sizeof(plant->culprit_comm), "%s", sibling->comm);
    return plant_victim(plant, "pl-victim", sibling_victim, (void *)sibling, err);
}

static void self_operation(struct plant *plant, void *arg)
{
    const struct plant_self *self = arg;
    if (self->operation)
        self->operation(plant, NULL);
    if (plant->innocent || !plant_due())
        return;
    self->act(plant, NULL);
    atomic_fetch_add(&plant->share->acts, 1);
}

void plant_self_steps(struct plant *plant, const struct plant_self *self)
{
    plant_steps(plant, self_operation, (void *)self);
}

static void self_victim(struct plant *plant, void *arg)
{
    const struct plant_self *self = arg;
    if (self->memory)
        plant_memory(plant->size_bytes);
    plant_self_steps(plant, self);
}

int plant_victim_self(struct plant *plant, const struct plant_self *self, struct error *err)
{
    return plant_victim(plant, "pl-victim", self_victim, (void *)self, err);
}

// A process with work of its own on the other CPU, as far as nobody else wants it: were it to
// preempt a culprit that holds a lock, both would be to blame.
static void neighbour_burner(struct plant *plant, void *arg)
{
    (void)arg;
    plant_pin(plant->cpu_other);
    setpriority(PRIO_PROCESS, 0, 19);
    while (!plant_stopped(plant)) {
        plant_burn_ns(4 * PLANT_MS);
        plant_sleep_ns(4 * PLANT_MS);
    }
}

static void neighbour_write(struct plant *plant, void *arg)
{
    (void)plant;
    static char block[65536];
    static off_t at;
    if (pwrite(*(int *)arg, block, sizeof(block), at) > 0)
        at = (at + (off_t)sizeof(block)) % NEIGHBOUR_FILE_BYTES;
}

static void neighbour_writer(struct plant *plant, void *arg)
{
    plant_pin(plant->cpu_other);
    while (!plant_stopped(plant)) { // not plant_every: it counts what culprits do
        neighbour_write(plant, arg);
        plant_sleep_ns(50 * PLANT_MS);
    }
}

static void neighbour_read_self(struct plant *plant, void *arg)
{
    (void)plant;
    (void)arg;
    char text[4096];
    int fd = open("/proc/self/smaps_rollup", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    while (read(fd, text, sizeof(text)) > 0) {
    }
    close(fd);
}

// Looks as the smaps culprit does, but at itself: 32 MiB of its own.
static void neighbour_self(struct plant *plant, void *arg)
{
    plant_pin(plant->cpu_other);
    plant_memory(32 << 20);
    while (!plant_stopped(plant)) {
        neighbour_read_self(plant, arg);
        plant_sleep_ns(300 * PLANT_MS);
    }
}

int plant_neighbours(struct plant *plant, struct error *err)
{
    static int fd;
    char path[224];
    int rc = plant_file(plant, "neighbour", path, err);
    if (rc)
        return rc;
    fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return error_set(err, -errno, "failed to open '%s': %s", path, strerror(errno));
    rc = plant_helper(plant, "pl-busy", neighbour_burner, NULL, NULL, err);
    if (!rc)
        rc = plant_helper(plant, "pl-log", neighbour_writer, &fd, NULL, err);
    if (!rc)
        rc = plant_helper(plant, "pl-self", neighbour_self, NULL, NULL, err);
    return rc;
}
