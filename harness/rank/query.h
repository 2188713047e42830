// SPDX-License-Identifier: Apache-2.0
// `upgate query`: SQL over the shards of one run and restart, without merging them. One SELECT is
// run on each shard, by several threads; its rows become the table `map` of a database of its own,
// behind the shard's rank and node; a second SELECT is run on that. Shards are only read. Rows lie
// in the order of ranks, and within a rank in that of its SELECT, whichever thread was first: sums
// come out the same in each run.
#ifndef UPGATE_HARNESS_RANK_QUERY_H
#define UPGATE_HARNESS_RANK_QUERY_H

#include <sqlite3.h>

#include "harness/rank/merge.h"

struct query_opts {
    const char *dir, *run; // run: NULL, the only one
    int64_t restart;       // -1: the last one
    const char *map;       // of a shard
    const char *reduce;    // of the table map; NULL: all of it
};

struct query;

// 0, ranks may be missing: query_shards says which. -EINVAL: as merge_find, or one of the texts is
// not one SELECT that SQLite takes. Else -errno. Until query_free in any case; *ret is always made.
int query_new(const struct query_opts *opts, struct query **ret, struct error *err);
void query_free(struct query *query); // NULL ok
// Whose shards they are. Those that could not be read are among the missing.
const struct merge_result *query_shards(const struct query *query);
// The result: its columns by sqlite3_column_…, its rows by query_step. Column names differ from
// each other.
sqlite3_stmt *query_rows(const struct query *query);
// 1: a row, 0: no more of them, -errno.
int query_step(struct query *query, struct error *err);

#endif
