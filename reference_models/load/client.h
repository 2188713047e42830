// SPDX-License-Identifier: Apache-2.0
// Sends what the schedule says, whatever comes back, and accounts for every request. One thread,
// epoll, keep-alive connections. A request is sent a second time in one case only: its connection
// had carried an answer before and ended before any byte of this one came, which is how an idle
// connection that the server closes looks; the retry takes a new connection.
#ifndef UPGATE_LOAD_CLIENT_H
#define UPGATE_LOAD_CLIENT_H

#include <netinet/in.h>
#include <stdio.h>

#include "common/error.h"
#include "reference_models/load/account.h"
#include "reference_models/load/bodies.h"
#include "reference_models/load/schedule.h"

struct client_opts {
    struct sockaddr_in address;
    const char *host, *path; // of the request; host with its port
    struct bodies *bodies;   // borrowed; NULL: GET without a body, and only the status is checked
    size_t connections_max;
    int64_t timeout_ns;       // from when a request is due
    uint64_t requests_max;    // UINT64_MAX: as the schedule says
    bool progress;            // a line a second on stderr
    FILE *log;                // a line for each request; NULL
    volatile const int *stop; // not 0: nothing new is sent, what is in flight is waited for
};

// Runs until all requests have an outcome. -errno only when it cannot begin.
int client_run(const struct client_opts *opts, struct schedule *schedule, struct account *account,
        struct error *err);

#endif
