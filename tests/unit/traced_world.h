// SPDX-License-Identifier: Apache-2.0
// What the tests of memory share: a store with two traced launches a side, to which each adds what
// the launches held, and what is given to explain it.
#ifndef UPGATE_TESTS_UNIT_TRACED_WORLD_H
#define UPGATE_TESTS_UNIT_TRACED_WORLD_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "reports/analyse/diff/memory/memory.h"
#include "tests/unit/runner.h"

enum { MIB = 1 << 20, STEP_NS = 500 }; // STEP_NS: when the first step of each begins

static struct store *store;
static struct diff_workload workload;
static struct diff_input input;

static void sql(const char *fmt, ...)
{
    char *text;
    va_list args;
    char *why = NULL;
    va_start(args, fmt);
    CHECK(vasprintf(&text, fmt, args) > 0);
    va_end(args);
    // not as store_exec, which keeps each statement
    if (sqlite3_exec(store_db(store), text, NULL, NULL, &why)) {
        printf("%s: %s\n", text, why);
        exit(1);
    }
    free(text);
}

// Launches 1 and 3 of a, 2 and 4 of b; process and thread have the number of the launch, as has the
// recording.
static void traced_begin(void)
{
    struct error err = {0};
    CHECK_INT(store_open("", STORE_CREATE, &store, &err), 0);
    sql("PRAGMA foreign_keys = OFF"); // a recording names stacks that it may not have written
    sql("INSERT INTO side VALUES (0, 'old', '{}', NULL), (1, 'new', '{}', NULL)");
    sql("INSERT INTO workload (id, name, mode) VALUES (1, 'w', 'train')");
    for (int pair = 1; pair <= 2; pair++)
        sql("INSERT INTO pair VALUES (%d, 1, %d, 'traced', 1, 0, 'steps', 5, 'valid', NULL, NULL, 1, 2)",
                pair, pair);
    for (int launch = 1; launch <= 4; launch++) {
        sql("INSERT INTO launch (id, pair_id, side, state, started_ns, ended_ns, covariates) VALUES (%d, %d, %d, 'ok', 0, 1000, '{}')",
                launch, (launch + 1) / 2, (launch + 1) % 2);
        sql("INSERT INTO step (launch_id, rank, idx, begin_ns, dur_ns) VALUES (%d, 0, 0, %d, 10)",
                launch, STEP_NS);
        sql("INSERT INTO recording VALUES (%d, %d, 0, 1000, 1, 0, 1, '{}', '[]')", launch, launch);
        sql("INSERT INTO process (id, recording_id, tgid, start_ns, comm, kind) VALUES (%d, %d, 77, 1, 'w', 'target')",
                launch, launch);
        sql("INSERT INTO thread (id, process_id, tid, comm) VALUES (%d, %d, 77, 'w')", launch,
                launch);
    }
    workload = (struct diff_workload){.name = "w"};
    input = (struct diff_input){
            .store = store, .workload = "w", .workload_id = 1, .arena = arena_new()};
}

static void end(void)
{
    arena_free(input.arena);
    store_close(store);
}

#endif
