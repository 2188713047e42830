// SPDX-License-Identifier: Apache-2.0
// Reads the tables of a judged run into struct report. Reads contracts/schema.sql's run, side,
// workload, pair, launch, cell, parity, finding, ledger, control, note and verdict; writes
// nothing.
#include "reports/render/verdict/report.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/containers/vector.h"
#include "common/strings.h"
#include "contracts/metrics.h"

static const char *const report_verdict_words[REPORT_VERDICT_COUNT] = {
        [REPORT_VERDICT_FAIL] = "fail",
        [REPORT_VERDICT_INCONCLUSIVE] = "inconclusive",
        [REPORT_VERDICT_PASS] = "pass",
        [REPORT_VERDICT_UNCHECKED] = "unchecked",
};

// Every text of the report is in one list, so that freeing needs no walk through the structs.
static char *report_keep(struct report *report, char *text)
{
    vector_push(report->texts, report->text_count, text);
    return text;
}

static char *report_text(struct report *report, sqlite3_stmt *stmt, int column)
{
    const char *text = (const char *)sqlite3_column_text(stmt, column);
    return text ? report_keep(report, xstrdup(text)) : NULL;
}

// Of a column that is NOT NULL in the schema: never NULL, also not of a damaged store, which the
// next step refuses.
static char *report_need(struct report *report, sqlite3_stmt *stmt, int column)
{
    return report_keep(report, xstrdup(store_text(report->store, stmt, column)));
}

// Of pairs, launches or gates: a damaged store may name more than can be added up.
static int64_t report_number_of(sqlite3_stmt *stmt, int column)
{
    int64_t count = store_int64(stmt, column, -1);
    return count > INT32_MAX ? INT32_MAX : count;
}

// A word that the schema does not allow counts as inconclusive: never as pass.
static enum report_verdict report_word_verdict(sqlite3_stmt *stmt, int column)
{
    const char *word = (const char *)sqlite3_column_text(stmt, column);
    for (int i = 0; word && i < REPORT_VERDICT_COUNT; i++)
        if (strcmp(report_verdict_words[i], word) == 0)
            return (enum report_verdict)i;
    return REPORT_VERDICT_INCONCLUSIVE;
}

static enum report_effect report_word_effect(sqlite3_stmt *stmt, int column)
{
    const char *word = (const char *)sqlite3_column_text(stmt, column);
    if (word && strcmp(word, "note") == 0)
        return REPORT_EFFECT_NOTE;
    return word && strcmp(word, "fail") == 0 ? REPORT_EFFECT_FAIL : REPORT_EFFECT_INCONCLUSIVE;
}

typedef void (*report_row_fn)(struct report *report, sqlite3_stmt *stmt);

static int report_rows(struct store *store, struct report *report, const char *sql,
        report_row_fn row, struct error *err)
{
    sqlite3_stmt *stmt = store_query(store, err, sql, "");
    if (!stmt)
        return err && err->code ? err->code : -EIO;
    int rc;
    while ((rc = store_step(store, stmt, err)) == 1)
        row(report, stmt);
    return rc;
}

static void report_row_run(struct report *report, sqlite3_stmt *stmt)
{
    report->uuid = report_need(report, stmt, 0);
    report->kind = report_need(report, stmt, 1);
    report->state = report_need(report, stmt, 2);
    report->upgate_version = report_need(report, stmt, 3);
    report->plan_path = report_text(report, stmt, 4);
    report->started_wall_ns = store_int64(stmt, 5, -1);
    report->ended_wall_ns = store_int64(stmt, 6, -1);
}

static void report_row_side(struct report *report, sqlite3_stmt *stmt)
{
    int64_t side = sqlite3_column_int64(stmt, 0);
    if (side == 0 || side == 1)
        report->side_names[side] = report_need(report, stmt, 1);
}

static void report_row_verdict(struct report *report, sqlite3_stmt *stmt)
{
    report->verdict = report_word_verdict(stmt, 0);
    report->reason = report_need(report, stmt, 1);
    report->margin_note = report_text(report, stmt, 2);
    report->trust_ok = sqlite3_column_int(stmt, 3) != 0;
    report->calibrated = sqlite3_column_int(stmt, 4) != 0;
    report->calibration_note = report_need(report, stmt, 5);
}

// Cells that were judged before version 12 have their sentence alone.
static int64_t report_told(const char *reason)
{
    return (strstr(reason, "would settle it") ? METRIC_TOLD_NEED : 0) |
            (strstr(reason, "fresh pairs") ? METRIC_TOLD_FRESH : 0);
}

static void report_row_cell(struct report *report, sqlite3_stmt *stmt)
{
    const char *direction = (const char *)sqlite3_column_text(stmt, 3);
    char *reason = report_need(report, stmt, 21);
    vector_push(report->cells, report->cell_count,
            (struct report_cell){
                    .workload = report_need(report, stmt, 0),
                    .metric = report_need(report, stmt, 1),
                    .unit = report_need(report, stmt, 2),
                    .higher_is_better = direction && strcmp(direction, "higher") == 0,
                    .gating = sqlite3_column_int(stmt, 4) != 0,
                    .median_a = store_double(stmt, 5),
                    .median_b = store_double(stmt, 6),
                    .ratio = store_double(stmt, 7),
                    .ci_lower = store_double(stmt, 8),
                    .ci_upper = store_double(stmt, 9),
                    .alpha = store_double(stmt, 10),
                    .pairs = report_number_of(stmt, 11),
                    .look = store_int64(stmt, 12, -1),
                    .margin = store_double(stmt, 13),
                    .mde = store_double(stmt, 14),
                    .pair_sd = store_double(stmt, 15),
                    .pairs_needed = report_number_of(stmt, 16),
                    .confirmed = (int)store_int64(stmt, 17, -1),
                    .confirm_pairs = report_number_of(stmt, 18),
                    .verdict = report_word_verdict(stmt, 19),
                    .improved = sqlite3_column_int(stmt, 20) != 0,
                    .reason = reason,
                    .news = report_text(report, stmt, 22),
                    .told = store_int64(stmt, 23, report_told(reason)),
            });
}

static void report_row_parity(struct report *report, sqlite3_stmt *stmt)
{
    vector_push(report->parity, report->parity_count,
            (struct report_parity){
                    .workload = report_need(report, stmt, 0),
                    .tensor = report_need(report, stmt, 1),
                    .rule = report_need(report, stmt, 2),
                    .error_a = store_double(stmt, 3),
                    .error_b = store_double(stmt, 4),
                    .verdict = report_word_verdict(stmt, 5),
                    .reason = report_need(report, stmt, 6),
            });
}

static void report_row_finding(struct report *report, sqlite3_stmt *stmt)
{
    vector_push(report->findings, report->finding_count,
            (struct report_finding){
                    .workload = report_text(report, stmt, 0),
                    .kind = report_need(report, stmt, 1),
                    .side = (int)store_int64(stmt, 2, -1),
                    .effect = report_word_effect(stmt, 3),
                    .text = report_need(report, stmt, 4),
            });
}

static void report_row_ledger(struct report *report, sqlite3_stmt *stmt)
{
    vector_push(report->ledger, report->ledger_count,
            (struct report_ledger){
                    .producer = report_need(report, stmt, 0),
                    .kind = report_need(report, stmt, 1),
                    .seen = store_int64(stmt, 2, -1),
                    .dropped = store_int64(stmt, 3, -1),
                    .breach = sqlite3_column_int(stmt, 4) != 0,
                    .detail = report_text(report, stmt, 5),
                    .rows = store_int64(stmt, 6, -1),
            });
}

static void report_row_certificate(struct report *report, sqlite3_stmt *stmt)
{
    vector_push(report->certificates, report->certificate_count,
            (struct report_certificate){
                    .scope = report_need(report, stmt, 0),
                    .kind = report_need(report, stmt, 1),
                    .interleave = report_need(report, stmt, 2),
                    .metric = report_need(report, stmt, 3),
                    .margin = store_double(stmt, 4),
                    .objection = report_text(report, stmt, 5),
                    .aa_pairs = report_number_of(stmt, 6),
                    .mde = store_double(stmt, 7),
                    .pair_sd = store_double(stmt, 8),
                    .held = store_double(stmt, 9),
                    .held_pairs = report_number_of(stmt, 10),
                    .held_lower = store_double(stmt, 11),
                    .held_upper = store_double(stmt, 12),
                    .gates = report_number_of(stmt, 13),
                    .false_fails = report_number_of(stmt, 14),
                    .upper_bound = store_double(stmt, 15),
            });
}

static void report_row_crash(struct report *report, sqlite3_stmt *stmt)
{
    vector_push(report->crashes, report->crash_count,
            (struct report_crash){
                    .workload = report_need(report, stmt, 0),
                    .side = (int)store_int64(stmt, 1, -1),
                    .state = report_need(report, stmt, 2),
                    .exit_code = store_int64(stmt, 3, -1),
                    .exit_signal = store_int64(stmt, 4, -1),
                    .launches = report_number_of(stmt, 5),
                    .pair = store_int64(stmt, 7, -1),
                    .stderr_tail = report_text(report, stmt, 8),
            });
}

static void report_row_note(struct report *report, sqlite3_stmt *stmt)
{
    vector_push(report->notes, report->note_count,
            (struct report_note){
                    .level = report_need(report, stmt, 0), .text = report_need(report, stmt, 1)});
}

static void report_row_workload(struct report *report, sqlite3_stmt *stmt)
{
    vector_push(report->workloads, report->workload_count,
            (struct report_workload){
                    .name = report_need(report, stmt, 0),
                    .mode = report_need(report, stmt, 1),
                    .interleave = report_text(report, stmt, 2),
                    .note = report_text(report, stmt, 3),
                    .wall_ns = store_int64(stmt, 4, -1),
            });
}

// The claims about steps stand together: what is typical, the mean, what is slow, then the rest.
#define REPORT_METRIC_ORDER \
    "CASE metric WHEN 'step_time' THEN 0 WHEN 'latency_p50' THEN 1 WHEN 'latency_p99' THEN 2 " \
    "WHEN 'mean_step_time' THEN 3 WHEN 'slow_steps' THEN 4 WHEN 'throughput' THEN 5 " \
    "WHEN 'warm_up_time' THEN 6 WHEN 'first_step_time' THEN 7 " \
    "WHEN 'startup_time' THEN 8 ELSE 9 END"

#define REPORT_VERDICT_ORDER \
    "CASE verdict WHEN 'fail' THEN 0 WHEN 'inconclusive' THEN 1 WHEN 'pass' THEN 2 ELSE 3 END"

static const struct {
    const char *sql;
    report_row_fn row;
} report_queries[] = {
        {"SELECT uuid, kind, state, upgate_version, plan_path, started_wall_ns, ended_wall_ns FROM run",
                report_row_run},
        {"SELECT id, name FROM side", report_row_side},
        {"SELECT verdict, reason, margin_note, trust_ok, calibrated, calibration_note FROM verdict",
                report_row_verdict},
        // Failures first, those of the workload in which most is missing or worst before others;
        // within a workload in the order of the metrics: one cause often fails several.
        {"SELECT workload, metric, unit, direction, gating, median_a, median_b, ratio, ci_lower, "
         "ci_upper, alpha, pairs, look, margin, mde, pair_sd, pairs_needed, confirmed, confirm_pairs, "
         "verdict, improved, reason, news, told FROM cell WINDOW same AS (PARTITION BY workload, verdict, gating) "
         "ORDER BY gating = 0, " REPORT_VERDICT_ORDER
         ", CASE verdict WHEN 'fail' THEN min(ratio IS NOT NULL) OVER same END, CASE verdict WHEN "
         "'fail' THEN max(CASE direction WHEN 'higher' THEN 1 / ratio ELSE ratio END) OVER same END "
         "DESC, improved DESC, min(id) OVER (PARTITION BY workload), " REPORT_METRIC_ORDER ", id",
                report_row_cell},
        {"SELECT workload, tensor, rule, error_a, error_b, verdict, reason FROM parity "
         "ORDER BY " REPORT_VERDICT_ORDER ", id",
                report_row_parity},
        {"SELECT workload, kind, side, effect, text FROM finding ORDER BY CASE effect WHEN 'fail' THEN 0 WHEN 'note' THEN 2 ELSE 1 END, id",
                report_row_finding},
        {"SELECT producer, kind, sum(seen), sum(dropped), max(breach), min(detail), count(*) FROM ledger GROUP BY producer, kind, breach != 0 "
         "ORDER BY max(breach) DESC, sum(dropped) DESC, producer, kind",
                report_row_ledger},
        {"SELECT scope, kind, interleave, metric, margin, objection, aa_pairs, mde, pair_sd, held, "
         "held_pairs, held_lower, held_upper, gates, false_fails, upper_bound FROM control "
         "ORDER BY scope != 'host', id",
                report_row_certificate},
        // A launch that was stopped because its partner ended badly is no crash of its own. The
        // columns beside max() are those of its row: the last launch.
        {"SELECT w.name, l.side, l.state, l.exit_code, l.exit_signal, count(*), max(l.id), p.idx, l.stderr_tail FROM launch l JOIN pair p ON "
         "p.id = l.pair_id JOIN workload w ON w.id = p.workload_id WHERE l.state NOT IN ('ok', 'stopped') GROUP BY w.id, l.side, l.state, "
         "l.exit_code, l.exit_signal ORDER BY w.id, l.side DESC, max(l.id)",
                report_row_crash},
        {"SELECT level, text FROM note WHERE level != 'info' OR id > (SELECT max(id) - 20 FROM note) "
         "ORDER BY CASE level WHEN 'error' THEN 0 WHEN 'warning' THEN 1 ELSE 2 END, id",
                report_row_note},
        {"SELECT w.name, w.mode, w.interleave, w.note, coalesce(sum(CASE p.phase WHEN 'traced' THEN 0 ELSE p.ended_ns - p.started_ns END), 0) AS took_ns "
         "FROM workload w LEFT JOIN pair p ON p.workload_id = w.id GROUP BY w.id ORDER BY w.id",
                report_row_workload},
};

// A pass rests on gated cells that pass. A store that says otherwise was edited, or judged wrongly.
static int report_check(const struct report *report, struct error *err)
{
    if (report->verdict != REPORT_VERDICT_PASS)
        return 0;
    const char *what = NULL;
    if (report_count(report, REPORT_VERDICT_PASS) == 0)
        what = "no gated cell passes";
    if (report_count(report, REPORT_VERDICT_FAIL) +
            report_count(report, REPORT_VERDICT_INCONCLUSIVE))
        what = "a gated cell does not";
    for (int i = 0; i < report->parity_count; i++)
        if (report->parity[i].verdict == REPORT_VERDICT_FAIL)
            what = "a parity check fails";
    for (int i = 0; i < report->finding_count; i++)
        if (report->findings[i].effect != REPORT_EFFECT_NOTE)
            what = "a finding says it must not";
    if (!what)
        return 0;
    return error_set(err, -EBADMSG,
            "failed to report '%s': its verdict is pass, but %s; judge again with `upgate "
            "gate %s`",
            report->path, what, report->path);
}

static int report_read(struct store *store, struct report *report, struct error *err)
{
    for (size_t i = 0; i < sizeof report_queries / sizeof *report_queries; i++) {
        int rc = report_rows(store, report, report_queries[i].sql, report_queries[i].row, err);
        if (rc)
            return rc;
    }
    if (!report->uuid)
        return error_set(err, -ENODATA,
                "failed to report '%s': no run was recorded in it; fill it with `upgate ab`",
                report->path);
    if (!report->reason && strcmp(report->kind, "record") == 0)
        return error_set(err, -ENODATA,
                "failed to report '%s': it is a recording: nothing in it is compared, and nothing judged; `upgate stalls %s` "
                "says what held the program up, `upgate report %s -o FILE.html` writes that as a page",
                report->path, report->path, report->path);
    if (!report->reason)
        return error_set(err, -ENODATA,
                "failed to report '%s': the run has no verdict yet (it is %s); judge it with "
                "`upgate gate %s`, or go on with `upgate ab --resume %s`",
                report->path, report->state, report->path, report->path);
    for (int side = 0; side < 2; side++)
        if (!report->side_names[side])
            report->side_names[side] = report_keep(report, xstrdup(report_side_word(side)));
    return report_check(report, err);
}

int report_load(struct store *store, struct report **ret_report, struct error *err)
{
    struct error local = {0};
    struct report *report = xcalloc(1, sizeof *report);
    report->store = store;
    report->path = report_keep(report, xstrdup(store_path(store)));
    report->ended_wall_ns = -1;
    // One snapshot: the harness may judge again while we read. Inside a caller's transaction it is
    // that one.
    bool snapshot = sqlite3_get_autocommit(store_db(store));
    int rc = snapshot ? store_exec(store, &local, "BEGIN DEFERRED", "") : 0;
    if (rc == 0)
        rc = report_read(store, report, &local);
    if (rc == 0)
        rc = store_failed(store, &local);
    if (snapshot)
        store_rollback(store);
    if (rc) {
        report_free(report);
        return error_set(err, rc, "%s", local.text);
    }
    report->store = NULL;
    *ret_report = report;
    return 0;
}

void report_free(struct report *report)
{
    if (!report)
        return;
    for (int i = 0; i < report->text_count; i++)
        free(report->texts[i]);
    void *arrays[] = {report->texts, report->cells, report->parity, report->findings,
            report->ledger, report->certificates, report->crashes, report->notes,
            report->workloads};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        free(arrays[i]);
    free(report);
}

const char *report_verdict_word(enum report_verdict verdict)
{
    return report_verdict_words[verdict];
}

const char *report_effect_word(enum report_effect effect)
{
    static const char *const words[] = {[REPORT_EFFECT_FAIL] = "fail",
            [REPORT_EFFECT_INCONCLUSIVE] = "inconclusive",
            [REPORT_EFFECT_NOTE] = "note"};
    return words[effect];
}

const char *report_side_word(int side)
{
    return side ? "candidate" : "baseline";
}

int report_count(const struct report *report, enum report_verdict verdict)
{
    int count = 0;
    for (int i = 0; i < report->cell_count; i++)
        count += report->cells[i].gating && report->cells[i].verdict == verdict;
    return count;
}

const char *report_stderr(const struct report *report, const char *workload, int side)
{
    for (int i = 0; i < report->crash_count; i++) {
        const struct report_crash *crash = &report->crashes[i];
        if (strcmp(crash->workload, workload) == 0 && (side < 0 || crash->side == side) &&
                crash->stderr_tail && *crash->stderr_tail)
            return crash->stderr_tail;
    }
    return NULL;
}
