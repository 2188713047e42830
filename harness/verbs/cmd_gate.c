// SPDX-License-Identifier: Apache-2.0
// `upgate gate`: judges a stored run again, by its own policy or another. Reads RUN.db, rewrites
// what is derived in it, prints the verdict; the exit code is the verdict. Runs nothing: the pairs
// are those that were run.
#include <stdio.h>
#include <stdlib.h>

#include "common/log.h"
#include "common/options.h"
#include "contracts/exit_code.h"
#include "harness/gate/gate.h"
#include "harness/plan/plan.h"
#include "harness/verbs/program.h"
#include "reports/render/render.h"
#include "tracer/store/store.h"

struct gate_values {
    const char *policy;
    bool bisect;
    struct options_common common;
};

extern const struct verb verb_gate;

static const struct option_spec gate_options[] = {
        {.group = "Judging",
                .letter = 'p',
                .name = "policy",
                .kind = OPTION_TEXT,
                .value = "POLICY.yaml",
                .default_text = "the run's plan",
                .help = "a gate section (alpha, metrics, margins, parity), or a plan whose gate is used",
                .offset = offsetof(struct gate_values, policy)},
        {.name = "bisect",
                .kind = OPTION_FLAG,
                .help = "exit with 125 (cannot test) instead of 3 and 4, as `git bisect run` wants",
                .offset = offsetof(struct gate_values, bisect)},
        OPTIONS_COMMON(struct gate_values, common, "FILE",
                "write a report as well; its ending picks the form, as for `upgate report`", NULL),
        {.name = NULL},
};

static const char *const gate_usage[] = {"gate RUN.db [--policy POLICY.yaml] [-o FILE]", NULL};

static const char *const gate_examples[] = {
        "upgate gate run.db",
        "judge again as the run's plan says; the same pairs give the same answer",
        "upgate gate run.db --policy nightly.yaml",
        "what the same pairs say under other margins",
        "upgate gate run.db -o junit.xml --format json",
        "the verdict for a script, and a file for the CI system",
        "upgate gate run.db --policy nightly.yaml --dry-run",
        "check the policy and show it with every default filled in",
        NULL,
};

static const char gate_exit_codes[] =
        "0  pass: every gating cell is shown to be within its margin\n"
        "1  fail: a regression beyond its margin, a numerical difference, a candidate that crashes\n"
        "2  usage, an invalid policy, a file that is not a store\n"
        "3  inconclusive: not enough evidence, or evidence that cannot be trusted\n"
        "4  operational failure: the store is locked, read-only or damaged, disk full";

// What would judge: the policy's section, or the plan's as stored.
static int gate_show_policy(const char *path, const struct plan_gate *policy, struct error *err)
{
    struct store *store = NULL;
    struct plan *plan = NULL;
    int rc = store_open(path, STORE_READ, &store, err);
    if (!rc)
        rc = store_check_run(store, err);
    char *text = rc || policy ? NULL : store_get_text(store, "SELECT plan FROM run", "");
    json_t *json = text ? json_loads(text, 0, NULL) : NULL;
    rc = rc ? rc : store_failed(store, err);
    if (!rc && !policy)
        rc = plan_from_json(json, &plan, err);
    json_decref(json);
    if (!rc) {
        json = plan_gate_to_json(policy ? policy : &plan->gate);
        // For people: 0.2, not 0.20000000000000001. main looks whether stdout took it.
        json_dumpf(json, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
        putchar('\n');
        json_decref(json);
    }
    plan_free(plan);
    free(text);
    store_close(store);
    return rc;
}

static int gate_run_store(const char *path, const struct gate_values *values,
        const struct plan_gate *policy, enum exit_code *ret_exit, struct error *err)
{
    struct store *store = NULL;
    int rc = store_open(path, STORE_WRITE, &store, err);
    if (!rc)
        rc = store_check_run(store, err);
    if (!rc)
        rc = gate_judge(store, policy, ret_exit, err);
    if (!rc)
        rc = render_stdout(store, &values->common, err);
    if (!rc && values->common.output)
        rc = render_file(store, values->common.output, &(struct render_opts){0}, err);
    store_close(store);
    return rc;
}

static int gate_values_run(const char *path, const struct gate_values *values,
        enum exit_code *ret_exit, struct error *err)
{
    struct plan_gate policy;
    int rc = values->common.output ? render_file_check(values->common.output, err) : 0;
    if (!rc && values->policy)
        rc = plan_load_gate(values->policy, &policy, err);
    if (rc)
        return rc;
    if (values->common.seed_given)
        log_warn("--seed changes nothing here: the pairs were drawn when they were run");
    const struct plan_gate *chosen = values->policy ? &policy : NULL;
    if (!values->common.dry_run)
        return gate_run_store(path, values, chosen, ret_exit, err);
    *ret_exit = EXIT_CODE_PASS;
    return gate_show_policy(path, chosen, err);
}

static int gate_main(int argc, char **argv)
{
    struct gate_values values = {.common = OPTIONS_COMMON_DEFAULT};
    struct options_rest rest = {0};
    struct error err = {0};
    enum exit_code verdict = EXIT_CODE_INCONCLUSIVE;
    int rc = program_parse(&verb_gate, argc, argv, &values, &values.common, &rest, &err);
    if (rc > 0)
        return EXIT_CODE_PASS;
    if (!rc)
        rc = gate_values_run(rest.positional[0], &values, &verdict, &err);
    int code = program_judge(rc, (int)verdict, &err);
    bool unknown = code == EXIT_CODE_INCONCLUSIVE || code == EXIT_CODE_OPERATIONAL;
    return values.bisect && unknown ? EXIT_CODE_BISECT_SKIP : code;
}

const struct verb verb_gate = {
        .name = "gate",
        .summary = "Judge a stored run again, by its own policy or another.",
        .usage = gate_usage,
        .options = gate_options,
        .examples = gate_examples,
        .exit_codes = gate_exit_codes,
        .positional_min = 1,
        .positional_max = 1,
        .run = gate_main,
};
