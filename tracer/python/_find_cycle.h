// SPDX-License-Identifier: Apache-2.0
// What repeats in a program: see _find_cycle.c. Pure: no interpreter, no clock, no allocation.
#ifndef UPGATE_TRACER_PYTHON_FIND_CYCLE_H
#define UPGATE_TRACER_PYTHON_FIND_CYCLE_H

#include <stdbool.h>
#include <stdint.h>

enum { CYCLE_KEYS_MAX = 8, CYCLE_SETTLED = 16, CYCLE_STRANGERS_MAX = 8, CYCLE_WAIT_MAX = 8 };

struct cycle {
    struct cycle_key {
        const void *key;
        uint64_t count; // times that it has ended
        uint32_t seen;  // in this round
    } keys[CYCLE_KEYS_MAX]; // in the order in which they came
    unsigned count;
    uint64_t rounds;
    uint32_t strangers; // ends of others since the last one of a key
    bool changed;       // other keys than at the last question; for whoever tells of it
};

// `key` (an optimizer, a model) has done its part. True: with it a round is over, each of those that
// take part has had its turn.
bool cycle_ended(struct cycle *cycle, const void *key);

#endif
