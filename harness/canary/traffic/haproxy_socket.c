// SPDX-License-Identifier: Apache-2.0
// One command, one connection: what is left of an earlier answer can never be taken for the next
// one.
#include "harness/canary/traffic/haproxy_socket.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/strings.h"
#include "common/units.h"

#define HAPROXY_RETRY_NS 50000000LL // a reload has its new process at the socket within 100 ms

struct haproxy_address {
    struct sockaddr_storage bytes;
    socklen_t len;
};

static int haproxy_address_unix(const char *path, struct haproxy_address *ret, struct error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path)
        return error_set(err, -EINVAL, "the path of a socket has %zu characters at most: '%s'",
                sizeof address.sun_path - 1, path);
    strcpy(address.sun_path, path);
    memcpy(&ret->bytes, &address, sizeof address);
    ret->len = sizeof address;
    return 0;
}

static int haproxy_address_read(const char *text, struct haproxy_address *ret, struct error *err)
{
    if (strncmp(text, "unix@", 5) == 0)
        return haproxy_address_unix(text + 5, ret, err);
    const char *colon = strrchr(text, ':');
    if (strchr(text, '/') || !colon)
        return haproxy_address_unix(text, ret, err);
    uint64_t port;
    if (unit_parse_uint(colon + 1, 1, 65535, &port, NULL))
        return error_set(err, -EINVAL, "the socket '%s' is neither a path nor HOST:PORT", text);
    size_t len = (size_t)(colon - text);
    bool brackets = len > 1 && text[0] == '[' && colon[-1] == ']';
    char *host = brackets ? xasprintf("%.*s", (int)len - 2, text + 1)
                          : xasprintf("%.*s", (int)len, text);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV}, *found = NULL;
    int rc = getaddrinfo(*host ? host : NULL, colon + 1, &hints, &found);
    free(host);
    if (rc)
        return error_set(err, -EINVAL, "the socket '%s' is neither a path nor HOST:PORT: %s", text,
                gai_strerror(rc));
    memcpy(&ret->bytes, found->ai_addr, found->ai_addrlen);
    ret->len = found->ai_addrlen;
    freeaddrinfo(found);
    return 0;
}

// 0, or -ETIMEDOUT.
static int haproxy_wait(int fd, short events, int64_t deadline_ns)
{
    for (;;) {
        struct pollfd poll_fd = {.fd = fd, .events = events};
        int64_t left_ns = deadline_ns - clock_monotonic_ns();
        if (left_ns <= 0)
            return -ETIMEDOUT;
        int rc =
                poll(&poll_fd, 1, (int)(left_ns / 1000000 < 60000 ? left_ns / 1000000 + 1 : 60000));
        if (rc > 0)
            return 0;
        if (rc < 0 && errno != EINTR)
            return -errno;
    }
}

static int haproxy_connect(int fd, const struct haproxy_address *address, int64_t deadline_ns)
{
    int failure = 0;
    socklen_t len = sizeof failure;
    if (connect(fd, (const struct sockaddr *)&address->bytes, address->len) == 0)
        return 0;
    if (errno != EINPROGRESS)
        return -errno; // EAGAIN: the backlog of a Unix socket is full
    int rc = haproxy_wait(fd, POLLOUT, deadline_ns);
    if (rc == 0 && getsockopt(fd, SOL_SOCKET, SO_ERROR, &failure, &len))
        rc = -errno;
    return rc ? rc : -failure;
}

static int haproxy_send(int fd, const char *line, size_t len, int64_t deadline_ns)
{
    while (len) {
        ssize_t sent = send(fd, line, len, MSG_NOSIGNAL);
        if (sent > 0) {
            line += sent;
            len -= (size_t)sent;
            continue;
        }
        if (errno == EINTR)
            continue;
        int rc = errno == EAGAIN ? haproxy_wait(fd, POLLOUT, deadline_ns) : -errno;
        if (rc)
            return rc;
    }
    return 0;
}

// Up to the end of the connection.
static int haproxy_receive(int fd, int64_t deadline_ns, struct strbuf *answer)
{
    char bytes[16384];
    for (;;) {
        ssize_t got = recv(fd, bytes, sizeof bytes, 0);
        if (got == 0)
            return answer->len ? 0 : -ECONNRESET; // an empty answer is one line end
        if (got > 0) {
            if (answer->len + (size_t)got > HAPROXY_ANSWER_MAX)
                return -EMSGSIZE;
            strbuf_add_bytes(answer, bytes, (size_t)got);
            if (clock_monotonic_ns() >= deadline_ns) // one that sends byte by byte
                return -ETIMEDOUT;
            continue;
        }
        if (errno == EINTR)
            continue;
        int rc = errno == EAGAIN ? haproxy_wait(fd, POLLIN, deadline_ns) : -errno;
        if (rc)
            return rc;
    }
}

static int haproxy_try(const struct haproxy_address *address, const char *line, int64_t deadline_ns,
        struct strbuf *answer)
{
    int fd = socket(address->bytes.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    int rc = haproxy_connect(fd, address, deadline_ns);
    if (rc == 0)
        rc = haproxy_send(fd, line, strlen(line), deadline_ns);
    if (rc == 0)
        rc = haproxy_receive(fd, deadline_ns, answer);
    close(fd);
    return rc;
}

static bool haproxy_comes_back(int rc)
{
    return rc == -ECONNREFUSED || rc == -ENOENT || rc == -ECONNRESET || rc == -EPIPE ||
            rc == -EAGAIN;
}

static int haproxy_tell(const char *address, const char *command, int rc, struct error *err)
{
    const char *hint = rc == -ENOENT || rc == -ECONNREFUSED
            ? "; is HAProxy running, with `stats socket PATH level admin` in `global`?"
            : rc == -EACCES    ? "; run as root, or give the socket `mode 660 group GROUP`"
            : rc == -EMSGSIZE  ? "; it answers more than 4 MiB, so it is not HAProxy"
            : rc == -ETIMEDOUT ? "; it did not answer in time"
                               : "";
    return error_set(err, rc, "failed to ask HAProxy at '%s' (%.60s): %s%s", address, command,
            strerror(-rc), hint);
}

int haproxy_ask(const char *address, const char *command, uint64_t retries, int64_t deadline_ns,
        char **ret_answer, struct error *err)
{
    struct haproxy_address where;
    struct strbuf answer = {0};
    int rc = haproxy_address_read(address, &where, err);
    if (rc)
        return rc;
    char *line = xasprintf("%s\n", command);
    for (uint64_t i = 0;; i++) {
        rc = haproxy_try(&where, line, deadline_ns, &answer);
        if (rc == 0 || !haproxy_comes_back(rc) || i >= retries ||
                clock_monotonic_ns() + HAPROXY_RETRY_NS >= deadline_ns)
            break;
        strbuf_free(&answer);
        clock_sleep_until_ns(clock_monotonic_ns() + HAPROXY_RETRY_NS);
    }
    free(line);
    if (rc) {
        strbuf_free(&answer);
        return haproxy_tell(address, command, rc, err);
    }
    while (answer.len && strchr("\r\n", answer.text[answer.len - 1]))
        answer.text[--answer.len] = 0;
    string_make_plain(answer.text, answer.len);
    *ret_answer = strbuf_take(&answer);
    return 0;
}
