// SPDX-License-Identifier: Apache-2.0
// One request to score, as it goes from the HTTP side (server.h) through the queue (batcher.h) to a
// worker (workers.h) and back. Owned by the HTTP side; between batcher_push() and done() only the
// worker's side touches it.
#ifndef UPGATE_SERVE_REQUEST_H
#define UPGATE_SERVE_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

#define REQUEST_BYTES_MAX ((size_t)64 << 10) // of a body
#define REQUEST_VALUES_MAX ((size_t)4096)
#define REQUEST_ID_MAX ((size_t)128) // of an id as JSON
#define REQUEST_MODEL_MAX 64

struct score_request {
    struct score_request *next;  // in a queue
    uint64_t number;             // from 0, in the order of arrival
    char id[REQUEST_ID_MAX + 1]; // as JSON, for the answer
    double *values;              // features; request_clear() frees them
    size_t count;
    int64_t arrived_ns, due_ns; // CLOCK_MONOTONIC; due: not answered before it, 0 = at once
    // The answer.
    int status;     // HTTP
    char text[256]; // of what is wrong, where status is not 200
    double score;
    char model[REQUEST_MODEL_MAX];
    void (*done)(struct score_request *request); // called once, by any thread
    void *owner;
};

// The body of a POST /score: {"id": number or string, "features": [numbers]}. -EINVAL says what is
// wrong with it. Keys that are not known are ignored, as a later version may send them.
int request_parse(struct score_request *request, const char *body, size_t size, struct error *err);
void request_clear(struct score_request *request); // what request_parse() allocated

// The body of the answer, for the caller to free: {"id":…, "scores":[…], "model":"…"}, or {"id":…,
// "error":"…"}. A score that is not finite is null: JSON has no NaN.
char *request_answer(const struct score_request *request);
bool request_wrong(const struct score_request *request); // a score that is not finite

#endif
