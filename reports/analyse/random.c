// SPDX-License-Identifier: Apache-2.0
// splitmix64 and the two distributions drawn from it.
#include "reports/analyse/random.h"

#include <math.h>

uint64_t random_next(struct random_state *state)
{
    uint64_t z = state->word += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

double random_uniform(struct random_state *state)
{
    return (double)(random_next(state) >> 11) * 0x1p-53;
}

double random_normal(struct random_state *state)
{
    double radius = sqrt(-2 * log(1 - random_uniform(state)));
    return radius * cos(2 * M_PI * random_uniform(state));
}
