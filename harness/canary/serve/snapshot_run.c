// SPDX-License-Identifier: Apache-2.0
// The store of `upgate ab` into a snapshot: the verdict that `upgate gate` has left in it, and its
// cells. Judges nothing.
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/canary/serve/snapshot_tables.h"

static int load_run(struct store *store, struct snapshot *snapshot, struct error *err)
{
    sqlite3_stmt *stmt = store_query(store, err, "SELECT uuid, kind, state FROM run", "");
    int rc = stmt ? store_step(store, stmt, err) : -EIO;
    if (rc <= 0) // made a moment ago, by the controller or by `upgate ab`
        return rc;
    snapshot->run_id = snapshot_text(snapshot, stmt, 0);
    snapshot->run_kind = snapshot_text(snapshot, stmt, 1);
    snapshot->run_state = snapshot_text(snapshot, stmt, 2);
    rc = store_step(store, stmt, err);
    if (rc == 0 && snapshot->run_kind && strcmp(snapshot->run_kind, "rollout") == 0)
        return 0; // the controller is about to begin
    if (rc == 0 && snapshot->run_kind && strcmp(snapshot->run_kind, "record") == 0)
        return error_set(err, -EINVAL,
                "'%s' is a recording of `upgate record`, which has no verdict; name the store of a rollout or "
                "of `upgate ab`",
                store_path(store));
    snapshot->kind = SNAPSHOT_RUN;
    snapshot->problem = NULL;
    return rc;
}

static int load_verdict(struct store *store, struct snapshot *snapshot, struct error *err)
{
    sqlite3_stmt *stmt = store_query(store, err, "SELECT verdict, reason FROM verdict", "");
    int rc = stmt ? store_step(store, stmt, err) : -EIO;
    if (rc <= 0)
        return rc;
    snapshot->verdict = snapshot_text(snapshot, stmt, 0);
    snapshot->verdict_reason = snapshot_text(snapshot, stmt, 1);
    return store_step_end(store, stmt, err);
}

static int load_cells(struct store *store, struct snapshot *snapshot, struct error *err)
{
    snapshot->cells = arena_alloc(snapshot->arena, SNAPSHOT_CELLS_MAX, sizeof *snapshot->cells);
    sqlite3_stmt *stmt = store_query(store, err,
            "SELECT workload, metric, verdict, ratio, ci_lower, ci_upper, margin, pairs, gating, alpha, direction "
            "FROM cell ORDER BY id LIMIT ?",
            "i", (int64_t)SNAPSHOT_CELLS_MAX);
    int rc = stmt ? 1 : -EIO;
    while (rc > 0 && (rc = store_step(store, stmt, err)) > 0) {
        const char *workload = snapshot_text(snapshot, stmt, 0),
                   *metric = snapshot_text(snapshot, stmt, 1);
        const char *verdict = snapshot_text(snapshot, stmt, 2),
                   *direction = snapshot_text(snapshot, stmt, 10);
        double margin = snapshot_double(stmt, 6), alpha = snapshot_double(stmt, 9);
        // is better; margins are of the logarithm of the ratio
        bool higher = direction && strcmp(direction, "higher") == 0;
        snapshot->cells[snapshot->cell_count++] = (struct snapshot_cell){.stage = -1,
                .workload = workload ? workload : "",
                .metric = metric ? metric : "",
                .verdict = verdict ? verdict : "",
                .value = snapshot_double(stmt, 3),
                .low = snapshot_double(stmt, 4),
                .high = snapshot_double(stmt, 5),
                .threshold = higher ? 1 / (1 + margin) : 1 + margin,
                .evidence = NAN,
                .needed = NAN,
                .requests = -1,
                .missing = -1,
                .pairs = snapshot_int(stmt, 7),
                .gating = snapshot_int(stmt, 8) > 0};
        if (snapshot_int(stmt, 8) > 0 && alpha > 0)
            snapshot->alpha = alpha;
    }
    return rc;
}

int snapshot_load_run(struct store *store, struct snapshot *snapshot, struct error *err)
{
    int rc = load_run(store, snapshot, err);
    if (rc || snapshot->kind != SNAPSHOT_RUN)
        return rc;
    rc = load_verdict(store, snapshot, err);
    return rc ? rc : load_cells(store, snapshot, err);
}
