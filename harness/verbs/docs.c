// SPDX-License-Identifier: Apache-2.0
// Pages in docs/, from the tables of options, variables, plans and causes; writes files of a directory. Prose is not its
// job: it stands in docs/ beside the pages.
#include "harness/verbs/docs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/environment.h"
#include "common/strings.h"
#include "harness/plan/plan.h"
#ifdef UPGATE_HAVE_ROLLOUT
#include "harness/canary/plan/rollout.h"
#endif
#ifdef UPGATE_HAVE_STALLS
#include "reports/analyse/stalls/stalls.h"
#endif

static void docs_print_environment(void *stream)
{
    FILE *file = stream;
    fputs("<!-- Made from common/environment.c by `upgate --print-docs docs`; edit there. -->\n"
          "# Environment variables\n\nAn unknown `UPGATE_*` variable is a warning.\n\n"
          "| variable | meaning |\n|---|---|\n",
          file);
    for (enum environment_id id = 0; id < ENVIRONMENT_COUNT; id++)
        fprintf(file, "| `%s` | %s |\n", environment_name(id), environment_help(id));
}

#ifdef UPGATE_HAVE_STALLS
// Without what a cell of a table must not hold and what reads as markup.
static void docs_print_cell(const char *text, FILE *file)
{
    for (; text && *text; text++) {
        if (*text == '|')
            fputs("&#124;", file);
        else if (*text == '<')
            fputs("&lt;", file);
        else
            fputc(*text, file);
    }
}

static void docs_print_causes(void *stream)
{
    FILE *file = stream;
    size_t count = 0;
    const struct stall_cause *causes = stall_causes(&count);
    fprintf(file,
            "<!-- Made from the table of causes in reports/analyse/stalls by `upgate --print-docs docs`; "
            "edit there. -->\n"
            "# Causes that `upgate stalls` knows\n\n%zu causes. How to read what it prints: "
            "[STALLS.md](STALLS.md).\n\n"
            "| identifier | cause | what it looks like | what to do |\n|---|---|---|---|\n",
            count);
    for (size_t i = 0; i < count; i++) {
        fprintf(file, "| `%s` | ", causes[i].id);
        docs_print_cell(causes[i].title, file);
        fputs(" | ", file);
        docs_print_cell(causes[i].looks_like, file);
        fputs(" | ", file);
        char *advice = causes[i].advice ? xasprintf(causes[i].advice, "the culprit") : NULL;
        docs_print_cell(advice, file);
        free(advice);
        fputs(" |\n", file);
    }
}
#endif

// DIRECTORY/NAME.md, by `print` or, with a verb, from its table.
static int docs_write_page(const char *directory, const char *name, void (*print)(void *),
                           const struct verb *verb, struct error *err)
{
    char *path = xasprintf("%s/%s.md", directory, name);
    FILE *file = fopen(path, "we");
    bool failed = !file;
    if (file && verb)
        options_print_markdown(verb, file);
    else if (file)
        print(file);
    if (file) {
        failed = ferror(file);
        failed |= fclose(file) != 0;
    }
    int rc = failed ? error_set(err, -EIO, "failed to write '%s': %s", path, strerror(errno)) : 0;
    free(path);
    return rc;
}

int docs_write(const struct verb *const *verbs, const char *directory, struct error *err)
{
    int rc = docs_write_page(directory, "environment", docs_print_environment, NULL, err);
    if (!rc)
        rc = docs_write_page(directory, "plan", plan_print_markdown, NULL, err);
#ifdef UPGATE_HAVE_ROLLOUT
    if (!rc)
        rc = docs_write_page(directory, "rollout", rollout_print_markdown, NULL, err);
#endif
#ifdef UPGATE_HAVE_STALLS
    if (!rc)
        rc = docs_write_page(directory, "stall-causes", docs_print_causes, NULL, err);
#endif
    for (; *verbs && !rc; verbs++) {
        char *name = xasprintf("upgate-%s", (*verbs)->name);
        rc = docs_write_page(directory, name, NULL, *verbs, err);
        free(name);
    }
    return rc;
}
