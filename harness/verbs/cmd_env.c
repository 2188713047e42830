// SPDX-License-Identifier: Apache-2.0
// upgate env: the fingerprint of each side of a plan, or of a stored run, and what differs between
// the two. For a plan each side's interpreter (or program) is started for a moment and read; for a
// RUN.db the fingerprints that the run took from its own processes are read. Writes nothing but its
// output.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "common/directory.h"
#include "common/log.h"
#include "common/options.h"
#include "common/proc.h"
#include "common/strings.h"
#include "contracts/exit_code.h"
#include "harness/contain/inject.h"
#include "harness/fingerprint/fingerprint.h"
#include "harness/fingerprint/table.h"
#include "harness/image/image.h"
#include "harness/plan/plan.h"
#include "harness/run/probe.h"
#include "harness/verbs/program.h"
#include "reports/render/render.h"
#include "tracer/store/store.h"

struct env_values {
    const char *side;
    const char *baseline, *candidate;
    bool all;
    int64_t timeout_ns;
    struct options_common common;
};

static const struct option_spec env_options[] = {
        {"Sides", 'a', "baseline", OPTION_TEXT, "PYTHON", NULL, "the plan's",
                "interpreter of the old stack, an environment, or image:NAME, instead of a plan",
                offsetof(struct env_values, baseline), 0, 0, 0},
        {NULL, 'b', "candidate", OPTION_TEXT, "PYTHON", NULL, "the plan's",
                "interpreter of the new stack, an environment, or image:NAME, instead of a plan",
                offsetof(struct env_values, candidate), 0, 0, 0},
        {NULL, 0, "side", OPTION_CHOICE, NULL, "a,b,both", "both", "show: which side",
                offsetof(struct env_values, side), 0, 0, 0},
        {NULL, 0, "timeout", OPTION_DURATION, "TIME", NULL, "2min",
                "how long a side may take to import its frameworks",
                offsetof(struct env_values, timeout_ns), 0, 0, 0},
        {"Output", 0, "all", OPTION_FLAG, NULL, NULL, NULL,
                "list every library, package and minor difference by itself",
                offsetof(struct env_values, all), 0, 0, 0},
        OPTIONS_COMMON(
                struct env_values, common, "FILE", "write there instead of stdout", "stdout"),
        {.name = NULL}};

static const char *const env_usage[] = {"env show PLAN.yaml|RUN.db [--side a|b]",
        "env diff PLAN.yaml|RUN.db", "env show|diff --baseline PYTHON --candidate PYTHON", NULL};

static const char *const env_examples[] = {
        "upgate env diff plan.yaml",
        "what the upgrade changes, most suspicious first",
        "upgate env diff run.db",
        "the same between the processes that a run measured",
        "upgate env diff -a envs/old/bin/python -b envs/new/bin/python",
        "two interpreters, without a plan",
        "upgate env show plan.yaml --side b --all",
        "everything known about the candidate",
        "upgate env diff plan.yaml --format json | jq '.differences[:5]'",
        "the five first suspects, for a script",
        NULL,
};

static const char env_exit_codes[] = "  0  done, whether the sides differ or not\n"
                                     "  2  usage or invalid plan\n"
                                     "  4  a side could not be started or read\n";

// The fingerprints of both sides, and their names.
struct env_sides {
    json_t *document[PLAN_SIDES];
    char *name[PLAN_SIDES];
};

static void env_sides_clear(struct env_sides *sides)
{
    for (int side = 0; side < PLAN_SIDES; side++) {
        json_decref(sides->document[side]);
        free(sides->name[side]);
    }
}

// --- from a stored run
// ------------------------------------------------------------------------------

static bool env_is_store(const char *path)
{
    char magic[16] = "";
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t got = read(fd, magic, sizeof(magic));
    close(fd);
    return got == sizeof(magic) && !memcmp(magic, "SQLite format 3", sizeof(magic));
}

static int env_read_store(
        const char *path, const bool wanted[PLAN_SIDES], struct env_sides *sides, struct error *err)
{
    struct store *store = NULL;
    int code = store_open(path, STORE_READ, &store, err);
    for (int side = 0; !code && side < PLAN_SIDES; side++) {
        int64_t id = side;
        sides->name[side] = store_get_text(store, "SELECT name FROM side WHERE id = ?", "i", id);
        if (!sides->name[side])
            sides->name[side] = xstrdup(side ? "candidate" : "baseline");
        char *text = store_get_text(store, "SELECT fingerprint FROM side WHERE id = ?", "i", id);
        json_error_t problem;
        sides->document[side] = text ? json_loads(text, 0, &problem) : NULL;
        code = store_failed(store, err);
        if (code || !wanted[side])
            ; // a run that was interrupted early may have one of them only
        else if (!text)
            code = error_set(err, -ENODATA,
                    "failed to read '%s': no fingerprint of the %s is stored; the run "
                    "ended before its process could be read",
                    path, side ? "candidate" : "baseline");
        else if (!sides->document[side])
            code = error_set(err, -EPROTO,
                    "failed to read '%s': the fingerprint of the %s is damaged: %s", path,
                    side ? "candidate" : "baseline", problem.text);
        free(text);
    }
    store_close(store);
    return code;
}

// --- from a plan
// ------------------------------------------------------------------------------------

// In the child: the environment and directory that a launch of this side gets.
static int env_prepare(void *arg)
{
    const struct plan_side *side = arg;
    plan_side_set_environment(side);
    return side->workdir && chdir(side->workdir) ? -errno : 0;
}

struct env_words {
    char **word;
    size_t count;
};

static void env_word(struct env_words *words, char *word)
{
    words->word = xrealloc(words->word, (words->count + 2) * sizeof(*words->word));
    words->word[words->count++] = word;
    words->word[words->count] = NULL;
}

static void env_words_free(struct env_words *words)
{
    for (size_t i = 0; i < words->count; i++)
        free(words->word[i]);
    free(words->word);
}

// A word of a command with its placeholders replaced, as a launch has them.
static char *env_expand(const struct plan_side *side, const char *word)
{
    static const char *const values[][2] = {{"{steps}", "1000000"}, {"{seed}", "7"},
            {"{rank}", "0"}, {"{ranks}", "1"}, {"{rate}", "0"}, {"{dtype}", "float32"},
            {"{nodes}", "1"}, {"{node_rank}", "0"}, {"{master}", "127.0.0.1"}, {"{port}", "29500"},
            {"{python}", NULL}};
    struct strbuf text = {0};
    while (*word) {
        size_t i = 0, count = sizeof(values) / sizeof(values[0]);
        bool ours = !text.len || text.text[text.len - 1] != '$'; // "${rank}" is the shell's
        while (ours && i < count && strncmp(word, values[i][0], strlen(values[i][0])))
            i++;
        if (!ours || i == count) {
            strbuf_add_bytes(&text, word++, 1);
            continue;
        }
        char *value = values[i][1]
                ? xstrdup(values[i][1])
                : plan_side_program(side, side->python ? side->python : "python3");
        strbuf_add(&text, "%s", value);
        word += strlen(values[i][0]);
        free(value);
    }
    return strbuf_take(&text);
}

// The program of a side without an interpreter: its first workload, kept busy until it has been
// read.
static int env_native_words(const struct plan *plan, const struct plan_side *side,
        struct env_words *words, struct error *err)
{
    const struct plan_workload *workload = plan->workload_count ? &plan->workloads[0] : NULL;
    if (!workload)
        return error_set(
                err, -EINVAL, "side '%s' has neither an interpreter nor a workload", side->name);
    if (workload->command) {
        for (char **word = workload->command; *word; word++)
            env_word(words, env_expand(side, *word));
        return 0;
    }
    char *models = side->models ? plan_side_directory(side, side->models)
                                : directory_of_part("reference_models/native");
    if (!models)
        return error_set(err, -errno, "failed to find the own program: %s", strerror(errno));
    env_word(words, xasprintf("%s/%s", models, workload->model));
    free(models);
    static const char *const options[] = {
            "--mode", "train", "--steps", "1000000", "--seed", "7", "--ranks"};
    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
        env_word(words, xstrdup(i == 1 ? plan_mode_name(workload->mode) : options[i]));
    // allreduce has not less; more would read the same
    env_word(words, xstrdup(workload->ranks > 1 ? "2" : "1"));
    return 0;
}

static int env_words_of(
        const struct plan *plan, int side_idx, struct env_words *words, struct error *err)
{
    const struct plan_side *side = &plan->sides[side_idx];
    for (char **word = side->prefix; word && *word; word++)
        env_word(words, xstrdup(*word));
    if (!side->python || side->models)
        return env_native_words(plan, side, words, err);
    env_word(words, plan_side_program(side, side->python));
    return 0;
}

// The words that run those of `words` in a container of the side's image; the image is pulled
// first. *ret_image is the caller's, and *ret_name, by which the container is removed, here or by a
// later run.
static int env_wrap_image(const struct plan_side *side, int idx, struct env_words *words,
        struct image *ret_image, char **ret_name, struct error *err)
{
    int code = image_open(side, NULL, ret_image, err);
    if (code)
        return code;
    struct proc_stat self;
    unsigned long long start = proc_stat_of(getpid(), &self) ? 0 : self.start_ticks;
    char *name = xasprintf("upgate-%d-%llu-env-%d", getpid(), start, idx);
    const struct image_run run = {.container = name,
            .args = side->engine_args,
            .words = words->word,
            .env = side->env,
            .env_count = side->env_count,
            .gpus = inject_has_gpu()};
    char **argv = image_argv(ret_image, &run);
    env_words_free(words);
    *words = (struct env_words){.word = argv};
    while (argv[words->count])
        words->count++;
    *ret_name = name;
    return 0;
}

static void env_warn_imports(const struct plan_side *side, const json_t *document)
{
    const char *path;
    json_t *reason;
    json_object_foreach(json_object_get(document, "missing"), path, reason)
    {
        if (!strncmp(path, "python.import ", 14))
            log_warn("side '%s' cannot import %s: %s", side->name, path + 14,
                    json_string_value(reason));
        if (!strcmp(path, "process"))
            log_warn("side '%s': %s, continuing without its process", side->name,
                    json_string_value(reason));
    }
}

static int env_read_plan(const struct plan *plan, const bool wanted[PLAN_SIDES], bool dry_run,
        const struct env_values *values, struct env_sides *sides, struct error *err)
{
    int code = 0;
    for (int i = 0; i < PLAN_SIDES && !code; i++) {
        const struct plan_side *side = &plan->sides[i];
        struct env_words words = {0};
        struct image image = {0};
        char *container = NULL;
        sides->name[i] = xstrdup(side->name);
        if (!wanted[i])
            continue;
        code = env_words_of(plan, i, &words, err);
        // what is seen from here is the engine
        if (!code && side->image && (!side->python || side->models))
            code = error_set(err, -EINVAL,
                    "side '%s' is an image without `python`, and images are read by their interpreter: name it, or read the "
                    "RUN.db of a run",
                    side->name);
        if (!code && side->image && !dry_run)
            code = env_wrap_image(side, i, &words, &image, &container, err);
        struct probe_spec spec = {.side = side->name,
                .argv = words.word,
                .prepare = side->image ? NULL : env_prepare,
                .gentle = side->image != NULL,
                .prepare_arg = (void *)side,
                .interpreter = side->python && !side->models,
                .timeout_ns = values->timeout_ns};
        if (!code && dry_run) {
            printf("would start side '%s'%s%s for a moment:", side->name,
                    side->image ? " in image " : "", side->image ? side->image : "");
            for (size_t word = 0; word < words.count; word++)
                printf(" %s", words.word[word]);
            puts(spec.interpreter ? " -c PROBE" : "");
        } else if (!code) {
            log_debug("reading side '%s'", side->name);
            code = fingerprint_probe(&spec, &sides->document[i], err);
            if (!code && side->image)
                json_object_set_new(sides->document[i], "image", image_to_json(&image));
            if (!code)
                env_warn_imports(side, sides->document[i]);
        }
        env_words_free(&words);
        if (container)
            image_remove(&image, container);
        free(container);
        image_clear(&image);
    }
    return code;
}

// --- the verb
// ---------------------------------------------------------------------------------------

static int env_load(const struct env_values *values, const struct options_rest *rest,
        const bool wanted[PLAN_SIDES], struct env_sides *sides, struct error *err)
{
    const char *path = rest->positional_count > 1 ? rest->positional[1] : NULL;
    if (path && (values->baseline || values->candidate))
        return error_set(err, -EINVAL, "name a plan, or --baseline and --candidate, not both");
    if (!path && (!values->baseline || !values->candidate))
        return error_set(err, -EINVAL,
                "nothing to read: name a PLAN.yaml or RUN.db, or both --baseline and "
                "--candidate");
    if (path && env_is_store(path)) {
        int code = env_read_store(path, wanted, sides, err);
        if (!code && values->common.dry_run)
            printf("would show what is stored in '%s'\n", path);
        return code;
    }
    struct plan *plan = NULL;
    int code = path ? plan_load(path, &plan, err)
                    : plan_from_command(values->baseline, values->candidate, NULL, 0, &plan, err);
    if (code)
        return code;
    code = env_read_plan(plan, wanted, values->common.dry_run, values, sides, err);
    plan_free(plan);
    return code;
}

static struct table_opts env_table_opts(const struct env_values *values)
{
    struct table_opts opts = {.all = values->all};
    struct winsize size;
    if (!values->common.output && isatty(STDOUT_FILENO)) {
        opts.color = !values->common.no_color && !getenv("NO_COLOR");
        if (!ioctl(STDOUT_FILENO, TIOCGWINSZ, &size))
            opts.width = size.ws_col;
    }
    return opts;
}

static int env_print_json(FILE *file, json_t *document)
{
    int failed = json_dumpf(document, file, JSON_INDENT(2));
    json_decref(document);
    return failed || fputc('\n', file) == EOF ? -EIO : 0;
}

static int env_show(FILE *file, const struct env_values *values, const bool wanted[PLAN_SIDES],
        const struct env_sides *sides)
{
    bool json = !strcmp(values->common.format, "json"), both = wanted[0] && wanted[1];
    struct table_opts opts = env_table_opts(values);
    if (json && both)
        return env_print_json(file,
                json_pack("{s:s,s:O,s:O}", "schema", "upgate.env/1", "baseline", sides->document[0],
                        "candidate", sides->document[1]));
    if (json)
        return env_print_json(file, json_incref(sides->document[wanted[0] ? 0 : 1]));
    for (int side = 0; side < PLAN_SIDES; side++) {
        if (!wanted[side])
            continue;
        char *title = xasprintf("%s%s: %s", side && both ? "\n" : "",
                side ? "candidate" : "baseline", sides->name[side]);
        fingerprint_print(file, sides->document[side], title, &opts);
        free(title);
    }
    return 0;
}

static int env_diff(FILE *file, const struct env_values *values, const struct env_sides *sides,
        struct error *err)
{
    json_t *differences = NULL;
    size_t noise_count = 0;
    int code = fingerprint_diff(
            sides->document[0], sides->document[1], &differences, &noise_count, err);
    if (code)
        return code;
    if (!strcmp(values->common.format, "json"))
        return env_print_json(file,
                json_pack("{s:s,s:s,s:s,s:o,s:I}", "schema", FINGERPRINT_DIFF_SCHEMA, "baseline",
                        sides->name[0], "candidate", sides->name[1], "differences", differences,
                        "noise_count", (json_int_t)noise_count));
    struct table_opts opts = env_table_opts(values);
    fingerprint_print_diff(file, differences, noise_count, sides->name[0], sides->name[1], &opts);
    json_decref(differences);
    return 0;
}

// Made in memory: what cannot be made or written leaves no part of itself.
static int env_output(const struct env_values *values, bool diff, const bool wanted[PLAN_SIDES],
        const struct env_sides *sides, struct error *err)
{
    char *text = NULL;
    size_t len = 0;
    FILE *file = open_memstream(&text, &len);
    if (!file)
        return error_set(err, -errno, "failed to print: %s", strerror(errno));
    int code = diff ? env_diff(file, values, sides, err) : env_show(file, values, wanted, sides);
    if (fclose(file) && !code)
        code = -EIO;
    if (code == -EIO)
        error_set(err, code, "failed to make the document: no memory");
    const char *path = values->common.output;
    if (!code && path)
        code = render_write_bytes(path, text, len, err);
    else if (!code && fwrite(text, 1, len, stdout) != len)
        code = error_set(err, -EIO, "failed to write to stdout: %s; the output is incomplete",
                strerror(errno));
    free(text);
    return code;
}

static int env_run(int argc, char **argv)
{
    struct env_values values = {.side = "both", .common = OPTIONS_COMMON_DEFAULT};
    struct options_rest rest = {0};
    struct error err = {0};
    extern const struct verb verb_env;
    int code = program_parse(&verb_env, argc, argv, &values, &values.common, &rest, &err);
    if (code)
        return code > 0 ? EXIT_CODE_PASS : program_judge(code, EXIT_CODE_PASS, &err);
    if (values.common.seed_given)
        log_warn("--seed changes nothing here: nothing is drawn");
    bool diff = !strcmp(rest.positional[0], "diff");
    bool wanted[PLAN_SIDES] = {diff || strcmp(values.side, "b"), diff || strcmp(values.side, "a")};
    struct env_sides sides = {0};
    if (!diff && strcmp(rest.positional[0], "show"))
        code = error_set(&err, -EINVAL,
                "'%s' is neither 'show' nor 'diff'; try `upgate env --help`", rest.positional[0]);
    if (!code && diff && strcmp(values.side, "both"))
        code = error_set(&err, -EINVAL, "--side is of `upgate env show`: a diff is of both sides");
    if (!code)
        code = env_load(&values, &rest, wanted, &sides, &err);
    for (int side = 0; side < PLAN_SIDES; side++) // from a command line or a store: any bytes
        if (sides.name[side])
            string_make_plain(sides.name[side], strlen(sides.name[side]));
    if (!code && !values.common.dry_run)
        code = env_output(&values, diff, wanted, &sides, &err);
    env_sides_clear(&sides);
    return program_judge(code, EXIT_CODE_PASS, &err);
}

extern const struct verb verb_env;
const struct verb verb_env = {
        .name = "env",
        .summary = "Show the fingerprint of each side, or what differs between the two.",
        .usage = env_usage,
        .options = env_options,
        .examples = env_examples,
        .exit_codes = env_exit_codes,
        .positional_min = 1,
        .positional_max = 2,
        .run = env_run,
};
