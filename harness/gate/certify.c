// SPDX-License-Identifier: Apache-2.0
// A/A runs into certificates, and certificates into runs. Reads the facts of an A/A run; writes its
// calibration table and the host's file; copies from that file into the calibration table of other
// runs.
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/strings.h"
#include "harness/gate/calibration.h"
#include "harness/gate/certificate.h"
#include "harness/gate/gate.h"
#include "harness/gate/run_facts.h"
#include "reports/analyse/binomial.h"
#include "reports/analyse/quantile.h"
#include "reports/analyse/resplit.h"

enum { CERTIFY_RESPLITS = 299 }; // none failing among 300 gates: at most 1 % (95 %)

static const char certify_insert_sql[] =
    "INSERT INTO calibration (scope, interleave, made_wall_ns, aa_pairs, gates, false_fails, "
    "upper_bound, "
    "method, pair_sd, seed, source_run) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";

static int certify_insert(struct store *store, const struct certificate *certificate,
                          const char *scope, struct error *err)
{
    return store_exec(store, err, certify_insert_sql, "ssiiiidsdis", scope,
                      plan_interleave_name(certificate->interleave), certificate->made_wall_ns,
                      certificate->aa_pairs, certificate->gates, certificate->false_fails,
                      certificate->upper_bound, certificate->method, certificate->pair_sd,
                      certificate->seed, certificate->source_run);
}

// What a workload's certificate is looked up by: everything that makes the noise of its pairs.
static int certify_scope(const struct plan *plan, const struct plan_workload *workload, char *scope,
                         size_t size)
{
    json_t *json = plan_to_json(plan);
    json_t *one =
        json_array_get(json_object_get(json, "workloads"), (size_t)(workload - plan->workloads));
    json_t *schedule = json_object_get(json, "schedule");
    json_t *key = json_pack("{s:O?, s:O?, s:O?}", "workload", one, "looks",
                            json_object_get(schedule, "looks"), "block",
                            json_object_get(schedule, "block_ns"));
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

// Direct gate and re-splits of one workload. False: too few pairs for the first look.
static bool certify_workload(const struct run_facts *run, const struct run_workload *workload,
                             struct certificate *certificate)
{
    const struct workload_facts *facts = &workload->facts;
    struct resplit_cell cells[METRIC_COUNT];
    double *ratios[METRIC_COUNT], *main_ratios;
    int cell_count = 0, direct_fails = 0, usable = 0;
    size_t count = (size_t)facts->main_count;
    if (facts->main_count < (int)run->plan->schedule.looks[0])
        return false;
    for (int i = 0; i < workload->cell_count; i++) {
        const struct cell *cell = &workload->cells[i];
        if (!cell->gating || !cell->pairs)
            continue;
        struct looks_rule rule = {.alpha = run->gate.alpha,
                                  .look_count = run->plan->schedule.look_count,
                                  .margin = cell->margin,
                                  .fail_on_likely = run->gate.fail_on_likely};
        memcpy(rule.looks, run->plan->schedule.looks, sizeof rule.looks);
        ratios[cell_count] = xcalloc(count, sizeof(double));
        workload_facts_ratios(facts->main, facts->main_count, cell->metric, ratios[cell_count]);
        cells[cell_count] = (struct resplit_cell){rule, ratios[cell_count], facts->main_count};
        cell_count++;
        // The screen counts: what confirmation mends afterwards was a false fail all the same.
        direct_fails |= cell->look >= 0 &&
                        (cell->verdict == CELL_FAIL || cell->confirmed >= 0 || cell->want_confirm);
    }
    if (cell_count) {
        main_ratios = xcalloc(count, sizeof *main_ratios);
        workload_facts_ratios(facts->main, facts->main_count, cells_main_metric(facts),
                              main_ratios);
        for (size_t i = 0; i < count; i++)
            if (!isnan(main_ratios[i]))
                main_ratios[usable++] = main_ratios[i];
        *certificate = (struct certificate){
            .interleave = facts->interleave,
            .aa_pairs = facts->main_count,
            .gates = 1 + CERTIFY_RESPLITS,
            .false_fails = direct_fails + resplit_false_fails(cells, cell_count, CERTIFY_RESPLITS,
                                                              run->plan->schedule.seed),
            .pair_sd = quantile_sd(main_ratios, (size_t)usable),
            .seed = (int64_t)run->plan->schedule.seed};
        free(main_ratios);
    }
    for (int i = 0; i < cell_count; i++)
        free(ratios[i]);
    return cell_count > 0;
}

static void certify_finish(const struct run_facts *run, struct certificate *certificate,
                           const char *scope)
{
    snprintf(certificate->scope, sizeof certificate->scope, "%s", scope);
    snprintf(certificate->method, sizeof certificate->method, "re-split");
    snprintf(certificate->source_run, sizeof certificate->source_run, "%s", run->uuid);
    certificate->made_wall_ns = clock_wall_ns();
    certificate->upper_bound =
        binomial_upper_bound(certificate->false_fails, certificate->gates, 0.95);
}

// Into the run and into the host's file. Without a writable state directory the run still has it.
static int certify_keep(struct store *store, const struct run_facts *run,
                        const struct certificate *certificate, const char *name, struct error *err)
{
    struct error local = {0};
    int rc = certify_insert(store, certificate, name, err);
    if (rc)
        return rc;
    char *path = certificate_path();
    if (!path)
        store_note(store, "warning",
                   "the certificate is kept in this run only: no HOME, XDG_STATE_HOME or "
                   "UPGATE_STATE_DIR");
    else if (certificate_save(path, run->host_key, certificate, &local))
        store_note(store, "warning", "the certificate is kept in this run only: %s", local.text);
    free(path);
    return 0;
}

static int certify_all(struct store *store, const struct run_facts *run, struct error *err)
{
    struct certificate host[PLAN_INTERLEAVE_COUNT] = {0}, one;
    int rc = store_exec(store, err, "DELETE FROM calibration WHERE source_run = ?", "s", run->uuid);
    for (int i = 0; i < run->workload_count && rc == 0; i++) {
        const struct workload_facts *facts = &run->workloads[i].facts;
        char scope[CERTIFICATE_TEXT];
        if (!certify_workload(run, &run->workloads[i], &one)) {
            store_note(
                store, "warning",
                "workload '%s' gives no certificate: %d valid pairs, the first look is at %d",
                facts->name, facts->main_count, (int)run->plan->schedule.looks[0]);
            continue;
        }
        struct certificate *sum = &host[one.interleave];
        sum->interleave = one.interleave;
        sum->aa_pairs += one.aa_pairs;
        sum->gates += one.gates;
        sum->false_fails += one.false_fails;
        sum->pair_sd = sum->pair_sd > one.pair_sd ? sum->pair_sd : one.pair_sd; // the noisiest
        sum->seed = one.seed;
        if (facts->plan && certify_scope(run->plan, facts->plan, scope, sizeof scope) == 0) {
            certify_finish(run, &one, scope);
            rc = certify_keep(store, run, &one, facts->name, err);
        }
    }
    for (int i = 0; i < PLAN_INTERLEAVE_COUNT && rc == 0; i++) {
        if (!host[i].gates)
            continue;
        certify_finish(run, &host[i], "host");
        rc = certify_keep(store, run, &host[i], "host", err);
    }
    return rc;
}

int gate_certify(struct store *store, struct error *err)
{
    struct run_facts run;
    int rc = run_facts_load(store, NULL, FACTS_FROM_ROWS, &run, err);
    if (rc)
        return rc;
    if (run.aa) {
        run_facts_judge(store, &run);
        rc = store_begin(store, err);
        if (rc == 0)
            rc = certify_all(store, &run, err);
        if (rc == 0)
            rc = store_commit(store, err);
        else
            store_rollback(store);
    } else {
        rc =
            error_set(err, -EINVAL, "'%s' is no A/A run: a certificate comes from `upgate ab --aa`",
                      store_path(store));
    }
    run_facts_clear(&run);
    return rc;
}

// The certificate of this scope, valid or not, into the run. 1: valid; 0: not (*ret_why); -errno.
static int certify_load(struct store *store, const struct run_facts *run, const char *scope,
                        const char *name, enum plan_interleave interleave, char **ret_why,
                        struct error *err)
{
    struct certificate found;
    struct error local = {0};
    char *path = certificate_path();
    int rc =
        path ? certificate_find(path, run->host_key, scope, interleave, &found, &local) : -ENOENT;
    if (!path)
        snprintf(local.text, sizeof local.text,
                 "no HOME, XDG_STATE_HOME or UPGATE_STATE_DIR to look in");
    free(path);
    if (rc) {
        *ret_why = xstrdup(local.text);
        return 0;
    }
    *ret_why = calibration_objection(&run->gate, found.made_wall_ns, run->started_wall_ns,
                                     found.upper_bound);
    rc = store_exec(
        store, err,
        "DELETE FROM calibration WHERE scope = ? AND interleave = ? AND made_wall_ns <= ?", "ssi",
        name, plan_interleave_name(interleave), found.made_wall_ns);
    if (rc == 0)
        rc = certify_insert(store, &found, name, err);
    return rc ? rc : !*ret_why;
}

int gate_load_certificate(struct store *store, int64_t workload_id, enum plan_interleave interleave,
                          bool *ret_covered, char **ret_why, struct error *err)
{
    struct run_facts run;
    char scope[CERTIFICATE_TEXT], *why = NULL, *why_host = NULL;
    int rc = run_facts_load(store, NULL, FACTS_CACHED, &run, err);
    if (rc)
        return rc;
    const struct workload_facts *facts = NULL;
    for (int i = 0; i < run.workload_count; i++)
        if (run.workloads[i].facts.id == workload_id)
            facts = &run.workloads[i].facts;
    if (!facts)
        rc = error_set(err, -ENOENT, "store '%s' has no workload %lld", store_path(store),
                       (long long)workload_id);
    if (rc == 0 && facts->plan && certify_scope(run.plan, facts->plan, scope, sizeof scope) == 0)
        rc = certify_load(store, &run, scope, facts->name, interleave, &why, err);
    if (rc == 0)
        rc = certify_load(store, &run, "host", "host", interleave, &why_host, err);
    *ret_covered = rc == 1;
    *ret_why = rc == 0 ? why_host : NULL; // what a person would mend first is the host's
    if (rc != 0)
        free(why_host);
    free(why);
    run_facts_clear(&run);
    return rc < 0 ? rc : 0;
}
