// SPDX-License-Identifier: Apache-2.0
// A small generator for simulations: the same seed gives the same numbers on every
// machine. Not for secrets, and not what the schedule flips its coins with.
#ifndef UPGATE_ANALYSE_RANDOM_H
#define UPGATE_ANALYSE_RANDOM_H

#include <stdint.h>

struct random_state {
    uint64_t word;
};

uint64_t random_next(struct random_state *state);  // splitmix64
double random_uniform(struct random_state *state); // [0, 1)
double random_normal(struct random_state *state);  // mean 0, sd 1

#endif
