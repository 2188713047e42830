// SPDX-License-Identifier: Apache-2.0
// The HTTP side of upgate-serve, on libmicrohttpd, one thread of its own:
//   POST /score  {"id": …, "features": […]} -> {"id": …, "scores": […], "model": "…"}; 400, 413,
//                503
//   GET /health  200 while answers come; 503 when the oldest request waits too long
//   GET /ready   200 once a warm model is in place; 503 before, and while the server drains
//   POST /reload {"path": "…"}: hot swap, answered when the new model is in place; 400, 409 while
//                another one runs
//   GET /stats   what was answered so far
// Every answer has `x-upgate-side`; one whose score is not finite has `x-upgate-wrong: 1`.
#ifndef UPGATE_SERVE_SERVER_H
#define UPGATE_SERVE_SERVER_H

#include "reference_models/serve/batcher.h"
#include "reference_models/serve/plants.h"
#include "reference_models/serve/workers.h"

struct server_opts {
    const char *host; // an IPv4 address
    uint16_t port;    // 0: a free one
    const char *side;
    const char *models;       // folder of model files
    int64_t stuck_ns;         // a request that waits longer: not healthy
    unsigned connections_max; // others are not accepted
};

struct server;

// Listens from now on. Borrows everything. -EADDRINUSE and such in words.
int server_new(const struct server_opts *opts, struct batcher *batcher, struct workers *workers,
        struct plants *plants, struct server **ret_server, struct error *err);
uint16_t server_port(const struct server *server);

// The graceful end, in this order. drain: not ready, every answer closes its connection, all else
// goes on.
void server_drain(struct server *server);
// Nobody new is let in; whoever stood in the queue of the kernel is.
void server_close_door(struct server *server);
// Requests that have come and are not answered.
uint64_t server_in_flight(const struct server *server);
// Ends the thread. None may be in flight. NULL is fine.
void server_free(struct server *server);

#endif
