// SPDX-License-Identifier: Apache-2.0
// A ring of seconds.
#include "harness/canary/sources/timeline.h"

#include <math.h>
#include <string.h>

// seconds before the begin that may still be told, by counters that grew in them
enum { TIMELINE_BEFORE = 60 };

void timeline_begin(struct timeline *timeline, int64_t monotonic_ns, int64_t wall_ns)
{
    memset(timeline, 0, sizeof *timeline);
    timeline->ahead_ns = wall_ns - monotonic_ns;
    timeline->taken_s = wall_ns / 1000000000 - TIMELINE_BEFORE;
    timeline->newest_s = timeline->taken_s;
}

void timeline_tick(struct timeline *timeline, int64_t monotonic_ns, int64_t wall_ns)
{
    if (wall_ns - monotonic_ns > timeline->ahead_ns)
        timeline->ahead_ns = wall_ns - monotonic_ns;
}

int64_t timeline_second_of(const struct timeline *timeline, int64_t monotonic_ns)
{
    return (monotonic_ns + timeline->ahead_ns) / 1000000000;
}

static struct timeline_slot *timeline_slot(struct timeline *timeline, int64_t at_s)
{
    return &timeline->slots[at_s % TIMELINE_SECONDS];
}

static void timeline_discard(struct timeline *timeline, int64_t until_s)
{
    for (int i = 0; i < TIMELINE_SECONDS; i++) {
        struct timeline_slot *slot = &timeline->slots[i];
        if (!slot->at_s || slot->at_s > until_s)
            continue;
        for (int arm = 0; arm < TIMELINE_ARMS; arm++)
            timeline->discarded += slot->arms[arm].requests;
        slot->at_s = 0;
    }
    timeline->taken_s = until_s;
}

struct canary_second *timeline_at(struct timeline *timeline, int64_t at_s, enum timeline_arm arm)
{
    if (at_s <= timeline->taken_s)
        return NULL;
    if (at_s > timeline->taken_s + TIMELINE_SECONDS)
        timeline_discard(timeline, at_s - TIMELINE_SECONDS);
    struct timeline_slot *slot = timeline_slot(timeline, at_s);
    if (slot->at_s != at_s) {
        memset(slot->arms, 0, sizeof slot->arms);
        slot->at_s = at_s;
    }
    if (at_s > timeline->newest_s)
        timeline->newest_s = at_s;
    return &slot->arms[arm];
}

bool timeline_add(
        struct timeline *timeline, enum timeline_arm arm, const struct timeline_request *request)
{
    struct timeline_total *total = &timeline->totals[arm];
    total->requests++;
    total->errors += request->error;
    total->refused += request->refused;
    total->given_up += request->given_up;
    struct canary_second *second =
            timeline_at(timeline, timeline_second_of(timeline, request->end_ns), arm);
    if (!second)
        return false;
    second->requests++;
    second->errors += request->error;
    second->truncated += request->truncated;
    second->wrong += request->wrong;
    second->rejected += request->rejected;
    if (!request->error && !isnan(request->latency_s))
        second->bins[canary_bin(request->latency_s)]++;
    return true;
}

static uint64_t timeline_carry(uint64_t count, uint64_t requests, uint64_t *left)
{
    uint64_t all = count + *left, now = all < requests ? all : requests;
    *left = all - now;
    return now;
}

static void timeline_settle(struct timeline *timeline, struct timeline_slot *slot)
{
    for (int arm = 0; arm < TIMELINE_ARMS; arm++) {
        struct canary_second *second = &slot->arms[arm];
        second->errors =
                timeline_carry(second->errors, second->requests, &timeline->errors_left[arm]);
        second->wrong = timeline_carry(second->wrong, second->requests, &timeline->wrong_left[arm]);
    }
}

bool timeline_take(struct timeline *timeline, int64_t until_ns, bool aa, int64_t *ret_at_s,
        struct canary_second ret_arms[CANARY_ARMS])
{
    int64_t until_s = timeline_second_of(timeline, until_ns); // the first that is not finished
    if (until_s > timeline->newest_s + 1)
        until_s = timeline->newest_s + 1;
    for (int64_t at_s = timeline->taken_s + 1; at_s < until_s; at_s++) {
        struct timeline_slot *slot = timeline_slot(timeline, at_s);
        if (slot->at_s != at_s)
            continue;
        enum timeline_arm second = aa ? TIMELINE_BASELINE2 : TIMELINE_CANDIDATE;
        slot->at_s = 0;
        timeline->taken_s = at_s;
        timeline_settle(timeline, slot);
        if (!slot->arms[TIMELINE_BASELINE].requests && !slot->arms[second].requests)
            continue;
        ret_arms[CANARY_BASELINE] = slot->arms[TIMELINE_BASELINE];
        ret_arms[CANARY_CANDIDATE] = slot->arms[second];
        *ret_at_s = at_s;
        return true;
    }
    return false;
}
