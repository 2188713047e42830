// SPDX-License-Identifier: Apache-2.0
// What repeats: a program calls one optimizer, or several in turn (a GAN), again and again; or one
// model, or an encoder and a decoder; or it replays CUDA graphs. A round is over when each that
// takes part has had its turn. Who takes part is learnt in the first rounds, and depends on the
// order of the calls only, never on time, so that both sides of an upgrade are cut at the same
// calls. Of the CPython extension and the library of CUDA_INJECTION64_PATH, which share nothing
// else. Pure: no clock, no allocation.
#ifndef UPGATE_CONTRACTS_STEP_CYCLE_H
#define UPGATE_CONTRACTS_STEP_CYCLE_H

#include <stdbool.h>
#include <stdint.h>

enum {
    CYCLE_KEYS_MAX = 64, // a step that is cut into pieces may replay a graph for each layer
    CYCLE_SETTLED = 16,
    CYCLE_STRANGERS_MAX = 8,
    // One that came once (a model that is run once to make it ready) is missed for this many turns
    // of one that came later; one that comes now and then, for CYCLE_WAIT_MAX.
    CYCLE_WAIT_FOR_ONCE = 2,
    CYCLE_WAIT_MAX = 8,
    CYCLE_STEPS_MAX = 1 << 20 // of a launch are marked, as many as its rows are taken; from there
                              // on the program runs on without steps
};

struct cycle_key {
    const void *key;
    uint64_t count; // times that it has ended
    uint32_t seen;  // in this round
};

struct cycle {
    struct cycle_key keys[CYCLE_KEYS_MAX]; // in the order in which they came
    unsigned count;
    uint64_t rounds;
    uint32_t strangers; // ends of others since the last one of a key
    bool changed;       // other keys than at the last question; for whoever tells of it
};

static inline void cycle_drop(struct cycle *cycle, unsigned at)
{
    for (unsigned i = at; i + 1 < cycle->count; i++) {
        cycle->keys[i] = cycle->keys[i + 1];
    }
    cycle->count--;
    cycle->changed = true;
}

// Those whose turn does not come while `at` has had several: the rarer one does not take part, or
// all but `at`.
static inline void cycle_drop_missing(struct cycle *cycle, unsigned at)
{
    const struct cycle_key key = cycle->keys[at];

    for (unsigned i = cycle->count; i-- > 0;) {
        const struct cycle_key *other = &cycle->keys[i];
        bool once = other->count == 1 && i < at;

        if (other->key == key.key || other->seen > 0 ||
                key.seen < (once ? CYCLE_WAIT_FOR_ONCE : CYCLE_WAIT_MAX) ||
                other->count > key.count) {
            continue;
        }
        cycle_drop(cycle, i);
        at -= i < at ? 1 : 0;
    }
    if (key.seen < CYCLE_WAIT_MAX) {
        return;
    }
    bool alone = cycle->count > 1;
    for (unsigned i = 0; i < cycle->count; i++) {
        alone = alone && (i == at || cycle->keys[i].seen == 0);
    }
    if (alone) { // none of the old ones comes any more
        cycle->keys[0] = cycle->keys[at];
        cycle->count = 1;
        cycle->rounds = 0;
        cycle->changed = true;
    } else { // it came often while one that has come more often did not: then it is the one that
             // does not
        for (unsigned i = 0; i < cycle->count; i++) {
            if (cycle->keys[i].seen == 0) {
                cycle_drop(cycle, at);
                return;
            }
        }
    }
}

static inline bool cycle_is_over(const struct cycle *cycle)
{
    for (unsigned i = 0; i < cycle->count; i++) {
        if (cycle->keys[i].seen == 0) {
            return false;
        }
    }
    return cycle->count > 0;
}

// `key` (an optimizer, a model, a graph) has done its part. True: with it a round is over, each of
// those that take part has had its turn.
static inline bool cycle_ended(struct cycle *cycle, const void *key)
{
    unsigned at = 0;

    while (at < cycle->count && cycle->keys[at].key != key) {
        at++;
    }
    if (at == cycle->count) {
        // After the first rounds a new one is evaluation, or a second model now and then; but where
        // none of the old ones comes any more, a second training has begun.
        if (cycle->rounds >= CYCLE_SETTLED || cycle->count == CYCLE_KEYS_MAX) {
            if (++cycle->strangers < CYCLE_STRANGERS_MAX) {
                return false;
            }
            cycle->count = at = 0;
            cycle->rounds = 0;
        }
        cycle->keys[at].key = key;
        cycle->keys[at].count = 0;
        cycle->keys[at].seen = 0;
        cycle->count++;
        cycle->changed = true;
    }
    cycle->strangers = 0;
    cycle->keys[at].count++;
    cycle->keys[at].seen++;
    cycle_drop_missing(cycle, at);
    if (!cycle_is_over(cycle)) {
        return false;
    }
    for (unsigned i = 0; i < cycle->count; i++) {
        cycle->keys[i].seen = 0;
    }
    cycle->rounds++;
    return true;
}

#endif
