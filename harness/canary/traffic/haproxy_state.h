// SPDX-License-Identifier: Apache-2.0
// What HAProxy tells of itself (`show info`) and of the servers of one backend: `show servers
// state` (weights as they were set) and `show stat` (health, sessions). Foreign bytes.
#ifndef UPGATE_HARNESS_CANARY_TRAFFIC_HAPROXY_STATE_H
#define UPGATE_HARNESS_CANARY_TRAFFIC_HAPROXY_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"

struct haproxy_server {
    char name[128];
    bool listed;      // by `show servers state`
    uint64_t weight;  // set: 0..256
    bool maintenance; // forced or configured: no request comes
    bool draining;    // state drain, forced
    bool counted;     // by `show stat`
    bool up, backup;
    bool cookie; // has one, by which users are kept on it
    uint64_t sessions, queued, total;
};

struct haproxy_backend {
    struct haproxy_server *servers;
    int count;
    char algorithm[32];     // of `balance`; "": not told (the socket's level is below operator)
    char cookie[64];        // by which users are kept on their server; "": none, or not told
    uint64_t pid, uptime_s; // of the process that answered; pid 0: not told
};

enum { HAPROXY_SERVERS_MAX = 4096 };

// Each fills what it tells; in any order. -ENOENT: no such backend. -EBADMSG: not HAProxy's. The
// answer to `show info` may stand before the one to `show servers state`: then one process has
// given both.
int haproxy_read_state(
        const char *answer, const char *backend, struct haproxy_backend *ret, struct error *err);
int haproxy_read_stat(
        const char *answer, const char *backend, struct haproxy_backend *ret, struct error *err);
// NULL: none
struct haproxy_server *haproxy_server(struct haproxy_backend *backend, const char *name);
void haproxy_backend_free(struct haproxy_backend *backend);

#endif
