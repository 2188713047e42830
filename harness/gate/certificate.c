// SPDX-License-Identifier: Apache-2.0
// Reads and writes the host's calibration.db. Not the store of a run: another file, another schema,
// versioned on its own.
#include "harness/gate/certificate.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/strings.h"

enum {
    CERTIFICATE_VERSION = 1,        // PRAGMA user_version
    CERTIFICATE_MAGIC = 0x55504743, // PRAGMA application_id, 'UPGC'
    CERTIFICATE_BUSY_MS = 5000
};

static const char certificate_schema[] =
    "CREATE TABLE IF NOT EXISTS certificate (host_key TEXT NOT NULL, scope TEXT NOT NULL, "
    "interleave TEXT NOT NULL, made_wall_ns INTEGER NOT NULL, aa_pairs INTEGER NOT NULL, "
    "gates INTEGER NOT NULL, false_fails INTEGER NOT NULL, upper_bound REAL NOT NULL, "
    "method TEXT NOT NULL, pair_sd REAL, seed INTEGER NOT NULL, source_run TEXT NOT NULL, "
    "PRIMARY KEY (host_key, scope, interleave)) STRICT, WITHOUT ROWID;"
    "PRAGMA application_id = 0x55504743; PRAGMA user_version = 1;";

char *certificate_path(void)
{
    const char *dir = getenv("UPGATE_STATE_DIR"), *state = getenv("XDG_STATE_HOME");
    const char *home = getenv("HOME");
    if (dir && *dir)
        return xasprintf("%s/calibration.db", dir);
    if (state && *state)
        return xasprintf("%s/upgate/calibration.db", state);
    return home && *home ? xasprintf("%s/.local/state/upgate/calibration.db", home) : NULL;
}

static bool certificate_damaged(int rc)
{
    return (rc & 0xff) == SQLITE_NOTADB || (rc & 0xff) == SQLITE_CORRUPT;
}

static int certificate_error(sqlite3 *db, const char *path, const char *what, struct error *err)
{
    int rc = db ? sqlite3_extended_errcode(db) : SQLITE_NOMEM;
    int code = certificate_damaged(rc)          ? -EBADMSG
               : (rc & 0xff) == SQLITE_READONLY ? -EROFS
               : (rc & 0xff) == SQLITE_CANTOPEN ? -EACCES
               : (rc & 0xff) == SQLITE_BUSY     ? -EBUSY
               : (rc & 0xff) == SQLITE_FULL     ? -ENOSPC
                                                : -EIO;
    return error_set(err, code, "failed to %s the host's certificates '%s': %s", what, path,
                     code == -EBADMSG ? "the file is damaged"
                     : db             ? sqlite3_errmsg(db)
                                      : "out of memory");
}

static int certificate_pragma(sqlite3 *db, const char *sql, int *ret_value)
{
    sqlite3_stmt *stmt = NULL;
    int rc = sqlite3_prepare_v2(db, sql, -1, &stmt, NULL);
    if (rc == SQLITE_OK && (rc = sqlite3_step(stmt)) == SQLITE_ROW) {
        *ret_value = sqlite3_column_int(stmt, 0);
        rc = SQLITE_OK;
    }
    sqlite3_finalize(stmt);
    return rc;
}

// Is this a file of ours, of a version we know? An empty one is when `empty_ok`.
static int certificate_check(sqlite3 *db, const char *path, bool empty_ok, struct error *err)
{
    int magic = 0, version = 0, tables = 0;
    if (certificate_pragma(db, "SELECT count(*) FROM sqlite_master", &tables) ||
        certificate_pragma(db, "PRAGMA application_id", &magic) ||
        certificate_pragma(db, "PRAGMA user_version", &version))
        return certificate_error(db, path, "read", err);
    if (tables == 0 && magic == 0)
        return empty_ok ? 0 : error_set(err, -ENOENT, "'%s' holds no certificate", path);
    if (magic != CERTIFICATE_MAGIC)
        return error_set(err, -EBADMSG, "'%s' is not a file of certificates", path);
    if (version > CERTIFICATE_VERSION)
        return error_set(err, -EPROTO, "'%s' was written by a newer upgate (version %d)", path,
                         version);
    return 0;
}

static int certificate_open(const char *path, int flags, sqlite3 **ret_db, struct error *err)
{
    sqlite3 *db = NULL;
    int rc = 0;
    if (sqlite3_open_v2(path, &db, flags | SQLITE_OPEN_EXRESCODE, NULL) != SQLITE_OK)
        rc = certificate_error(db, path, "open", err);
    if (rc == 0) {
        sqlite3_busy_timeout(db, CERTIFICATE_BUSY_MS);
        rc = certificate_check(db, path, (flags & SQLITE_OPEN_CREATE) != 0, err);
    }
    if (rc) {
        sqlite3_close(db);
        return rc;
    }
    *ret_db = db;
    return 0;
}

static int certificate_make_dirs(const char *path, struct error *err)
{
    char dir[PATH_MAX];
    snprintf(dir, sizeof dir, "%s", path);
    for (char *at = strchr(dir + 1, '/'); at; at = strchr(at + 1, '/')) {
        *at = 0;
        if (mkdir(dir, 0755) < 0 && errno != EEXIST)
            return error_set(err, -errno,
                             "failed to make the directory '%s' for the host's certificates: %s",
                             dir, strerror(errno));
        *at = '/';
    }
    return 0;
}

// Puts a damaged file aside. Under a lock, and looking once more: two processes that both saw the
// damage must not put aside what one of them has made anew.
static int certificate_put_aside(const char *path, struct error *err)
{
    char *lock_path = xasprintf("%s.lock", path), *aside = xasprintf("%s.damaged", path);
    int lock = open(lock_path, O_RDWR | O_CREAT | O_CLOEXEC, 0644), rc = 0;
    if (lock < 0 || flock(lock, LOCK_EX) < 0) {
        rc = error_set(err, -errno, "failed to lock '%s': %s", lock_path, strerror(errno));
    } else {
        sqlite3 *db = NULL;
        struct error again = {0};
        if (certificate_open(path, SQLITE_OPEN_READONLY, &db, &again) == -EBADMSG &&
            rename(path, aside) < 0)
            rc = error_set(err, -errno, "failed to put '%s' aside: %s", path, strerror(errno));
        sqlite3_close(db);
    }
    if (lock >= 0)
        close(lock);
    free(lock_path);
    free(aside);
    return rc;
}

static int certificate_insert(sqlite3 *db, const char *host_key,
                              const struct certificate *certificate)
{
    sqlite3_stmt *stmt = NULL;
    int rc = sqlite3_prepare_v2(
        db, "INSERT OR REPLACE INTO certificate VALUES (?,?,?,?,?,?,?,?,?,?,?,?)", -1, &stmt, NULL);
    if (rc != SQLITE_OK)
        return rc;
    sqlite3_bind_text(stmt, 1, host_key, -1, SQLITE_STATIC);
    sqlite3_bind_text(stmt, 2, certificate->scope, -1, SQLITE_STATIC);
    sqlite3_bind_text(stmt, 3, plan_interleave_name(certificate->interleave), -1, SQLITE_STATIC);
    sqlite3_bind_int64(stmt, 4, certificate->made_wall_ns);
    sqlite3_bind_int64(stmt, 5, certificate->aa_pairs);
    sqlite3_bind_int64(stmt, 6, certificate->gates);
    sqlite3_bind_int64(stmt, 7, certificate->false_fails);
    sqlite3_bind_double(stmt, 8, certificate->upper_bound);
    sqlite3_bind_text(stmt, 9, certificate->method, -1, SQLITE_STATIC);
    if (!isnan(certificate->pair_sd))
        sqlite3_bind_double(stmt, 10, certificate->pair_sd);
    sqlite3_bind_int64(stmt, 11, certificate->seed);
    sqlite3_bind_text(stmt, 12, certificate->source_run, -1, SQLITE_STATIC);
    rc = sqlite3_step(stmt);
    sqlite3_finalize(stmt);
    return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

static int certificate_try_save(const char *path, const char *host_key,
                                const struct certificate *certificate, struct error *err)
{
    sqlite3 *db = NULL;
    int rc = certificate_open(path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, &db, err);
    if (rc)
        return rc;
    if (sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL) != SQLITE_OK ||
        sqlite3_exec(db, certificate_schema, NULL, NULL, NULL) != SQLITE_OK ||
        certificate_insert(db, host_key, certificate) != SQLITE_OK ||
        sqlite3_exec(db, "COMMIT", NULL, NULL, NULL) != SQLITE_OK)
        rc = certificate_error(db, path, "write", err);
    sqlite3_close(db); // rolls back what is open
    return rc;
}

int certificate_save(const char *path, const char *host_key, const struct certificate *certificate,
                     struct error *err)
{
    int rc = certificate_make_dirs(path, err);
    if (rc)
        return rc;
    rc = certificate_try_save(path, host_key, certificate, err);
    if (rc != -EBADMSG)
        return rc;
    rc = certificate_put_aside(path, err);
    return rc ? rc : certificate_try_save(path, host_key, certificate, err);
}

static double certificate_double(sqlite3_stmt *stmt, int column)
{
    return sqlite3_column_type(stmt, column) == SQLITE_NULL ? NAN
                                                            : sqlite3_column_double(stmt, column);
}

static void certificate_read(sqlite3_stmt *stmt, struct certificate *certificate)
{
    certificate->made_wall_ns = sqlite3_column_int64(stmt, 0);
    certificate->aa_pairs = sqlite3_column_int64(stmt, 1);
    certificate->gates = sqlite3_column_int64(stmt, 2);
    certificate->false_fails = sqlite3_column_int64(stmt, 3);
    certificate->upper_bound = sqlite3_column_double(stmt, 4);
    snprintf(certificate->method, sizeof certificate->method, "%s", sqlite3_column_text(stmt, 5));
    certificate->pair_sd = certificate_double(stmt, 6);
    certificate->seed = sqlite3_column_int64(stmt, 7);
    snprintf(certificate->source_run, sizeof certificate->source_run, "%s",
             sqlite3_column_text(stmt, 8));
}

int certificate_find(const char *path, const char *host_key, const char *scope,
                     enum plan_interleave interleave, struct certificate *ret_certificate,
                     struct error *err)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *stmt = NULL;
    struct certificate found = {.interleave = interleave};
    if (access(path, F_OK) < 0)
        return error_set(err, -ENOENT, "this host has no certificate yet ('%s' does not exist)",
                         path);
    int rc = certificate_open(path, SQLITE_OPEN_READONLY, &db, err);
    if (rc)
        return rc;
    if (sqlite3_prepare_v2(
            db,
            "SELECT made_wall_ns, aa_pairs, gates, false_fails, upper_bound, method, pair_sd, "
            "seed, source_run FROM certificate WHERE host_key = ? AND scope = ? AND "
            "interleave = ?",
            -1, &stmt, NULL) != SQLITE_OK) {
        rc = certificate_error(db, path, "read", err);
    } else {
        sqlite3_bind_text(stmt, 1, host_key, -1, SQLITE_STATIC);
        sqlite3_bind_text(stmt, 2, scope, -1, SQLITE_STATIC);
        sqlite3_bind_text(stmt, 3, plan_interleave_name(interleave), -1, SQLITE_STATIC);
        int step = sqlite3_step(stmt);
        if (step == SQLITE_ROW)
            certificate_read(stmt, &found);
        else if (step == SQLITE_DONE)
            rc = error_set(err, -ENOENT, "no certificate for this host and turns of %s",
                           plan_interleave_name(interleave));
        else
            rc = certificate_error(db, path, "read", err);
    }
    sqlite3_finalize(stmt);
    sqlite3_close(db);
    if (rc)
        return rc;
    snprintf(found.scope, sizeof found.scope, "%s", scope);
    *ret_certificate = found;
    return 0;
}
