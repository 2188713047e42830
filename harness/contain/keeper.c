// SPDX-License-Identifier: Apache-2.0
// The keeper. Writes two messages to its socket, the pid of the root and how it ended, and reads
// nothing but the end of file: upgate has let go, or is dead.
#include "harness/contain/keeper.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/strings.h"
#include "harness/contain/process.h"
#include "harness/contain/tree.h"

enum {
    KEEPER_PATIENCE_S = 5, // for processes that SIGKILL does not end at once: the disk is slow
    KEEPER_WAKE_MS = 10    // between two looks whether a side has stopped its keeper
};

struct keeper {
    pid_t pid;
    int fd;
};

struct keeper_end {
    int status;
    struct rusage usage;
};

static void keeper_on_child(int number)
{
    (void)number; // it ends ppoll()
}

static void keeper_root(pid_t keeper, void (*child)(void *arg), void *arg)
        __attribute__((noreturn));
static void keeper_root(pid_t keeper, void (*child)(void *arg), void *arg)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() == keeper) // else it died before it could be asked for
        child(arg);
    _exit(127);
}

// A message that cannot be sent has nobody who waits for it: the end of file follows.
static void keeper_say(int fd, const void *message, size_t size)
{
    ssize_t sent = send(fd, message, size, MSG_NOSIGNAL);
    (void)sent;
}

static void keeper_main(int fd, void (*child)(void *arg), void *arg, const char *group, bool gentle)
        __attribute__((noreturn));
static void keeper_main(int fd, void (*child)(void *arg), void *arg, const char *group, bool gentle)
{
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    pid_t self = getpid(), root = fork();
    if (root == 0)
        keeper_root(self, child, arg);
    int told = root < 0 ? -errno : root;
    // Else the next upgate would take a group whose processes are ending by themselves for a dead
    // one's, and end them.
    fd = process_detach("ug-keeper", fd, gentle ? tree_base_lock_fd() : -1);
    sigset_t mask, none;
    sigemptyset(&none);
    sigemptyset(&mask);
    sigaddset(&mask, SIGCHLD);
    sigprocmask(SIG_SETMASK, &mask, NULL);
    // it is told of ends only
    struct sigaction on_child = {
            .sa_handler = keeper_on_child, .sa_flags = SA_RESTART | SA_NOCLDSTOP};
    sigaction(SIGCHLD, &on_child, NULL);
    keeper_say(fd, &told, sizeof told);
    struct pollfd poller = {.fd = fd, .events = POLLIN};
    while (root > 0) {
        struct keeper_end end = {0};
        pid_t pid;
        while ((pid = wait4(-1, &end.status, WNOHANG, &end.usage)) > 0)
            if (pid == root)
                keeper_say(fd, &end, sizeof end);
        if (ppoll(&poller, 1, NULL, &none) > 0)
            break;
    }
    // Killed together with its guardian upgate leaves its launches as they were: what the v1
    // freezer holds does not even die of SIGKILL.
    if (group && gentle)
        tree_let_end(group, KEEPER_GENTLE_S * 1000000000LL);
    if (group)
        tree_end_group(group);
    process_kill_children(clock_monotonic_ns() + KEEPER_PATIENCE_S * 1000000000LL);
    _exit(0);
}

// A side may stop it (kill -STOP $PPID), and who waits for it would wait for ever.
static void keeper_wake(const struct keeper *keeper)
{
    kill(keeper->pid, SIGCONT);
}

static ssize_t keeper_read(const struct keeper *keeper, void *message, size_t size)
{
    struct pollfd poller = {.fd = keeper->fd, .events = POLLIN};
    int ready;
    do
        keeper_wake(keeper);
    while ((ready = poll(&poller, 1, KEEPER_WAKE_MS)) == 0 || (ready < 0 && errno == EINTR));
    return recv(keeper->fd, message, size, MSG_DONTWAIT);
}

int keeper_start(void (*child)(void *arg), void *arg, const char *group, bool gentle,
        struct keeper **ret_keeper, pid_t *ret_root, struct error *err)
{
    int fds[2], told = -ESRCH;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
        return error_set(err, -errno, "failed to start a launch: %s", strerror(errno));
    pid_t pid = fork();
    if (pid < 0) {
        int rc = error_set(err, -errno, "failed to start a launch: %s", strerror(errno));
        close(fds[0]);
        close(fds[1]);
        return rc;
    }
    if (pid == 0) {
        close(fds[0]);
        keeper_main(fds[1], child, arg, group, gentle);
    }
    close(fds[1]);
    struct keeper *keeper = xcalloc(1, sizeof *keeper);
    *keeper = (struct keeper){.pid = pid, .fd = fds[0]};
    if (keeper_read(keeper, &told, sizeof told) != sizeof told || told <= 0) {
        keeper_free(keeper);
        return error_set(err, told < 0 ? told : -ESRCH, "failed to start a launch: %s",
                told == -ESRCH ? "its keeper was killed" : strerror(-told));
    }
    *ret_keeper = keeper;
    *ret_root = told;
    return 0;
}

pid_t keeper_pid(const struct keeper *keeper)
{
    return keeper ? keeper->pid : 0;
}

int keeper_fd(const struct keeper *keeper)
{
    return keeper->fd;
}

int keeper_wait(const struct keeper *keeper, int *ret_status, struct rusage *ret_usage)
{
    struct keeper_end end;
    if (keeper_read(keeper, &end, sizeof end) != sizeof end)
        return -ESRCH;
    *ret_status = end.status;
    *ret_usage = end.usage;
    return 0;
}

void keeper_free(struct keeper *keeper)
{
    if (!keeper)
        return;
    close(keeper->fd);
    for (pid_t ended = 0; ended == 0 || (ended < 0 && errno == EINTR);) {
        keeper_wake(keeper);
        ended = waitpid(keeper->pid, NULL, WNOHANG);
        if (ended == 0)
            clock_sleep_until_ns(clock_monotonic_ns() + 1000000);
    }
    free(keeper);
}
