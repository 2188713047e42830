// SPDX-License-Identifier: Apache-2.0
// Looks at a store: opens it, asks whether it has changed since, reads it where it has. The thread
// that refreshes the answers runs this; no other touches the store. What is in the tables:
// snapshot_rollout.c, snapshot_run.c.
#include "harness/canary/serve/snapshot.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/clock.h"
#include "common/strings.h"
#include "harness/canary/serve/snapshot_tables.h"

// A commit of the writer holds its lock for milliseconds; the reader comes again after a second.
enum { READER_BUSY_MS = 500 };

struct snapshot_reader {
    char *path, *name;
    struct store *store;
    struct stat file; // which was opened: another one may take its place
    int64_t version;  // PRAGMA data_version of `now`; -1: never read
    struct snapshot_sums sums;
    struct snapshot *now;
};

struct snapshot *snapshot_new(const char *name)
{
    struct snapshot *snapshot = xcalloc(1, sizeof *snapshot);
    snapshot->arena = arena_new();
    snapshot->name = arena_copy(snapshot->arena, name);
    snapshot->percent = snapshot->wanted = snapshot->alpha = NAN;
    snapshot->up[SNAPSHOT_BASELINE] = snapshot->up[SNAPSHOT_CANDIDATE] = -1;
    snapshot->problem = "no measurement yet: the rollout has not begun";
    return snapshot;
}

void snapshot_free(struct snapshot *snapshot)
{
    if (!snapshot)
        return;
    arena_free(snapshot->arena);
    free(snapshot);
}

const struct snapshot_stage *snapshot_find_stage(const struct snapshot *snapshot, int64_t number)
{
    for (int i = 0; i < snapshot->stage_count; i++)
        if (snapshot->stages[i].number == number)
            return &snapshot->stages[i];
    return NULL;
}

struct snapshot_reader *snapshot_reader_new(const char *path, const char *name)
{
    struct snapshot_reader *reader = xcalloc(1, sizeof *reader);
    reader->path = xstrdup(path);
    reader->name = xstrdup(name);
    reader->version = -1;
    reader->now = snapshot_new(name);
    return reader;
}

static void reader_close(struct snapshot_reader *reader)
{
    store_close(reader->store);
    reader->store = NULL;
    reader->version = -1;
    snapshot_sums_clear(&reader->sums);
}

void snapshot_reader_free(struct snapshot_reader *reader)
{
    if (!reader)
        return;
    reader_close(reader);
    snapshot_free(reader->now);
    free(reader->path);
    free(reader->name);
    free(reader);
}

static int reader_open(struct snapshot_reader *reader, struct error *err)
{
    struct stat file;
    if (stat(reader->path, &file) < 0) {
        reader_close(reader);
        return error_set(err, -errno, "failed to open '%s': %s", reader->path, strerror(errno));
    }
    if (reader->store && (file.st_dev != reader->file.st_dev || file.st_ino != reader->file.st_ino))
        reader_close(reader);
    if (reader->store)
        return 0;
    if (file.st_size == 0) // the controller is about to make it
        return error_set(err, -ENOENT, "'%s' is empty so far", reader->path);
    int rc = store_open(reader->path, STORE_READ, &reader->store, err);
    if (rc)
        return rc;
    reader->file = file;
    sqlite3_busy_timeout(store_db(reader->store), READER_BUSY_MS);
    return 0;
}

// Is there a rollout in it? The tables are in every store of this version.
static int reader_kind(struct store *store, int64_t *ret_rollouts, struct error *err)
{
    int rc = store_get_int(store, ret_rollouts, err,
            "SELECT count(*) FROM (SELECT name FROM sqlite_master UNION ALL SELECT name FROM sqlite_temp_master) "
            "WHERE name = 'rollout'",
            "");
    return rc || !*ret_rollouts
            ? rc
            : store_get_int(store, ret_rollouts, err, "SELECT count(*) FROM rollout", "");
}

// The sums first, in many short reads; then the rest in one transaction: the rows of one moment.
static int reader_load(struct snapshot_reader *reader, struct error *err)
{
    struct store *store = reader->store;
    int64_t rollouts = 0;
    int rc = reader_kind(store, &rollouts, err);
    if (rc == 0 && rollouts)
        rc = snapshot_load_sums(store, &reader->sums, err);
    if (rc == 0)
        rc = store_exec(store, err, "BEGIN", "");
    if (rc)
        return rc;
    struct snapshot *fresh = snapshot_new(reader->name);
    rc = rollouts ? snapshot_load_rollout(store, &reader->sums, fresh, err)
                  : snapshot_load_run(store, fresh, err);
    if (rc == 0)
        rc = store_failed(store, err);
    store_rollback(store); // nothing was written
    if (rc) {
        snapshot_free(fresh);
        return rc;
    }
    snapshot_free(reader->now);
    reader->now = fresh;
    return 0;
}

// SQLite says with one number whether another process has committed since; it costs the reading of
// one page.
static int reader_look(struct snapshot_reader *reader, struct error *err)
{
    int64_t version = 0;
    int rc = reader_open(reader, err);
    if (rc == 0)
        rc = store_get_int(reader->store, &version, err, "PRAGMA data_version", "");
    if (rc == 0 && version != reader->version) {
        rc = reader_load(reader, err);
        if (rc == 0)
            reader->version = version;
    }
    if (rc && rc != -EBUSY)
        reader_close(reader); // what is damaged or half written is opened anew
    return rc;
}

const struct snapshot *snapshot_read(
        struct snapshot_reader *reader, int *ret_problem_code, struct error *err)
{
    int64_t now = clock_monotonic_ns();
    int rc = reader_look(reader, err);
    *ret_problem_code = rc;
    if (rc == 0) {
        reader->now->read_ns = now;
        return reader->now;
    }
    bool old = now - reader->now->read_ns > SNAPSHOT_OLD_S * INT64_C(1000000000),
         nothing = reader->now->kind == SNAPSHOT_NOTHING;
    if (rc == -EINVAL || (nothing && rc != -ENOENT) || (!nothing && old)) {
        int64_t read_ns = reader->now->read_ns;
        snapshot_free(reader->now);
        reader->now = snapshot_new(reader->name);
        reader->now->read_ns = read_ns;
        reader->now->problem = rc == -EINVAL
                ? "the file that was named is no store of this rollout; the server's log says more"
                : "the store cannot be read; the server's log says why";
    }
    return reader->now;
}
