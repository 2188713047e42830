// SPDX-License-Identifier: Apache-2.0
// One pair of launches that took turns: the log ratio of the sides from its couples of neighbouring
// blocks. A neighbour on the machine hits both blocks of a couple, so the ratio of a couple hardly
// moves; the Hodges-Lehmann estimate over the couples drops those where the neighbour came or went
// between.
#ifndef UPGATE_ANALYSE_TURNS_H
#define UPGATE_ANALYSE_TURNS_H

#include <stdbool.h>

enum { TURNS_SIDES = 2, TURNS_COUPLES_MAX = 2000 }; // more couples are averaged by neighbours first

enum { TURNS_MEDIAN_STEPS_MIN = 5 };

// A block of one side, in times of its steps. NAN: not known (a block of one step has no rest).
struct turns_block {
    double mean_ns;                      // of all steps
    double median_ns;                    // of all steps; NAN below TURNS_MEDIAN_STEPS_MIN
    double rest_ns;                      // mean of all but the first
    double first_ns, middle_ns, last_ns; // single steps
};

struct turns_couple {
    struct turns_block sides[TURNS_SIDES];
};

// What of a block is compared. The median leaves out the steps in which somebody else had the
// processor: on a machine with 7 runnable tasks on 2 CPUs it brought the sd of a pair from 2.9 to
// 0.9 %. It says nothing where steps only enqueue work and the last one waits for it (a GPU): then
// the mean counts.
enum turns_estimator {
    TURNS_MEDIAN,
    TURNS_MEAN,
    TURNS_REST, // the mean without the first step, which is measurably colder
    TURNS_ESTIMATOR_COUNT
};

struct turns_result {
    double log_ratio; // ln(b / a); NAN without a couple
    double within_sd; // standard error of log_ratio; NAN below 2 couples
    int couples;      // used
    enum turns_estimator estimator;
    bool first_cold; // the first step of blocks is measurably colder, on one side at least
    // The last step of blocks takes twice the middle one: it waits for what the others only
    // enqueue, and no single step says anything.
    bool last_waits;
};

// The time of a block by an estimator; NAN: not known.
double turns_block_time(const struct turns_block *block, enum turns_estimator estimator);
struct turns_result turns_ratio(const struct turns_couple *couples, int count);
// The same over log ratios that are made already (throughput of blocks).
struct turns_result turns_center(const double *log_ratios, int count);

#endif
