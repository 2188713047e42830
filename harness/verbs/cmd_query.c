// SPDX-License-Identifier: Apache-2.0
// `upgate query`: SQL over the shards of a job's ranks (harness/rank/query.h), printed as a table
// or as JSON.
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include "common/log.h"
#include "common/options.h"
#include "common/strings.h"
#include "contracts/exit_code.h"
#include "harness/rank/query.h"
#include "harness/verbs/program.h"
#include "harness/verbs/shard_options.h"
#include "reports/render/render.h"
#include "reports/render/text/json_text.h"
#include "reports/render/text/screen.h"

struct query_values {
    const char *map, *reduce;
    struct shard_values shards;
    struct options_common common;
};

extern const struct verb verb_query;

static const struct option_spec query_options[] = {
        {"What is asked", 0, "map", OPTION_TEXT, "SELECT", NULL, NULL,
                "is run on each shard; docs/SCHEMA.md has its tables",
                offsetof(struct query_values, map), 0, 0, 0},
        {NULL, 0, "reduce", OPTION_TEXT, "SELECT", NULL, "all of it",
                "is run on the table map: rank, node, and the columns of --map, a row for each row of each shard",
                offsetof(struct query_values, reduce), 0, 0, 0},
        OPTIONS_SHARDS(struct query_values, shards),
        OPTIONS_COMMON(
                struct query_values, common, "FILE", "the rows go there, not to stdout", NULL),
        {.name = NULL}};

static const char *const query_usage[] = {
        "query DIR --map SELECT [--reduce SELECT] [--job NAME] [--restart N]", NULL};

static const char *const query_examples[] = {
        "upgate query shards --map 'SELECT count(*) AS steps FROM recorded_step'",
        "how many steps each rank made",
        "upgate query runs --map 'SELECT dur_ns FROM recorded_step' --reduce 'SELECT max(dur_ns) FROM map'",
        "the longest step of all",
        "upgate query shards --map 'SELECT state, sum(in_ns - out_ns) AS off_ns FROM gap GROUP BY state'",
        "how long threads were off their CPUs",
        "upgate query shards --format json --map 'SELECT * FROM thread_total' | jq '.rows[]'",
        "for a script",
        NULL,
};

static const char query_exit_codes[] =
        "  0  every rank of the job is in the answer\n"
        "  2  usage, SQL that is no SELECT or that SQLite does not take, no shards, several runs in DIR\n"
        "  3  answered, but ranks are missing\n"
        "  4  operational failure: no permission, disk full\n";

enum { QUERY_CELL_COLUMNS = 60 }; // on a terminal; what is longer is cut in its middle

// A copy, of as many bytes; a byte that is not UTF-8 is '?'. The caller frees.
static char *query_text(sqlite3_stmt *rows, int column)
{
    const char *text = (const char *)sqlite3_column_text(rows, column);
    size_t len = (size_t)sqlite3_column_bytes(rows, column);
    char *copy = xcalloc(len + 1, 1);
    memcpy(copy, text ? text : "", len);
    string_make_utf8(copy, len);
    return copy;
}

// --- JSON ----------------------------------------------------------------------------------------

static json_t *query_json_value(sqlite3_stmt *rows, int column)
{
    double number;
    switch (sqlite3_column_type(rows, column)) {
    case SQLITE_NULL:
        return json_null();
    case SQLITE_INTEGER:
        return json_integer(sqlite3_column_int64(rows, column));
    case SQLITE_FLOAT:
        number = sqlite3_column_double(rows, column);
        // JSON has none
        return isfinite(number) ? json_real(number) : render_json_text(number > 0 ? "Inf" : "-Inf");
    case SQLITE_BLOB: {
        struct strbuf hex = {0};
        const unsigned char *bytes = sqlite3_column_blob(rows, column);
        for (int i = 0; i < sqlite3_column_bytes(rows, column); i++)
            strbuf_add(&hex, "%02x", bytes[i]);
        json_t *text = json_string(hex.text ? hex.text : "");
        strbuf_free(&hex);
        return text;
    }
    default: {
        char *text = query_text(rows, column);
        json_t *item = json_stringn(text, (size_t)sqlite3_column_bytes(rows, column));
        free(text);
        return item;
    }
    }
}

// A row at a time: there may be millions.
static int query_print_json(struct query *query, FILE *out, struct error *err)
{
    const struct merge_result *shards = query_shards(query);
    sqlite3_stmt *rows = query_rows(query);
    int columns = sqlite3_column_count(rows), rc;
    json_t *head = json_object(), *names = json_array();
    for (int i = 0; i < columns; i++)
        json_array_append_new(names, render_json_text(sqlite3_column_name(rows, i)));
    json_object_set_new(head, "schema", json_string("upgate.query/1"));
    json_object_set_new(head, "run", render_json_text(shards->run));
    json_object_set_new(head, "restart", json_integer((json_int_t)shards->restart));
    json_object_set_new(head, "ranks", json_integer(shards->ranks));
    json_object_set_new(head, "missing", shard_ranks_json(shards->missing, shards->missing_count));
    json_object_set(head, "columns", names);
    char *text = json_dumps(head, JSON_INDENT(1));
    text[strlen(text) - 2] = 0; // the rows follow
    fprintf(out, "%s,\n \"rows\": [", text);
    free(text);
    json_decref(head);
    const char *between = "\n  ";
    while ((rc = query_step(query, err)) > 0) {
        json_t *row = json_object();
        for (int i = 0; i < columns; i++)
            // UTF-8
            json_object_set_new(row, json_string_value(json_array_get(names, (size_t)i)),
                    query_json_value(rows, i));
        fputs(between, out);
        json_dumpf(row, out, JSON_COMPACT | JSON_REAL_PRECISION(17));
        json_decref(row);
        between = ",\n  ";
    }
    if (rc == 0) // else nobody shall take it for all of it
        fputs("\n ]\n}\n", out);
    json_decref(names);
    return rc;
}

// --- a table -------------------------------------------------------------------------------------

static char *query_cell(sqlite3_stmt *rows, int column, bool utf8, bool cut)
{
    char *text, *clean, *fit;
    switch (sqlite3_column_type(rows, column)) {
    case SQLITE_NULL:
        return xstrdup("-");
    case SQLITE_FLOAT:
        return xasprintf("%.6g", sqlite3_column_double(rows, column));
    case SQLITE_BLOB:
        return xasprintf("(%d bytes)", sqlite3_column_bytes(rows, column));
    default:
        text = query_text(rows, column);
        clean = screen_clean(text, utf8);
        free(text);
        if (!cut)
            return clean;
        fit = screen_fit(clean, QUERY_CELL_COLUMNS, utf8);
        free(clean);
        return fit;
    }
}

// Cells lie one behind the other, each with a NUL: there may be millions, and most are short.
static void query_add_cell(struct strbuf *cells, int *width, char *cell)
{
    int needed = screen_columns(cell);
    *width = needed > *width ? needed : *width;
    strbuf_add_bytes(cells, cell, strlen(cell) + 1);
    free(cell);
}

// Returns the first cell of the next line.
static const char *query_print_line(
        FILE *out, const char *cell, const int *widths, const bool *right, int columns)
{
    struct strbuf line = {0};
    for (int i = 0; i < columns; i++) {
        if (i)
            strbuf_add(&line, "  ");
        screen_pad(&line, cell, i + 1 < columns || right[i] ? widths[i] : 0, right[i]);
        cell += strlen(cell) + 1;
    }
    fprintf(out, "%s\n", line.text ? line.text : "");
    strbuf_free(&line);
    return cell;
}

static int query_print_table(struct query *query, FILE *out, struct error *err)
{
    sqlite3_stmt *rows = query_rows(query);
    int columns = sqlite3_column_count(rows), rc;
    bool utf8 = screen_locale_utf8(), cut = isatty(fileno(out));
    struct strbuf cells = {0};
    int *widths = xcalloc((size_t)columns, sizeof *widths);
    bool *right = xcalloc((size_t)columns, sizeof *right); // numbers, all of the column
    for (int i = 0; i < columns; i++) {
        query_add_cell(&cells, &widths[i], screen_clean(sqlite3_column_name(rows, i), utf8));
        right[i] = true;
    }
    while ((rc = query_step(query, err)) > 0)
        for (int i = 0; i < columns; i++) {
            int type = sqlite3_column_type(rows, i);
            right[i] &= type != SQLITE_TEXT && type != SQLITE_BLOB;
            query_add_cell(&cells, &widths[i], query_cell(rows, i, utf8, cut));
        }
    for (const char *line = cells.text; line < cells.text + cells.len && rc == 0;)
        line = query_print_line(out, line, widths, right, columns);
    strbuf_free(&cells);
    free(widths);
    free(right);
    return rc;
}

// --- the verb ------------------------------------------------------------------------------------

// Shards are only read.
static int query_check_output(const struct scan *scan, const char *output, struct error *err)
{
    struct stat info, shard;
    bool there = output && stat(output, &info) == 0;
    for (size_t i = 0; there && i < scan->count; i++)
        if (stat(scan->shards[i].path, &shard) == 0 && shard.st_dev == info.st_dev &&
                shard.st_ino == info.st_ino)
            return error_set(
                    err, -EINVAL, "'%s' is one of the shards; name another file with -o", output);
    return 0;
}

static int query_print(struct query *query, const struct options_common *common, struct error *err)
{
    struct render_stream *stream = NULL;
    int rc = common->output ? render_stream_open(common->output, &stream, err) : 0;
    if (rc)
        return rc;
    FILE *out = stream ? render_stream_file(stream) : stdout;
    rc = strcmp(common->format, "json") == 0 ? query_print_json(query, out, err)
                                             : query_print_table(query, out, err);
    int close_rc = stream ? render_stream_close(stream, rc == 0, err) : 0;
    return rc ? rc : close_rc;
}

static int query_go(const struct query_values *values, const char *dir, enum exit_code *ret_exit,
        struct error *err)
{
    const struct query_opts opts = {.dir = dir,
            .run = values->shards.run,
            .restart = shard_values_restart(&values->shards),
            .map = values->map,
            .reduce = values->reduce};
    struct query *query = NULL;
    if (!values->map)
        return error_set(
                err, -EINVAL, "nothing to ask: --map wants a SELECT, which is run on each shard");
    int rc = query_new(&opts, &query, err);
    const struct merge_result *shards = query_shards(query);
    if (rc == 0)
        rc = query_check_output(&shards->scan, values->common.output, err);
    for (size_t i = 0; i < shards->missing_count && rc == 0; i++)
        log_warn("rank %d is missing: %s", (int)shards->missing[i].rank, shards->missing[i].why);
    for (size_t i = 0; i < shards->note_count && rc == 0; i++)
        log_info("%s", shards->notes[i]);
    if (rc == 0 && values->common.dry_run)
        log_info("would answer from %zu of %d ranks of run '%s', restart %lld",
                (size_t)shards->ranks - shards->missing_count, (int)shards->ranks, shards->run,
                (long long)shards->restart);
    else if (rc == 0)
        rc = query_print(query, &values->common, err);
    *ret_exit = shards->missing_count ? EXIT_CODE_INCONCLUSIVE : EXIT_CODE_PASS;
    query_free(query);
    return rc;
}

static int cmd_query(int argc, char **argv)
{
    struct query_values values = {.common = OPTIONS_COMMON_DEFAULT};
    struct options_rest rest = {0};
    struct error err = {0};
    enum exit_code code = EXIT_CODE_PASS;
    int rc = program_parse(&verb_query, argc, argv, &values, &values.common, &rest, &err);
    if (rc > 0)
        return EXIT_CODE_PASS;
    if (rc == 0)
        rc = query_go(&values, rest.positional[0], &code, &err);
    return program_judge(rc, (int)code, &err);
}

const struct verb verb_query = {
        .name = "query",
        .summary =
                "Ask the shards of a job's ranks by SQL, all of them at once, without merging them.",
        .usage = query_usage,
        .options = query_options,
        .examples = query_examples,
        .exit_codes = query_exit_codes,
        .positional_min = 1,
        .positional_max = 1,
        .run = cmd_query,
};
