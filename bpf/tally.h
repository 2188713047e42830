/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Facts that may come in floods are summed up: a tally is a series of those of one thread and kind.
 * Here is what it holds, and where in the table of all it stands. A place may be taken from a
 * series that has ended, never from one that goes on: two that took it from each other would be
 * sent with each fact.
 */
#ifndef UPGATE_BPF_TALLY_H
#define UPGATE_BPF_TALLY_H

#ifndef __bpf__
#include <stdbool.h>
#endif

#include "bpf/events.h"

enum {
    UG_TALLIES = 2048,       /* a power of two */
    UG_TALLY_WAYS = 8,       /* places that one may have */
    UG_TALLY_NS = 100000000, /* a pause of that length ends it; so long it is summed up */
};

struct ug_tally {
    __u64 key; /* thread id << 32 | enum ug_fact_what; 0: never used */
    __u64 begin_ns;
    __u64 last_ns;
    __u64 value[3];
    struct ug_task actor;
    bool target, unsent;
    __u16 flags;
};

/* Index of the tally of this key, else of one that it may have. UG_TALLIES: all of those go on. */
static inline __attribute__((always_inline)) __u32 ug_tally_place(
        const struct ug_tally *tallies, __u64 key, __u64 now)
{
    __u32 first = (__u32)(key >> 32) * 31 + (__u32)key, unused = UG_TALLIES;

    for (__u32 i = 0; i < UG_TALLY_WAYS; i++) {
        __u32 place = first + i;

        asm volatile("" : "+r"(place)); /* old verifiers want the mask, which compilers take away */
        place &= UG_TALLIES - 1;
        if (tallies[place].key == key)
            return place;
        if (unused == UG_TALLIES &&
                (!tallies[place].key || tallies[place].last_ns + UG_TALLY_NS <= now))
            unused = place;
    }
    return unused;
}

#endif
