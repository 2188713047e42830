// SPDX-License-Identifier: Apache-2.0
// Rows of other nodes. Times of a row are lengths, or since the start of its launch: the clocks of
// nodes are never compared.
#include "harness/run/nodes/peer_rows.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/containers/vector.h"
#include "common/strings.h"

// Tables of a launch: the first column is its id, the second a rank where it is named so.
static const struct peer_table {
    const char *name, *columns;
    bool has_rank;
} peer_tables[] = {
        {"launch_rank", "launch_id, rank, pid", true},
        {"step", "launch_id, rank, idx, begin_ns, dur_ns, late_ns, samples", true},
        {"loss", "launch_id, rank, step, value, bits", true},
        {"tensor", "launch_id, rank, step, name, dtype, count, digest, data, sketch", true},
        {"step_phase", "launch_id, rank, name, count, total_ns", true},
        {"launch_value", "launch_id, rank, name, value", true},
        {"ledger", "launch_id, producer, kind, seen, kept, dropped, breach, detail", false},
};

static int peer_insert_error(struct store *store, struct error *err)
{
    int code = sqlite3_errcode(store_db(store)),
        rc = code == SQLITE_FULL  ? -ENOSPC
            : code == SQLITE_BUSY ? -EBUSY
                                  : -EIO;
    return error_set(err, rc, "failed to write to '%s': %s", store_path(store),
            sqlite3_errmsg(store_db(store)));
}

static int peer_copy(struct store *store, int64_t launch_id, struct store *peer,
        int64_t peer_launch_id, int64_t rank_shift, const struct peer_table *table,
        struct error *err)
{
    char *select = xasprintf("SELECT %s FROM %s WHERE launch_id = ?", table->columns, table->name);
    struct strbuf insert = {0};
    strbuf_add(&insert, "INSERT OR REPLACE INTO %s (%s) VALUES (?", table->name, table->columns);
    for (const char *at = strchr(table->columns, ','); at; at = strchr(at + 1, ','))
        strbuf_add(&insert, ", ?");
    strbuf_add(&insert, ")");
    sqlite3_stmt *from = store_query(peer, err, select, "i", peer_launch_id), *into = NULL;
    int rc = from ? 0 : -EIO;
    if (rc == 0 && sqlite3_prepare_v2(store_db(store), insert.text, -1, &into, NULL) != SQLITE_OK)
        rc = peer_insert_error(store, err);
    while (rc == 0 && (rc = store_step(peer, from, err)) == 1) {
        rc = 0;
        for (int i = 0; i < sqlite3_column_count(from); i++)
            sqlite3_bind_value(into, i + 1, sqlite3_column_value(from, i));
        sqlite3_bind_int64(into, 1, launch_id);
        if (table->has_rank)
            sqlite3_bind_int64(into, 2, sqlite3_column_int64(from, 1) + rank_shift);
        if (sqlite3_step(into) != SQLITE_DONE)
            rc = peer_insert_error(store, err);
        sqlite3_reset(into);
    }
    if (from)
        sqlite3_reset(from);
    sqlite3_finalize(into);
    strbuf_free(&insert);
    free(select);
    return rc;
}

// Ranks that no launcher has numbered are counted on each node from 0: then those of this one
// follow those that are there.
static int peer_rank_shift(struct store *store, int64_t launch_id, struct store *peer,
        int64_t peer_launch_id, int64_t *ret, struct error *err)
{
    sqlite3_stmt *stmt = store_query(peer, err,
            "SELECT rank FROM launch_rank WHERE launch_id = ? ORDER BY rank", "i", peer_launch_id);
    int64_t last = -1, first = -1, taken = 0;
    int rc = stmt ? store_get_int(store, &last, NULL,
                            "SELECT max(rank) FROM launch_rank WHERE launch_id = ?", "i", launch_id)
                  : -EIO;
    rc = rc == -ENOENT ? 0 : rc;
    while (rc == 0 && (rc = store_step(peer, stmt, err)) == 1) {
        int64_t rank = sqlite3_column_int64(stmt, 0), there = 0;
        first = first < 0 ? rank : first;
        rc = store_get_int(store, &there, err,
                "SELECT count(*) FROM launch_rank WHERE launch_id = ? AND rank = ?", "ii",
                launch_id, rank);
        taken += there;
    }
    *ret = taken ? last + 1 - first : 0;
    return rc;
}

enum { PEER_COLUMNS_MAX = 8 };

// Of a row from column 0 on; told: to be bound, NULL where it is NULL.
static void peer_integers(sqlite3_stmt *stmt, int count, int64_t values[PEER_COLUMNS_MAX],
        const int64_t *told[PEER_COLUMNS_MAX])
{
    for (int i = 0; i < count; i++) {
        values[i] = sqlite3_column_int64(stmt, i);
        told[i] = sqlite3_column_type(stmt, i) == SQLITE_NULL ? NULL : &values[i];
    }
}

static int peer_take_launch(struct store *store, int64_t launch_id, struct store *peer,
        int64_t peer_launch_id, struct error *err)
{
    sqlite3_stmt *stmt = store_query(peer, err,
            "SELECT active_ns, cpu_ns, peak_memory_bytes, peak_gpu_memory_bytes, steps, ranks, dropped "
            "FROM launch WHERE id = ?",
            "i", peer_launch_id);
    if (!stmt)
        return -EIO;
    int rc = store_step(peer, stmt, err);
    if (rc != 1)
        return rc < 0 ? rc : store_damaged(peer, err, "a launch is missing");
    int64_t values[PEER_COLUMNS_MAX];
    const int64_t *told[PEER_COLUMNS_MAX];
    peer_integers(stmt, 7, values, told);
    rc = store_step_end(peer, stmt, err);
    return rc
            ? rc
            : store_exec(store, err,
                      "UPDATE launch SET active_ns = max(active_ns, ?2), held_ns = held_ns + active_ns - max(active_ns, ?2), "
                      "cpu_ns = cpu_ns + ?3, peak_memory_bytes = max(peak_memory_bytes, ?4), "
                      "peak_gpu_memory_bytes = max(peak_gpu_memory_bytes, ?5), steps = min(steps, ?6), ranks = ranks + ?7, "
                      "dropped = dropped + ?8 WHERE id = ?1",
                      "iIIIIIII", launch_id, told[0], told[1], told[2], told[3], told[4], told[5],
                      told[6]);
}

// --- blocks --------------------------------------------------------------------------------------

// A couple that one of the nodes has no record of is none.
static int peer_drop_couples(struct store *store, int64_t pair_id, struct store *peer,
        int64_t peer_pair_id, struct error *err)
{
    int64_t *gone = NULL;
    size_t count = 0;
    sqlite3_stmt *stmt = store_query(
            store, err, "SELECT DISTINCT couple FROM block WHERE pair_id = ?", "i", pair_id);
    int rc = stmt ? 0 : -EIO;
    while (rc == 0 && (rc = store_step(store, stmt, err)) == 1) {
        int64_t couple = sqlite3_column_int64(stmt, 0), sides = 0;
        rc = store_get_int(peer, &sides, err,
                "SELECT count(*) FROM block WHERE pair_id = ? AND couple = ?", "ii", peer_pair_id,
                couple);
        if (rc == 0 && sides != 2)
            vector_push(gone, count, couple);
    }
    for (size_t i = 0; i < count && rc == 0; i++)
        rc = store_exec(store, err, "DELETE FROM block WHERE pair_id = ? AND couple = ?", "ii",
                pair_id, gone[i]);
    free(gone);
    return rc;
}

static int peer_take_blocks(struct store *store, int64_t pair_id, struct store *peer,
        int64_t peer_pair_id, struct error *err)
{
    sqlite3_stmt *stmt = store_query(peer, err,
            "SELECT couple, side, active_ns, cpu_ns, step_cpu_ns, wait_ns, foreign_ns, steal_ns "
            "FROM block WHERE pair_id = ?",
            "i", peer_pair_id);
    int rc = stmt ? 0 : -EIO;
    while (rc == 0 && (rc = store_step(peer, stmt, err)) == 1) {
        int64_t values[PEER_COLUMNS_MAX];
        const int64_t *told[PEER_COLUMNS_MAX];
        peer_integers(stmt, 8, values, told);
        rc = store_exec(store, err,
                "UPDATE block SET active_ns = ?4, cpu_ns = ?5, step_cpu_ns = ?6, wait_ns = ?7, foreign_ns = ?8, steal_ns = ?9 "
                "WHERE pair_id = ?1 AND couple = ?2 AND side = ?3 AND active_ns < ?4",
                "iiiIIIIII", pair_id, values[0], values[1], told[2], told[3], told[4], told[5],
                told[6], told[7]);
    }
    return rc < 0 ? rc : peer_drop_couples(store, pair_id, peer, peer_pair_id, err);
}

int peer_rows_take(struct store *store, int64_t pair_id, struct store *peer, int64_t peer_pair_id,
        struct error *err)
{
    int rc = 0;
    for (int64_t side = 0; side < 2 && rc == 0; side++) {
        static const char launch[] = "SELECT id FROM launch WHERE pair_id = ? AND side = ?";
        int64_t launch_id = 0, peer_launch_id = 0, shift = 0;
        rc = store_get_int(store, &launch_id, err, launch, "ii", pair_id, side);
        if (rc == 0)
            rc = store_get_int(peer, &peer_launch_id, err, launch, "ii", peer_pair_id, side);
        if (rc == -ENOENT) { // of a pair of one side, or one that failed
            rc = 0;
            continue;
        }
        if (rc == 0)
            rc = peer_rank_shift(store, launch_id, peer, peer_launch_id, &shift, err);
        for (size_t i = 0; i < sizeof peer_tables / sizeof *peer_tables && rc == 0; i++)
            rc = peer_copy(store, launch_id, peer, peer_launch_id, shift, &peer_tables[i], err);
        if (rc == 0)
            rc = peer_take_launch(store, launch_id, peer, peer_launch_id, err);
    }
    return rc ? rc : peer_take_blocks(store, pair_id, peer, peer_pair_id, err);
}
