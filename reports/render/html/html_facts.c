// SPDX-License-Identifier: Apache-2.0
// What was run, on which machine, what the gate said and what weakens it: the members of the HTML
// report's data document that are no numbers of a workload. Reads struct report and the tables run,
// side, workload, pair; writes JSON.
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "harness/fingerprint/fingerprint.h"
#include "reports/render/html/html_parts.h"
#include "reports/render/text/numbers.h"
#include "reports/render/verdict/cell.h"

enum { JUDGEMENT_OUTPUT_MAX = 3000 };

static void facts_add(json_t *facts, const char *label, const char *value)
{
    if (!value || !*value)
        return;
    json_array_append_new(facts,
            render_json_set(json_object(), "label", json_string(label), "value",
                    html_text(value, HTML_TEXT_BYTES_MAX), NULL));
}

static void facts_ask(json_t *facts, const char *label, struct store *store, const char *sql)
{
    char *value = store_get_text(store, sql, "");
    facts_add(facts, label, value);
    free(value);
}

static const struct {
    const char *label, *sql;
} facts_of_run[] = {
        {"machine",
                "SELECT json_extract(host, '$.hostname') || ', Linux ' || json_extract(host, '$.kernel') FROM run WHERE json_valid(host)"},
        {"CPU",
                "SELECT json_extract(host, '$.cpu_model') || ', ' || json_extract(host, '$.cpu_count') || ' CPUs, ' || CASE WHEN "
                "json_extract(host, '$.cpus_used') <> '' THEN 'of them used ' || json_extract(host, '$.cpus_used') || ', ' ELSE '' END || "
                "printf('%.1f GB', json_extract(host, '$.memory_bytes') / 1e9) FROM run WHERE json_valid(host)"},
        {"GPU",
                "SELECT group_concat(text, '; ') FROM (SELECT count(*) || ' x ' || json_extract(g.value, '$.name') AS text FROM side s, "
                "json_each(s.fingerprint, '$.host.gpu.devices') g WHERE s.id = 1 AND json_valid(s.fingerprint) "
                "GROUP BY json_extract(g.value, '$.name'))"},
        {"workloads",
                "SELECT group_concat(text, ', ') FROM (SELECT name || ' (' || mode || ')' AS text FROM workload ORDER BY id LIMIT 50)"},
        {"pairs of launches",
                "SELECT group_concat(text, ', ') FROM (SELECT count(*) || ' ' || phase AS text FROM pair GROUP BY phase "
                "ORDER BY min(id))"},
        {"recordings",
                "SELECT count(*) || ' (' || max(sample_hz) || ' samples a second, waits of ' || "
                "(min(threshold_ns) / 1000) || ' us and longer)' FROM recording HAVING count(*) > 0"},
        {"command",
                "SELECT group_concat(value, ' ') FROM run, json_each(command_line) WHERE json_valid(command_line)"},
        {"made by", "SELECT 'upgate ' || upgate_version FROM run"},
};

json_t *html_run(struct store *store, const struct report *report)
{
    json_t *facts = json_array();
    int64_t started = -1, ended = -1;
    store_get_int(store, &started, NULL, "SELECT started_wall_ns FROM run", "");
    store_get_int(store, &ended, NULL, "SELECT ended_wall_ns FROM run", "");
    if (report) {
        facts_add(facts, "baseline", report->side_names[0]);
        facts_add(facts, "candidate", report->side_names[1]);
    }
    facts_ask(facts, "run", store,
            "SELECT uuid || CASE kind WHEN 'aa' THEN ' (A/A: both sides are the same)' ELSE '' END || "
            "CASE state WHEN 'done' THEN '' ELSE ', ' || state END FROM run");
    facts_ask(facts, "plan", store, "SELECT plan_path FROM run");
    facts_add(facts, "started", started > 0 ? numbers_time(started, NUMBERS_BUFFER) : NULL);
    facts_add(facts, "took",
            ended > started ? numbers_duration(ended - started, NUMBERS_BUFFER) : NULL);
    for (size_t i = 0; i < sizeof facts_of_run / sizeof *facts_of_run; i++)
        facts_ask(facts, facts_of_run[i].label, store, facts_of_run[i].sql);
    return render_json_set(json_object(), "facts", facts, NULL);
}

// "python.packages.torch" is a package; what steers the framework's own choices is a default.
static const char *fingerprint_kind(const char *path)
{
    static const struct {
        const char *prefix, *kind;
    } kinds[] = {{"components.", "component"}, {"python.packages.", "package"},
            {"python.torch.build", "build"}, {"process.environment", "env"},
            {"host.gpu", "hardware"}, {"host.cpu", "hardware"}, {"host.", "machine"},
            {"libraries.", "library"}, {"process.", "process"}, {"python.", "default"}};
    for (size_t i = 0; path && i < sizeof kinds / sizeof *kinds; i++)
        if (strncmp(path, kinds[i].prefix, strlen(kinds[i].prefix)) == 0)
            return kinds[i].kind;
    return "other";
}

static json_t *fingerprint_value(const json_t *value)
{
    if (!value || json_is_null(value))
        return json_null();
    if (json_is_string(value))
        return html_text(json_string_value(value), HTML_TEXT_BYTES_MAX);
    char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
    json_t *item = html_text(text ? text : "", HTML_TEXT_BYTES_MAX);
    free(text);
    return item;
}

static void fingerprint_add(json_t *list, const json_t *difference)
{
    const json_t *suspicion = json_object_get(difference, "suspicion");
    json_array_append_new(list,
            render_json_set(json_object(), "kind",
                    json_string(fingerprint_kind(
                            json_string_value(json_object_get(difference, "path")))),
                    "name", fingerprint_value(json_object_get(difference, "what")), "a",
                    fingerprint_value(json_object_get(difference, "a")), "b",
                    fingerprint_value(json_object_get(difference, "b")), "suspicion",
                    json_is_number(suspicion) ? render_json_real(json_number_value(suspicion) / 100)
                                              : json_null(),
                    "why", fingerprint_value(json_object_get(difference, "why")), NULL));
}

json_t *html_fingerprint(struct store *store)
{
    json_t *list = json_array(), *sides[2] = {NULL, NULL}, *differences = NULL;
    struct error err = {0};
    for (int side = 0; side < 2; side++) {
        char *text = store_get_text(
                store, "SELECT fingerprint FROM side WHERE id = ?", "i", (int64_t)side);
        sides[side] = text ? json_loads(text, 0, NULL) : NULL;
        free(text);
    }
    if (sides[0] && sides[1] && fingerprint_diff(sides[0], sides[1], &differences, NULL, &err) == 0)
        for (size_t i = 0; i < json_array_size(differences) && i < HTML_LIST_MAX; i++)
            fingerprint_add(list, json_array_get(differences, i));
    json_decref(differences);
    json_decref(sides[0]);
    json_decref(sides[1]);
    return list;
}

// The end of what was said on stderr, without the sequences that colour a terminal.
static json_t *judgement_output(const char *text)
{
    struct strbuf plain = {0};
    size_t len = strlen(text), skip = len > JUDGEMENT_OUTPUT_MAX ? len - JUDGEMENT_OUTPUT_MAX : 0;
    for (text += skip; *text; text++) {
        if (text[0] == '\x1b' && text[1] == '[') {
            text += 2 + strcspn(text + 2, "@ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz~");
        } else if (text[0] == '\x1b' && text[1] == ']') {
            text += strcspn(text, "\a");
        } else {
            strbuf_add_bytes(&plain, text, 1);
        }
        if (!*text)
            break;
    }
    json_t *output = html_text(plain.len ? plain.text : "", JUDGEMENT_OUTPUT_MAX);
    strbuf_free(&plain);
    return output;
}

// What ended badly stands with the findings, which say what it does to the verdict.
static void judgement_crashes(const struct report *report, json_t *list)
{
    for (int i = 0; i < report->crash_count && i < HTML_LIST_MAX; i++) {
        const struct report_crash *crash = &report->crashes[i];
        char *text = xasprintf("%s in %lld launch%s", crash_ending(crash, NUMBERS_BUFFER),
                (long long)crash->launches, crash->launches == 1 ? "" : "es");
        json_array_append_new(list,
                render_json_set(json_object(), "effect", json_string("note"), "kind",
                        json_string("ended"), "text", html_text(text, HTML_TEXT_BYTES_MAX),
                        "workload", html_text(crash->workload, HTML_NAME_BYTES_MAX), "side",
                        json_string(crash->side ? "b" : "a"), "output",
                        crash->stderr_tail && *crash->stderr_tail
                                ? judgement_output(crash->stderr_tail)
                                : json_null(),
                        NULL));
        free(text);
    }
}

static json_t *judgement_findings(const struct report *report)
{
    json_t *list = json_array();
    for (int i = 0; i < report->finding_count && i < HTML_LIST_MAX; i++) {
        const struct report_finding *finding = &report->findings[i];
        json_array_append_new(list,
                render_json_set(json_object(), "effect",
                        json_string(report_effect_word(finding->effect)), "kind",
                        html_text(finding->kind, HTML_NAME_BYTES_MAX), "text",
                        html_text(finding->text, HTML_TEXT_BYTES_MAX), "workload",
                        html_text(finding->workload, HTML_NAME_BYTES_MAX), "side",
                        finding->side < 0 ? json_null() : json_string(finding->side ? "b" : "a"),
                        NULL));
    }
    judgement_crashes(report, list);
    return list;
}

static json_t *judgement_parity(const struct report *report)
{
    json_t *list = json_array();
    for (int i = 0; i < report->parity_count && i < HTML_LIST_MAX; i++) {
        const struct report_parity *parity = &report->parity[i];
        json_array_append_new(list,
                render_json_set(json_object(), "workload",
                        html_text(parity->workload, HTML_NAME_BYTES_MAX), "tensor",
                        html_text(parity->tensor, HTML_NAME_BYTES_MAX), "rule",
                        html_text(parity->rule, HTML_TEXT_BYTES_MAX), "error_a",
                        render_json_real(parity->error_a), "error_b",
                        render_json_real(parity->error_b), "verdict",
                        json_string(report_verdict_word(parity->verdict)), "reason",
                        html_text(parity->reason, HTML_TEXT_BYTES_MAX), NULL));
    }
    return list;
}

static json_t *judgement_trust(const struct report *report)
{
    json_t *breaches = json_array(), *ledger = json_array();
    for (int i = 0; i < report->ledger_count && i < HTML_LIST_MAX; i++) {
        const struct report_ledger *row = &report->ledger[i];
        json_t *item = json_object(), *breach = json_object();
        render_json_set(item, "producer", html_text(row->producer, HTML_NAME_BYTES_MAX), "kind",
                html_text(row->kind, HTML_NAME_BYTES_MAX), "detail",
                html_text(row->detail, HTML_TEXT_BYTES_MAX), NULL);
        json_object_update(breach, item);
        json_object_set_new(breach, "count", render_json_count(row->dropped));
        render_json_set(item, "seen", render_json_count(row->seen), "dropped",
                render_json_count(row->dropped), "rows", render_json_count(row->rows), NULL);
        json_array_append_new(ledger, item);
        if (row->breach)
            json_array_append(breaches, breach);
        json_decref(breach);
    }
    return render_json_set(json_object(), "ok", json_boolean(report->trust_ok), "breaches",
            breaches, "ledger", ledger, NULL);
}

static void judgement_note(json_t *notes, const char *level, const char *text)
{
    json_array_append_new(notes,
            render_json_set(json_object(), "level", json_string(level), "text",
                    html_text(text, HTML_TEXT_BYTES_MAX), NULL));
}

// What is cut is told.
static void judgement_left_out(json_t *notes, const char *what, int count, const char *table)
{
    if (count <= HTML_LIST_MAX)
        return;
    char *text = xasprintf(
            "Of %d %s the first %d are shown; `sqlite3 RUN.db 'select * from %s'` has all.", count,
            what, HTML_LIST_MAX, table);
    judgement_note(notes, "warning", text);
    free(text);
}

static json_t *judgement_notes(const struct report *report)
{
    json_t *notes = json_array();
    judgement_left_out(notes, "findings", report->finding_count, "v_finding");
    judgement_left_out(notes, "parity checks", report->parity_count, "parity");
    judgement_left_out(notes, "rows of the trust ledger", report->ledger_count, "v_ledger");
    judgement_left_out(notes, "notes", report->note_count, "note");
    for (int i = 0; i < report->note_count && i < HTML_LIST_MAX; i++)
        judgement_note(notes, strcmp(report->notes[i].level, "info") == 0 ? "note" : "warning",
                report->notes[i].text);
    return notes;
}

void html_judgement(json_t *document, const struct report *report)
{
    json_t *verdict = json_object(), *calibration = json_object();
    render_json_set(verdict, "word", json_string(report_verdict_word(report->verdict)), "reason",
            html_text(report->reason, HTML_TEXT_BYTES_MAX), "margin_note",
            html_text(report->margin_note, HTML_TEXT_BYTES_MAX), NULL);
    render_json_set(calibration, "calibrated", json_boolean(report->calibrated), "note",
            html_text(report->calibration_note, HTML_TEXT_BYTES_MAX), NULL);
    render_json_set(document, "verdict", verdict, "findings", judgement_findings(report), "parity",
            judgement_parity(report), "trust", judgement_trust(report), "calibration", calibration,
            "notes", judgement_notes(report), NULL);
}
