// SPDX-License-Identifier: Apache-2.0
// What repeats: a program calls one optimizer, or several in turn (a GAN), again and again; or one
// model, or an encoder and a decoder. A round is over when each that takes part has had its turn.
// Who takes part is learnt in the first rounds, and depends on the order of the calls only, never
// on time, so that both sides of an upgrade are cut at the same calls.

#include "_find_cycle.h"

// One that came once (a model that is run once to make it ready) is missed for this many turns of
// one that came later; one that comes now and then, for CYCLE_WAIT_MAX.
#define WAIT_FOR_ONCE 2

static void drop(struct cycle *cycle, unsigned at)
{
    for (unsigned i = at; i + 1 < cycle->count; i++) {
        cycle->keys[i] = cycle->keys[i + 1];
    }
    cycle->count--;
    cycle->changed = true;
}

// Those whose turn does not come while `at` has had several: the rarer one does not take part.
static void drop_missing(struct cycle *cycle, unsigned at)
{
    const struct cycle_key key = cycle->keys[at];

    for (unsigned i = cycle->count; i-- > 0;) {
        const struct cycle_key *other = &cycle->keys[i];
        bool once = other->count == 1 && i < at;

        if (other->key == key.key || other->seen > 0 ||
            key.seen < (once ? WAIT_FOR_ONCE : CYCLE_WAIT_MAX) || other->count > key.count) {
            continue;
        }
        drop(cycle, i);
        at -= i < at ? 1 : 0;
    }
    // It came often while one that has come more often did not: then it is the one that does not.
    if (key.seen >= CYCLE_WAIT_MAX) {
        for (unsigned i = 0; i < cycle->count; i++) {
            if (cycle->keys[i].seen == 0) {
                drop(cycle, at);
                return;
            }
        }
    }
}

static bool is_over(struct cycle *cycle)
{
    for (unsigned i = 0; i < cycle->count; i++) {
        if (cycle->keys[i].seen == 0) {
            return false;
        }
    }
    return cycle->count > 0;
}

bool cycle_ended(struct cycle *cycle, const void *key)
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
        cycle->keys[cycle->count++] = (struct cycle_key){.key = key};
        cycle->changed = true;
    }
    cycle->strangers = 0;
    cycle->keys[at].count++;
    cycle->keys[at].seen++;
    drop_missing(cycle, at);
    if (!is_over(cycle)) {
        return false;
    }
    for (unsigned i = 0; i < cycle->count; i++) {
        cycle->keys[i].seen = 0;
    }
    cycle->rounds++;
    return true;
}
