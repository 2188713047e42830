// SPDX-License-Identifier: Apache-2.0
// How much more counts vary than independent events would: events that come in bursts of b are
// worth 1/b each. Learnt from pairs of blocks whose split should be binomial: of the baseline in
// neighbouring blocks of 1 and of 10 seconds (what drifts slowly is the same in both), and, in an
// A/A stage, of both arms in one block. A candidate's own bursts are news and not learnt from. But
// where bursts begin in the middle of a rollout, the baseline's take a minute to show; until then
// how the events of both arms together come, the present second included, guards the test: which
// arm they hit is not looked at, so that nothing is decided by it, and it never lifts the
// dispersion above that of bursts of 4.
#ifndef UPGATE_REPORTS_ANALYSE_CANARY_DISPERSION_H
#define UPGATE_REPORTS_ANALYSE_CANARY_DISPERSION_H

enum { CANARY_SCALES = 2, CANARY_MEMORIES = 2 };

struct canary_pairs {  // sums over pairs of blocks
    double deviations; // squared, over share (1 - share): `events` times the dispersion, on average
    double events;
    double known; // what the pairs tell, in events
};

struct canary_dispersion {
    struct canary_block {
        double events[2], requests[2]; // of both arms, or of the baseline and 0
        int seconds;                   // in the block that is being filled
    } now[CANARY_SCALES], before[CANARY_SCALES];
    struct canary_pairs pairs[CANARY_SCALES];
    // of both arms together: a short memory and a longer one
    struct canary_pairs together[CANARY_MEMORIES];
    double together_events, together_requests; // of the second before
};

// One second of the baseline, and of the second baseline in an A/A stage (else 0 and 0).
void canary_dispersion_add(struct canary_dispersion *dispersion, double events, double requests,
        double events_second, double requests_second);
// First of a second: events and requests of both arms together.
void canary_dispersion_see(struct canary_dispersion *dispersion, double events, double requests);
// 1 at least; what lies above 1 is taken for a fifth more than was found. Before anything is learnt
// that of bursts of 4: what lifts false alarms of a plain test from 0.1 to 20 % is not taken for
// four independent errors. A few dozen events outweigh it, of both arms together, too: a candidate
// whose errors come alone beside a baseline without any is not held back.
double canary_dispersion_value(const struct canary_dispersion *dispersion);

#endif
