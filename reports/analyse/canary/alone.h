// SPDX-License-Identifier: Apache-2.0
// Where no baseline is left (100 %): ten seconds of the candidate beside the baseline's own ten
// seconds earlier in the rollout. The traffic of an earlier time is no control, so this is a
// tripwire and no test: it asks for several times what the baseline ever showed, for thirty
// seconds. Pure: no clock, no store.
#ifndef UPGATE_REPORTS_ANALYSE_CANARY_ALONE_H
#define UPGATE_REPORTS_ANALYSE_CANARY_ALONE_H

#include <stdbool.h>
#include <stdint.h>

#include "reports/analyse/canary/evidence.h"
#include "reports/analyse/canary/second.h"

enum {
    CANARY_ALONE_KEPT = 512,   // windows of the baseline: 85 minutes; of a longer rollout every
                               // second one, every fourth …
    CANARY_ALONE_RUN = 3,      // windows in a row that fail
    CANARY_ALONE_SECONDS = 10, // of a window, with requests, and …
    CANARY_ALONE_REQUESTS = 100,
    CANARY_ALONE_TIMES = 200, // one of the baseline for so many of the candidate, or one in all, is
                              // a stray: of a connection kept open
};

struct canary_alone { // {0}: nothing yet
    struct canary_alone_window {
        struct canary_second sum;
        uint64_t strays; // of the baseline, in the candidate's
        int seconds;
    } baseline, candidate; // that are being filled
    double kept[CANARY_METRICS][CANARY_ALONE_KEPT];
    int kept_count;
    uint64_t seen, stride; // windows of the baseline ever; one in `stride` is kept
    int windows; // whole ones of the candidate since the baseline was last more than strays; 0: it
                 // is there
    struct canary_alone_metric {
        double value, usual; // of the newest window; what the baseline had at most: 19 in 20 of its
                             // windows from 20 on. s, or a fraction
        int run;             // windows in a row beyond
        double events[CANARY_ALONE_RUN]; // of counts, in the newest windows
    } metrics[CANARY_METRICS];
};

// The next second. The candidate's counts where `compares` (not of an A/A stage), and where the
// baseline has no more than strays.
void canary_alone_add(struct canary_alone *alone, const struct canary_second arms[CANARY_ARMS],
        const struct canary_rules *rules, bool compares);

// Beyond so many times the usual: of rates twice as many as of latencies.
double canary_alone_times(const struct canary_rules *rules, enum canary_metric metric);
// Beyond in CANARY_ALONE_RUN windows in a row; rates with more than eight events in them (two
// bursts of four are no regression).
bool canary_alone_fails(const struct canary_alone *alone, enum canary_metric metric);
// There is something to be held against, and the newest window does not say that all is well, or is
// not whole yet.
bool canary_alone_open(const struct canary_alone *alone, enum canary_metric metric);

#endif
