// SPDX-License-Identifier: Apache-2.0
// Evidence from servers that tell their requests by the step protocol (ug_request_done() of
// contracts/upgate_step.h): one step file an arm, any number of processes in it. Their clock is
// ours, or the reader brings it to ours. The files outlive us, as the servers do: what stood there
// at the begin is passed over, and who comes after us reads on.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/strings.h"
#include "harness/canary/sources/sources_internal.h"
#include "harness/steps/reader.h"

#define SOURCE_STEPS_LOOK_NS 50000000LL
#define SOURCE_STEPS_SLOTS \
    256 // processes over the life of a file: it costs memory only as they come

struct source_steps {
    struct source_steps_arm {
        struct source *source;
        enum timeline_arm arm;
        struct reader *reader;
        bool cut;      // somebody made the file shorter: what would be read is no longer there
        bool unplaced; // somebody is in a time namespace whose clock cannot be compared with ours
        uint64_t missed[SOURCE_STEPS_SLOTS]; // of a process: records for which there was no room,
                                             // or of such a clock, as counted so far
    } arms[CANARY_ARMS];
    int64_t now_ns, read_ns;
    uint64_t steps; // marks of steps, which are no requests
    bool damaged;
};

static void source_steps_pass_over(void *arg, uint32_t slot, const struct ug_step_record *record)
{
    (void)arg, (void)slot, (void)record;
}

// What a process had to leave out since the last look. One that came between two looks, as if we
// had been there.
static uint64_t source_steps_missed(struct source_steps_arm *arm, uint32_t slot)
{
    struct reader_counters counters;
    if (reader_counters(arm->reader, slot, &counters))
        return 0;
    uint64_t all = counters.records_dropped + counters.records_unplaced;
    uint64_t missed = all > arm->missed[slot] ? all - arm->missed[slot] : 0;
    arm->missed[slot] += missed;
    arm->unplaced |= missed && counters.records_unplaced;
    return missed;
}

static int source_steps_open(struct source *source, struct error *err)
{
    struct source_steps *steps = xcalloc(1, sizeof *steps);
    const struct reader_opts opts = {
            .slot_count = SOURCE_STEPS_SLOTS, .ring_bytes = 1, .keep = true, .open = true};
    source->own = steps;
    for (int i = 0; i < CANARY_ARMS; i++) {
        struct source_steps_arm *arm = &steps->arms[i];
        *arm = (struct source_steps_arm){.source = source, .arm = (enum timeline_arm)i};
        int rc = reader_create(&arm->reader, source->plan->paths[i], &opts, err);
        if (rc)
            return rc;
        for (uint32_t slot = 0; slot < reader_slot_count(arm->reader); slot++) {
            reader_drain(arm->reader, slot, source_steps_pass_over, NULL, NULL, NULL);
            source_steps_missed(arm, slot);
        }
    }
    return 0;
}

static void source_steps_close(struct source *source)
{
    struct source_steps *steps = source->own;
    for (int i = 0; steps && i < CANARY_ARMS; i++)
        reader_free(steps->arms[i].reader);
    free(steps);
}

static int64_t source_steps_due_ns(const struct source *source)
{
    return ((const struct source_steps *)source->own)->read_ns + SOURCE_STEPS_LOOK_NS;
}

static void source_steps_take(void *arg, uint32_t slot, const struct ug_step_record *record)
{
    struct source_steps_arm *arm = arg;
    struct source *source = arm->source;
    struct source_steps *steps = source->own;
    (void)slot;
    if (record->kind != UG_RECORD_REQUEST) {
        steps->steps++;
        return;
    }
    source->state.seen++;
    if (record->end_ns > (uint64_t)steps->now_ns)
        steps->now_ns = clock_monotonic_ns(); // it ended while we read
    // The process is not trusted: it may write anything here.
    bool whole = record->end_ns <= (uint64_t)steps->now_ns && record->begin_ns <= record->end_ns &&
            record->value >= 0 && record->value < 1000;
    if (!whole) {
        source->state.dropped++;
        return;
    }
    struct timeline_request request = {
            .error = record->value < 100 || record->value >= 500,
            .rejected = record->value >= 400 && record->value < 500,
            .wrong = strcmp(record->name, "wrong") == 0,
            .latency_s = (double)(record->end_ns - record->begin_ns) * 1e-9,
    };
    source_request(source, arm->arm, -1, (int64_t)record->end_ns, &request);
}

static const char *source_steps_name(const struct source_steps_arm *arm)
{
    return arm->source->plan->paths[arm->arm];
}

static void source_steps_read_arm(struct source_steps_arm *arm)
{
    struct source *source = arm->source;
    struct source_steps *steps = source->own;
    arm->cut = reader_truncated(arm->reader);
    for (uint32_t slot = 0; !arm->cut && slot < reader_slot_count(arm->reader); slot++) {
        if (reader_drain(arm->reader, slot, source_steps_take, NULL, arm, NULL)) {
            source->state.lost++; // nobody knows how many
            steps->damaged = true;
        }
        source->state.lost += source_steps_missed(arm, slot);
    }
}

static void source_steps_tell(struct source *source)
{
    struct source_steps *steps = source->own;
    const struct source_state *state = &source->state;
    source_problem(source, "%s", "");
    for (int i = 0; i < CANARY_ARMS; i++) {
        const struct source_steps_arm *arm = &steps->arms[i];
        if (arm->cut) {
            source_problem(source,
                    "%.150s was cut short; remove it, and start its servers and this command again",
                    source_steps_name(arm));
            return;
        }
        if (reader_slot_count(arm->reader) == 0)
            source_problem(source,
                    "no server has come to %.150s yet: is UPGATE_STEPS of its servers this path, and are they "
                    "of the same user?",
                    source_steps_name(arm));
        else if (reader_slot_count(arm->reader) == SOURCE_STEPS_SLOTS &&
                reader_refused_count(arm->reader))
            source_problem(source,
                    "%.150s is full: %d processes have been in it. Remove it, and start its servers and this "
                    "command again",
                    source_steps_name(arm), SOURCE_STEPS_SLOTS);
    }
    if (steps->arms[0].unplaced || steps->arms[1].unplaced)
        source_problem(source,
                "a server is in a time namespace whose clock cannot be compared with the machine's: its requests were passed over");
    else if (steps->damaged)
        source_problem(source, "a server wrote over its own records: some were passed over");
    else if (source->state.problem[0])
        return;
    else if (state->dropped && !state->kept)
        source_problem(
                source, "%llu requests were not understood", (unsigned long long)state->dropped);
    else if (steps->steps && !state->seen)
        source_problem(source,
                "steps come, but no requests: call ug_request_done() or upgate.request_done() when one is answered");
}

static bool source_steps_read(struct source *source, int64_t now_ns)
{
    struct source_steps *steps = source->own;
    uint64_t before = source->state.seen;
    steps->now_ns = steps->read_ns = now_ns;
    for (int i = 0; i < CANARY_ARMS; i++)
        source_steps_read_arm(&steps->arms[i]);
    source->complete_ns = now_ns;
    source_steps_tell(source);
    return source->state.seen != before;
}

const struct source_ops source_steps_ops = {
        source_steps_open, source_steps_close, source_steps_due_ns, source_steps_read};
