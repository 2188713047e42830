// SPDX-License-Identifier: Apache-2.0
// Planted regressions: what a version that got slower does in every step. Each kind takes its share
// of a step in one way that real upgrades have: a fill, a copy, page faults, a lock that somebody
// else holds, and so on.
//
// The share is found from the steps themselves: what a step took without the plants is known from
// those before it, and what a unit of a plant runs over is taken off the next step. One thread,
// between the marks of a step.
#ifndef UPGATE_NATIVE_REGRESS_H
#define UPGATE_NATIVE_REGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"
#include "reference_models/native/plant.h"
#include "reference_models/native/pool.h"

struct regress;

// NULL in *ret_regress: nothing of the kind is planted; every call below takes it. The plant
// outlives it. last: the rank that straggles.
int regress_new(const struct plant *plant, struct pool *pool, bool last,
        struct regress **ret_regress, struct error *err);
void regress_free(struct regress *regress);

void regress_begin(struct regress *regress);   // in the step, first
void regress_data(struct regress *regress);    // in the phase that gets the data
void regress_forward(struct regress *regress); // in the phase that computes
void regress_end(struct regress *regress);     // in the step, last

#endif
