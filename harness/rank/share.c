// SPDX-License-Identifier: Apache-2.0
// Where the ranks of one node meet.
#include "harness/rank/share.h"

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/clock.h"

enum {
    SHARE_WAITING_MAX = 4096, // as net.core.somaxconn
    SHARE_WORD_MS = 20,       // a guest says who it is at once
};

static uint64_t share_add(uint64_t hash, const void *bytes, size_t size) // FNV-1a
{
    const unsigned char *at = bytes;
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ at[i]) * 0x100000001b3u;
    return hash;
}

int share_name(const char *key, char ret[SHARE_NAME_MAX], struct error *err)
{
    const char *const places[] = {"/proc/self/ns/mnt", "/proc/self/ns/pid", "/proc/self/ns/user"};
    uint64_t hash = share_add(0xcbf29ce484222325u, key, strlen(key));
    const uid_t user = geteuid();
    hash = share_add(hash, &user, sizeof user);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        struct stat info;
        if (stat(places[i], &info) < 0)
            return error_set(err, -errno, "failed to look at '%s': %s", places[i], strerror(errno));
        const uint64_t id[2] = {(uint64_t)info.st_dev, (uint64_t)info.st_ino};
        hash = share_add(hash, id, sizeof id);
    }
    snprintf(ret, SHARE_NAME_MAX, "upgate-rank-%016llx", (unsigned long long)hash);
    return 0;
}

static socklen_t share_address(const char *name, struct sockaddr_un *ret)
{
    size_t len = strnlen(name, SHARE_NAME_MAX);
    *ret = (struct sockaddr_un){.sun_family = AF_UNIX}; // the path begins with a zero: no file
    memcpy(ret->sun_path + 1, name, len);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + len);
}

int share_listen(const char *name)
{
    struct sockaddr_un address;
    socklen_t size = share_address(name, &address);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    if (bind(fd, (struct sockaddr *)&address, size) == 0 && listen(fd, SHARE_WAITING_MAX) == 0)
        return fd;
    int code = errno;
    close(fd);
    return -code;
}

// pid: as this process sees it; 0: it does not.
static int share_peer(int fd, pid_t *ret_pid)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
        return -errno;
    *ret_pid = peer.pid;
    return peer.uid == geteuid() ? 0 : -EPERM;
}

static int share_ask(int fd, int32_t rank, void *answer, size_t size, int64_t end_ns)
{
    pid_t pid;
    int rc = share_peer(fd, &pid);
    if (rc)
        return rc;
    if (send(fd, &rank, sizeof rank, MSG_NOSIGNAL) != (ssize_t)sizeof rank)
        return errno == EPIPE ? -ECONNRESET : -errno;
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    int64_t left_ns;
    int count = 0;
    while ((left_ns = end_ns - clock_monotonic_ns()) > 0 &&
            (count = poll(&ready, 1, (int)(left_ns / 1000000) + 1)) < 0 && errno == EINTR)
        ;
    if (count <= 0)
        return -ETIMEDOUT;
    ssize_t got = recv(fd, answer, size, 0);
    if (got != (ssize_t)size)
        return got > 0 ? -EPROTO : -ECONNRESET;
    return send(fd, &rank, sizeof rank, MSG_NOSIGNAL) == (ssize_t)sizeof rank ? 0 : -ECONNRESET;
}

int share_join(const char *name, int32_t rank, void *answer, size_t size, int64_t end_ns)
{
    struct sockaddr_un address;
    socklen_t address_size = share_address(name, &address);
    int64_t left_us = (end_ns - clock_monotonic_ns()) / 1000;
    if (left_us <= 0)
        return -ETIMEDOUT;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    // where more wait already than can
    const struct timeval wait = {left_us / 1000000, left_us % 1000000};
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait);
    int rc = connect(fd, (struct sockaddr *)&address, address_size) < 0
            ? -errno
            : share_ask(fd, rank, answer, size, end_ns);
    close(fd);
    return rc == -EAGAIN ? -ETIMEDOUT : rc;
}

int share_accept(int listener, int64_t end_ns, struct share_guest *ret)
{
    while (clock_monotonic_ns() < end_ns) {
        ret->fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (ret->fd < 0 && (errno == EINTR || errno == ECONNABORTED))
            continue;
        if (ret->fd < 0)
            return 0;
        struct pollfd word = {.fd = ret->fd, .events = POLLIN | POLLRDHUP};
        if (share_peer(ret->fd, &ret->pid) == 0 && ret->pid > 0 &&
                poll(&word, 1, SHARE_WORD_MS) == 1 && !(word.revents & (POLLHUP | POLLRDHUP)) &&
                recv(ret->fd, &ret->rank, sizeof ret->rank, MSG_DONTWAIT) ==
                        (ssize_t)sizeof ret->rank)
            return 1;
        close(ret->fd);
    }
    return 0;
}

int share_confirmed(int fd)
{
    int32_t rank;
    ssize_t got = recv(fd, &rank, sizeof rank, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    return got == (ssize_t)sizeof rank ? 1 : -ECONNRESET;
}
