// SPDX-License-Identifier: Apache-2.0
// Launches of the baseline alone that parity asks of the run loop: in float64, and once more with a
// seed that it had already. Only where the sides differ: equal bits need no yardstick.
#ifndef UPGATE_GATE_PARITY_LAUNCHES_H
#define UPGATE_GATE_PARITY_LAUNCHES_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"
#include "tracer/store/store.h"

enum {
    PARITY_ANCHOR_STEPS = 8, // of the first anchor
    PARITY_REPEATS_MAX = 4   // half a pair each, and only for a baseline that differs from itself
};

struct parity_launches {
    bool wants_anchor, wants_repeat;
    int64_t anchor_seed, repeat_seed; // of pairs that were run
    int64_t anchor_steps;             // at most: a longer anchor costs no more than a pair
};

// Ask after each pair. The anchor is phase 'anchor', the repetition phase 'pilot', both of side 0.
int parity_launches_wanted(struct store *store, int64_t workload_id,
        struct parity_launches *ret_launches, struct error *err);

#endif
