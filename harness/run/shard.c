// SPDX-License-Identifier: Apache-2.0
// Takes a recorder's shard into the run's store, on the thread that owns both by then: the shard's
// connection attaches the store and copies table by table, so that millions of rows do not pass
// through here. What refers to what it learns from the schema itself: a column more needs no change
// here.
//
// Rows are numbered behind those in use. Texts and kernels are shared by all recordings of a store:
// theirs are looked up by content, and the numbers translated by functions of the connection. Of
// several ranks that were recorded on one node each recorder saw the others, too: where they become
// one recording, processes and threads are shared as well.
#include "harness/run/shard.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "tracer/store/ranges.h"

// Numbers are given in order. A recorder holds its shard while it writes: on a busy machine with a
// slow disk 5 s were not enough.
enum { SHARD_IDS_MAX = 1 << 26, SHARD_BUSY_MS = 30000 };

// Those a recorder writes, each behind the ones it refers to.
static const char *const shard_tables[] = {"frame", "stack", "string", "gpu_kernel", "recording",
        "process", "thread", "gap", "sample", "page_fault", "lock_wait", "host_fact", "counter",
        "connection", "thread_total", "recorded_step", "gpu_process", "gpu_device", "gpu_stream",
        "gpu_work", "gpu_op", "gpu_call", "gpu_sync", "gpu_memory", "gpu_overhead",
        "gpu_graph_node", "nvtx_range", "nccl_op", "python_mark", "python_gc", "launch_stack",
        "clock_sample", "ledger", "note"};
enum { SHARD_TABLE_COUNT = sizeof shard_tables / sizeof *shard_tables };

// Shared rows: from their number in the shard to the one in the store. The last two only where all
// becomes one recording.
enum shard_shared { SHARD_STRING, SHARD_KERNEL, SHARD_PROCESS, SHARD_THREAD, SHARD_SHARED_COUNT };
static const char *const shard_shared_tables[SHARD_SHARED_COUNT] = {
        "string", "gpu_kernel", "process", "thread"};

// What ends in _ns is one or the other; process.start_ns is neither, it says which process it is.
static const char *const shard_times[] = {"at_ns", "begin_ns", "end_ns", "out_ns", "waking_ns",
        "in_ns", "started_ns", "ended_ns", "start_ns", "enqueued_ns", "kernel_start_ns",
        "kernel_end_ns", "before_ns", "after_ns"};
static const char *const shard_lengths[] = {"dur_ns", "threshold_ns", "short_gap_ns", "run_ns",
        "call_ns", "call_dur_ns", "clock_residual_ns", "clock_residual_max_ns", "gpu_ns"};

struct shard_ids {
    int64_t *ids;
    int64_t count;
};

struct shard_map {
    struct store *store, *shard;
    struct shard_place place;
    int64_t offsets[SHARD_TABLE_COUNT]; // the largest number in use in the store
    struct shard_ids shared[SHARD_SHARED_COUNT];
};

int shard_open(struct store **ret_shard, struct error *err)
{
    return store_open("", STORE_CREATE, ret_shard, err);
}

static int shard_error(struct shard_map *map, struct error *err)
{
    sqlite3 *db = store_db(map->shard);
    int rc = sqlite3_errcode(db) & 0xff, system = sqlite3_system_errno(db);
    bool full = rc == SQLITE_FULL ||
            (rc == SQLITE_IOERR && (system == ENOSPC || system == EFBIG || system == EDQUOT));
    bool io = rc == SQLITE_IOERR || rc == SQLITE_CANTOPEN || rc == SQLITE_READONLY ||
            rc == SQLITE_NOMEM;
    return error_set(err,
            full                        ? -ENOSPC
                    : rc == SQLITE_BUSY ? -EBUSY
                    : io                ? -EIO
                                        : -EBADMSG,
            "failed to take a recording into '%s': %s", store_path(map->store),
            full ? "the disk is full" : sqlite3_errmsg(db));
}

static int shard_exec(struct shard_map *map, const char *sql, struct error *err)
{
    return sqlite3_exec(store_db(map->shard), sql, NULL, NULL, NULL) == SQLITE_OK
            ? 0
            : shard_error(map, err);
}

static int shard_table_idx(const char *name)
{
    int idx = 0;
    while (idx < SHARD_TABLE_COUNT && strcmp(shard_tables[idx], name) != 0)
        idx++;
    return idx;
}

static sqlite3_stmt *shard_prepare(struct shard_map *map, char *sql)
{
    sqlite3_stmt *stmt = NULL;
    sqlite3_prepare_v2(store_db(map->shard), sql, -1, &stmt, NULL);
    free(sql);
    return stmt; // NULL: sqlite3_errmsg has the reason
}

static int shard_max_id(struct shard_map *map, const char *schema, const char *table,
        int64_t *ret_max, struct error *err)
{
    sqlite3_stmt *stmt = shard_prepare(map, xasprintf("SELECT max(id) FROM %s.%s", schema, table));
    *ret_max = 0;
    if (!stmt) // a table without numbers has no column of that name
        return sqlite3_errcode(store_db(map->shard)) == SQLITE_ERROR ? 0 : shard_error(map, err);
    int rc = sqlite3_step(stmt) == SQLITE_ROW ? 0 : shard_error(map, err);
    if (rc == 0)
        *ret_max = sqlite3_column_int64(stmt, 0);
    sqlite3_finalize(stmt);
    return rc;
}

// --- functions of the connection -----------------------------------------------------------------

// "[3,1]" with every number moved, or looked up.
static char *shard_move_list(const char *list, int64_t move, const struct shard_ids *ids)
{
    struct strbuf out = {0};
    while (*list) {
        if (isdigit((unsigned char)*list)) {
            char *end;
            int64_t number = strtoll(list, &end, 10);
            if (ids)
                number = number < ids->count ? ids->ids[number] : 0;
            strbuf_add(&out, "%lld", (long long)(number + move));
            list = end;
        } else {
            strbuf_add_bytes(&out, list++, 1);
        }
    }
    return strbuf_take(&out);
}

static void shard_result_list(
        sqlite3_context *context, const char *list, int64_t move, const struct shard_ids *ids)
{
    char *text = list ? shard_move_list(list, move, ids) : NULL;
    sqlite3_result_text(context, text, -1, SQLITE_TRANSIENT); // NULL is NULL
    free(text);
}

static void shard_on_move(sqlite3_context *context, int count, sqlite3_value **values)
{
    (void)count;
    shard_result_list(context, (const char *)sqlite3_value_text(values[0]),
            sqlite3_value_int64(values[1]), NULL);
}

static void shard_on_list(sqlite3_context *context, int count, sqlite3_value **values)
{
    (void)count;
    shard_result_list(
            context, (const char *)sqlite3_value_text(values[0]), 0, sqlite3_user_data(context));
}

static void shard_on_id(sqlite3_context *context, int count, sqlite3_value **values)
{
    const struct shard_ids *ids = sqlite3_user_data(context);
    int64_t id = sqlite3_value_int64(values[0]);
    (void)count;
    if (id > 0 && id < ids->count && ids->ids[id])
        sqlite3_result_int64(context, ids->ids[id]); // else NULL, which it was
}

// "cpu3 steal_ns" of a node whose CPUs are numbered from 16 on is "cpu19 steal_ns".
static void shard_on_cpu_name(sqlite3_context *context, int count, sqlite3_value **values)
{
    const char *name = (const char *)sqlite3_value_text(values[0]);
    int64_t first = sqlite3_value_int64(values[1]);
    (void)count;
    if (!name || strncmp(name, "cpu", 3) != 0 || !isdigit((unsigned char)name[3])) {
        sqlite3_result_text(context, name, -1, SQLITE_TRANSIENT);
        return;
    }
    char *rest, *text;
    int64_t number = strtoll(name + 3, &rest, 10);
    text = xasprintf("cpu%lld%s", (long long)(number < INT16_MAX ? number + first : number), rest);
    sqlite3_result_text(context, text, -1, SQLITE_TRANSIENT);
    free(text);
}

// Of a file from elsewhere a time that no store may hold ends the copying: it would spoil what the
// others have.
static void shard_result_ns(
        sqlite3_context *context, sqlite3_value *value, const struct shard_place *place)
{
    int64_t ns = sqlite3_value_int64(value);
    if (sqlite3_value_type(value) == SQLITE_NULL)
        return;
    bool holds = sqlite3_value_type(value) == SQLITE_INTEGER && range_ns(ns);
    if (holds && place)
        ns += place->shift_ns + llround(place->drift * (double)(ns - place->drift_from_ns));
    if (holds && range_ns(ns))
        sqlite3_result_int64(context, ns);
    else
        sqlite3_result_error(context, "a time is out of its range", -1);
}

static void shard_on_length(sqlite3_context *context, int count, sqlite3_value **values)
{
    (void)count;
    shard_result_ns(context, values[0], NULL);
}

static void shard_on_time(sqlite3_context *context, int count, sqlite3_value **values)
{
    (void)count;
    shard_result_ns(context, values[0], sqlite3_user_data(context));
}

static int shard_functions(struct shard_map *map, struct error *err)
{
    sqlite3 *db = store_db(map->shard);
    const int flags = SQLITE_UTF8 | SQLITE_DETERMINISTIC;
    struct shard_ids *strings = &map->shared[SHARD_STRING], *kernels = &map->shared[SHARD_KERNEL];
    if (sqlite3_create_function(db, "shard_move", 2, flags, NULL, shard_on_move, NULL, NULL) ||
            sqlite3_create_function(
                    db, "shard_strings", 1, flags, strings, shard_on_list, NULL, NULL) ||
            sqlite3_create_function(
                    db, "shard_string", 1, flags, strings, shard_on_id, NULL, NULL) ||
            sqlite3_create_function(
                    db, "shard_gpu_kernel", 1, flags, kernels, shard_on_id, NULL, NULL) ||
            sqlite3_create_function(db, "shard_process", 1, flags, &map->shared[SHARD_PROCESS],
                    shard_on_id, NULL, NULL) ||
            sqlite3_create_function(db, "shard_thread", 1, flags, &map->shared[SHARD_THREAD],
                    shard_on_id, NULL, NULL) ||
            sqlite3_create_function(
                    db, "shard_length", 1, flags, NULL, shard_on_length, NULL, NULL) ||
            sqlite3_create_function(
                    db, "shard_time", 1, flags, &map->place, shard_on_time, NULL, NULL) ||
            sqlite3_create_function(
                    db, "shard_cpu_name", 2, flags, NULL, shard_on_cpu_name, NULL, NULL))
        return shard_error(map, err);
    return 0;
}

// --- shared rows ---------------------------------------------------------------------------------

static int shard_read_ids(
        struct shard_map *map, enum shard_shared shared, const char *sql, struct error *err)
{
    struct shard_ids *ids = &map->shared[shared];
    int rc = shard_max_id(map, "main", shard_shared_tables[shared], &ids->count, err);
    if (rc)
        return rc;
    if (ids->count < 0 || ids->count >= SHARD_IDS_MAX)
        return error_set(err, -EBADMSG,
                "failed to take a recording from '%s': the store is damaged: numbers of table %s",
                store_path(map->shard), shard_shared_tables[shared]);
    ids->ids = xcalloc((size_t)++ids->count, sizeof *ids->ids);
    sqlite3_stmt *stmt = shard_prepare(map, xstrdup(sql));
    int step = stmt ? SQLITE_ROW : SQLITE_ERROR;
    while (stmt && (step = sqlite3_step(stmt)) == SQLITE_ROW) {
        int64_t from = sqlite3_column_int64(stmt, 0);
        if (from > 0 && from < ids->count && !ids->ids[from]) // kernels: the first of equal ones
            ids->ids[from] = sqlite3_column_int64(stmt, 1);
    }
    rc = step == SQLITE_DONE ? 0 : shard_error(map, err);
    sqlite3_finalize(stmt);
    return rc;
}

static int shard_strings(struct shard_map *map, struct error *err)
{
    int rc = shard_exec(map,
            "INSERT OR IGNORE INTO run.string (text) SELECT text FROM main.string ORDER BY id",
            err);
    return rc ? rc
              : shard_read_ids(map, SHARD_STRING,
                        "SELECT s.id, r.id FROM main.string s JOIN run.string r ON r.text = s.text",
                        err);
}

// Kernels are equal when all but their numbers is.
static void shard_add_equal(struct strbuf *sql, const char *column)
{
    if (strcmp(column, "id") == 0)
        return;
    if (strcmp(column, "name_id") == 0)
        strbuf_add(sql, "%sr.name_id = shard_string(s.name_id)", sql->len ? " AND " : "");
    else
        strbuf_add(sql, "%sr.%s IS s.%s", sql->len ? " AND " : "", column, column);
}

static int shard_kernels(struct shard_map *map, struct error *err)
{
    struct strbuf names = {0}, values = {0}, equal = {0};
    sqlite3_stmt *stmt = shard_prepare(map, xstrdup("PRAGMA main.table_info(gpu_kernel)"));
    while (stmt && sqlite3_step(stmt) == SQLITE_ROW) {
        const char *column = (const char *)sqlite3_column_text(stmt, 1);
        shard_add_equal(&equal, column);
        if (strcmp(column, "id") == 0)
            continue;
        strbuf_add(&names, "%s%s", names.len ? ", " : "", column);
        bool text = strcmp(column, "name_id") == 0;
        strbuf_add(
                &values, text ? "%sshard_string(s.%s)" : "%ss.%s", values.len ? ", " : "", column);
    }
    sqlite3_finalize(stmt);
    if (!names.len)
        return error_set(err, -EIO, "failed to take a recording into '%s': no table gpu_kernel",
                store_path(map->store));
    // As sets: each looked for among all the others would be tens of thousands squared.
    char *insert = xasprintf(
            "INSERT INTO run.gpu_kernel (%s) SELECT %s FROM main.gpu_kernel s EXCEPT SELECT %s FROM "
            "run.gpu_kernel",
            names.text, values.text, names.text);
    char *select = xasprintf(
            "SELECT s.id, r.id FROM main.gpu_kernel s JOIN run.gpu_kernel r ON %s ORDER BY r.id",
            equal.text);
    int rc = shard_exec(map, insert, err);
    if (rc == 0)
        rc = shard_read_ids(map, SHARD_KERNEL, select, err);
    free(insert);
    free(select);
    strbuf_free(&names);
    strbuf_free(&values);
    strbuf_free(&equal);
    return rc;
}

// --- who is known already ------------------------------------------------------------------------

// A process by its pid and its start, of which /proc knows 10 ms; the idle task has neither. Who
// had ended before a recorder asked /proc has no start there: it is the only one with that pid that
// anybody knows on the node.
static int shard_processes(struct shard_map *map, struct error *err)
{
    const long long first = map->place.process_first, recording = map->place.recording_id;
    char *sql = xasprintf(
            "SELECT s.id, coalesce((SELECT r.id FROM run.process r WHERE %lld > 0 AND r.recording_id = %lld AND r.tgid = s.tgid AND r.id >= %lld "
            "AND (s.start_ns > 0 OR s.tgid = 0) AND r.start_ns BETWEEN s.start_ns - 20000000 AND s.start_ns + 20000000 LIMIT 1), "
            "(SELECT CASE WHEN count(*) = 1 AND (s.start_ns = 0 OR max(r.start_ns) = 0) AND (SELECT count(*) FROM main.process o WHERE o.tgid = s.tgid) "
            "= 1 THEN max(r.id) END FROM run.process r WHERE %lld > 0 AND r.recording_id = %lld AND r.tgid = s.tgid AND r.id >= %lld AND s.tgid > 0), "
            "s.id + %lld) FROM main.process s",
            first, recording, first, first, recording, first,
            (long long)map->offsets[shard_table_idx("process")]);
    int rc = shard_read_ids(map, SHARD_PROCESS, sql, err);
    free(sql);
    if (rc)
        return rc;
    sql = xasprintf(
            "SELECT s.id, coalesce((SELECT r.id FROM run.thread r WHERE r.process_id = shard_process(s.process_id) AND r.tid = s.tid "
            "LIMIT 1), s.id + %lld) FROM main.thread s",
            (long long)map->offsets[shard_table_idx("thread")]);
    rc = shard_read_ids(map, SHARD_THREAD, sql, err);
    free(sql);
    return rc;
}

// Who was a stranger to one recorder is known better to the one whose target it was, and its start
// to who saw it alive.
static int shard_know_better(struct shard_map *map, struct error *err)
{
    const long long last = map->offsets[shard_table_idx("process")];
    char *targets = xasprintf(
            "UPDATE run.process SET kind = 'target', (ppid, comm, cmdline, started_ns, ended_ns, exit_code) = (SELECT s.ppid, s.comm, s.cmdline, "
            "shard_time(s.started_ns), shard_time(s.ended_ns), s.exit_code FROM main.process s WHERE s.kind = 'target' AND shard_process(s.id) = "
            "run.process.id) WHERE id IN (SELECT shard_process(s.id) FROM main.process s WHERE s.kind = 'target') AND id <= %lld",
            last);
    char *starts = xasprintf(
            "UPDATE run.process SET start_ns = (SELECT s.start_ns FROM main.process s WHERE shard_process(s.id) = run.process.id) "
            "WHERE start_ns = 0 AND id IN (SELECT shard_process(s.id) FROM main.process s WHERE s.start_ns > 0) AND id <= %lld",
            last);
    int rc = shard_exec(map, targets, err);
    if (rc == 0)
        rc = shard_exec(map, starts, err);
    free(targets);
    free(starts);
    return rc;
}

// --- a table -------------------------------------------------------------------------------------

static bool shard_among(const char *word, const char *const *words, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(word, words[i]) == 0)
            return true;
    return false;
}

static bool shard_is_time(const char *table, const char *column)
{
    return shard_among(column, shard_times, sizeof shard_times / sizeof *shard_times) &&
            !(strcmp(table, "process") == 0 && strcmp(column, "start_ns") == 0);
}

// A column whose meaning is not known here would be merged as it is, on another clock than the
// rest.
static bool shard_is_strange(const char *column)
{
    size_t len = strlen(column);
    return len > 3 && strcmp(column + len - 3, "_ns") == 0 &&
            !shard_among(column, shard_times, sizeof shard_times / sizeof *shard_times) &&
            !shard_among(column, shard_lengths, sizeof shard_lengths / sizeof *shard_lengths);
}

// Of one recording that several become part of: times, CPUs, steps. NULL: nothing special.
static char *shard_value_moved(const struct shard_map *map, const char *table, const char *column)
{
    const struct shard_place *place = &map->place;
    bool steps = strcmp(table, "recorded_step") == 0, counter = strcmp(table, "counter") == 0;
    size_t len = strlen(column);
    if (len > 3 && strcmp(column + len - 3, "_ns") == 0)
        return xasprintf(
                shard_is_time(table, column) ? "shard_time(s.%s)" : "shard_length(s.%s)", column);
    if (strcmp(column, "cpu") == 0 || strcmp(column, "cpu_in") == 0 ||
            strcmp(column, "cpu_out") == 0)
        return place->cpu_first < 0 ? xstrdup("-1")
                : place->cpu_first  ? xasprintf("s.%s + %lld", column, (long long)place->cpu_first)
                                    : NULL;
    if (steps && place->rank >= 0 && !place->several && strcmp(column, "rank") == 0)
        return xasprintf(
                "CASE (SELECT count(DISTINCT rank) FROM main.recorded_step) WHEN 1 THEN %d ELSE s.rank END",
                (int)place->rank);
    if (counter && strcmp(column, "name") == 0) {
        char *own = place->rank < 0 ? xstrdup("") : xasprintf(" || ' rank %d'", (int)place->rank);
        char *value = xasprintf(
                "CASE s.source WHEN 'cpu.stat' THEN s.name%s WHEN 'drops' THEN s.name%s WHEN 'stat' THEN "
                "shard_cpu_name(s.name, %lld) ELSE s.name END",
                place->cgroup_ranks ? " || coalesce(' rank ' || r.value, '')" : own, own,
                (long long)(place->cpu_first > 0 ? place->cpu_first : 0));
        free(own);
        return value;
    }
    return NULL;
}

// Behind the table: a row of a cgroup that several ranks have in common becomes one of each.
static char *shard_join(const struct shard_map *map, const char *table)
{
    const char *ranks = map->place.cgroup_ranks;
    return ranks && strcmp(table, "counter") == 0
            ? xasprintf(
                      " LEFT JOIN json_each('%s') r ON s.source = 'cpu.stat' AND s.name NOT LIKE '%% rank %%'",
                      ranks)
            : xstrdup("");
}

// Which rows of a table are stored.
static char *shard_where(const struct shard_map *map, const char *table)
{
    for (int i = SHARD_PROCESS; i <= SHARD_THREAD; i++)
        if (strcmp(table, shard_shared_tables[i]) == 0)
            return xasprintf(" WHERE shard_%s(s.id) > %lld", table,
                    (long long)map->offsets[shard_table_idx(table)]);
    if (strcmp(table, "counter") != 0)
        return xstrdup("");
    // Of those that a launcher started for several ranks the names tell the launcher's number.
    return xasprintf(" WHERE %s%s", map->place.machine ? "1" : "s.source IN ('cpu.stat', 'drops')",
            map->place.several ? " AND NOT (s.source = 'cpu.stat' AND s.name LIKE '% rank %')"
                               : "");
}

// What becomes of a column; the caller frees. to: the table it refers to, or NULL.
static char *shard_value(const struct shard_map *map, int table, const char *column, const char *to)
{
    const char *name = shard_tables[table];
    bool one = map->place.recording_id > 0,
         who = one && (strcmp(name, "process") == 0 || strcmp(name, "thread") == 0);
    char *moved = one ? shard_value_moved(map, name, column) : NULL;
    if (moved)
        return moved;
    bool frames = strcmp(column, "frames") == 0;
    int idx = to ? shard_table_idx(to) : SHARD_TABLE_COUNT;
    if (strcmp(column, "id") == 0)
        return who ? xasprintf("shard_%s(s.id)", name)
                   : xasprintf("s.id + %lld", (long long)map->offsets[table]);
    if (one && to && strcmp(to, "recording") == 0)
        return xasprintf("%lld", (long long)map->place.recording_id);
    if (frames && strcmp(name, "stack") == 0)
        return xasprintf(
                "shard_move(s.frames, %lld)", (long long)map->offsets[shard_table_idx("frame")]);
    if (frames && strcmp(name, "launch_stack") == 0)
        return xstrdup("shard_strings(s.frames)");
    if (!to)
        return xasprintf("s.%s", column);
    for (int i = 0; i < (one ? SHARD_SHARED_COUNT : SHARD_PROCESS); i++)
        if (strcmp(to, shard_shared_tables[i]) == 0)
            return xasprintf("shard_%s(s.%s)", to, column);
    if (idx < SHARD_TABLE_COUNT)
        return xasprintf("s.%s + %lld", column, (long long)map->offsets[idx]);
    return map->place.launch_id ? xasprintf("%lld", (long long)map->place.launch_id)
                                : xstrdup("NULL");
}

// The table that a column refers to, or NULL; the caller frees.
static char *shard_reference(struct shard_map *map, const char *table, const char *column)
{
    char *to = NULL;
    sqlite3_stmt *stmt = shard_prepare(map, xasprintf("PRAGMA main.foreign_key_list(%s)", table));
    while (stmt && !to && sqlite3_step(stmt) == SQLITE_ROW)
        if (strcmp((const char *)sqlite3_column_text(stmt, 3), column) == 0)
            to = xstrdup((const char *)sqlite3_column_text(stmt, 2));
    sqlite3_finalize(stmt);
    return to;
}

static int shard_copy(struct shard_map *map, int table, struct error *err)
{
    struct strbuf names = {0}, values = {0};
    const char *name = shard_tables[table];
    if (strcmp(name, "string") == 0)
        return shard_strings(map, err);
    if (strcmp(name, "gpu_kernel") == 0)
        return shard_kernels(map, err);
    bool one = map->place.recording_id > 0;
    int strange = 0;
    if (one && strcmp(name, "recording") == 0)
        return 0;
    sqlite3_stmt *stmt = shard_prepare(map, xasprintf("PRAGMA main.table_info(%s)", name));
    while (stmt && sqlite3_step(stmt) == SQLITE_ROW) {
        const char *column = (const char *)sqlite3_column_text(stmt, 1);
        if (one && shard_is_strange(column) && !strange)
            strange = error_set(err, -EBADMSG,
                    "'%s' has a column %s.%s, of which this upgate does not know whether it is a time",
                    store_path(map->shard), name, column);
        char *to = shard_reference(map, name, column), *value = shard_value(map, table, column, to);
        strbuf_add(&names, "%s%s", names.len ? ", " : "", column);
        strbuf_add(&values, "%s%s", values.len ? ", " : "", value);
        free(value);
        free(to);
    }
    sqlite3_finalize(stmt);
    char *where = one ? shard_where(map, name) : xstrdup(""),
         *join = one ? shard_join(map, name) : xstrdup("");
    // Of what two recorders of a node tell about one thread, or two workers of one step, the first
    // one counts.
    bool first = one && (strcmp(name, "thread_total") == 0 || strcmp(name, "recorded_step") == 0);
    char *sql = xasprintf("INSERT %sINTO run.%s (%s) SELECT %s FROM main.%s s%s%s",
            first ? "OR IGNORE " : "", name, names.text ? names.text : "",
            values.text ? values.text : "", name, join, where);
    int rc = strange ? strange : shard_exec(map, sql, err);
    free(where);
    free(join);
    free(sql);
    strbuf_free(&names);
    strbuf_free(&values);
    return rc;
}

static int shard_attach(struct shard_map *map, struct error *err)
{
    char *sql = sqlite3_mprintf("ATTACH %Q AS run", store_path(map->store));
    sqlite3_busy_timeout(store_db(map->shard), SHARD_BUSY_MS);
    // A recording that ended on a full disk may name rows that were never written. What was opened
    // to be read writes into the store.
    int rc = shard_exec(map, "PRAGMA foreign_keys = OFF; PRAGMA query_only = OFF", err);
    if (rc == 0)
        rc = shard_exec(map, sql, err);
    sqlite3_free(sql);
    return rc;
}

int shard_merge(struct store *store, struct store *shard, int64_t launch_id, struct error *err)
{
    return shard_take(store, shard, &(struct shard_place){.launch_id = launch_id}, err);
}

int shard_take(struct store *store, struct store *shard, const struct shard_place *place,
        struct error *err)
{
    struct shard_map map = {.store = store, .shard = shard, .place = *place};
    int rc = shard_attach(&map, err);
    if (rc)
        return rc;
    rc = shard_functions(&map, err);
    if (rc == 0)
        rc = shard_exec(&map, "BEGIN IMMEDIATE", err);
    bool open = rc == 0;
    for (int table = 0; table < SHARD_TABLE_COUNT && rc == 0; table++)
        rc = shard_max_id(&map, "run", shard_tables[table], &map.offsets[table], err);
    if (rc == 0 && place->recording_id)
        rc = shard_processes(&map, err);
    if (rc == 0 && place->recording_id)
        rc = shard_know_better(&map, err);
    for (int table = 0; table < SHARD_TABLE_COUNT && rc == 0; table++)
        rc = shard_copy(&map, table, err);
    if (rc == 0)
        rc = shard_exec(&map, "COMMIT", err);
    if (rc && open)
        sqlite3_exec(store_db(shard), "ROLLBACK", NULL, NULL, NULL);
    sqlite3_exec(store_db(shard), "DETACH run", NULL, NULL, NULL);
    for (int i = 0; i < SHARD_SHARED_COUNT; i++)
        free(map.shared[i].ids);
    return rc;
}
