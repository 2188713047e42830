// SPDX-License-Identifier: Apache-2.0
// Simulated traffic of a rollout, second by second: Poisson arrivals, lognormal latencies of two kinds of requests, errors in
// bursts, all of it drifting. The same seed gives the same stream, whoever judges it.
#ifndef UPGATE_CI_SIM_CANARY_SIM_STREAM_H
#define UPGATE_CI_SIM_CANARY_SIM_STREAM_H

#include "reports/analyse/canary/second.h"
#include "reports/analyse/random.h"

struct stream_world {       // what both arms have in common
    double requests_per_s;  // of both
    double error_rate;
    double burst;           // errors that come together, in one arm
    double burst_spread;    // 0: always so many; 1: geometric with that mean
    double burst_from_s;    // before it errors come alone
    double drift;           // 0: nothing drifts. 1: requests 1:3, error rate 1:3, mix and so p99 by half, within 15 minutes
};
struct stream_fault {       // what the candidate does; {1, 1, 0} : nothing
    double errors, latency; // times the baseline's
    double crash_s;         // since the stage began: all requests fail; 0: never
};

enum { STREAM_KINDS = 2 };
struct stream_alias { // Walker's tables: a bin in one step
    double keep[CANARY_BINS];
    uint16_t other[CANARY_BINS];
};
struct stream {
    struct stream_world world;
    struct stream_fault fault;
    struct random_state random;
    double phase[3];
    struct stream_alias latency[CANARY_ARMS][STREAM_KINDS];
};

// Lognormal: 20 ms in the median, sigma 0.5; where it drifts one request in five is of a kind twice as slow.
void stream_start(struct stream *stream, const struct stream_world *world, const struct stream_fault *fault, uint64_t seed);
// Second `at_s` of the traffic; the fault counts from `stage_s` on, a negative one is an A/A: both arms are the baseline.
void stream_second(struct stream *stream, double at_s, double stage_s, double share, struct canary_second arms[CANARY_ARMS]);

struct random_state stream_random(uint64_t seed); // unlike those of the seeds beside it
double stream_poisson(struct random_state *random, double mean);

#endif
