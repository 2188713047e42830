// SPDX-License-Identifier: Apache-2.0
// Plants about waiting for somebody else's turn in user space: a pthread mutex held by a thread or
// by another process, a semaphore nobody posts, a pipe nobody reads, a peer that does not answer, a
// child that compiles.
#include "reference_models/plants/plant.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define HELD_NS (60 * PLANT_MS)
#define LINE_BYTES 16384
#define PIPE_BYTES 65536
#define COMPILE_NS (80 * PLANT_MS)

static int pair[2]; // the two ends of a pipe or connection, inherited

// mutex, mutex-proc
static void step_lock(struct plant *plant, void *arg)
{
    (void)arg;
    pthread_mutex_lock(&plant->share->mutex);
    pthread_mutex_unlock(&plant->share->mutex);
}

static void victim_locks(struct plant *plant, void *arg)
{
    plant_steps(plant, step_lock, arg);
}

static void hold_act(struct plant *plant, void *arg)
{
    (void)arg;
    pthread_mutex_lock(&plant->share->mutex);
    plant_sleep_ns(HELD_NS);
    pthread_mutex_unlock(&plant->share->mutex);
}

static int start_mutex(struct plant *plant, struct error *err)
{
    static const struct plant_sibling sibling = {
            "pl-holder", 300 * PLANT_MS, hold_act, step_lock, false};
    return plant_victim_sibling(plant, &sibling, err);
}

static void holder(struct plant *plant, void *arg)
{
    plant_pin(plant->cpu_other);
    plant_every(plant, 300 * PLANT_MS, hold_act, arg);
}

static int start_mutex_proc(struct plant *plant, struct error *err)
{
    int rc = plant_victim(plant, "pl-victim", victim_locks, NULL, err);
    return rc ? rc : plant_culprit(plant, "pl-locker", holder, NULL, err);
}

// semaphore: a request in every step to a process that thinks about some of them.
static void step_semaphore(struct plant *plant, void *arg)
{
    (void)arg;
    sem_post(&plant->share->asked);
    while (sem_wait(&plant->share->answered) && errno == EINTR) {
    }
}

static void victim_semaphore(struct plant *plant, void *arg)
{
    plant_steps(plant, step_semaphore, arg);
}

static void poster(struct plant *plant, void *arg)
{
    (void)arg;
    plant_pin(plant->cpu_other);
    while (!plant_stopped(plant)) {
        while (sem_wait(&plant->share->asked) && errno == EINTR) {
        }
        if (!plant->innocent && plant_due()) {
            plant_sleep_ns(HELD_NS);
            atomic_fetch_add(&plant->share->acts, 1);
        }
        sem_post(&plant->share->answered);
    }
}

static void blame(struct plant *plant, pid_t pid, const char *comm)
{
    if (plant->innocent)
        return;
    plant->culprits[plant->culprit_count++] = pid;
    snprintf(plant->culprit_comm, sizeof(plant->culprit_comm), "%s", comm);
}

static int start_semaphore(struct plant *plant, struct error *err)
{
    pid_t pid = 0;
    int rc = plant_helper(plant, "pl-poster", poster, NULL, &pid, err);
    if (!rc)
        rc = plant_victim(plant, "pl-victim", victim_semaphore, NULL, err);
    blame(plant, pid, "pl-poster");
    return rc;
}

// pipe: the victim prints in every step; who reads it takes a nap after each pipe full.
static void step_print(struct plant *plant, void *arg)
{
    static char line[LINE_BYTES];
    (void)plant;
    (void)arg;
    if (write(pair[1], line, sizeof(line)) < 0)
        _exit(4);
}

static void victim_prints(struct plant *plant, void *arg)
{
    plant_steps(plant, step_print, arg);
}

static void pipe_reader(struct plant *plant, void *arg)
{
    static char text[PIPE_BYTES];
    (void)arg;
    plant_pin(plant->cpu_other);
    while (!plant_stopped(plant)) {
        if (!plant->innocent)
            plant_sleep_ns(200 * PLANT_MS);
        for (size_t got = 0; got < sizeof(text);) {
            ssize_t len = read(pair[0], text, sizeof(text) - got);
            if (len <= 0)
                return;
            got += (size_t)len;
        }
        atomic_fetch_add(&plant->share->acts, 1);
    }
}

static int start_pipe(struct plant *plant, struct error *err)
{
    pid_t pid = 0;
    if (pipe2(pair, O_CLOEXEC))
        return error_set(err, -errno, "failed to make a pipe: %s", strerror(errno));
    // The reader is there in an innocent run too, and quick.
    int rc = plant_helper(plant, "pl-reader", pipe_reader, NULL, &pid, err);
    if (!rc)
        rc = plant_victim(plant, "pl-victim", victim_prints, NULL, err);
    blame(plant, pid, "pl-reader");
    return rc;
}

// socket: a request over TCP in every step, some of which the peer thinks about.
static int connect_pair(struct error *err)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t len = sizeof(at);
    int one = 1;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    pair[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || pair[0] < 0 || bind(listener, (struct sockaddr *)&at, len) ||
            listen(listener, 1) || getsockname(listener, (struct sockaddr *)&at, &len) ||
            connect(pair[0], (struct sockaddr *)&at, len))
        return error_set(err, -ENOTSUP, "no connection on loopback: %s", strerror(errno));
    pair[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    close(listener);
    if (pair[1] < 0)
        return error_set(err, -ENOTSUP, "no connection on loopback: %s", strerror(errno));
    setsockopt(pair[0], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    setsockopt(pair[1], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    return 0;
}

static void step_ask(struct plant *plant, void *arg)
{
    char byte = 1;
    (void)plant;
    (void)arg;
    if (send(pair[0], &byte, 1, MSG_NOSIGNAL) != 1 || recv(pair[0], &byte, 1, 0) != 1)
        _exit(4);
}

static void victim_asks(struct plant *plant, void *arg)
{
    plant_steps(plant, step_ask, arg);
}

static void peer(struct plant *plant, void *arg)
{
    bool late = arg != NULL;
    char byte;
    plant_pin(plant->cpu_other);
    while (recv(pair[1], &byte, 1, 0) == 1) {
        if (late && plant_due()) {
            plant_sleep_ns(HELD_NS);
            atomic_fetch_add(&plant->share->acts, 1);
        }
        if (send(pair[1], &byte, 1, MSG_NOSIGNAL) != 1)
            return;
    }
}

static int start_peer(struct plant *plant, bool late, pid_t *ret_pid, struct error *err)
{
    int rc = connect_pair(err);
    if (!rc)
        rc = plant_helper(plant, "pl-peer", peer, late ? plant : NULL, ret_pid, err);
    return rc ? rc : plant_victim(plant, "pl-victim", victim_asks, NULL, err);
}

static int start_socket(struct plant *plant, struct error *err)
{
    pid_t pid = 0;
    int rc = start_peer(plant, !plant->innocent, &pid, err);
    blame(plant, pid, "pl-peer");
    return rc;
}

// socket-stop: the peer is quick, but somebody stops it. Two right answers: whom the victim waits
// for, and who stopped that one.
static pid_t stopped_pid;

static void stop_act(struct plant *plant, void *arg)
{
    (void)plant;
    (void)arg;
    kill(stopped_pid, SIGSTOP);
    plant_sleep_ns(HELD_NS);
    kill(stopped_pid, SIGCONT);
}

static void stopper(struct plant *plant, void *arg)
{
    plant_pin(plant->cpu_other);
    plant_every(plant, 400 * PLANT_MS, stop_act, arg);
}

static int start_socket_stop(struct plant *plant, struct error *err)
{
    int rc = start_peer(plant, false, &stopped_pid, err);
    if (rc)
        return rc;
    blame(plant, stopped_pid, "pl-peer");
    return plant_culprit(plant, "pl-stopper", stopper, NULL, err);
}

// compile: the victim starts a child that works, and waits for it.
static void act_compile(struct plant *plant, void *arg)
{
    (void)arg;
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        prctl(PR_SET_NAME, "pl-ptxas");
        plant_pin(plant->cpu_other);
        plant_burn_ns(COMPILE_NS);
        _exit(0);
    }
    if (pid > 0)
        waitpid(pid, NULL, 0);
}

static int start_compile(struct plant *plant, struct error *err)
{
    static const struct plant_self self = {.act = act_compile};
    int rc = plant_victim_self(plant, &self, err);
    if (!plant->innocent)
        strcpy(plant->culprit_comm, "pl-ptxas"); // a new pid each time
    return rc;
}

const struct plant_kind plants_waits[] = {
        {"mutex", start_mutex},
        {"mutex-proc", start_mutex_proc},
        {"pipe", start_pipe},
        {"semaphore", start_semaphore},
        {"socket", start_socket},
        {"socket-stop", start_socket_stop},
        {"compile", start_compile},
        {NULL, NULL},
};
