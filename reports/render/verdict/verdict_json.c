// SPDX-License-Identifier: Apache-2.0
// upgate.verdict/1 (INTERFACES: "JSON documents"): the verdict as other tools read it. Reads struct
// report, returns a jansson tree. What was not measured is null. Members beyond the contract may be
// added.
#include <math.h>
#include <string.h>

#include "common/strings.h"
#include "reports/render/render.h"
#include "reports/render/text/json_text.h"
#include "reports/render/verdict/report.h"

static json_t *verdict_real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

// Times are integers of nanoseconds and sizes integers of bytes; rates and ratios are reals.
static json_t *verdict_median(const struct report_cell *cell, double value)
{
    bool whole = strcmp(cell->unit, "ns") == 0 || strcmp(cell->unit, "bytes") == 0;
    return whole && isfinite(value) ? json_integer(llround(value)) : verdict_real(value);
}

static json_t *verdict_int(int64_t value)
{
    return value < 0 ? json_null() : json_integer(value);
}

static json_t *verdict_cells(const struct report *report)
{
    json_t *cells = json_array();
    for (int i = 0; i < report->cell_count; i++) {
        const struct report_cell *cell = &report->cells[i];
        json_t *item = json_object();
        json_object_set_new(item, "workload", render_json_text(cell->workload));
        json_object_set_new(item, "metric", render_json_text(cell->metric));
        json_object_set_new(item, "unit", render_json_text(cell->unit));
        json_object_set_new(item, "direction",
                            json_string(cell->higher_is_better ? "higher" : "lower"));
        json_object_set_new(item, "median_a", verdict_median(cell, cell->median_a));
        json_object_set_new(item, "median_b", verdict_median(cell, cell->median_b));
        json_object_set_new(item, "ratio", verdict_real(cell->ratio));
        json_object_set_new(item, "ci_lower", verdict_real(cell->ci_lower));
        json_object_set_new(item, "ci_upper", verdict_real(cell->ci_upper));
        json_object_set_new(item, "alpha", verdict_real(cell->alpha));
        json_object_set_new(item, "pairs", verdict_int(cell->pairs));
        json_object_set_new(item, "margin", verdict_real(cell->margin));
        json_object_set_new(item, "verdict", json_string(report_verdict_word(cell->verdict)));
        json_object_set_new(item, "mde", verdict_real(cell->mde));
        json_object_set_new(item, "gating", json_boolean(cell->gating));
        json_object_set_new(item, "improved", json_boolean(cell->improved));
        json_object_set_new(item, "look", verdict_int(cell->look));
        json_object_set_new(item, "pair_sd", verdict_real(cell->pair_sd));
        json_object_set_new(item, "pairs_needed", verdict_int(cell->pairs_needed));
        json_object_set_new(item, "confirmed",
                            cell->confirmed < 0 ? json_null() : json_boolean(cell->confirmed));
        json_object_set_new(item, "confirm_pairs", verdict_int(cell->confirm_pairs));
        json_object_set_new(item, "reason", render_json_text(cell->reason));
        json_array_append_new(cells, item);
    }
    return cells;
}

static json_t *verdict_parity(const struct report *report)
{
    json_t *checks = json_array();
    for (int i = 0; i < report->parity_count; i++) {
        const struct report_parity *parity = &report->parity[i];
        json_t *item = json_object();
        json_object_set_new(item, "workload", render_json_text(parity->workload));
        json_object_set_new(item, "tensor", render_json_text(parity->tensor));
        json_object_set_new(item, "rule", render_json_text(parity->rule));
        json_object_set_new(item, "error_a", verdict_real(parity->error_a));
        json_object_set_new(item, "error_b", verdict_real(parity->error_b));
        json_object_set_new(item, "verdict", json_string(report_verdict_word(parity->verdict)));
        json_object_set_new(item, "reason", render_json_text(parity->reason));
        json_array_append_new(checks, item);
    }
    return checks;
}

static json_t *verdict_findings(const struct report *report)
{
    static const char *const effects[] = {[REPORT_EFFECT_FAIL] = "fail",
                                          [REPORT_EFFECT_INCONCLUSIVE] = "inconclusive",
                                          [REPORT_EFFECT_NOTE] = "note"};
    json_t *findings = json_array();
    for (int i = 0; i < report->finding_count; i++) {
        const struct report_finding *finding = &report->findings[i];
        json_t *item = json_object();
        json_object_set_new(item, "workload", render_json_text(finding->workload));
        json_object_set_new(item, "kind", render_json_text(finding->kind));
        json_object_set_new(item, "side",
                            finding->side < 0 ? json_null()
                                              : json_string(report_side_word(finding->side)));
        json_object_set_new(item, "effect", json_string(effects[finding->effect]));
        json_object_set_new(item, "text", render_json_text(finding->text));
        json_array_append_new(findings, item);
    }
    return findings;
}

static json_t *verdict_trust(const struct report *report)
{
    json_t *breaches = json_array();
    for (int i = 0; i < report->ledger_count; i++) {
        const struct report_ledger *ledger = &report->ledger[i];
        if (!ledger->breach)
            continue;
        json_t *item = json_object();
        json_object_set_new(item, "producer", render_json_text(ledger->producer));
        json_object_set_new(item, "kind", render_json_text(ledger->kind));
        json_object_set_new(item, "count", json_integer(ledger->dropped));
        json_object_set_new(item, "detail", render_json_text(ledger->detail));
        json_array_append_new(breaches, item);
    }
    json_t *trust = json_object();
    json_object_set_new(trust, "ok", json_boolean(report->trust_ok));
    json_object_set_new(trust, "breaches", breaches);
    return trust;
}

static json_t *verdict_certificate(const struct report_certificate *certificate)
{
    json_t *item = json_object();
    json_object_set_new(item, "scope", render_json_text(certificate->scope));
    json_object_set_new(item, "kind", render_json_text(certificate->kind));
    json_object_set_new(item, "interleave", render_json_text(certificate->interleave));
    json_object_set_new(item, "metric", render_json_text(certificate->metric));
    json_object_set_new(item, "margin", verdict_real(certificate->margin));
    json_object_set_new(item, "objection", render_json_text(certificate->objection));
    json_object_set_new(item, "aa_launches", json_integer(2 * certificate->aa_pairs));
    json_object_set_new(item, "mde", verdict_real(certificate->mde));
    json_object_set_new(item, "pair_sd", verdict_real(certificate->pair_sd));
    json_object_set_new(item, "held", verdict_real(certificate->held));
    json_object_set_new(item, "held_pairs", json_integer(certificate->held_pairs));
    json_object_set_new(item, "held_lower", verdict_real(expm1(certificate->held_lower)));
    json_object_set_new(item, "held_upper", verdict_real(expm1(certificate->held_upper)));
    json_object_set_new(item, "gates", json_integer(certificate->gates));
    json_object_set_new(item, "false_fails", json_integer(certificate->false_fails));
    json_object_set_new(item, "false_fail_upper_bound", verdict_real(certificate->upper_bound));
    return item;
}

// Of several certificates the weakest counts: fewest launches, highest bound.
static json_t *verdict_calibration(const struct report *report)
{
    json_t *certificates = json_array();
    int64_t launches = -1;
    double bound = NAN;
    for (int i = 0; i < report->certificate_count; i++) {
        const struct report_certificate *certificate = &report->certificates[i];
        json_array_append_new(certificates, verdict_certificate(certificate));
        if (certificate->objection)
            continue;
        if (launches < 0 || 2 * certificate->aa_pairs < launches)
            launches = 2 * certificate->aa_pairs;
        bound = fmax(bound, certificate->upper_bound);
    }
    json_t *calibration = json_object();
    json_object_set_new(calibration, "aa_launches", verdict_int(launches));
    json_object_set_new(calibration, "false_fail_upper_bound", verdict_real(bound));
    json_object_set_new(calibration, "calibrated", json_boolean(report->calibrated));
    json_object_set_new(calibration, "note", render_json_text(report->calibration_note));
    json_object_set_new(calibration, "certificates", certificates);
    return calibration;
}

json_t *render_verdict_json(struct store *store, struct error *err)
{
    struct report *report = NULL;
    if (report_load(store, &report, err))
        return NULL;
    json_t *sides = json_object();
    json_object_set_new(sides, "baseline", render_json_text(report->side_names[0]));
    json_object_set_new(sides, "candidate", render_json_text(report->side_names[1]));
    json_t *document = json_object();
    json_object_set_new(document, "schema", json_string("upgate.verdict/1"));
    json_object_set_new(document, "verdict", json_string(report_verdict_word(report->verdict)));
    json_object_set_new(document, "reason", render_json_text(report->reason));
    json_object_set_new(document, "run", render_json_text(report->uuid));
    json_object_set_new(document, "kind", render_json_text(report->kind));
    json_object_set_new(document, "state", render_json_text(report->state));
    json_object_set_new(document, "sides", sides);
    json_object_set_new(document, "margin_note", render_json_text(report->margin_note));
    json_object_set_new(document, "cells", verdict_cells(report));
    json_object_set_new(document, "parity", verdict_parity(report));
    json_object_set_new(document, "findings", verdict_findings(report));
    json_object_set_new(document, "trust", verdict_trust(report));
    json_object_set_new(document, "calibration", verdict_calibration(report));
    report_free(report);
    return document;
}
