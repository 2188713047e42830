// SPDX-License-Identifier: Apache-2.0
// Where evidence comes from: log lines of HAProxy, counters of Prometheus, JSON lines, the step
// protocol. All sources of a rollout are read by one thread and come out as finished seconds of
// both arms.
#ifndef UPGATE_HARNESS_CANARY_SOURCES_H
#define UPGATE_HARNESS_CANARY_SOURCES_H

#include "harness/canary/plan/rollout.h"

struct sources;

// The rollout must outlive the sources. -EINVAL where the plan cannot be meant: requests that two
// kinds of sources would count twice, a log without the names of the servers. A server or a file
// that is not there yet is no error.
int sources_open(const struct rollout *rollout, struct sources **ret_sources, struct error *err);
void sources_close(struct sources *sources); // NULL ok

// Reads what comes within 20 ms; where nothing does, waits up to `timeout_ms` for the first.
// Returns early on a signal. What is wrong with one source (Prometheus down, a file that is gone)
// is told by sources_state(), not here: the others go on.
int sources_poll(struct sources *sources, int timeout_ms, struct error *err);

// The oldest second that is finished (its end is 2 s ago by the clock of its requests; with
// Prometheus: its counters have grown beyond it) and was not taken; seconds without requests are
// left out. *ret_at_s: CLOCK_REALTIME, which is read as going on when it is set back, so that
// seconds only grow. During the A/A stage the second baseline is told as the candidate: `aa`.
// False: none.
bool sources_take(struct sources *sources, bool aa, int64_t *ret_at_s,
        struct canary_second ret_arms[CANARY_ARMS]);

// What has been read since the open, of finished seconds or not: for tripwires, which do not wait
// for a second to end. Only grows.
struct sources_total {
    uint64_t requests, errors;
    uint64_t refused;  // of the errors: no connection to the server (by a log)
    uint64_t given_up; // no errors: by the client, before an answer began (by a log)
};
void sources_totals(
        const struct sources *sources, bool aa, struct sources_total ret_arms[CANARY_ARMS]);

struct source_state {    // of one source of the plan
    uint64_t seen, kept; // lines, datagrams or answers; kept: that became evidence of an arm
    uint64_t dropped;    // not understood, of other servers excepted (those are in neither)
    // known to be lost: gaps of the sequence number, the kernel's drops of the socket
    uint64_t lost;
    uint64_t late;     // of a second that had been taken; of the first source also: of seconds that
                       // nobody took in two minutes
    int64_t last_ns;   // CLOCK_MONOTONIC of the last evidence; 0: never
    char problem[256]; // "" or what is wrong at present
};
void sources_state(const struct sources *sources, int index, struct source_state *ret_state);

#endif
