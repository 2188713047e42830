// SPDX-License-Identifier: Apache-2.0
// One table a verb: it drives parsing, --help and docs/. Values land in the verb's own struct by
// offset; the caller fills the struct with defaults first (default_text only shows them).
#ifndef UPGATE_COMMON_OPTIONS_H
#define UPGATE_COMMON_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

enum option_kind {
    OPTION_FLAG,     // bool: present sets true
    OPTION_TEXT,     // const char *: points into argv
    OPTION_UINT,     // uint64_t, within [min, max]
    OPTION_DURATION, // int64_t nanoseconds
    OPTION_BYTES,    // uint64_t
    OPTION_FRACTION, // double
    OPTION_CHOICE,   // const char *: one of choices (comma-separated)
    OPTION_COUNT     // int: -v, -vv
};

struct option_spec {
    const char *group; // heading in --help; NULL continues the group before
    char letter;       // 0 = none
    const char *name;  // without "--"
    enum option_kind kind;
    const char *value;        // name of the value in help, e.g. "PYTHON"; NULL for flags
    const char *choices;      // OPTION_CHOICE: "table,json"
    const char *default_text; // shown; NULL = none
    const char *help; // one sentence without full stop; NULL: taken, without a meaning for this
                      // verb, and not shown
    size_t offset;
    uint64_t min, max;   // OPTION_UINT; both 0 = any
    size_t given_offset; // bool: set when the option was given; 0 = none (never the first)
};

struct verb {
    const char *name;
    bool alone;                        // a program of its own, upgate-NAME, and no verb of upgate
    const char *summary;               // one sentence
    const char *const *usage;          // lines after "upgate ", NULL-terminated
    const struct option_spec *options; // ends with .name = NULL
    const char *const *examples; // NULL-terminated: command, explanation, command, explanation
    const char *exit_codes;      // text of the section
    size_t positional_min, positional_max;
    bool takes_command; // everything after "--" is a command
    int (*run)(int argc, char **argv);
};

struct options_rest {
    char **positional; // into argv, permuted
    size_t positional_count;
    char **command; // after "--"; NULL if none
    size_t command_count;
    bool help; // --help was given: the verb prints help and returns 0
};

// The options every verb has, in its values struct as `struct options_common common;` (not first).
struct options_common {
    const char *format; // "table" or "json"
    const char *output; // NULL: not given
    int verbose;
    bool quiet, no_color, dry_run;
    bool seed_given; // absent: the plan's seed
    uint64_t seed;
};
#define OPTIONS_COMMON_DEFAULT \
    { \
        .format = "table" \
    }

// The last rows of every table, before {.name = NULL}:
// OPTIONS_COMMON(struct diff_values, common, "FILE", "write there instead of stdout", "stdout").
// What -o means differs from verb to verb. Every verb takes --seed; those that draw something have
// OPTIONS_COMMON_SEED, which shows it.
// clang-format off
#define OPTIONS_COMMON(type, member, output_value, output_help, output_default)                    \
    OPTIONS_COMMON_ROWS(type, member, output_value, output_help, output_default, NULL)
#define OPTIONS_COMMON_SEED(type, member, output_value, output_help, output_default)               \
    OPTIONS_COMMON_ROWS(type, member, output_value, output_help, output_default, "seed of everything that is drawn")
#define OPTIONS_COMMON_ROWS(type, member, output_value, output_help, output_default, seed_help)    \
    {"Common options", 0, "format", OPTION_CHOICE, NULL, "table,json", "table",                    \
     "what is printed on stdout", offsetof(type, member.format), 0, 0, 0},                         \
    {NULL, 'o', "output", OPTION_TEXT, output_value, NULL, output_default, output_help,            \
     offsetof(type, member.output), 0, 0, 0},                                                      \
    {NULL, 0, "seed", OPTION_UINT, "N", NULL, "the plan's, else 7", seed_help,                     \
     offsetof(type, member.seed), 0, UINT64_MAX / 2, offsetof(type, member.seed_given)},           \
    {NULL, 0, "dry-run", OPTION_FLAG, NULL, NULL, NULL,                                            \
     "check and say what would be done, then stop", offsetof(type, member.dry_run), 0, 0, 0},      \
    {NULL, 0, "no-color", OPTION_FLAG, NULL, NULL, NULL, "plain text, on a terminal too",          \
     offsetof(type, member.no_color), 0, 0, 0},                                                    \
    {NULL, 'q', "quiet", OPTION_FLAG, NULL, NULL, NULL, "only warnings and errors on stderr",      \
     offsetof(type, member.quiet), 0, 0, 0},                                                       \
    {NULL, 'v', "verbose", OPTION_COUNT, NULL, NULL, NULL, "more detail on stderr",                \
     offsetof(type, member.verbose), 0, 0, 0}
// clang-format on

// Parse argv (argv[0] is the verb's name) as getopt_long does: --x=v, --x v, -xv, -vv, unambiguous
// prefixes, options after arguments. argv is permuted, no string of it is lost. -h and --help are
// built in. -EINVAL with the nearest known name on a wrong option.
int options_parse(const struct verb *verb, int argc, char **argv, void *values,
        struct options_rest *ret_rest, struct error *err);
void options_print_help(const struct verb *verb, void *stream);     // FILE *
void options_print_markdown(const struct verb *verb, void *stream); // the page in docs/
// Of a row, for other forms of it; the caller frees. Facts: NULL when there is nothing to say.

// "-o, --output FILE", "    --format table|json"
char *options_left(const struct option_spec *spec);
char *options_facts(const struct option_spec *spec); // "default: 20ms; units: ns, us, ms"

// What its name and its usage lines stand behind: "upgate ", or "upgate-".
const char *options_program(const struct verb *verb);

void options_apply_common(const struct options_common *common); // the level of the log

#endif
