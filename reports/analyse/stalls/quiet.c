// SPDX-License-Identifier: Apache-2.0
// A main thread that hardly ran: idle, or hung? A wait for work and a wait for what never comes
// look the same. When nothing else is found, the longest such wait is told, and who reads it
// decides.
#include <string.h>

#include "reports/analyse/stalls/group.h"

// The function that a person knows: of Python, else native, else the kernel's behind the scheduler.
static const char *quiet_function(const struct trace *trace, const struct trace_gap *gap)
{
    const uint32_t stacks[] = {gap->python, gap->user, gap->kernel};
    for (size_t k = 0; k < sizeof stacks / sizeof stacks[0]; k++) {
        const struct trace_stack *row = &trace->stacks[stacks[k]];
        for (uint32_t i = 0; i < row->count; i++) {
            const char *name = trace->frames[trace->stack_frames[row->first + i]].name;
            if (!strstr(name, "schedule") && name[0] != '[' && strncmp(name, "__traceiter", 11))
                return name;
        }
    }
    return NULL;
}

void quiet_find(const struct work *work, struct stalls *stalls)
{
    enum { RAN_SHARE = 50, WAIT_SHARE = 2 };
    const struct trace *trace = work->trace;
    const struct part *longest = NULL;
    for (size_t i = 0; i < work->part_count; i++) {
        const struct part *part = &work->parts[i];
        const struct trace_thread *thread = &trace->threads[part->thread];
        if (part->soft != SOFT_NO && part->gap != TRACE_NONE && thread->main &&
                trace_is_target(trace, part->thread) &&
                thread->run_ns * RAN_SHARE < trace->window_ns &&
                (part->end - part->begin) * WAIT_SHARE >= trace->window_ns &&
                (!longest || part->end - part->begin > longest->end - longest->begin))
            longest = part;
    }
    if (!longest)
        return;
    const struct trace_gap *gap = &trace->gaps[longest->gap];
    stalls->quiet = describe_task(trace, longest->thread);
    stalls->quiet_ns = longest->end - longest->begin;
    stalls->quiet_function = quiet_function(trace, gap);
    stalls->quiet_target = gap->target ? trace->texts[gap->target] : NULL;
}
