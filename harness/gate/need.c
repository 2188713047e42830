// SPDX-License-Identifier: Apache-2.0
// What the run loop asks between pairs: what is still undecided, what to show. The same cells as
// the verdict's, from the same rows; pairs are measured once a connection.
#include <errno.h>
#include <math.h>

#include "harness/gate/gate.h"
#include "harness/gate/parity/parity_gate.h"
#include "harness/gate/run_facts.h"

static const struct run_workload *need_workload(const struct run_facts *run, int64_t workload_id)
{
    for (int i = 0; i < run->workload_count; i++)
        if (run->workloads[i].facts.id == workload_id)
            return &run->workloads[i];
    return NULL;
}

static int need_load(struct store *store, int64_t workload_id, struct run_facts *ret_run,
        const struct run_workload **ret_workload, struct error *err)
{
    int rc = run_facts_load(store, NULL, FACTS_CACHED, ret_run, err);
    if (rc)
        return rc;
    run_facts_judge(store, ret_run);
    *ret_workload = need_workload(ret_run, workload_id);
    if (*ret_workload)
        return 0;
    run_facts_clear(ret_run);
    return error_set(err, -ENOENT, "store '%s' has no workload %lld", store_path(store),
            (long long)workload_id);
}

// What cells of other workloads that are held against this one want of it.
static void need_of_others(
        const struct run_facts *run, const struct workload_facts *facts, int *main, int *confirm)
{
    for (int i = 0; i < run->workload_count; i++)
        for (int k = 0; k < run->workloads[i].cell_count; k++) {
            const struct cell *cell = &run->workloads[i].cells[k];
            if (!cell->gating || run->workloads[i].facts.against[cell->metric] != facts)
                continue;
            if (cell->want_main > facts->main_count && (!*main || cell->want_main < *main))
                *main = cell->want_main;
            if (cell->want_confirm > facts->confirm_count && cell->want_confirm > *confirm)
                *confirm = cell->want_confirm;
        }
}

// The least of what the undecided cells want, so that a cell is asked again as soon as it can
// decide.
static void need_of(
        const struct run_facts *run, const struct run_workload *workload, struct gate_need *need)
{
    const struct workload_facts *facts = &workload->facts;
    int first = (int)run->plan->schedule.looks[0], main = 0, confirm = 0;
    *need = (struct gate_need){"main", facts->main_count, 0};
    if (workload->health.state != HEALTH_OK)
        return;
    if (facts->main_count < first) {
        need->pairs_wanted = first;
        return;
    }
    for (int i = 0; i < workload->cell_count; i++) {
        const struct cell *cell = &workload->cells[i];
        if (cell->gating && cell->want_main > facts->main_count &&
                (!main || cell->want_main < main))
            main = cell->want_main;
        if (cell->gating && cell->want_confirm > confirm)
            confirm = cell->want_confirm;
    }
    need_of_others(run, facts, &main, &confirm);
    if (main)
        need->pairs_wanted = main;
    else if (confirm)
        *need = (struct gate_need){"confirm", facts->confirm_count, confirm};
}

// Numbers that the cells' pairs left undecided: more of them, by the same looks.
static int need_of_parity(struct store *store, const struct run_facts *run,
        const struct run_workload *workload, struct gate_need *need, struct error *err)
{
    const struct workload_facts *facts = &workload->facts;
    struct parity_context context = {store, facts, &run->gate, &run->plan->schedule};
    int wanted = 0;
    if (need->pairs_wanted || workload->health.state != HEALTH_OK || !facts->main_count)
        return 0;
    int rc = parity_pairs_wanted(&context, &wanted, err);
    if (rc == 0 && wanted > facts->main_count)
        *need = (struct gate_need){"main", facts->main_count, wanted};
    return rc;
}

int gate_need(
        struct store *store, int64_t workload_id, struct gate_need *ret_need, struct error *err)
{
    struct run_facts run;
    const struct run_workload *workload;
    int rc = need_load(store, workload_id, &run, &workload, err);
    if (rc)
        return rc;
    need_of(&run, workload, ret_need);
    rc = need_of_parity(store, &run, workload, ret_need, err);
    run_facts_clear(&run);
    return rc;
}

int gate_glance(struct store *store, int64_t workload_id, struct gate_glance *ret_cells, int max)
{
    struct run_facts run;
    const struct run_workload *workload;
    int count = 0, rc = need_load(store, workload_id, &run, &workload, NULL);
    if (rc)
        return rc;
    for (int i = 0; i < workload->cell_count && count < max; i++) {
        const struct cell *cell = &workload->cells[i];
        if (!cell->gating)
            continue;
        bool open = cell->want_main > 0 || workload->facts.main_count == 0;
        ret_cells[count++] = (struct gate_glance){.metric = metric_infos[cell->metric].name,
                .verdict = open ? "-" : cell_verdict_name(cell->verdict),
                .ratio = cell->ratio,
                .ci_lower = cell->ci_lower,
                .ci_upper = cell->ci_upper};
    }
    run_facts_clear(&run);
    return count;
}
