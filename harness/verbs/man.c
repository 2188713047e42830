// SPDX-License-Identifier: Apache-2.0
// Manual pages from the option tables, in the man(7) macros that groff and mandoc both read. Reads
// the tables of verbs and of environment variables, writes files of a directory. The same words as
// --help: no prose of its own but headings.
#include "harness/verbs/man.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/environment.h"
#include "common/strings.h"
#include "harness/verbs/page.h"
#include "harness/verbs/version.h"

// One character of UTF-8 as roff has it. Returns how many bytes that took.
static size_t man_wide(const unsigned char *text, FILE *file)
{
    size_t more = *text >= 0xf0 ? 3 : *text >= 0xe0 ? 2 : 1;
    unsigned code = *text & (0x3f >> more);
    for (size_t i = 1; i <= more && (text[i] & 0xc0) == 0x80; i++)
        code = code << 6 | (text[i] & 0x3f);
    fprintf(file, "\\[u%04X]", code);
    return more + 1;
}

// Text that shows as it stands: no request, no hyphen that looks like an option's dash and cannot
// be copied, no curly quote.
static void man_text(const char *text, size_t len, FILE *file)
{
    static const char *const escapes[128] = {['\\'] = "\\e",
            ['-'] = "\\-",
            ['\''] = "\\(aq",
            ['`'] = "\\(ga",
            ['"'] = "\\(dq",
            ['^'] = "\\(ha",
            ['~'] = "\\(ti"};
    if (len && *text == '.')
        fputs("\\&", file);
    for (size_t i = 0; i < len;) {
        unsigned char c = (unsigned char)text[i];
        if (c >= 128) {
            i += man_wide((const unsigned char *)text + i, file);
            continue;
        }
        if (escapes[c])
            fputs(escapes[c], file);
        else
            fputc(c, file);
        i++;
    }
}

static void man_words(const char *text, FILE *file)
{
    man_text(text, strlen(text), file);
}

static void man_line(const char *text, FILE *file)
{
    size_t len = strlen(text);
    while (len && text[len - 1] == '\n')
        len--;
    for (size_t at = 0; at < len;) { // a break of the source is none of the page
        size_t part = strcspn(text + at, "\n");
        part = at + part > len ? len - at : part;
        man_text(text + at, part, file);
        fputc('\n', file);
        at += part + 1;
    }
}

// NAME must be one line without a full stop.
static void man_head(const char *name, const char *summary, FILE *file)
{
    fputs(".\\\" Made from the option tables by `upgate --print-man`; edit the tables.\n.TH ",
            file);
    for (const char *c = name; *c; c++)
        fputc(*c >= 'a' && *c <= 'z' ? *c - 'a' + 'A' : *c, file);
    fprintf(file, " 1 \"%s\" \"upgate %s\" \"User Commands\"\n.SH NAME\n", version_date(),
            UPGATE_VERSION);
    man_words(name, file);
    fputs(" \\- ", file);
    size_t len = strlen(summary);
    man_text(summary, len && summary[len - 1] == '.' ? len - 1 : len, file);
    fputc('\n', file);
}

// "  0  pass, done\n": the number in front, the rest of a code below it.
static void man_exit_codes(const char *text, FILE *file)
{
    fputs(".SH EXIT STATUS\n", file);
    while (text && *text) {
        text += strspn(text, " ");
        size_t digits = strspn(text, "0123456789"), len = strcspn(text, "\n");
        if (digits)
            fprintf(file, ".TP\n.B %.*s\n", (int)digits, text);
        size_t blanks = strspn(text + digits, " ");
        man_text(text + digits + blanks, len - digits - blanks, file);
        fputc('\n', file);
        text += len;
        text += *text == '\n';
    }
}

static void man_option(const char *left, const char *help, const char *facts, FILE *file)
{
    fputs(".TP\n", file);
    left += strspn(left, " ");
    while (*left) { // dashed words bold, the value's name slanted
        size_t len = strcspn(left, " ");
        bool comma = len && left[len - 1] == ',';
        fputs(*left == '-' ? "\\fB" : "\\fI", file);
        man_text(left, len - comma, file);
        fprintf(file, "\\fR%s", comma ? "," : "");
        left += len;
        left += *left == ' ';
        if (*left)
            fputc(' ', file);
    }
    fputc('\n', file);
    man_words(help, file);
    if (facts) {
        fputs(" (", file);
        man_words(facts, file);
        fputc(')', file);
    }
    fputc('\n', file);
}

static void man_options(const struct verb *verb, FILE *file)
{
    fputs(".SH OPTIONS\n", file);
    for (const struct option_spec *spec = verb->options; spec && spec->name; spec++) {
        if (spec->group) {
            fputs(".SS ", file);
            man_line(spec->group, file);
        }
        if (!spec->help) // taken, without a meaning here
            continue;
        char *left = options_left(spec), *facts = options_facts(spec);
        man_option(left, spec->help, facts, file);
        free(left);
        free(facts);
    }
    man_option("-h, --help", "print this in short and stop", NULL, file);
}

static void man_examples(const struct verb *verb, FILE *file)
{
    if (!verb->examples || !verb->examples[0])
        return;
    fputs(".SH EXAMPLES\n", file);
    for (const char *const *e = verb->examples; e[0] && e[1]; e += 2) {
        fputs(e == verb->examples ? "" : ".PP\n", file);
        man_line(e[1], file);
        fputs(".PP\n.RS 4\n.nf\n", file);
        man_line(e[0], file);
        fputs(".fi\n.RE\n", file);
    }
}

static void man_see_also(const struct man_program *program, const struct verb *self, FILE *file)
{
    fputs(".SH SEE ALSO\n", file);
    if (self)
        fprintf(file, ".BR upgate (1)%s", program->verbs[0] ? ",\n" : "\n");
    for (const struct verb *const *verb = program->verbs; *verb; verb++) {
        bool last = !verb[1] || (verb[1] == self && !verb[2]);
        if (*verb != self)
            fprintf(file, ".BR upgate\\-%s (1)%s\n", (*verb)->name, last ? "" : ",");
    }
}

static void man_print_verb(const struct man_program *program, const struct verb *verb, FILE *file)
{
    char *name = xasprintf("upgate-%s", verb->name);
    man_head(name, verb->summary, file);
    free(name);
    fputs(".SH SYNOPSIS\n.nf\n", file);
    for (const char *const *line = verb->usage; *line; line++) {
        size_t bold = verb->alone ? strlen(verb->name) : 0; // its usage begins with its name
        fputs(verb->alone ? "\\fBupgate\\-" : "\\fBupgate", file);
        man_text(*line, bold, file);
        fputs(verb->alone ? "\\fR" : "\\fR ", file);
        man_line(*line + bold, file);
    }
    fputs(".fi\n", file);
    man_options(verb, file);
    man_examples(verb, file);
    if (verb->exit_codes)
        man_exit_codes(verb->exit_codes, file);
    man_see_also(program, verb, file);
}

static void man_print_program(const struct man_program *program, FILE *file)
{
    man_head("upgate",
            "judge an upgrade of a framework or of CUDA, and say what got slower and why", file);
    fputs(".SH SYNOPSIS\n.nf\n"
          "\\fBupgate\\fR \\fIVERB\\fR [options]\n"
          "\\fBupgate help\\fR [\\fIVERB\\fR]\n"
          "\\fBupgate \\-\\-version\\fR\n"
          "\\fBupgate \\-\\-print\\-completion\\fR bash|zsh|fish\n.fi\n.SH DESCRIPTION\n",
            file);
    man_line(program->summary, file);
    fputs(".SH VERBS\n", file);
    for (const struct verb *const *verb = program->verbs; *verb; verb++) {
        fprintf(file, ".TP\n.BR upgate\\-%s (1)\n", (*verb)->name);
        man_line((*verb)->summary, file);
    }
    fputs(".SH ENVIRONMENT\nAn unknown\n.B UPGATE_*\nvariable is a warning.\n", file);
    for (enum environment_id id = 0; id < ENVIRONMENT_COUNT; id++) {
        fprintf(file, ".TP\n.B %s\n", environment_name(id));
        man_line(environment_help(id), file);
    }
    man_exit_codes(program->exit_codes, file);
    man_see_also(program, NULL, file);
}

struct man_page {
    const struct man_program *program;
    const struct verb *verb; // NULL: of the program
};

static void man_print(const void *context, FILE *file)
{
    const struct man_page *page = context;
    if (page->verb)
        man_print_verb(page->program, page->verb, file);
    else
        man_print_program(page->program, file);
}

int man_write_alone(const struct verb *verb, const char *directory, struct error *err)
{
    static const struct verb *const none[] = {NULL};
    static const struct man_program nothing_more = {.summary = "", .exit_codes = "", .verbs = none};
    const struct man_page page = {.program = &nothing_more, .verb = verb};
    return page_write(xasprintf("%s/upgate-%s.1", directory, verb->name), man_print, &page, err);
}

int man_write(const struct man_program *program, const char *directory, struct error *err)
{
    struct man_page page = {.program = program};
    int rc = page_write(xasprintf("%s/upgate.1", directory), man_print, &page, err);
    for (const struct verb *const *verb = program->verbs; *verb && !rc; verb++) {
        page.verb = *verb;
        rc = page_write(
                xasprintf("%s/upgate-%s.1", directory, (*verb)->name), man_print, &page, err);
    }
    return rc;
}
