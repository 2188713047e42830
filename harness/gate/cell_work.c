// SPDX-License-Identifier: Apache-2.0
// Does anything show that both sides did the same work? Numbers of steps do (health_work.c holds
// them against each other), and of requests; outputs are recorded in steps. A program of which only
// the whole is known shows nothing: a candidate that leaves work out takes less time, less CPU time
// and less memory. Pure on facts; adds a finding.
#include "harness/gate/cell.h"

#include "harness/gate/phrase.h"

static const double work_requests_margin = 0.02; // as that of steps
// Twice as fast is more than an upgrade brings, and is what an end after half of the work looks
// like. Who knows better names total_time, and is not asked any more.
static const double work_doubted_below = 0.5;

static bool work_is_counted(const struct measure_pair *pair)
{
    const struct measure_launch *a = &pair->sides[0], *b = &pair->sides[1];
    bool requests = a->requests > 0 && b->requests >= (1 - work_requests_margin) * a->requests;
    return requests || (a->steps > 0 && b->steps > 0);
}

bool cells_count_work(const struct workload_facts *facts)
{
    int counted = 0;
    for (int i = 0; i < facts->main_count; i++)
        counted += work_is_counted(&facts->main[i]);
    return 2 * counted >= facts->main_count;
}

void cells_find_less_work(const struct cell_context *context, const struct cell *cells, int count,
        struct findings *findings)
{
    const struct cell *less = NULL; // of the metrics total_time is the first
    char ratio[PHRASE_SIZE];
    for (int i = 0; i < count && !less; i++)
        if (cells[i].doubted && cells[i].verdict == CELL_PASS)
            less = &cells[i];
    if (!less)
        return;
    bool half = less->metric == METRIC_TOTAL_TIME && less->ratio < work_doubted_below &&
            context->gate->metrics_default;
    findings_add(findings, context->facts->name, "work", 1,
            half ? FINDING_INCONCLUSIVE : FINDING_NOTE,
            "%s: %s, and nothing shows that it is the same work%s", metric_infos[less->metric].name,
            phrase_ratio(ratio, sizeof ratio, less->metric, less->ratio),
            half ? "; mark steps, record an output in one, or name total_time in gate.metrics"
                 : "");
}
