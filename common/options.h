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
    const char *help;         // one sentence without full stop
    size_t offset;
    uint64_t min, max; // OPTION_UINT; both 0 = any
};

struct verb {
    const char *name;
    const char *summary;              // one sentence
    const char *const *usage;         // lines after "upgate ", NULL-terminated
    const struct option_spec *options; // ends with .name = NULL
    const char *const *examples;      // NULL-terminated: command, explanation, command, explanation
    const char *exit_codes;           // text of the section
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

// Parse argv (argv[0] is the verb's name). -EINVAL with the nearest known name on a wrong option.
int options_parse(const struct verb *verb, int argc, char **argv, void *values,
                  struct options_rest *ret_rest, struct error *err);
void options_print_help(const struct verb *verb, void *stream);     // FILE *
void options_print_markdown(const struct verb *verb, void *stream); // the page in docs/

#endif
