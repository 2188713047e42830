// SPDX-License-Identifier: Apache-2.0
// Opens the socket that the server listens on.
#include "harness/canary/serve/listen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/strings.h"

// connections that wait for the loop; the kernel has its own limit (net.core.somaxconn)
enum { LISTEN_BACKLOG = 4096 };

static bool loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr) >> 24 ==
                127;
    const struct in6_addr *at = &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(at) || (IN6_IS_ADDR_V4MAPPED(at) && at->s6_addr[12] == 127);
}

static int resolve(const char *text, struct addrinfo **ret, struct error *err)
{
    char *host = xstrdup(text), *port = strrchr(host, ':'), *name = host;
    int rc = 0;
    if (port)
        *port++ = 0;
    size_t len = strlen(host);
    if (len > 2 && host[0] == '[' && host[len - 1] == ']') {
        host[len - 1] = 0;
        name = host + 1;
    } else if (strchr(host, ':')) {
        port = NULL; // an IPv6 address without brackets: which colon ends it?
    }
    char *end = NULL;
    unsigned long number = port && *port >= '0' && *port <= '9' ? strtoul(port, &end, 10) : 65536;
    if (number > 65535 || *end) {
        rc = error_set(err, -EINVAL,
                "'%s' is no address to listen on: expected HOST:PORT, [IPV6]:PORT or :PORT", text);
    } else {
        struct addrinfo hints = {.ai_family = AF_UNSPEC,
                .ai_socktype = SOCK_STREAM,
                .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
        int why = getaddrinfo(*name ? name : NULL, port, &hints, ret);
        if (why)
            rc = error_set(err, -EINVAL, "cannot listen on '%s': %s", text, gai_strerror(why));
    }
    free(host);
    return rc;
}

static int bound_name(int fd, struct listen_address *ret)
{
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    char host[64], port[16];
    if (getsockname(fd, (struct sockaddr *)&address, &size) < 0 ||
            getnameinfo((struct sockaddr *)&address, size, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV))
        return -errno;
    snprintf(ret->text, sizeof ret->text, address.ss_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host,
            port);
    ret->loopback = loopback((struct sockaddr *)&address);
    return 0;
}

static int try_one(const struct addrinfo *at, int *ret_fd, struct listen_address *ret_address)
{
    int on = 1, off = 0, fd = socket(at->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    if (at->ai_family == AF_INET6) // ":PORT" takes IPv4 as well
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    int rc = setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) < 0 ||
                    bind(fd, at->ai_addr, at->ai_addrlen) < 0 || listen(fd, LISTEN_BACKLOG) < 0
            ? -errno
            : bound_name(fd, ret_address);
    if (rc)
        close(fd);
    else
        *ret_fd = fd;
    return rc;
}

int listen_open(const char *text, bool anywhere, int *ret_fd, struct listen_address *ret_address,
        struct error *err)
{
    struct addrinfo *list = NULL;
    int rc = resolve(text, &list, err);
    if (rc)
        return rc;
    const struct addrinfo *at = list;
    for (const struct addrinfo *next = list; next && text[0] == ':'; next = next->ai_next)
        at = next->ai_family == AF_INET6 ? next : at;
    if (!anywhere && !loopback(at->ai_addr)) {
        rc = error_set(err, -EINVAL,
                "refused to listen on '%s' without a token: whoever reaches it could read the rollout; give --token-file, "
                "or --no-token where others keep strangers away",
                text);
    } else {
        rc = try_one(at, ret_fd, ret_address);
        if (rc == -EAFNOSUPPORT || rc == -EADDRNOTAVAIL) // a machine without IPv6
            rc = at != list ? try_one(list, ret_fd, ret_address) : rc;
        if (rc)
            error_set(err, rc, "failed to listen on '%s': %s", text, strerror(-rc));
    }
    freeaddrinfo(list);
    return rc;
}

void listen_close(int fd)
{
    if (fd >= 0)
        close(fd);
}
