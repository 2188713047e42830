// SPDX-License-Identifier: Apache-2.0
// The store: one SQLite file a run. Opens, checks magic and version, migrates, hands out the
// connection. Writers use transactions (store_begin/commit); the verdict's is fsync'ed. Readers
// never write. A store has one owner thread. Errors name the file and say what to do (locked, full
// disk, newer version, not a store).
#ifndef UPGATE_TRACER_STORE_H
#define UPGATE_TRACER_STORE_H

#include <sqlite3.h>
#include <stdint.h>

#include "common/error.h"

struct store;

enum store_mode {
    STORE_CREATE, // must not exist, or be empty
    STORE_WRITE,  // exists; refused while another live upgate writes it; an older version is
                  // migrated
    STORE_BESIDE, // as STORE_WRITE, beside a live writer that expects it: one row in a transaction
                  // of its own
    STORE_READ    // works on a read-only file or directory; an older version looks like the present
                  // one
};

ERROR_CHECKED int store_open(
        const char *path, enum store_mode mode, struct store **ret_store, struct error *err);
void store_close(struct store *store); // NULL ok; rolls back an open transaction
sqlite3 *store_db(struct store *store);
const char *store_path(const struct store *store);
// From now on the views v_* are those of this program, whatever the file has under their names: who
// reads all of them may not run somebody else's. Of a store that is open for reading.
ERROR_CHECKED int store_use_own_views(struct store *store, struct error *err);
// The schema of this program in an empty database in memory, for who asks it for names and types.
// The caller closes it.
ERROR_CHECKED int store_open_schema(sqlite3 **ret, struct error *err);

// -EBUSY while another upgate that lives is the writer of this store (table run). Asked inside a
// transaction the answer stays true until its end.
ERROR_CHECKED int store_check_writer(struct store *store, struct error *err);
// -EINVAL where the store is a rollout's: its verbs are those of `upgate canary`.
ERROR_CHECKED int store_check_run(struct store *store, struct error *err);
ERROR_CHECKED int store_begin(struct store *store, struct error *err);
// -ENOSPC, -EBUSY, -EROFS, -EIO in words
ERROR_CHECKED int store_commit(struct store *store, struct error *err);
void store_rollback(struct store *store);

// One statement with bound values. `types` has a letter a parameter: i int64_t, I const int64_t *
// (NULL pointer = SQL NULL), d double (NaN = SQL NULL), s const char * (NULL = SQL NULL), b const
// void *, size_t.
ERROR_CHECKED int store_exec(
        struct store *store, struct error *err, const char *sql, const char *types, ...);
// As store_exec, for INSERT: *ret_id gets the rowid.
ERROR_CHECKED int store_insert(struct store *store, int64_t *ret_id, struct error *err,
        const char *sql, const char *types, ...);
// A prepared, cached statement with its parameters bound as above; step it with store_step. NULL on
// error.
sqlite3_stmt *store_query(
        struct store *store, struct error *err, const char *sql, const char *types, ...);
// 1 = a row, 0 = done (the statement is reset), -errno = failed. Of NULL why store_query() gave
// none, which is in `err`. -EBADMSG: the row holds a time or a count out of its range
// (tracer/store/ranges.h); so says every later read of this store.
ERROR_CHECKED int store_step(struct store *store, sqlite3_stmt *stmt, struct error *err);
// Behind the row that has been read: 0, it was the only one; -EBADMSG: it was not. The statement is
// reset.
ERROR_CHECKED int store_step_end(struct store *store, sqlite3_stmt *stmt, struct error *err);
// The text of a column that a sound store always has; valid until the next step. Where there is
// none: "", and the next store_step() of this store, whatever the statement, says -EBADMSG: one
// check for all columns of a row.
const char *store_text(struct store *store, sqlite3_stmt *stmt, int column);
// The number of a column that may be NULL: then NAN, or `absent`.
double store_double(sqlite3_stmt *stmt, int column);
int64_t store_int64(sqlite3_stmt *stmt, int column, int64_t absent);
// -EBADMSG and the sentence for it, for a reader that found what no sound store holds.
int store_damaged(const struct store *store, struct error *err, const char *what);
// Single value queries; *ret untouched and -ENOENT when there is no row or it is NULL.
int store_get_int(struct store *store, int64_t *ret, struct error *err, const char *sql,
        const char *types, ...);
// caller frees; NULL if none
char *store_get_text(struct store *store, const char *sql, const char *types, ...);
// 0, or the first failure of a read that had no error to tell it by (store_get_text, or err NULL):
// what it gave as "none" was never seen. Every later store_step and store_commit of this store says
// it too, until a rollback. Whoever has read all that a verdict or a report needs asks before
// telling it.
ERROR_CHECKED int store_failed(struct store *store, struct error *err);

// SQL: the number of a collective in its communicator. NCCL counts each function by itself, so the
// 7th of two functions are two.
#define STORE_NCCL_NUMBER(op) \
    "((" #op ".sequence & 0xfffffffffffffff) * 8 + CASE " #op \
    ".function WHEN 'AllReduce' THEN 0 WHEN 'AllGather' THEN 1 WHEN 'ReduceScatter' THEN 2 " \
    "WHEN 'Broadcast' THEN 3 WHEN 'Reduce' THEN 4 WHEN 'AlltoAll' THEN 5 ELSE 7 END)"

ERROR_CHECKED int store_note(struct store *store, struct error *err, const char *level,
        const char *fmt, ...) __attribute__((format(printf, 4, 5)));
// seen and kept: -1 = not told.
ERROR_CHECKED int store_ledger(struct store *store, const int64_t *launch_id, const char *producer,
        const char *kind, int64_t seen, int64_t kept, int64_t dropped, int breach,
        const char *detail, struct error *err);

#endif
