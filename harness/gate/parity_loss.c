// SPDX-License-Identifier: Apache-2.0
// Parity of loss curves: the tube of the baseline's seeds and the final loss. Reads table loss
// through parity_rows; writes nothing.
#include <math.h>
#include <string.h>

#include "common/strings.h"
#include "harness/gate/parity_gate.h"
#include "harness/gate/parity_rows.h"
#include "reports/analyse/tube.h"

static const double parity_final_margin = 0.02; // of the final loss, either way

static struct parity_row parity_loss_tube(const struct loss_rows *rows, const char *workload)
{
    struct tube_input input = {rows->a, rows->b, rows->seed_count, rows->step_count};
    struct tube_result tube = tube_compare(&input);
    struct parity_row row = {.workload = workload,
                             .tensor = xstrdup("loss"),
                             .rule = "loss-tube",
                             .error_a = tube.worst_width,
                             .error_b = tube.worst_distance,
                             .verdict = CELL_INCONCLUSIVE};
    switch (tube.state) {
    case TUBE_INSIDE:
    case TUBE_OUTSIDE:
        row.verdict = tube.state == TUBE_INSIDE ? CELL_PASS : CELL_FAIL;
        row.reason =
            xasprintf("%s the spread of the baseline over %d seeds: %.2g %% of %d points outside, "
                      "furthest at step %d (%.3g away, tube %.3g)",
                      tube.state == TUBE_INSIDE ? "within" : "leaves", rows->seed_count,
                      100 * tube.share_outside, rows->seed_count * rows->step_count,
                      tube.worst_step, tube.worst_distance, tube.worst_width);
        break;
    case TUBE_NOT_FINITE_B:
        row.verdict = CELL_FAIL;
        row.rule = "finite";
        row.error_a = row.error_b = NAN;
        row.reason = xstrdup("the candidate's loss becomes NaN or Inf, the baseline's does not");
        break;
    case TUBE_NOT_FINITE_A:
        row.rule = "finite";
        row.error_a = row.error_b = NAN;
        row.reason = xstrdup("the baseline's own loss becomes NaN or Inf: nothing to compare with");
        break;
    default:
        row.reason = xasprintf(
            "differs by up to %.2g %%, and %d seeds do not tell the baseline's spread (%d do)",
            100 * tube.difference, rows->seed_count, TUBE_SEEDS_MIN);
    }
    return row;
}

static struct parity_row parity_loss_final(const struct loss_rows *rows, const char *workload,
                                           double alpha)
{
    struct tube_input input = {rows->a, rows->b, rows->seed_count, rows->step_count};
    struct interval interval = tube_final(&input, alpha);
    struct parity_row row = {.workload = workload,
                             .tensor = xstrdup("loss (final)"),
                             .rule = "final-loss",
                             .error_a = parity_final_margin,
                             .error_b = fabs(interval.estimate),
                             .verdict = CELL_INCONCLUSIVE};
    bool inside = interval.lower > -parity_final_margin && interval.upper < parity_final_margin;
    bool outside = interval.lower > parity_final_margin || interval.upper < -parity_final_margin;
    if (interval.has_bounds)
        row.verdict = inside ? CELL_PASS : outside ? CELL_FAIL : CELL_INCONCLUSIVE;
    row.reason = interval.has_bounds
                     ? xasprintf("final loss %+.3g %% (%+.3g to %+.3g %%) of the baseline's over "
                                 "%d seeds, %s %.0f %%",
                                 100 * interval.estimate, 100 * interval.lower,
                                 100 * interval.upper, rows->seed_count,
                                 inside    ? "within"
                                 : outside ? "beyond"
                                           : "not told apart from",
                                 100 * parity_final_margin)
                     : xasprintf("%d seeds are too few for an interval of the final loss (%d do)",
                                 rows->seed_count, signed_rank_observations_min(alpha));
    return row;
}

int parity_losses(struct store *store, const struct workload_facts *facts,
                  const struct plan_gate *gate, struct parity_row *ret_rows, struct error *err)
{
    struct loss_rows rows;
    int rc = loss_rows_load(store, facts->id, &rows, err), count = 0;
    if (rc)
        return rc;
    if (rows.seed_count) {
        ret_rows[count++] = parity_loss_tube(&rows, facts->name);
        if (strcmp(ret_rows[0].rule, "finite") != 0)
            ret_rows[count++] = parity_loss_final(&rows, facts->name, gate->alpha);
    } else if (rows.only_a || rows.only_b) {
        ret_rows[count++] = (struct parity_row){
            .workload = facts->name,
            .tensor = xstrdup("loss"),
            .rule = "missing",
            .error_a = NAN,
            .error_b = NAN,
            .verdict = rows.only_a ? CELL_FAIL : CELL_INCONCLUSIVE,
            .reason =
                xstrdup(rows.only_a ? "missing: recorded by the baseline only"
                                    : "recorded by the candidate only: nothing to compare with")};
    }
    loss_rows_clear(&rows);
    return count;
}
