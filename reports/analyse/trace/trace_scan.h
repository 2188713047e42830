// SPDX-License-Identifier: Apache-2.0
// All rows of a table of integers, in the order of the file, fast: SQLite's pages are read as they
// are (the file format is documented and stable), which takes 15 ns a row where sqlite3_step and
// five columns take 210. Where the pages do not say what the connection sees (temporary, in a
// transaction, a write-ahead log, damaged) plain SQL reads. A column that ends in _ns is in its
// range (tracer/store/ranges.h), or scan_table() says -EBADMSG. One owner thread.
#ifndef UPGATE_DIFF_LAUNCH_TRACE_SCAN_H
#define UPGATE_DIFF_LAUNCH_TRACE_SCAN_H

#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "tracer/store/store.h"

enum { SCAN_COLUMNS_MAX = 8 };

struct scan_row {
    int64_t values[SCAN_COLUMNS_MAX]; // of column i; 0 where it is NULL, which bit i of nulls says
    uint32_t nulls;
};

struct scan {
    const char *table;   // with rowids, no column is one
    const char *columns; // its first columns, in its order, as in SQL: "start_ns, dur_ns"
    uint32_t column_count;
    // Up to a page at a time: of ten million rows a call a row is a fifth of the time.
    void (*rows)(void *arg, const struct scan_row *rows, size_t count);
    void (*restart)(void *arg); // forget all rows: they come again
    // Which recording the row belongs to; 0: not known. Rows of a recording lie together, as they
    // are merged shard by shard: what lies between rows of one other recording is left out. NULL:
    // every row is wanted.
    int64_t (*owner)(void *arg, const int64_t *values);
    int64_t wanted; // recording
    void *arg;
};

int scan_table(struct store *store, const struct scan *scan, struct error *err);

#endif
