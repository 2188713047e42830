// SPDX-License-Identifier: Apache-2.0
// The verdict of a run in one sentence, worst thing first. Pure.
#include "harness/gate/summary.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "harness/gate/phrase.h"

// What is counted over all gated cells, and the one that is worth a sentence for each verdict.
struct summary_count {
    int gated, of[CELL_VERDICT_COUNT], improved;
    int fails_measured; // of those that fail: by a number, not because nothing is there
    const struct cell *worst[CELL_VERDICT_COUNT];
};

static bool summary_worse(const struct cell *cell, const struct cell *than)
{
    if (!than)
        return true;
    // A cell without a number (missing, crashed) says more than any number.
    if (isnan(cell->excess) != isnan(than->excess))
        return isnan(cell->excess);
    return cell->excess > than->excess;
}

// How much a metric says of what is slower: the typical step and slow steps are parts of the mean,
// the mean and the warm-up are parts of a run.
static int summary_part(enum metric_id metric)
{
    switch (metric) {
    case METRIC_STEP_TIME:
    case METRIC_SLOW_STEPS:
        return 1;
    case METRIC_MEAN_STEP_TIME:
    case METRIC_THROUGHPUT:
        return 2;
    case METRIC_WARM_UP_TIME:
        return 3;
    default:
        return 0;
    }
}

// Does a part of this cell's sum fail too? Then that one leads.
static bool summary_has_part(const struct run_workload *workload, const struct cell *cell)
{
    int sum = summary_part(cell->metric);
    for (int i = 0; i < workload->cell_count && sum > 1; i++) {
        const struct cell *part = &workload->cells[i];
        int of = summary_part(part->metric);
        if (part->gating && part->verdict == cell->verdict && of > 0 && of < sum)
            return true;
    }
    return false;
}

static struct summary_count summary_count_cells(const struct run_facts *run)
{
    struct summary_count count = {0};
    for (int i = 0; i < run->workload_count; i++) {
        for (int k = 0; k < run->workloads[i].cell_count; k++) {
            const struct cell *cell = &run->workloads[i].cells[k];
            if (!cell->gating)
                continue;
            count.gated++;
            count.of[cell->verdict]++;
            count.improved += cell->improved && cell->verdict == CELL_PASS;
            count.fails_measured +=
                    cell->verdict == CELL_FAIL && !isnan(cell->excess) && !cell->missing;
            if (!(cell->verdict == CELL_FAIL && summary_has_part(&run->workloads[i], cell)) &&
                    summary_worse(cell, count.worst[cell->verdict]))
                count.worst[cell->verdict] = cell;
        }
    }
    return count;
}

static const struct parity_row *summary_parity(
        const struct summary_input *input, enum cell_verdict verdict)
{
    for (int i = 0; i < input->parity_count; i++)
        if (input->parity[i].verdict == verdict)
            return &input->parity[i];
    return NULL;
}

static const struct finding *summary_finding(
        const struct summary_input *input, enum finding_effect effect)
{
    for (int i = 0; i < input->run->findings.count; i++)
        if (input->run->findings.items[i].effect == effect)
            return &input->run->findings.items[i];
    return NULL;
}

static void summary_add_cell(struct strbuf *text, const struct cell *cell)
{
    strbuf_add(text, "%s %s: %s", cell->workload, metric_infos[cell->metric].name, cell->reason);
}

static void summary_add_finding(struct strbuf *text, const struct finding *finding)
{
    if (finding->workload)
        strbuf_add(text, "%s: ", finding->workload);
    strbuf_add(text, "%s", finding->text);
}

static void summary_add_parity(struct strbuf *text, const struct parity_row *row)
{
    strbuf_add(text, "%s parity of '%s': %s", row->workload, row->tensor, row->reason);
}

static void summary_fail(
        const struct summary_input *input, const struct summary_count *count, struct strbuf *text)
{
    const struct finding *finding = summary_finding(input, FINDING_FAIL);
    const struct parity_row *parity = summary_parity(input, CELL_FAIL);
    int others = count->of[CELL_FAIL];
    if (finding) { // a side that is not there at all comes before any number, and says why its
                   // cells have none
        summary_add_finding(text, finding);
        others = count->fails_measured;
    } else if (count->worst[CELL_FAIL]) {
        summary_add_cell(text, count->worst[CELL_FAIL]);
        others--;
    } else if (parity) {
        summary_add_parity(text, parity);
        parity = NULL;
    }
    if (others > 0)
        strbuf_add(text, "; %d more cell%s fail%s", others, others == 1 ? "" : "s",
                others == 1 ? "s" : "");
    if (parity) {
        strbuf_add(text, "; ");
        summary_add_parity(text, parity);
    }
    if (!input->calibration->covered)
        strbuf_add(text, " (%s)", input->calibration->note);
}

static void summary_inconclusive(
        const struct summary_input *input, const struct summary_count *count, struct strbuf *text)
{
    const struct run_facts *run = input->run;
    const struct finding *finding = summary_finding(input, FINDING_INCONCLUSIVE);
    const struct parity_row *parity = summary_parity(input, CELL_INCONCLUSIVE);
    const struct cell *cell = count->worst[CELL_INCONCLUSIVE];
    if (cell && run->state == RUN_STATE_INTERRUPTED)
        strbuf_add(text, "interrupted: ");
    else if (cell && run->state == RUN_STATE_RUNNING)
        strbuf_add(text, "the run has not ended: ");
    if (!input->trust_ok)
        strbuf_add(text, "what was recorded cannot be trusted: %s", input->trust_breach);
    else if (finding)
        summary_add_finding(text, finding);
    else if (cell)
        summary_add_cell(text, cell);
    else if (parity)
        summary_add_parity(text, parity);
    else if (!count->gated)
        strbuf_add(text, "nothing was judged: no gated metric was measured");
    else if (!input->calibration->covered)
        strbuf_add(text,
                "%s; %s %d gated cell%s within the margins, but no control shows that a regression "
                "would be seen",
                input->calibration->note, count->gated == 1 ? "the" : "all", count->gated,
                count->gated == 1 ? " is" : "s are");
    int cells = count->of[CELL_INCONCLUSIVE] - (cell && input->trust_ok && !finding);
    if (cells > 0)
        strbuf_add(text, "; %d %scell%s undecided", cells,
                input->trust_ok && !finding ? "more " : "", cells == 1 ? " is" : "s are");
}

// --- what a pass says nothing of -----------------------------------------------------------------

// Workloads of a run that lack something.
struct summary_lacking {
    int count;
    const char *name; // of the last one
};

static bool summary_times(const struct run_workload *workload)
{
    for (int i = 0; i < workload->cell_count; i++)
        if (workload->cells[i].gating && plan_metric_is_time(workload->cells[i].metric))
            return true;
    return false;
}

static bool summary_compares(const struct summary_input *input, const struct run_workload *workload)
{
    for (int i = 0; i < input->parity_count; i++)
        if (strcmp(input->parity[i].workload, workload->facts.name) == 0)
            return true;
    return false;
}

// " of w", " of 2 of 5 workloads"; nothing where all of them lack it.
static void summary_add_lacking(struct strbuf *text, const char *before,
        const struct run_facts *run, const struct summary_lacking *lacking)
{
    if (lacking->count == run->workload_count)
        return;
    if (lacking->count == 1)
        strbuf_add(text, " %s %s", before, lacking->name);
    else
        strbuf_add(text, " %s %d of %d workloads", before, lacking->count, run->workload_count);
}

// A pass must not be taken for more than was judged: a plan that names its metrics switches all
// others off.
static void summary_add_untimed(const struct run_facts *run, struct strbuf *text)
{
    struct summary_lacking lacking = {0};
    for (int i = 0; i < run->workload_count; i++)
        if (!summary_times(&run->workloads[i]))
            lacking = (struct summary_lacking){lacking.count + 1, run->workloads[i].facts.name};
    if (!lacking.count)
        return;
    char *why = plan_time_unjudged(&run->gate);
    strbuf_add(text, "; speed");
    summary_add_lacking(text, "of", run, &lacking);
    strbuf_add(text, " was not judged: %s",
            why ? why : "no metric of time that gate.metrics names can be measured");
    free(why);
}

static void summary_add_uncompared(const struct summary_input *input, struct strbuf *text)
{
    const struct run_facts *run = input->run;
    struct summary_lacking lacking = {0};
    for (int i = 0; i < run->workload_count && run->gate.parity != PLAN_PARITY_OFF; i++)
        if (!summary_compares(input, &run->workloads[i]))
            lacking = (struct summary_lacking){lacking.count + 1, run->workloads[i].facts.name};
    if (!lacking.count)
        return;
    strbuf_add(text, "; no output was compared");
    summary_add_lacking(text, "in", run, &lacking);
}

// Nor does anything show that the work of a program that made none was the same.
static void summary_add_uncounted(const struct run_facts *run, struct strbuf *text)
{
    struct summary_lacking lacking = {0};
    for (int i = 0; i < run->workload_count; i++)
        if (!cells_count_work(&run->workloads[i].facts))
            lacking = (struct summary_lacking){lacking.count + 1, run->workloads[i].facts.name};
    if (!lacking.count)
        return;
    strbuf_add(text, "; no steps were counted");
    summary_add_lacking(text, "in", run, &lacking);
}

static void summary_add_notes(const struct run_facts *run, const char *kind, struct strbuf *text)
{
    for (int i = 0; i < run->findings.count; i++) {
        const struct finding *finding = &run->findings.items[i];
        if (strcmp(finding->kind, kind) != 0)
            continue;
        strbuf_add(text, "; ");
        summary_add_finding(text, finding);
    }
}

static void summary_pass(
        const struct summary_input *input, const struct summary_count *count, struct strbuf *text)
{
    strbuf_add(text, "%s %d gated cell%s within the margins", count->gated == 1 ? "the" : "all",
            count->gated, count->gated == 1 ? " is" : "s are");
    summary_add_notes(input->run, "policy", text);
    summary_add_untimed(input->run, text);
    summary_add_notes(input->run, "unjudged", text);
    summary_add_notes(input->run, "work", text);
    strbuf_add(text, "; nearest to its margin: ");
    summary_add_cell(text, count->worst[CELL_PASS]);
    if (count->improved)
        strbuf_add(text, "; %d cell%s improved", count->improved, count->improved == 1 ? "" : "s");
    summary_add_notes(input->run, "same", text);
    if (input->parity_count)
        strbuf_add(text, "; parity holds for %d of %d", input->parity_count, input->parity_count);
    summary_add_notes(input->run, "outputs", text);
    summary_add_notes(input->run, "beside", text);
    summary_add_notes(input->run, "outside", text); // what the margins above do not speak of
    summary_add_uncompared(input, text);
    summary_add_uncounted(input->run, text);
}

// The floors that workloads of this run are held against.
static void summary_add_floors(const struct run_facts *run, struct strbuf *text)
{
    const struct plan_metric *metric = &run->gate.metrics[METRIC_SCALING_EFFICIENCY];
    char least[32];
    for (int i = 0; i < metric->floor_count && !run->aa; i++)
        if (run_facts_scales(run, metric->floors[i].ranks))
            strbuf_add(text, " (floor with %llu ranks: %s)",
                    (unsigned long long)metric->floors[i].ranks,
                    phrase_floor(least, sizeof least, metric->floors[i].least));
}

static char *summary_margins(const struct run_facts *run)
{
    struct strbuf text = {0};
    char margin[32], alpha[32];
    for (int m = 0; m < METRIC_COUNT; m++) {
        bool gated = false;
        for (int i = 0; i < run->workload_count; i++)
            for (int k = 0; k < run->workloads[i].cell_count; k++)
                gated = gated ||
                        (run->workloads[i].cells[k].gating &&
                                (int)run->workloads[i].cells[k].metric == m);
        if (gated)
            strbuf_add(&text, "%s%s %s", text.len ? ", " : "", metric_infos[m].name,
                    phrase_floor(margin, sizeof margin, run->gate.metrics[m].margin));
        if (gated && m == METRIC_SCALING_EFFICIENCY)
            summary_add_floors(run, &text);
    }
    strbuf_add(&text, "%sone-sided error rate %s a cell over %d look%s%s%s", text.len ? "; " : "",
            phrase_floor(alpha, sizeof alpha, run->gate.alpha), run->plan->schedule.look_count,
            run->plan->schedule.look_count == 1 ? "" : "s",
            run->confirm ? "; fails are confirmed on fresh pairs" : "",
            run->gate.fail_on_likely ? "; likely regressions fail at the last look" : "");
    return strbuf_take(&text);
}

struct summary summary_make(const struct summary_input *input)
{
    struct summary_count count = summary_count_cells(input->run);
    struct strbuf text = {0};
    struct summary summary = {.exit = EXIT_CODE_INCONCLUSIVE};
    bool fails = count.of[CELL_FAIL] || summary_parity(input, CELL_FAIL) ||
            summary_finding(input, FINDING_FAIL);
    bool passes = count.gated && count.of[CELL_PASS] == count.gated &&
            !summary_parity(input, CELL_INCONCLUSIVE) &&
            !summary_finding(input, FINDING_INCONCLUSIVE) && input->trust_ok &&
            input->calibration->covered;
    if (fails) {
        summary.exit = EXIT_CODE_FAIL;
        summary_fail(input, &count, &text);
    } else if (passes) {
        summary.exit = EXIT_CODE_PASS;
        summary_pass(input, &count, &text);
    } else {
        summary_inconclusive(input, &count, &text);
    }
    summary.reason = strbuf_take(&text);
    summary.margin_note = summary_margins(input->run);
    return summary;
}
