// SPDX-License-Identifier: Apache-2.0
// upgate.verdict/1 (INTERFACES: "JSON documents"): the verdict as other tools read it. Reads struct
// report, returns a jansson tree. What was not measured is null. Members beyond the contract may be
// added.
#include <math.h>
#include <string.h>

#include "reports/render/render.h"
#include "reports/render/text/json_text.h"
#include "reports/render/verdict/report.h"

// Times are integers of nanoseconds and sizes integers of bytes; rates and ratios are reals.
static json_t *verdict_median(const struct report_cell *cell, double value)
{
    bool whole = strcmp(cell->unit, "ns") == 0 || strcmp(cell->unit, "bytes") == 0;
    return whole ? render_json_whole(value) : render_json_real(value);
}

static json_t *verdict_cells(const struct report *report)
{
    json_t *cells = json_array();
    for (int i = 0; i < report->cell_count; i++) {
        const struct report_cell *cell = &report->cells[i];
        json_array_append_new(cells,
                render_json_set(json_object(), "workload", render_json_text(cell->workload),
                        "metric", render_json_text(cell->metric), "unit",
                        render_json_text(cell->unit), "direction",
                        json_string(cell->higher_is_better ? "higher" : "lower"), "median_a",
                        verdict_median(cell, cell->median_a), "median_b",
                        verdict_median(cell, cell->median_b), "ratio",
                        render_json_real(cell->ratio), "ci_lower", render_json_real(cell->ci_lower),
                        "ci_upper", render_json_real(cell->ci_upper), "alpha",
                        render_json_real(cell->alpha), "pairs", render_json_count(cell->pairs),
                        "margin", render_json_real(cell->margin), "verdict",
                        json_string(report_verdict_word(cell->verdict)), "mde",
                        render_json_real(cell->mde), "gating", json_boolean(cell->gating),
                        "improved", json_boolean(cell->improved), "look",
                        render_json_count(cell->look), "pair_sd", render_json_real(cell->pair_sd),
                        "pairs_needed", render_json_count(cell->pairs_needed), "confirmed",
                        cell->confirmed < 0 ? json_null() : json_boolean(cell->confirmed),
                        "confirm_pairs", render_json_count(cell->confirm_pairs), "reason",
                        render_json_text(cell->reason), NULL));
    }
    return cells;
}

static json_t *verdict_parity(const struct report *report)
{
    json_t *checks = json_array();
    for (int i = 0; i < report->parity_count; i++) {
        const struct report_parity *parity = &report->parity[i];
        json_array_append_new(checks,
                render_json_set(json_object(), "workload", render_json_text(parity->workload),
                        "tensor", render_json_text(parity->tensor), "rule",
                        render_json_text(parity->rule), "error_a",
                        render_json_real(parity->error_a), "error_b",
                        render_json_real(parity->error_b), "verdict",
                        json_string(report_verdict_word(parity->verdict)), "reason",
                        render_json_text(parity->reason), NULL));
    }
    return checks;
}

static json_t *verdict_findings(const struct report *report)
{
    json_t *findings = json_array();
    for (int i = 0; i < report->finding_count; i++) {
        const struct report_finding *finding = &report->findings[i];
        json_array_append_new(findings,
                render_json_set(json_object(), "workload", render_json_text(finding->workload),
                        "kind", render_json_text(finding->kind), "side",
                        finding->side < 0 ? json_null()
                                          : json_string(report_side_word(finding->side)),
                        "effect", json_string(report_effect_word(finding->effect)), "text",
                        render_json_text(finding->text), NULL));
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
        json_array_append_new(breaches,
                render_json_set(json_object(), "producer", render_json_text(ledger->producer),
                        "kind", render_json_text(ledger->kind), "count",
                        json_integer(ledger->dropped), "detail", render_json_text(ledger->detail),
                        NULL));
    }
    return render_json_set(
            json_object(), "ok", json_boolean(report->trust_ok), "breaches", breaches, NULL);
}

static json_t *verdict_certificate(const struct report_certificate *certificate)
{
    return render_json_set(json_object(), "scope", render_json_text(certificate->scope), "kind",
            render_json_text(certificate->kind), "interleave",
            render_json_text(certificate->interleave), "metric",
            render_json_text(certificate->metric), "margin", render_json_real(certificate->margin),
            "objection", render_json_text(certificate->objection), "aa_launches",
            json_integer(2 * certificate->aa_pairs), "mde", render_json_real(certificate->mde),
            "pair_sd", render_json_real(certificate->pair_sd), "held",
            render_json_real(certificate->held), "held_pairs",
            json_integer(certificate->held_pairs), "held_lower",
            render_json_real(expm1(certificate->held_lower)), "held_upper",
            render_json_real(expm1(certificate->held_upper)), "gates",
            json_integer(certificate->gates), "false_fails", json_integer(certificate->false_fails),
            "false_fail_upper_bound", render_json_real(certificate->upper_bound), NULL);
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
    return render_json_set(json_object(), "aa_launches", render_json_count(launches),
            "false_fail_upper_bound", render_json_real(bound), "calibrated",
            json_boolean(report->calibrated), "note", render_json_text(report->calibration_note),
            "certificates", certificates, NULL);
}

json_t *render_verdict_json(struct store *store, struct error *err)
{
    struct report *report = NULL;
    if (report_load(store, &report, err))
        return NULL;
    json_t *sides =
            render_json_set(json_object(), "baseline", render_json_text(report->side_names[0]),
                    "candidate", render_json_text(report->side_names[1]), NULL);
    json_t *document = render_json_set(json_object(), "schema", json_string("upgate.verdict/1"),
            "verdict", json_string(report_verdict_word(report->verdict)), "reason",
            render_json_text(report->reason), "run", render_json_text(report->uuid), "kind",
            render_json_text(report->kind), "state", render_json_text(report->state), "sides",
            sides, "margin_note", render_json_text(report->margin_note), "cells",
            verdict_cells(report), "parity", verdict_parity(report), "findings",
            verdict_findings(report), "trust", verdict_trust(report), "calibration",
            verdict_calibration(report), NULL);
    report_free(report);
    return document;
}
