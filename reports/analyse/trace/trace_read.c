// SPDX-License-Identifier: Apache-2.0
// Few rows of a store by their numbers, for who has not loaded the recording that they belong to: a
// text, the names of a stack.
#include "reports/analyse/trace/trace.h"

int trace_read_text(struct store *store, int64_t id, struct arena *arena, const char **ret_text,
        struct error *err)
{
    sqlite3_stmt *stmt = store_query(store, err, "SELECT text FROM string WHERE id = ?", "i", id);
    int rc = store_step(store, stmt, err); // err NULL: store_failed() tells a failure
    *ret_text = rc > 0 ? arena_copy(arena, store_text(store, stmt, 0)) : NULL;
    if (rc > 0)
        sqlite3_reset(stmt);
    return rc < 0 ? rc : 0;
}

int trace_read_stack(struct store *store, int64_t id, struct arena *arena, struct trace_names *ret,
        struct error *err)
{
    ret->count = 0;
    ret->kind = 0;
    if (!id)
        return 0;
    sqlite3_stmt *stmt = store_query(store, err,
            "SELECT name, module, kind FROM v_stack WHERE stack = ? ORDER BY depth LIMIT ?", "ii",
            id, (int64_t)TRACE_NAMES_MAX);
    int rc;
    while ((rc = store_step(store, stmt, err)) > 0) {
        if (ret->count == TRACE_NAMES_MAX) // of a store whose numbers are not unique
            continue;
        ret->kind = *store_text(store, stmt, 2);
        ret->functions[ret->count++] =
                (struct trace_name){arena_copy(arena, store_text(store, stmt, 0)),
                        arena_copy(arena, (const char *)sqlite3_column_text(stmt, 1))};
    }
    return rc;
}
