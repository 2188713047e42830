// SPDX-License-Identifier: Apache-2.0
// Between libmicrohttpd and the answers: limits, tokens, bodies. One owner thread, the event
// loop's.
#ifndef UPGATE_HARNESS_CANARY_SERVE_HTTP_H
#define UPGATE_HARNESS_CANARY_SERVE_HTTP_H

#include "harness/canary/serve/answers.h"
#include "harness/canary/serve/token.h"

enum {
    HTTP_HEADER_BYTES_MAX = 16384, // of a request's line and headers together: 431
    HTTP_HEADERS_MAX = 64          // fields: 431
};

struct http_options {
    int listen_fd;               // taken over
    const struct tokens *tokens; // NULL: none needed. Borrowed
    const char *cert, *key;      // PEM texts; NULL: no TLS. Borrowed
    bool open_metrics;
    uint32_t connections, connections_per_address;
};

struct http;

// answers: taken over. -EINVAL: the certificate and the key do not work together, or are none.
int http_start(const struct http_options *options, struct answers *answers, struct http **ret_http,
        struct error *err);
// taken over; those before are freed
void http_set_answers(struct http *http, struct answers *answers);
// what has come, or waits for it; cuts off who is too slow
int http_run(struct http *http, int timeout_ms, struct error *err);
// NULL ok. Takes no more, ends what is under way within `grace_ms`, frees
void http_stop(struct http *http, int grace_ms);

#endif
