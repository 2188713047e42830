// SPDX-License-Identifier: Apache-2.0
// Do both sides do the same work? Times tell what is slower, and not what is left out: steps that
// were not made, samples that were not taken, requests that were answered by an error, and what is
// done outside of the steps. Reads facts; adds findings. Nothing here is a fail where the work may
// only be cut in another way.
#include "harness/gate/health.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/strings.h"
#include "common/units.h"
#include "contracts/metrics.h"
#include "harness/gate/cell.h"
#include "reports/analyse/binomial.h"
#include "reports/analyse/mean_interval.h"
#include "reports/analyse/quantile.h"

enum {
    // Launches in which the candidate made fewer steps, of a program that otherwise makes the same
    // number on both sides. Where
    // launches of both sides end early equally often, two of the candidate and none of the baseline
    // come in 10 % of runs at
    // most, however often that is (exp(-x) - (1 + x) exp(-2x) is never above 0.102): as rare as
    // voids must be to be a finding.
    WORK_FEWER = 2
};
// Of requests that come by a schedule: the slowest 2 % left out would be a tail that nobody sees.
static const double work_tail_margin = 0.002;
static const double work_answers_alpha = 0.1; // as voids: of equal sides one run in ten
// Start-up, and end: what would be many times the launch's noise, and no import of another version
// of a framework, which takes up to a few seconds longer. A user who knows of it gates startup_time
// or total_time, and is not asked any more.
static const double work_outside_times = 2, work_outside_share = 0.1, work_outside_ns = 5e9;
static const double work_outside_said_ns = 1e8; // less is not worth a word

// --- steps, samples and requests -----------------------------------------------------------------

enum work_kind { WORK_STEPS, WORK_RANK_STEPS, WORK_SAMPLES, WORK_REQUESTS, WORK_KIND_COUNT };

static const struct {
    const char *finding, *differ, *why, *fewer;
} work_words[WORK_KIND_COUNT] = {
        [WORK_STEPS] = {"steps", "make different numbers of steps",
                "a step may not be the same work; give the number by {steps} in the command, or name another step",
                "makes fewer steps than the baseline, or none"},
        [WORK_RANK_STEPS] = {"ranks", "make different numbers of steps on all ranks together",
                "a step is not the same work",
                "makes fewer steps on all ranks together than the baseline"},
        [WORK_SAMPLES] = {"samples", "take different numbers of samples",
                "a step is not the same work", "takes fewer samples than the baseline"},
        [WORK_REQUESTS] = {"requests", "answer different numbers of requests",
                "times say nothing of those that are missing",
                "answers fewer requests than the baseline, or tells of none"}};

// Of both sides' launches: steps that they made, samples that they took, or requests that they
// answered.
struct work_counts {
    int pairs;
    int less[PLAN_SIDES];  // pairs in which this side has fewer
    int fewer[PLAN_SIDES]; // of them, by more than the margin at which it would count in times, or
                           // none at all
    double ratio; // candidate over baseline: the median of the pairs in which both have some; 1
                  // without any
    double last[PLAN_SIDES]; // in the last one of those
};

static bool work_tells_requests(const struct measure_launch *launch)
{
    return launch->requests > 0 && isfinite(launch->requests);
}

static double work_amount(const struct measure_launch *launch, enum work_kind kind)
{
    const double amounts[WORK_KIND_COUNT] = {[WORK_STEPS] = (double)launch->steps,
            [WORK_RANK_STEPS] = launch->rank_steps,
            [WORK_SAMPLES] = launch->samples,
            [WORK_REQUESTS] = work_tells_requests(launch) ? launch->requests : 0};
    return amounts[kind] > 0 ? amounts[kind] : 0; // NAN, -1: not told, none
}

// None beside some is fewer where that side makes steps in other launches: else it has no step
// calls, and is not judged by them. Samples that a launch does not tell it may have taken. A server
// that answers nothing tells of no request.
static bool work_compares(
        const struct workload_facts *facts, enum work_kind kind, const double amounts[PLAN_SIDES])
{
    for (int side = 0; side < PLAN_SIDES; side++) {
        bool some = amounts[side] > 0 || (kind == WORK_REQUESTS && side == 1);
        bool elsewhere = kind == WORK_STEPS || kind == WORK_REQUESTS;
        for (int i = 0; i < facts->main_count && !some && elsewhere; i++)
            some = work_amount(&facts->main[i].sides[side], kind) > 0;
        if (!some)
            return false;
    }
    return amounts[0] > 0 || amounts[1] > 0;
}

// How much slower a candidate may be, and of a program that runs for a time how many steps, or
// requests, fewer it makes then.
static double work_margin(const struct plan_gate *gate, enum work_kind kind)
{
    enum metric_id id = kind == WORK_REQUESTS ? METRIC_TOTAL_TIME : METRIC_STEP_TIME;
    const struct plan_metric *metric = &gate->metrics[id];
    return fmax(metric_infos[id].margin_default, metric->present ? metric->margin : 0);
}

// A schedule gives both sides the same requests, however fast they are answered: each is a step,
// and the slowest ones are the tail.
static bool work_is_tail(
        const struct workload_facts *facts, const struct plan_gate *gate, enum work_kind kind)
{
    return kind == WORK_STEPS && facts->has_arrivals && cell_gated(facts, gate, METRIC_LATENCY_P99);
}

// How many of them the candidate has in its typical launch, of each that the baseline has. What
// runs for a time makes fewer steps, and gets fewer answers, where it is slower, which may be so by
// the margin: a launch has left some out that has so many fewer than that. Of one that makes the
// same number on both sides this is 1.
static double work_usual(bool tail, double ratio)
{
    return tail ? 1 : fmin(1, ratio);
}

// margin: what a launch may have fewer of before that counts.
static struct work_counts work_count(
        const struct workload_facts *facts, enum work_kind kind, bool tail, double margin)
{
    struct work_counts counts = {.ratio = 1};
    double *ratios = xcalloc((size_t)facts->main_count + 1, sizeof *ratios);
    size_t both = 0;
    for (int i = 0; i < facts->main_count; i++) {
        double a = work_amount(&facts->main[i].sides[0], kind),
               b = work_amount(&facts->main[i].sides[1], kind);
        if (!(a > 0 && b > 0))
            continue;
        ratios[both++] = b / a;
        counts.last[0] = a;
        counts.last[1] = b;
    }
    if (both)
        counts.ratio = quantile_median(ratios, both);
    free(ratios);
    const double usual[PLAN_SIDES] = {1, work_usual(tail, counts.ratio)};
    for (int i = 0; i < facts->main_count; i++) {
        const struct measure_launch *sides = facts->main[i].sides;
        double amounts[PLAN_SIDES] = {work_amount(&sides[0], kind), work_amount(&sides[1], kind)};
        if (!work_compares(facts, kind, amounts))
            continue;
        counts.pairs++;
        for (int side = 0; side < PLAN_SIDES; side++) {
            counts.less[side] += amounts[side] < amounts[!side];
            counts.fewer[side] += amounts[side] < amounts[!side] * usual[side] * (1 - margin);
        }
    }
    return counts;
}

// A side that makes more steps than the other may cut the same work into smaller ones, or run for a
// time and be faster; one that takes other samples, or has other ranks, does other work in as many
// steps. Beyond the margin at which they would count, times are no evidence of a pass then. Nor
// where it is so in some launches only: of a program that makes the same number otherwise they are
// counted; of one that runs for a time, whose numbers go either way, the sign test tells. Who
// answers more requests than the baseline has left out none.
static bool work_differs(const struct workload_facts *facts, const struct plan_gate *gate,
        enum work_kind kind, struct findings *findings)
{
    double margin = work_margin(gate, kind);
    bool tail = work_is_tail(facts, gate, kind);
    struct work_counts counts = work_count(facts, kind, tail, tail ? work_tail_margin : margin);
    int a = counts.fewer[0], b = counts.fewer[1], side = counts.ratio > 1;
    if (fabs(counts.ratio - 1) > margin && !(kind == WORK_REQUESTS && side == 1)) {
        findings_add(findings, facts->name, work_words[kind].finding, side, FINDING_INCONCLUSIVE,
                "the sides %s, %.0f a launch of the baseline and %.0f of the candidate: %s",
                work_words[kind].differ, counts.last[0], counts.last[1], work_words[kind].why);
        return true;
    }
    if (!(b >= WORK_FEWER && !counts.less[0]) && binomial_tail(b, a + b, 0.5) >= HEALTH_ALPHA)
        return false;
    findings_add(findings, facts->name, work_words[kind].finding, 1, FINDING_INCONCLUSIVE,
            "in %d of %d pairs the candidate %s, the baseline in %d: times say nothing of what was left out",
            b, counts.pairs, work_words[kind].fewer, a);
    return true;
}

// --- answers of servers --------------------------------------------------------------------------

static double work_bad_requests(const struct measure_launch *launch, bool wrong)
{
    double bad = wrong ? launch->requests_wrong : launch->requests_failed;
    return bad > 0 ? fmin(bad, launch->requests) : 0;
}

// An error is answered faster than a request, so what fails makes latencies better. Requests of a
// launch fail together, so pairs are turned round as whole ones, their shares as they are. Any at
// all on the candidate alone is no pass; where the baseline has some, too, half of all equal sides
// have more on the candidate, and one in ten may be told so.
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
        differences[count++] = work_bad_requests(&sides[1], wrong) / sides[1].requests -
                work_bad_requests(&sides[0], wrong) / sides[0].requests;
    }
    bool more = bad[1] * requests[0] > bad[0] * requests[1];
    double p = more ? mean_sign_p(differences, count) : 1;
    bool beyond = p < HEALTH_ALPHA, open = more && (bad[0] <= 0 || p < work_answers_alpha);
    free(differences);
    if (bad[0] + bad[1] > 0)
        findings_add(findings, facts->name, wrong ? "wrong_answers" : "failed_requests",
                open || beyond ? 1 : -1,
                beyond         ? FINDING_FAIL
                        : open ? FINDING_INCONCLUSIVE
                               : FINDING_NOTE,
                "%.0f of %.0f requests of the candidate %s, of the baseline %.0f of %.0f%s", bad[1],
                requests[1], wrong ? "got a wrong answer" : "failed", bad[0], requests[0],
                beyond ? ": more than chance allows (p < 0.01)" : "");
}

// --- outside of the steps ------------------------------------------------------------------------

static double work_outside(const struct measure_launch *launch, bool end)
{
    return end ? launch->end_ns : launch->value[METRIC_STARTUP_TIME];
}

// The launch as a whole, as long as a real run is where the plan says so.
static double work_run_ns(const struct workload_facts *facts, const struct measure_launch *launch)
{
    double steps = facts->plan ? (double)facts->plan->run_steps - (double)launch->steps : 0;
    double more = steps * launch->steady_mean_ns;
    return launch->value[METRIC_TOTAL_TIME] + (more > 0 ? more : 0);
}

static bool work_is_far(
        const struct workload_facts *facts, const struct measure_launch sides[PLAN_SIDES], bool end)
{
    double a = work_outside(&sides[0], end), b = work_outside(&sides[1], end);
    return b > work_outside_times * a && b - a > work_outside_ns &&
            b - a > work_outside_share * work_run_ns(facts, &sides[0]);
}

// What lies before the first step and behind the last one is in no metric that is gated by default.
// The warm-up is steps, and has its own.
static void work_outside_steps(const struct workload_facts *facts, const struct plan_gate *gate,
        bool end, struct findings *findings)
{
    const char *what = end ? "what lies outside the steps and start-up" : "start-up";
    char took_a[32], took_b[32], longer[32], pairs[32] = "each";
    size_t room = (size_t)facts->main_count + 1;
    double *a = xcalloc(room, sizeof *a), *b = xcalloc(room, sizeof *b),
           *more = xcalloc(room, sizeof *more);
    int count = 0, far = 0;
    for (int i = 0; i < facts->main_count; i++) {
        a[count] = work_outside(&facts->main[i].sides[0], end);
        b[count] = work_outside(&facts->main[i].sides[1], end);
        more[count] = b[count] - a[count];
        if (isnan(more[count]))
            continue;
        far += work_is_far(facts, facts->main[i].sides, end);
        count++;
    }
    double typical = quantile_median(more, (size_t)count),
           usual = quantile_median(a, (size_t)count);
    bool judged = cell_gated(facts, gate, METRIC_TOTAL_TIME) ||
            (!end && cell_gated(facts, gate, METRIC_STARTUP_TIME));
    if (far < count)
        snprintf(pairs, sizeof pairs, "%d", far);
    // Now and then it is short, as of files that are in a cache: of equal sides it is far longer in
    // fewer than half of the pairs.
    if (!judged && count && (far == count || binomial_tail(far, count, 0.5) < HEALTH_ALPHA))
        findings_add(findings, facts->name, "outside", 1, FINDING_INCONCLUSIVE,
                "%s takes %s on the candidate and %s on the baseline, in %s of %d pairs: no gated metric holds it; gate %stotal_time, or say by "
                "`run_steps` how long a real run is",
                what, unit_format_ns(took_b, sizeof took_b, quantile_median(b, (size_t)count)),
                unit_format_ns(took_a, sizeof took_a, usual), pairs, count,
                end ? "" : "startup_time or ");
    else if (!judged && typical > work_outside_said_ns &&
            typical > metric_infos[METRIC_STARTUP_TIME].margin_default * usual &&
            mean_sign_p(more, count) < HEALTH_ALPHA)
        findings_add(findings, facts->name, "outside", 1, FINDING_NOTE, "%s took %s more", what,
                unit_format_ns(longer, sizeof longer, typical));
    free(a);
    free(b);
    free(more);
}

void health_work(
        const struct workload_facts *facts, const struct plan_gate *gate, struct findings *findings)
{
    bool differs = false;
    // of ranks follow from steps, and samples from both
    for (int kind = WORK_STEPS; kind <= WORK_SAMPLES && !differs; kind++)
        differs = work_differs(facts, gate, (enum work_kind)kind, findings);
    work_differs(facts, gate, WORK_REQUESTS, findings);
    work_answers(facts, false, findings);
    work_answers(facts, true, findings);
    work_outside_steps(facts, gate, false, findings);
    work_outside_steps(facts, gate, true, findings);
}
