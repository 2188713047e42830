// SPDX-License-Identifier: Apache-2.0
// A/A runs and control pairs into certificates. Reads the facts of a run; writes its table control
// and the host's file.
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/strings.h"
#include "harness/gate/certificate/calibration.h"
#include "harness/gate/certificate/certify.h"
#include "harness/gate/certificate/control.h"
#include "harness/gate/gate.h"
#include "reports/analyse/binomial.h"

int certify_insert(
        struct store *store, const struct certificate *one, const char *scope, struct error *err)
{
    return store_exec(store, err,
            "INSERT INTO control (" CERTIFICATE_COLUMNS
            ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            "ssssdsiiddddddiddiids", scope, one->kind, plan_interleave_name(one->interleave),
            metric_infos[one->metric].name, one->margin, one->objection, one->made_wall_ns,
            one->aa_pairs, one->aa_lower, one->aa_upper, one->mde, one->pair_sd, one->held,
            one->planted, one->held_pairs, one->held_lower, one->held_upper, one->gates,
            one->false_fails, one->upper_bound, one->source_run);
}

// What a workload is known by in the host's file: all that makes the noise of its pairs.
static int certify_scope(
        const struct plan *plan, const struct plan_workload *workload, char *scope, size_t size)
{
    json_t *json = plan_to_json(plan);
    json_t *one = json_array_get(
            json_object_get(json, "workloads"), (size_t)(workload - plan->workloads));
    json_t *schedule = json_object_get(json, "schedule");
    json_t *key = json_pack("{s:O?, s:O?, s:O?}", "workload", one, "looks",
            json_object_get(schedule, "looks"), "block", json_object_get(schedule, "block_ns"));
    json_object_del(json_object_get(key, "workload"), "name"); // the name makes no noise
    char *text = key ? json_dumps(key, JSON_SORT_KEYS | JSON_COMPACT) : NULL;
    uint64_t hash = 0xcbf29ce484222325u; // FNV-1a
    for (const char *at = text; at && *at; at++)
        hash = (hash ^ (unsigned char)*at) * 0x100000001b3u;
    snprintf(scope, size, "workload:%016" PRIx64, hash);
    int rc = text ? 0 : -ENOMEM;
    free(text);
    json_decref(key);
    json_decref(json);
    return rc;
}

// An A/A gate that failed falsely: by its cells, or, of a run's own control, by its equal sides.
static bool certify_failed(
        const struct run_facts *run, const struct cell *cell, const struct control_result *result)
{
    if (run->aa) // the screen counts: what confirmation mends afterwards was a false fail all the
                 // same
        return cell->look >= 0 &&
                (cell->verdict == CELL_FAIL || cell->confirmed >= 0 || cell->want_confirm);
    return result->aa.has_bounds && result->aa.lower > log1p(cell->margin);
}

static struct certificate certify_cell(const struct run_facts *run,
        const struct run_workload *workload, const struct control_pairs *pairs,
        const struct cell *cell, bool *failed)
{
    struct control_result result = control_of_cell(run, workload, pairs, cell);
    *failed = *failed || certify_failed(run, cell, &result);
    struct certificate one = {
            .interleave = workload->facts.interleave,
            .metric = cell->metric,
            .margin = cell->margin,
            .objection = result.state == CONTROL_CERTIFIED
                    ? NULL
                    : control_objection(&result, run, cell->margin),
            .made_wall_ns = clock_wall_ns(),
            .aa_pairs = result.aa_pairs,
            .aa_lower = result.aa.has_bounds ? result.aa.lower : NAN,
            .aa_upper = result.aa.has_bounds ? result.aa.upper : NAN,
            .mde = result.mde,
            .pair_sd = result.pair_sd,
            .held = result.felt ? pairs->share : NAN,
            .planted = result.planted,
            .held_pairs = result.held_pairs,
            .held_lower = result.held.has_bounds ? result.held.lower : NAN,
            .held_upper = result.held.has_bounds ? result.held.upper : NAN,
    };
    calibration_kind(&workload->facts, one.kind);
    snprintf(one.source_run, sizeof one.source_run, "%s", run->uuid);
    return one;
}

// Into the host's file. Without a writable state directory the run still has it.
static int certify_save(struct store *store, const struct run_facts *run,
        const struct certificate_gate *gate, struct certificate *certificates, int count,
        struct error *err)
{
    struct error local = {0};
    int rc = 0;
    int64_t gates = 1, false_fails = gate->failed;
    char *path = certificate_path();
    if (!path)
        rc = store_note(store, err, "warning",
                "what the control showed is kept in this run only: no HOME, XDG_STATE_HOME or "
                "UPGATE_STATE_DIR");
    else if (certificate_save(
                     path, run->host_key, gate, certificates, count, &gates, &false_fails, &local))
        rc = store_note(store, err, "warning",
                "what the control showed is kept in this run only: %s", local.text);
    free(path);
    for (int i = 0; i < count; i++) {
        certificates[i].gates = gates;
        certificates[i].false_fails = false_fails;
        certificates[i].upper_bound = binomial_upper_bound(false_fails, gates, 0.95);
    }
    return rc;
}

static int certify_tell(struct store *store, const struct workload_facts *facts,
        const struct certificate *certificates, int count, struct error *err)
{
    int rc = 0;
    for (int i = 0; i < count && rc == 0; i++)
        if (certificates[i].objection)
            rc = store_note(store, err, "warning", "workload '%s' gives no certificate for %s: %s",
                    facts->name, metric_infos[certificates[i].metric].name,
                    certificates[i].objection);
    return rc;
}

static int certify_workload(struct store *store, const struct run_facts *run,
        const struct run_workload *workload, struct error *err)
{
    const struct workload_facts *facts = &workload->facts;
    struct control_pairs pairs;
    struct certificate *all = xcalloc(METRIC_COUNT, sizeof *all);
    char scope[CERTIFICATE_TEXT] = "", kind[CERTIFICATE_TEXT];
    bool failed = false;
    int count = 0, rc = control_pairs_load(store, facts, &pairs, err);
    if (rc) {
        free(all);
        return rc;
    }
    for (int i = 0; i < workload->cell_count; i++)
        if (workload->cells[i].gating)
            all[count++] = certify_cell(run, workload, &pairs, &workload->cells[i], &failed);
    control_pairs_clear(&pairs);
    for (int i = 0; i < count; i++)
        if (failed && !all[i].objection)
            all[i].objection = xstrdup("the gate failed on equal sides, and so certifies nothing");
    calibration_kind(facts, kind);
    // Only a gate that came to an answer counts as one.
    bool judged = count && all[0].aa_pairs >= (int64_t)run->plan->schedule.looks[0];
    if (judged && facts->plan && certify_scope(run->plan, facts->plan, scope, sizeof scope) == 0) {
        for (int i = 0; i < count; i++)
            snprintf(all[i].scope, sizeof all[i].scope, "%s", scope);
        struct certificate_gate gate = {
                scope, kind, run->uuid, facts->interleave, clock_wall_ns(), failed};
        rc = certify_save(store, run, &gate, all, count, err);
    }
    if (rc == 0)
        rc = certify_tell(store, facts, all, count, err);
    for (int i = 0; i < count && rc == 0; i++)
        rc = certify_insert(store, &all[i], facts->name, err);
    certificates_free(all, count);
    return rc;
}

int gate_certify(struct store *store, struct error *err)
{
    struct run_facts run;
    int rc = run_facts_load(store, NULL, FACTS_FROM_ROWS, &run, err);
    if (rc)
        return rc;
    run_facts_judge(store, &run);
    rc = store_begin(store, err);
    if (rc == 0)
        rc = store_exec(store, err, "DELETE FROM control WHERE source_run = ?", "s", run.uuid);
    for (int i = 0; i < run.workload_count && rc == 0; i++)
        if (run.aa || control_pairs_count(&run.workloads[i].facts))
            rc = certify_workload(store, &run, &run.workloads[i], err);
    if (rc == 0)
        rc = store_commit(store, err);
    else
        store_rollback(store);
    run_facts_clear(&run);
    return rc;
}
