// SPDX-License-Identifier: Apache-2.0
// The tripwire's view of the candidate: what it has done in the last ten seconds, from one look to
// the next. Pure: no clock, no store.
#ifndef UPGATE_REPORTS_ANALYSE_CANARY_RECENT_H
#define UPGATE_REPORTS_ANALYSE_CANARY_RECENT_H

#include <stdint.h>

enum {
    CANARY_RECENT = 128, // looks in ten seconds at ten a second, and some more
    CANARY_BURSTS = 8,   // errors that are no crash and no regression: two bursts of four
};

struct canary_recent { // {0}: nothing yet
    struct canary_recent_look {
        int64_t at_ns;
        uint64_t requests, errors, refused; // ever, until then
        uint64_t given_up; // of the requests, no errors: by their clients, before an answer began
        uint64_t lost;     // lines of either server
        struct canary_recent_baseline {
            uint64_t requests, errors, refused, given_up;
        } baseline; // likewise; {0}: nothing is known of it
    } looks[CANARY_RECENT];
    int count;
};

// Totals at a moment, later than the last one's. Less than the last one's: they were counted anew,
// and so is this.
void canary_recent_add(struct canary_recent *recent, const struct canary_recent_look *look);

// Error rate over the last ten seconds of looks, or over fewer of the last that hold 100 requests,
// whichever is worse; less eight errors (two bursts of four are no crash). A server that hangs
// makes no error where clients give up sooner than the proxy: what is given up counts as far as it
// is more than twice the baseline's share, `usual`; NaN: that is not known, and nothing of it
// counts. An outage of both is no fault of the candidate: a time in which the baseline failed half
// as much or more counts as 0, where it had 10 requests at least, and more than those eight errors.
// NaN: fewer than 10 requests.
double canary_recent_errors(const struct canary_recent *recent, double usual);
// The same, whatever the baseline did, if each lost line was a request of the candidate that
// failed. NaN also where none was lost in that time.
double canary_recent_errors_lost(const struct canary_recent *recent, double usual);
// Connections in these ten seconds; 0 where the baseline refused half the share or more of its own.
uint64_t canary_recent_refused(const struct canary_recent *recent);
// Both, whatever the baseline did.
double canary_recent_errors_alone(const struct canary_recent *recent, double usual);
uint64_t canary_recent_refused_alone(const struct canary_recent *recent);

#endif
