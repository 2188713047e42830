// SPDX-License-Identifier: Apache-2.0
// Evidence in a rollout's store: seconds of both arms, cells, what became of the sources. Rows of
// rollout_second, rollout_cell and rollout_source. One owner thread.
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/canary/store/rollout_store.h"

static const char *const verdict_names[] = {
        [CANARY_UNDECIDED] = "undecided", [CANARY_PASS] = "pass", [CANARY_FAIL] = "fail"};

// --- seconds -------------------------------------------------------------------------------------

// Columns from `first` on: requests, errors, truncated, wrong, bins, rejected.
static int evidence_column(struct store *store, sqlite3_stmt *stmt, int first,
        struct canary_second *ret, struct error *err)
{
    *ret = (struct canary_second){.requests = (uint64_t)sqlite3_column_int64(stmt, first),
            .errors = (uint64_t)sqlite3_column_int64(stmt, first + 1),
            .truncated = (uint64_t)sqlite3_column_int64(stmt, first + 2),
            .wrong = (uint64_t)sqlite3_column_int64(stmt, first + 3),
            .rejected = (uint64_t)sqlite3_column_int64(stmt, first + 5)};
    const uint8_t *bytes = sqlite3_column_blob(stmt, first + 4);
    size_t size = (size_t)sqlite3_column_bytes(stmt, first + 4);
    bool counts = ret->errors <= ret->requests && ret->wrong <= ret->requests &&
            ret->rejected <= ret->requests && ret->requests <= INT64_MAX;
    if (!counts || canary_unpack(size ? bytes : (const uint8_t *)"", size, ret->bins))
        return error_set(err, -EBADMSG,
                "'%s' is damaged: a second of its evidence contradicts itself", store_path(store));
    return 0;
}

static int evidence_put(struct store *store, int64_t at_s, int arm, int stage,
        const struct canary_second *second, struct error *err)
{
    struct canary_second sum = *second;
    sqlite3_stmt *stmt = store_query(store, err,
            "SELECT requests, errors, truncated, wrong, bins, rejected FROM rollout_second "
            "WHERE at_s = ? AND arm = ?",
            "ii", at_s, (int64_t)arm);
    int rc = stmt ? store_step(store, stmt, err) : -EIO;
    if (rc == 1) {
        struct canary_second stored;
        rc = evidence_column(store, stmt, 0, &stored, err);
        sqlite3_reset(stmt);
        if (rc == 0)
            canary_second_add(&sum, &stored);
    }
    if (rc)
        return rc;
    uint8_t bytes[CANARY_PACKED_MAX];
    size_t size = canary_pack(sum.bins, bytes);
    return store_exec(store, err,
            "INSERT INTO rollout_second (at_s, arm, stage, requests, errors, truncated, wrong, bins, rejected) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (at_s, arm) DO UPDATE SET requests = excluded.requests, "
            "errors = excluded.errors, truncated = excluded.truncated, wrong = excluded.wrong, bins = excluded.bins, "
            "rejected = excluded.rejected",
            "iiiiiiibi", at_s, (int64_t)arm, (int64_t)stage, (int64_t)sum.requests,
            (int64_t)sum.errors, (int64_t)sum.truncated, (int64_t)sum.wrong, bytes, size,
            (int64_t)sum.rejected);
}

int rollout_store_second(struct store *store, int64_t at_s, int stage,
        const struct canary_second arms[CANARY_ARMS], struct error *err)
{
    int rc = 0;
    for (int arm = 0; arm < CANARY_ARMS && rc == 0; arm++)
        rc = evidence_put(store, at_s, arm, stage, &arms[arm], err);
    return rc;
}

int rollout_store_seconds(struct store *store,
        int (*each)(
                void *arg, int64_t at_s, int stage, const struct canary_second arms[CANARY_ARMS]),
        void *arg, struct error *err)
{
    sqlite3_stmt *stmt = store_query(store, err,
            "SELECT at_s, arm, stage, requests, errors, truncated, wrong, bins, rejected FROM rollout_second "
            "ORDER BY at_s, arm",
            "");
    struct canary_second arms[CANARY_ARMS];
    int64_t at_s = 0;
    int stage = 0, rc = stmt ? 1 : -EIO, seen = 0, row;
    while (rc == 1 && (row = store_step(store, stmt, err)) == 1) {
        int64_t next_s = sqlite3_column_int64(stmt, 0);
        int arm = sqlite3_column_int(stmt, 1), failed = 0;
        if (seen && next_s != at_s) {
            failed = each(arg, at_s, stage, arms);
            seen = 0;
        }
        if (!seen)
            memset(arms, 0, sizeof arms);
        at_s = next_s;
        stage = sqlite3_column_int(stmt, 2);
        seen = 1;
        if (!failed && (arm < 0 || arm >= CANARY_ARMS))
            failed = error_set(
                    err, -EBADMSG, "'%s' is damaged: a second of no arm", store_path(store));
        if (!failed)
            failed = evidence_column(store, stmt, 3, &arms[arm], err);
        if (failed) {
            sqlite3_reset(stmt);
            return failed;
        }
    }
    rc = rc == 1 ? row : rc;
    return rc == 0 && seen ? each(arg, at_s, stage, arms) : rc;
}

// --- cells ---------------------------------------------------------------------------------------

int rollout_store_cells(struct store *store, int64_t at_s, const struct canary_cell *cells,
        int count, struct error *err)
{
    int rc = 0;
    for (int i = 0; i < count && rc == 0; i++) {
        const struct canary_cell *cell = &cells[i];
        int64_t missing = (int64_t)cell->requests_missing;
        rc = store_exec(store, err,
                "INSERT OR REPLACE INTO rollout_cell (at_s, stage, metric, value, low, high, threshold, evidence, needed, "
                "dispersion, requests, missing, verdict) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                "iisdddddddiIs", at_s, (int64_t)cell->stage, canary_metric_name(cell->metric),
                cell->value, cell->low, cell->high, cell->pass_below, cell->evidence, cell->needed,
                cell->dispersion, (int64_t)cell->requests, missing ? &missing : NULL,
                verdict_names[cell->verdict]);
    }
    return rc;
}

static json_t *evidence_number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

json_t *rollout_cells_to_json(const struct canary_cell *cells, int count)
{
    json_t *list = json_array();
    for (int i = 0; i < count; i++) {
        const struct canary_cell *cell = &cells[i];
        json_t *one = json_object();
        json_object_set_new(one, "metric", json_string(canary_metric_name(cell->metric)));
        json_object_set_new(one, "stage", json_integer(cell->stage));
        json_object_set_new(one, "value", evidence_number(cell->value));
        json_object_set_new(one, "low", evidence_number(cell->low));
        json_object_set_new(one, "bound", evidence_number(cell->high));
        json_object_set_new(one, "threshold", evidence_number(cell->pass_below));
        json_object_set_new(one, "evidence", evidence_number(cell->evidence));
        json_object_set_new(one, "needed", evidence_number(cell->needed));
        json_object_set_new(one, "verdict", json_string(verdict_names[cell->verdict]));
        json_object_set_new(one, "requests", json_integer((json_int_t)cell->requests));
        if (cell->since_s) { // an onset within the rollout
            json_object_set_new(one, "since_s", json_integer((json_int_t)cell->since_s));
            json_object_set_new(one, "since_ratio", evidence_number(cell->since_ratio));
        }
        json_array_append_new(list, one);
    }
    return list;
}

// --- sources -------------------------------------------------------------------------------------

int rollout_store_source(struct store *store, int number, const struct source_state *state,
        int64_t last_ns, struct error *err)
{
    return store_exec(store, err,
            "UPDATE rollout_source SET seen = ?, kept = ?, dropped = ?, lost = ?, late = ?, last_ns = ?, problem = ? "
            "WHERE number = ?",
            "iiiiiIsi", (int64_t)state->seen, (int64_t)state->kept, (int64_t)state->dropped,
            (int64_t)state->lost, (int64_t)state->late, last_ns ? &last_ns : NULL,
            state->problem[0] ? state->problem : NULL, (int64_t)number);
}
