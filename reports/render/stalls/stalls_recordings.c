// SPDX-License-Identifier: Apache-2.0
// The recordings of a store: whose they are, how long they lasted, how many events they hold. Reads
// the store only.
#include <stdlib.h>

#include "common/containers/vector.h"
#include "common/strings.h"
#include "reports/render/stalls/stalls_tally.h"
#include "reports/render/stalls/stalls_view.h"

static char *recordings_text(sqlite3_stmt *stmt, int column)
{
    const unsigned char *text = sqlite3_column_text(stmt, column);
    return text ? xstrdup((const char *)text) : NULL;
}

static void recordings_read_row(struct stalls_recording *recording, sqlite3_stmt *stmt)
{
    *recording = (struct stalls_recording){
            .id = sqlite3_column_int64(stmt, 0),
            .begin_ns = sqlite3_column_int64(stmt, 1),
            .end_ns = sqlite3_column_int64(stmt, 2), // NULL reads as 0
            .threshold_ns = sqlite3_column_int64(stmt, 3),
            .sample_hz = sqlite3_column_int64(stmt, 4),
            .python = sqlite3_column_int(stmt, 5) != 0,
            .workload = recordings_text(stmt, 6),
            .side = sqlite3_column_type(stmt, 7) == SQLITE_NULL ? -1 : sqlite3_column_int(stmt, 7),
            .side_name = recordings_text(stmt, 8),
            .pair = sqlite3_column_type(stmt, 9) == SQLITE_NULL ? -1
                                                                : sqlite3_column_int64(stmt, 9),
    };
}

// The target as a person knows it: its first process. Workers born later come after it.
static int recordings_read_target(
        struct store *store, struct stalls_recording *recording, struct error *err)
{
    sqlite3_stmt *stmt = store_query(store, err,
            "SELECT tgid, comm, cmdline, (SELECT count(*) FROM process WHERE recording_id = ?1 AND kind = 'target'), (SELECT count(*) FROM "
            "thread t JOIN process p ON p.id = t.process_id WHERE p.recording_id = ?1 AND p.kind = 'target') FROM process WHERE recording_id = "
            "?1 AND kind = 'target' ORDER BY id LIMIT 1",
            "i", recording->id);
    if (!stmt)
        return err->code;
    int rc = store_step(store, stmt, err);
    if (rc == 1) {
        recording->target_comm = recordings_text(stmt, 1);
        recording->target_cmdline = recordings_text(stmt, 2);
        recording->target = (struct stall_task){.known = true,
                .pid = sqlite3_column_int(stmt, 0),
                .tid = sqlite3_column_int(stmt, 0),
                .comm = recording->target_comm,
                .cmdline = recording->target_cmdline,
                .kind = "target"};
        recording->processes = sqlite3_column_int64(stmt, 3);
        recording->threads = sqlite3_column_int64(stmt, 4);
        sqlite3_reset(stmt);
    }
    return rc < 0 ? rc : 0;
}

// With one recording in the store all events are its own, and counting needs no join: 20 ms instead
// of 0.5 s for a million samples.
static int recordings_count(struct store *store, struct stalls_recording *recording, bool alone,
        struct stalls_tally *tally, struct error *err)
{
    // in the order of enum tally_table
    static const struct {
        const char *alone, *joined;
        size_t offset;
    } counts[TALLY_TABLES] = {
            // But for UG_GAP_SHORT: those below the threshold are samples.
            {"SELECT count(*) FROM gap WHERE ? NOTNULL AND NOT flags & 0x100000",
                    "SELECT count(*) FROM gap e JOIN thread t ON t.id = e.thread_id JOIN process p ON p.id = "
                    "t.process_id WHERE p.recording_id = ? AND NOT flags & 0x100000",
                    offsetof(struct stalls_recording, gaps)},
            {"SELECT count(*) FROM sample WHERE ? NOTNULL",
                    "SELECT count(*) FROM sample e JOIN thread t ON t.id = e.thread_id JOIN process p ON p.id = t.process_id WHERE p.recording_id = ?",
                    offsetof(struct stalls_recording, samples)},
            {"SELECT count(*) FROM lock_wait WHERE ? NOTNULL",
                    "SELECT count(*) FROM lock_wait e JOIN thread t ON t.id = e.thread_id JOIN process p ON p.id = t.process_id WHERE p.recording_id "
                    "= ?",
                    offsetof(struct stalls_recording, lock_waits)},
            {"SELECT count(*) FROM host_fact WHERE recording_id = ?",
                    "SELECT count(*) FROM host_fact WHERE recording_id = ?",
                    offsetof(struct stalls_recording, facts)},
    };
    for (enum tally_table i = 0; i < TALLY_TABLES; i++) {
        int64_t *count = (int64_t *)((char *)recording + counts[i].offset);
        int rc = alone && tally
                ? stalls_tally_count(tally, i, store, count, err)
                : store_get_int(store, count, err, alone ? counts[i].alone : counts[i].joined, "i",
                          recording->id);
        if (rc)
            return rc;
    }
    return 0;
}

int stalls_recordings_load(struct store *store, struct stalls_recordings *ret, struct error *err)
{
    return stalls_recordings_again(store, NULL, ret, err);
}

int stalls_recordings_again(struct store *store, struct stalls_tally *tally,
        struct stalls_recordings *ret, struct error *err)
{
    int64_t tables = 0;
    *ret = (struct stalls_recordings){0};
    int rc = store_get_int(
            store, &tables, err, "SELECT count(*) FROM sqlite_master WHERE name = 'recording'", "");
    if (rc || tables == 0) // a store of an older upgate, which did not record
        return rc;
    sqlite3_stmt *stmt = store_query(store, err,
            "SELECT r.id, r.begin_ns, r.end_ns, r.threshold_ns, r.sample_hz, r.python, w.name, l.side, s.name, p.idx FROM recording r LEFT "
            "JOIN launch l ON l.id = r.launch_id LEFT JOIN side s ON s.id = l.side LEFT JOIN pair p ON p.id = l.pair_id LEFT JOIN workload w "
            "ON w.id = p.workload_id ORDER BY r.id",
            "");
    if (!stmt)
        return err->code;
    while ((rc = store_step(store, stmt, err)) == 1) {
        struct stalls_recording *row = vector_add(ret->items, ret->count);
        recordings_read_row(row, stmt);
    }
    for (size_t i = 0; i < ret->count && rc == 0; i++) {
        rc = recordings_read_target(store, &ret->items[i], err);
        if (rc == 0)
            rc = recordings_count(store, &ret->items[i], ret->count == 1, tally, err);
    }
    if (rc)
        stalls_recordings_clear(ret);
    else if (store_get_int(
                     store, &ret->started_wall_ns, NULL, "SELECT started_wall_ns FROM run", ""))
        ret->started_wall_ns = 0;
    return rc;
}

void stalls_recordings_clear(struct stalls_recordings *recordings)
{
    for (size_t i = 0; i < recordings->count; i++) {
        struct stalls_recording *recording = &recordings->items[i];
        free(recording->workload);
        free(recording->side_name);
        free(recording->target_comm);
        free(recording->target_cmdline);
    }
    free(recordings->items);
    *recordings = (struct stalls_recordings){0};
}
