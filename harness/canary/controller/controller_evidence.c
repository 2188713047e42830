// SPDX-License-Identifier: Apache-2.0
// The controller's evidence: seconds from the sources into the tests and the store. What is judged
// is a fold over the rows of rollout_second, so that a restart reaches the same state. Main thread.
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/containers/vector.h"
#include "common/log.h"
#include "harness/canary/controller/controller_internal.h"

enum {
    EVIDENCE_FUTURE_S = 2, // a second that ends later was written before the clock was set back
    // of `stale`: counters may be scraped so seldom, those of the arms at different moments
    EVIDENCE_UNSEEN_TIMES = 2,
    // requests, without one of which a candidate that answers is not, but once in e^20
    EVIDENCE_SILENT_OWED = 20
};
#define EVIDENCE_BUSY_MAX_NS 30000000000

static bool evidence_shadow(const struct controller *ctl, int stage)
{
    return stage >= 0 && ctl->rollout->stages[stage].mirror > 0;
}

static void evidence_enter(struct controller *ctl, int stage)
{
    canary_evidence_stage(ctl->evidence, stage, ctl->rollout->stages[stage].aa);
    canary_evidence_opens(ctl->evidence, rollout_opens(ctl->rollout, stage),
            ctl->rollout->stages[stage].requests);
    ctl->folded_stage = stage;
    ctl->judged_s = ctl->unjudged_s = 0;
    memset(ctl->facts.requests, 0, sizeof ctl->facts.requests);
    ctl->facts.wrong = 0;
    ctl->heard = (struct controller_heard){0};
}

// A candidate that hangs, or whose log or series are gone, has no failed request: what it showed
// before would pass the stage. So many are owed by the split that the stage had while both were
// heard, and no more than by the plan's: of few requests the first tells little.
bool controller_candidate_silent(const struct controller *ctl)
{
    const struct controller_heard *heard = &ctl->heard;
    if (!heard->at_s)
        return false;
    const struct rollout_stage *stage = &ctl->rollout->stages[ctl->folded_stage];
    // a pair has one of each; of a baseline that has strays only, no more is known
    bool even = stage->mirror > 0 || stage->percent >= 100;
    double before = (double)(ctl->facts.requests[CANARY_BASELINE] - heard->baseline);
    double split = (double)ctl->facts.requests[CANARY_CANDIDATE] / (before + 1);
    double owed = (double)heard->baseline *
            fmin(split, even ? 1 : stage->percent / (100 - stage->percent));
    int64_t silent_ns = (ctl->judged_s - heard->at_s) * CONTROLLER_SECOND_NS;
    return silent_ns >= EVIDENCE_UNSEEN_TIMES * ctl->rollout->stale_ns &&
            owed >= EVIDENCE_SILENT_OWED;
}

// What nobody saw is no soak: a gap of more than twice `stale` (the log was away, or there was no
// controller), the silence of the candidate. As the seconds tell it, so that a restart comes to the
// same.
static void evidence_hear(struct controller *ctl, int64_t from_s, int64_t at_s,
        const struct canary_second arms[CANARY_ARMS])
{
    int64_t gap_s = at_s - (ctl->judged_s ? ctl->judged_s + 1 : from_s);
    if (gap_s * CONTROLLER_SECOND_NS > EVIDENCE_UNSEEN_TIMES * ctl->rollout->stale_ns)
        ctl->unjudged_s += gap_s;
    if (!arms[CANARY_CANDIDATE].requests) {
        ctl->heard.baseline += arms[CANARY_BASELINE].requests;
        return;
    }
    if (controller_candidate_silent(ctl))
        ctl->unjudged_s = ctl->heard.unjudged_s + at_s - ctl->heard.at_s - 1;
    ctl->heard = (struct controller_heard){.at_s = at_s, .unjudged_s = ctl->unjudged_s};
}

// One second of a stage into the tests. In order of time; what comes too late is stored and not
// judged.
static void evidence_add(struct controller *ctl, int64_t at_s, int stage,
        const struct canary_second arms[CANARY_ARMS])
{
    const struct rollout_stage_row *row = &ctl->stages[stage];
    if (stage != ctl->folded_stage)
        evidence_enter(ctl, stage);
    if (at_s <= ctl->folded_s)
        return;
    ctl->folded_s = at_s;
    if (row->begin_s && at_s >= row->begin_s)
        ctl->facts.wrong += arms[CANARY_CANDIDATE].wrong;
    if (!row->judged_from_s || at_s < row->judged_from_s)
        return;
    canary_evidence_add(ctl->evidence, arms);
    evidence_hear(ctl, row->judged_from_s, at_s, arms);
    ctl->judged_s = at_s;
    for (int arm = 0; arm < CANARY_ARMS; arm++)
        ctl->facts.requests[arm] += arms[arm].requests;
}

static int evidence_fold_one(
        void *arg, int64_t at_s, int stage, const struct canary_second arms[CANARY_ARMS])
{
    struct controller *ctl = arg;
    bool known = stage >= 0 && stage < ctl->plan.count && stage <= ctl->machine.stage;
    if (known && at_s <= clock_wall_ns() / CONTROLLER_SECOND_NS + EVIDENCE_FUTURE_S)
        evidence_add(ctl, at_s, stage, arms);
    return 0;
}

int controller_fold(struct controller *ctl, struct error *err)
{
    int rc = 0;
    for (int i = 0; i < ctl->plan.count && rc == 0; i++)
        rc = rollout_store_read_stage(ctl->store, i, &ctl->stages[i], err);
    if (rc == 0 && ctl->machine.stage >= 0) {
        ctl->lost_stored = (uint64_t)ctl->stages[ctl->machine.stage].lost;
        ctl->facts.lost_before = ctl->lost_stored > 0;
    }
    return rc ? rc : rollout_store_seconds(ctl->store, evidence_fold_one, ctl, err);
}

// --- what comes in -------------------------------------------------------------------------------

// The stage in whose time a second lies: requests that ended before the weight was set belong to
// the stage before.
static int evidence_stage_of(const struct controller *ctl, int64_t at_s)
{
    int stage = ctl->machine.stage;
    while (stage > 0 && at_s < ctl->stages[stage].begin_s)
        stage--;
    return stage;
}

static void evidence_second(
        struct controller *ctl, int64_t at_s, const struct canary_second arms[CANARY_ARMS])
{
    int stage = evidence_stage_of(ctl, at_s);
    if (stage < 0) // nothing has begun
        return;
    if (ctl->pending_count >= CONTROLLER_PENDING_MAX) {
        memmove(ctl->pending, ctl->pending + 1, (ctl->pending_count - 1) * sizeof *ctl->pending);
        ctl->pending_count--;
    }
    struct controller_second *second = vector_add(ctl->pending, ctl->pending_count);
    second->at_s = at_s;
    second->stage = stage;
    memcpy(second->arms, arms, sizeof second->arms);
    if (!rollout_state_ended(ctl->machine.state) && stage == ctl->machine.stage)
        evidence_add(ctl, at_s, stage, arms);
}

// Lines that the sources know to be lost are of the stage at hand, where users' requests are its
// evidence.
static void evidence_lost(struct controller *ctl)
{
    uint64_t seen = 0;
    for (int i = 0; ctl->sources && i < ctl->rollout->source_count; i++) {
        struct source_state state = {0};
        sources_state(ctl->sources, i, &state);
        seen += state.lost;
    }
    if (seen > ctl->lost_seen && ctl->machine.stage >= 0 && !ctl->shadowing &&
            !rollout_state_ended(ctl->machine.state))
        ctl->stages[ctl->machine.stage].lost += (int64_t)(seen - ctl->lost_seen);
    ctl->lost_seen = seen; // less: they were opened again
    if (ctl->machine.stage >= 0 && ctl->folded_stage == ctl->machine.stage)
        canary_evidence_lost(ctl->evidence, (uint64_t)ctl->stages[ctl->machine.stage].lost);
}

static uint64_t evidence_users(const struct controller *ctl)
{
    struct sources_total totals[CANARY_ARMS] = {0};
    if (ctl->sources)
        sources_totals(ctl->sources, false, totals);
    return totals[CANARY_BASELINE].requests + totals[CANARY_CANDIDATE].requests;
}

// The share is one of the users' requests, so the sources count them in this stage, too.
static void evidence_mirror(struct controller *ctl)
{
    uint64_t users = evidence_users(ctl);
    if (users > ctl->shadow_seen) // less: the sources were opened again
        ctl->options->shadow->traffic(ctl->options->shadow->arg, users - ctl->shadow_seen);
    ctl->shadow_seen = users;
}

void controller_take(struct controller *ctl)
{
    struct canary_second arms[CANARY_ARMS];
    int64_t at_s = 0;
    const struct controller_shadow *shadow = ctl->options->shadow;
    bool aa = ctl->machine.stage >= 0 && ctl->plan.stages[ctl->machine.stage].aa;
    evidence_lost(ctl);
    while (ctl->sources && sources_take(ctl->sources, aa, &at_s, arms))
        if (!ctl->shadowing) // there the mirrored requests are what is judged
            evidence_second(ctl, at_s, arms);
    if (ctl->shadowing)
        evidence_mirror(ctl);
    while (ctl->shadowing && shadow->take(shadow->arg, &at_s, arms)) {
        evidence_second(ctl, at_s, arms);
        ctl->shadow_total.requests += arms[CANARY_CANDIDATE].requests;
        ctl->shadow_total.errors += arms[CANARY_CANDIDATE].errors;
        ctl->evidence_ns = clock_monotonic_ns();
    }
    for (int i = 0; ctl->sources && i < ctl->rollout->source_count && !ctl->shadowing; i++) {
        struct source_state state = {0};
        sources_state(ctl->sources, i, &state);
        if (state.last_ns > ctl->evidence_ns)
            ctl->evidence_ns = state.last_ns;
    }
}

void controller_judge(struct controller *ctl)
{
    int stage = ctl->machine.stage, count = 0;
    if (stage < 0) {
        ctl->answer = (struct judge_answer){.failed = -1};
        return;
    }
    if (ctl->folded_stage != stage)
        evidence_enter(ctl, stage);
    const struct rollout_stage_row *row = &ctl->stages[stage];
    ctl->facts.lost = (uint64_t)row->lost;
    canary_evidence_lost(ctl->evidence, ctl->facts.lost);
    canary_evidence_cells(ctl->evidence, ctl->cells, &count);
    judge_cells(&ctl->rollout->stages[stage], ctl->cells, count);
    ctl->facts.cells = ctl->cells;
    ctl->facts.cell_count = count;
    // By the requests' clock and by ours: a server whose clock is ahead does not shorten the soak.
    int64_t by_evidence = ctl->judged_s
            ? (ctl->judged_s + 1 - row->judged_from_s - ctl->unjudged_s) * CONTROLLER_SECOND_NS
            : 0;
    int64_t by_clock = clock_wall_ns() - row->judged_from_s * CONTROLLER_SECOND_NS;
    ctl->facts.judged_ns = by_evidence < by_clock ? by_evidence : by_clock;
    judge_stage(ctl->rollout, stage, &ctl->facts, &ctl->answer);
}

// --- stages --------------------------------------------------------------------------------------

static void evidence_shadow_end(struct controller *ctl)
{
    if (ctl->shadowing)
        ctl->options->shadow->end(ctl->options->shadow->arg);
    ctl->shadowing = false;
}

void controller_begin_stage(struct controller *ctl, int stage)
{
    const struct rollout_stage *plan = &ctl->rollout->stages[stage];
    struct error err = {0};
    int64_t now_s = clock_wall_ns() / CONTROLLER_SECOND_NS;
    // The second in which the weight was set has requests from before.
    ctl->stages[stage] = (struct rollout_stage_row){.begin_s = now_s + 1,
            .judged_from_s = now_s + 1 +
                    (plan->warm_up_ns + CONTROLLER_SECOND_NS - 1) / CONTROLLER_SECOND_NS};
    ctl->patience_ns = ctl->evidence_ns = clock_monotonic_ns();
    ctl->facts.down = 0;
    ctl->shared_ns = 0;
    ctl->facts.maybe_tripped = ctl->facts.lost_before = ctl->facts.shared = false;
    controller_recent_clear(ctl);
    evidence_enter(ctl, stage);
    evidence_shadow_end(ctl);
    if (!evidence_shadow(ctl, stage))
        return;
    if (ctl->options->shadow->begin(
                ctl->options->shadow->arg, ctl->rollout, stage, ctl->store, &err))
        log_error("%s", err.text); // without evidence the stage pauses, and says so
    else
        ctl->shadowing = true;
    ctl->shadow_seen = evidence_users(ctl);
}

void controller_judge_anew(struct controller *ctl)
{
    int stage = ctl->machine.stage;
    int64_t now_s = clock_wall_ns() / CONTROLLER_SECOND_NS;
    struct error err = {0};
    if (stage < 0)
        return;
    ctl->stages[stage].begin_s = ctl->stages[stage].judged_from_s = now_s + 1;
    ctl->stages[stage].lost = 0;
    ctl->facts.maybe_tripped = ctl->facts.lost_before = ctl->facts.shared = false;
    ctl->folded_s = now_s; // a clock that was set back tells the same seconds again
    ctl->evidence_ns = ctl->patience_ns = clock_monotonic_ns();
    evidence_enter(ctl, stage);
    if (!ctl->store_failed &&
            rollout_store_stage(ctl->store, stage, &ctl->stages[stage], NULL, &err) &&
            err.code != -EBUSY)
        controller_store_error(ctl, &err);
}

// --- the store -----------------------------------------------------------------------------------

static int evidence_persist(struct controller *ctl, bool cells, struct error *err)
{
    int64_t now = clock_wall_ns(), offset = now - clock_monotonic_ns();
    struct rollout_row row = controller_row(ctl);
    row.heartbeat_ns = now;
    int rc = store_begin(ctl->store, err);
    for (size_t i = 0; i < ctl->pending_count && rc == 0; i++)
        rc = rollout_store_second(
                ctl->store, ctl->pending[i].at_s, ctl->pending[i].stage, ctl->pending[i].arms, err);
    if (rc == 0 && cells && ctl->machine.stage >= 0)
        rc = rollout_store_cells(
                ctl->store, now / CONTROLLER_SECOND_NS, ctl->cells, ctl->facts.cell_count, err);
    for (int i = 0; ctl->sources && i < ctl->rollout->source_count && rc == 0; i++) {
        struct source_state state = {0};
        sources_state(ctl->sources, i, &state);
        rc = rollout_store_source(
                ctl->store, i, &state, state.last_ns ? state.last_ns + offset : 0, err);
    }
    int stage = ctl->machine.stage;
    bool lost = stage >= 0 && (uint64_t)ctl->stages[stage].lost != ctl->lost_stored &&
            !rollout_state_ended(ctl->machine.state);
    if (rc == 0 && lost)
        rc = rollout_store_stage(ctl->store, stage, &ctl->stages[stage], NULL, err);
    if (rc == 0)
        rc = rollout_store_write(ctl->store, &row, err);
    if (rc == 0)
        rc = store_commit(ctl->store, err);
    if (rc == 0 && lost)
        ctl->lost_stored = (uint64_t)ctl->stages[stage].lost;
    if (rc)
        store_rollback(ctl->store);
    return rc;
}

void controller_persist(struct controller *ctl, bool cells)
{
    struct error err = {0};
    int64_t begin = clock_monotonic_ns();
    if (ctl->store_failed)
        return;
    int rc = evidence_persist(ctl, cells, &err);
    ctl->commit_ns = clock_monotonic_ns() - begin;
    if (rc == 0) {
        ctl->pending_count = 0;
        ctl->store_busy_ns = 0;
        return;
    }
    // A reader that holds the store is waited for; the rows wait with it.
    if (rc == -EBUSY && !ctl->store_busy_ns)
        ctl->store_busy_ns = begin;
    if (rc != -EBUSY || begin - ctl->store_busy_ns > EVIDENCE_BUSY_MAX_NS)
        controller_store_error(ctl, &err);
}
