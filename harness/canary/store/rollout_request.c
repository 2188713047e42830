// SPDX-License-Identifier: Apache-2.0
// What people ask of a rollout that runs: other processes insert a row of rollout_request, the
// controller takes it.
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/clock.h"
#include "common/strings.h"
#include "harness/canary/store/rollout_store.h"

int rollout_store_next_request(
        struct store *store, struct rollout_request *ret_request, struct error *err)
{
    *ret_request = (struct rollout_request){.verb = REQUEST_NONE};
    sqlite3_stmt *stmt = store_query(store, err,
            "SELECT id, verb, who, coalesce(reason, '') FROM rollout_request WHERE taken_ns IS NULL "
            // an abort waits for nobody
            "ORDER BY verb <> 'abort', id LIMIT 1",
            "");
    int rc = stmt ? store_step(store, stmt, err) : -EIO;
    if (rc <= 0)
        return rc;
    ret_request->id = sqlite3_column_int64(stmt, 0);
    int verb = rollout_verb_by_name(store_text(store, stmt, 1));
    snprintf(ret_request->who, sizeof ret_request->who, "%s", store_text(store, stmt, 2));
    snprintf(ret_request->reason, sizeof ret_request->reason, "%s", store_text(store, stmt, 3));
    // anybody who may write the file wrote it
    string_make_plain(ret_request->who, strlen(ret_request->who));
    string_make_plain(ret_request->reason, strlen(ret_request->reason));
    ret_request->verb = verb < 0 ? REQUEST_NONE : (enum rollout_verb)verb;
    return store_step_end(store, stmt, err);
}

int rollout_store_take_request(struct store *store, int64_t id, int64_t at_ns, struct error *err)
{
    return store_exec(
            store, err, "UPDATE rollout_request SET taken_ns = ? WHERE id = ?", "ii", at_ns, id);
}

int rollout_store_request(const char *path, enum rollout_verb verb, const char *who,
        const char *reason, struct error *err)
{
    struct store *store = NULL;
    struct rollout_row row = {0};
    int rc = store_open(path, STORE_BESIDE, &store, err);
    if (rc == 0)
        rc = rollout_store_read(store, &row, err);
    if (rc == -ENOENT)
        rc = error_set(
                err, -EINVAL, "'%s' has no rollout in it; `upgate canary run` makes it", path);
    if (rc == 0 && rollout_state_ended(row.state))
        rc = error_set(err, -EINVAL,
                "the rollout '%s' has ended: %s; a new one: `upgate canary run --anew`", row.name,
                rollout_state_name(row.state));
    if (rc == 0)
        rc = store_exec(store, err,
                "INSERT INTO rollout_request (at_ns, verb, who, reason) VALUES (?, ?, ?, ?)",
                "isss", clock_wall_ns(), rollout_verb_name(verb), who, reason);
    rollout_row_clear(&row);
    store_close(store);
    return rc;
}
