// SPDX-License-Identifier: Apache-2.0
// The rules by which a snapshot becomes a verdict. They lean to one side: a pass must have been
// said by the controller, or by `upgate gate`; everything else is inconclusive or a fail.
#include "harness/canary/serve/verdict.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    RETRY_S = 5,     // cells are stored every five seconds
    REASON_CELLS = 3 // cells in a reason
};
#define SECOND_NS INT64_C(1000000000)

const char *verdict_name(enum verdict_kind kind)
{
    return kind == VERDICT_PASS ? "pass" : kind == VERDICT_FAIL ? "fail" : "inconclusive";
}

enum verdict_kind verdict_by_cell(const char *text)
{
    if (strcmp(text, "pass") == 0 || strcmp(text, "passed") == 0)
        return VERDICT_PASS;
    return strcmp(text, "fail") == 0 || strcmp(text, "failed") == 0 ? VERDICT_FAIL
                                                                    : VERDICT_INCONCLUSIVE;
}

__attribute__((format(printf, 2, 3))) static void reason_add(
        struct verdict *verdict, const char *fmt, ...)
{
    size_t len = strlen(verdict->reason);
    va_list args;
    va_start(args, fmt);
    vsnprintf(verdict->reason + len, sizeof verdict->reason - len, fmt, args);
    va_end(args);
}

static void decide(struct verdict *verdict, enum verdict_kind kind, bool final)
{
    verdict->kind = kind;
    verdict->final = final;
    verdict->retry_after_s = final ? -1 : RETRY_S;
}

static void inconclusive(struct verdict *verdict, enum verdict_why why)
{
    decide(verdict, VERDICT_INCONCLUSIVE, false);
    verdict->why = why;
}

// "latency_p99 1.031 [1.024, 1.039], limit 1.02"
static void reason_cell(struct verdict *verdict, const struct snapshot_cell *cell)
{
    reason_add(verdict, "%s%s%s%s", verdict->reason[0] ? "; " : "",
            cell->workload ? cell->workload : "", cell->workload ? "." : "", cell->metric);
    if (!isnan(cell->value))
        reason_add(verdict, " %.4g", cell->value);
    if (!isnan(cell->low) && !isnan(cell->high))
        reason_add(verdict, " [%.4g, %.4g]", cell->low, cell->high);
    if (!isnan(cell->threshold))
        reason_add(verdict, ", limit %.4g", cell->threshold);
    if (verdict_by_cell(cell->verdict) == VERDICT_INCONCLUSIVE && cell->missing > 0)
        reason_add(verdict, ", about %lld requests more", (long long)cell->missing);
}

// Up to three cells of a stage with this verdict; how many there are.
static int reason_cells(struct verdict *verdict, const struct snapshot *snapshot, int64_t stage,
        enum verdict_kind kind)
{
    int count = 0;
    for (int i = 0; i < snapshot->cell_count; i++) {
        const struct snapshot_cell *cell = &snapshot->cells[i];
        if (!cell->gating || cell->stage != stage || verdict_by_cell(cell->verdict) != kind)
            continue;
        if (++count <= REASON_CELLS)
            reason_cell(verdict, cell);
    }
    if (count > REASON_CELLS)
        reason_add(verdict, "; %d more", count - REASON_CELLS);
    return count;
}

static bool is(const char *text, const char *word)
{
    return text && strcmp(text, word) == 0;
}

static void verdict_run(const struct snapshot *snapshot, struct verdict *verdict)
{
    enum verdict_kind kind =
            snapshot->verdict ? verdict_by_cell(snapshot->verdict) : VERDICT_INCONCLUSIVE;
    if (!is(snapshot->run_kind, "ab")) { // a baseline against itself says nothing about a candidate
        inconclusive(verdict, VERDICT_BLIND);
        reason_add(verdict, "an A/A run judges no candidate");
    } else if (is(snapshot->run_state, "running")) {
        inconclusive(verdict, VERDICT_COLLECTS);
        reason_add(verdict, "`upgate ab` is still running");
    } else if (!snapshot->verdict) {
        inconclusive(verdict, VERDICT_BLIND);
        reason_add(verdict, "not judged yet: run `upgate gate`");
    } else {
        decide(verdict, kind, true);
        verdict->why = VERDICT_BLIND;
        reason_add(verdict, "%s", snapshot->verdict_reason ? snapshot->verdict_reason : "");
    }
}

// A dead controller looks after nothing: neither will its tripwires act, nor does its stage end.
static bool controller_lives(const struct snapshot *snapshot, const struct verdict_clock *now)
{
    int64_t age_s = (now->wall_ns - snapshot->heartbeat_ns) / SECOND_NS;
    // one from the future is as good as none
    return snapshot->controlled && age_s <= VERDICT_CONTROLLER_S && age_s >= -VERDICT_CONTROLLER_S;
}

// The stage at hand, or one before or after it, of a rollout that runs.
static void verdict_stage(const struct snapshot *snapshot, const struct snapshot_stage *stage,
        bool whole, struct verdict *verdict)
{
    enum verdict_kind result =
            stage->result ? verdict_by_cell(stage->result) : VERDICT_INCONCLUSIVE;
    bool fails =
            reason_cells(verdict, snapshot, stage->number, VERDICT_FAIL) || result == VERDICT_FAIL;
    if (fails && stage->aa) { // two baselines that differ say nothing about the candidate
        inconclusive(verdict, VERDICT_BLIND);
        reason_add(verdict, " (stage %s: the baselines differ, what is measured cannot be trusted)",
                stage->name);
    } else if (fails) {
        decide(verdict, VERDICT_FAIL, false);
        if (!verdict->reason[0])
            reason_add(verdict, "stage %s failed", stage->name);
    } else if (result == VERDICT_PASS && !whole) {
        decide(verdict, VERDICT_PASS, false);
        reason_add(verdict, "stage %s passed", stage->name);
    } else if (!stage->begun) {
        inconclusive(verdict, VERDICT_COLLECTS);
        reason_add(verdict, "stage %s has not begun: no measurement yet", stage->name);
    } else {
        inconclusive(verdict, VERDICT_COLLECTS);
        const struct snapshot_counts *candidate = &stage->arms[SNAPSHOT_CANDIDATE];
        if (!reason_cells(verdict, snapshot, stage->number, VERDICT_INCONCLUSIVE))
            reason_add(verdict, "stage %s has not ended", stage->name);
        reason_add(verdict, " (stage %s, %lld requests of the candidate so far)", stage->name,
                (long long)candidate->requests);
    }
}

static void verdict_rollout(const struct snapshot *snapshot, const struct snapshot_stage *asked,
        const struct verdict_clock *now, struct verdict *verdict)
{
    const struct snapshot_stage *stage = asked ? asked
            : snapshot->has_stage              ? snapshot_find_stage(snapshot, snapshot->stage)
                                               : NULL;
    const char *reason =
            snapshot->reason && snapshot->reason[0] ? snapshot->reason : "no reason is stored";
    if (is(snapshot->state, "rolled_back") || is(snapshot->state, "aborted")) {
        decide(verdict, VERDICT_FAIL, true);
        reason_add(verdict, "%s: %s", is(snapshot->state, "aborted") ? "aborted" : "rolled back",
                reason);
    } else if (snapshot->rolls_back &&
            (is(snapshot->state, "running") || is(snapshot->state, "paused"))) {
        // nothing takes it back
        decide(verdict, VERDICT_FAIL, false);
        reason_add(verdict, "to be rolled back: %s", reason);
    } else if (is(snapshot->state, "promoted")) {
        decide(verdict, VERDICT_PASS, true);
        reason_add(verdict, "promoted: %s", reason);
    } else if (is(snapshot->state, "paused")) {
        inconclusive(verdict, VERDICT_HELD);
        reason_add(verdict, "paused: %s", reason);
    } else if (is(snapshot->state, "waiting")) {
        inconclusive(verdict, controller_lives(snapshot, now) ? VERDICT_COLLECTS : VERDICT_BLIND);
        reason_add(verdict, "no measurement yet: %s", reason);
    } else if (!is(snapshot->state, "running")) {
        inconclusive(verdict, VERDICT_BLIND);
        verdict->retry_after_s = -1;
        reason_add(verdict, "%s: %s", snapshot->state ? snapshot->state : "no state", reason);
    } else if (!stage) {
        inconclusive(verdict, VERDICT_COLLECTS);
        reason_add(verdict, "no measurement yet: no stage has begun");
    } else {
        verdict_stage(snapshot, stage, !asked, verdict);
        if (verdict->kind != VERDICT_FAIL && !controller_lives(snapshot, now)) {
            inconclusive(verdict, VERDICT_BLIND);
            verdict->reason[0] = 0;
            if (snapshot->controlled)
                reason_add(verdict, "the controller has given no sign of life for %lld s",
                        (long long)((now->wall_ns - snapshot->heartbeat_ns) / SECOND_NS));
            else
                reason_add(verdict, "no controller is at work: `upgate canary run` goes on");
        }
    }
}

void verdict_of(const struct snapshot *snapshot, const struct snapshot_stage *stage,
        const struct verdict_clock *now, struct verdict *ret_verdict)
{
    *ret_verdict = (struct verdict){
            .kind = VERDICT_INCONCLUSIVE, .why = VERDICT_BLIND, .retry_after_s = RETRY_S};
    int64_t age_ns = now->monotonic_ns - snapshot->read_ns;
    if (snapshot->problem)
        reason_add(ret_verdict, "%s", snapshot->problem);
    else if (age_ns > SNAPSHOT_OLD_S * SECOND_NS)
        reason_add(ret_verdict, "the store could not be read for %lld s",
                (long long)(age_ns / SECOND_NS));
    else if (snapshot->kind == SNAPSHOT_RUN)
        verdict_run(snapshot, ret_verdict);
    else
        verdict_rollout(snapshot, stage, now, ret_verdict);
}

bool verdict_wants_more(const struct snapshot *snapshot, const struct verdict_clock *now)
{
    struct verdict verdict;
    verdict_of(snapshot, NULL, now, &verdict);
    bool held = verdict.kind == VERDICT_FAIL ||
            (verdict.kind == VERDICT_INCONCLUSIVE && verdict.why != VERDICT_COLLECTS);
    if (held || snapshot->kind != SNAPSHOT_ROLLOUT || !is(snapshot->state, "running"))
        return verdict.kind == VERDICT_PASS;
    // Half a percent: proxies make 1 % of 3 parts in 256.
    return snapshot->wanted > snapshot->percent + 0.5; // false where one is not known
}
