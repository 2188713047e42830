// SPDX-License-Identifier: Apache-2.0
// What counters grew by between two looks, series by series. A series that begins anew counts from
// zero; a sum of series that falls counts nothing (how much of it began anew cannot be known), and
// is told. One that falls a little, to more than a new life can have counted since, is behind (two
// Prometheus answer at one address) and counts nothing until it is beyond. The first look at a
// series is where it is counted from.
#ifndef UPGATE_HARNESS_CANARY_SOURCES_COUNTER_H
#define UPGATE_HARNESS_CANARY_SOURCES_COUNTER_H

#include "common/containers/map.h"
#include "harness/canary/sources/prometheus_answer.h"
#include "reports/analyse/canary/second.h"

struct counter { // of one query; `= {0}` is one that was never looked at
    struct counter_series {
        char *labels;
        double counted; // what was counted up to now, of its present life; a fraction below 1 is
                        // left over
        double le;
        double at_s;          // of the last look that it was not behind at, by Prometheus's clock
        double fastest, most; // without what began anew: a second, between two looks
        uint64_t grown;       // by the last look
    } * series;
    int count;
    struct map by_labels; // hash of the labels -> series
    bool looked;
};

struct counter_look {
    uint64_t grown;  // all series together
    uint64_t fallen; // sums that fell
    uint64_t behind; // series that fell, and did not begin anew
    bool began;      // a series is there that was not before
    bool full; // one that was not before has no room: PROMETHEUS_SAMPLES_MAX of them have been
               // there, and it is in no number here
};

// from_zero: a series that is there for the first time, though not at the first look, counts from
// zero, as a counter of errors does that comes with the first error; else from where it is.
void counter_look(struct counter *counter, const struct prometheus_answer *answer, bool from_zero,
        struct counter_look *ret);
void counter_free(struct counter *counter);

// What the buckets of the last look grew by, added to bins: each bucket at the geometric middle of
// its borders (seconds).
void counter_bins(const struct counter *counter, uint32_t bins[CANARY_BINS]);

#endif
