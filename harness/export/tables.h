// SPDX-License-Identifier: Apache-2.0
// What of a store is exported: its tables and its stable views v_*, by the schema of this program.
// Names, columns and types are ours: no word of them comes from a file.
#ifndef UPGATE_HARNESS_EXPORT_TABLES_H
#define UPGATE_HARNESS_EXPORT_TABLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

enum table_type { TABLE_INTEGER, TABLE_REAL, TABLE_TEXT, TABLE_BLOB, TABLE_TYPE_COUNT };

struct table_column {
    char *name;
    enum table_type type;
};

struct table {
    char *name;
    bool view;
    struct table_column *columns;
    size_t column_count;
    // What rows_write() found.
    int64_t rows, bytes;
    int64_t line_bytes; // the longest line
    int64_t odd;        // texts that were not UTF-8, or had a NUL
};

struct tables {
    struct table *items; // tables, then views; each in the order of the schema
    size_t count;
};

// wanted: "gap,v_cell"; NULL: all. -EINVAL with the nearest name for one that there is not.
// tables_free in any case.
ERROR_CHECKED int tables_load(const char *wanted, struct tables *ret, struct error *err);
void tables_free(struct tables *tables);
const struct table *tables_find(const struct tables *tables, const char *name); // NULL: none

#endif
