// SPDX-License-Identifier: Apache-2.0
// The socket over which questions and answers go, in whichever network namespace.
#include "tracer/record/sock_diag.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

// Connected to the kernel: nobody else can answer.
static int sock_diag_open_here(void)
{
    struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
    int fd = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_SOCK_DIAG);
    if (fd < 0)
        return -errno;
    if (connect(fd, (const struct sockaddr *)&kernel, sizeof kernel) < 0) {
        int code = errno;
        close(fd);
        return -code;
    }
    return fd;
}

struct sock_diag_door {
    int namespace, fd;
};

static void *sock_diag_enter(void *arg)
{
    struct sock_diag_door *door = arg;
    door->fd = setns(door->namespace, CLONE_NEWNET) < 0 ? -errno : sock_diag_open_here();
    return NULL;
}

// By a thread that ends there: nobody has to come back. Signals are for the others.
int sock_diag_open(const char *path)
{
    pthread_t thread;
    sigset_t all, before;
    if (!path)
        return sock_diag_open_here();
    struct sock_diag_door door = {.namespace = open(path, O_RDONLY | O_CLOEXEC), .fd = -1};
    if (door.namespace < 0)
        return -errno;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&thread, NULL, sock_diag_enter, &door);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc == 0)
        pthread_join(thread, NULL);
    close(door.namespace);
    return rc ? -rc : door.fd;
}
