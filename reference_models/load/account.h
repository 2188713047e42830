// SPDX-License-Identifier: Apache-2.0
// The client's account: each request that was sent ends in exactly one outcome, so that
//     sent = ok + http errors + timed out + lost + truncated + wrong
// holds at the end, in all and for each side that answered.
#ifndef UPGATE_LOAD_ACCOUNT_H
#define UPGATE_LOAD_ACCOUNT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "reference_models/load/histogram.h"
#include "reference_models/load/http.h"

enum outcome {
    OUTCOME_OK,
    OUTCOME_HTTP,      // a status other than 200
    OUTCOME_TIMED_OUT, // no whole answer in time, counted from when the request was due
    OUTCOME_LOST,      // the connection was refused, or ended before the first byte of an answer
    OUTCOME_TRUNCATED, // it ended within the answer
    OUTCOME_WRONG,     // answered, but not with the answer to this request
    OUTCOME_COUNT
};

enum wrong {
    WRONG_NONE,
    WRONG_MALFORMED,  // not HTTP, not JSON, no scores
    WRONG_SWAPPED,    // the answer to another request
    WRONG_DOUBLED,    // the answer to a request that was answered before
    WRONG_NOT_FINITE, // a score that is no number
    WRONG_SCORES,     // not the scores of the reference side for the same features
    WRONG_COUNT
};

#define ACCOUNT_SIDES_MAX 16
#define ACCOUNT_STATUS_MAX 1000

struct account_side {
    char name[HTTP_SIDE_MAX]; // "" = no answer came, or without the header
    uint64_t count[OUTCOME_COUNT];
    struct histogram latency;  // of what is ok
    int64_t first_ns, last_ns; // CLOCK_REALTIME: sent
};

struct account {
    uint64_t sent, count[OUTCOME_COUNT], wrong[WRONG_COUNT], status[ACCOUNT_STATUS_MAX];
    uint64_t retried;             // sent again on another connection: it had been closed while idle
    uint64_t extra;               // bytes on a connection that had asked for nothing
    uint64_t compared;            // with the scores of the reference side
    uint64_t opened, idle_closed; // connections
    struct histogram latency, lag;                    // from due to answered; from due to sent
    struct account_side sides[ACCOUNT_SIDES_MAX + 1]; // the last: what has no room
    int side_count;
    double seconds; // from the begin to the last answer
};

struct account_request { // how one request ended
    enum outcome outcome;
    enum wrong wrong;
    int status;                       // 0: none came
    const char *side;                 // "" = unknown
    int64_t due_ns, sent_ns, done_ns; // CLOCK_MONOTONIC; sent 0: never
    int64_t wall_ns;                  // to be added for CLOCK_REALTIME
};

void account_add(struct account *account, const struct account_request *request);
uint64_t account_failed(const struct account *account); // all but ok, and extra bytes
bool account_balanced(const struct account *account);   // the equation above
// "upgate.load/1"; new reference
json_t *account_json(const struct account *account, const char *url);
void account_print(const struct account *account, FILE *file); // for people
void account_print_progress(const struct account *account, double seconds, FILE *file); // one line
// A line of CSV for one request; due_ns is CLOCK_REALTIME, a lag of -1: never sent.
#define ACCOUNT_LOG_HEADER "id,due_ns,lag_us,latency_us,side,status,outcome,retried\n"
void account_log(FILE *file, uint64_t id, bool retried, const struct account_request *request);
const char *outcome_name(enum outcome outcome);

#endif
