// SPDX-License-Identifier: Apache-2.0
// Reads control pairs, takes the plant out of raw rows, asks reports/analyse/control.
#include "harness/gate/certificate/control.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "common/strings.h"
#include "harness/gate/phrase.h"

// What the harness wrote down about side b of a control pair.
struct control_hold {
    double share, wait_ns, cpu_ns;
    bool frozen;
};

// Every step of side b took 1 + share times as long as it would have: what follows it comes
// earlier, and its block is shorter.
static void control_strip_steps(struct pair_rows *rows, double share)
{
    struct launch_rows *launch = &rows->sides[1];
    double part = share / (1 + share);
    for (int r = 0; r < launch->rank_count; r++) {
        struct rank_rows *rank = &launch->ranks[r];
        double waited = 0;
        for (int i = 0, b = 0; i < rank->count; i++) {
            double more = (double)rank->dur_ns[i] * part;
            rank->begin_ns[i] -= (int64_t)waited;
            rank->dur_ns[i] -= (int64_t)more;
            waited += more;
            while (b < rows->block_count &&
                    rank->idx[i] >= rows->blocks[b].first_step[1] + rows->blocks[b].steps[1])
                b++;
            // Ranks wait for each other: what one of them waited is what the block is longer by.
            if (r == 0 && b < rows->block_count && rank->idx[i] >= rows->blocks[b].first_step[1])
                rows->blocks[b].active_ns[1] -= (int64_t)more;
        }
    }
}

static void control_strip(struct pair_rows *rows, const struct control_hold *hold)
{
    rows->sides[1].active_ns -= hold->wait_ns;
    rows->sides[1].cpu_ns -= hold->cpu_ns;
    if (!hold->frozen)
        control_strip_steps(rows, hold->share);
}

int control_pairs_count(const struct workload_facts *facts)
{
    int count = 0;
    for (int i = 0; i < facts->head_count; i++)
        count += facts->heads[i].phase == PAIR_PHASE_CONTROL &&
                facts->heads[i].fate == PAIR_FATE_VALID;
    return count;
}

static int control_hold_load(
        struct store *store, int64_t pair_id, struct control_hold *ret_hold, struct error *err)
{
    static const char sql[] = "SELECT coalesce(json_extract(covariates, '$.control_ppm'), 0), "
                              "coalesce(json_extract(covariates, '$.control_wait_ns'), 0), "
                              "coalesce(json_extract(covariates, '$.control_cpu_ns'), 0), "
                              "coalesce(json_extract(covariates, '$.control_frozen'), 0) "
                              "FROM launch WHERE pair_id = ? AND side = 1";
    sqlite3_stmt *stmt = store_query(store, err, sql, "i", pair_id);
    int rc = stmt ? store_step(store, stmt, err) : -EIO;
    if (rc == 0)
        return error_set(
                err, -EINVAL, "store '%s': a control pair has no side b", store_path(store));
    if (rc < 0)
        return rc;
    *ret_hold = (struct control_hold){.share = 1e-6 * sqlite3_column_double(stmt, 0),
            .wait_ns = sqlite3_column_double(stmt, 1),
            .cpu_ns = sqlite3_column_double(stmt, 2),
            .frozen = sqlite3_column_int(stmt, 3) != 0};
    sqlite3_reset(stmt);
    return 0;
}

static int control_pair_load(struct store *store, const struct pair_head *head,
        struct control_pairs *pairs, struct error *err)
{
    struct pair_rows rows;
    struct control_hold hold = {0};
    int rc = control_hold_load(store, head->id, &hold, err);
    if (rc == 0)
        rc = pair_rows_load(store, head, true, &rows, err);
    if (rc)
        return rc;
    measure_pair(&rows, &pairs->held[pairs->count]);
    control_strip(&rows, &hold);
    measure_pair(&rows, &pairs->without[pairs->count]);
    pair_rows_clear(&rows);
    pairs->share = pairs->count++ ? fmin(pairs->share, hold.share) : hold.share;
    return 0;
}

int control_pairs_load(struct store *store, const struct workload_facts *facts,
        struct control_pairs *ret_pairs, struct error *err)
{
    size_t count = (size_t)control_pairs_count(facts);
    struct control_pairs pairs = {.held = xcalloc(count, sizeof *pairs.held),
            .without = xcalloc(count, sizeof *pairs.without)};
    int rc = 0;
    for (int i = 0; i < facts->head_count && rc == 0; i++)
        if (facts->heads[i].phase == PAIR_PHASE_CONTROL && facts->heads[i].fate == PAIR_FATE_VALID)
            rc = control_pair_load(store, &facts->heads[i], &pairs, err);
    if (rc) {
        control_pairs_clear(&pairs);
        return rc;
    }
    *ret_pairs = pairs;
    return 0;
}

void control_pairs_clear(struct control_pairs *pairs)
{
    free(pairs->held);
    free(pairs->without);
    *pairs = (struct control_pairs){0};
}

static double *control_ratios(const struct measure_pair *pairs, int count, enum metric_id metric)
{
    double *ratios = xcalloc((size_t)count, sizeof *ratios);
    workload_facts_ratios(pairs, count, metric, ratios);
    return ratios;
}

// Log ratios of equal sides of a numerator become those of its quotient. The other workload has no
// control pairs; its main pairs tell how much it spreads, and their mean, a difference of the
// sides, is left out. Returns how many there are.
static int control_spread(
        double *values, int count, const struct workload_facts *other, enum metric_id quantity)
{
    double *more = control_ratios(other->main, other->main_count, quantity), middle = 0;
    int used = 0;
    for (int i = 0; i < other->main_count; i++)
        if (!isnan(more[i]))
            more[used++] = more[i];
    for (int i = 0; i < used; i++)
        middle += more[i] / used;
    for (int i = 0; i < count && i < used; i++)
        values[i] += more[i] - middle;
    free(more);
    return count < used ? count : used;
}

struct control_result control_of_cell(const struct run_facts *run,
        const struct run_workload *workload, const struct control_pairs *pairs,
        const struct cell *cell)
{
    const struct workload_facts *facts = &workload->facts;
    const struct plan_schedule *schedule = &run->plan->schedule;
    struct control_rule rule = {.alpha = run->gate.alpha / schedule->look_count,
            .margin = cell->margin,
            .pairs_min = (int)schedule->looks[0],
            .own_pairs = !run->aa};
    // Of a quotient what is planted is found in its numerator: control pairs are of this workload
    // alone.
    enum metric_id quantity = workload_facts_quantity(facts, cell->metric);
    double *held = control_ratios(pairs->held, pairs->count, quantity);
    double *without = control_ratios(pairs->without, pairs->count, quantity);
    double *aa = run->aa ? control_ratios(facts->main, facts->main_count, cell->metric)
                         : control_ratios(pairs->without, pairs->count, quantity);
    int aa_count = run->aa ? facts->main_count : pairs->count;
    if (!run->aa && quantity != cell->metric && facts->against[cell->metric])
        aa_count = control_spread(aa, aa_count, facts->against[cell->metric], quantity);
    struct control_values values = {.aa = aa,
            .aa_count = aa_count,
            .held = held,
            .without = without,
            .held_count = pairs->count};
    struct control_result result = control_judge(&rule, &values);
    free(held);
    free(without);
    free(aa);
    return result;
}

char *control_objection(
        const struct control_result *result, const struct run_facts *run, double margin)
{
    char text[32], seen[PHRASE_SIZE], planted[32];
    int wanted = (int)run->plan->schedule.looks[0];
    phrase_floor(text, sizeof text, margin);
    phrase_fraction(planted, sizeof planted, expm1(result->planted));
    switch (result->state) {
    case CONTROL_TOO_FEW:
        return xasprintf("%d pairs of equal sides have it, the first look is at %d",
                result->aa_pairs, wanted);
    case CONTROL_BIASED:
        return xasprintf("equal sides are not seen as equal: %s, and that must lie within half the "
                         "margin of %s",
                phrase_change(seen, sizeof seen, &result->aa), text);
    case CONTROL_INSENSITIVE:
        return xasprintf("the smallest effect that %d pairs of equal sides show is %s, not "
                         "below the margin of %s",
                result->aa_pairs, phrase_fraction(seen, sizeof seen, result->mde), text);
    case CONTROL_TOO_FEW_HELD:
        return xasprintf("%d control pairs have it, %d are needed", result->held_pairs, wanted);
    case CONTROL_NOT_FOUND:
        return xasprintf("a side that was held %s longer was not found: %s", planted,
                phrase_change(seen, sizeof seen, &result->held));
    case CONTROL_WRONG_SIZE:
        return xasprintf("a side that was held %s longer was seen as another size: %s", planted,
                phrase_change(seen, sizeof seen, &result->held));
    default:
        return xstrdup("certified");
    }
}

double control_share(const struct run_workload *workload)
{
    double share = 0;
    for (int i = 0; i < workload->cell_count; i++) {
        const struct cell *cell = &workload->cells[i];
        enum metric_id quantity = workload_facts_quantity(&workload->facts, cell->metric);
        bool memory = quantity == METRIC_PEAK_MEMORY || quantity == METRIC_PEAK_GPU_MEMORY;
        if (cell->gating && !memory && cell->margin > share)
            share = cell->margin;
    }
    return share;
}
