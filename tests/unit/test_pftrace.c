// SPDX-License-Identifier: Apache-2.0
// A Perfetto trace of a store that is being written: all tables as they were at one instant.
#include "reports/render/perfetto/pftrace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/strings.h"
#include "tests/unit/runner.h"

enum { FILE_MAX_BYTES = 1 << 20 };

static const char *const rows[] = {
        "INSERT INTO recording (id, begin_ns, end_ns, threshold_ns, sample_hz, python, target, missing) VALUES (1, 0, 9000000, 100000, 997, 0, '{}', '[]')",
        "INSERT INTO process (id, recording_id, tgid, start_ns, comm, kind) VALUES (1, 1, 100, 5, 'train', 'target')",
        "INSERT INTO thread (id, process_id, tid, comm) VALUES (1, 1, 100, 'train')",
        "INSERT INTO frame (id, name) VALUES (1, 'gemm')",
        "INSERT INTO stack (id, kind, depth, frames) VALUES (1, 'user', 1, '[1]')",
        "INSERT INTO gap (id, thread_id, out_ns, in_ns, state, flags) VALUES (1, 1, 1000000, 3000000, 1, 0)",
        "INSERT INTO sample (thread_id, at_ns, cpu, why, user_stack) VALUES (1, 4000000, 0, 1, 1), (1, 5000000, 0, 1, 1)",
};

struct writer {
    const char *path;
    int tried;
};

// Between the tables that were read before and the samples: as a recorder would, from a connection
// of its own.
static int write_between(unsigned type, void *context, void *statement, void *sql)
{
    struct writer *writer = context;
    sqlite3 *db;
    (void)type;
    (void)sql;
    if (!strstr(sqlite3_sql(statement), "FROM sample") || writer->tried++)
        return 0;
    CHECK_INT(sqlite3_open(writer->path, &db), SQLITE_OK);
    // where a reader keeps it out it fails, which is as well
    sqlite3_exec(db, "DELETE FROM sample", NULL, NULL, NULL);
    sqlite3_close(db);
    return 0;
}

static char *written(
        const char *store_path, const char *out, struct writer *writer, size_t *ret_size)
{
    struct store *store = NULL;
    struct error err = {0};
    CHECK_INT(store_open(store_path, STORE_READ, &store, &err), 0);
    if (writer)
        sqlite3_trace_v2(store_db(store), SQLITE_TRACE_STMT, write_between, writer);
    CHECK_INT(pftrace_write(store, 0, out, &err), 0);
    CHECK(sqlite3_get_autocommit(store_db(store)) != 0); // and nothing is left open
    store_close(store);
    char *bytes = string_read_file(out, FILE_MAX_BYTES, ret_size);
    unlink(out);
    return bytes;
}

TEST(a_store_that_is_written_meanwhile_is_not_torn)
{
    char directory[] = "/tmp/upgate-pftrace-XXXXXX";
    CHECK(mkdtemp(directory) != NULL);
    char *path = xasprintf("%s/run.db", directory), *out = xasprintf("%s/out.pftrace", directory);
    struct store *store = NULL;
    struct error err = {0};
    CHECK_INT(store_open(path, STORE_CREATE, &store, &err), 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        CHECK_INT(store_exec(store, &err, rows[i], ""), 0);
    CHECK_STR(err.text, "");
    store_close(store);
    struct writer writer = {.path = path};
    size_t size = 0, size_meanwhile = 0;
    char *before = written(path, out, NULL, &size),
         *meanwhile = written(path, out, &writer, &size_meanwhile);
    CHECK_INT(writer.tried > 0, 1);
    CHECK_INT((int64_t)size_meanwhile, (int64_t)size);
    CHECK(before && meanwhile && size == size_meanwhile && memcmp(before, meanwhile, size) == 0);
    CHECK(before && memmem(before, size, "gemm", 4) != NULL);
    free(before);
    free(meanwhile);
    unlink(path);
    rmdir(directory);
    free(path);
    free(out);
}
