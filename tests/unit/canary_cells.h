// SPDX-License-Identifier: Apache-2.0
// The rules that tests of the canary's evidence judge by, and one cell of what it says.
#ifndef UPGATE_TESTS_UNIT_CANARY_CELLS_H
#define UPGATE_TESTS_UNIT_CANARY_CELLS_H

#include "reports/analyse/canary/evidence.h"
#include "tests/unit/runner.h"

// Gated: errors, p99, no wrong answer. p50 and mean are observed with that margin; NAN: not looked
// at.
__attribute__((unused)) static struct canary_rules rules_of(
        double error_margin, double p99_margin, double observed)
{
    struct canary_rules rules = {.alpha = 0.01, .tripwire_error_rate = 0.2, .alone_times = 2};
    rules.metrics[CANARY_ERROR_RATE] = (struct canary_rule){true, false, error_margin, NAN};
    rules.metrics[CANARY_LATENCY_P99] = (struct canary_rule){true, false, p99_margin, NAN};
    rules.metrics[CANARY_WRONG_ANSWERS] = (struct canary_rule){true, false, NAN, 0};
    rules.metrics[CANARY_LATENCY_P50] = rules.metrics[CANARY_LATENCY_MEAN] =
            (struct canary_rule){false, !isnan(observed), observed, NAN};
    rules.metrics[CANARY_REJECTED_RATE] =
            (struct canary_rule){false, !isnan(observed), error_margin, NAN};
    return rules;
}

__attribute__((unused)) static struct canary_cell cell_of(
        const struct canary_evidence *evidence, enum canary_metric metric)
{
    struct canary_cell cells[CANARY_METRICS];
    int count;
    canary_evidence_cells(evidence, cells, &count);
    for (int i = 0; i < count; i++)
        if (cells[i].metric == metric)
            return cells[i];
    runner_fail(__FILE__, __LINE__, "no cell of %s", canary_metric_name(metric));
    return (struct canary_cell){.verdict = CANARY_UNDECIDED};
}

#endif
