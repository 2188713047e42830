// SPDX-License-Identifier: Apache-2.0
// The option table: parsing as getopt_long does, the words of every refusal, help and docs.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/options.h"
#include "common/units.h"
#include "tests/unit/runner.h"

struct demo_values {
    const char *baseline;
    struct options_common common;
    uint64_t pairs;
    int64_t timeout_ns;
    uint64_t limit_bytes;
    double margin;
    const char *mode;
    bool aa, pairs_given;
};

static const struct option_spec demo_options[] = {
        {.group = "Sides",
                .letter = 'a',
                .name = "baseline",
                .kind = OPTION_TEXT,
                .value = "PYTHON",
                .help = "interpreter of the baseline",
                .offset = offsetof(struct demo_values, baseline)},
        {.name = "basic",
                .kind = OPTION_FLAG,
                .help = "a name that starts like another",
                .offset = offsetof(struct demo_values, aa)},
        {.group = "Schedule",
                .name = "pairs",
                .kind = OPTION_UINT,
                .value = "N",
                .default_text = "10",
                .help = "pairs of launches",
                .offset = offsetof(struct demo_values, pairs),
                .min = 2,
                .max = 60,
                .given_offset = offsetof(struct demo_values, pairs_given)},
        {.name = "timeout",
                .kind = OPTION_DURATION,
                .value = "TIME",
                .default_text = "10min",
                .help = "of one launch",
                .offset = offsetof(struct demo_values, timeout_ns)},
        {.name = "limit",
                .kind = OPTION_BYTES,
                .value = "SIZE",
                .help = "memory of a launch",
                .offset = offsetof(struct demo_values, limit_bytes)},
        {.name = "margin",
                .kind = OPTION_FRACTION,
                .value = "SHARE",
                .default_text = "2%",
                .help = "what may be lost",
                .offset = offsetof(struct demo_values, margin)},
        {.letter = 'm',
                .name = "mode",
                .kind = OPTION_CHOICE,
                .choices = "train,infer",
                .help = "what is run",
                .offset = offsetof(struct demo_values, mode)},
        OPTIONS_COMMON(struct demo_values, common, "RUN.db", "store of the run", "run.db"),
        {.name = NULL},
};
static const char *const demo_usage[] = {"demo PLAN [options] [-- COMMAND...]", NULL};
static const char *const demo_examples[] = {"upgate demo plan.yaml", "run a plan", NULL};
static const struct verb demo = {.name = "demo",
        .summary = "Show what a table can do.",
        .usage = demo_usage,
        .options = demo_options,
        .examples = demo_examples,
        .exit_codes = "0  done\n2  bad input",
        .positional_max = 1,
        .takes_command = true};

static struct demo_values values;
static struct options_rest rest;
static struct error err;

static char *line[32]; // as parsed: permuted, and alive after the check that parsed it

static int parse(const struct verb *verb, char **argv)
{
    int argc = 0;
    memset(line, 0, sizeof line);
    for (; argv[argc]; argc++)
        line[argc] = argv[argc];
    values = (struct demo_values){.common = OPTIONS_COMMON_DEFAULT, .pairs = 10};
    err = (struct error){0};
    return options_parse(verb, argc, line, &values, &rest, &err);
}
#define PARSE(...) parse(&demo, (char *[]){"demo", __VA_ARGS__, NULL})

TEST(every_kind)
{
    CHECK_INT(PARSE("--baseline=p1", "--pairs", "14", "--timeout=20ms", "--limit", "64M",
                      "--margin", "5%", "--mode", "infer", "--basic", "-vv", "-qo", "x.db"),
            0);
    CHECK_STR(values.baseline, "p1");
    CHECK_INT(values.pairs, 14);
    CHECK(values.pairs_given);
    CHECK_INT(values.timeout_ns, 20000000);
    CHECK_INT(values.limit_bytes, 64 << 20);
    CHECK_DBL(values.margin, 0.05, 1e-15);
    CHECK_STR(values.mode, "infer");
    CHECK(values.aa && values.common.quiet);
    CHECK_INT(values.common.verbose, 2);
    CHECK_STR(values.common.output, "x.db");
    CHECK_STR(values.common.format, "table");
    CHECK(!values.common.seed_given);
    CHECK(!rest.help);
}

TEST(getopt_forms)
{
    CHECK_INT(PARSE("-ap1", "-a", "p2", "--time", "1s", "--seed=9"), 0);
    CHECK_STR(values.baseline, "p2");
    CHECK_INT(values.timeout_ns, 1000000000);
    CHECK(values.common.seed_given);
    CHECK_INT(values.common.seed, 9);
    CHECK(!values.pairs_given);
    CHECK_INT(values.pairs, 10);
    CHECK_INT(PARSE("--baseline", "--"), 0); // the value of the option, not the end of options
    CHECK_STR(values.baseline, "--");
    CHECK(!rest.command);
}

TEST(rest_of_the_line)
{
    CHECK_INT(PARSE("-v", "--pairs", "5", "plan.yaml", "-q", "--", "cmd", "-v", "--", "x"), 0);
    CHECK_INT(rest.positional_count, 1);
    CHECK_STR(rest.positional[0], "plan.yaml");
    CHECK_INT(rest.command_count, 4);
    CHECK_STR(rest.command[0], "cmd");
    CHECK_STR(rest.command[3], "x");
    CHECK_INT(values.common.verbose, 1);
    CHECK_STR(line[2], "-v"); // permuted, nothing lost
    CHECK_STR(line[5], "-q");
    CHECK_INT(PARSE("--"), -EINVAL);
    CHECK_CONTAINS(err.text, "no command after '--'");
    CHECK_INT(PARSE("-"), 0);
    CHECK_STR(rest.positional[0], "-");

    struct verb plain = demo;
    plain.takes_command = false;
    plain.positional_max = 3;
    CHECK_INT(parse(&plain, (char *[]){"demo", "-v", "one", "-q", "--", "-x", "two", NULL}), 0);
    CHECK_INT(rest.positional_count, 3);
    CHECK_STR(rest.positional[0], "one");
    CHECK_STR(rest.positional[1], "-x");
    CHECK_STR(rest.positional[2], "two");
    CHECK(!rest.command);
}

TEST(refusals_name_the_nearest)
{
    CHECK_INT(PARSE("--basline", "x"), -EINVAL);
    CHECK_STR(err.text,
            "unknown option '--basline'; did you mean '--baseline'? try `upgate demo --help`");
    CHECK_INT(PARSE("--basline=x"), -EINVAL);
    CHECK_CONTAINS(err.text, "unknown option '--basline'; did you mean '--baseline'?");
    CHECK_INT(PARSE("--zzzzzzz"), -EINVAL);
    CHECK_STR(err.text, "unknown option '--zzzzzzz'; try `upgate demo --help`");
    CHECK_INT(PARSE("--bas"), -EINVAL);
    CHECK_CONTAINS(err.text, "ambiguous: '--baseline', '--basic'");
    CHECK_INT(PARSE("-z"), -EINVAL);
    CHECK_CONTAINS(err.text, "unknown option '-z'");
    CHECK_INT(PARSE("-vz"), -EINVAL);
    CHECK_CONTAINS(err.text, "unknown option '-z'");
    CHECK_INT(PARSE("-output", "x"), -EINVAL);
    CHECK_CONTAINS(err.text, "unknown option '-output'; did you mean '--output'?");
    CHECK_INT(PARSE("--mode", "trian"), -EINVAL);
    CHECK_CONTAINS(err.text, "'trian' is not one of train,infer; did you mean 'train'?");
    CHECK_INT(PARSE("--format", "xml"), -EINVAL);
    CHECK_CONTAINS(err.text, "not one of table,json; try");
}

TEST(refused_values)
{
    CHECK_INT(PARSE("--pairs", "61"), -EINVAL);
    CHECK_CONTAINS(err.text, "option '--pairs': 61 is out of range; accepted: 2 to 60");
    CHECK_INT(PARSE("--pairs=-1"), -EINVAL);
    CHECK_INT(PARSE("--pairs="), -EINVAL);
    CHECK_CONTAINS(err.text, "option '--pairs' has an empty value");
    CHECK_INT(PARSE("--timeout", "10"), -EINVAL);
    CHECK_CONTAINS(err.text, "'10' has no unit");
    CHECK_INT(PARSE("--limit", "1parsec"), -EINVAL);
    CHECK_INT(PARSE("--margin", "x"), -EINVAL);
    CHECK_INT(PARSE("--pairs"), -EINVAL);
    CHECK_CONTAINS(err.text, "option '--pairs' needs a value: N");
    CHECK_INT(PARSE("-a"), -EINVAL);
    CHECK_CONTAINS(err.text, "option '--baseline' needs a value: PYTHON");
    CHECK_INT(PARSE("--quiet=yes"), -EINVAL);
    CHECK_CONTAINS(err.text, "option '--quiet' takes no value, got '--quiet=yes'");
    CHECK_INT(PARSE("--help=all"), -EINVAL);
    CHECK_CONTAINS(err.text, "option '--help' takes no value");
    CHECK_INT(PARSE("one", "two"), -EINVAL);
    CHECK_CONTAINS(err.text, "unexpected argument 'two'; usage: upgate demo PLAN");
    struct verb strict = demo;
    strict.positional_min = 1;
    CHECK_INT(parse(&strict, (char *[]){"demo", "-v", NULL}), -EINVAL);
    CHECK_CONTAINS(err.text, "an argument is missing; usage: upgate demo PLAN");
    CHECK_INT(parse(&strict, (char *[]){"demo", "-h", NULL}), 0);
    CHECK(rest.help);
    strict.alone = true; // no verb of upgate
    CHECK_INT(parse(&strict, (char *[]){"demo", "-v", NULL}), -EINVAL);
    CHECK_CONTAINS(err.text, "an argument is missing; usage: upgate-demo PLAN");
    CHECK_CONTAINS(err.text, "try `upgate-demo --help`");
    CHECK_INT(parse(&strict, (char *[]){"demo", "one", "two", NULL}), -EINVAL);
    CHECK_CONTAINS(err.text, "unexpected argument 'two'; usage: upgate-demo PLAN");
}

static char *printed(void (*print)(const struct verb *, void *))
{
    char *text = NULL;
    size_t len = 0;
    FILE *file = open_memstream(&text, &len);
    print(&demo, file);
    fclose(file);
    return text;
}

TEST(help_and_docs)
{
    char *help = printed(options_print_help);
    CHECK_CONTAINS(help, "Show what a table can do.\n\nUsage:\n  upgate demo PLAN");
    CHECK_CONTAINS(help, "Sides:\n  -a, --baseline PYTHON     interpreter of the baseline\n");
    CHECK_CONTAINS(help, "      --pairs N             pairs of launches (default: 10; 2 to 60)\n");
    CHECK_CONTAINS(help, "of one launch (default: 10min; units: ns, us, ms, s, min, h, d)");
    CHECK_CONTAINS(help, "--mode train|infer");
    CHECK_CONTAINS(help, "Common options:\n      --format table|json");
    CHECK_CONTAINS(help, "Examples:\n  upgate demo plan.yaml\n      run a plan\n");
    CHECK_CONTAINS(help, "Exit codes:\n  0  done\n  2  bad input\n");
    free(help);
    char *page = printed(options_print_markdown);
    CHECK_CONTAINS(page, "# upgate demo\n");
    CHECK_CONTAINS(page, "| `-m, --mode train\\|infer` | what is run | |\n");
    CHECK_CONTAINS(page, "| `--pairs N` | pairs of launches | default: 10; 2 to 60 |\n");
    free(page);
}
