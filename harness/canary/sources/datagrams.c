// SPDX-License-Identifier: Apache-2.0
// Syslog datagrams.
#include "harness/canary/sources/datagrams.h"

#include <errno.h>
#include <netdb.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/strings.h"
#include "common/units.h"

enum {
    DATAGRAMS_AT_ONCE = 64,
    DATAGRAMS_BYTES_MAX = 8192,  // HAProxy's `len` is 1024 by default, and 65535 at most
    DATAGRAMS_READS_MAX = 64,    // 4096 datagrams before others get their turn
    DATAGRAMS_BUFFER = 32 << 20, // 25,000 lines, 12 s at 2,000 a second: longer than a command to
                                 // the proxy may take
    DATAGRAMS_QUEUE_SHORT = 128  // datagrams of a Unix socket
};
#define DATAGRAMS_GATHER_NS 20000000LL // 50 wake-ups a second cost 0.1 % of a core

struct datagrams_room {
    struct mmsghdr messages[DATAGRAMS_AT_ONCE];
    struct iovec parts[DATAGRAMS_AT_ONCE];
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(uint32_t)) + CMSG_SPACE(64)];
    } control[DATAGRAMS_AT_ONCE];
    char bytes[DATAGRAMS_AT_ONCE][DATAGRAMS_BYTES_MAX];
};

static int datagrams_fail(struct error *err, const char *listen)
{
    int rc = -errno;
    return error_set(err, rc, "failed to listen at '%s': %s", listen, strerror(-rc));
}

static int datagrams_open_udp(struct datagrams *datagrams, const char *listen, struct error *err)
{
    const char *colon = strrchr(listen, ':');
    uint64_t port;
    if (!colon || colon == listen || unit_parse_uint(colon + 1, 1, 65535, &port, NULL))
        return error_set(err, -EINVAL,
                "cannot listen at '%s': not HOST:PORT, [IPv6]:PORT or unix:PATH", listen);
    size_t len = (size_t)(colon - listen);
    bool brackets = listen[0] == '[' && colon[-1] == ']';
    char *host = brackets ? xasprintf("%.*s", (int)len - 2, listen + 1)
                          : xasprintf("%.*s", (int)len, listen);
    struct addrinfo hints = {.ai_socktype = SOCK_DGRAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV},
                    *found = NULL;
    int rc = getaddrinfo(host, colon + 1, &hints, &found);
    free(host);
    if (rc)
        return error_set(err, -EINVAL, "cannot listen at '%s': %s", listen, gai_strerror(rc));
    datagrams->fd = socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool ok = datagrams->fd >= 0 && bind(datagrams->fd, found->ai_addr, found->ai_addrlen) == 0;
    rc = ok ? 0 : datagrams_fail(err, listen);
    freeaddrinfo(found);
    datagrams->gather_ns = DATAGRAMS_GATHER_NS;
    return rc;
}

// A socket file that nobody listens at any more is what a killed process leaves.
static bool datagrams_is_left(const struct sockaddr_un *address)
{
    struct stat status;
    if (lstat(address->sun_path, &status) || !S_ISSOCK(status.st_mode))
        return false;
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool left = fd >= 0 && connect(fd, (const struct sockaddr *)address, sizeof *address) &&
            errno == ECONNREFUSED;
    if (fd >= 0)
        close(fd);
    return left;
}

static long datagrams_queue(void)
{
    char *text = string_read_file("/proc/sys/net/unix/max_dgram_qlen", 32, NULL);
    long queue = text ? atol(text) : 0;
    free(text);
    return queue;
}

static int datagrams_open_unix(
        struct datagrams *datagrams, const char *listen, const char *path, struct error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (!*path || strlen(path) >= sizeof address.sun_path)
        return error_set(err, -EINVAL,
                "cannot listen at '%s': the path of a Unix socket has 1 to %zu characters", listen,
                sizeof address.sun_path - 1);
    strcpy(address.sun_path, path);
    datagrams->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (datagrams->fd < 0)
        return datagrams_fail(err, listen);
    if (datagrams_is_left(&address))
        unlink(path);
    if (bind(datagrams->fd, (struct sockaddr *)&address, sizeof address))
        return datagrams_fail(err, listen);
    datagrams->path = xstrdup(path);
    // HAProxy gives up its privileges before it logs; on UDP everybody may write, too.
    if (chmod(path, 0666))
        return datagrams_fail(err, listen);
    datagrams->short_queue = datagrams_queue() < DATAGRAMS_QUEUE_SHORT;
    // of ten, none can wait
    datagrams->gather_ns = datagrams->short_queue ? 0 : DATAGRAMS_GATHER_NS;
    return 0;
}

static void datagrams_make_room(struct datagrams *datagrams)
{
    int bytes = DATAGRAMS_BUFFER, on = 1;
    if (setsockopt(datagrams->fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes))
        // what the system allows
        setsockopt(datagrams->fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
    setsockopt(datagrams->fd, SOL_SOCKET, SO_RXQ_OVFL, &on, sizeof on);
    struct datagrams_room *room = xcalloc(1, sizeof *room);
    for (int i = 0; i < DATAGRAMS_AT_ONCE; i++) {
        room->parts[i] = (struct iovec){room->bytes[i], DATAGRAMS_BYTES_MAX};
        room->messages[i].msg_hdr.msg_iov = &room->parts[i];
        room->messages[i].msg_hdr.msg_iovlen = 1;
    }
    datagrams->room = room;
}

int datagrams_open(struct datagrams *datagrams, const char *listen, struct error *err)
{
    *datagrams = (struct datagrams){.fd = -1};
    int rc = strncmp(listen, "unix:", 5) == 0
            ? datagrams_open_unix(datagrams, listen, listen + 5, err)
            : datagrams_open_udp(datagrams, listen, err);
    if (rc)
        datagrams_close(datagrams);
    else
        datagrams_make_room(datagrams);
    return rc;
}

void datagrams_close(struct datagrams *datagrams)
{
    if (datagrams->fd >= 0)
        close(datagrams->fd);
    if (datagrams->path)
        unlink(datagrams->path);
    free(datagrams->path);
    free(datagrams->room);
    *datagrams = (struct datagrams){.fd = -1};
}

// The kernel tells with each datagram how many it has dropped so far, in 32 bits.
static void datagrams_count_drops(struct datagrams *datagrams, struct msghdr *header)
{
    for (struct cmsghdr *part = CMSG_FIRSTHDR(header); part; part = CMSG_NXTHDR(header, part)) {
        uint32_t drops;
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SO_RXQ_OVFL)
            continue;
        memcpy(&drops, CMSG_DATA(part), sizeof drops);
        datagrams->lost += (uint32_t)(drops - datagrams->drops);
        datagrams->drops = drops;
    }
}

static void datagrams_lines(const char *bytes, size_t len,
        void (*take)(void *arg, const char *line, size_t len), void *arg)
{
    const char *end = bytes + len;
    while (bytes < end) {
        const char *stop = memchr(bytes, '\n', (size_t)(end - bytes));
        size_t line = (size_t)((stop ? stop : end) - bytes);
        if (line)
            take(arg, bytes, line);
        bytes += line + 1;
    }
}

bool datagrams_read(struct datagrams *datagrams,
        void (*take)(void *arg, const char *line, size_t len), void *arg, uint64_t *ret_count)
{
    struct datagrams_room *room = datagrams->room;
    *ret_count = 0;
    for (int round = 0; round < DATAGRAMS_READS_MAX; round++) {
        for (int i = 0; i < DATAGRAMS_AT_ONCE; i++) {
            room->messages[i].msg_hdr.msg_control = &room->control[i];
            room->messages[i].msg_hdr.msg_controllen = sizeof room->control[i];
        }
        int got = recvmmsg(datagrams->fd, room->messages, DATAGRAMS_AT_ONCE, MSG_DONTWAIT, NULL);
        if (got <= 0)
            return false;
        for (int i = 0; i < got; i++) {
            struct msghdr *header = &room->messages[i].msg_hdr;
            datagrams_count_drops(datagrams, header);
            if (header->msg_flags & MSG_TRUNC)
                datagrams->too_long++;
            else
                datagrams_lines(room->bytes[i], room->messages[i].msg_len, take, arg);
        }
        *ret_count += (uint64_t)got;
        if (got < DATAGRAMS_AT_ONCE)
            return false;
    }
    return true;
}
