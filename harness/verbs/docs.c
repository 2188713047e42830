// SPDX-License-Identifier: Apache-2.0
// Pages in docs/, from the tables of options, variables, plans and causes; writes files of a
// directory. Prose is not its job: it stands in docs/ beside the pages.
#include "harness/verbs/docs.h"

#include <stdlib.h>
#include <string.h>

#include "common/environment.h"
#include "common/strings.h"
#include "harness/plan/plan.h"
#include "harness/verbs/page.h"
#ifdef UPGATE_HAVE_ROLLOUT
#include "harness/canary/plan/rollout.h"
#endif
#ifdef UPGATE_HAVE_STALLS
#include "reports/analyse/stalls/stalls.h"
#include "reports/render/causes/cause_text.h"
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
            "<!-- Made from the tables in reports/analyse/stalls/causes.c and reports/render/causes by `upgate --print-docs docs`; edit there. -->\n"
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
        char *advice = cause_text_advice(causes[i].id, "the culprit");
        docs_print_cell(advice, file);
        free(advice);
        fputs(" |\n", file);
    }
}
#endif

// One of both.
struct docs_page {
    void (*print)(void *stream);
    const struct verb *verb;
};

static void docs_print(const void *context, FILE *file)
{
    const struct docs_page *page = context;
    if (page->verb)
        options_print_markdown(page->verb, file);
    else
        page->print(file);
}

int docs_write(const struct verb *const *verbs, const char *directory, struct error *err)
{
    static const struct {
        const char *name;
        void (*print)(void *stream);
    } pages[] = {
            {"environment", docs_print_environment},
            {"plan", plan_print_markdown},
#ifdef UPGATE_HAVE_ROLLOUT
            {"rollout", rollout_print_markdown},
#endif
#ifdef UPGATE_HAVE_STALLS
            {"stall-causes", docs_print_causes},
#endif
    };
    int rc = 0;
    for (size_t i = 0; i < sizeof pages / sizeof *pages && !rc; i++)
        rc = page_write(xasprintf("%s/%s.md", directory, pages[i].name), docs_print,
                &(struct docs_page){.print = pages[i].print}, err);
    for (; *verbs && !rc; verbs++)
        rc = page_write(xasprintf("%s/upgate-%s.md", directory, (*verbs)->name), docs_print,
                &(struct docs_page){.verb = *verbs}, err);
    return rc;
}
