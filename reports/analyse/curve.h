// SPDX-License-Identifier: Apache-2.0
// Loss curves of two versions with the same seeds and the same data order. The curves of a pair are
// compared with each other, not with other seeds: a seed moves the loss by a quarter, a version
// should move it by nothing. What is judged is the shift of the mean over a part of the curve,
// relative to the baseline's: noise without a sign averages out, a loss that is too high does not.
// The unit of noise is the same seed run twice by the baseline.
#ifndef UPGATE_ANALYSE_CURVE_H
#define UPGATE_ANALYSE_CURVE_H

#include "reports/analyse/signed_rank.h"

enum curve_part {
    CURVE_WHOLE, // all steps, and each quarter of them
    CURVE_FINAL, // the last tenth
    CURVE_PART_COUNT
};
enum { CURVE_WINDOWS_MAX = 5 };

struct curve_pair {      // two curves of one seed, step by step
    const double *a, *b; // a: the baseline; finite
    int steps;           // that both have
};

struct curve_input {
    const struct curve_pair *pairs;   // candidate and baseline, in the order they ran
    const struct curve_pair *repeats; // the baseline and itself
    int pair_count, repeat_count;
    int steps;     // of the part of the curves that is judged: at most those of most pairs
    double margin; // the mean may move by this fraction, or by what the baseline moves by itself
    double alpha;  // one-sided, of this look
    double factor; // of few: one pair alone may be this many margins off
};

enum curve_state {
    CURVE_EQUAL,   // to the last bit
    CURVE_WITHIN,  // in every window
    CURVE_SHIFTED, // beyond in one
    CURVE_ASTRAY,  // one pair is far beyond what the others, or the baseline's repetitions, do
    CURVE_OPEN,    // more pairs would tell
    CURVE_STATE_COUNT
};

struct curve_window {
    int from, to;
    int pairs;                // that reach its end
    struct interval interval; // of the shift, relative
    double mean;              // of the shifts
    double noise;             // rms shift of the baseline's repetitions; 0: none, or equal
    double margin;            // the larger of the margin and the noise
    double furthest, next;    // the largest shift of one pair, and of the others
    int furthest_pair;
};

struct curve_result {
    enum curve_state state;
    struct curve_window window; // that decided, else the one nearest to its margin
};

struct curve_result curve_compare(const struct curve_input *input, enum curve_part part);
// Relative shift of the mean over steps [from, to): relative to the baseline's mean there, or to a
// tenth of its first loss where that is larger: a loss near 0 has no ratio worth judging. Finite.
double curve_shift(const struct curve_pair *pair, int from, int to);

#endif
