// SPDX-License-Identifier: Apache-2.0
// Slow steps of a launch: those that take at least twice the typical one, so each costs a whole
// step. They are few, and so move no median; what they cost in sum is a claim of its own.
#ifndef UPGATE_ANALYSE_SLOW_STEPS_H
#define UPGATE_ANALYSE_SLOW_STEPS_H

#include <stdint.h>

enum {
    SLOW_STEPS_KEPT = 64,
    SLOW_STEPS_TOLD = 4 // steps of every launch that are told by their indices
};

struct slow_steps {
    int count, of;               // slow ones, of so many steps
    double typical_ns;           // median of all; NAN without a step
    double lost_ns;              // beyond the typical step, in the slow ones
    double slow_ns;              // median duration of a slow one; NAN without one
    double limit_ns;             // what takes so long, or longer, is slow; NAN without a step
    int64_t at[SLOW_STEPS_KEPT]; // indices of the first ones
    int period; // in steps: they come every so many; 0: no period, or too few to tell
};

// Those of several launches of one side together.
struct slow_steps_sum {
    long count, of;
    double slow_ns, typical_ns;  // medians over launches; NAN
    int period;                  // that three launches of four show; 0: none
    int64_t at[SLOW_STEPS_TOLD]; // steps that are slow in three launches of four
    int at_count;
};

// idx[i] is the index of the step that took durations[i] (> 0). excused[i] of it, or NULL: what the
// machine took from the step; a step is slow by what is left.
struct slow_steps slow_steps_find(
        const int64_t *idx, const double *durations, const double *excused, int count);
// Of requests whose tail is asked for: those at and beyond the quantile p, however long they take.
struct slow_steps slow_steps_tail(const int64_t *idx, const double *durations, int count, double p);
// The period of slow steps `idx` (rising) among all steps [from, to): nine in ten steps that are so
// far apart are slow, more of them than chance makes of so many slow ones (1 % for all periods and
// phases together). Others between them, which noise makes, do not hide it. 0: none.
int slow_steps_period(const int64_t *idx, int count, int64_t from, int64_t to);
// launches: of one side.
struct slow_steps_sum slow_steps_sum(const struct slow_steps *const *launches, int count);

#endif
