// SPDX-License-Identifier: Apache-2.0
// What a policy asks less of than the plan of the run did. Anybody may judge by another one, and
// nobody may take its pass for one by the plan. Pure on facts; adds a finding.
#include <stdlib.h>

#include "common/strings.h"
#include "harness/gate/phrase.h"
#include "harness/gate/run_facts.h"

static const double policy_day_ns = 86400e9;

// By more than what a number loses that was text and JSON meanwhile.
static bool policy_above(double value, double than)
{
    return value > than * (1 + 1e-9);
}

static void policy_add_share(
        struct strbuf *text, const char *what, double now, double before, const char *behind)
{
    char of_policy[32], of_plan[32];
    if (policy_above(now, before))
        strbuf_add(text, "%s%s %s%s, not %s", text->len ? ", " : "", what,
                phrase_floor(of_policy, sizeof of_policy, now), behind,
                phrase_floor(of_plan, sizeof of_plan, before));
}

static void policy_add_metric(
        struct strbuf *text, const struct run_facts *run, enum metric_id metric)
{
    const struct plan_gate *plan = &run->plan->gate, *policy = &run->gate;
    bool both = false, dropped = false;
    for (int i = 0; i < run->workload_count; i++) {
        const struct workload_facts *facts = &run->workloads[i].facts;
        bool before = cell_gated(facts, plan, metric), now = cell_gated(facts, policy, metric);
        both = both || (before && now);
        dropped = dropped || (before && !now);
    }
    char *what = xasprintf("%s may be", metric_infos[metric].name);
    if (dropped)
        strbuf_add(text, "%s%s is not judged", text->len ? ", " : "", metric_infos[metric].name);
    else if (both)
        policy_add_share(
                text, what, policy->metrics[metric].margin, plan->metrics[metric].margin, " worse");
    free(what);
    for (int i = 0; metric == METRIC_SCALING_EFFICIENCY && both && !run->aa &&
            i < plan->metrics[metric].floor_count;
            i++) {
        const struct plan_floor *floor = &plan->metrics[metric].floors[i];
        double least = plan_floor_of(policy, floor->ranks); // NAN: none
        if (run_facts_scales(run, floor->ranks) && !(least >= floor->least))
            strbuf_add(text, "%sthe floor with %llu ranks is lower", text->len ? ", " : "",
                    (unsigned long long)floor->ranks);
    }
}

static void policy_add_parity(
        struct strbuf *text, const struct plan_gate *policy, const struct plan_gate *plan)
{
    if (plan->parity == PLAN_PARITY_OFF)
        return;
    if (policy->parity == PLAN_PARITY_OFF)
        strbuf_add(text, "%sparity is off", text->len ? ", " : "");
    else if (policy_above(policy->parity_factor, plan->parity_factor))
        strbuf_add(text, "%soutputs may be %g times as far off, not %g", text->len ? ", " : "",
                policy->parity_factor, plan->parity_factor);
    if (policy->parity != PLAN_PARITY_OFF)
        policy_add_share(text, "losses may be", policy->parity_loss_margin,
                plan->parity_loss_margin, " off");
}

void run_facts_find_looser(struct run_facts *run)
{
    const struct plan_gate *plan = &run->plan->gate, *policy = &run->gate;
    struct strbuf text = {0};
    for (int metric = 0; metric < METRIC_COUNT; metric++)
        policy_add_metric(&text, run, (enum metric_id)metric);
    policy_add_share(&text, "alpha is", policy->alpha, plan->alpha, "");
    if (plan->fail_on_likely && !policy->fail_on_likely)
        strbuf_add(&text, "%swhat is likely does not fail", text.len ? ", " : "");
    policy_add_parity(&text, policy, plan);
    policy_add_share(&text, "the bound of a certificate is", policy->calibration_bound,
            plan->calibration_bound, "");
    if (policy->calibration_age_ns > plan->calibration_age_ns)
        strbuf_add(&text, "%scertificates may be %.3g days old, not %.3g", text.len ? ", " : "",
                (double)policy->calibration_age_ns / policy_day_ns,
                (double)plan->calibration_age_ns / policy_day_ns);
    if (text.len)
        findings_add(&run->findings, NULL, "policy", -1, FINDING_NOTE,
                "by a policy that asks for less than the run's plan: %s", text.text);
    strbuf_free(&text);
}
