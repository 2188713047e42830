// SPDX-License-Identifier: Apache-2.0
// The program: finds the verb and runs it. Which verbs exist is decided by the build: verbs.inc is
// made from the cmd_*.c files whose rooms are on. Also prints what is made from the option tables:
// help, docs pages, man pages, completions. Knows nothing about any verb.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "common/options.h"
#include "common/strings.h"
#include "contracts/exit_code.h"
#include "harness/verbs/completion.h"
#include "harness/verbs/docs.h"
#include "harness/verbs/man.h"
#include "harness/verbs/program.h"
#include "harness/verbs/version.h"
#ifdef UPGATE_HAVE_STEPS
#include "harness/steps/reader.h"
#endif

#define UPGATE_VERB(name) extern const struct verb verb_##name;
#include "verbs.inc"
#undef UPGATE_VERB

#define UPGATE_VERB(name) &verb_##name,
static const struct verb *const main_verbs[] = {
#include "verbs.inc"
        NULL};
#undef UPGATE_VERB

static const char *const main_verbs_off[] = {
#include "verbs_off.inc"
        NULL};

enum { MAIN_VERBS_MAX = sizeof main_verbs / sizeof *main_verbs };

static const char main_summary[] =
        "upgate runs the same workloads under two framework or CUDA versions, side by side, and\n"
        "gives a verdict that carries error rates.\n";
static const char main_exit_codes[] =
        "  0  pass, done\n  1  fail: a regression, a breached gate\n"
        "  2  usage or invalid input\n  3  inconclusive\n"
        "  4  operational failure: a side could not be started, disk full, no permission\n";

static void main_print_help(FILE *file)
{
    fputs(main_summary, file);
    fputs("\nUsage:\n  upgate VERB [options]\n  upgate help VERB\n  upgate --version\n\nVerbs:\n",
            file);
    for (const struct verb *const *verb = main_verbs; *verb; verb++)
        fprintf(file, "  %-10s%s\n", (*verb)->name, (*verb)->summary);
    fprintf(file, "\nExit codes:\n%s\n`upgate VERB --help` explains a verb.\n", main_exit_codes);
}

static const struct verb *main_find(const char *word)
{
    const char *names[MAIN_VERBS_MAX + 3] = {"help", "--help", "--version"};
    size_t count = 3;
    for (const struct verb *const *verb = main_verbs; *verb; verb++) {
        if (strcmp((*verb)->name, word) == 0)
            return *verb;
        names[count++] = (*verb)->name;
    }
    for (const char *const *off = main_verbs_off; *off; off++) {
        if (strcmp(*off, word) == 0) {
            log_error(
                    "verb '%s' is not in this build of upgate: what it needs was missing when it was built; the summary of cmake says "
                    "what, ci/setup installs it",
                    word);
            return NULL;
        }
    }
    const char *nearest = string_nearest(word, names, count);
    const char *kind = word[0] == '-' ? "option" : "verb";
    if (nearest)
        log_error("unknown %s '%s'; did you mean '%s'? try `upgate --help`", kind, word, nearest);
    else
        log_error("unknown %s '%s'; try `upgate --help`", kind, word);
    return NULL;
}

static int main_help(const char *word)
{
    if (!word || strcmp(word, "help") == 0) {
        main_print_help(stdout);
        return EXIT_CODE_PASS;
    }
    const struct verb *verb = main_find(word);
    if (!verb)
        return EXIT_CODE_USAGE;
    options_print_help(verb, stdout);
    return EXIT_CODE_PASS;
}

// --print-docs, --print-man: of the build and the tests, not in the help.
static int main_pages(const char *option, const char *directory)
{
    const struct man_program program = {main_summary, main_exit_codes, main_verbs};
    struct error err = {0};
    int rc;
    if (!directory)
        rc = error_set(&err, -EINVAL, "option '%s' needs a directory", option);
    else
        rc = strcmp(option, "--print-man") == 0 ? man_write(&program, directory, &err)
                                                : docs_write(main_verbs, directory, &err);
    if (rc)
        log_error("%s", err.text);
    return error_exit_code(rc);
}

// --print-completion, which users may call, too: eval "$(upgate --print-completion bash)".
static int main_completion(const char *shell)
{
    if (completion_print(shell ? shell : "bash", main_verbs, stdout) == 0)
        return EXIT_CODE_PASS;
    log_error("no completion for '%s'; accepted: bash, zsh, fish", shell);
    return EXIT_CODE_USAGE;
}

static int main_dispatch(int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : NULL, *next = argc > 2 ? argv[2] : NULL;
    if (!word) {
        main_print_help(stderr);
        return EXIT_CODE_USAGE;
    }
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0)
        return main_help(next);
    if (strcmp(word, "--version") == 0) {
        puts(version_text());
        return EXIT_CODE_PASS;
    }
    if (strcmp(word, "--print-docs") == 0 || strcmp(word, "--print-man") == 0)
        return main_pages(word, next);
    if (strcmp(word, "--print-completion") == 0)
        return main_completion(next);
    const struct verb *verb = main_find(word);
    if (!verb)
        return EXIT_CODE_USAGE;
#ifdef UPGATE_HAVE_STEPS
    // what a killed `ab` or `record` left is memory of the machine
    reader_sweep("/dev/shm", "upgate-");
#endif
    return verb->run(argc - 1, argv + 1);
}

int main(int argc, char **argv)
{
    program_begin();
    return program_end(main_dispatch(argc, argv));
}
