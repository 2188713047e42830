// SPDX-License-Identifier: Apache-2.0
// What the evidence of a stage says: tripwires, cells, soak and requests. No clock and no store.
#include "harness/canary/decide/judge.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "common/units.h"

// Beyond it a proxy leaves the baseline one of 256 weights (from 254.5 of them on the candidate has
// 255): too few requests to compare with.
#define JUDGE_WHOLE_PERCENT 99.4

static bool judge_gates(const struct rollout *rollout, const struct canary_cell *cell)
{
    return rollout->rules.metrics[cell->metric].gated;
}

static void judge_tripwires(
        const struct rollout *rollout, const struct judge_facts *facts, struct judge_answer *ret)
{
    const struct canary_rule *wrong = &rollout->rules.metrics[CANARY_WRONG_ANSWERS];
    double limit = rollout->rules.tripwire_error_rate;
    bool beyond = wrong->gated && !isnan(wrong->limit) && (double)facts->wrong > wrong->limit;
    ret->wrong |= beyond;
    if (facts->down >= rollout->unreachable) {
        ret->tripwire = RULE_TRIPWIRE_UNREACHABLE;
        snprintf(ret->text, sizeof ret->text,
                "the candidate is down by %" PRIu64 " looks at its health check in a row",
                facts->down);
    } else if (facts->refused >= rollout->unreachable) {
        ret->tripwire = RULE_TRIPWIRE_UNREACHABLE;
        snprintf(ret->text, sizeof ret->text,
                "the candidate refused %" PRIu64 " connections in the last 10 s", facts->refused);
    } else if (!isnan(limit) && facts->recent_errors > limit) { // false for NaN: too few requests
        ret->tripwire = RULE_TRIPWIRE_ERRORS;
        snprintf(ret->text, sizeof ret->text,
                "%.3g %% of the candidate's requests of the last 10 s failed or were given up; the tripwire is %.3g %%",
                100 * facts->recent_errors, 100 * limit);
    } else if (beyond) {
        ret->tripwire = RULE_TRIPWIRE_WRONG;
        snprintf(ret->text, sizeof ret->text,
                "%" PRIu64 " wrong answers of the candidate in this stage; the limit is %g",
                facts->wrong, wrong->limit);
    } else {
        return;
    }
    ret->tripped = true;
}

// The baseline is gone where the plan leaves it its share: nobody has compared this stage's
// requests.
static bool judge_repeats(const struct rollout_stage *stage, const struct canary_cell *cell)
{
    return cell->repeated && !stage->aa && stage->mirror == 0 &&
            stage->percent <= JUDGE_WHOLE_PERCENT;
}

void judge_cells(const struct rollout_stage *stage, struct canary_cell *cells, int count)
{
    for (int i = 0; i < count; i++)
        if (cells[i].verdict == CANARY_PASS && judge_repeats(stage, &cells[i]))
            cells[i].verdict = CANARY_UNDECIDED;
}

static bool judge_cell_passes(const struct rollout_stage *stage, const struct canary_cell *cell)
{
    if (cell->withheld || judge_repeats(stage, cell))
        return false;
    bool compares = !stage->aa && stage->percent < 100 &&
            (stage->mirror == 0 || cell->metric == CANARY_WRONG_ANSWERS);
    if (stage->percent >= 100 && cell->alone_open)
        return false;
    return compares ? cell->verdict == CANARY_PASS : cell->verdict != CANARY_FAIL;
}

// "latency_p99 is 12 ms in the candidate's last 10 s, with no baseline left; 19 in 20 of the
// baseline's had 4 ms at most". A window is of 100 requests at least, and then longer than 10 s.
static void judge_alone(char *buf, size_t size, const struct canary_cell *cell)
{
    char value[32], usual[32];
    if (cell->metric == CANARY_ERROR_RATE || cell->metric == CANARY_REJECTED_RATE) {
        snprintf(value, sizeof value, "%.3g %%", 100 * cell->alone_value);
        snprintf(usual, sizeof usual, "%.3g %%", 100 * cell->alone_usual);
    } else {
        unit_format_ns(value, sizeof value, 1e9 * cell->alone_value);
        unit_format_ns(usual, sizeof usual, 1e9 * cell->alone_usual);
    }
    snprintf(buf, size,
            "%s is %s in the candidate's last 10 s, with no baseline left; 19 in 20 of the baseline's had %s at most",
            canary_metric_name(cell->metric), value, usual);
}

// The first thing that is missing, in words.
static void judge_missing(const struct rollout_stage *stage, const struct judge_facts *facts,
        uint64_t requests, const struct canary_cell *open, struct judge_answer *ret)
{
    char soak[32], judged[32], more[64] = "";
    if (open && open->requests_missing)
        snprintf(more, sizeof more, "; about %" PRIu64 " more", open->requests_missing);
    if (!ret->soaked)
        snprintf(ret->text, sizeof ret->text, "judged for %s of %s",
                unit_format_ns(judged, sizeof judged,
                        (double)(facts->judged_ns > 0 ? facts->judged_ns : 0)),
                unit_format_ns(soak, sizeof soak, (double)stage->soak_ns));
    else if (!ret->requests_enough)
        snprintf(ret->text, sizeof ret->text, "%" PRIu64 " of %" PRIu64 " requests", requests,
                stage->requests);
    else if (open && open->withheld)
        snprintf(ret->text, sizeof ret->text,
                "%s would pass, but %" PRIu64
                " log lines of this stage were lost, and if each was the "
                "candidate's worst it would not%s; `resume` a pause to judge the stage anew, once no line is lost",
                canary_metric_name(open->metric), open->withheld, more);
    else if (open && judge_repeats(stage, open))
        snprintf(ret->text, sizeof ret->text,
                "%s: no request of the baseline has ended in the candidate's last 10 s, so nothing can be compared; "
                "is the baseline down, or its evidence lost?",
                canary_metric_name(open->metric));
    else if (open && open->alone_windows)
        judge_alone(ret->text, sizeof ret->text, open);
    else if (open && open->alone_open && stage->percent >= 100)
        snprintf(ret->text, sizeof ret->text,
                "%s: 10 s without a baseline, and 100 requests, are not over yet",
                canary_metric_name(open->metric));
    else if (open)
        snprintf(ret->text, sizeof ret->text, "%s is undecided after %" PRIu64 " requests%s",
                canary_metric_name(open->metric), open->requests, more);
    else if (ret->withheld && facts->shared)
        snprintf(ret->text, sizeof ret->text,
                "soaked, and every gated metric within its bound, but both arms failed together by more than the "
                "tripwire, which the candidate may have brought about; `resume` a pause to judge the stage anew");
    else if (ret->withheld)
        snprintf(ret->text, sizeof ret->text,
                "soaked, and every gated metric within its bound, but %" PRIu64
                " log lines were lost, %s; "
                "`resume` a pause to judge the stage anew, once no line is lost",
                facts->lost,
                facts->maybe_tripped
                        ? "so many together that the tripwire would have fired, had they been errors"
                        : "before the controller was started again, and nobody knows when");
    else
        snprintf(ret->text, sizeof ret->text,
                "soaked, %" PRIu64 " requests, every gated metric within its bound", requests);
}

static bool judge_is_latency(const struct canary_cell *cell)
{
    return cell->metric == CANARY_LATENCY_P50 || cell->metric == CANARY_LATENCY_P99;
}

// "2.64 times the baseline's (2.04 to 4.49)". An end that is not known yet is not told; where the
// baseline has none of it there is a lower bound only.
static void judge_ratio(char *buf, size_t size, const struct canary_cell *cell)
{
    if (isnan(cell->value) && judge_is_latency(cell))
        snprintf(buf, size, "longer than any of the baseline's");
    else if (isnan(cell->value) && isnan(cell->low))
        snprintf(buf, size, "none on the baseline");
    else if (isnan(cell->value))
        snprintf(buf, size, "none on the baseline; at least %.3g times its rate", cell->low);
    else if (isnan(cell->high) && isnan(cell->low))
        snprintf(buf, size, "%.3g times the baseline's", cell->value);
    else if (isnan(cell->high))
        snprintf(buf, size, "%.3g times the baseline's (%.3g or more)", cell->value, cell->low);
    else if (isnan(cell->low))
        snprintf(buf, size, "%.3g times the baseline's (%.3g at most)", cell->value, cell->high);
    else
        snprintf(buf, size, "%.3g times the baseline's (%.3g to %.3g)", cell->value, cell->low,
                cell->high);
}

// "for the last 25 s 5.1 times the baseline's": of an onset within the rollout. The value of the
// whole stage hides it.
static void judge_since(char *buf, size_t size, const struct canary_cell *cell)
{
    char times[48] = "the candidate's alone"; // the baseline has none
    bool above = judge_is_latency(cell);
    if (!isnan(cell->since_ratio) && above)
        snprintf(times, sizeof times, "%.3g times as many requests above", cell->since_ratio);
    else if (!isnan(cell->since_ratio))
        snprintf(times, sizeof times, "%.3g times the baseline's", cell->since_ratio);
    snprintf(buf, size, "for the last %" PRIu64 " s %s%s", cell->since_s, times,
            !above                                       ? ""
                    : cell->metric == CANARY_LATENCY_P50 ? " the baseline's median as it has"
                                                         : " the baseline's p99 as it has");
}

static void judge_fail(
        const struct rollout_stage *plan, const struct canary_cell *cell, char *buf, size_t size)
{
    char ratio[96], since[240];
    const char *name = canary_metric_name(cell->metric);
    judge_ratio(ratio, sizeof ratio, cell);
    if (plan->aa) {
        snprintf(buf, size,
                "%s: the two baselines differ, %s after %" PRIu64
                " requests: the measurement or the proxy's split cannot be trusted",
                name, ratio, cell->requests);
    } else if (cell->alone_windows) {
        judge_alone(since, sizeof since, cell);
        snprintf(buf, size, "%s: beyond %g times that, %" PRIu64 " times in a row", since,
                cell->threshold, cell->alone_windows);
    } else if (cell->since_s) {
        judge_since(since, sizeof since, cell);
        snprintf(buf, size,
                "%s: %s, beyond its margin; over the whole stage, %" PRIu64
                " requests of the candidate, %s",
                name, since, cell->requests, ratio);
    } else {
        snprintf(buf, size, "%s: %s after %" PRIu64 " requests of the candidate, beyond its margin",
                name, ratio, cell->requests);
    }
}

void judge_stage(const struct rollout *rollout, int stage, const struct judge_facts *facts,
        struct judge_answer *ret)
{
    const struct rollout_stage *plan = &rollout->stages[stage];
    const struct canary_cell *open = NULL;
    *ret = (struct judge_answer){.failed = -1};
    int gated = 0, wanted = 0;
    for (int i = 0; i < CANARY_METRICS; i++)
        wanted += rollout->rules.metrics[i].gated;
    for (int i = 0; i < facts->cell_count; i++) {
        const struct canary_cell *cell = &facts->cells[i];
        if (!judge_gates(rollout, cell))
            continue;
        gated++;
        if (cell->verdict == CANARY_FAIL && ret->failed < 0)
            ret->failed = i;
        ret->wrong |= cell->verdict == CANARY_FAIL && cell->metric == CANARY_WRONG_ANSWERS;
        if (!open && !judge_cell_passes(plan, cell))
            open = cell;
    }
    // An A/A stage without a second baseline has one arm: its requests are the baseline's.
    bool alone =
            plan->aa && !(rollout->traffic.kind == ROLLOUT_HAPROXY && rollout->traffic.baseline2);
    uint64_t requests = facts->requests[alone ? CANARY_BASELINE : CANARY_CANDIDATE];
    ret->soaked = facts->judged_ns >= plan->soak_ns;
    ret->requests_enough = requests >= plan->requests && requests > 0; // of nothing nothing follows
    ret->withheld = (open && open->withheld) ||
            (!open && (facts->maybe_tripped || facts->lost_before || facts->shared));
    // a cell that is not there has not passed
    ret->cells_passed = !open && gated == wanted && !ret->withheld;
    judge_tripwires(rollout, facts, ret);
    if (ret->tripped)
        return;
    if (ret->failed >= 0) {
        judge_fail(plan, &facts->cells[ret->failed], ret->text, sizeof ret->text);
        return;
    }
    judge_missing(plan, facts, requests, open, ret);
}
