// SPDX-License-Identifier: Apache-2.0
// The stage that estimates: how long a step takes untraced, what of both sides is compared with
// what, how large the difference of one thing is and how sure. Internal to this room and its unit
// tests.
#ifndef UPGATE_DIFF_ESTIMATE_H
#define UPGATE_DIFF_ESTIMATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "contracts/metrics.h"
#include "reports/analyse/diff/diff_input.h"

struct diff_cell {                   // of the workload, as it was judged
    double a, ratio, lo, hi, margin; // NAN: not measured
    bool gates, fails, inconclusive; // its verdict, whether it gates or not
    const char *unit;                // "": there is no such cell
};

// What launches that were not traced say (measure.c). NAN: not measured.
struct diff_untraced {
    const char *unit; // "step", "request", "launch"
    bool launches;    // it is the launch
    double step[2], delta, lo, hi;
    bool mean;      // the mean step is compared: its change is another one than the median's
    double *ratios; // ln(b / a) of each pair
    size_t ratio_count;
    struct diff_untraced_once {
        double of[2], lo, hi; // bounds: of b - a
    } cold, cpu;              // first step; CPU time of a launch, all threads
};

// What is compared with what: blocks of one couple, or runs of windows where launches took no
// turns.
struct diff_unit {
    uint32_t pair;
    int32_t couple; // or the number of the batch
    int side;       // -1: a couple, has both
    double steps[2], wall[2];
};

struct diff_units {
    struct diff_unit *units;
    size_t count;
    uint32_t *of_window[2]; // UINT32_MAX: left out
    double *steps[2];       // of each window, in units of what is compared
    double total_steps[2], total_wall[2];
    double scale[2];   // untraced over traced
    double step_half;  // of the step that all is scaled to: half of its interval, a share of it
    double distortion; // by how much tracing can have moved what it did not slow: a share
    size_t used[2], left_out;
    uint32_t pairs; // with units of both sides
};

struct diff_estimate {
    double a, b, delta; // ns a step, scaled
    // of delta, by what launches of a side differ by; degrees 0: one launch a side
    double variance, degrees;
    double within;      // the same, by what windows within a launch differ by
    double squares;     // (a^2 + b^2) / launches of a side: variance, were it all of the size
    double step_half;   // what the untraced step's interval and unlike tracing of the sides add to
                        // half of the interval
    uint32_t units_hit; // in which it has any time
    double nearest;     // of the pairs' differences the one nearest to 0, 0 where signs differ
    bool agrees;        // every pair of launches says the same sign, and none next to nothing
};

enum { DIFF_PRIOR_KNOWN = 8 };

struct diff_prior { // what all contributions of a store say about the spread of one (prior.c)
    double relative, scale; // variance: scale x (within + relative^2 x squares)
    double degrees;         // what it counts for; 0: nothing
    struct {
        double p, degrees, t;
    } known[DIFF_PRIOR_KNOWN]; // quantiles of t: slow, and few
    size_t next;
};

// measure.c, too
int diff_cells(
        const struct diff_input *input, struct diff_cell cells[METRIC_COUNT], struct error *err);
// ret is filled also when it fails.
int diff_measure(const struct diff_input *input, struct diff_notes *notes,
        struct diff_untraced *ret, struct error *err);
// Of finished trees. False: there is nothing to compare. The caller clears ret, also then.
bool diff_units_make(const struct cost_tree *const trees[2], const struct diff_untraced *untraced,
        struct diff_units *ret);
void diff_units_clear(struct diff_units *units);
// step_half and distortion: the spread of the step from pair to pair, untraced and traced.
// estimate.c
void diff_units_step(struct diff_units *units, const struct diff_untraced *untraced);
// ns[side][unit]: what one thing took, unscaled.
void diff_units_estimate(
        const struct diff_units *units, double *const ns[2], struct diff_estimate *ret);
void diff_prior_learn(
        struct diff_prior *prior, const struct diff_estimate *const *things, size_t count);
// Half the width of the interval for one of `count` things told at once; NAN: none. 99 % for all:
// halves of 0.8 % for contributions and for places, 0.2 % for the step.
double diff_units_half(struct diff_prior *prior, const struct diff_units *units,
        const struct diff_estimate *estimate, size_t count);
// The same of one thing that is asked for by itself, at 0.4 %: by its own launches, whatever the
// others spread by.
double diff_units_half_own(struct diff_prior *prior, const struct diff_estimate *estimate);
// The same, had many launches differed as these few do.
double diff_units_half_of_many(const struct diff_prior *prior, const struct diff_units *units,
        const struct diff_estimate *estimate, size_t count);
// Could launches of two kinds that differ by as much have fallen so that each side has those of one
// kind, in one run of 200? An autotuner's choice stays for a launch. Not asked where the untraced
// step says the same sign.
bool diff_units_modes(const struct diff_untraced *untraced, uint32_t pairs, double delta);

#endif
