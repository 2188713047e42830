// SPDX-License-Identifier: Apache-2.0
// Where evidence comes from: log lines of HAProxy, counters of Prometheus, JSON lines. All sources of a rollout are read
// by one thread and come out as finished seconds of both arms.
#ifndef UPGATE_HARNESS_CANARY_SOURCES_H
#define UPGATE_HARNESS_CANARY_SOURCES_H

#include "harness/canary/rollout.h"

struct sources;

int sources_open(const struct rollout *rollout, struct sources **ret_sources, struct error *err);
void sources_close(struct sources *sources); // NULL ok

// Reads what has come, waits up to `timeout_ms` for it. What is wrong with one source (Prometheus down, a file
// that is gone) is told by sources_state(), not here: the others go on.
int sources_poll(struct sources *sources, int timeout_ms, struct error *err);

// The oldest second that is finished (its end is 2 s ago by the clock of its requests) and was not taken. *ret_at_s:
// CLOCK_REALTIME. During the A/A stage the second baseline is told as the candidate: `aa`. False: none.
bool sources_take(struct sources *sources, bool aa, int64_t *ret_at_s, struct canary_second ret_arms[CANARY_ARMS]);

struct source_state {      // of one source of the plan
    uint64_t seen, kept;   // lines, datagrams or answers; kept: that became evidence of an arm
    uint64_t dropped;      // not understood, of other servers excepted (those are in neither)
    uint64_t lost;         // known to be lost: gaps of the sequence number, the kernel's drops of the socket
    uint64_t late;         // of a second that had been taken
    int64_t last_ns;       // CLOCK_MONOTONIC of the last evidence; 0: never
    char problem[256];     // "" or what is wrong at present
};
void sources_state(const struct sources *sources, int index, struct source_state *ret_state);

#endif
