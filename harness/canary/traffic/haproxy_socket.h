// SPDX-License-Identifier: Apache-2.0
// HAProxy's runtime socket: one line of command, its answer, the connection ends. Bounded in time
// and size, whoever listens there.
#ifndef UPGATE_HARNESS_CANARY_TRAFFIC_HAPROXY_SOCKET_H
#define UPGATE_HARNESS_CANARY_TRAFFIC_HAPROXY_SOCKET_H

#include <stdint.h>

#include "common/error.h"

// bytes: a line of statistics has 1,000; 4,000 servers of one backend
enum { HAPROXY_ANSWER_MAX = 4 << 20 };

// address: a path, "unix@PATH", or HOST:PORT. command: without line end. *ret_answer: without the
// empty line at its end, the caller's, NUL-terminated, of plain characters. A connection that is
// refused or that ends without an answer (the proxy is being reloaded) is tried again, `retries`
// times and until `deadline_ns` (CLOCK_MONOTONIC) at most. Commands must bear being given twice.
// -ENOENT, -EACCES, -ECONNREFUSED, -ETIMEDOUT, -EMSGSIZE, -EINVAL (address), in words.
int haproxy_ask(const char *address, const char *command, uint64_t retries, int64_t deadline_ns,
        char **ret_answer, struct error *err);

#endif
