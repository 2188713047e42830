// SPDX-License-Identifier: Apache-2.0
// Reads and writes the host's calibration.db. Not the store of a run: another file, another schema,
// versioned on its own.
#include "harness/gate/certificate/certificate.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/containers/vector.h"
#include "common/directory.h"
#include "common/strings.h"
#include "reports/analyse/binomial.h"
#include "tracer/store/ranges.h"
#include "tracer/store/store.h"

enum {
    CERTIFICATE_VERSION = 2,        // PRAGMA user_version; 1 held re-splits, which certify anything
    CERTIFICATE_MAGIC = 0x55504743, // PRAGMA application_id, 'UPGC'
    CERTIFICATE_BUSY_MS = 30000 // some gates that end at once, each with its turn of a busy disk
};

static const char certificate_schema[] =
        "CREATE TABLE IF NOT EXISTS certificate (host_key TEXT NOT NULL, scope TEXT NOT NULL, "
        "kind TEXT NOT NULL, interleave TEXT NOT NULL, metric TEXT NOT NULL, margin REAL NOT NULL, "
        "made_wall_ns INTEGER NOT NULL, aa_pairs INTEGER NOT NULL, aa_lower REAL, aa_upper REAL, "
        "mde REAL, pair_sd REAL, held REAL, planted REAL, held_pairs INTEGER NOT NULL, "
        "held_lower REAL, held_upper REAL, source_run TEXT NOT NULL, "
        "PRIMARY KEY (host_key, scope, interleave, metric)) STRICT, WITHOUT ROWID;"
        "CREATE TABLE IF NOT EXISTS aa_gate (host_key TEXT NOT NULL, scope TEXT NOT NULL, "
        "source_run TEXT NOT NULL, kind TEXT NOT NULL, interleave TEXT NOT NULL, "
        "made_wall_ns INTEGER NOT NULL, failed INTEGER NOT NULL, "
        "PRIMARY KEY (host_key, scope, source_run)) STRICT, WITHOUT ROWID;"
        "PRAGMA application_id = 0x55504743; PRAGMA user_version = 2;";

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
    int code = certificate_damaged(rc)       ? -EBADMSG
            : (rc & 0xff) == SQLITE_READONLY ? -EROFS
            : (rc & 0xff) == SQLITE_CANTOPEN ? -EACCES
            : (rc & 0xff) == SQLITE_BUSY     ? -EBUSY
            : (rc & 0xff) == SQLITE_FULL     ? -ENOSPC
                                             : -EIO;
    return error_set(err, code, "failed to %s the host's certificates '%s': %s", what, path,
            code == -EBADMSG ? "the file is damaged"
                    : db     ? sqlite3_errmsg(db)
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
        return error_set(
                err, -EPROTO, "'%s' was written by a newer upgate (version %d)", path, version);
    if (version < CERTIFICATE_VERSION)
        return error_set(err, -ESTALE,
                "the certificates in '%s' are of a kind that could not fail (version %d): "
                "they prove nothing",
                path, version);
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

// Puts a file aside that cannot be used, for this reason. Under a lock, and looking once more: two
// processes that both saw it must not put aside what one of them has made anew.
static int certificate_put_aside(const char *path, int reason, struct error *err)
{
    char *lock_path = xasprintf("%s.lock", path);
    char *aside = xasprintf("%s.%s", path, reason == -ESTALE ? "old" : "damaged");
    int lock = open(lock_path, O_RDWR | O_CREAT | O_CLOEXEC, 0644), rc = 0;
    if (lock < 0 || flock(lock, LOCK_EX) < 0) {
        rc = error_set(err, -errno, "failed to lock '%s': %s", lock_path, strerror(errno));
    } else {
        sqlite3 *db = NULL;
        struct error again = {0};
        if (certificate_open(path, SQLITE_OPEN_READONLY, &db, &again) == reason &&
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

// Binds like printf: s text, i integer, d double (NAN becomes NULL).
static int certificate_exec(sqlite3 *db, const char *sql, const char *format, ...)
{
    sqlite3_stmt *stmt = NULL;
    va_list args;
    int rc = sqlite3_prepare_v2(db, sql, -1, &stmt, NULL);
    if (rc != SQLITE_OK)
        return rc;
    va_start(args, format);
    for (int i = 0; format[i]; i++) {
        if (format[i] == 's') {
            sqlite3_bind_text(stmt, i + 1, va_arg(args, const char *), -1, SQLITE_TRANSIENT);
        } else if (format[i] == 'i') {
            sqlite3_bind_int64(stmt, i + 1, va_arg(args, int64_t));
        } else {
            double value = va_arg(args, double);
            if (!isnan(value))
                sqlite3_bind_double(stmt, i + 1, value);
        }
    }
    va_end(args);
    rc = sqlite3_step(stmt);
    sqlite3_finalize(stmt);
    return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

static int certificate_insert(sqlite3 *db, const char *host_key, const struct certificate *one)
{
    return certificate_exec(db,
            "INSERT INTO certificate VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
            "sssssdiiddddddidds", host_key, one->scope, one->kind,
            plan_interleave_name(one->interleave), metric_infos[one->metric].name, one->margin,
            one->made_wall_ns, one->aa_pairs, one->aa_lower, one->aa_upper, one->mde, one->pair_sd,
            one->held, one->planted, one->held_pairs, one->held_lower, one->held_upper,
            one->source_run);
}

static int certificate_count(sqlite3 *db, const char *host_key, const struct certificate_gate *gate,
        int64_t *ret_gates, int64_t *ret_false_fails)
{
    sqlite3_stmt *stmt = NULL;
    int rc = sqlite3_prepare_v2(db,
            "SELECT count(*), sum(failed) FROM aa_gate WHERE host_key = ? AND "
            "kind = ? AND interleave = ?",
            -1, &stmt, NULL);
    if (rc == SQLITE_OK) {
        sqlite3_bind_text(stmt, 1, host_key, -1, SQLITE_STATIC);
        sqlite3_bind_text(stmt, 2, gate->kind, -1, SQLITE_STATIC);
        sqlite3_bind_text(stmt, 3, plan_interleave_name(gate->interleave), -1, SQLITE_STATIC);
        rc = sqlite3_step(stmt);
        if (rc == SQLITE_ROW) {
            *ret_gates = sqlite3_column_int64(stmt, 0);
            *ret_false_fails = sqlite3_column_int64(stmt, 1);
            rc = SQLITE_OK;
        }
    }
    sqlite3_finalize(stmt);
    return rc;
}

static int certificate_replace(sqlite3 *db, const char *host_key,
        const struct certificate_gate *gate, const struct certificate *certificates, int count)
{
    const char *interleave = plan_interleave_name(gate->interleave);
    int rc = sqlite3_exec(db, certificate_schema, NULL, NULL, NULL);
    if (rc == SQLITE_OK)
        rc = certificate_exec(db,
                "DELETE FROM certificate WHERE host_key = ? AND scope = ? AND interleave = ?",
                "sss", host_key, gate->scope, interleave);
    if (rc == SQLITE_OK)
        rc = certificate_exec(db, "INSERT OR REPLACE INTO aa_gate VALUES (?,?,?,?,?,?,?)",
                "sssssii", host_key, gate->scope, gate->source_run, gate->kind, interleave,
                gate->made_wall_ns, (int64_t)gate->failed);
    for (int i = 0; i < count && rc == SQLITE_OK; i++)
        if (!certificates[i].objection)
            rc = certificate_insert(db, host_key, &certificates[i]);
    return rc;
}

static int certificate_try_save(const char *path, const char *host_key,
        const struct certificate_gate *gate, const struct certificate *certificates, int count,
        int64_t *ret_gates, int64_t *ret_false_fails, struct error *err)
{
    sqlite3 *db = NULL;
    int64_t gates = 0, false_fails = 0;
    int rc = certificate_open(path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, &db, err);
    if (rc)
        return rc;
    if (sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL) != SQLITE_OK ||
            certificate_replace(db, host_key, gate, certificates, count) != SQLITE_OK ||
            certificate_count(db, host_key, gate, &gates, &false_fails) != SQLITE_OK ||
            sqlite3_exec(db, "COMMIT", NULL, NULL, NULL) != SQLITE_OK)
        rc = certificate_error(db, path, "write", err);
    sqlite3_close(db); // rolls back what is open
    if (rc)
        return rc;
    *ret_gates = gates;
    *ret_false_fails = false_fails;
    return 0;
}

int certificate_save(const char *path, const char *host_key, const struct certificate_gate *gate,
        const struct certificate *certificates, int count, int64_t *ret_gates,
        int64_t *ret_false_fails, struct error *err)
{
    int rc = directory_make_above(path, 0755, err);
    if (rc) {
        error_prefix(err, "no place for the host's certificates");
        return rc;
    }
    rc = certificate_try_save(
            path, host_key, gate, certificates, count, ret_gates, ret_false_fails, err);
    if (rc != -EBADMSG && rc != -ESTALE)
        return rc;
    rc = certificate_put_aside(path, rc, err);
    return rc ? rc
              : certificate_try_save(
                        path, host_key, gate, certificates, count, ret_gates, ret_false_fails, err);
}

static void certificate_text(sqlite3_stmt *stmt, int column, char to[CERTIFICATE_TEXT])
{
    const char *text = (const char *)sqlite3_column_text(stmt, column);
    snprintf(to, CERTIFICATE_TEXT, "%s", text ? text : "");
}

static int certificate_metric(const char *name)
{
    for (int i = 0; name && i < METRIC_COUNT; i++)
        if (strcmp(name, metric_infos[i].name) == 0)
            return i;
    return -1;
}

bool certificate_read(sqlite3_stmt *stmt, struct certificate *ret_certificate)
{
    int interleave = plan_interleave_by_name((const char *)sqlite3_column_text(stmt, 2));
    int metric = certificate_metric((const char *)sqlite3_column_text(stmt, 3));
    struct ranges ranges; // of the host's file nobody else asks
    ranges_of(stmt, &ranges);
    if (interleave < 0 || metric < 0 || ranges_odd(&ranges, stmt) >= 0)
        return false;
    const char *objection = (const char *)sqlite3_column_text(stmt, 5);
    struct certificate one = {.interleave = (enum plan_interleave)interleave,
            .metric = (enum metric_id)metric,
            .margin = sqlite3_column_double(stmt, 4),
            .objection = objection ? xstrdup(objection) : NULL,
            .made_wall_ns = sqlite3_column_int64(stmt, 6),
            .aa_pairs = sqlite3_column_int(stmt, 7),
            .aa_lower = store_double(stmt, 8),
            .aa_upper = store_double(stmt, 9),
            .mde = store_double(stmt, 10),
            .pair_sd = store_double(stmt, 11),
            .held = store_double(stmt, 12),
            .planted = store_double(stmt, 13),
            .held_pairs = sqlite3_column_int64(stmt, 14),
            .held_lower = store_double(stmt, 15),
            .held_upper = store_double(stmt, 16),
            .gates = sqlite3_column_int64(stmt, 17),
            .false_fails = sqlite3_column_int64(stmt, 18),
            .upper_bound = sqlite3_column_double(stmt, 19)};
    certificate_text(stmt, 0, one.scope);
    certificate_text(stmt, 1, one.kind);
    certificate_text(stmt, 20, one.source_run);
    *ret_certificate = one;
    return true;
}

void certificates_free(struct certificate *certificates, int count)
{
    for (int i = 0; i < count; i++)
        free(certificates[i].objection);
    free(certificates);
}

static const char certificate_select[] =
        "SELECT c.scope, c.kind, c.interleave, c.metric, c.margin, NULL, c.made_wall_ns, c.aa_pairs, "
        "c.aa_lower, c.aa_upper, c.mde, c.pair_sd, c.held, c.planted, c.held_pairs, c.held_lower, "
        "c.held_upper, count(*) AS gates, sum(g.failed) AS false_fails, 1, c.source_run FROM certificate c JOIN aa_gate g ON "
        "g.host_key = c.host_key AND g.kind = c.kind AND g.interleave = c.interleave "
        "WHERE c.host_key = ? GROUP BY c.scope, c.interleave, c.metric "
        "ORDER BY c.made_wall_ns DESC, c.scope, c.metric";

int certificate_load(const char *path, const char *host_key, struct certificate **ret_certificates,
        int *ret_count, struct error *err)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *stmt = NULL;
    struct certificate *all = NULL, one;
    int count = 0, step;
    if (access(path, F_OK) < 0)
        return error_set(
                err, -ENOENT, "this host has no certificate yet ('%s' does not exist)", path);
    int rc = certificate_open(path, SQLITE_OPEN_READONLY, &db, err);
    if (rc)
        return rc;
    if (sqlite3_prepare_v2(db, certificate_select, -1, &stmt, NULL) != SQLITE_OK) {
        rc = certificate_error(db, path, "read", err);
    } else {
        sqlite3_bind_text(stmt, 1, host_key, -1, SQLITE_STATIC);
        while ((step = sqlite3_step(stmt)) == SQLITE_ROW) {
            if (!certificate_read(stmt, &one))
                continue;
            one.upper_bound = binomial_upper_bound(one.false_fails, one.gates, 0.95);
            vector_push(all, count, one);
        }
        if (step != SQLITE_DONE)
            rc = certificate_error(db, path, "read", err);
        else if (!count)
            rc = error_set(err, -ENOENT, "'%s' holds no certificate of this host", path);
    }
    sqlite3_finalize(stmt);
    sqlite3_close(db);
    if (rc) {
        certificates_free(all, count);
        return rc;
    }
    *ret_certificates = all;
    *ret_count = count;
    return 0;
}
