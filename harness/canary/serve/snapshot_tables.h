// SPDX-License-Identifier: Apache-2.0
// The tables of a store into a snapshot; called by snapshot.c inside a transaction. Texts become
// valid UTF-8 without control characters: they come from plans and other processes, and go into
// JSON, labels and terminals.
#ifndef UPGATE_HARNESS_CANARY_SERVE_SNAPSHOT_TABLES_H
#define UPGATE_HARNESS_CANARY_SERVE_SNAPSHOT_TABLES_H

#include "harness/canary/serve/snapshot.h"
#include "tracer/store/store.h"

// Requests of each stage and arm, added up as far as second `last_s`, arm `last_arm`: a day has
// 172,800 rows with a histogram each, which nobody reads again every second.
struct snapshot_sum {
    int64_t stage;
    struct snapshot_counts arms[SNAPSHOT_ARMS];
};
struct snapshot_sums { // `= {0}` is empty
    struct snapshot_sum *stages;
    int count;
    int64_t last_s, last_arm; // 0: nothing was read
};
void snapshot_sums_clear(struct snapshot_sums *sums);
// Adds the rows that are new. Outside of a transaction.
int snapshot_load_sums(struct store *store, struct snapshot_sums *sums, struct error *err);

// These two within one, which is short: a controller waits for its readers.
int snapshot_load_rollout(struct store *store, const struct snapshot_sums *sums,
        struct snapshot *snapshot, struct error *err);
int snapshot_load_run(struct store *store, struct snapshot *snapshot, struct error *err);

// Columns of the row at hand. NULL text, NaN, -1: SQL NULL, or of another type.
const char *snapshot_text(struct snapshot *snapshot, sqlite3_stmt *stmt, int column);
double snapshot_double(sqlite3_stmt *stmt, int column);
int64_t snapshot_int(sqlite3_stmt *stmt, int column);

#endif
