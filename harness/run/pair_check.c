// SPDX-License-Identifier: Apache-2.0
// Whether what a pair that has come to its end recorded can count at all. Reads the readers and
// samples of its launches; runs nothing, and trusts no process.
#include "harness/run/pair_internal.h"

#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/strings.h"
#include "harness/steps/unseen.h"

#define PAIR_UNEVEN_NS INT64_C(20000000000) // of a turn, as tracer/calls waits
#define PAIR_BEHIND_NS \
    INT64_C(5000000000) // behind the steps: a process ends and writes its checkpoint in less
                        // (health_work.c)

void pair_fail(struct pair *pair, char *reason)
{
    if (pair->reason)
        free(reason);
    else
        pair->reason = reason;
    pair->state = PAIR_FAILED;
}

// --- launches that ended in good order and still do not count ------------------------------------

// A step file that was cut short has lost what was in it: nothing of this pair can be trusted.
static void pair_check_file(const struct pair_spec *spec, struct pair *pair)
{
    for (int side = 0; side < 2; side++) {
        struct launch *launch = pair->launches[side];
        if (!launch || !reader_truncated(launch->reader))
            continue;
        if (launch->state == LAUNCH_OK)
            launch->state = LAUNCH_CRASHED; // its exit code tells nothing about what is lost
        free(pair->reason);                 // whatever else happened followed from it
        pair->reason = NULL;
        pair_fail(pair,
                xasprintf("side '%s' cut the file short that UPGATE_STEPS names; only the step "
                          "protocol may write to it",
                        spec->plan->sides[side].name));
    }
}

// One of several ranks that ended without a word, before the others: killed, and its launcher did
// not mind. A rank that ends in good order says so, and may have had less to do.
static void pair_check_ranks(const struct pair_spec *spec, struct pair *pair, int side)
{
    struct launch *launch = pair->launches[side];
    struct reader_slot slot, lost = {0};
    uint32_t most = 0;
    if (!launch || spec->workload->ranks < 2)
        return;
    for (uint32_t i = 0; i < reader_slot_count(launch->reader); i++) {
        if (reader_slot(launch->reader, i, &slot))
            continue;
        most = slot.steps > most ? slot.steps : most;
        if (slot.state != UG_SLOT_CLOSED && (!lost.pid || slot.steps < lost.steps))
            lost = slot;
    }
    if (!lost.pid || lost.steps >= most)
        return;
    launch->state = LAUNCH_CRASHED;
    pair_fail(pair,
            xasprintf("rank %u of side '%s' ended without a word after %u steps, another made %u",
                    lost.rank, spec->plan->sides[side].name, lost.steps, most));
}

// A launch that was told how many steps to make, ended in good order and made fewer than its
// partner did less work: its times must not count, and its early end is a failure of its own. One
// that made none may be of a side without step calls, unless that has made some before.
static void pair_check_steps(const struct pair_spec *spec, struct pair *pair)
{
    if (!plan_workload_says_steps(spec->workload) || !pair->launches[0] || !pair->launches[1])
        return;
    int64_t steps[2] = {samples_steps(pair->launches[0]), samples_steps(pair->launches[1])};
    int side = steps[1] < steps[0];
    bool tells = steps[side] >= 0 || (!spec->nodes && spec->steps_seen & 1 << side);
    if (steps[0] == steps[1] || !tells || steps[side] >= (int64_t)spec->steps)
        return;
    pair->launches[side]->state = LAUNCH_CRASHED;
    pair_fail(pair,
            xasprintf(
                    "side '%s' ended in good order after %lld of %llu steps, side '%s' after %lld",
                    spec->plan->sides[side].name, steps[side] < 0 ? 0 : (long long)steps[side],
                    (unsigned long long)spec->steps, spec->plan->sides[!side].name,
                    (long long)steps[!side]));
}

// What a side was cut by, before it has said more than its rule, too.
static const char *pair_rule_words(const struct samples *samples, const char *rule)
{
    static const char *const words[][2] = {{"optimizer", "Optimizer.step"},
            {"module", "calls of a model"}, {"jit", "calls of what jax jits"},
            {"symbol", "calls of a native function"}, {"nvtx", "ranges of NVTX"},
            {"graph", "replays of CUDA graphs"}};
    if (!rule || samples->found)
        return rule ? samples->found : "step calls of its own";
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(rule, words[i][0]) == 0)
            return words[i][1];
    return rule;
}

const char *pair_rule(const struct pair_spec *spec, const struct pair *pair, char **ret_why)
{
    const char *rules[2], *why[2];
    *ret_why = NULL;
    for (int side = 0; side < 2; side++) {
        rules[side] = samples_rule(&pair->samples[side], &why[side]);
        if (why[side] && !*ret_why)
            *ret_why = xasprintf("%s, on side '%s'", why[side], spec->plan->sides[side].name);
    }
    bool alone = spec->sides != 3 || !pair->launches[0] || !pair->launches[1];
    bool same = rules[0] && rules[1] ? strcmp(rules[0], rules[1]) == 0 : !rules[0] && !rules[1];
    if (!*ret_why && !alone && !same)
        *ret_why = xasprintf("%s on side '%s', %s on side '%s'",
                pair_rule_words(&pair->samples[0], rules[0]), spec->plan->sides[0].name,
                pair_rule_words(&pair->samples[1], rules[1]), spec->plan->sides[1].name);
    return *ret_why ? NULL : rules[0];
}

bool pair_steps_end_early(const struct pair *pair, int side, int64_t *ret_behind_ns)
{
    const struct samples *samples = &pair->samples[side];
    const struct launch *launch = pair->launches[side];
    int64_t last_ns = launch->resumed_ns; // it may have stood at its last gate while the other side
                                          // had its end
    for (size_t i = 0; i < samples->step_count; i++)
        last_ns = samples->steps[i].end_ns > last_ns ? samples->steps[i].end_ns : last_ns;
    *ret_behind_ns = launch->ended_ns - last_ns;
    return samples->step_count && *ret_behind_ns > PAIR_BEHIND_NS &&
            2 * *ret_behind_ns > launch->active_ns;
}

uint32_t pair_told_ranks(const struct launch *launch)
{
    struct reader_slot slot;
    uint32_t ranks = 1;
    for (uint32_t i = 0; i < reader_slot_count(launch->reader); i++)
        if (reader_slot(launch->reader, i, &slot) == 0 && slot.ranks > ranks)
            ranks = slot.ranks;
    return ranks;
}

void pair_check_rules(const struct pair_spec *spec, struct pair *pair)
{
    char *why = NULL;
    if (pair_rule(spec, pair, &why) && pair->launches[0] && pair->launches[1]) {
        uint32_t ranks[2] = {
                pair_told_ranks(pair->launches[0]), pair_told_ranks(pair->launches[1])};
        if (ranks[0] != ranks[1])
            why = xasprintf("side '%s' has %u ranks, side '%s' %s",
                    spec->plan->sides[ranks[1] > ranks[0]].name,
                    ranks[1] > ranks[0] ? ranks[1] : ranks[0],
                    spec->plan->sides[ranks[1] <= ranks[0]].name,
                    ranks[0] > 1 && ranks[1] > 1 ? "fewer" : "one, or tells none");
    }
    if (!why)
        return;
    pair->rules_differ = true;
    pair_fail(pair, xasprintf("no rule cuts both sides into steps: %s", why));
    free(why);
}

// Processes that share what there is to do make no common steps: one stands at the gate, and
// another, which made some, goes on without. Of steps that were named only: a rank of others may
// write its checkpoint.
bool pair_check_even(const struct pair_spec *spec, struct pair *pair, int side)
{
    struct launch *launch = pair->launches[side];
    struct reader_slot slot, held = {0}, idle = {0};
    int64_t longest_ns = 0, now_ns = clock_monotonic_ns();
    if (!spec->finds_steps || !plan_step_is_injected(spec->workload->step) ||
            launch->active_since_ns > now_ns - PAIR_UNEVEN_NS)
        return false;
    for (size_t i = 0; i < pair->samples[side].step_count; i++) {
        const struct samples_step *step = &pair->samples[side].steps[i];
        longest_ns = step->end_ns - step->begin_ns > longest_ns ? step->end_ns - step->begin_ns
                                                                : longest_ns;
    }
    // A step may be longer than that.
    int64_t since_ns = now_ns - (3 * longest_ns > PAIR_UNEVEN_NS ? 3 * longest_ns : PAIR_UNEVEN_NS);
    for (uint32_t i = 0; i < reader_slot_count(launch->reader); i++) {
        if (reader_slot(launch->reader, i, &slot))
            continue;
        if (slot.held && slot.hold_begin_ns <= (uint64_t)since_ns)
            held = slot;
        else if (slot.state == UG_SLOT_RUNNING && reader_slot_alive(launch->reader, i))
            idle = slot;
    }
    if (!held.pid || !idle.pid)
        return false;
    launch_kill(launch, LAUNCH_STOPPED);
    pair->rules_differ = true;
    pair_fail(pair,
            xasprintf(
                    "no rule cuts both sides into steps: process %u makes none by '%s' while process %u waits for it at the gate, "
                    "on side '%s'",
                    idle.pid, spec->workload->step, held.pid, spec->plan->sides[side].name));
    return true;
}

void pair_miss_steps(const struct pair_spec *spec, struct pair *pair, int side)
{
    const struct native_calls *calls = pair->launches[side]->calls;
    const char *why = NULL, *name = spec->plan->sides[side].name;
    pair->missed_steps = true;
    if (calls && !native_calls_found(calls, &why))
        pair->unseen = xasprintf("%s, on side '%s'", why, name);
    if (spec->finds_steps && plan_step_is_injected(spec->workload->step)) {
        char *words = unseen_why(pair->launches[side]->reader, spec->workload->step);
        pair->unseen = xasprintf("%s, on side '%s'", words, name);
        free(words);
    }
    pair_fail(pair,
            pair->unseen ? xasprintf("steps are by '%s': %s", spec->workload->step, pair->unseen)
                         : xasprintf("side '%s' made no step call, and turns of steps need them; "
                                     "set `interleave` to auto or slices",
                                   name));
}

void pair_check(const struct pair_spec *spec, struct pair *pair)
{
    pair_check_file(spec, pair);
    if (pair->state == PAIR_VALID && spec->interleave != PLAN_INTERLEAVE_SLICES)
        pair_check_rules(spec, pair);
    for (int side = 0; side < 2 && pair->state == PAIR_VALID; side++)
        pair_check_ranks(spec, pair, side);
    if (pair->state == PAIR_VALID)
        pair_check_steps(spec, pair);
}
