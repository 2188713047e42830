// SPDX-License-Identifier: Apache-2.0
// Between the files of the store.
#ifndef UPGATE_TRACER_STORE_INSIDE_H
#define UPGATE_TRACER_STORE_INSIDE_H

#include <stdbool.h>

#include "tracer/store/ranges.h"
#include "tracer/store/store.h"

enum {
    // distinct SQL texts a process uses: upgate ab with its diff some 100
    STORE_STATEMENTS_MAX = 256,
    STORE_DAMAGE_BYTES = 96
};

struct store_statement {
    char *sql;
    sqlite3_stmt *stmt;
    struct ranges ranges; // of its result
};

struct store {
    char damage[STORE_DAMAGE_BYTES]; // what a row should have and has not; "" = nothing
    sqlite3 *db;
    char *path;
    struct store_statement statements[STORE_STATEMENTS_MAX];
    int statement_count;
    int stepped;         // statement that was stepped last
    bool own_views;      // the file's are ours, or temporary ones stand in their place
    bool empty;          // made by us, and nothing was committed yet
    struct error unread; // the first failure of a read whose caller asked for no error
};

// SQLite's answer as -errno and a sentence that says what to do.
int store_error(struct store *store, struct error *err, const char *what);

#endif
