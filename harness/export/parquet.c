// SPDX-License-Identifier: Apache-2.0
// The Python child: asked whether it can, then told what to make.
#include "harness/export/parquet.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include "common/child.h"
#include "common/clock.h"
#include "common/strings.h"

enum { PARQUET_NO_DUCKDB = 3 }; // EXIT_NO_DUCKDB of parquet.py
#define PARQUET_CHECK_NS \
    60000000000LL // an import from a network file system that nobody has read yet
#define PARQUET_MAKE_NS (86400000000000LL) // a day: only so that nothing waits for ever

extern const char parquet_source[]; // parquet.py

static const char *parquet_python(const char *python)
{
    return python ? python : "python3";
}

// dir: NULL, the check.
static int parquet_run(const char *python, const char *dir, const volatile sig_atomic_t *stop,
        struct child_end *ret, struct error *err)
{
    mode_t mask = umask(077);
    umask(mask);
    char octal[16];
    snprintf(octal, sizeof octal, "%o", geteuid() == 0 ? 077u : (unsigned)mask);
    char *argv[] = {(char *)python, "-I", "-c", (char *)parquet_source, (char *)dir, octal, NULL};
    const struct child_opts opts = {
            .deadline_ns = clock_monotonic_ns() + (dir ? PARQUET_MAKE_NS : PARQUET_CHECK_NS),
            .stop = stop};
    return child_run(argv, &opts, ret, err);
}

int parquet_check(const char *python, const volatile sig_atomic_t *stop, struct error *err)
{
    static const char help[] =
            "install it there (pip install duckdb), name another Python by --python, or take --as csv";
    struct child_end end = {0};
    char *found = child_find_program(parquet_python(python));
    if (!found)
        return error_set(err, -EINVAL,
                "Parquet is made by DuckDB, and there is no Python '%s': name one by --python, or take --as csv",
                parquet_python(python));
    int rc = parquet_run(found, NULL, stop, &end, err);
    if (rc == 0 && end.code == PARQUET_NO_DUCKDB)
        rc = error_set(err, -EINVAL, "Parquet is made by DuckDB, which '%s' lacks (%s): %s", found,
                end.said, help);
    else if (rc == 0 && (child_judge(&end, found, err) || !end.output[0])) // it prints a version
        rc = error_set(err, -EINVAL, "'%s' is no Python that works: exit status %d%s%s; %s", found,
                end.code, end.said[0] ? ": " : "", end.said, help);
    free(end.output);
    free(found);
    return rc;
}

static json_t *parquet_describe(const struct table *table)
{
    static const char *const types[TABLE_TYPE_COUNT] = {"BIGINT", "DOUBLE", "VARCHAR", "BLOB"};
    json_t *columns = json_array();
    for (size_t i = 0; i < table->column_count; i++)
        json_array_append_new(
                columns, json_pack("[ss]", table->columns[i].name, types[table->columns[i].type]));
    return json_pack("{ss,sI,sI,so}", "name", table->name, "rows", (json_int_t)table->rows,
            "line_bytes", (json_int_t)table->line_bytes, "columns", columns);
}

static int parquet_write_tables(int dir_fd, const struct tables *tables, struct error *err)
{
    json_t *list = json_array();
    for (size_t i = 0; i < tables->count; i++)
        json_array_append_new(list, parquet_describe(&tables->items[i]));
    int fd = openat(
            dir_fd, "tables.json", O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    int rc = fd < 0 ? -errno : json_dumpfd(list, fd, JSON_COMPACT) ? -EIO : 0;
    if (fd >= 0 && close(fd) < 0 && rc == 0)
        rc = -errno;
    json_decref(list);
    return rc ? error_set(err, rc, "failed to write tables.json: %s", strerror(-rc)) : 0;
}

int parquet_make(const char *python, const char *dir, int dir_fd, const struct tables *tables,
        const volatile sig_atomic_t *stop, struct error *err)
{
    struct child_end end = {0};
    int rc = parquet_write_tables(dir_fd, tables, err);
    if (rc)
        return rc;
    char *found = child_find_program(parquet_python(python));
    rc = parquet_run(found ? found : parquet_python(python), dir, stop, &end, err);
    if (rc == 0 && child_judge(&end, "DuckDB", err))
        rc = error_prefix(err, "failed to make Parquet");
    free(end.output);
    free(found);
    return rc;
}
