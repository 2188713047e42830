// SPDX-License-Identifier: Apache-2.0
// What the run loop asks between pairs: what is still undecided, how long the next pair should be,
// what to show. The same cells as the verdict's, from the same rows; pairs are measured once a
// connection.
#include <errno.h>
#include <math.h>

#include "harness/gate/gate.h"
#include "harness/gate/parity_gate.h"
#include "harness/gate/run_facts.h"
#include "reports/analyse/quantile.h"
#include "reports/analyse/turns.h"

enum {
    NEED_COUPLES_MIN = 8,
    NEED_COUPLES_MAX = 1000000, // the plan's steps are the limit
    NEED_STEADY_STEPS = 30,     // steady.c wants so many behind the warm-up
    NEED_PAIRS_MAX = 256,       // of those the spread is taken from
    NEED_SPREAD_PAIRS_MIN = 3,  // before that the spread between pairs is not known
    NEED_PERIODS = 4            // three distances: the least that shows a period (slow_steps.h)
};

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

// The least of what the undecided cells want, so that a cell is asked again as soon as it can
// decide.
static void need_of(const struct run_facts *run, const struct run_workload *workload,
                    struct gate_need *need)
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
    if (main)
        need->pairs_wanted = main;
    else if (confirm)
        *need = (struct gate_need){"confirm", facts->confirm_count, confirm};
}

// Numbers that the cells' pairs left undecided: more of them, by the same looks.
static int need_of_parity(struct store *store, const struct run_facts *run,
                          const struct run_workload *workload, struct gate_need *need,
                          struct error *err)
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

int gate_need(struct store *store, int64_t workload_id, struct gate_need *ret_need,
              struct error *err)
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

// Steps of a launch that its couples do not use: warm-up, and what is left over at the end.
static int need_overhead(const struct workload_facts *facts, int *ret_block_steps)
{
    for (int i = facts->main_count - 1; i >= 0; i--) {
        const struct measure_pair *pair = &facts->main[i];
        if (!pair->couples[METRIC_STEP_TIME])
            continue;
        int counted = pair->couples[METRIC_STEP_TIME] * pair->block_steps;
        *ret_block_steps = pair->block_steps;
        return pair->head.steps > counted ? (int)pair->head.steps - counted : 0;
    }
    return 0;
}

// Couples that the next pair needs for this metric; 0: its spread is not known yet.
static int need_couples(const struct run_facts *run, const struct workload_facts *facts,
                        enum metric_id metric)
{
    double ratios[NEED_PAIRS_MAX], within[NEED_PAIRS_MAX], couples[NEED_PAIRS_MAX];
    int used = 0;
    for (int i = 0; i < facts->main_count && used < NEED_PAIRS_MAX; i++) {
        const struct measure_pair *pair = &facts->main[i];
        if (pair->couples[metric] < 2 || isnan(pair->within_sd[metric]))
            continue;
        ratios[used] = pair->log_ratio[metric];
        couples[used] = pair->couples[metric];
        // Brought to one length: the standard error falls with the root of the couples.
        within[used] = pair->within_sd[metric] * sqrt(couples[used]);
        used++;
    }
    if (used < NEED_SPREAD_PAIRS_MIN)
        return 0;
    double typical = quantile_median(couples, (size_t)used);
    struct turns_plan plan = {
        .couples = (int)typical,
        .within_sd = quantile_median(within, (size_t)used) / sqrt(typical),
        .pair_sd = quantile_mad_sd(ratios, (size_t)used),
        // A quarter of the margin: what is finer than that decides no cell earlier.
        .spread_floor = 0.25 * run->gate.metrics[metric].margin,
        .couples_min = NEED_COUPLES_MIN,
        .couples_max = NEED_COUPLES_MAX};
    return turns_couples_wanted(&plan);
}

// May launches get shorter than the plan's steps? Not below what shows their slow steps: none seen on
// either side so far, or a period of which the shorter launch still holds NEED_PERIODS.
static bool need_shows_slow(const struct workload_facts *facts, int64_t steps)
{
    for (int i = 0; i < facts->main_count; i++) {
        for (int side = 0; side < PLAN_SIDES; side++) {
            const struct slow_steps *slow = &facts->main[i].sides[side].slow;
            if (slow->count && (!slow->period || (int64_t)slow->period * NEED_PERIODS > steps))
                return false;
        }
    }
    return true;
}

int gate_next_steps(struct store *store, int64_t workload_id, uint64_t steps_max,
                    uint64_t *ret_steps, struct error *err)
{
    struct run_facts run;
    const struct run_workload *workload;
    int rc = need_load(store, workload_id, &run, &workload, err);
    if (rc)
        return rc;
    const struct workload_facts *facts = &workload->facts;
    int block_steps = 0, overhead = need_overhead(facts, &block_steps), couples = 0;
    bool known = block_steps > 0;
    // Percentiles of an open loop need their number of requests, whatever the spread of the steps.
    known = known && cells_main_metric(facts) == METRIC_STEP_TIME;
    for (int i = 0; i < workload->cell_count; i++) {
        const struct cell *cell = &workload->cells[i];
        if (!cell->gating || !cell_is_step_metric(cell->metric))
            continue;
        int wanted = need_couples(&run, facts, cell->metric);
        known = known && wanted;
        couples = wanted > couples ? wanted : couples;
    }
    int64_t counted = (int64_t)couples * block_steps;
    int64_t steps = overhead + (counted > NEED_STEADY_STEPS ? counted : NEED_STEADY_STEPS);
    bool shorter = known && couples && (uint64_t)steps < steps_max && need_shows_slow(facts, steps);
    *ret_steps = shorter ? (uint64_t)steps : steps_max;
    run_facts_clear(&run);
    return 0;
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
        ret_cells[count++] =
            (struct gate_glance){.metric = metric_infos[cell->metric].name,
                                 .verdict = open ? "-" : cell_verdict_name(cell->verdict),
                                 .ratio = cell->ratio,
                                 .ci_lower = cell->ci_lower,
                                 .ci_upper = cell->ci_upper};
    }
    run_facts_clear(&run);
    return count;
}
