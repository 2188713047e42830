// SPDX-License-Identifier: Apache-2.0
// The store: opening, versions and transactions over SQLite. Reads and writes RUN.db; knows the
// schema's version but not its meaning. One owner thread. Statements are in statements.c.
//
// The journal is SQLite's rollback journal with synchronous=FULL: a commit happens once a pair
// (seconds apart), so its cost does not matter, and the store stays one file that can be copied and
// read from a read-only directory, which a write-ahead log would not allow.
#include "tracer/store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/proc.h"
#include "common/strings.h"
#include "tracer/store/inside.h"
#include "tracer/store/migrate.h"

enum {
    STORE_VERSION = 12,       // PRAGMA user_version of contracts/schema.sql
    STORE_MAGIC = 0x55504754, // PRAGMA application_id, 'UPGT'
    STORE_BUSY_MS = 5000      // a reader holds its lock for milliseconds; 5 s means somebody stays
};

extern const char store_schema_sql[];

// Before its first commit a new store holds no run that could go on.
static const char *store_after_full(const struct store *store)
{
    return store->empty
            ? "free space and start again, or name another place with -o"
            : "what was committed before is readable; free space and go on with --resume";
}

int store_error(struct store *store, struct error *err, const char *what)
{
    int rc = sqlite3_extended_errcode(store->db);
    const char *path = store->path;
    switch (rc & 0xff) {
    case SQLITE_FULL:
        return error_set(err, -ENOSPC, "failed to %s '%s': the disk is full; %s", what, path,
                store_after_full(store));
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return error_set(err, -EBUSY,
                "failed to %s '%s': the database is locked; another upgate run or sqlite3 may "
                "hold it",
                what, path);
    case SQLITE_READONLY:
        return error_set(err, -EROFS,
                "failed to %s '%s': the file or its directory is read-only; name another "
                "place with -o",
                what, path);
    case SQLITE_CANTOPEN:
        return error_set(err, -ENOENT,
                "failed to %s '%s': cannot open it; does the directory exist, and may you "
                "read and write it?",
                what, path);
    case SQLITE_NOTADB:
        return error_set(err, -EINVAL, "failed to %s '%s': not a store of upgate, or damaged (%s)",
                what, path, sqlite3_errmsg(store->db));
    case SQLITE_CORRUPT:
        return error_set(err, -EBADMSG, "failed to %s '%s': the store is damaged: %s", what, path,
                sqlite3_errmsg(store->db));
    case SQLITE_IOERR: {
        int system = sqlite3_system_errno(store->db);
        if (system == ENOSPC || system == EFBIG || system == EDQUOT)
            return error_set(err, -ENOSPC, "failed to %s '%s': the disk is full; %s", what, path,
                    store_after_full(store));
        return error_set(err, -EIO, "failed to %s '%s': input/output error (%s)", what, path,
                system ? strerror(system) : sqlite3_errmsg(store->db));
    }
    default:
        return error_set(err, -EIO, "failed to %s '%s': %s", what, path, sqlite3_errmsg(store->db));
    }
}

static int store_pragma_int(struct store *store, const char *sql, int64_t *ret, struct error *err)
{
    sqlite3_stmt *stmt = NULL;
    int rc = sqlite3_prepare_v2(store->db, sql, -1, &stmt, NULL);
    if (rc == SQLITE_OK && sqlite3_step(stmt) == SQLITE_ROW) {
        *ret = sqlite3_column_int64(stmt, 0);
        sqlite3_finalize(stmt);
        return 0;
    }
    int code = store_error(store, err, "read");
    sqlite3_finalize(stmt);
    return code;
}

static int store_exec_plain(
        struct store *store, const char *sql, const char *what, struct error *err)
{
    if (sqlite3_exec(store->db, sql, NULL, NULL, NULL) == SQLITE_OK)
        return 0;
    return store_error(store, err, what);
}

// Is the process that wrote this store last still alive, and neither another with its pid nor a
// dead one that nobody has waited for yet?
static bool store_writer_alive(struct store *store)
{
    int64_t pid = 0, start = 0;
    if (store_get_int(store, &pid, NULL, "SELECT writer_pid FROM run", "") ||
            store_get_int(store, &start, NULL, "SELECT writer_start FROM run", ""))
        return false;
    struct proc_stat stat;
    return pid > 0 && pid <= INT32_MAX && pid != getpid() && !proc_stat_of((pid_t)pid, &stat) &&
            !proc_stat_ended(&stat) && proc_same_start(stat.start_ticks, (uint64_t)start);
}

int store_check_writer(struct store *store, struct error *err)
{
    if (!store_writer_alive(store))
        return 0;
    return error_set(err, -EBUSY,
            "'%s' is being written by another upgate that is still alive; wait for it, or end "
            "it first",
            store->path);
}

int store_check_run(struct store *store, struct error *err)
{
    int64_t rollouts = 0;
    int rc = store_get_int(
            store, &rollouts, err, "SELECT count(*) FROM run WHERE kind = 'rollout'", "");
    if (rc == 0 && rollouts)
        rc = error_set(err, -EINVAL,
                "'%s' is the store of a rollout, not of a run: `upgate canary status` and `upgate canary report` read it",
                store->path);
    return rc;
}

static int store_create_schema(struct store *store, struct error *err)
{
    int rc = store_exec_plain(store, "BEGIN IMMEDIATE", "create", err);
    if (rc)
        return rc;
    int64_t tables = 0; // another upgate may have been quicker since we looked
    rc = store_pragma_int(store, "SELECT count(*) FROM sqlite_master", &tables, err);
    if (rc == 0 && tables)
        rc = error_set(err, -EBUSY, "'%s' is taken by another upgate; name another file with -o",
                store->path);
    if (rc == 0)
        rc = store_exec_plain(store, store_schema_sql, "create", err);
    if (rc == 0)
        rc = store_exec_plain(store, "COMMIT", "create", err);
    if (rc)
        sqlite3_exec(store->db, "ROLLBACK", NULL, NULL, NULL);
    return rc;
}

// All objects of a schema as bytes, each value behind its length; empty: they cannot be read.
// strbuf_free() it.
static struct strbuf store_objects(sqlite3 *db)
{
    struct strbuf text = {0};
    sqlite3_stmt *stmt = NULL;
    int step = sqlite3_prepare_v2(db,
            "SELECT name, type, tbl_name, sql FROM sqlite_master ORDER BY name", -1, &stmt, NULL);
    while (stmt && (step = sqlite3_step(stmt)) == SQLITE_ROW)
        for (int i = 0; i < sqlite3_column_count(stmt); i++) {
            const char *value = (const char *)sqlite3_column_text(stmt, i);
            int bytes = sqlite3_column_bytes(stmt, i);
            strbuf_add_bytes(&text, &bytes, sizeof bytes);
            strbuf_add_bytes(&text, value ? value : "", (size_t)bytes);
        }
    sqlite3_finalize(stmt);
    if (step != SQLITE_DONE)
        strbuf_free(&text);
    return text;
}

static struct strbuf store_present; // the objects of a store as we make it; empty: not to be had
static pthread_once_t store_present_once = PTHREAD_ONCE_INIT;
static atomic_uint store_opened; // how many stores this process has looked at

static void store_make_present(void)
{
    sqlite3 *db = NULL;
    if (migrate_open_present(store_schema_sql, &db) == SQLITE_OK)
        store_present = store_objects(db);
    sqlite3_close(db);
}

// Is every object of the file, word for word, one that we make, and none missing? Then SQLite makes
// of it what it makes of ours. That is read in 0.1 ms; asking it what it has made, which resolves
// every view, takes 1.3 ms (both SELECTs by Python, the best of 200).
static bool store_has_our_schema(struct store *store)
{
    pthread_once(&store_present_once, store_make_present);
    struct strbuf objects = store_objects(store->db);
    bool same = objects.len && objects.len == store_present.len &&
            memcmp(objects.text, store_present.text, objects.len) == 0;
    strbuf_free(&objects);
    return same;
}

// A table of ours that is a view, virtual, or has generated columns would be a program of somebody
// else, run by whoever reads the store: it may never end. The user's own views beside our tables
// harm nobody. Asked is what SQLite has made of the schema, not its text, which may say anything.
static int store_check_tables(struct store *store, struct error *err)
{
    static const char sql[] =
            "SELECT name FROM pragma_table_list AS listed WHERE schema = 'main' AND CASE type WHEN 'table' THEN "
            "EXISTS (SELECT 1 FROM pragma_table_xinfo(listed.name) WHERE hidden <> 0) ELSE 1 END";
    sqlite3_stmt *stmt = NULL;
    int rc = 0, step = SQLITE_DONE;
    // What is compared with is made once, which costs more than one look: who opens one store only
    // does without.
    store->own_views = atomic_fetch_add(&store_opened, 1) > 0 && store_has_our_schema(store);
    if (store->own_views)
        return 0;
    if (sqlite3_prepare_v2(store->db, sql, -1, &stmt, NULL) != SQLITE_OK)
        return store_error(store, err, "open");
    while (rc == 0 && (step = sqlite3_step(stmt)) == SQLITE_ROW) {
        const char *name = (const char *)sqlite3_column_text(stmt, 0);
        char *made = xasprintf("CREATE TABLE %s (", name ? name : "");
        if (strcasestr(store_schema_sql, made)) // SQLite finds "NOTE" where we ask for "note"
            rc = error_set(err, -EINVAL,
                    "'%s' is not a store as upgate makes it: '%s' is no table in it", store->path,
                    name);
        free(made);
    }
    if (rc == 0 && step != SQLITE_DONE)
        rc = store_error(store, err, "open");
    sqlite3_finalize(stmt);
    return rc;
}

// *ret_old: of an older version than ours.
static int store_check_version(struct store *store, bool *ret_old, struct error *err)
{
    int64_t magic = 0, version = 0;
    int rc = store_pragma_int(store, "PRAGMA application_id", &magic, err);
    if (rc == 0)
        rc = store_pragma_int(store, "PRAGMA user_version", &version, err);
    if (rc)
        return rc;
    if (magic != STORE_MAGIC)
        return error_set(err, -EINVAL,
                "'%s' is not a store of upgate; expected a file written by `upgate ab` or "
                "`upgate record`",
                store->path);
    if (version > STORE_VERSION)
        return error_set(err, -EINVAL,
                "'%s' has store version %lld; this upgate reads up to %d: use a newer upgate",
                store->path, (long long)version, STORE_VERSION);
    if (version < 1)
        return error_set(err, -EINVAL, "'%s' has store version %lld, which never existed",
                store->path, (long long)version);
    *ret_old = version < STORE_VERSION;
    return store_check_tables(store, err);
}

static int store_migrate(struct store *store, bool temporary, struct error *err)
{
    return migrate(store->db, store_schema_sql, temporary) == SQLITE_OK
            ? 0
            : store_error(store, err, "migrate");
}

static int store_open_create(struct store *store, struct error *err)
{
    int64_t tables = 0;
    store->empty = true;
    int rc = store_pragma_int(store, "SELECT count(*) FROM sqlite_master", &tables, err);
    if (rc)
        return rc;
    // A kill right after the creation leaves a store of ours without a run: nothing to go on with,
    // and nothing to lose.
    int64_t magic = 0, runs = 0;
    bool ours = tables && store_pragma_int(store, "PRAGMA application_id", &magic, NULL) == 0 &&
            magic == STORE_MAGIC;
    if (ours) {
        bool old = false;
        rc = store_check_version(store, &old, err);
        if (rc)
            return rc;
        if (store_pragma_int(store, "SELECT count(*) FROM run", &runs, NULL) == 0 && runs == 0)
            return old ? store_migrate(store, false, err) : 0;
    }
    if (tables)
        return error_set(err, -EINVAL,
                "'%s' exists already; go on with `upgate ab --resume %s`, or name another "
                "file with -o",
                store->path, store->path);
    return store_create_schema(store, err);
}

int store_open(const char *path, enum store_mode mode, struct store **ret_store, struct error *err)
{
    struct store *store = xcalloc(1, sizeof *store);
    store->path = xstrdup(path);
    struct stat info;
    int rc = 0;
    if (mode != STORE_CREATE && stat(path, &info) < 0)
        rc = error_set(err, errno == ENOENT ? -EINVAL : -errno, "failed to open '%s': %s", path,
                strerror(errno));
    else if (mode != STORE_CREATE && info.st_size == 0)
        rc = error_set(err, -EINVAL, "'%s' is empty: not a store of upgate", path);
    if (rc) {
        store_close(store);
        return rc;
    }
    // What root saw of others is not everybody's. Where it is there already, or cannot be made,
    // SQLite has the say.
    int made = mode == STORE_CREATE && geteuid() == 0
            ? open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600)
            : -1;
    if (made >= 0)
        close(made);
    // Readers open for writing too, where they may: a kill -9 can leave a journal that must be
    // rolled back before anything can be read. They are kept from writing by query_only. One thread
    // at a time: SQLite's own locks would be a tenth of the cost of a recorder's row.
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX |
            (mode == STORE_CREATE ? SQLITE_OPEN_CREATE : 0);
    if (sqlite3_open_v2(path, &store->db, flags | SQLITE_OPEN_EXRESCODE, NULL) != SQLITE_OK) {
        rc = store_error(store, err, "open");
        store_close(store);
        return rc;
    }
    sqlite3_busy_timeout(store->db, STORE_BUSY_MS);
    // The schema of a file that came from elsewhere runs no code of its own.
    sqlite3_db_config(store->db, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, NULL);
    sqlite3_db_config(store->db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    bool old = false;
    rc = mode == STORE_CREATE ? store_open_create(store, err)
                              : store_check_version(store, &old, err);
    if (rc == 0 && old && mode == STORE_READ)
        rc = store_migrate(store, true, err);
    store->own_views |= old && mode == STORE_READ;
    if (rc == 0)
        rc = store_exec_plain(store,
                mode == STORE_READ ? "PRAGMA query_only = ON" : "PRAGMA synchronous = FULL", "open",
                err);
    if (rc == 0 && (mode == STORE_WRITE || mode == STORE_BESIDE) &&
            sqlite3_db_readonly(store->db, "main"))
        rc = error_set(err, -EROFS,
                "failed to open '%s': it is read-only; name another place with -o", path);
    if (rc == 0 && mode == STORE_WRITE)
        rc = store_check_writer(store, err);
    if (rc == 0 && old && mode == STORE_BESIDE)
        rc = error_set(err, -EINVAL,
                "'%s' is of an older upgate, and nobody who writes it now has made it a present one",
                path);
    if (rc == 0 && old && mode == STORE_WRITE)
        rc = store_migrate(store, false, err);
    if (rc == 0 && mode != STORE_READ)
        rc = store_exec_plain(store, "PRAGMA foreign_keys = ON", "open", err);
    if (rc) {
        store_close(store);
        return rc;
    }
    *ret_store = store;
    return 0;
}

void store_close(struct store *store)
{
    if (!store)
        return;
    for (int i = 0; i < store->statement_count; i++) {
        sqlite3_finalize(store->statements[i].stmt);
        free(store->statements[i].sql);
    }
    sqlite3_close(store->db); // rolls back what is open
    free(store->path);
    free(store);
}

sqlite3 *store_db(struct store *store)
{
    return store->db;
}

int store_use_own_views(struct store *store, struct error *err)
{
    store->own_views = store->own_views || store_has_our_schema(store);
    if (store->own_views)
        return 0;
    // What is temporary is no write to the file, but SQLite's switch for readers forbids it too.
    int rc = store_exec_plain(store, "PRAGMA query_only = OFF", "read", err);
    if (rc == 0 && migrate_views(store->db, store_schema_sql) != SQLITE_OK)
        rc = store_error(store, err, "read");
    if (rc == 0)
        rc = store_exec_plain(store, "PRAGMA query_only = ON", "read", err);
    store->own_views = rc == 0;
    return rc;
}

int store_open_schema(sqlite3 **ret, struct error *err)
{
    sqlite3 *db = NULL;
    if (migrate_open_present(store_schema_sql, &db) == SQLITE_OK) {
        *ret = db;
        return 0;
    }
    int rc = error_set(err, -EIO, "failed to read the schema of this upgate: %s",
            db ? sqlite3_errmsg(db) : "no memory");
    sqlite3_close(db);
    return rc;
}

const char *store_path(const struct store *store)
{
    return store->path;
}

int store_begin(struct store *store, struct error *err)
{
    return store_exec_plain(store, "BEGIN IMMEDIATE", "write", err);
}

int store_commit(struct store *store, struct error *err)
{
    int rc = store_failed(store, err); // of what could not be read nothing can follow
    if (rc == 0)
        rc = store_exec_plain(store, "COMMIT", "write", err);
    if (rc)
        store_rollback(store);
    else
        store->empty = false;
    return rc;
}

void store_rollback(struct store *store)
{
    if (!sqlite3_get_autocommit(store->db))
        sqlite3_exec(store->db, "ROLLBACK", NULL, NULL, NULL);
    store->unread = (struct error){0};
}
