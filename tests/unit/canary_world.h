// SPDX-License-Identifier: Apache-2.0
// A small world for the controller of a rollout: time that passes as fast as it is waited for, a
// proxy, and two arms that answer, with so many requests that the real tests decide within seconds.
// It stands in shared memory, so that it outlives a controller that is killed.
#ifndef UPGATE_TESTS_CANARY_WORLD_H
#define UPGATE_TESTS_CANARY_WORLD_H

#include <stdbool.h>
#include <stdint.h>

enum { CANARY_WORLD_SETS = 64 };

struct canary_world {
    int64_t now_ns, wall_offset_ns; // CLOCK_MONOTONIC and what is added for CLOCK_REALTIME
    double percent, aa_percent;     // the proxy
    int fail_sets;                  // so many of the next sets fail; -1: all
    bool get_fails, no_baseline2;
    bool open_fails;  // but to bring everything to the baseline
    bool anew;        // the proxy is another process, and has forgotten what was set
    int64_t proxy_ns; // since when it runs, CLOCK_MONOTONIC
    bool up[2];
    uint64_t in_flight;             // on the candidate, while it has no traffic
    double sets[CANARY_WORLD_SETS]; // what was set, in order
    int64_t set_ns[CANARY_WORLD_SETS];
    int set_count;
    uint64_t rate;                   // requests a second of both arms
    double errors[2];                // share
    double rejected[2], given_up[2]; // shares; given up: of the rejected
    int slower_bins;                 // the candidate, of 2 %
    double misses;  // share of both arms' requests that take 60 times as long, and are no slower on
                    // the candidate; the others are then spread over 16 %
    uint64_t wrong; // a second, of the candidate
    uint64_t refused; // so far, of the candidate
    bool silent;      // no evidence comes in
    bool mute[2];     // none of this arm
    uint64_t lost;    // lines, so far
    int64_t next_s;   // next second of the sources
    int polls, opens;
    // 0: never. A set has two moments: before it (2n-1) and after it (2n)
    int kill_at_poll, kill_at_set;
    int moments;
    void (*script)(struct canary_world *world); // called at each poll
    const char *path;                           // of the store, for scripts
};
extern struct canary_world *canary_world;

// The world anew: 2026-11-23 10:00 UTC, both arms up, 20,000 requests/s, no errors, 0 %.
void canary_world_reset(void);

#endif
