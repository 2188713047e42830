// SPDX-License-Identifier: Apache-2.0
// The verbs that read stores, as a library.
#include "tests/fuzz/store_readers.h"

#include <jansson.h>
#include <math.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/canary/serve/snapshot.h"
#include "harness/canary/store/rollout_store.h"
#include "harness/gate/gate.h"
#include "reports/analyse/diff/diff.h"
#include "reports/render/diff/diff_view.h"
#include "reports/render/render.h"
#include "reports/render/rollout/rollout_view.h"
#include "reports/render/stalls/stalls_view.h"
#include "tests/fuzz/fuzz.h"
#include "tracer/store/store.h"

enum { READERS_RECORDINGS_MAX = 8, READERS_ROWS_MAX = 50 };

static void text_done(FILE *stream, char **text)
{
    fclose(stream);
    free(*text);
    *text = NULL;
}

static void json_done(json_t *document)
{
    struct error err = {0};
    char *text = render_json_dump(document, 9, &err); // takes the document
    fuzz_check(text ? 0 : -1, &err);
    json_t *again = text ? json_loads(text, 0, NULL) : NULL;
    fuzz_require(!text || again, "a JSON document that can be read");
    json_decref(again);
    free(text);
}

static void table_of(struct store *store)
{
    struct error err = {0};
    char *text = NULL;
    size_t len = 0;
    FILE *stream = open_memstream(&text, &len);
    fuzz_check(
            render_verdict_table(store, &(struct render_opts){.utf8 = true}, stream, &err), &err);
    text_done(stream, &text);
}

static void read_gate(const char *path)
{
    struct store *store = NULL;
    struct error err = {0};
    enum exit_code verdict = EXIT_CODE_INCONCLUSIVE;
    int rc = fuzz_check(store_open(path, STORE_WRITE, &store, &err), &err);
    if (rc == 0)
        rc = fuzz_check(gate_judge(store, NULL, &verdict, &err), &err);
    fuzz_require(verdict >= EXIT_CODE_PASS && verdict <= EXIT_CODE_OPERATIONAL, "an exit code");
    if (rc == 0) {
        table_of(store);
        json_t *document = render_verdict_json(store, &err);
        if (document)
            json_done(document);
        else
            fuzz_check(-1, &err);
    }
    store_close(store);
}

static void read_diff(const char *path)
{
    struct store *store = NULL;
    struct diff *diff = NULL;
    struct error err = {0};
    int rc = fuzz_check(store_open(path, STORE_READ, &store, &err), &err);
    if (rc == 0)
        rc = fuzz_check(diff_analyse(store, &(struct diff_opts){0}, &diff, &err), &err);
    if (rc == 0) {
        char *text = NULL;
        size_t len = 0;
        const struct diff_view view = {.diff = diff, .path = "run.db", .all = true};
        FILE *stream = open_memstream(&text, &len);
        fuzz_check(diff_view_table(&view, &(struct render_opts){0}, stream, &err), &err);
        text_done(stream, &text);
        json_done(diff_view_json(diff));
        free(diff_view_markdown(diff));
    }
    diff_free(diff);
    store_close(store);
}

static void read_recording(struct store *store, const struct stalls_recordings *recordings,
        const struct stalls_recording *recording)
{
    struct stalls *stalls = NULL;
    struct error err = {0};
    const struct stalls_opts opts = {.recording_id = recording->id};
    if (fuzz_check(stalls_analyse(store, &opts, &stalls, &err), &err))
        return;
    const struct stalls_shown shown = {recording, stalls};
    const struct stalls_view view = {
            &shown, 1, recordings, "run.db", READERS_ROWS_MAX, 0, READERS_ROWS_MAX, true};
    char *text = NULL;
    size_t len = 0;
    FILE *stream = open_memstream(&text, &len);
    fuzz_check(stalls_view_table(&view, &(struct render_opts){0}, stream, &err), &err);
    fuzz_check(stalls_folded(store, recording->id, stream, &err), &err);
    text_done(stream, &text);
    json_done(stalls_view_json(&view));
    free(stalls_view_markdown(&view));
    fuzz_check(stalls_save(store, stalls, &stalls_view_words, &err), &err);
    stalls_free(stalls);
}

static void read_stalls(const char *path)
{
    struct store *store = NULL;
    struct stalls_recordings recordings = {0};
    struct error err = {0};
    int rc = fuzz_check(store_open(path, STORE_WRITE, &store, &err), &err);
    if (rc == 0)
        rc = fuzz_check(stalls_recordings_load(store, &recordings, &err), &err);
    for (size_t i = 0; rc == 0 && i < recordings.count && i < READERS_RECORDINGS_MAX; i++)
        read_recording(store, &recordings, &recordings.items[i]);
    stalls_recordings_clear(&recordings);
    store_close(store);
}

static void read_report(const char *path, const char *form)
{
    struct store *store = NULL;
    struct error err = {0};
    int rc = fuzz_check(store_open(path, STORE_READ, &store, &err), &err);
    if (rc == 0)
        fuzz_check(render_file(store, fuzz_path(form), &(struct render_opts){0}, &err), &err);
    store_close(store);
}

static void read_github(const char *path)
{
    struct store *store = NULL;
    struct error err = {0};
    char *text = NULL;
    size_t len = 0;
    unsetenv("GITHUB_STEP_SUMMARY"); // of the CI job that runs this
    unsetenv("GITHUB_OUTPUT");
    int rc = fuzz_check(store_open(path, STORE_READ, &store, &err), &err);
    FILE *stream = open_memstream(&text, &len);
    if (rc == 0)
        fuzz_check(render_github(store, stream, &err), &err);
    text_done(stream, &text);
    store_close(store);
}

static int read_second(
        void *arg, int64_t at_s, int stage, const struct canary_second arms[CANARY_ARMS])
{
    struct canary_cell cells[CANARY_METRICS];
    int count = 0;
    (void)at_s;
    for (int i = 0; i < CANARY_ARMS; i++)
        fuzz_require(arms[i].errors <= arms[i].requests && arms[i].wrong <= arms[i].requests,
                "no more errors than requests");
    if (stage % 2)
        canary_evidence_stage(arg, stage, stage == 1);
    canary_evidence_add(arg, arms);
    canary_evidence_cells(arg, cells, &count);
    json_decref(rollout_cells_to_json(cells, count));
    return 0;
}

// What a controller does that starts again.
static void read_rollout_rows(struct store *store)
{
    struct rollout_row row;
    struct rollout_decision decision;
    struct rollout_stage_row stage;
    struct rollout_request request;
    struct rollout *rollout = NULL;
    struct error err = {0};
    if (fuzz_check(rollout_store_read(store, &row, &err), &err))
        return;
    fuzz_require((unsigned)row.state < ROLLOUT_STATES && row.stage >= -1 &&
                    row.stage < MACHINE_STAGES_MAX && !isinf(row.percent),
            "a state, a stage and a share");
    json_t *json = json_loads(row.plan ? row.plan : "", 0, NULL);
    if (json && fuzz_check(rollout_from_json(json, &rollout, &err), &err) == 0)
        rollout_free(rollout);
    json_decref(json);
    rollout_row_clear(&row);
    if (fuzz_check(rollout_store_last_decision(store, &decision, &err), &err) == 0)
        fuzz_require((unsigned)decision.rule < RULE_COUNT && decision.stage_from >= -1 &&
                        decision.stage_to >= -1 && decision.stage_to < MACHINE_STAGES_MAX,
                "a rule and stages");
    for (int i = 0; i < 3; i++)
        fuzz_check(rollout_store_read_stage(store, i, &stage, &err), &err);
    const struct canary_rules rules = {.alpha = 0.01,
            .tripwire_error_rate = 0.2,
            .metrics = {[CANARY_ERROR_RATE] = {.gated = true, .margin = 0.5, .limit = NAN},
                    [CANARY_WRONG_ANSWERS] = {.gated = true, .margin = NAN},
                    [CANARY_LATENCY_P99] = {.gated = true, .margin = 0.1, .limit = NAN},
                    [CANARY_LATENCY_MEAN] = {.observed = true, .margin = 0.1, .limit = NAN}}};
    struct canary_evidence *evidence = canary_evidence_new(&rules);
    canary_evidence_stage(evidence, 0, true);
    fuzz_check(rollout_store_seconds(store, read_second, evidence, &err), &err);
    canary_evidence_free(evidence);
    if (fuzz_check(rollout_store_next_request(store, &request, &err), &err) == 0)
        fuzz_require((unsigned)request.verb < REQUEST_COUNT, "a verb");
}

static void read_rollout(const char *path)
{
    struct store *store = NULL;
    struct rollout_view *view = NULL;
    struct error err = {0};
    char *text = NULL;
    size_t len = 0;
    int problem = 0;
    if (fuzz_check(store_open(path, STORE_READ, &store, &err), &err) == 0)
        read_rollout_rows(store);
    store_close(store);
    if (fuzz_check(rollout_view_load(path, &view, &err), &err) == 0) {
        FILE *stream = open_memstream(&text, &len);
        rollout_view_status(view, stream, false);
        text_done(stream, &text);
        json_done(rollout_view_json(view));
        fuzz_check(rollout_view_write(view, fuzz_path("out.md"), &err), &err);
        fuzz_check(rollout_view_write(view, fuzz_path("out.html"), &err), &err);
    }
    rollout_view_free(view);
    struct snapshot_reader *reader = snapshot_reader_new(path, "ranker");
    fuzz_require(snapshot_read(reader, &problem, &err) != NULL, "a snapshot, whatever is read");
    fuzz_check(problem, &err);
    snapshot_reader_free(reader);
}

void store_readers_start(void)
{
    // Counting what SQLite allocates takes a lock twice an allocation, and its schema is read ten
    // times an input.
    sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
}

void store_readers_run(const char *path, unsigned readers)
{
    if (readers & STORE_READER_HTML)
        read_report(path, "out.html");
    if (readers & STORE_READER_MARKDOWN)
        read_report(path, "out.md");
    if (readers & STORE_READER_JSON)
        read_report(path, "out.json");
    if (readers & STORE_READER_JUNIT)
        read_report(path, "out.xml");
    if (readers & STORE_READER_GITHUB)
        read_github(path);
    if (readers & STORE_READER_PFTRACE)
        read_report(path, "out.pftrace");
    if (readers & STORE_READER_DIFF)
        read_diff(path);
    if (readers & STORE_READER_ROLLOUT)
        read_rollout(path);
    if (readers & STORE_READER_STALLS) // writes table stall
        read_stalls(path);
    if (readers & STORE_READER_GATE) // writes the verdict
        read_gate(path);
}
