// SPDX-License-Identifier: Apache-2.0
// What an option table looks like to people: --help on a terminal, a page in docs/. Reads the
// tables only, writes to the stream it is given. Parsing: options.c; man pages and completions:
// harness/verbs.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/options.h"
#include "common/strings.h"

enum { OPTIONS_HELP_COLUMN = 28, OPTIONS_HELP_WIDTH = 96 };

static const char *const options_kind_units[] = {
        [OPTION_DURATION] = "ns, us, ms, s, min, h, d",
        [OPTION_BYTES] = "B, K, M, G, T",
        [OPTION_FRACTION] = "2% or 0.02",
        [OPTION_COUNT] = NULL,
};

char *options_left(const struct option_spec *spec)
{
    struct strbuf left = {0};
    if (spec->letter)
        strbuf_add(&left, "-%c, --%s", spec->letter, spec->name);
    else
        strbuf_add(&left, "    --%s", spec->name);
    if (spec->value) {
        strbuf_add(&left, " %s", spec->value);
    } else if (spec->choices) {
        strbuf_add(&left, " ");
        for (const char *c = spec->choices; *c; c++)
            strbuf_add(&left, "%c", *c == ',' ? '|' : *c);
    }
    return strbuf_take(&left);
}

char *options_facts(const struct option_spec *spec)
{
    struct strbuf facts = {0};
    if (spec->default_text)
        strbuf_add(&facts, "default: %s", spec->default_text);
    if ((spec->min || spec->max) && spec->max <= UINT32_MAX)
        strbuf_add(&facts, "%s%llu to %llu", facts.len ? "; " : "", (unsigned long long)spec->min,
                (unsigned long long)spec->max);
    else if (spec->min)
        strbuf_add(&facts, "%sat least %llu", facts.len ? "; " : "", (unsigned long long)spec->min);
    if (options_kind_units[spec->kind])
        strbuf_add(&facts, "%s%s%s", facts.len ? "; " : "",
                spec->kind == OPTION_FRACTION ? "" : "units: ", options_kind_units[spec->kind]);
    return facts.len ? strbuf_take(&facts) : NULL;
}

// Words of `text`, wrapped; the first line starts at `column`, where the stream stands already.
static void options_print_wrapped(FILE *file, const char *text, size_t column)
{
    size_t at = column;
    while (*text) {
        size_t len = strcspn(text, " ");
        if (at > column && at + len > OPTIONS_HELP_WIDTH) {
            fprintf(file, "\n%*s", (int)column, "");
            at = column;
        } else if (at > column) {
            fputc(' ', file);
            at++;
        }
        fwrite(text, 1, len, file);
        at += len;
        text += len;
        text += strspn(text, " ");
    }
    fputc('\n', file);
}

static void options_print_row(FILE *file, const char *left, const char *help, const char *facts)
{
    size_t len = strlen(left);
    if (len + 4 > OPTIONS_HELP_COLUMN)
        fprintf(file, "  %s\n%*s", left, OPTIONS_HELP_COLUMN, "");
    else
        fprintf(file, "  %-*s", OPTIONS_HELP_COLUMN - 2, left);
    char *text = facts ? xasprintf("%s (%s)", help, facts) : xstrdup(help);
    options_print_wrapped(file, text, OPTIONS_HELP_COLUMN);
    free(text);
}

static void options_print_lines(FILE *file, const char *text, const char *indent)
{
    while (text && *text) {
        size_t spaces = strspn(text, " "); // tables may indent their codes themselves
        text += text[spaces] >= '0' && text[spaces] <= '9' ? spaces : 0;
        size_t len = strcspn(text, "\n");
        fprintf(file, "%s%.*s\n", indent, (int)len, text);
        text += len;
        text += *text == '\n';
    }
}

void options_print_help(const struct verb *verb, void *stream)
{
    FILE *file = stream;
    options_print_wrapped(file, verb->summary, 0);
    fputs("\nUsage:\n", file);
    for (const char *const *line = verb->usage; *line; line++)
        fprintf(file, "  %s%s\n", options_program(verb), *line);
    const char *group = "Options";
    for (const struct option_spec *spec = verb->options; spec && spec->name; spec++) {
        if (spec->group || spec == verb->options)
            fprintf(file, "\n%s:\n", spec->group ? spec->group : group);
        if (!spec->help) // taken, without a meaning here
            continue;
        char *left = options_left(spec), *facts = options_facts(spec);
        options_print_row(file, left, spec->help, facts);
        free(left);
        free(facts);
    }
    options_print_row(file, "-h, --help", "print this and stop", NULL);
    if (verb->examples && verb->examples[0])
        fputs("\nExamples:\n", file);
    for (const char *const *e = verb->examples; e && e[0] && e[1]; e += 2) {
        fprintf(file, "  %s\n      ", e[0]);
        options_print_wrapped(file, e[1], 6);
    }
    if (verb->exit_codes) {
        fputs("\nExit codes:\n", file);
        options_print_lines(file, verb->exit_codes, "  ");
    }
}

// "|" would end a cell of a Markdown table.
static void options_print_cell(FILE *file, const char *text)
{
    for (; *text; text++) {
        if (*text == '|')
            fputc('\\', file);
        fputc(*text, file);
    }
}

void options_print_markdown(const struct verb *verb, void *stream)
{
    FILE *file = stream;
    fprintf(file,
            "<!-- Made from the option table by `upgate --print-docs docs`; edit the table. -->\n"
            "# upgate %s\n\n%s\n\n## Usage\n\n```\n",
            verb->name, verb->summary);
    for (const char *const *line = verb->usage; *line; line++)
        fprintf(file, "upgate %s\n", *line);
    fputs("```\n\n## Options\n", file);
    for (const struct option_spec *spec = verb->options; spec && spec->name; spec++) {
        if (spec->group || spec == verb->options)
            fprintf(file,
                    "\n### %s\n\n| option | meaning | default, range, units |\n|---|---|---|\n",
                    spec->group ? spec->group : "Options of the verb");
        if (!spec->help)
            continue;
        char *left = options_left(spec), *facts = options_facts(spec);
        fputs("| `", file);
        options_print_cell(file, left + strspn(left, " "));
        fputs("` | ", file);
        options_print_cell(file, spec->help);
        fputs(" | ", file);
        options_print_cell(file, facts ? facts : "");
        fputs(facts ? " |\n" : "|\n", file);
        free(left);
        free(facts);
    }
    fputs("| `-h, --help` | print the help and stop | |\n", file);
    if (verb->examples && verb->examples[0])
        fputs("\n## Examples\n", file);
    for (const char *const *e = verb->examples; e && e[0] && e[1]; e += 2)
        fprintf(file, "\n%s:\n\n```\n%s\n```\n", e[1], e[0]);
    if (verb->exit_codes) {
        fputs("\n## Exit codes\n\n```\n", file);
        options_print_lines(file, verb->exit_codes, "");
        fputs("```\n", file);
    }
}
