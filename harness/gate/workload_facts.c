// SPDX-License-Identifier: Apache-2.0
// Loads and measures the pairs of a workload. While a run goes on each pair is measured once: the
// result is kept in a temporary table of the store's connection, which ends with it.
#include "harness/gate/workload_facts.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "reports/analyse/mean_interval.h"

static const double facts_machine_alpha = 0.01; // one-sided

static int facts_cache_open(struct store *store, struct error *err)
{
    return store_exec(store, err,
            "CREATE TEMP TABLE IF NOT EXISTS gate_measured (pair_id INTEGER PRIMARY KEY, "
            "measured BLOB NOT NULL)",
            "");
}

// 1: *ret_pair was found in the cache.
static int facts_cache_get(
        struct store *store, int64_t pair_id, struct measure_pair *ret_pair, struct error *err)
{
    sqlite3_stmt *stmt = store_query(
            store, err, "SELECT measured FROM temp.gate_measured WHERE pair_id = ?", "i", pair_id);
    if (!stmt)
        return -EIO;
    int rc = store_step(store, stmt, err);
    if (rc == 1 && sqlite3_column_bytes(stmt, 0) == (int)sizeof *ret_pair)
        memcpy(ret_pair, sqlite3_column_blob(stmt, 0), sizeof *ret_pair);
    else if (rc == 1)
        rc = 0;
    sqlite3_reset(stmt);
    return rc;
}

static int facts_measure(struct store *store, const struct pair_head *head,
        enum facts_source source, struct measure_pair *ret_pair, struct error *err)
{
    int rc = source == FACTS_CACHED ? facts_cache_get(store, head->id, ret_pair, err) : 0;
    if (rc)
        return rc < 0 ? rc : 0;
    struct pair_rows rows;
    rc = pair_rows_load(store, head, true, &rows, err);
    if (rc)
        return rc;
    measure_pair(&rows, ret_pair);
    pair_rows_clear(&rows);
    if (source == FACTS_CACHED)
        rc = store_exec(store, err, "INSERT OR REPLACE INTO temp.gate_measured VALUES (?, ?)", "ib",
                head->id, (const void *)ret_pair, sizeof *ret_pair);
    return rc;
}

static int facts_load_head(struct store *store, struct workload_facts *facts, int at,
        enum facts_source source, struct error *err)
{
    const struct pair_head *head = &facts->heads[at];
    bool measured = head->fate == PAIR_FATE_VALID &&
            (head->phase == PAIR_PHASE_MAIN || head->phase == PAIR_PHASE_CONFIRM);
    if (measured) {
        struct measure_pair *pair = head->phase == PAIR_PHASE_MAIN
                ? &facts->main[facts->main_count++]
                : &facts->confirm[facts->confirm_count++];
        int rc = facts_measure(store, head, source, pair, err);
        if (rc)
            return rc;
        for (int side = 0; side < PLAN_SIDES; side++) {
            facts->fates[at][side] = pair->sides[side].fate;
            facts->has_arrivals = facts->has_arrivals || pair->sides[side].has_arrivals;
        }
        return 0;
    }
    struct pair_rows rows;
    int rc = pair_rows_load(store, head, false, &rows, err);
    if (rc)
        return rc;
    for (int side = 0; side < PLAN_SIDES; side++) {
        facts->fates[at][side] = rows.sides[side].fate;
        if (head->fate == PAIR_FATE_FAILED && head->interleave == PLAN_INTERLEAVE_STEPS &&
                rows.sides[side].fate == LAUNCH_FATE_OK && rows.sides[side].steps < 0)
            facts->fates[at][side] = LAUNCH_FATE_NO_STEPS;
        facts->has_steps = facts->has_steps ||
                (rows.sides[side].steps >= 0 && head->interleave != PLAN_INTERLEAVE_SLICES);
    }
    pair_rows_clear(&rows);
    return 0;
}

// By what its pairs are judged. In slices a side is frozen in the middle of its steps, so that they
// are not measured: whoever makes some there, both sides or one of them, is judged as a whole.
// Other launches say nothing of that, where there are pairs: those of the baseline alone are never
// cut, and a pair that failed may have been tried in another way.
static void facts_find_steps(struct workload_facts *facts)
{
    if (!facts->main_count)
        return;
    facts->has_steps = facts->calls_steps = false;
    for (int i = 0; i < facts->main_count; i++) {
        const struct measure_pair *pair = &facts->main[i];
        bool calls = pair->sides[0].steps >= 0 || pair->sides[1].steps >= 0;
        facts->calls_steps = facts->calls_steps || calls;
        facts->has_steps =
                facts->has_steps || (calls && pair->head.interleave != PLAN_INTERLEAVE_SLICES);
    }
}

static int facts_load_workload(struct store *store, const struct plan *plan,
        struct workload_facts *facts, struct error *err)
{
    sqlite3_stmt *stmt = store_query(
            store, err, "SELECT name, mode, interleave FROM workload WHERE id = ?", "i", facts->id);
    if (!stmt)
        return -EIO;
    int rc = store_step(store, stmt, err);
    if (rc == 0)
        return error_set(err, -ENOENT, "store '%s' has no workload %lld", store_path(store),
                (long long)facts->id);
    if (rc < 0)
        return rc;
    facts->name = xstrdup(store_text(store, stmt, 0));
    const char *mode = store_text(store, stmt, 1);
    const char *interleave = (const char *)sqlite3_column_text(stmt, 2);
    for (int i = 0; i < PLAN_MODE_COUNT; i++)
        if (strcmp(mode, plan_mode_name((enum plan_mode)i)) == 0)
            facts->mode = (enum plan_mode)i;
    for (int i = 0; interleave && i < PLAN_INTERLEAVE_COUNT; i++)
        if (strcmp(interleave, plan_interleave_name((enum plan_interleave)i)) == 0)
            facts->interleave = (enum plan_interleave)i;
    sqlite3_reset(stmt);
    for (int i = 0; i < plan->workload_count; i++)
        if (strcmp(plan->workloads[i].name, facts->name) == 0)
            facts->plan = &plan->workloads[i];
    return 0;
}

static void facts_leave_in(struct measure_pair *pairs, int count)
{
    for (int i = 0; i < count; i++)
        for (int m = 0; m < METRIC_COUNT; m++)
            if (!isnan(pairs[i].raw_ratio[m]))
                pairs[i].log_ratio[m] = pairs[i].raw_ratio[m];
}

// What the machine takes falls on both sides alike, by the coin of their turns. A side from which
// it takes more brings it on itself: kernel threads that work for it, a memory bandwidth that it
// uses up.
static void facts_judge_machine(struct workload_facts *facts)
{
    double *differences = xcalloc((size_t)facts->main_count, sizeof *differences);
    int count = 0;
    for (int i = 0; i < facts->main_count; i++) {
        const struct measure_launch *sides = facts->main[i].sides;
        double difference = sides[1].machine_share - sides[0].machine_share;
        if (!isnan(difference))
            differences[count++] = difference;
    }
    double worse = mean_sign_p(differences, count);
    for (int i = 0; i < count; i++)
        differences[i] = -differences[i];
    double better = mean_sign_p(differences, count);
    facts->machine_side = worse < facts_machine_alpha ? 1 : better < facts_machine_alpha ? 0 : -1;
    free(differences);
    if (facts->machine_side < 0)
        return;
    facts_leave_in(facts->main, facts->main_count);
    facts_leave_in(facts->confirm, facts->confirm_count);
}

int workload_facts_load(struct store *store, const struct plan *plan, int64_t workload_id,
        enum facts_source source, struct workload_facts *ret_facts, struct error *err)
{
    struct workload_facts facts = {
            .id = workload_id, .interleave = PLAN_INTERLEAVE_AUTO, .machine_side = -1};
    int rc = source == FACTS_CACHED ? facts_cache_open(store, err) : 0;
    if (rc == 0)
        rc = facts_load_workload(store, plan, &facts, err);
    if (rc == 0)
        rc = pair_heads_load(store, workload_id, &facts.heads, &facts.head_count, err);
    if (rc == 0) {
        size_t count = (size_t)facts.head_count;
        facts.main = xcalloc(count, sizeof *facts.main);
        facts.confirm = xcalloc(count, sizeof *facts.confirm);
        facts.fates = xcalloc(count, sizeof *facts.fates);
        for (int i = 0; i < facts.head_count && rc == 0; i++)
            rc = facts_load_head(store, &facts, i, source, err);
    }
    if (rc) {
        workload_facts_clear(&facts);
        return rc;
    }
    facts_find_steps(&facts);
    for (int i = 0; facts.plan && facts.plan->run_steps && i < facts.main_count; i++)
        measure_warm_up(&facts.main[i], (double)facts.plan->run_steps);
    for (int i = 0; facts.plan && facts.plan->run_steps && i < facts.confirm_count; i++)
        measure_warm_up(&facts.confirm[i], (double)facts.plan->run_steps);
    facts_judge_machine(&facts);
    *ret_facts = facts;
    return 0;
}

void workload_facts_clear(struct workload_facts *facts)
{
    free(facts->name);
    free(facts->heads);
    free(facts->main);
    free(facts->confirm);
    free(facts->fates);
    *facts = (struct workload_facts){0};
}

static bool facts_use_gpu(const struct workload_facts *facts)
{
    for (int i = 0; i < facts->main_count; i++)
        for (int side = 0; side < PLAN_SIDES; side++)
            if (facts->main[i].sides[side].value[METRIC_PEAK_GPU_MEMORY] > 0)
                return true;
    return false;
}

enum metric_id workload_facts_quantity(const struct workload_facts *facts, enum metric_id metric)
{
    const struct workload_facts *other = facts->against[metric];
    if (metric == METRIC_SCALING_EFFICIENCY)
        return METRIC_THROUGHPUT;
    if (metric != METRIC_MEMORY_SAVED)
        return metric;
    return facts_use_gpu(facts) || (other && facts_use_gpu(other)) ? METRIC_PEAK_GPU_MEMORY
                                                                   : METRIC_PEAK_MEMORY;
}

static void facts_relate_side(struct measure_launch *launch, const struct measure_launch *other,
        enum metric_id metric, enum metric_id of, double ranks)
{
    double quotient = other->value[of] > 0 ? launch->value[of] / other->value[of] : NAN;
    enum measure_reason reason = isnan(launch->value[of]) ? launch->reason[of] : other->reason[of];
    launch->value[metric] = metric == METRIC_MEMORY_SAVED ? 1 - quotient : quotient / ranks;
    launch->reason[metric] = !isnan(quotient) ? MEASURE_OK
            : reason != MEASURE_OK            ? reason
                                              : MEASURE_NOT_RECORDED;
}

// The ratio is that of the quotients. What compiling saves may be nothing, or less, and has no
// logarithm; what it leaves has one.
static void facts_relate_pairs(struct measure_pair *pairs, const struct measure_pair *others,
        int count, enum metric_id metric, enum metric_id of, double ranks)
{
    for (int i = 0; i < count; i++) {
        double ratio = pairs[i].log_ratio[of] - others[i].log_ratio[of];
        for (int side = 0; side < PLAN_SIDES; side++)
            facts_relate_side(&pairs[i].sides[side], &others[i].sides[side], metric, of, ranks);
        pairs[i].log_ratio[metric] = metric == METRIC_MEMORY_SAVED ? -ratio : ratio;
    }
}

void workload_facts_relate(
        struct workload_facts *facts, const struct workload_facts *other, enum metric_id metric)
{
    facts->against[metric] = other;
    enum metric_id of = workload_facts_quantity(facts, metric);
    double ranks = (double)facts->plan->ranks;
    int main = facts->main_count < other->main_count ? facts->main_count : other->main_count;
    int confirm = facts->confirm_count < other->confirm_count ? facts->confirm_count
                                                              : other->confirm_count;
    facts_relate_pairs(facts->main, other->main, main, metric, of, ranks);
    facts_relate_pairs(facts->confirm, other->confirm, confirm, metric, of, ranks);
}

enum plan_mode workload_facts_mode(const struct workload_facts *facts)
{
    bool closed_loop = facts->mode == PLAN_MODE_INFER && facts->has_steps && !facts->has_arrivals;
    return closed_loop ? PLAN_MODE_TRAIN : facts->mode;
}

void workload_facts_ratios(
        const struct measure_pair *pairs, int count, enum metric_id metric, double *ret_ratios)
{
    double sign = metric_infos[metric].direction[0] == 'l' ? 1 : -1;
    for (int i = 0; i < count; i++)
        ret_ratios[i] = sign * pairs[i].log_ratio[metric];
}
