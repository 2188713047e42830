// SPDX-License-Identifier: Apache-2.0
// Events one behind the other, each followed by its path.
#include "tracer/symbols/held_events.h"

#include <stdlib.h>
#include <string.h>

#include "common/strings.h"

// Rounded up so that the next one is aligned.
static size_t held_bytes(size_t path_len)
{
    return (sizeof(struct mapping_event) + path_len + 1 + 7) & ~(size_t)7;
}

void held_events_add(struct held_events *held, const struct mapping_event *event)
{
    size_t len = strlen(event->path), bytes = held_bytes(len);
    if (bytes > HELD_BYTES)
        return;
    if (held->used[held->filling] + bytes > HELD_BYTES) {
        held->filling = !held->filling;
        held->used[held->filling] = 0;
    }
    char **half = &held->halves[held->filling];
    if (!*half)
        *half = xcalloc(1, HELD_BYTES);
    char *at = *half + held->used[held->filling];
    memcpy(at, event, sizeof(*event));
    memcpy(at + sizeof(*event), event->path, len + 1);
    held->used[held->filling] += bytes;
}

static void held_half_each(const char *half, size_t used, pid_t tgid, uint64_t since_ns,
        void (*each)(void *context, const struct mapping_event *event), void *context)
{
    for (size_t at = 0; at < used;) {
        struct mapping_event event;
        memcpy(&event, half + at, sizeof(event));
        event.path = half + at + sizeof(event);
        if (event.tgid == tgid && event.at_ns >= since_ns)
            each(context, &event);
        at += held_bytes(strlen(event.path));
    }
}

void held_events_each(const struct held_events *held, pid_t tgid, uint64_t since_ns,
        void (*each)(void *context, const struct mapping_event *event), void *context)
{
    for (int i = 1; i <= 2; i++) { // the half that is filled comes last
        int half = (held->filling + i) % 2;
        held_half_each(held->halves[half], held->used[half], tgid, since_ns, each, context);
    }
}

void held_events_free(struct held_events *held)
{
    free(held->halves[0]);
    free(held->halves[1]);
    *held = (struct held_events){0};
}
