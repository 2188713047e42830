// SPDX-License-Identifier: Apache-2.0
// The socket of a container. Who speaks is told by the kernel (SCM_CREDENTIALS), in our numbers,
// whatever namespaces the container has.
#include "harness/image/hold.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/proc.h"
#include "common/strings.h"

enum { HOLD_LOOK_MS = 100, HOLD_SEND_S = 10 };

struct image_hold {
    int listen_fd, fd;
    char *path;
};

char *image_hold_path(const char *name)
{
    return xasprintf("/dev/shm/%s.hold/socket", name);
}

static void hold_unlink(struct image_hold *hold)
{
    char *dir = xstrdup(hold->path);
    unlink(hold->path);
    *strrchr(dir, '/') = 0;
    rmdir(dir);
    free(dir);
}

int image_hold_new(const char *path, struct image_hold **ret_hold, struct error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct image_hold *hold = xcalloc(1, sizeof *hold);
    *hold = (struct image_hold){.listen_fd = -1, .fd = -1, .path = xstrdup(path)};
    int yes = 1, len = snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    char *dir = xasprintf("%.*s", (int)(strrchr(path, '/') - path), path);
    // The directory keeps others out; in the container, where the file alone is mounted, any user
    // may come.
    bool made = len < (int)sizeof address.sun_path ? mkdir(dir, 0700) == 0
                                                   : (errno = ENAMETOOLONG, false);
    bool ok = made && (hold->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) >= 0 &&
            bind(hold->listen_fd, (struct sockaddr *)&address, sizeof address) == 0 &&
            chmod(path, 0666) == 0 &&
            setsockopt(hold->listen_fd, SOL_SOCKET, SO_PASSCRED, &yes, sizeof yes) == 0 &&
            listen(hold->listen_fd, 1) == 0;
    int code = ok
            ? 0
            : error_set(err, -errno, "failed to make the socket '%s': %s", path, strerror(errno));
    free(dir);
    if (!made) { // what is there is somebody else's
        free(hold->path);
        free(hold);
        return code;
    }
    if (code)
        image_hold_free(hold);
    else
        *ret_hold = hold;
    return code;
}

void image_hold_free(struct image_hold *hold)
{
    if (!hold)
        return;
    if (hold->fd >= 0)
        close(hold->fd);
    if (hold->listen_fd >= 0)
        close(hold->listen_fd);
    hold_unlink(hold);
    free(hold->path);
    free(hold);
}

bool image_owner_lives(const char *name)
{
    int pid;
    unsigned long long start;
    struct proc_stat stat;
    return sscanf(name, "upgate-%d-%llu-", &pid, &start) != 2 ||
            (!proc_stat_of(pid, &stat) && proc_same_start(stat.start_ticks, start));
}

void image_hold_sweep(void)
{
    DIR *dir = opendir("/dev/shm");
    struct dirent *entry;
    while (dir && (entry = readdir(dir))) {
        size_t len = strlen(entry->d_name);
        if (len < 5 || strcmp(entry->d_name + len - 5, ".hold") != 0 ||
                image_owner_lives(entry->d_name))
            continue;
        char *path = xasprintf("/dev/shm/%s", entry->d_name),
             *socket = xasprintf("%s/socket", path);
        unlink(socket);
        rmdir(path);
        free(socket);
        free(path);
    }
    if (dir)
        closedir(dir);
}

int image_hold_fd(const struct image_hold *hold)
{
    return hold->fd;
}

void image_hold_let_go(struct image_hold *hold)
{
    if (hold && hold->fd >= 0)
        shutdown(hold->fd, SHUT_WR);
}

// Until fd is readable. -ECHILD: end_fd (-1: none) was first; -EINTR: somebody wants the end.
static int hold_wait(int fd, int end_fd, int64_t deadline_ns, const volatile int *stop)
{
    for (;;) {
        if (stop && *stop)
            return -EINTR;
        struct pollfd fds[2] = {{.fd = fd, .events = POLLIN}, {.fd = end_fd, .events = POLLIN}};
        int64_t left_ns = deadline_ns - clock_monotonic_ns();
        int ready = left_ns <= 0
                ? 0
                : poll(fds, 2,
                          left_ns / 1000000 < HOLD_LOOK_MS ? (int)(left_ns / 1000000) + 1
                                                           : HOLD_LOOK_MS);
        if (ready > 0 && fds[0].revents)
            return 0;
        if (ready > 0)
            return -ECHILD;
        if (left_ns <= 0)
            return -ETIME;
    }
}

static int hold_read(
        int fd, int end_fd, int64_t deadline_ns, const volatile int *stop, void *data, size_t len)
{
    for (char *at = data; len;) {
        int rc = hold_wait(fd, end_fd, deadline_ns, stop);
        if (rc)
            return rc;
        ssize_t got = recv(fd, at, len, MSG_DONTWAIT);
        if (got < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (got <= 0)
            return -ESRCH;
        at += got;
        len -= (size_t)got;
    }
    return 0;
}

// The head of the hello, and whose it is.
static int hold_read_hello(struct image_hold *hold, int end_fd, int64_t deadline_ns,
        const volatile int *stop, struct image_guest *guest)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(struct ucred))];
    } control;
    struct iovec part = {&guest->hello, sizeof guest->hello};
    struct msghdr message = {.msg_iov = &part,
            .msg_iovlen = 1,
            .msg_control = &control,
            .msg_controllen = sizeof control};
    int rc = hold_wait(hold->fd, end_fd, deadline_ns, stop);
    if (rc)
        return rc;
    ssize_t got = recvmsg(hold->fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got <= 0)
        return -ESRCH;
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    if (!head || head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_CREDENTIALS)
        return -EPROTO;
    struct ucred sender;
    memcpy(&sender, CMSG_DATA(head), sizeof sender);
    guest->pid = sender.pid;
    guest->uid = sender.uid;
    return hold_read(hold->fd, end_fd, deadline_ns, stop, (char *)&guest->hello + got,
            sizeof guest->hello - (size_t)got);
}

int image_hold_hello(struct image_hold *hold, int end_fd, int64_t deadline_ns,
        const volatile int *stop, struct image_guest *ret_guest, struct error *err)
{
    struct image_guest guest = {0};
    int rc = hold_wait(hold->listen_fd, end_fd, deadline_ns, stop);
    if (rc == 0 && (hold->fd = accept4(hold->listen_fd, NULL, NULL, SOCK_CLOEXEC)) < 0)
        rc = -errno;
    if (rc == 0) {
        hold_unlink(hold); // the first is the only one
        rc = hold_read_hello(hold, end_fd, deadline_ns, stop, &guest);
    }
    if (rc == 0 &&
            (guest.hello.magic != INSIDE_MAGIC || guest.hello.env_bytes > INSIDE_TEXT_BYTES_MAX))
        rc = -EPROTO;
    if (rc == 0) {
        guest.env = xcalloc((size_t)guest.hello.env_bytes + 1, 1);
        rc = hold_read(hold->fd, end_fd, deadline_ns, stop, guest.env, guest.hello.env_bytes);
    }
    if (rc) {
        free(guest.env);
        return error_set(err, rc, "%s",
                rc == -ETIME            ? "nothing came out of the container in time"
                        : rc == -ECHILD ? "the engine ended before the container had begun"
                        : rc == -EINTR  ? "stopped before the container had begun"
                        : rc == -ESRCH  ? "the container ended before it had begun"
                                        : "what came out of the container was not understood");
    }
    *ret_guest = guest;
    return 0;
}

static bool hold_send_all(int fd, const char *at, size_t len)
{
    while (len) {
        ssize_t sent = send(fd, at, len, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            return false;
        at += sent;
        len -= (size_t)sent;
    }
    return true;
}

int image_hold_start(struct image_hold *hold, const struct image_start *start, struct error *err)
{
    struct inside_start head = {.magic = INSIDE_MAGIC};
    struct strbuf text = {0};
    // who reads is ours, and may be stopped by others
    struct timeval patience = {.tv_sec = HOLD_SEND_S};
    strbuf_add_bytes(&text, start->dir, strlen(start->dir) + 1);
    for (; start->argv[head.argc]; head.argc++)
        strbuf_add_bytes(&text, start->argv[head.argc], strlen(start->argv[head.argc]) + 1);
    for (; start->env[head.envc]; head.envc++)
        strbuf_add_bytes(&text, start->env[head.envc], strlen(start->env[head.envc]) + 1);
    head.text_bytes = (uint32_t)text.len;
    memcpy(head.cpus, start->cpus, sizeof head.cpus);
    if (text.len > INSIDE_TEXT_BYTES_MAX) {
        strbuf_free(&text);
        return error_set(err, -E2BIG,
                "the words and the environment of a side have more than %d MB",
                INSIDE_TEXT_BYTES_MAX >> 20);
    }
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {.head = {.cmsg_len = CMSG_LEN(sizeof(int)),
                         .cmsg_level = SOL_SOCKET,
                         .cmsg_type = SCM_RIGHTS}};
    memcpy(CMSG_DATA(&control.head), &start->output_fd, sizeof(int));
    struct iovec part = {&head, sizeof head};
    struct msghdr message = {.msg_iov = &part,
            .msg_iovlen = 1,
            .msg_control = &control,
            .msg_controllen = sizeof control};
    setsockopt(hold->fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    // else it is gone: the next event says so
    if (sendmsg(hold->fd, &message, MSG_NOSIGNAL) == sizeof head)
        hold_send_all(hold->fd, text.text, text.len);
    strbuf_free(&text);
    return 0;
}

int image_hold_event(struct image_hold *hold, int64_t deadline_ns, struct inside_event *ret_event)
{
    struct inside_event event;
    int rc = hold->fd < 0 ? -ESRCH
                          : hold_read(hold->fd, -1, deadline_ns, NULL, &event, sizeof event);
    if (rc == 0)
        *ret_event = event;
    return rc;
}
