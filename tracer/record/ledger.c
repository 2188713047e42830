// SPDX-License-Identifier: Apache-2.0
// What a recording counted and what it lost, as rows of the trust ledger. Asks each part of the recorder; the GPU
// side writes its own (tracer/gpu).
#include <inttypes.h>
#include <stdlib.h>

#include "common/strings.h"
#include "tracer/record/recorder.h"

static void ledger_capture(struct recorder *recorder, const int64_t *launch_id)
{
    static const struct {
        const char *producer;
        bool breach;
    } rows[UG_COUNTER_COUNT] = {
        [UG_COUNTER_GAP] = {"bpf.gap", true},    [UG_COUNTER_SAMPLE] = {"bpf.sample", false},
        [UG_COUNTER_LOCK] = {"bpf.lock", true},  [UG_COUNTER_TASK] = {"bpf.task", false},
        [UG_COUNTER_FACT] = {"bpf.fact", false}, [UG_COUNTER_STATE] = {"bpf.state", false}};
    struct ug_counts counts[UG_COUNTER_COUNT];
    capture_counts(recorder->capture, counts);
    for (int i = 0; i < UG_COUNTER_COUNT; i++) {
        char *detail = counts[i].truncated ? xasprintf("%llu with a stack cut short",
                                                       (unsigned long long)counts[i].truncated)
                                           : NULL;
        store_ledger(recorder->store, launch_id, rows[i].producer, "records", (int64_t)counts[i].seen,
                     (int64_t)counts[i].kept, (int64_t)counts[i].dropped, rows[i].breach && counts[i].dropped,
                     detail);
        free(detail);
    }
}

void recorder_ledger(struct recorder *recorder)
{
    const int64_t *launch_id = recorder->launch_id ? &recorder->launch_id : NULL;
    if (recorder->capture)
        ledger_capture(recorder, launch_id);
    if (recorder->retention)
        retention_end(recorder->retention, launch_id);
    int64_t lost = (int64_t)writer_lost(recorder->writer), seen = (int64_t)stacks_seen(recorder->stacks);
    int64_t dropped = (int64_t)stacks_dropped(recorder->stacks);
    if (lost)
        store_ledger(recorder->store, launch_id, "recorder", "rows", -1, -1, lost, 1, "the store could not be written");
    store_ledger(recorder->store, launch_id, "recorder", "stacks", seen, seen - dropped, dropped, 0, NULL);
    if (tasks_dropped(recorder->tasks))
        store_ledger(recorder->store, launch_id, "recorder", "tasks", -1, -1, (int64_t)tasks_dropped(recorder->tasks),
                     1, "more processes or threads at one time than can be remembered");
    // What was not named or walked is no lost event: dropped stays 0, and the detail tells.
    struct symbols_stats symbols;
    symbols_stats(recorder->symbols, &symbols);
    char *detail = xasprintf("%" PRIu64 " without a name", symbols.unknown);
    store_ledger(recorder->store, launch_id, "symbols", "addresses", (int64_t)symbols.lookups,
                 (int64_t)(symbols.lookups - symbols.unknown), 0, 0, detail);
    free(detail);
    if (!recorder->python || !python_found(recorder->python))
        return;
    struct python_counts python;
    python_counts(recorder->python, &python);
    detail = xasprintf("%" PRIu64 " failed, %" PRIu64 " too late, or left out: the cost, or the mmap_lock was taken; %" PRIu64
                       " looks, %" PRIu64 " left out",
                       python.failed, python.skipped, python.looks, python.looks_skipped);
    store_ledger(recorder->store, launch_id, "pystack", "walks", (int64_t)python.wanted, (int64_t)python.walked,
                 0, 0, detail);
    free(detail);
}
