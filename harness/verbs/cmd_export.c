// SPDX-License-Identifier: Apache-2.0
// `upgate export`: the tables of a store as files of other tools (harness/export/export.h).
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "common/log.h"
#include "common/options.h"
#include "contracts/exit_code.h"
#include "harness/export/export.h"
#include "harness/verbs/program.h"
#include "reports/render/text/json_text.h"

struct export_values {
    const char *as, *tables, *python;
    struct options_common common;
};

extern const struct verb verb_export;

static const struct option_spec export_options[] = {
        {"What is written", 0, "as", OPTION_CHOICE, NULL, "parquet,csv", "parquet",
                "what the files are; Parquet needs a Python with the package duckdb",
                offsetof(struct export_values, as), 0, 0, 0},
        {NULL, 0, "tables", OPTION_TEXT, "NAMES", NULL, "all",
                "only these tables and views, as gap,v_cell; docs/SCHEMA.md has them",
                offsetof(struct export_values, tables), 0, 0, 0},
        {NULL, 0, "python", OPTION_TEXT, "PYTHON", NULL, "python3", "the Python that has duckdb",
                offsetof(struct export_values, python), 0, 0, 0},
        OPTIONS_COMMON(struct export_values, common, "DIR",
                "directory of the files; is not there yet, or is empty", NULL),
        {.name = NULL}};

static const char *const export_usage[] = {
        "export RUN.db -o DIR [--as parquet|csv] [--tables NAMES] [--python PYTHON]", NULL};

static const char *const export_examples[] = {
        "upgate export run.db -o run && duckdb -c \"SELECT * FROM 'run/v_cell.parquet'\"",
        "every table and view, a Parquet file each",
        "upgate export run.db -o run --python venv/bin/python",
        "by the DuckDB of a virtual environment (pip install duckdb)",
        "upgate export run.db -o run --as csv --tables v_step,v_cell",
        "two views as CSV, which needs nothing else",
        "upgate export run.db -o run --format json | jq '.tables[] | select(.rows > 0)'",
        "for a script",
        NULL,
};

static const char export_exit_codes[] =
        "  0  written, all of it\n"
        "  2  usage, not a store, an unknown table, a directory that is not empty, no DuckDB; nothing written\n"
        "  4  operational failure: no permission, disk full, a damaged store, one still being written\n";

static volatile sig_atomic_t export_signal;

static void export_on_signal(int number)
{
    export_signal = number;
}

// Who started us with one of them ignored meant it.
static void export_catch_signals(void)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct sigaction old, action = {.sa_handler = export_on_signal};
        if (sigaction(numbers[i], NULL, &old) < 0 || old.sa_handler != SIG_IGN)
            sigaction(numbers[i], &action, NULL);
    }
}

static void export_print_json(const struct export_opts *opts, const struct tables *tables)
{
    json_t *document = json_object(), *list = json_array();
    for (size_t i = 0; i < tables->count; i++) {
        const struct table *table = &tables->items[i];
        json_array_append_new(list,
                json_pack("{ss,ss,sI,sI}", "name", table->name, "kind",
                        table->view ? "view" : "table", "rows", (json_int_t)table->rows, "bytes",
                        (json_int_t)table->bytes));
    }
    json_object_set_new(document, "schema", json_string("upgate.export/1"));
    json_object_set_new(document, "directory", render_json_text(opts->dir));
    json_object_set_new(document, "as", json_string(opts->parquet ? "parquet" : "csv"));
    json_object_set_new(document, "tables", list);
    json_dumpf(document, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(document);
}

static void export_print(const struct tables *tables)
{
    int width = (int)strlen("table");
    for (size_t i = 0; i < tables->count; i++)
        width = (int)strlen(tables->items[i].name) > width ? (int)strlen(tables->items[i].name)
                                                           : width;
    printf("%-*s  %12s  %12s\n", width, "table", "rows", "bytes");
    for (size_t i = 0; i < tables->count; i++)
        printf("%-*s  %12lld  %12lld\n", width, tables->items[i].name,
                (long long)tables->items[i].rows, (long long)tables->items[i].bytes);
}

// One line for all: a store that has them has them everywhere.
static void export_warn(const struct tables *tables)
{
    const char *first = NULL;
    int64_t odd = 0;
    for (size_t i = 0; i < tables->count; i++) {
        odd += tables->items[i].odd;
        first = !first && tables->items[i].odd ? tables->items[i].name : first;
    }
    if (first)
        log_warn(
                "%lld texts, the first of them in %s, are not UTF-8 or have a NUL: '?' stands for each such byte",
                (long long)odd, first);
}

static int export_go(const struct export_values *values, const char *path, struct error *err)
{
    const struct export_opts opts = {.store = path,
            .dir = values->common.output,
            .wanted = values->tables,
            .parquet = strcmp(values->as, "parquet") == 0,
            .python = values->python,
            .dry_run = values->common.dry_run,
            .stop = &export_signal};
    struct tables tables;
    if (!opts.dir)
        return error_set(err, -EINVAL,
                "nowhere to write: -o wants a directory, which is not there yet or is empty");
    export_catch_signals();
    int rc = export_run(&opts, &tables, err);
    if (rc == 0)
        export_warn(&tables);
    if (rc == 0 && opts.dry_run)
        log_info("would write %zu files to '%s'", tables.count, opts.dir);
    else if (rc == 0 && strcmp(values->common.format, "json") == 0)
        export_print_json(&opts, &tables);
    else if (rc == 0)
        export_print(&tables);
    tables_free(&tables);
    return rc;
}

static int cmd_export(int argc, char **argv)
{
    struct export_values values = {.as = "parquet", .common = OPTIONS_COMMON_DEFAULT};
    struct options_rest rest = {0};
    struct error err = {0};
    int rc = program_parse(&verb_export, argc, argv, &values, &values.common, &rest, &err);
    if (rc > 0)
        return EXIT_CODE_PASS;
    if (rc == 0)
        rc = export_go(&values, rest.positional[0], &err);
    return program_judge(rc, EXIT_CODE_PASS, &err);
}

const struct verb verb_export = {
        .name = "export",
        .summary =
                "Write the tables of a store as Parquet or CSV, for pandas, polars, DuckDB and warehouses.",
        .usage = export_usage,
        .options = export_options,
        .examples = export_examples,
        .exit_codes = export_exit_codes,
        .positional_min = 1,
        .positional_max = 1,
        .run = cmd_export,
};
