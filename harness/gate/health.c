// SPDX-License-Identifier: Apache-2.0
// Crashes, voids and steadiness of a workload. Reads facts; writes a state and findings. Counts
// that differ between the sides are tested with the exact binomial: void and crashed pairs are data
// too.
#include "harness/gate/health.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/containers/vector.h"
#include "common/strings.h"
#include "reports/analyse/binomial.h"

enum {
    HEALTH_ATTEMPTS = 2, // failed pairs in a row after which a workload is given up
    // Exit codes of the candidate without a step call, and none of the baseline. Where 1 % of all
    // launches end so, one comes in 11 % of the runs of 13 pairs, and two in 0.6 %.
    HEALTH_EXITS = 2,
    HEALTH_LOST = 3 // void ones at the end of a run: those that `upgate node` ends it by
};
// A few pairs may be void (schedule.voids: 4), so few that 1 % is never reached; what follows is no
// fail.
static const double health_void_alpha = 0.1;
static const char *const health_sides[PLAN_SIDES] = {"baseline", "candidate"};

void findings_add(struct findings *findings, const char *workload, const char *kind, int side,
        enum finding_effect effect, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    char *text = xvasprintf(fmt, args);
    va_end(args);
    vector_push(
            findings->items, findings->count, (struct finding){workload, kind, side, effect, text});
}

void findings_clear(struct findings *findings)
{
    for (int i = 0; i < findings->count; i++)
        free(findings->items[i].text);
    free(findings->items);
    *findings = (struct findings){0};
}

void health_clear(struct health *health)
{
    free(health->why);
    *health = (struct health){0};
}

static bool health_is_bad(enum launch_fate fate)
{
    return fate == LAUNCH_FATE_CRASHED || fate == LAUNCH_FATE_ABORTED ||
            fate == LAUNCH_FATE_EXITED || fate == LAUNCH_FATE_TIMEOUT || fate == LAUNCH_FATE_OOM ||
            fate == LAUNCH_FATE_NOT_STARTED || fate == LAUNCH_FATE_NO_STEPS;
}

static const char *health_fate_text(enum launch_fate fate)
{
    switch (fate) {
    case LAUNCH_FATE_TIMEOUT:
        return "reached the timeout";
    case LAUNCH_FATE_OOM:
        return "was killed for want of memory";
    case LAUNCH_FATE_NOT_STARTED:
        return "could not be started";
    case LAUNCH_FATE_ABORTED:
    case LAUNCH_FATE_EXITED:
        return "ended itself";
    case LAUNCH_FATE_NO_STEPS:
        return "made no step call";
    default:
        return "crashed";
    }
}

static bool health_judged_phase(const struct pair_head *head)
{
    return head->phase == PAIR_PHASE_MAIN || head->phase == PAIR_PHASE_CONFIRM;
}

// This pair failed while both sides were alive, and `auto` has taken that for why: launches of the
// workload have run one after the other since. Or it has yet to find out (the interleave is not
// known): then two of these are none of the attempts, for the next pair runs so.
static bool health_beside(const struct workload_facts *facts, int idx)
{
    const struct pair_head *heads = facts->heads;
    if (!health_judged_phase(&heads[idx]) || !heads[idx].beside ||
            heads[idx].interleave == PLAN_INTERLEAVE_LAUNCHES ||
            facts->fates[idx][0] == LAUNCH_FATE_SKIPPED ||
            facts->fates[idx][1] == LAUNCH_FATE_SKIPPED)
        return false;
    for (int i = idx + 1; i < facts->head_count; i++)
        if (health_judged_phase(&heads[i]) && heads[i].interleave == PLAN_INTERLEAVE_LAUNCHES)
            return true;
    return facts->interleave == PLAN_INTERLEAVE_AUTO && !facts->main_count;
}

// A launch of this side, in whatever phase, that ran well (or was stopped while it did).
static bool health_works(const struct workload_facts *facts, int side)
{
    for (int i = 0; i < facts->head_count; i++)
        if (facts->fates[i][side] == LAUNCH_FATE_OK || facts->fates[i][side] == LAUNCH_FATE_STOPPED)
            return true;
    return false;
}

// Failed pairs at the end of what was run: first index and, per side, whether it failed in any of
// them.
static int health_trailing(
        const struct workload_facts *facts, bool ret_bad[PLAN_SIDES], int *ret_last)
{
    int count = 0;
    *ret_last = -1;
    for (int i = facts->head_count - 1; i >= 0; i--) {
        if (!health_judged_phase(&facts->heads[i]) || health_beside(facts, i))
            continue;
        if (facts->heads[i].fate != PAIR_FATE_FAILED)
            break;
        if (*ret_last < 0)
            *ret_last = i;
        for (int side = 0; side < PLAN_SIDES; side++)
            ret_bad[side] = ret_bad[side] || health_is_bad(facts->fates[i][side]);
        count++;
    }
    return count;
}

// Nothing was compared, and nobody is at fault: never a pass, and no fail.
static bool health_skipped(struct store *store, const struct workload_facts *facts, int last,
        struct health *health, struct findings *findings)
{
    int side = facts->fates[last][1] == LAUNCH_FATE_SKIPPED;
    if (facts->fates[last][side] != LAUNCH_FATE_SKIPPED)
        return false;
    char *reason = store_get_text(
            store, "SELECT reason FROM pair WHERE id = ?", "i", facts->heads[last].id);
    health->state = HEALTH_BROKEN;
    health->why = reason ? reason : xstrdup("skipped: no reason recorded");
    findings_add(findings, facts->name, "skipped", side, FINDING_INCONCLUSIVE, "%s", health->why);
    return true;
}

static void health_given_up(struct store *store, const struct workload_facts *facts, int attempts,
        const bool bad[PLAN_SIDES], int last, struct health *health, struct findings *findings)
{
    char *reason = store_get_text(
            store, "SELECT reason FROM pair WHERE id = ?", "i", facts->heads[last].id);
    const char *detail = reason ? reason : "no reason recorded";
    const char *tries = attempts == 1 ? "the one attempt"
            : attempts == 2           ? "both attempts"
                                      : "all attempts";
    health->state = HEALTH_BROKEN;
    if (bad[1] && !bad[0] && health_works(facts, 0)) {
        health->state = HEALTH_CANDIDATE_BROKEN;
        health->why = xasprintf("the candidate %s in %s while the baseline works: %s",
                health_fate_text(facts->fates[last][1]), tries, detail);
        findings_add(findings, facts->name, "missing", 1, FINDING_FAIL, "%s", health->why);
    } else if (bad[1] && !bad[0]) {
        health->why =
                xasprintf("the candidate %s in %s, and the baseline was never seen at work: %s",
                        health_fate_text(facts->fates[last][1]), tries, detail);
        findings_add(findings, facts->name, "crash", 1, FINDING_INCONCLUSIVE, "%s", health->why);
    } else if (bad[0] && !bad[1]) {
        health->why = xasprintf("the baseline %s in %s, so there is nothing to compare with: %s",
                health_fate_text(facts->fates[last][0]), tries, detail);
        findings_add(findings, facts->name, "crash", 0, FINDING_INCONCLUSIVE, "%s", health->why);
    } else {
        health->why = xasprintf(
                "%s in %s: %s", bad[0] ? "both sides failed" : "the pair failed", tries, detail);
        findings_add(findings, facts->name, "crash", -1, FINDING_INCONCLUSIVE, "%s", health->why);
    }
    free(reason);
}

// Pairs that failed and were made good by the next one.
struct health_failed {
    int pairs, only[PLAN_SIDES];
    int own_b;     // of only[1], those in which the candidate ended by its own act
    int exited_b;  // of own_b, those by an exit code without a step call
    int aborted_b; // index of the last head of own_b; -1
};

static struct health_failed health_failed_of(const struct workload_facts *facts, int trailing)
{
    struct health_failed failed = {.aborted_b = -1};
    int total = 0;
    for (int i = 0; i < facts->head_count; i++)
        total += health_judged_phase(&facts->heads[i]) &&
                facts->heads[i].fate == PAIR_FATE_FAILED && !health_beside(facts, i);
    for (int i = 0; i < facts->head_count && failed.pairs < total - trailing; i++) {
        if (!health_judged_phase(&facts->heads[i]) || facts->heads[i].fate != PAIR_FATE_FAILED ||
                health_beside(facts, i))
            continue;
        bool bad_a = health_is_bad(facts->fates[i][0]), bad_b = health_is_bad(facts->fates[i][1]);
        failed.pairs++;
        failed.only[0] += bad_a && !bad_b;
        failed.only[1] += bad_b && !bad_a;
        bool exited_b = facts->fates[i][1] == LAUNCH_FATE_EXITED;
        if (bad_a || (facts->fates[i][1] != LAUNCH_FATE_ABORTED && !exited_b))
            continue;
        failed.own_b++;
        failed.exited_b += exited_b;
        failed.aborted_b = i;
    }
    return failed;
}

// The last pair failed by one exit code of the candidate: no more than one in the middle of the
// run.
static bool health_slipped(const struct workload_facts *facts, int trailing, int last)
{
    return trailing == 1 && facts->fates[last][1] == LAUNCH_FATE_EXITED &&
            !health_is_bad(facts->fates[last][0]) && health_works(facts, 0) &&
            health_works(facts, 1);
}

// One crash of the candidate alone is never a pass. It is a fail when it was the program's own act,
// which the baseline never does, or when it happens to it more often than chance allows. One exit
// code without a step call may come on either side: a port that is taken, a file that is not there
// yet.
static void health_intermittent(struct store *store, const struct workload_facts *facts,
        int trailing, bool slipped, struct findings *findings)
{
    struct health_failed failed = health_failed_of(facts, trailing);
    int a = failed.only[0], b = failed.only[1], launches = facts->main_count + facts->confirm_count;
    if (!failed.pairs)
        return;
    enum finding_effect effect = b > a ? FINDING_INCONCLUSIVE : FINDING_NOTE;
    bool own = failed.own_b > failed.exited_b || failed.own_b >= HEALTH_EXITS;
    if (b > a && ((a == 0 && own) || binomial_tail(b, a + b, 0.5) < HEALTH_ALPHA))
        effect = FINDING_FAIL;
    bool alone = a == 0 && b == 1 && failed.own_b == 1;
    char *reason = failed.aborted_b < 0
            ? NULL
            : store_get_text(store, "SELECT reason FROM pair WHERE id = ?", "i",
                      facts->heads[failed.aborted_b].id);
    findings_add(findings, facts->name, "crash", a == b ? -1 : b > a, effect,
            "%d of %d pairs failed%s: the baseline alone in %d, the candidate "
            "alone in %d%s%s%s",
            failed.pairs, launches + failed.pairs,
            slipped                     ? ""
                    : failed.pairs == 1 ? " and was made again"
                                        : " and were made again",
            a, b, reason ? "; " : "", reason ? reason : "",
            !alone ? ""
                    : effect == FINDING_INCONCLUSIVE
                    ? ", without a step call: once, that may be chance; run again"
                    : ", by its own act (an abort signal, or an exit code behind a step call): once is a fail");
    free(reason);
}

// What fails only while the other side is alive is no fault of either; but nobody has seen them
// together, and a pass says so. Where launches one after the other fail, too, that is said instead.
static void health_apart(
        struct store *store, const struct workload_facts *facts, struct findings *findings)
{
    int count = 0, only[PLAN_SIDES] = {0};
    int64_t last = 0;
    for (int i = 0; i < facts->head_count && facts->main_count; i++) {
        if (!health_beside(facts, i))
            continue;
        bool bad_a = health_is_bad(facts->fates[i][0]), bad_b = health_is_bad(facts->fates[i][1]);
        count++;
        only[0] += bad_a && !bad_b;
        only[1] += bad_b && !bad_a;
        last = facts->heads[i].id;
    }
    if (!count)
        return;
    char *reason = store_get_text(store, "SELECT reason FROM pair WHERE id = ?", "i", last);
    findings_add(findings, facts->name, "beside", only[0] == only[1] ? -1 : only[1] > only[0],
            FINDING_NOTE,
            "%d pair%s failed while both sides were alive, the baseline alone in %d, the candidate alone in %d: launches have run one after the "
            "other since; %s",
            count, count == 1 ? "" : "s", only[0], only[1], reason ? reason : "no reason recorded");
    free(reason);
}

// Void pairs at the end of what was judged, for which no side is to blame. Nobody stops there of
// himself: the next one was not to be had.
static int health_voids_at_end(const struct workload_facts *facts)
{
    int count = 0;
    for (int i = facts->head_count - 1; i >= 0; i--) {
        if (health_judged_phase(&facts->heads[i]) &&
                (facts->heads[i].fate != PAIR_FATE_VOID || facts->heads[i].void_side >= 0))
            break;
        count += health_judged_phase(&facts->heads[i]);
    }
    return count;
}

static void health_voids(struct store *store, const struct workload_facts *facts, bool ended,
        const struct plan_schedule *schedule, struct health *health, struct findings *findings)
{
    int voids = 0, of_side[PLAN_SIDES] = {0};
    int64_t last = 0;
    for (int i = 0; i < facts->head_count; i++) {
        if (facts->heads[i].fate != PAIR_FATE_VOID)
            continue;
        voids++;
        last = facts->heads[i].id;
        // Both sides of a control pair are the baseline, and the one that is held longer is no
        // candidate.
        if (facts->heads[i].void_side >= 0 && health_judged_phase(&facts->heads[i]))
            of_side[facts->heads[i].void_side != 0]++;
    }
    if (!voids)
        return;
    // The run loop stops there: what is decided stands, the rest never will be.
    if ((uint64_t)voids > schedule->voids_max && health->state == HEALTH_OK) {
        health->state = HEALTH_BROKEN;
        health->why = xasprintf(
                "environment: %d pairs were void, and %llu may be repeated: this machine is not fit "
                "to judge on now",
                voids, (unsigned long long)schedule->voids_max);
    }
    int more = of_side[1] > of_side[0], tested = of_side[0] + of_side[1];
    bool differs = tested && binomial_tail(of_side[more], tested, 0.5) < health_void_alpha;
    if (!differs) {
        char *reason = store_get_text(store, "SELECT reason FROM pair WHERE id = ?", "i", last);
        int at_end = health_voids_at_end(facts);
        const char *why = reason ? reason : "no reason recorded";
        if (ended && at_end >= HEALTH_LOST && health->state == HEALTH_OK)
            findings_add(findings, facts->name, "void", -1, FINDING_INCONCLUSIVE,
                    "the run ended when %d pairs in a row were lost, the last "
                    "one: %s",
                    at_end, why);
        else
            findings_add(findings, facts->name, "void", -1, FINDING_NOTE,
                    "%d pair%s did not count%s: %s", voids, voids == 1 ? "" : "s",
                    voids == 1 ? "" : ", the last one", why);
        free(reason);
    } else
        findings_add(findings, facts->name, "void", more,
                more ? FINDING_INCONCLUSIVE : FINDING_NOTE,
                "%d of %d void pairs are due to the %s: it disturbs the machine more than chance "
                "allows (p < 0.1), and the pairs that count may hide it",
                of_side[more], tested, health_sides[more]);
}

// A launch that does not get steady is judged like any other, on all its steps. That one side does
// so more often than the other is worth a word of its own: its times are no property of the program
// alone, or its warm-up is longer than the launch.
static void health_steady(const struct workload_facts *facts, struct findings *findings)
{
    int only[PLAN_SIDES] = {0}, both = 0, known = 0;
    enum steady_state last[PLAN_SIDES] = {STEADY_OK, STEADY_OK};
    for (int i = 0; i < facts->main_count; i++) {
        const struct measure_launch *sides = facts->main[i].sides;
        bool unsteady[PLAN_SIDES], told = true;
        for (int side = 0; side < PLAN_SIDES; side++) {
            told = told && sides[side].steps >= 0 && sides[side].steady != STEADY_TOO_SHORT;
            unsteady[side] = !steady_reached(sides[side].steady);
        }
        if (!told)
            continue;
        known++;
        both += unsteady[0] && unsteady[1];
        for (int side = 0; side < PLAN_SIDES; side++) {
            only[side] += unsteady[side] && !unsteady[!side];
            last[side] = unsteady[side] ? sides[side].steady : last[side];
        }
    }
    int more = only[1] > only[0], tested = only[0] + only[1];
    // Requests of an open loop are judged on their latency, steady or not.
    if (workload_facts_mode(facts) == PLAN_MODE_INFER)
        return;
    if (tested && binomial_tail(only[more], tested, 0.5) < HEALTH_ALPHA)
        findings_add(findings, facts->name, "not_steady", more,
                more ? FINDING_INCONCLUSIVE : FINDING_NOTE,
                "the %s %s in %d of %d launches in which the %s does not, which does so in %d: "
                "more than chance allows (p < 0.01)",
                health_sides[more], steady_state_text(last[more]), only[more], known,
                health_sides[!more], only[!more]);
    else if (2 * both > known)
        findings_add(findings, facts->name, "not_steady", -1, FINDING_NOTE,
                "neither side gets steady in %d of %d pairs: all steps behind the first 5 count",
                both, known);
}

static void health_machine(const struct workload_facts *facts, struct findings *findings)
{
    if (facts->machine_side >= 0)
        findings_add(findings, facts->name, "machine", facts->machine_side, FINDING_NOTE,
                "the machine takes more time from the %s than chance allows (p < 0.01): taken "
                "for its own doing, and left in its times",
                health_sides[facts->machine_side]);
}

void health_check(struct store *store, const struct workload_facts *facts,
        const struct plan_gate *gate, const struct plan_schedule *schedule, bool ended,
        struct health *ret_health, struct findings *findings)
{
    struct health health = {.state = HEALTH_OK};
    bool bad[PLAN_SIDES] = {false, false};
    int last, trailing = health_trailing(facts, bad, &last);
    bool skipped = trailing > 0 && health_skipped(store, facts, last, &health, findings);
    bool slipped = ended && health_slipped(facts, trailing, last);
    if (!skipped && !slipped && (trailing >= HEALTH_ATTEMPTS || (trailing > 0 && ended)))
        health_given_up(store, facts, trailing, bad, last, &health, findings);
    health_intermittent(store, facts, slipped ? 0 : trailing, slipped, findings);
    health_apart(store, facts, findings);
    health_voids(store, facts, ended, schedule, &health, findings);
    health_steady(facts, findings);
    health_work(facts, gate, findings);
    health_machine(facts, findings);
    *ret_health = health;
}
