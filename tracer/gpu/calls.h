// SPDX-License-Identifier: Apache-2.0
// Calls of one process that wait for what they launched: found by correlation id. Two tables: calls
// come into the young one; every four seconds, or when it is full, the old one is given up and the
// young one becomes the old. Bounded.
#ifndef UPGATE_TRACER_GPU_CALLS_H
#define UPGATE_TRACER_GPU_CALLS_H

#include <stdbool.h>
#include <stdint.h>

enum call_flags {
    CALL_USED = 1,
    CALL_MATCHED = 2,  // something that it launched was seen
    CALL_LAUNCHES = 4, // by its name
    CALL_GRAPH = 8,    // launches many
};

struct call {
    uint64_t start_gpu, end_gpu;
    uint32_t arrived_ms; // on CLOCK_MONOTONIC, cut to 32 bits
    uint32_t correlation;
    uint32_t name; // string id of the process
    uint32_t tid;
    int32_t result;
    uint32_t flags;
};

struct calls;

enum { CALLS_SLOTS_MAX = 1 << 20 }; // of all processes: 40 MiB

// given_up: a call that is not remembered any more; matched ones only of graphs. slots_left: what
// all tables together may still grow by.
struct calls *calls_new(int64_t *slots_left,
        void (*given_up)(void *context, const struct call *call), void *context);
void calls_free(struct calls *calls); // NULL ok; gives nothing up
void calls_add(struct calls *calls, const struct call *call, int64_t now_ns);
// until the next calls_add or calls_age
struct call *calls_find(struct calls *calls, uint32_t correlation);
// of calls_find: something that it launched was seen
void calls_matched(struct calls *calls, struct call *call);
void calls_age(struct calls *calls, int64_t now_ns);
void calls_flush(struct calls *calls);             // gives all up, oldest first
uint64_t calls_crowded(const struct calls *calls); // given up early for want of room

#endif
