// SPDX-License-Identifier: Apache-2.0
// Options of a verb: getopt_long does the splitting, the verb's table says the rest: kinds, ranges,
// what to suggest. Reads argv, writes the verb's values struct. Help and docs: options_help.c.
// Not thread-safe (getopt is not): main calls it once, before any thread.
#include "common/options.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "common/strings.h"
#include "common/units.h"

enum {
    OPTIONS_MAX = 96,
    OPTIONS_CHOICES_MAX = 32,
    OPTIONS_LONG_BASE = 0x100, // values of long options start above every letter
    OPTIONS_HELP = OPTIONS_LONG_BASE + OPTIONS_MAX
};

struct options_parser {
    const struct verb *verb;
    void *values;
    struct options_rest *rest;
    struct error *err;
    struct option longs[OPTIONS_MAX + 2];
    char shorts[4 + 2 * OPTIONS_MAX];
    size_t count;
    bool letter_h; // the verb has a -h of its own
};

static void options_tables_make(struct options_parser *parser)
{
    // "-": arguments come in order, as code 1; ":": a missing value is ':' and getopt prints
    // nothing.
    char *letter = parser->shorts;
    *letter++ = '-';
    *letter++ = ':';
    for (const struct option_spec *spec = parser->verb->options; spec && spec->name; spec++) {
        if (parser->count == OPTIONS_MAX)
            abort();
        bool has_value = spec->kind != OPTION_FLAG && spec->kind != OPTION_COUNT;
        parser->longs[parser->count] =
                (struct option){spec->name, has_value ? required_argument : no_argument, NULL,
                        OPTIONS_LONG_BASE + (int)parser->count};
        parser->count++;
        if (spec->letter) {
            *letter++ = spec->letter;
            if (has_value)
                *letter++ = ':';
            parser->letter_h |= spec->letter == 'h';
        }
    }
    parser->longs[parser->count] = (struct option){"help", no_argument, NULL, OPTIONS_HELP};
    if (!parser->letter_h)
        *letter++ = 'h';
    *letter = 0;
}

const char *options_program(const struct verb *verb)
{
    return verb->alone ? "upgate-" : "upgate ";
}

static int options_hint(const struct options_parser *parser, const char *text)
{
    bool question = text[strlen(text) - 1] == '?';
    return error_set(parser->err, -EINVAL, "%s%s try `%s%s --help`", text, question ? "" : ";",
            options_program(parser->verb), parser->verb->name);
}

#define OPTIONS_FAIL(parser, ...) \
    ({ \
        char *text_ = xasprintf(__VA_ARGS__); \
        int rc_ = options_hint(parser, text_); \
        free(text_); \
        rc_; \
    })

// `word` is the argument as typed: "--basline=x".
static int options_unknown_long(const struct options_parser *parser, const char *word)
{
    const char *names[OPTIONS_MAX + 1];
    size_t name_len = strcspn(word + 2, "=");
    char *name = strndup(word + 2, name_len);
    struct strbuf candidates = {0};
    size_t candidate_count = 0;
    for (size_t i = 0; i <= parser->count; i++) {
        names[i] = parser->longs[i].name;
        if (name && name_len && strncmp(names[i], name, name_len) == 0) {
            strbuf_add(&candidates, "%s'--%s'", candidate_count ? ", " : "", names[i]);
            candidate_count++;
        }
    }
    const char *nearest = name ? string_nearest(name, names, parser->count + 1) : NULL;
    int rc;
    if (candidate_count > 1)
        rc = OPTIONS_FAIL(parser, "option '--%s' is ambiguous: %s", name, candidates.text);
    else if (nearest)
        rc = OPTIONS_FAIL(parser, "unknown option '--%s'; did you mean '--%s'?", name, nearest);
    else
        rc = OPTIONS_FAIL(parser, "unknown option '--%s'", name ? name : word);
    free(name);
    strbuf_free(&candidates);
    return rc;
}

static int options_choice_check(
        const struct options_parser *parser, const struct option_spec *spec, const char *text)
{
    const char *words[OPTIONS_CHOICES_MAX];
    size_t count = 0;
    char *list = xstrdup(spec->choices), *save = NULL;
    for (char *word = strtok_r(list, ",", &save); word; word = strtok_r(NULL, ",", &save)) {
        if (count == OPTIONS_CHOICES_MAX)
            abort();
        words[count++] = word;
    }
    const char *nearest = string_nearest(text, words, count);
    int rc = 0;
    if (!nearest)
        rc = OPTIONS_FAIL(
                parser, "option '--%s': '%s' is not one of %s", spec->name, text, spec->choices);
    else if (strcmp(nearest, text) != 0)
        rc = OPTIONS_FAIL(parser, "option '--%s': '%s' is not one of %s; did you mean '%s'?",
                spec->name, text, spec->choices, nearest);
    free(list);
    return rc;
}

static int options_store(struct options_parser *parser, const struct option_spec *spec, char *text)
{
    void *target = (char *)parser->values + spec->offset;
    struct error why = {0};
    int rc = 0;
    if (text && !*text)
        return OPTIONS_FAIL(parser, "option '--%s' has an empty value", spec->name);
    switch (spec->kind) {
    case OPTION_FLAG:
        *(bool *)target = true;
        break;
    case OPTION_COUNT:
        ++*(int *)target;
        break;
    case OPTION_TEXT:
        *(const char **)target = text;
        break;
    case OPTION_CHOICE:
        rc = options_choice_check(parser, spec, text);
        if (!rc)
            *(const char **)target = text;
        break;
    case OPTION_UINT:
        rc = unit_parse_uint(
                text, spec->min, spec->min || spec->max ? spec->max : UINT64_MAX, target, &why);
        break;
    case OPTION_DURATION:
        rc = unit_parse_duration(text, target, &why);
        break;
    case OPTION_BYTES:
        rc = unit_parse_bytes(text, target, &why);
        break;
    case OPTION_FRACTION:
        rc = unit_parse_fraction(text, target, &why);
        break;
    }
    if (rc && why.code)
        return OPTIONS_FAIL(parser, "option '--%s': %s", spec->name, why.text);
    if (!rc && spec->given_offset)
        *(bool *)((char *)parser->values + spec->given_offset) = true;
    return rc;
}

// The argument just seen moves to the front, behind those before it; what it passes keeps its
// order.
static void options_add_positional(struct options_rest *rest, char **argv, int at)
{
    char *word = argv[at];
    size_t to = 1 + rest->positional_count++;
    memmove(argv + to + 1, argv + to, ((size_t)at - to) * sizeof *argv);
    argv[to] = word;
}

static const struct option_spec *options_find(const struct options_parser *parser, int code)
{
    if (code >= OPTIONS_LONG_BASE)
        return parser->verb->options + (code - OPTIONS_LONG_BASE);
    for (size_t i = 0; i < parser->count; i++)
        if (parser->verb->options[i].letter == code)
            return parser->verb->options + i;
    return NULL;
}

// What getopt gave back as '?' or ':'.
static int options_refuse(const struct options_parser *parser, int code, char **argv)
{
    const char *word = argv[optind - 1];
    const struct option_spec *spec = NULL;
    if (optopt && optopt != OPTIONS_HELP)
        spec = options_find(parser, optopt);
    if (code == ':' && spec)
        return OPTIONS_FAIL(parser, "option '--%s' needs a value: %s", spec->name,
                spec->value             ? spec->value
                        : spec->choices ? spec->choices
                                        : "VALUE");
    if (optopt >= OPTIONS_LONG_BASE)
        return OPTIONS_FAIL(
                parser, "option '--%s' takes no value, got '%s'", spec ? spec->name : "help", word);
    if (optopt)
        return OPTIONS_FAIL(parser, "unknown option '-%c'", optopt);
    return options_unknown_long(parser, word);
}

// "-output FILE" would be read as -o utput: a long name behind a single dash is a slip.
static int options_check_dash(const struct options_parser *parser, const char *word)
{
    if (word[0] != '-' || word[1] == '-' || word[1] == 0 || word[2] == 0)
        return 0;
    size_t len = strcspn(word + 1, "=");
    for (size_t i = 0; i <= parser->count; i++) {
        const char *name = parser->longs[i].name;
        if (strlen(name) == len && strncmp(name, word + 1, len) == 0)
            return OPTIONS_FAIL(parser, "unknown option '%s'; did you mean '--%s'?", word, name);
    }
    return 0;
}

static int options_check_rest(const struct options_parser *parser)
{
    const struct verb *verb = parser->verb;
    const struct options_rest *rest = parser->rest;
    if (rest->positional_count > verb->positional_max) {
        const char *extra = rest->positional[verb->positional_max];
        return OPTIONS_FAIL(parser, "unexpected argument '%s'; usage: %s%s", extra,
                options_program(verb), verb->usage[0]);
    }
    if (rest->positional_count < verb->positional_min)
        return OPTIONS_FAIL(parser, "an argument is missing; usage: %s%s", options_program(verb),
                verb->usage[0]);
    return 0;
}

int options_parse(const struct verb *verb, int argc, char **argv, void *values,
        struct options_rest *ret_rest, struct error *err)
{
    struct options_parser parser = {.verb = verb, .values = values, .rest = ret_rest, .err = err};
    options_tables_make(&parser);
    *ret_rest = (struct options_rest){.positional = argv + 1};
    opterr = 0;
    optind = 0; // glibc: forget the state of an earlier call
    for (int at = 1; at < argc; at = optind) {
        if (strcmp(argv[at], "--") == 0) {
            at++;
            if (verb->takes_command && at == argc)
                return OPTIONS_FAIL(&parser, "no command after '--'");
            if (verb->takes_command) {
                ret_rest->command = argv + at;
                ret_rest->command_count = (size_t)(argc - at);
            }
            for (; !verb->takes_command && at < argc; at++)
                options_add_positional(ret_rest, argv, at);
            break;
        }
        int rc = options_check_dash(&parser, argv[at]);
        if (rc)
            return rc;
        int code = getopt_long(argc, argv, parser.shorts, parser.longs, NULL);
        if (code == -1)
            break;
        if (code == OPTIONS_HELP || (code == 'h' && !parser.letter_h)) {
            ret_rest->help = true;
            return 0;
        }
        if (code == 1)
            options_add_positional(ret_rest, argv, optind - 1);
        else if (code == '?' || code == ':')
            rc = options_refuse(&parser, code, argv);
        else
            rc = options_store(&parser, options_find(&parser, code), optarg);
        if (rc)
            return rc;
    }
    return options_check_rest(&parser);
}

void options_apply_common(const struct options_common *common)
{
    if (common->verbose)
        log_set_level(LOG_LEVEL_DEBUG);
    else if (common->quiet)
        log_set_level(LOG_LEVEL_WARN);
}
