// SPDX-License-Identifier: Apache-2.0
// Writes launch_metric, pair_ratio, cell, parity, finding and verdict. Row ids follow from the
// order, so that the same judgement writes the same rows.
#include "harness/gate/judge_rows.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>

#include "common/clock.h"

static int judge_rows_clear(struct store *store, struct error *err)
{
    static const char *const sql[] = {"DELETE FROM launch_metric", "DELETE FROM pair_ratio",
            "DELETE FROM cell", "DELETE FROM parity", "DELETE FROM finding", "DELETE FROM verdict"};
    int rc = 0;
    for (size_t i = 0; i < sizeof sql / sizeof *sql && rc == 0; i++)
        rc = store_exec(store, err, sql[i], "");
    return rc;
}

static int judge_rows_pair(struct store *store, const struct measure_pair *pair, struct error *err)
{
    int rc = 0;
    for (int side = 0; side < PLAN_SIDES; side++) {
        const struct measure_launch *launch = &pair->sides[side];
        for (int m = 0; m < METRIC_COUNT && rc == 0 && launch->fate != LAUNCH_FATE_ABSENT; m++)
            rc = store_exec(store, err,
                    "INSERT INTO launch_metric (launch_id, metric, value, reason) VALUES (?, ?, ?, ?)",
                    "isds", launch->id, metric_infos[m].name, launch->value[m],
                    measure_reason_text(launch->reason[m]));
    }
    for (int m = 0; m < METRIC_COUNT && rc == 0; m++) {
        int64_t couples = pair->couples[m];
        if (!isnan(pair->log_ratio[m]))
            rc = store_exec(store, err,
                    "INSERT INTO pair_ratio (pair_id, metric, log_ratio, within_sd, couples) "
                    "VALUES (?, ?, ?, ?, ?)",
                    "isddI", pair->head.id, metric_infos[m].name, pair->log_ratio[m],
                    pair->within_sd[m], couples ? &couples : NULL);
    }
    return rc;
}

static int judge_rows_cell(
        struct store *store, const struct cell *cell, int64_t id, struct error *err)
{
    int64_t look = cell->look, needed = cell->pairs_needed, confirmed = cell->confirmed;
    int64_t confirm_pairs = cell->confirm_pairs;
    const struct metric_info *info = &metric_infos[cell->metric];
    return store_exec(store, err,
            "INSERT INTO cell (id, workload, metric, unit, direction, gating, median_a, "
            "median_b, ratio, ci_lower, "
            "ci_upper, alpha, pairs, look, margin, mde, pair_sd, pairs_needed, "
            "confirmed, confirm_pairs, verdict, "
            "improved, reason, news, told) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, "
            "?, ?, ?, ?, ?, ?, ?, ?, ?)",
            "issssiddddddiIdddIIIsissi", id, cell->workload, info->name, info->unit,
            info->direction, (int64_t)cell->gating, cell->median_a, cell->median_b, cell->ratio,
            cell->ci_lower, cell->ci_upper, cell->alpha, (int64_t)cell->pairs,
            look < 0 ? NULL : &look, cell->margin, cell->mde, cell->pair_sd,
            needed < 0 ? NULL : &needed, confirmed < 0 ? NULL : &confirmed,
            confirm_pairs < 0 ? NULL : &confirm_pairs, cell_verdict_name(cell->verdict),
            (int64_t)cell->improved, cell->reason, cell->news, (int64_t)cell->told);
}

static int judge_rows_findings(
        struct store *store, const struct findings *findings, struct error *err)
{
    static const char *const effects[] = {[FINDING_NOTE] = "note",
            [FINDING_INCONCLUSIVE] = "inconclusive",
            [FINDING_FAIL] = "fail"};
    int rc = 0;
    for (int i = 0; i < findings->count && rc == 0; i++) {
        const struct finding *finding = &findings->items[i];
        int64_t side = finding->side;
        rc = store_exec(store, err,
                "INSERT INTO finding (id, workload, kind, side, effect, text) VALUES (?, "
                "?, ?, ?, ?, ?)",
                "issIss", (int64_t)i + 1, finding->workload, finding->kind, side < 0 ? NULL : &side,
                effects[finding->effect], finding->text);
    }
    return rc;
}

static int judge_rows_verdict(struct store *store, const struct summary_input *input,
        const struct summary *summary, struct error *err)
{
    json_t *policy = plan_gate_to_json(&input->run->gate);
    char *text = json_dumps(policy, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(policy);
    if (!text)
        return error_set(err, -ENOMEM, "failed to write the policy as JSON");
    const char *word = summary->exit == EXIT_CODE_PASS ? "pass"
            : summary->exit == EXIT_CODE_FAIL          ? "fail"
                                                       : "inconclusive";
    int rc = store_exec(store, err,
            "INSERT INTO verdict (id, verdict, reason, margin_note, policy, trust_ok, calibrated, "
            "calibration_note, judged_wall_ns) VALUES (1, ?, ?, ?, ?, ?, ?, ?, ?)",
            "ssssiisi", word, summary->reason, summary->margin_note, text, (int64_t)input->trust_ok,
            (int64_t)input->calibration->covered, input->calibration->note, clock_wall_ns());
    free(text);
    return rc;
}

int judge_rows_write(struct store *store, const struct summary_input *input,
        const struct summary *summary, struct error *err)
{
    const struct run_facts *run = input->run;
    int64_t cell_id = 1;
    int rc = judge_rows_clear(store, err);
    for (int i = 0; i < run->workload_count && rc == 0; i++) {
        const struct run_workload *workload = &run->workloads[i];
        for (int k = 0; k < workload->facts.main_count && rc == 0; k++)
            rc = judge_rows_pair(store, &workload->facts.main[k], err);
        for (int k = 0; k < workload->facts.confirm_count && rc == 0; k++)
            rc = judge_rows_pair(store, &workload->facts.confirm[k], err);
        for (int k = 0; k < workload->cell_count && rc == 0; k++)
            rc = judge_rows_cell(store, &workload->cells[k], cell_id++, err);
    }
    for (int i = 0; i < input->parity_count && rc == 0; i++) {
        const struct parity_row *row = &input->parity[i];
        rc = store_exec(store, err,
                "INSERT INTO parity (id, workload, tensor, rule, error_a, error_b, verdict, reason) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                "isssddss", (int64_t)i + 1, row->workload, row->tensor, row->rule, row->error_a,
                row->error_b, cell_verdict_name(row->verdict), row->reason);
    }
    if (rc == 0)
        rc = judge_rows_findings(store, &run->findings, err);
    return rc ? rc : judge_rows_verdict(store, input, summary, err);
}
