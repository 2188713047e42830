// SPDX-License-Identifier: Apache-2.0
// What a recording counted and what it lost, as rows of the trust ledger. Asks each part of the
// recorder; the GPU side writes its own (tracer/gpu).
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "tracer/record/recorder.h"

static void ledger_add_failed(struct strbuf *text, int rc, const char *what)
{
    if (rc)
        strbuf_add(text, "%s%s: %s", text->len ? ", " : "", what, strerror(-rc));
}

static int ledger_capture(struct recorder *recorder, const int64_t *launch_id, struct error *err)
{
    const enum writer_table none = WRITER_TABLE_COUNT; // such records make no row each
    const struct {
        const char *producer;
        bool breach;
        enum writer_table table;
    } rows[UG_COUNTER_COUNT] = {[UG_COUNTER_GAP] = {"bpf.gap", true, WRITER_GAP},
            [UG_COUNTER_SAMPLE] = {"bpf.sample", false, WRITER_SAMPLE},
            [UG_COUNTER_LOCK] = {"bpf.lock", true, WRITER_LOCK},
            [UG_COUNTER_TASK] = {"bpf.task", false, none},
            [UG_COUNTER_FACT] = {"bpf.fact", false, WRITER_FACT},
            [UG_COUNTER_STATE] = {"bpf.state", false, none},
            [UG_COUNTER_FAULT] = {"bpf.page_fault", false, WRITER_FAULT}};
    struct ug_counts counts[UG_COUNTER_COUNT];
    capture_counts(recorder->capture, counts);
    int rc = 0;
    for (int i = 0; i < UG_COUNTER_COUNT && rc == 0; i++) {
        if (i == UG_COUNTER_FAULT && !capture_samples_faults(recorder->capture))
            continue; // nobody asked for them, as in most recordings. That none was sampled is
                      // known only by this row
        // Kept by the kernel, but not in the store: the evidence is what can be read.
        uint64_t lost = rows[i].table == none ? 0 : writer_lost(recorder->writer, rows[i].table);
        lost = lost < counts[i].kept ? lost : counts[i].kept;
        uint64_t dropped = counts[i].dropped + lost;
        struct strbuf text = {0};
        if (counts[i].truncated)
            strbuf_add(&text, "%" PRIu64 " with a stack cut short", (uint64_t)counts[i].truncated);
        if (lost)
            strbuf_add(&text, "%s%" PRIu64 " could not be written to the store",
                    text.len ? ", " : "", lost);
        if (i == UG_COUNTER_TASK && counts[i].dropped)
            strbuf_add(&text,
                    "each a thread that is not followed, or a birth, an end, a name or a total that is not known");
        // how many is not known
        bool untold = i == UG_COUNTER_GAP && (recorder->waits_rc || recorder->totals_rc);
        if (i == UG_COUNTER_GAP) {
            ledger_add_failed(
                    &text, recorder->waits_rc, "those that went on at the end could not be read");
            ledger_add_failed(&text, recorder->totals_rc, "short ones could not be counted");
        }
        if (i == UG_COUNTER_STATE)
            ledger_add_failed(&text, recorder->look_rc,
                    "who held what others waited for at the end could not be asked");
        rc = store_ledger(recorder->store, launch_id, rows[i].producer, "records",
                (int64_t)counts[i].seen, (int64_t)(counts[i].kept - lost), (int64_t)dropped,
                rows[i].breach && (dropped || untold), text.text, err);
        strbuf_free(&text);
    }
    return rc;
}

// Lost ones cost no row: /proc was read instead, which may have named some addresses wrong.
static int ledger_mappings(struct recorder *recorder, const int64_t *launch_id,
        const struct symbols_stats *symbols, struct error *err)
{
    uint64_t seen, lost;
    if (!capture_mappings(recorder->capture, &seen, &lost))
        return 0;
    struct strbuf text = {0};
    if (lost)
        strbuf_add(&text,
                "the lost ones may be of any process; /proc/PID/maps was read instead, %" PRIu64
                " times",
                symbols->maps_reads);
    if (symbols->mappings_skipped)
        strbuf_add(&text, "%s%" PRIu64 " of targets left out, for what they cost",
                text.len ? "; " : "", symbols->mappings_skipped);
    int rc = store_ledger(recorder->store, launch_id, "symbols", "mappings", (int64_t)seen,
            (int64_t)(seen - lost), (int64_t)lost, 0, text.text, err);
    strbuf_free(&text);
    return rc;
}

// What was not named or walked is no lost event: dropped stays 0, and the detail tells.
static int ledger_symbols(struct recorder *recorder, const int64_t *launch_id, struct error *err)
{
    struct symbols_stats symbols;
    symbols_stats(recorder->symbols, &symbols);
    int rc = recorder->capture ? ledger_mappings(recorder, launch_id, &symbols, err) : 0;
    if (rc)
        return rc;
    struct strbuf text = {0};
    strbuf_add(&text, "%" PRIu64 " without a name", symbols.unknown);
    if (symbols.maps_silent)
        strbuf_add(&text,
                "; /proc/PID/maps did not come in time, %" PRIu64
                " times: somebody held the mmap_lock",
                symbols.maps_silent);
    rc = store_ledger(recorder->store, launch_id, "symbols", "addresses", (int64_t)symbols.lookups,
            (int64_t)(symbols.lookups - symbols.unknown), 0, 0, text.text, err);
    strbuf_free(&text);
    return rc;
}

static int ledger_python(struct recorder *recorder, const int64_t *launch_id, struct error *err)
{
    if (!recorder->python || !python_found(recorder->python))
        return 0;
    struct python_counts python;
    python_counts(recorder->python, &python);
    char *detail = xasprintf(
            "%" PRIu64 " at their moment, %" PRIu64 " failed, %" PRIu64
            " too late, or left out: the cost, or the mmap_lock was taken; %" PRIu64
            " looks, %" PRIu64 " left out",
            python.in_kernel, python.failed, python.skipped, python.looks, python.looks_skipped);
    int rc = store_ledger(recorder->store, launch_id, "pystack", "walks", (int64_t)python.wanted,
            (int64_t)python.walked, 0, 0, detail, err);
    free(detail);
    return rc;
}

// Stacks that were cut off for want of a table are no lost records.
static int ledger_unwind(struct recorder *recorder, const int64_t *launch_id, struct error *err)
{
    struct unwinder_counts unwind;
    if (!recorder->unwinder)
        return 0;
    unwinder_counts(recorder->unwinder, &unwind);
    char *detail =
            xasprintf("%" PRIu64 " words, %" PRIu64 " rules, %" PRIu64 " thrown out; %" PRIu64
                      " stacks asked for more than could be paid for",
                    unwind.words, unwind.rules, unwind.evicted, unwind.late);
    int rc = store_ledger(recorder->store, launch_id, "unwind", "tables",
            (int64_t)(unwind.tables + unwind.without), (int64_t)unwind.tables, 0, 0, detail, err);
    free(detail);
    return rc;
}

int recorder_ledger(struct recorder *recorder, struct error *err)
{
    const int64_t *launch_id = recorder->launch_id ? &recorder->launch_id : NULL;
    struct store *store = recorder->store;
    int rc = recorder->capture ? ledger_capture(recorder, launch_id, err) : 0;
    if (rc == 0 && recorder->retention)
        rc = retention_end(recorder->retention, launch_id, err);
    int64_t lost = (int64_t)writer_lost_all(recorder->writer),
            seen = (int64_t)stacks_seen(recorder->stacks);
    int64_t dropped = (int64_t)stacks_dropped(recorder->stacks);
    if (rc == 0 && lost)
        rc = store_ledger(store, launch_id, "recorder", "rows", -1, -1, lost, 1,
                "the store could not be written", err);
    if (rc == 0)
        rc = store_ledger(store, launch_id, "recorder", "stacks", seen, seen - dropped, dropped, 0,
                NULL, err);
    if (rc == 0 && tasks_dropped(recorder->tasks))
        rc = store_ledger(store, launch_id, "recorder", "tasks", -1, -1,
                (int64_t)tasks_dropped(recorder->tasks), 1,
                "more processes or threads at one time than can be remembered", err);
    if (rc == 0)
        rc = ledger_symbols(recorder, launch_id, err);
    if (rc == 0)
        rc = ledger_unwind(recorder, launch_id, err);
    return rc ? rc : ledger_python(recorder, launch_id, err);
}
