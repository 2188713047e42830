// SPDX-License-Identifier: Apache-2.0
// The last mapping events of the whole machine: a process may have mapped, run and ended before
// anybody asks for its addresses. Bounded; the oldest go.
#ifndef UPGATE_TRACER_SYMBOLS_HELD_EVENTS_H
#define UPGATE_TRACER_SYMBOLS_HELD_EVENTS_H

#include <stddef.h>

#include "common/mapping_event.h"

enum { HELD_BYTES = 256 << 10 }; // of each half: 1,300 events, 200 programs started

struct held_events { // = {0} is empty
    char *halves[2]; // one is filled; when it is full, the other is forgotten
    size_t used[2];
    int filling;
};

void held_events_add(struct held_events *held, const struct mapping_event *event);
// Those of a process since since_ns, in the order they came in.
void held_events_each(const struct held_events *held, pid_t tgid, uint64_t since_ns,
        void (*each)(void *context, const struct mapping_event *event), void *context);
void held_events_free(struct held_events *held);

#endif
