// SPDX-License-Identifier: Apache-2.0
// upgate canary: a staged rollout of live traffic. The verbs below it have a table each; this file
// holds the tables and picks one. What they do: canary_verbs.c, canary_asks.c.
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/log.h"
#include "common/strings.h"
#include "contracts/exit_code.h"
#include "harness/verbs/canary_verbs.h"
#include "harness/verbs/program.h"

extern const struct verb verb_canary;

// --- options -------------------------------------------------------------------------------------

// One row an option.
// clang-format off
#define AT(member) offsetof(struct canary_values, member)
#define COMMON_NO_FILE OPTIONS_COMMON(struct canary_values, common, "FILE", NULL, NULL)
#define RUN_OPTIONS \
    {.group = "Running", .name = "wait", .kind = OPTION_DURATION, .value = "TIME", .default_text = "the stage's patience", \
     .help = "how long a pause that nobody asked for waits for a person; then the traffic goes to the baseline and it ends with 3", \
     .offset = AT(wait_ns)}, \
    {.name = "anew", .kind = OPTION_FLAG, \
     .help = "begin a new rollout where one has ended or its plan has changed; the old store stays beside the new one", \
     .offset = AT(anew)}
#define STATUS_OPTIONS \
    {.group = "Looking", .name = "watch", .kind = OPTION_FLAG, .help = "again every second, until the rollout has ended", \
     .offset = AT(watch)}
#define ASK_OPTIONS \
    {.group = "Asking", .letter = 'm', .name = "reason", .kind = OPTION_TEXT, .value = "TEXT", \
     .help = "stored with the decision, and shown", .offset = AT(reason)}, \
    {.name = "heard-within", .kind = OPTION_DURATION, .value = "TIME", .default_text = "15s", \
     .help = "how long the controller may take to hear of it, and to move the traffic", .offset = AT(taken_ns)}
#define SERVE_OPTIONS \
    {.group = "Serving", .name = "listen", .kind = OPTION_TEXT, .value = "ADDRESS", .default_text = "127.0.0.1:8080", \
     .help = "HOST:PORT; :PORT is every address; port 0 is a free one", .offset = AT(listen)}, \
    {.name = "name", .kind = OPTION_TEXT, .value = "NAME", .default_text = "the plan's", \
     .help = "of the rollout, in the paths", .offset = AT(name)}, \
    {.name = "token-file", .kind = OPTION_TEXT, .value = "FILE", .help = "bearer tokens, one a line", .offset = AT(token_file)}, \
    {.name = "no-token", .kind = OPTION_FLAG, .help = "listen on other than loopback addresses without a token", \
     .offset = AT(no_token)}, \
    {.name = "open-metrics", .kind = OPTION_FLAG, .help = "/metrics without the token", .offset = AT(open_metrics)}, \
    {.name = "tls-cert", .kind = OPTION_TEXT, .value = "FILE", .help = "PEM certificate, with --tls-key", .offset = AT(tls_cert)}, \
    {.name = "tls-key", .kind = OPTION_TEXT, .value = "FILE", .help = "PEM key", .offset = AT(tls_key)}

static const struct option_spec canary_options[] = {
    RUN_OPTIONS, STATUS_OPTIONS, ASK_OPTIONS, SERVE_OPTIONS,
    OPTIONS_COMMON(struct canary_values, common, "FILE", "plan, run, report: write there; the ending picks .html, .md or .json", NULL),
    {.name = NULL}};
static const struct option_spec plan_options[] = {
    OPTIONS_COMMON(struct canary_values, common, "FILE", "write there instead of stdout", "stdout"), {.name = NULL}};
static const struct option_spec run_options[] = {
    RUN_OPTIONS,
    OPTIONS_COMMON(struct canary_values, common, "FILE", "write a report at the end; its ending picks .html, .md or .json", NULL),
    {.name = NULL}};
static const struct option_spec status_options[] = {STATUS_OPTIONS, COMMON_NO_FILE, {.name = NULL}};
static const struct option_spec ask_options[] = {ASK_OPTIONS, COMMON_NO_FILE, {.name = NULL}};
static const struct option_spec report_options[] = {
    OPTIONS_COMMON(struct canary_values, common, "FILE", "the ending picks the form: .html, .md, .json", "stdout"), {.name = NULL}};
static const struct option_spec serve_options[] = {SERVE_OPTIONS, COMMON_NO_FILE, {.name = NULL}};
// clang-format on

// --- verbs ---------------------------------------------------------------------------------------

static const char canary_exits[] =
        "0  promoted to 100 %; done\n"
        "1  rolled back\n"
        "2  usage, an invalid or changed plan, no rollout there\n"
        "3  paused, aborted by a person, or ended without enough evidence; where the traffic is, is said\n"
        "4  operational failure (the proxy, the store); the traffic at the baseline if that could be done";
static const char canary_exits_simple[] =
        "0  done\n"
        "2  usage, an invalid plan, no rollout there, or one that has ended\n"
        "4  operational failure: the store, the controller does not answer";

static const char *const canary_usage[] = {"canary plan ROLLOUT.yaml",
        "canary run ROLLOUT.yaml [--wait TIME] [--anew] [-o FILE]",
        "canary status ROLLOUT.yaml|STORE.db [--watch]",
        "canary pause|resume|promote|abort ROLLOUT.yaml|STORE.db [--reason TEXT]",
        "canary report ROLLOUT.yaml|STORE.db -o FILE",
        "canary serve ROLLOUT.yaml|STORE.db [--listen ADDRESS]", NULL};
static const char *const canary_examples[] = {
        "upgate canary plan rollout.yaml",
        "what each stage can see, and how long it takes",
        "upgate canary run rollout.yaml -o rollout.html",
        "shift the traffic stage by stage; killed and started again, it goes on",
        "upgate canary status rollout.yaml --watch",
        "where it stands, every second",
        "upgate canary abort rollout.yaml --reason 'wrong build'",
        "the traffic back to the baseline, also where no controller is at work",
        "upgate canary status rollout.yaml --format json | jq .state",
        "for a script",
        NULL,
};

static const char *const plan_usage[] = {"canary plan ROLLOUT.yaml [-o FILE]", NULL};
static const char *const plan_examples[] = {
        "upgate canary plan rollout.yaml",
        "what each stage can and cannot detect, and how long",
        "upgate canary plan rollout.yaml --format json",
        "the same for a script",
        "upgate canary plan rollout.yaml --dry-run",
        "the plan with every default filled in",
        NULL,
};
static const char *const run_usage[] = {
        "canary run ROLLOUT.yaml [--wait TIME] [--anew] [-o FILE]", NULL};
static const char *const run_examples[] = {
        "upgate canary run rollout.yaml",
        "begin, or go on where it stands after a restart",
        "upgate canary run rollout.yaml --wait 0s",
        "in CI: without a verdict, back to the baseline at once, exit code 3",
        "upgate canary run rollout.yaml --anew",
        "begin again after a rollback or with a changed plan",
        "upgate canary run rollout.yaml --dry-run",
        "check the plan and show it with every default filled in",
        NULL,
};
static const char *const status_usage[] = {"canary status ROLLOUT.yaml|STORE.db [--watch]", NULL};
static const char *const status_examples[] = {
        "upgate canary status rollout.yaml",
        "state, stage, evidence, the last decisions",
        "upgate canary status rollout.yaml --watch",
        "every second until it has ended",
        "upgate canary status ranker.rollout.db --format json",
        "upgate.rollout/1",
        NULL,
};
static const char *const pause_usage[] = {
        "canary pause ROLLOUT.yaml|STORE.db [--reason TEXT]", NULL};
static const char *const pause_examples[] = {
        "upgate canary pause rollout.yaml",
        "the traffic stays where it is, and is still watched",
        "upgate canary pause rollout.yaml --reason 'incident 4711'",
        "with a word for the report",
        "upgate canary resume rollout.yaml",
        "go on",
        NULL,
};
static const char *const resume_usage[] = {
        "canary resume ROLLOUT.yaml|STORE.db [--reason TEXT]", NULL};
static const char *const resume_examples[] = {
        "upgate canary resume rollout.yaml",
        "lift a pause; moves up wait for the windows",
        "upgate canary promote rollout.yaml",
        "lift it, and let the next move up happen outside the windows",
        "upgate canary resume rollout.yaml --reason 'incident over'",
        "with a word for the report",
        NULL,
};
static const char *const promote_usage[] = {
        "canary promote ROLLOUT.yaml|STORE.db [--reason TEXT]", NULL};
static const char *const promote_examples[] = {
        "upgate canary promote rollout.yaml",
        "lift a pause; the next move up needs its evidence and no window",
        "upgate canary promote rollout.yaml --reason 'hotfix'",
        "with a word for the report",
        "upgate canary status rollout.yaml",
        "what the stage still lacks",
        NULL,
};
static const char *const abort_usage[] = {
        "canary abort ROLLOUT.yaml|STORE.db [--reason TEXT]", NULL};
static const char *const abort_examples[] = {
        "upgate canary abort rollout.yaml",
        "the traffic back to the baseline, and the end of it",
        "upgate canary abort ranker.rollout.db",
        "with the plan that is stored, whatever became of the file",
        "upgate canary run rollout.yaml --anew",
        "begin again",
        NULL,
};
static const char *const report_usage[] = {"canary report ROLLOUT.yaml|STORE.db [-o FILE]", NULL};
static const char *const report_examples[] = {
        "upgate canary report rollout.yaml -o rollout.html",
        "the evidence over time, each decision, why it was rolled back",
        "upgate canary report ranker.rollout.db -o rollout.md",
        "for a ticket",
        "upgate canary report rollout.yaml -o rollout.json",
        "upgate.rollout/1",
        NULL,
};
static const char *const serve_usage[] = {
        "canary serve ROLLOUT.yaml|STORE.db [--listen ADDRESS]", NULL};
static const char *const serve_examples[] = {
        "upgate canary serve rollout.yaml",
        "answer Argo Rollouts, Flagger and Prometheus on loopback",
        "upgate canary serve run.db --listen :8080 --token-file token",
        "the verdict of a finished `upgate ab`, to whoever has the token",
        "upgate canary serve rollout.yaml --listen 127.0.0.1:0",
        "a free port, told in the log",
        NULL,
};

#define SUBVERB(word, what, codes, table) \
    { \
        .name = "canary " #word, .summary = what, .usage = word##_usage, \
        .examples = word##_examples, .exit_codes = codes, .positional_min = 1, \
        .positional_max = 1, .options = table, \
    }
static const struct verb canary_verbs[] = {
        SUBVERB(plan,
                "Say what each stage of a rollout can and cannot detect, and how long it takes.",
                canary_exits_simple, plan_options),
        SUBVERB(run,
                "Shift live traffic to the candidate stage by stage, and back when it is worse.",
                canary_exits, run_options),
        SUBVERB(status, "Show where a rollout stands.", canary_exits_simple, status_options),
        SUBVERB(pause, "Hold a rollout: the traffic stays where it is, and is still watched.",
                canary_exits_simple, ask_options),
        SUBVERB(resume, "Let a paused rollout go on.", canary_exits_simple, ask_options),
        SUBVERB(promote,
                "Let a rollout go on now, outside its windows, too; evidence is not skipped.",
                canary_exits_simple, ask_options),
        SUBVERB(abort, "End a rollout: the traffic back to the baseline.", canary_exits_simple,
                ask_options),
        SUBVERB(report, "Write a rollout as HTML, Markdown or JSON.", canary_exits_simple,
                report_options),
        SUBVERB(serve, "Answer Argo Rollouts, Flagger and Prometheus from a store.",
                canary_exits_simple, serve_options),
};
enum { CANARY_VERBS = sizeof canary_verbs / sizeof *canary_verbs };

static const char *canary_word(const struct verb *verb)
{
    return verb->name + strlen("canary ");
}

static const struct verb *canary_find(const char *word)
{
    for (int i = 0; i < CANARY_VERBS; i++)
        if (strcmp(canary_word(&canary_verbs[i]), word) == 0)
            return &canary_verbs[i];
    return NULL;
}

static int canary_dispatch(const char *word, const char *path, const struct canary_values *values,
        int argc, char **argv)
{
    if (values->common.seed_given)
        log_warn("--seed changes nothing here: nothing is drawn");
    if (strcmp(word, "plan") == 0)
        return canary_verb_plan(path, values);
    if (strcmp(word, "run") == 0)
        return canary_verb_run(path, values, argc, argv);
    if (strcmp(word, "status") == 0)
        return canary_verb_status(path, values);
    if (strcmp(word, "report") == 0)
        return canary_verb_report(path, values);
    if (strcmp(word, "serve") == 0)
        return canary_verb_serve(path, values);
    return canary_verb_ask(path, word, values);
}

// `upgate canary` without a verb that it knows: help, or what was meant.
static int canary_unknown(int argc, char **argv)
{
    struct canary_values values = {.common = OPTIONS_COMMON_DEFAULT};
    struct options_rest rest = {0};
    struct error err = {0};
    int rc = program_parse(&verb_canary, argc, argv, &values, &values.common, &rest, &err);
    if (rc)
        return rc > 0 ? EXIT_CODE_PASS : program_judge(rc, EXIT_CODE_PASS, &err);
    const char *names[CANARY_VERBS], *word = rest.positional[0];
    for (int i = 0; i < CANARY_VERBS; i++)
        names[i] = canary_word(&canary_verbs[i]);
    const char *nearest = string_nearest(word, names, CANARY_VERBS);
    if (canary_find(word))
        log_error("'%s' stands before its options: upgate canary %s [options] ROLLOUT.yaml", word,
                word);
    else if (nearest)
        log_error("unknown verb 'canary %s'; did you mean '%s'? try `upgate canary --help`", word,
                nearest);
    else
        log_error("unknown verb 'canary %s'; try `upgate canary --help`", word);
    return EXIT_CODE_USAGE;
}

static int canary_main(int argc, char **argv)
{
    if (argc < 2) {
        struct strbuf words = {0};
        for (int i = 0; i < CANARY_VERBS; i++)
            strbuf_add(&words, "%s%s", i ? ", " : "", canary_word(&canary_verbs[i]));
        log_error("what should it do? upgate canary %s; try `upgate canary --help`", words.text);
        strbuf_free(&words);
        return EXIT_CODE_USAGE;
    }
    const struct verb *verb = argc > 1 ? canary_find(argv[1]) : NULL;
    struct canary_values values = {
            .wait_ns = -1, .taken_ns = 15000000000, .common = OPTIONS_COMMON_DEFAULT};
    struct options_rest rest = {0};
    struct error err = {0};
    if (!verb)
        return canary_unknown(argc, argv);
    int rc = program_parse(verb, argc - 1, argv + 1, &values, &values.common, &rest, &err);
    if (rc)
        return rc > 0 ? EXIT_CODE_PASS : program_judge(rc, EXIT_CODE_PASS, &err);
    return canary_dispatch(canary_word(verb), rest.positional[0], &values, argc, argv);
}

const struct verb verb_canary = {
        .name = "canary",
        .summary =
                "Shift live traffic to a candidate in stages, with tests that are valid at every look.",
        .usage = canary_usage,
        .options = canary_options,
        .examples = canary_examples,
        .exit_codes = canary_exits,
        .positional_min = 1,
        .positional_max = 2,
        .run = canary_main,
};
