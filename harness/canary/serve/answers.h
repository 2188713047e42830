// SPDX-License-Identifier: Apache-2.0
// Request in, answer out: no socket, no store, no clock. Prepared once a snapshot, asked many
// times. Paths, exact:
//   GET  /v1/gate/NAME?stage=N          Argo Rollouts: upgate's verdict as JSON, always 200 for
//                                       this rollout
//   POST /v1/flagger/NAME/HOOK?stage=N  Flagger: 200 or a refusal with its reason; `rollback` is
//                                       200 only after a fail
//   GET, POST /api/v1/query             Prometheus' instant query, of vector(N) and of one of our
//                                       series
//   GET  /metrics, /healthz
// docs/SERVE.md has the statuses.
#ifndef UPGATE_HARNESS_CANARY_SERVE_ANSWERS_H
#define UPGATE_HARNESS_CANARY_SERVE_ANSWERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "harness/canary/serve/snapshot.h"
#include "harness/canary/serve/verdict.h"

enum { ANSWERS_BODY_MAX = 65536 }; // bytes of a request's body

enum call_method { CALL_GET, CALL_HEAD, CALL_POST, CALL_OTHER };

struct call_counts { // of the server itself, for /metrics
    uint64_t answers_2xx, answers_4xx, answers_5xx, refused_tokens, cut_off, connections,
            connections_max;
};

struct call {
    enum call_method method;
    const char *target; // as it was sent: path, '?', query; not NUL-terminated
    size_t target_len;
    const char *body; // NULL: none
    size_t body_len;
    struct verdict_clock now;
    const struct call_counts *counts; // NULL: none
};

struct answer {
    int status;
    const char *type;  // static: Content-Type
    const char *allow; // static: of a 405; NULL
    const char *body;
    size_t body_len;
    int prepared; // >= 0: the number of a body that belongs to the answers; -1: `body` is the
                  // caller's to free()
};

struct answers;

// copies what it needs
struct answers *answers_new(const struct snapshot *snapshot, const struct verdict_clock *now);
void answers_free(struct answers *answers);          // NULL ok
int answers_prepared(const struct answers *answers); // bodies are numbered from 0 to this - 1

// Answers older than SNAPSHOT_OLD_S say only that nothing is known.
void answers_give(
        const struct answers *answers, const struct call *call, struct answer *ret_answer);

// Which requests need no token: /healthz, and /metrics where that is wanted.
bool answers_open(const char *target, size_t len, bool open_metrics);

#endif
