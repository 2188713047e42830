// SPDX-License-Identifier: Apache-2.0
// Simulated traffic of a rollout, second by second: Poisson arrivals, lognormal latencies of two
// kinds of requests, errors in bursts, all of it drifting. The same seed gives the same stream,
// whoever judges it.
#ifndef UPGATE_CI_SIM_CANARY_SIM_STREAM_H
#define UPGATE_CI_SIM_CANARY_SIM_STREAM_H

#include "reports/analyse/canary/second.h"
#include "reports/analyse/random.h"

struct stream_world {      // what both arms have in common
    double requests_per_s; // of both
    double error_rate;
    double burst;        // errors that come together, in one arm
    double burst_spread; // 0: always so many; 1: geometric with that mean
    double burst_from_s; // before it errors come alone
    double drift; // 0: nothing drifts. 1: requests 1:3, error rate 1:3, mix and so p99 by half,
                  // within 15 minutes
};
struct stream_fault {       // what the candidate does; {1, 1, 0} : nothing
    double errors, latency; // times the baseline's
    double crash_s;         // since the stage began: all requests fail; 0: never
};

struct stream_odd { // {0}: nothing
    double part;    // of the candidate's requests are slower, and no others; 0: all
    double first;   // of the requests of the first second of a stage fail
    double errors_before, latency_before; // before it turns bad; 0: as the baseline's
};

enum { STREAM_KINDS = 2 };
enum { STREAM_BASELINE, STREAM_FAULT, STREAM_BEFORE, STREAM_SPEEDS }; // whose latency
struct stream_alias { // Walker's tables: a bin in one step
    double keep[CANARY_BINS];
    uint16_t other[CANARY_BINS];
};
struct stream {
    struct stream_world world;
    struct stream_fault fault;
    struct stream_odd odd;
    struct random_state random;
    double phase[3];
    struct stream_alias latency[STREAM_SPEEDS][STREAM_KINDS];
};

// Lognormal: 20 ms in the median, sigma 0.5; where it drifts one request in five is of a kind twice
// as slow.
void stream_start(struct stream *stream, const struct stream_world *world,
        const struct stream_fault *fault, uint64_t seed);
void stream_start_odd(struct stream *stream, const struct stream_world *world,
        const struct stream_fault *fault, const struct stream_odd *odd, uint64_t seed);
// Second `at_s` of the traffic. The fault counts from `stage_s` on, 0 for the first second of a
// stage. both arms are the baseline; before it turns bad; the fault
enum stream_phase { STREAM_AA, STREAM_GOOD, STREAM_BAD };
void stream_second_of(struct stream *stream, enum stream_phase phase, double at_s, double stage_s,
        double share, struct canary_second arms[CANARY_ARMS]);
// The fault; an A/A where stage_s is negative.
void stream_second(struct stream *stream, double at_s, double stage_s, double share,
        struct canary_second arms[CANARY_ARMS]);

struct random_state stream_random(uint64_t seed); // unlike those of the seeds beside it
double stream_poisson(struct random_state *random, double mean);

#endif
