// SPDX-License-Identifier: Apache-2.0
// --max-size: the file stays below, the newest are kept, what went is told.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/strings.h"
#include "tests/unit/gpu_world.h"
#include "tests/unit/runner.h"
#include "tracer/gpu/batch.h"
#include "tracer/gpu/retention.h"

static int64_t number(struct store *store, const char *sql)
{
    int64_t value = -999;
    store_get_int(store, &value, NULL, sql, "");
    return value;
}

// A second of launches and a gap.
static void second(struct store *store, struct batch *batch, int64_t at)
{
    for (int64_t i = 0; i < 40000; i++) {
        int64_t *row = batch_row(batch, BATCH_OP);
        row[0] = at * 1000000000 + i * 25000;
        row[1] = 20000 + i;
        row[2] = 1;
        row[3] = 5000 + i;
        row[4] = 3000;
        row[5] = at * 40000 + i;
    }
    CHECK_INT(batch_flush(batch, NULL), 0);
    CHECK_INT(
            store_exec(store, NULL,
                    "INSERT INTO gap (thread_id, out_ns, in_ns, state, flags) VALUES (11, ?, ?, 1, 0)",
                    "ii", at * 1000000000, at * 1000000000 + 900000000),
            0);
}

TEST(keeps_the_newest_below_the_limit)
{
    const int64_t limit = 12 << 20, seconds = 40; // 40 x 1.2 MB
    char path[64];
    snprintf(path, sizeof path, "/tmp/upgate-retention-%d.db", (int)getpid());
    struct store *store = gpu_world_store(path);
    struct retention *retention = NULL;
    struct batch *batch = NULL;
    struct error err = {0};
    sqlite3_exec(store_db(store), "PRAGMA foreign_keys = OFF; PRAGMA synchronous = OFF", NULL, NULL,
            NULL);
    CHECK_INT(batch_new(store, &gpu_world_callbacks, &batch, &err), 0);
    CHECK_INT(retention_new(store, 1, limit, &retention, &err), 0);
    int64_t largest = 0;
    for (int64_t at = 100; at < 100 + seconds; at++) {
        second(store, batch, at);
        CHECK_INT(retention_step(retention, &err), 0);
        CHECK_INT(batch_commit(batch, &err), 0);
        struct stat info;
        CHECK_INT(stat(path, &info), 0);
        largest = info.st_size > largest ? info.st_size : largest;
    }
    CHECK(largest <= limit + (2 << 20)); // and one transaction
    CHECK(largest > limit / 2);
    CHECK_INT(store_begin(store, &err), 0);
    CHECK_INT(retention_end(retention, NULL, &err), 0);
    CHECK_INT(store_commit(store, &err), 0);
    int64_t kept = number(store, "SELECT count(*) FROM gpu_op");
    CHECK_INT(kept % 40000, 0); // whole seconds
    CHECK(kept >= 4 * 40000);
    CHECK_INT(number(store, "SELECT max(start_ns) / 1000000000 FROM gpu_op"), 139);
    CHECK_INT(number(store, "SELECT min(start_ns) / 1000000000 FROM gpu_op"), 140 - kept / 40000);
    CHECK_INT(number(store, "SELECT count(*) FROM gap"), kept / 40000);
    CHECK_INT(
            number(store,
                    "SELECT dropped FROM ledger WHERE producer = 'retention' AND kind = 'gpu_op'"),
            seconds * 40000 - kept);
    CHECK_INT(number(store,
                      "SELECT dropped FROM ledger WHERE producer = 'retention' AND kind = 'gap'"),
            seconds - kept / 40000);
    CHECK_INT(number(store, "SELECT sum(breach) FROM ledger WHERE producer = 'retention'"), 0);
    char *note = store_get_text(store, "SELECT text FROM note WHERE text LIKE '--max-size%'", "");
    CHECK_CONTAINS(note, "to keep the store at 13 MB");
    free(note);
    char *check = store_get_text(store, "PRAGMA integrity_check", "");
    CHECK_STR(check, "ok");
    free(check);
    retention_free(retention);
    batch_free(batch);
    store_close(store);
    unlink(path);
}

// A stack of every twentieth launch, and of a call that ran nothing.
static void stacks(struct store *store, int64_t at)
{
    CHECK_INT(
            store_exec(store, NULL,
                    "INSERT INTO gpu_call (start_ns, dur_ns, process_id, name_id, correlation, result) VALUES (?, 5, 1, 1, ?, 0)",
                    "ii", at * 1000000000, 1000000000 + at),
            0);
    CHECK_INT(
            store_exec(store, NULL,
                    "INSERT INTO launch_stack (process_id, correlation, frames) SELECT 1, correlation, '[1,2,3,4,5,6,7,8,9]' FROM "
                    "(SELECT correlation FROM gpu_op WHERE correlation % 20 = 0 AND start_ns >= ?1 UNION ALL "
                    "SELECT correlation FROM gpu_call WHERE start_ns >= ?1)",
                    "i", at * 1000000000),
            0);
}

TEST(stacks_of_launches_go_with_them)
{
    char path[64];
    snprintf(path, sizeof path, "/tmp/upgate-retention-%d.db", (int)getpid());
    struct store *store = gpu_world_store(path);
    struct retention *retention = NULL;
    struct batch *batch = NULL;
    struct error err = {0};
    const int64_t seconds = 16;
    sqlite3_exec(store_db(store), "PRAGMA foreign_keys = OFF; PRAGMA synchronous = OFF", NULL, NULL,
            NULL);
    CHECK_INT(batch_new(store, &gpu_world_callbacks, &batch, &err), 0);
    CHECK_INT(retention_new(store, 1, RETENTION_MIN_BYTES, &retention, &err), 0);
    CHECK_INT(
            store_exec(store, &err,
                    "INSERT INTO gpu_stream (id, process_id, device, context, stream) VALUES (1, 1, 0, 1, 7)",
                    ""),
            0);
    CHECK_INT(store_exec(store, &err, "INSERT INTO gpu_work (id, kind, stream_id) VALUES (1, 0, 1)",
                      ""),
            0);
    // Another process's launch of the same number.
    CHECK_INT(
            store_exec(store, &err,
                    "INSERT INTO launch_stack (process_id, correlation, frames) VALUES (2, 4000000, '[1]')",
                    ""),
            0);
    for (int64_t at = 100; at < 100 + seconds; at++) {
        second(store, batch, at);
        stacks(store, at);
        CHECK_INT(retention_step(retention, &err), 0);
        CHECK_INT(batch_commit(batch, &err), 0);
    }
    CHECK_INT(store_begin(store, &err), 0);
    CHECK_INT(retention_end(retention, NULL, &err), 0);
    CHECK_INT(store_commit(store, &err), 0);
    int64_t left = number(store, "SELECT count(*) FROM gpu_op") / 40000;
    CHECK(left >= 2 && left < seconds);
    CHECK_INT(number(store, "SELECT count(*) FROM launch_stack WHERE process_id = 1"), left * 2001);
    CHECK_INT(
            number(store,
                    "SELECT count(*) FROM launch_stack WHERE process_id = 1 AND correlation NOT IN (SELECT correlation FROM gpu_op "
                    "UNION ALL SELECT correlation FROM gpu_call)"),
            0);
    CHECK_INT(number(store, "SELECT count(*) FROM launch_stack WHERE process_id = 2"), 1);
    CHECK_INT(
            number(store,
                    "SELECT dropped FROM ledger WHERE producer = 'retention' AND kind = 'launch_stack'"),
            (seconds - left) * 2001);
    retention_free(retention);
    batch_free(batch);
    store_close(store);
    unlink(path);
}

static void marks(struct batch *batch, int64_t count, int64_t at_ns, int64_t apart_ns)
{
    for (int64_t i = 0; i < count; i++) {
        int64_t *row = batch_row(batch, BATCH_MARK);
        row[0] = 1;
        row[1] = 11;
        row[2] = at_ns + i * apart_ns;
        row[3] = 5;
        row[4] = BATCH_NULL;
        row[5] = i;
    }
}

// A traced process says what it likes of times: one mark from the future, or many from long before,
// and the table would keep all that follows.
TEST(times_that_cannot_be_hold_nothing_up)
{
    const int64_t second_ns = 1000000000, future_ns = INT64_C(1) << 60;
    char path[64];
    snprintf(path, sizeof path, "/tmp/upgate-retention-%d.db", (int)getpid());
    struct store *store = gpu_world_store(path);
    struct retention *retention = NULL;
    struct batch *batch = NULL;
    struct error err = {0};
    sqlite3_exec(store_db(store), "PRAGMA foreign_keys = OFF; PRAGMA synchronous = OFF", NULL, NULL,
            NULL);
    CHECK_INT(
            store_exec(store, &err, "UPDATE recording SET begin_ns = ?", "i", 100 * second_ns), 0);
    CHECK_INT(batch_new(store, &gpu_world_callbacks, &batch, &err), 0);
    CHECK_INT(retention_new(store, 1, RETENTION_MIN_BYTES, &retention, &err), 0);
    marks(batch, 1, future_ns, 0);
    for (int64_t at = 100; at < 116; at++) {
        second(store, batch, at);
        // from before the recording on
        marks(batch, 1000, (at - 100) * 3 * second_ns, 3 * second_ns / 1000);
        marks(batch, 1000, at * second_ns, 1000);
        marks(batch, 1, future_ns + at, 0);
        CHECK_INT(batch_flush(batch, &err), 0);
        CHECK_INT(retention_step(retention, &err), 0);
        CHECK_INT(batch_commit(batch, &err), 0);
    }
    int64_t left = number(store, "SELECT count(*) FROM gpu_op") / 40000;
    CHECK(left >= 2 && left < 16);
    // Of the first second that is left those that stand before its own have gone with the one
    // before.
    CHECK_INT(number(store, "SELECT count(*) FROM python_mark"), left * 2001 - 1000);
    retention_free(retention);
    batch_free(batch);
    store_close(store);
    unlink(path);
}

TEST(nothing_but_times_that_cannot_be)
{
    char path[64];
    snprintf(path, sizeof path, "/tmp/upgate-retention-%d.db", (int)getpid());
    struct store *store = gpu_world_store(path);
    struct retention *retention = NULL;
    struct batch *batch = NULL;
    struct error err = {0};
    sqlite3_exec(store_db(store), "PRAGMA foreign_keys = OFF; PRAGMA synchronous = OFF", NULL, NULL,
            NULL);
    CHECK_INT(batch_new(store, &gpu_world_callbacks, &batch, &err), 0);
    CHECK_INT(retention_new(store, 1, RETENTION_MIN_BYTES, &retention, &err), 0);
    for (int i = 0; i < 6; i++) {
        marks(batch, 100000, INT64_C(1) << 60, 1);
        CHECK_INT(batch_flush(batch, &err), 0);
        CHECK_INT(retention_step(retention, &err), 0);
        CHECK_INT(batch_commit(batch, &err), 0);
    }
    struct stat info;
    CHECK_INT(stat(path, &info), 0);
    CHECK(info.st_size < RETENTION_MIN_BYTES + (4 << 20));
    retention_free(retention);
    batch_free(batch);
    store_close(store);
    unlink(path);
}

// What cannot be deleted is more than the limit: of the events the last second stays.
TEST(names_alone_are_too_much)
{
    char path[64];
    snprintf(path, sizeof path, "/tmp/upgate-retention-%d.db", (int)getpid());
    struct store *store = gpu_world_store(path);
    struct retention *retention = NULL;
    struct batch *batch = NULL;
    struct error err = {0};
    sqlite3_exec(store_db(store), "PRAGMA foreign_keys = OFF; PRAGMA synchronous = OFF", NULL, NULL,
            NULL);
    CHECK_INT(batch_new(store, &gpu_world_callbacks, &batch, &err), 0);
    CHECK_INT(retention_new(store, 1, RETENTION_MIN_BYTES, &retention, &err), 0);
    CHECK_INT(store_exec(
                      store, &err, "INSERT INTO string (text) VALUES (hex(zeroblob(5000000)))", ""),
            0);
    for (int64_t at = 100; at < 104; at++) {
        second(store, batch, at);
        CHECK_INT(retention_step(retention, &err), 0);
        CHECK_INT(batch_commit(batch, &err), 0);
    }
    CHECK(number(store, "SELECT count(*) FROM gpu_op") >= 40000);
    CHECK_INT(number(store, "SELECT max(start_ns) / 1000000000 FROM gpu_op"), 103);
    retention_free(retention);
    batch_free(batch);
    store_close(store);
    unlink(path);
}

TEST(rows_of_other_recordings_stay)
{
    char path[64];
    snprintf(path, sizeof path, "/tmp/upgate-retention-%d.db", (int)getpid());
    struct store *store = gpu_world_store(path);
    struct retention *retention = NULL;
    struct batch *batch = NULL;
    struct error err = {0};
    CHECK_INT(retention_new(store, 1, 1000, &retention, &err), -EINVAL);
    sqlite3_exec(store_db(store), "PRAGMA foreign_keys = OFF; PRAGMA synchronous = OFF", NULL, NULL,
            NULL);
    CHECK_INT(batch_new(store, &gpu_world_callbacks, &batch, &err), 0);
    second(store, batch, 50); // an earlier recording in the same store
    CHECK_INT(batch_commit(batch, &err), 0);
    CHECK_INT(retention_new(store, 1, RETENTION_MIN_BYTES, &retention, &err), 0);
    for (int64_t at = 100; at < 115; at++) {
        second(store, batch, at);
        CHECK_INT(retention_step(retention, &err), 0);
        CHECK_INT(batch_commit(batch, &err), 0);
    }
    CHECK(retention_rows(retention) > 0);
    CHECK_INT(number(store, "SELECT count(*) FROM gpu_op WHERE start_ns < 51000000000"), 40000);
    retention_free(retention);
    batch_free(batch);
    store_close(store);
    unlink(path);
}
