// SPDX-License-Identifier: Apache-2.0
// Do both sides do the same work? Times tell what is slower, and not what is left out: steps that were not made, samples that
// were not taken, requests that were answered by an error. Reads facts; adds findings. Nothing here is a fail where the work may only be
// cut in another way.
#include "harness/gate/health_parts.h"

#include <math.h>
#include <stdlib.h>

#include "common/strings.h"
#include "contracts/metrics.h"
#include "reports/analyse/binomial.h"
#include "reports/analyse/mean_interval.h"
#include "reports/analyse/quantile.h"

enum {
    // Launches in which the candidate made fewer steps, of a program that otherwise makes the same number on both sides. Where
    // launches of both sides end early equally often, two of the candidate and none of the baseline come in 10 % of runs at
    // most, however often that is (exp(-x) - (1 + x) exp(-2x) is never above 0.102): as rare as voids must be to be a finding.
    WORK_FEWER = 2
};

// --- steps and samples ---------------------------------------------------------------------------

// Of both sides' launches: steps that they made, or samples that they took.
struct work_counts {
    int pairs;
    int less[PLAN_SIDES];    // pairs in which this side has fewer
    int fewer[PLAN_SIDES];   // of them, by more than the margin at which it would count in times, or none at all
    double ratio;            // candidate over baseline: the median of the pairs in which both have some; 1 without any
    double last[PLAN_SIDES]; // in the last one of those
};

static double work_amount(const struct measure_launch *launch, bool samples)
{
    double amount = samples ? launch->samples : (double)launch->steps;
    return amount > 0 ? amount : 0; // NAN, -1: not told, none
}

// None beside some is fewer where that side makes steps in other launches: else it has no step calls, and is not judged by them. Samples
// that a launch does not tell it may have taken.
static bool work_compares(const struct workload_facts *facts, bool samples, const double amounts[PLAN_SIDES])
{
    for (int side = 0; side < PLAN_SIDES; side++) {
        bool some = amounts[side] > 0;
        for (int i = 0; i < facts->main_count && !some && !samples; i++)
            some = work_amount(&facts->main[i].sides[side], samples) > 0;
        if (!some)
            return false;
    }
    return amounts[0] > 0 || amounts[1] > 0;
}

static struct work_counts work_count(const struct workload_facts *facts, bool samples)
{
    const double margin = metric_infos[METRIC_STEP_TIME].margin_default;
    struct work_counts counts = {.ratio = 1};
    double *ratios = xcalloc((size_t)facts->main_count + 1, sizeof *ratios);
    size_t both = 0;
    for (int i = 0; i < facts->main_count; i++) {
        const struct measure_launch *sides = facts->main[i].sides;
        double amounts[PLAN_SIDES] = {work_amount(&sides[0], samples), work_amount(&sides[1], samples)};
        if (!work_compares(facts, samples, amounts))
            continue;
        counts.pairs++;
        for (int side = 0; side < PLAN_SIDES; side++) {
            counts.less[side] += amounts[side] < amounts[!side];
            counts.fewer[side] += amounts[side] < amounts[!side] * (1 - margin);
        }
        if (!(amounts[0] > 0 && amounts[1] > 0))
            continue;
        ratios[both++] = amounts[1] / amounts[0];
        counts.last[0] = amounts[0];
        counts.last[1] = amounts[1];
    }
    if (both)
        counts.ratio = quantile_median(ratios, both);
    free(ratios);
    return counts;
}

// A side that makes more steps than the other may cut the same work into smaller ones, or run for a time and be faster; one that takes
// other samples does other work in as many steps. Beyond the margin at which they would count, times are no evidence of a pass then. Nor
// where it is so in some launches only: of a program that makes the same number otherwise they are counted; of one that runs for a time,
// whose numbers go either way, the sign test tells.
static bool work_differs(const struct workload_facts *facts, bool samples, struct findings *findings)
{
    struct work_counts counts = work_count(facts, samples);
    const char *kind = samples ? "samples" : "steps";
    int a = counts.fewer[0], b = counts.fewer[1], side = counts.ratio > 1;
    if (fabs(counts.ratio - 1) > metric_infos[METRIC_STEP_TIME].margin_default) {
        if (samples)
            findings_add(findings, facts->name, kind, side, FINDING_INCONCLUSIVE,
                         "the sides take different numbers of samples, %.0f a launch of the baseline and %.0f of the candidate: a step is not "
                         "the same work", counts.last[0], counts.last[1]);
        else
            findings_add(findings, facts->name, kind, side, FINDING_INCONCLUSIVE,
                         "the sides make different numbers of steps, %.0f a launch of the baseline and %.0f of the candidate: a step may not be the "
                         "same work; give the number by {steps} in the command, or name another step", counts.last[0], counts.last[1]);
        return true;
    }
    if (!(b >= WORK_FEWER && !counts.less[0]) && binomial_tail(b, a + b, 0.5) >= HEALTH_ALPHA)
        return false;
    findings_add(findings, facts->name, kind, 1, FINDING_INCONCLUSIVE,
                 "the candidate %s than the baseline%s in %d of %d pairs, the baseline in %d: what it leaves out takes no time",
                 samples ? "takes fewer samples" : "makes fewer steps", samples ? "" : ", or none,", b, counts.pairs, a);
    return true;
}

// --- answers of servers --------------------------------------------------------------------------

static bool work_tells_requests(const struct measure_launch *launch)
{
    return launch->requests > 0 && isfinite(launch->requests);
}

static double work_bad_requests(const struct measure_launch *launch, bool wrong)
{
    double bad = wrong ? launch->requests_wrong : launch->requests_failed;
    return bad > 0 ? fmin(bad, launch->requests) : 0;
}

// An error is answered faster than a request, so what fails makes latencies better. Any more on the candidate is no pass. It is a fail
// beyond chance: requests of a launch fail together, so pairs are turned round as whole ones, their shares as they are.
static void work_answers(const struct workload_facts *facts, bool wrong, struct findings *findings)
{
    double *differences = xcalloc((size_t)facts->main_count + 1, sizeof *differences);
    double requests[PLAN_SIDES] = {0, 0}, bad[PLAN_SIDES] = {0, 0};
    int count = 0;
    for (int i = 0; i < facts->main_count; i++) {
        const struct measure_launch *sides = facts->main[i].sides;
        if (!work_tells_requests(&sides[0]) || !work_tells_requests(&sides[1]))
            continue;
        for (int side = 0; side < PLAN_SIDES; side++) {
            requests[side] += sides[side].requests;
            bad[side] += work_bad_requests(&sides[side], wrong);
        }
        differences[count++] = work_bad_requests(&sides[1], wrong) / sides[1].requests - work_bad_requests(&sides[0], wrong) / sides[0].requests;
    }
    bool more = bad[1] * requests[0] > bad[0] * requests[1];
    bool beyond = more && mean_sign_p(differences, count) < HEALTH_ALPHA;
    free(differences);
    if (bad[0] + bad[1] > 0)
        findings_add(findings, facts->name, wrong ? "wrong_answers" : "failed_requests", more ? 1 : -1,
                     beyond ? FINDING_FAIL : more ? FINDING_INCONCLUSIVE : FINDING_NOTE,
                     "%.0f of %.0f requests of the candidate %s, of the baseline %.0f of %.0f%s", bad[1], requests[1],
                     wrong ? "got a wrong answer" : "failed", bad[0], requests[0],
                     beyond ? ": more than chance allows (p < 0.01)" : "");
}

void health_work(const struct workload_facts *facts, struct findings *findings)
{
    if (!work_differs(facts, false, findings)) // samples follow from steps
        work_differs(facts, true, findings);
    work_answers(facts, false, findings);
    work_answers(facts, true, findings);
}
