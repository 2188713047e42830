// SPDX-License-Identifier: Apache-2.0
// The listening socket: "HOST:PORT" in, a socket out, and whether only this machine can reach it.
#ifndef UPGATE_HARNESS_CANARY_SERVE_LISTEN_H
#define UPGATE_HARNESS_CANARY_SERVE_LISTEN_H

#include <stdbool.h>

#include "common/error.h"

struct listen_address {
    char text[96]; // "127.0.0.1:8080", "[::1]:8080": of the socket as it is bound
    bool loopback; // reached from this machine only
};

// "HOST:PORT", "[IPV6]:PORT", ":PORT" (every address). A socket that listens, non-blocking, is
// bound only where `anywhere` or the address is a loopback one; else -EINVAL, with what to do.
// -EADDRINUSE and others in words. The caller closes *ret_fd.
int listen_open(const char *text, bool anywhere, int *ret_fd, struct listen_address *ret_address,
        struct error *err);
void listen_close(int fd); // -1 ok

#endif
