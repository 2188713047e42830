// SPDX-License-Identifier: Apache-2.0
// `upgate canary serve`: one HTTP server that answers Argo Rollouts (web metric), Flagger
// (webhooks, metric template) and Prometheus from the store of a rollout, or from the store of a
// finished `upgate ab`. It reads the store and never writes: the controller is another process.
// docs/SERVE.md: every path, every status, every limit.
#ifndef UPGATE_HARNESS_CANARY_SERVE_SERVE_H
#define UPGATE_HARNESS_CANARY_SERVE_SERVE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"

struct serve_options {
    const char *store; // of a rollout (need not be there yet), or of `upgate ab`
    const char *name; // in the paths; NULL: file name of the store up to ".rollout.db", ".db". Must
                      // be the rollout's own
    const char *listen;             // "127.0.0.1:8080", "[::1]:0", ":8080" = every address; NULL:
                                    // "127.0.0.1:8080". Port 0: a free one, told in the log
    const char *token_file;         // a bearer token a line, all of them valid; NULL: none
    const char *tls_cert, *tls_key; // PEM; both or none
    bool no_token;        // listen on other than loopback addresses although there is no token
    bool open_metrics;    // /metrics without the token, for scrapers that cannot send one
    uint32_t connections; // at most; 0: 16384, or what the limit of open files leaves
    uint32_t connections_per_address; // at most; 0: 1024
};

// Blocks until SIGTERM or SIGINT, then ends what is under way and returns 0. -EINVAL: wrong
// options, not a store, or it refuses to listen there without a token; -EADDRINUSE and others: of
// the socket; -ENOTSUP: built without libmicrohttpd. Main thread only.
int canary_serve(const struct serve_options *options, struct error *err);

#endif
