// SPDX-License-Identifier: Apache-2.0
// The HTML report, its data document (html/page/DATA.md) and the page around it: the run, then each
// workload with its cells, difference, stalls, flame graphs and timeline. Reads the store through
// report_load, diff_analyse and the parts of html_parts.h. What the store does not have is left
// out, with a reason where a reader would look for it.
#include "reports/render/html/html.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/containers/vector.h"
#include "common/strings.h"
#include "reports/render/html/html_parts.h"
#include "reports/render/page/page.h"
#include "reports/render/stalls/stalls_text.h"

enum {
    DOCUMENT_NODE_BYTES = 40,  // of a frame of a flame graph, its share of the names included
    DOCUMENT_POINT_BYTES = 60, // of a pair of a cell
    DOCUMENT_STEPS_SHARE = 16, // of the file for the steps of all launches: some 270 KB
    DOCUMENT_WORKLOADS_MAX = 200,
    DOCUMENT_RECORDINGS_MAX = 8, // of `upgate record` in one store
};

// What tables, flame graphs and timelines may take together, about; cut: less than they would,
// which the document says.
struct html_limits {
    size_t bytes;
    bool cut;
};

struct document {
    struct store *store;
    struct report *report; // NULL: recordings alone
    struct stalls_recordings recordings;
    struct diff *diff; // NULL: why_no_diff
    char *why_no_diff;
    const struct html_limits *limits;
    size_t parts; // workloads or recordings that share the limits
    json_t *json;
};

static const struct diff_workload *document_diff(const struct document *document, const char *name)
{
    for (size_t i = 0; document->diff && i < document->diff->workload_count; i++)
        if (strcmp(document->diff->workloads[i].name, name) == 0)
            return &document->diff->workloads[i];
    return NULL;
}

// Traced launches of the workload, in the order of running; the caller frees.
static struct html_launch *document_launches(
        struct document *document, const char *workload, size_t *ret_count, struct error *err)
{
    struct html_launch *launches = NULL;
    *ret_count = 0;
    sqlite3_stmt *stmt = store_query(document->store, err,
            "SELECT l.id, r.id, l.side FROM recording r JOIN launch l ON l.id = r.launch_id JOIN pair p ON p.id = l.pair_id JOIN workload w ON "
            "w.id = p.workload_id WHERE w.name = ? AND p.state = 'valid' ORDER BY r.id LIMIT 64",
            "s", workload);
    int rc;
    while ((rc = store_step(document->store, stmt, err)) == 1)
        vector_push(launches, *ret_count,
                (struct html_launch){.launch_id = sqlite3_column_int64(stmt, 0),
                        .recording_id = sqlite3_column_int64(stmt, 1),
                        .side = sqlite3_column_int(stmt, 2) != 0});
    if (rc == 0)
        return launches ? launches : xcalloc(1, sizeof *launches);
    free(launches);
    return NULL;
}

static int document_flames(struct document *document, json_t *item,
        const struct html_launch *launches, size_t count, struct error *err)
{
    json_t *flames = NULL;
    size_t nodes = document->limits->bytes / 6 / document->parts / 2 / DOCUMENT_NODE_BYTES;
    int rc = count ? html_flames(document->store, launches, count, nodes, &flames, err) : 0;
    if (rc == 0 && flames)
        json_object_set_new(item, "flames", flames);
    return rc;
}

static int document_timeline(
        struct document *document, json_t *item, struct html_couple *couple, struct error *err)
{
    json_t *timeline = NULL;
    couple->events = HTML_EVENTS_MAX / document->parts;
    couple->bytes = document->limits->bytes / 10 * 7 / document->parts;
    int rc = html_timeline(document->store, couple, &timeline, err);
    if (rc == 0)
        json_object_set_new(item, "timeline", timeline);
    return rc;
}

static json_t *document_unexplained(const char *why)
{
    json_t *diff = json_object();
    json_object_set_new(diff, "unexplained", html_text(why, HTML_TEXT_BYTES_MAX));
    return diff;
}

static int document_traces(
        struct document *document, json_t *item, const char *name, struct error *err)
{
    const struct diff_workload *diff = document_diff(document, name);
    size_t count = 0;
    struct html_launch *launches = document_launches(document, name, &count, err);
    if (!launches)
        return err->code;
    if (diff)
        json_object_set_new(
                item, "diff", html_diff(diff, document->limits->bytes / 8 / document->parts));
    else
        json_object_set_new(item, "diff", document_unexplained(document->why_no_diff));
    json_t *stalls = html_stalls(document->store, &document->recordings, name, 0, err);
    int rc = stalls ? 0 : err->code;
    if (rc == 0)
        json_object_set_new(item, "stalls", stalls);
    if (rc == 0)
        rc = document_flames(document, item, launches, count, err);
    if (rc == 0 && diff && (diff->launches[0] || diff->launches[1])) {
        struct html_couple couple = {.launches = {diff->launches[0], diff->launches[1]},
                .couple = diff->couple,
                .workload = diff};
        rc = document_timeline(document, item, &couple, err);
    }
    free(launches);
    return rc;
}

// The worst verdict of its gating cells, and of what objects to it beside them: outputs that
// differ, a crash.
static enum report_verdict document_worst(const struct report *report, const char *workload)
{
    enum report_verdict worst = REPORT_VERDICT_COUNT;
    for (int i = 0; i < report->cell_count; i++)
        if (report->cells[i].gating && strcmp(report->cells[i].workload, workload) == 0 &&
                report->cells[i].verdict < worst)
            worst = report->cells[i].verdict;
    for (int i = 0; i < report->parity_count; i++) {
        enum report_verdict verdict = report->parity[i].verdict;
        if (verdict < worst && verdict <= REPORT_VERDICT_INCONCLUSIVE &&
                strcmp(report->parity[i].workload, workload) == 0)
            worst = verdict;
    }
    for (int i = 0; i < report->finding_count; i++) {
        const struct report_finding *finding = &report->findings[i];
        enum report_verdict verdict = finding->effect == REPORT_EFFECT_FAIL
                ? REPORT_VERDICT_FAIL
                : REPORT_VERDICT_INCONCLUSIVE;
        if (verdict < worst && finding->effect != REPORT_EFFECT_NOTE && finding->workload &&
                strcmp(finding->workload, workload) == 0)
            worst = verdict;
    }
    return worst;
}

static int document_workload(struct document *document, const struct report_workload *workload,
        json_t *list, struct error *err)
{
    const struct diff_workload *diff = document_diff(document, workload->name);
    enum report_verdict worst = document_worst(document->report, workload->name);
    json_t *item = json_object();
    json_array_append_new(list, item);
    render_json_set(item, "name", html_text(workload->name, HTML_NAME_BYTES_MAX), "mode",
            html_text(workload->mode, HTML_NAME_BYTES_MAX), "unit",
            html_text(diff && diff->unit ? diff->unit : "step", HTML_NAME_BYTES_MAX), "verdict",
            worst == REPORT_VERDICT_COUNT ? json_null() : json_string(report_verdict_word(worst)),
            "note", html_text(workload->note, HTML_TEXT_BYTES_MAX), NULL);
    size_t points = document->limits->bytes / 8 / ((size_t)document->report->cell_count + 1) /
            DOCUMENT_POINT_BYTES;
    json_t *cells = html_cells(
            document->store, document->report, workload->name, points < 10 ? 10 : points, err);
    if (!cells)
        return err->code;
    json_object_set_new(item, "cells", cells);
    json_t *steps = NULL;
    int rc = html_steps(document->store, workload->name,
            document->limits->bytes / DOCUMENT_STEPS_SHARE / document->parts, &steps, err);
    if (rc)
        return rc;
    json_object_set_new(item, "steps", steps);
    return document_traces(document, item, workload->name, err);
}

static int document_workloads(struct document *document, struct error *err)
{
    const struct report *report = document->report;
    json_t *list = json_array();
    int rc = 0, done = 0;
    json_object_set_new(document->json, "workloads", list);
    for (int worst = 0; worst <= REPORT_VERDICT_COUNT && rc == 0; worst++)
        for (int i = 0; i < report->workload_count && rc == 0 && done < DOCUMENT_WORKLOADS_MAX; i++)
            if ((int)document_worst(report, report->workloads[i].name) == worst && ++done)
                rc = document_workload(document, &report->workloads[i], list, err);
    return rc;
}

// A recording as a workload of its own: nothing is compared.
static int document_recording(struct document *document, const struct stalls_recording *recording,
        json_t *list, struct error *err)
{
    json_t *item = json_object();
    json_array_append_new(list, item);
    char *name = recording->target.known ? stalls_text_task(&recording->target, STALLS_NAME_SHORT)
                                         : xstrdup("recording");
    render_json_set(item, "name", html_text(name, HTML_NAME_BYTES_MAX), "note",
            html_text(recording->target_cmdline, HTML_TEXT_BYTES_MAX), NULL);
    free(name);
    render_json_set(item, "mode", json_string("recording"), "unit", json_string("recording"), NULL);
    json_t *stalls = html_stalls(document->store, &document->recordings, NULL, recording->id, err);
    if (!stalls)
        return err->code;
    json_object_set_new(item, "stalls", stalls);
    struct html_launch launch = {.recording_id = recording->id, .side = -1};
    int rc = document_flames(document, item, &launch, 1, err);
    struct html_couple couple = {.recordings = {recording->id, 0}, .couple = -1};
    return rc ? rc : document_timeline(document, item, &couple, err);
}

static int document_recordings(struct document *document, struct error *err)
{
    json_t *list = json_array();
    int rc = 0;
    json_t *verdict = render_json_set(json_object(), "word", json_null(), "reason",
            json_string(
                    "A recording: what held the program up and where its time went. Nothing was compared."),
            NULL);
    render_json_set(document->json, "verdict", verdict, "workloads", list, NULL);
    for (size_t i = 0; i < document->recordings.count && i < DOCUMENT_RECORDINGS_MAX && rc == 0;
            i++)
        rc = document_recording(document, &document->recordings.items[i], list, err);
    return rc;
}

static void document_cut_note(struct document *document)
{
    json_t *notes = json_object_get(document->json, "notes");
    if (!notes) {
        notes = json_array();
        json_object_set_new(document->json, "notes", notes);
    }
    json_array_append_new(notes,
            render_json_set(json_object(), "level", json_string("warning"), "text",
                    json_string(
                            "This run has more than one file of 5 MB can hold: tables, flame graphs and timelines "
                            "were cut to their largest parts. `upgate diff --format json` has everything."),
                    NULL));
}

// -ENODATA is an answer: this store has nothing to compare.
static int document_analyse(struct document *document, struct error *err)
{
    struct error local = {0};
    int rc = diff_analyse(document->store, &(struct diff_opts){0}, &document->diff, &local);
    if (rc == -ENODATA) {
        document->why_no_diff = xstrdup(local.text);
        return 0;
    }
    return rc ? error_set(err, rc, "%s", local.text) : 0;
}

static int document_fill(struct document *document, bool recording, struct error *err)
{
    json_t *json = document->json;
    int rc = stalls_recordings_load(document->store, &document->recordings, err);
    if (rc == 0 && !recording)
        rc = report_load(document->store, &document->report, err);
    if (rc == 0 && recording && document->recordings.count == 0)
        rc = error_set(err, -ENODATA, "failed to report '%s': it has neither a run nor a recording",
                store_path(document->store));
    if (rc == 0 && !recording)
        rc = document_analyse(document, err);
    if (rc)
        return rc;
    const struct report *report = document->report;
    size_t parts = report ? (size_t)report->workload_count : document->recordings.count;
    document->parts = parts ? parts : 1;
    char *made_by = store_get_text(document->store, "SELECT upgate_version FROM run", "");
    char *version = xasprintf("upgate %s", made_by ? made_by : UPGATE_VERSION);
    render_json_set(json, "schema", json_string("upgate.report/1"), "made_by",
            html_text(version, HTML_NAME_BYTES_MAX), NULL);
    free(made_by), free(version);
    json_object_set_new(json, "sides",
            render_json_pair(
                    html_text(report ? report->side_names[0] : "recording", HTML_NAME_BYTES_MAX),
                    html_text(report ? report->side_names[1] : "", HTML_NAME_BYTES_MAX)));
    if (report)
        html_judgement(json, report);
    json_object_set_new(json, "run", html_run(document->store, report));
    rc = report ? document_workloads(document, err) : document_recordings(document, err);
    if (report)
        json_object_set_new(json, "fingerprint", html_fingerprint(document->store));
    json_object_set_new(json, "how", html_how(store_path(document->store), report != NULL));
    if (document->limits->cut)
        document_cut_note(document);
    return rc;
}

static json_t *html_document(
        struct store *store, const struct html_limits *limits, struct error *err)
{
    struct document document = {.store = store, .limits = limits, .json = json_object()};
    int64_t recording = 0;
    store_get_int(store, &recording, NULL, "SELECT kind = 'record' FROM run", "");
    int rc = document_fill(&document, recording != 0, err);
    rc = rc ? rc : store_failed(store, err);
    if (rc) {
        json_decref(document.json);
        document.json = NULL;
    }
    report_free(document.report);
    stalls_recordings_clear(&document.recordings);
    diff_free(document.diff);
    free(document.why_no_diff);
    return document.json;
}

// --- the page ------------------------------------------------------------------------------------

static const char *html_member(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

// What the tab is called, and the sentence for readers without scripts; both are made of checked
// UTF-8.
static char *html_compose(const json_t *document)
{
    const json_t *verdict = json_object_get(document, "verdict"),
                 *sides = json_object_get(document, "sides");
    const char *word = html_member(verdict, "word"),
               *a = json_string_value(json_array_get(sides, 0)),
               *b = json_string_value(json_array_get(sides, 1));
    char *title =
            *word ? xasprintf("upgate: %s, %s against %s", word, b, a) : xasprintf("upgate: %s", a);
    char *sentence = *word ? xasprintf("Verdict: %s. %s", word, html_member(verdict, "reason"))
                           : xstrdup(html_member(verdict, "reason"));
    char *json = json_dumps(document, JSON_COMPACT | JSON_REAL_PRECISION(9));
    char *text = page_make(PAGE_VERDICT, title, sentence, json);
    free(title);
    free(sentence);
    free(json);
    return text;
}

// Smaller and smaller shares for what can be cut, until the file is below its limit: one round for
// a normal run.
static int html_fit(struct store *store, char **ret_text, struct error *err)
{
    size_t page = page_bytes(PAGE_VERDICT);
    for (int round = 0; round < 3; round++) {
        struct html_limits limits = {
                .bytes = ((size_t)HTML_BYTES_MAX - page) >> 2 * round, .cut = round > 0};
        json_t *document = html_document(store, &limits, err);
        if (!document)
            return err->code;
        char *text = html_compose(document);
        json_decref(document);
        if (strlen(text) < HTML_BYTES_MAX || round == 2) {
            *ret_text = text;
            return 0;
        }
        free(text);
    }
    return 0;
}

// Another one as soon as somebody else has written to the store.
static int64_t html_version(struct store *store)
{
    int64_t version = 0;
    store_get_int(store, &version, NULL, "PRAGMA data_version", "");
    return version;
}

int html_make(struct store *store, char **ret_text, struct error *err)
{
    struct error local = {0};
    *ret_text = NULL;
    if (page_missing(PAGE_VERDICT))
        return error_set(err, -ENOSYS, "failed to report as HTML: %s", page_missing(PAGE_VERDICT));
    // The harness may judge again while we read. A transaction would keep that out, but within one
    // operations are read row by row (trace_scan.h): a minute instead of seconds for twenty
    // million. So it is read again when it has changed.
    int rc = 0;
    for (int round = 0; round < 3; round++) {
        int64_t before = html_version(store);
        free(*ret_text);
        *ret_text = NULL;
        rc = html_fit(store, ret_text, &local);
        if (rc || html_version(store) == before)
            break;
    }
    return rc ? error_set(err, rc, "%s", local.text) : 0;
}
