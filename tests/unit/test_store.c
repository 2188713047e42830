// SPDX-License-Identifier: Apache-2.0
// The store against a real SQLite: create, versions, foreign files, locks, read-only places, a full
// disk, a live writer.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/strings.h"
#include "tests/unit/runner.h"
#include "tracer/store/store.h"

static char test_dir[] = "/tmp/upgate-store-XXXXXX";
static char test_path[64];

static struct store *fresh(void)
{
    struct store *store = NULL;
    struct error err = {0};
    if (test_path[0] == 0 && mkdtemp(test_dir))
        snprintf(test_path, sizeof test_path, "%s/run.db", test_dir);
    unlink(test_path);
    if (store_open(test_path, STORE_CREATE, &store, &err))
        runner_fail(__FILE__, __LINE__, "%s", err.text);
    return store;
}

static void run_row(struct store *store, int64_t pid, int64_t start)
{
    CHECK_INT(store_exec(store, NULL,
                         "INSERT INTO run VALUES (1,'u','ab','running','0',0,NULL,7,'{}',NULL,'[]','{}','k',?,?)",
                         "ii", pid, start), 0);
}

TEST(create_write_read)
{
    struct store *store = fresh();
    struct error err = {0};
    int64_t id = 0, absent = -1;
    CHECK_INT(store_begin(store, &err), 0);
    CHECK_INT(store_insert(store, &id, &err,
                           "INSERT INTO workload (name, mode, rate_per_s) VALUES (?, ?, ?)", "ssd",
                           "w", "train", NAN), 0);
    CHECK_INT(store_commit(store, &err), 0);
    store_close(store);
    CHECK_INT(store_open(test_path, STORE_READ, &store, &err), 0);
    CHECK_INT(store_get_int(store, &absent, &err, "SELECT rate_per_s FROM workload", ""), -ENOENT);
    CHECK_INT(absent, -1);
    char *name = store_get_text(store, "SELECT name FROM workload WHERE id = ?", "i", id);
    CHECK_STR(name, "w");
    free(name);
    CHECK_INT(store_exec(store, &err, "DELETE FROM workload", ""), -EROFS);
    store_close(store);
}

TEST(create_refuses_an_existing_run)
{
    struct store *store = fresh();
    struct error err = {0};
    run_row(store, 1, 1);
    store_close(store);
    CHECK_INT(store_open(test_path, STORE_CREATE, &store, &err), -EINVAL);
    CHECK_CONTAINS(err.text, "--resume");
}

TEST(newer_version_refused)
{
    struct store *store = fresh();
    struct error err = {0};
    sqlite3_exec(store_db(store), "PRAGMA user_version = 99", NULL, NULL, NULL);
    store_close(store);
    CHECK_INT(store_open(test_path, STORE_READ, &store, &err), -EINVAL);
    CHECK_CONTAINS(err.text, "newer upgate");
}

TEST(foreign_and_broken_files)
{
    struct store *store = fresh();
    struct error err = {0};
    store_close(store);
    CHECK_INT(truncate(test_path, 3000), 0);
    CHECK_INT(store_open(test_path, STORE_READ, &store, &err), -EINVAL);
    FILE *file = fopen(test_path, "w");
    fputs("this is no database, whatever its name says, and it is long enough to be looked at", file);
    fclose(file);
    CHECK_INT(store_open(test_path, STORE_WRITE, &store, &err), -EINVAL);
    CHECK_CONTAINS(err.text, "not a store");
    CHECK_INT(truncate(test_path, 0), 0);
    CHECK_INT(store_open(test_path, STORE_READ, &store, &err), -EINVAL);
    CHECK_INT(store_open("/proc/none/run.db", STORE_READ, &store, &err), -EINVAL);
    CHECK_INT(store_open("/proc/none/run.db", STORE_CREATE, &store, &err), -ENOENT);
    CHECK_CONTAINS(err.text, "directory");
}

TEST(other_sqlite_file_refused)
{
    struct store *store = fresh();
    struct error err = {0};
    sqlite3_exec(store_db(store), "PRAGMA application_id = 1", NULL, NULL, NULL);
    store_close(store);
    CHECK_INT(store_open(test_path, STORE_WRITE, &store, &err), -EINVAL);
    CHECK_CONTAINS(err.text, "not a store of upgate");
}

TEST(live_writer_refused_dead_one_not)
{
    struct store *store = fresh();
    struct error err = {0};
    char *stat = string_read_file("/proc/1/stat", 4096, NULL);
    char *field = strrchr(stat, ')');
    for (int i = 2; i < 22; i++)
        field = strchr(field + 1, ' ');
    run_row(store, 1, atoll(field));
    store_close(store);
    CHECK_INT(store_open(test_path, STORE_WRITE, &store, &err), -EBUSY);
    CHECK_CONTAINS(err.text, "still alive");
    CHECK_INT(store_open(test_path, STORE_READ, &store, &err), 0);
    store_close(store);
    store = fresh();
    run_row(store, 1, atoll(field) + 1); // pid 1, but another life of it
    store_close(store);
    CHECK_INT(store_open(test_path, STORE_WRITE, &store, &err), 0);
    store_close(store);
    free(stat);
}

TEST(locked_by_another_connection)
{
    struct store *store = fresh(), *other = NULL;
    struct error err = {0};
    CHECK_INT(store_open(test_path, STORE_WRITE, &other, &err), 0);
    CHECK_INT(store_begin(other, &err), 0);
    sqlite3_busy_timeout(store_db(store), 50);
    CHECK_INT(store_begin(store, &err), -EBUSY);
    CHECK_CONTAINS(err.text, "locked");
    store_close(other);
    store_close(store);
}

TEST(full_disk_keeps_what_was_committed)
{
    if (geteuid() != 0 || !mkdtemp(test_dir) || mount("tmpfs", test_dir, "tmpfs", 0, "size=256k"))
        runner_skip("cannot mount a small tmpfs (needs root)");
    char path[64];
    snprintf(path, sizeof path, "%s/run.db", test_dir);
    struct store *store = NULL;
    struct error err = {0};
    CHECK_INT(store_open(path, STORE_CREATE, &store, &err), 0);
    int rc = 0, committed = 0;
    char text[4000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    for (int i = 0; i < 1000 && rc == 0; i++) {
        rc = store_begin(store, &err);
        if (rc == 0)
            rc = store_exec(store, &err, "INSERT INTO note (at_ns, level, text) VALUES (1, 'info', ?)", "s", text);
        if (rc == 0)
            rc = store_commit(store, &err);
        committed += rc == 0;
    }
    CHECK_INT(rc, -ENOSPC);
    CHECK_CONTAINS(err.text, "disk is full");
    store_close(store);
    CHECK_INT(store_open(path, STORE_READ, &store, &err), 0);
    int64_t notes = 0;
    CHECK_INT(store_get_int(store, &notes, &err, "SELECT count(*) FROM note", ""), 0);
    CHECK(committed > 5);
    CHECK_INT(notes, committed);
    store_close(store);
    umount(test_dir);
    rmdir(test_dir);
}

TEST(a_reader_rolls_back_what_a_kill_left)
{
    struct store *store = fresh();
    struct error err = {0};
    CHECK_INT(store_exec(store, &err, "INSERT INTO note (at_ns, level, text) VALUES (1, 'info', 'kept')", ""), 0);
    store_close(store);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        // A cache of one page: the transaction reaches the file before it is committed.
        if (store_open(test_path, STORE_WRITE, &store, NULL))
            _exit(1);
        sqlite3_exec(store_db(store), "PRAGMA cache_size = 1; BEGIN IMMEDIATE", NULL, NULL, NULL);
        for (int i = 0; i < 2000; i++)
            store_exec(store, NULL, "INSERT INTO note (at_ns, level, text) VALUES (2, 'info', 'lost')", "");
        kill(getpid(), SIGKILL);
    }
    waitpid(pid, NULL, 0);
    char journal[80];
    snprintf(journal, sizeof journal, "%s-journal", test_path);
    CHECK(access(journal, F_OK) == 0);
    CHECK_INT(store_open(test_path, STORE_READ, &store, &err), 0);
    int64_t notes = 0;
    CHECK_INT(store_get_int(store, &notes, &err, "SELECT count(*) FROM note", ""), 0);
    CHECK_INT(notes, 1);
    store_close(store);
}
