// SPDX-License-Identifier: Apache-2.0
// Reads table run and, through workload_facts, everything raw; derives health and cells in memory.
#include "harness/gate/run_facts.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "common/containers/vector.h"
#include "common/strings.h"
#include "harness/gate/phrase.h"

static int run_facts_load_plan(
        struct store *store, struct run_facts *run, const char *text, struct error *err)
{
    json_error_t json_err;
    json_t *json = json_loads(text, 0, &json_err);
    if (!json)
        return error_set(err, -EBADMSG, "the store '%s' is damaged: its plan: %s",
                store_path(store), json_err.text);
    struct error why = {0};
    int rc = plan_from_json(json, &run->plan, &why);
    json_decref(json);
    return rc ? error_set(err, -EBADMSG, "the store '%s' is damaged: its plan: %s",
                        store_path(store), why.text)
              : 0;
}

static int run_facts_load_run(struct store *store, struct run_facts *run, struct error *err)
{
    sqlite3_stmt *stmt = store_query(
            store, err, "SELECT kind, state, started_wall_ns, host_key, plan, uuid FROM run", "");
    if (!stmt)
        return -EIO;
    int rc = store_step(store, stmt, err);
    if (rc == 0)
        return error_set(err, -EINVAL, "store '%s' holds no run of `upgate ab`", store_path(store));
    if (rc < 0)
        return rc;
    const char *state = store_text(store, stmt, 1);
    run->aa = strcmp(store_text(store, stmt, 0), "aa") == 0;
    run->state = strcmp(state, "done") == 0 ? RUN_STATE_DONE
            : strcmp(state, "running") == 0 ? RUN_STATE_RUNNING
                                            : RUN_STATE_INTERRUPTED;
    run->started_wall_ns = sqlite3_column_int64(stmt, 2);
    run->host_key = xstrdup(store_text(store, stmt, 3));
    run->uuid = xstrdup(store_text(store, stmt, 5));
    rc = run_facts_load_plan(store, run, store_text(store, stmt, 4), err);
    sqlite3_reset(stmt);
    return rc;
}

static int run_facts_load_workloads(
        struct store *store, struct run_facts *run, enum facts_source source, struct error *err)
{
    sqlite3_stmt *stmt = store_query(store, err, "SELECT id FROM workload ORDER BY id", "");
    if (!stmt)
        return -EIO;
    int64_t *ids = NULL;
    int count = 0, rc;
    while ((rc = store_step(store, stmt, err)) == 1)
        vector_push(ids, count, sqlite3_column_int64(stmt, 0));
    run->workloads = xcalloc((size_t)count, sizeof *run->workloads);
    for (int i = 0; i < count && rc == 0; i++) {
        rc = workload_facts_load(store, run->plan, ids[i], source, &run->workloads[i].facts, err);
        run->workload_count += rc == 0;
    }
    free(ids);
    return rc;
}

static void run_facts_relate(struct run_facts *run, enum metric_id metric)
{
    for (int i = 0; i < run->workload_count; i++) {
        struct workload_facts *facts = &run->workloads[i].facts;
        const struct plan_workload *other =
                facts->plan ? plan_workload_against(run->plan, facts->plan, metric) : NULL;
        for (int k = 0; other && k < run->workload_count; k++)
            if (run->workloads[k].facts.plan == other) {
                workload_facts_relate(facts, &run->workloads[k].facts, metric);
                run->workloads[k].facts.serves |= cell_gated(facts, &run->gate, metric);
            }
    }
}

int run_facts_load(struct store *store, const struct plan_gate *policy, enum facts_source source,
        struct run_facts *ret_run, struct error *err)
{
    struct run_facts run = {0};
    int rc = run_facts_load_run(store, &run, err);
    if (rc == 0 && run.plan->schedule.look_count < 1)
        rc = error_set(err, -EBADMSG, "the store '%s' is damaged: its plan has no looks",
                store_path(store));
    if (rc == 0) {
        run.gate = policy ? *policy : run.plan->gate;
        rc = run_facts_load_workloads(store, &run, source, err);
    }
    if (rc) {
        run_facts_clear(&run);
        return rc;
    }
    run_facts_relate(&run, METRIC_SCALING_EFFICIENCY);
    run_facts_relate(&run, METRIC_MEMORY_SAVED);
    *ret_run = run;
    return 0;
}

// A metric that is named and no workload here can have at all has no cell that could say so. One
// finding for each thing that lacks; of a workload without pairs nobody knows yet.
static void run_facts_find_lacking(struct run_facts *run)
{
    static const char steps[] = "step calls",
                      requests[] = "requests: mode infer, or scheduled arrivals";
    static const struct {
        enum metric_id metric;
        const char *needs;
    } named[] = {{METRIC_STEP_TIME, steps}, {METRIC_THROUGHPUT, steps},
            {METRIC_MEAN_STEP_TIME, steps}, {METRIC_SLOW_STEPS, steps},
            {METRIC_WARM_UP_TIME, steps}, {METRIC_FIRST_STEP_TIME, steps},
            {METRIC_STARTUP_TIME, steps}, {METRIC_LATENCY_P50, requests},
            {METRIC_LATENCY_P99, requests}, {METRIC_SCALING_EFFICIENCY, "several ranks"},
            {METRIC_MEMORY_SAVED, "variant compile"}};
    const char *said = NULL;
    for (size_t i = 0; i < sizeof named / sizeof *named && !run->gate.metrics_default; i++) {
        const struct plan_metric *metric = &run->gate.metrics[named[i].metric];
        bool judged = metric->present && !metric->observe, found = named[i].needs == said;
        for (int k = 0; k < run->workload_count; k++)
            found = found || !run->workloads[k].facts.main_count ||
                    cell_applies(&run->workloads[k].facts, named[i].metric);
        if (!judged || found)
            continue;
        said = named[i].needs;
        findings_add(&run->findings, NULL, "missing", -1, FINDING_INCONCLUSIVE,
                "%s is to be judged, and no workload of this run has %s",
                metric_infos[named[i].metric].name, said);
    }
}

bool run_facts_scales(const struct run_facts *run, uint64_t ranks)
{
    for (int i = 0; i < run->workload_count; i++) {
        const struct workload_facts *facts = &run->workloads[i].facts;
        if (facts->against[METRIC_SCALING_EFFICIENCY] && facts->plan->ranks == ranks)
            return true;
    }
    return false;
}

// A floor that a policy gives and nothing here can be held against: nobody may take a pass for one
// of it.
static void run_facts_find_floors(struct run_facts *run)
{
    const struct plan_metric *metric = &run->gate.metrics[METRIC_SCALING_EFFICIENCY];
    bool judged = metric->present && !metric->observe && metric->floors_given && !run->aa;
    for (int i = 0; judged && i < metric->floor_count; i++) {
        char least[32];
        if (!run_facts_scales(run, metric->floors[i].ranks))
            findings_add(&run->findings, NULL, "floor", -1, FINDING_INCONCLUSIVE,
                    "scaling_efficiency has a floor of %s with %llu ranks, and no workload of this run has so many and another one "
                    "like it with 1 rank",
                    phrase_floor(least, sizeof least, metric->floors[i].least),
                    (unsigned long long)metric->floors[i].ranks);
    }
}

void run_facts_judge(struct store *store, struct run_facts *run)
{
    int gated = 0;
    for (int i = 0; i < run->workload_count; i++)
        gated += cells_count_gated(&run->workloads[i].facts, &run->gate);
    run->confirm = run->gate.confirm == PLAN_CONFIRM_ALWAYS ||
            (run->gate.confirm == PLAN_CONFIRM_AUTO && gated >= CELL_CONFIRM_AUTO_MIN);
    bool ended = run->state != RUN_STATE_RUNNING;
    for (int i = 0; i < run->workload_count; i++) {
        struct run_workload *workload = &run->workloads[i];
        health_check(store, &workload->facts, &run->gate, &run->plan->schedule, ended,
                &workload->health, &run->findings);
        struct cell_context context = {.facts = &workload->facts,
                .health = &workload->health,
                .gate = &run->gate,
                .schedule = &run->plan->schedule,
                .aa = run->aa,
                .confirm = run->confirm,
                .ended = ended};
        workload->cell_count = cells_judge(&context, &workload->cells, &run->findings);
    }
    run_facts_find_lacking(run);
    run_facts_find_floors(run);
    run_facts_find_looser(run);
}

void run_facts_clear(struct run_facts *run)
{
    for (int i = 0; i < run->workload_count; i++) {
        cells_free(run->workloads[i].cells, run->workloads[i].cell_count);
        health_clear(&run->workloads[i].health);
        workload_facts_clear(&run->workloads[i].facts);
    }
    free(run->workloads);
    findings_clear(&run->findings);
    plan_free(run->plan);
    free(run->host_key);
    free(run->uuid);
    *run = (struct run_facts){0};
}
