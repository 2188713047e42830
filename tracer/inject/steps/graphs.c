// SPDX-License-Identifier: Apache-2.0
// Steps by the replays of CUDA graphs, seen by callbacks of CUPTI at the driver, in which every
// call of the runtime ends. A step goes from where the host has returned from a replay to where it
// returns the next time; the first begins with the first replay. Where several graphs are replayed
// in turn, a round of them is one (contracts/step_cycle.h).
//
// For ranges, too, the captures are counted here: a wait for the device in the middle of one would
// end it.
#include "tracer/inject/steps/steps.h"

#include <pthread.h>
#include <stdio.h>

#include "contracts/step_cycle.h"

// Of cupti_driver_cbid.h, where an id once given never changes.
enum graph_call {
    CALL_LAUNCH = 514, // cuGraphLaunch
    CALL_LAUNCH_PTSZ = 515,
    CALL_BEGIN_FIRST = 495, // cuStreamBeginCapture
    CALL_BEGIN_PTSZ = 496,
    CALL_END = 497, // cuStreamEndCapture
    CALL_END_PTSZ = 498,
    CALL_BEGIN_V2 = 539,
    CALL_BEGIN_V2_PTSZ = 540,
    CALL_BEGIN_TO_GRAPH = 720,
    CALL_BEGIN_TO_GRAPH_PTSZ = 721
};

static struct {
    pthread_mutex_t lock; // also while a thread waits at the gate: the others wait for it
    struct cycle cycle;
    bool is_begun;
} graphs = {.lock = PTHREAD_MUTEX_INITIALIZER};

void graphs_enable(const struct cupti *cupti, void *subscriber)
{
    static const uint16_t captures[] = {CALL_BEGIN_FIRST, CALL_BEGIN_PTSZ, CALL_END, CALL_END_PTSZ,
            CALL_BEGIN_V2, CALL_BEGIN_V2_PTSZ, CALL_BEGIN_TO_GRAPH, CALL_BEGIN_TO_GRAPH_PTSZ};

    for (size_t i = 0; i < sizeof(captures) / sizeof(captures[0]); i++)
        // an older CUPTI lacks some
        cupti->enable_callback(1, subscriber, CUPTI_DOMAIN_DRIVER, captures[i]);
    if (steps_rule() == STEPS_GRAPH) {
        cupti->enable_callback(1, subscriber, CUPTI_DOMAIN_DRIVER, CALL_LAUNCH);
        cupti->enable_callback(1, subscriber, CUPTI_DOMAIN_DRIVER, CALL_LAUNCH_PTSZ);
    }
}

static void words(char found[100])
{
    if (graphs.cycle.count > 1)
        snprintf(found, 100, "rounds of %u CUDA graphs", graphs.cycle.count);
    else
        snprintf(found, 100, "replays of a CUDA graph");
}

static void launch_begins(void)
{
    pthread_mutex_lock(&graphs.lock);
    if (!graphs.is_begun && steps_on()) {
        graphs.is_begun = true;
        steps_begin("replays of a CUDA graph");
    }
    pthread_mutex_unlock(&graphs.lock);
}

static void launch_ends(const void *graph)
{
    char found[100];
    bool is_over;

    pthread_mutex_lock(&graphs.lock);
    if (graphs.is_begun && steps_on()) {
        is_over = cycle_ended(&graphs.cycle, graph);
        if (graphs.cycle.changed) {
            graphs.cycle.changed = false;
            words(found);
            steps_are(found);
        }
        if (graphs.cycle.count == CYCLE_KEYS_MAX) {
            steps_give_up("more than 63 CUDA graphs are replayed in turn");
        } else if (is_over) {
            steps_end();
            steps_begin(NULL); // what they are is told
        }
    }
    pthread_mutex_unlock(&graphs.lock);
}

void graphs_callback(uint32_t cbid, const struct cupti_callback_data *call)
{
    bool is_end = call->site == CUPTI_SITE_EXIT;
    bool is_good =
            is_end && call->function_return != NULL && *(const int *)call->function_return == 0;

    switch (cbid) {
    case CALL_LAUNCH:
    case CALL_LAUNCH_PTSZ:
        if (steps_rule() != STEPS_GRAPH || !steps_on() || call->function_params == NULL)
            return;
        if (!is_end)
            launch_begins();
        else if (is_good)
            // hGraphExec is the first of them
            launch_ends(*(const void *const *)call->function_params);
        return;
    case CALL_BEGIN_FIRST:
    case CALL_BEGIN_PTSZ:
    case CALL_BEGIN_V2:
    case CALL_BEGIN_V2_PTSZ:
    case CALL_BEGIN_TO_GRAPH:
    case CALL_BEGIN_TO_GRAPH_PTSZ:
        if (is_good)
            steps_captures(1);
        return;
    case CALL_END:
    case CALL_END_PTSZ:
        if (is_end)
            steps_captures(-1);
        return;
    default:
        return;
    }
}

void graphs_child(void)
{
    pthread_mutex_init(&graphs.lock, NULL);
    graphs.cycle = (struct cycle){0};
    graphs.is_begun = false;
}
