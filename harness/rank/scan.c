// SPDX-License-Identifier: Apache-2.0
// The shards in a directory.
#include "harness/rank/scan.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/containers/vector.h"
#include "common/parallel.h"
#include "common/proc.h"
#include "common/strings.h"
#include "tracer/store/ranges.h"

int scan_open(const struct scan_shard *shard, struct store **ret, struct error *err)
{
    return store_open(shard->path, STORE_READ, ret, err);
}

static void scan_read_end_clock(const json_t *rank, struct scan_shard *shard)
{
    const json_t *wall = json_object_get(rank, "wall_minus_monotonic_end_ns"),
                 *error = json_object_get(rank, "clock_error_end_ns");
    shard->end_clock = (struct identity_clock){(int64_t)json_integer_value(wall),
            json_is_integer(error) ? (int64_t)json_integer_value(error) : -1};
    if (shard->end_clock.wall_minus_monotonic_ns < 0 ||
            shard->end_clock.wall_minus_monotonic_ns >= (int64_t)1 << 62)
        shard->end_clock.wall_minus_monotonic_ns = 0;
}

// One of the ranks that a part says it is of.
static bool scan_read_held(const json_t *one, int32_t ranks, struct scan_rank *ret)
{
    const json_t *rank = json_object_get(one, "rank"), *begin = json_object_get(one, "begin_ns"),
                 *end = json_object_get(one, "end_ns");
    json_int_t number = json_is_integer(rank) ? json_integer_value(rank) : -1;
    if (number < 0 || number >= ranks || !json_is_integer(begin) || !json_is_integer(end))
        return false;
    *ret = (struct scan_rank){
            (int32_t)number, (int64_t)json_integer_value(begin), (int64_t)json_integer_value(end)};
    return range_ns(ret->begin_ns) && range_ns(ret->end_ns) && ret->end_ns >= ret->begin_ns;
}

static int scan_by_rank(const void *left, const void *right)
{
    const struct scan_rank *a = left, *b = right;
    return (a->rank > b->rank) - (a->rank < b->rank);
}

// In order; each once.
static bool scan_sort_held(struct scan_shard *shard)
{
    qsort(shard->held, shard->held_count, sizeof *shard->held, scan_by_rank);
    for (size_t i = 1; i < shard->held_count; i++)
        if (shard->held[i - 1].rank == shard->held[i].rank)
            return false;
    shard->who.launcher.rank = shard->held[0].rank;
    return true;
}

// What a merge wrote of its node and its ranks, as an identity. Of several nodes it is none: each
// has a clock of its own.
static int scan_read_part(const json_t *target, struct scan_shard *shard, struct error *err)
{
    const json_t *nodes = json_object_get(target, "nodes"),
                 *ranks = json_object_get(target, "merged");
    json_t *node = json_array_get(nodes, 0), *one;
    size_t i;
    if (json_array_size(nodes) > 1)
        return error_set(err, -EINVAL,
                "'%s' has the ranks of %zu nodes merged already: a part is of one (`upgate merge --part`)",
                shard->path, json_array_size(nodes));
    json_t *who = json_pack("{sO? sO? sO? sO? sn sn sn sO? sO? sO? sO?}", "run",
            json_object_get(target, "run"), "restart", json_object_get(target, "restart"), "rank",
            json_object_get(json_array_get(ranks, 0), "rank"), "ranks",
            json_object_get(target, "world"), "local_rank", "local_ranks", "node", "host",
            json_object_get(node, "host"), "boot", json_object_get(node, "boot"),
            "wall_minus_monotonic_ns", json_object_get(node, "wall_minus_monotonic_ns"),
            "clock_error_ns", json_object_get(node, "clock_error_ns"));
    bool holds = identity_parse(who, &shard->who) &&
            json_array_size(ranks) <= (size_t)shard->who.launcher.ranks &&
            json_array_size(json_object_get(target, "missing")) <=
                    (size_t)shard->who.launcher.ranks;
    json_decref(who);
    json_array_foreach(ranks, i, one)
    {
        struct scan_rank held = {0};
        if (!holds || !scan_read_held(one, shard->who.launcher.ranks, &held)) {
            holds = false;
            break;
        }
        vector_push(shard->held, shard->held_count, held);
    }
    shard->part = true;
    shard->missing = json_incref(json_object_get(target, "missing"));
    return holds && scan_sort_held(shard)
            ? 0
            : error_set(err, -EINVAL, "'%s' does not say which ranks it is of", shard->path);
}

struct scan_told { // a process of the shard by its environment
    int64_t rank, ranks;
};

static int scan_by_told(const void *left, const void *right)
{
    const struct scan_told *a = left, *b = right;
    if (a->ranks != b->ranks)
        return a->ranks < b->ranks ? -1 : 1;
    return (a->rank > b->rank) - (a->rank < b->rank);
}

// Processes of the shard that are ranks of a larger job than the one by which it was recorded: a
// launcher started them. Not those that inherited what the worker's own environment says, which its
// identity may know better.
static struct scan_told *scan_find_told(
        const json_t *list, const struct scan_shard *shard, size_t *ret_count)
{
    struct scan_told *told = NULL;
    json_int_t own = 0;
    json_t *one;
    size_t i;
    *ret_count = 0;
    json_array_foreach(list, i, one) if (json_integer_value(json_object_get(one, "pid")) ==
            shard->pid) own = json_integer_value(json_object_get(one, "ranks"));
    json_array_foreach(list, i, one)
    {
        json_int_t rank = json_integer_value(json_object_get(one, "rank")),
                   ranks = json_integer_value(json_object_get(one, "ranks"));
        bool inner = json_integer_value(json_object_get(one, "pid")) != shard->pid &&
                ranks > shard->who.launcher.ranks && ranks != own;
        if (inner && json_is_integer(json_object_get(one, "rank")) && rank >= 0 && rank < ranks &&
                ranks <= INT32_MAX)
            vector_push(told, *ret_count, (struct scan_told){rank, ranks});
    }
    if (*ret_count)
        qsort(told, *ret_count, sizeof *told, scan_by_told);
    return told;
}

// Of several such jobs the one of which most ranks are here.
static void scan_read_several(const json_t *target, struct scan_shard *shard)
{
    size_t count, best = 0, most = 0;
    struct scan_told *told = scan_find_told(json_object_get(target, "ranks"), shard, &count);
    for (size_t first = 0, end; first < count; first = end) {
        size_t ranks = 1;
        for (end = first + 1; end < count && told[end].ranks == told[first].ranks; end++)
            ranks += told[end].rank != told[end - 1].rank;
        if (ranks > most) {
            most = ranks;
            best = first;
        }
    }
    for (size_t i = best; i < count && told[i].ranks == told[best].ranks; i++)
        if (i == best || told[i].rank != told[i - 1].rank)
            vector_push(shard->held, shard->held_count,
                    (struct scan_rank){.rank = (int32_t)told[i].rank});
    if (count) {
        struct launcher_rank *launcher = &shard->who.launcher;
        shard->outer_rank = launcher->rank;
        shard->outer_ranks = launcher->ranks;
        launcher->rank = (int32_t)told[best].rank;
        launcher->ranks = (int32_t)told[best].ranks;
        launcher->local_rank = launcher->local_ranks = -1;
    }
    free(told);
}

// Ranks of its node that joined its recorder: recorded from then to its end.
static int scan_read_joined(const json_t *target, struct scan_shard *shard, struct error *err)
{
    json_t *one;
    size_t i;
    json_array_foreach(json_object_get(target, "joined"), i, one)
    {
        const json_t *rank = json_object_get(one, "rank"), *pid = json_object_get(one, "pid"),
                     *begin = json_object_get(one, "begin_ns");
        json_int_t number = json_is_integer(rank) ? json_integer_value(rank) : -1,
                   process = json_integer_value(pid);
        struct proc_stat stat;
        if (number < 0 || number >= shard->who.launcher.ranks || process <= 0 ||
                process > INT32_MAX || !json_is_integer(begin) ||
                !range_ns((int64_t)json_integer_value(begin)))
            return error_set(err, -EINVAL, "'%s' does not say which ranks it is of", shard->path);
        shard->joined_lives |= proc_stat_of((pid_t)process, &stat) == 0 && !proc_stat_ended(&stat);
        vector_push(shard->held, shard->held_count,
                (struct scan_rank){(int32_t)number, (int64_t)json_integer_value(begin),
                        (int64_t)json_integer_value(begin)});
    }
    return 0;
}

static int scan_read_identity(struct store *store, struct scan_shard *shard, struct error *err)
{
    char *text = store_get_text(store, "SELECT target FROM recording ORDER BY id LIMIT 1", "");
    json_t *target = text ? json_loads(text, 0, NULL) : NULL,
           *rank = json_object_get(target, "rank");
    int rc = store_failed(store, err);
    if (rc == 0 && !text)
        rc = error_set(err, -EINVAL,
                "'%s' has no recording: its recorder was ended before it began", shard->path);
    else if (rc == 0 && !rank && json_object_get(target, "merged"))
        rc = scan_read_part(target, shard, err);
    else if (rc == 0 && !rank)
        rc = error_set(
                err, -EINVAL, "'%s' is no rank's: it was not made by `upgate rank`", shard->path);
    else if (rc == 0 && !identity_parse(rank, &shard->who))
        rc = error_set(err, -EINVAL, "'%s' does not say which rank it is of", shard->path);
    if (rc == 0 && rank) {
        shard->pid = (int64_t)json_integer_value(json_object_get(rank, "pid"));
        scan_read_end_clock(rank, shard);
        scan_read_several(target, shard);
        rc = shard->outer_ranks ? 0 : scan_read_joined(target, shard, err);
    }
    json_decref(target);
    free(text);
    return rc;
}

// Here both processes can be asked; of another node the last event was a moment ago.
static bool scan_is_ending(const struct scan_shard *shard)
{
    enum { FRESH_NS = 2000000000 };
    struct proc_stat worker;
    if (shard->ended)
        return false;
    char *boot = string_read_file("/proc/sys/kernel/random/boot_id", 36, NULL);
    bool here = boot && strcmp(boot, shard->who.boot) == 0;
    free(boot);
    if (!here)
        return llabs(clock_wall_ns() - (shard->end_ns + shard->who.clock.wall_minus_monotonic_ns)) <
                FRESH_NS;
    return shard->alive && !shard->joined_lives &&
            (shard->pid <= 0 || shard->pid > INT32_MAX ||
                    proc_stat_of((pid_t)shard->pid, &worker) || proc_stat_ended(&worker));
}

// Its own rank and those that joined it; -EEXIST: one of them twice. Its name stays that of its
// own.
static int scan_hold_all(struct scan_shard *shard)
{
    int32_t own = shard->who.launcher.rank;
    for (size_t i = 0; i < shard->held_count; i++)
        if (shard->held[i].begin_ns < shard->end_ns)
            shard->held[i].end_ns = shard->end_ns;
    vector_push(shard->held, shard->held_count,
            (struct scan_rank){own, shard->begin_ns, shard->end_ns});
    bool once = scan_sort_held(shard);
    shard->who.launcher.rank = own;
    return once ? 0 : -EEXIST;
}

static int scan_read_times(struct store *store, struct scan_shard *shard, struct error *err)
{
    sqlite3_stmt *stmt = store_query(store, err,
            "SELECT r.begin_ns, r.end_ns, r.threshold_ns, r.sample_hz, u.started_wall_ns, u.writer_pid, u.writer_start, "
            "CASE WHEN r.end_ns IS NULL THEN (SELECT max(at_ns) FROM counter) END AS counter_ns, "
            "CASE WHEN r.end_ns IS NULL THEN (SELECT max(in_ns) FROM gap) END AS gap_ns, "
            "CASE WHEN r.end_ns IS NULL THEN (SELECT max(at_ns) FROM sample) END AS sample_ns FROM recording r, run u ORDER BY r.id LIMIT 1",
            "");
    if (!stmt)
        return err->code;
    int rc = store_step(store, stmt, err);
    if (rc == 0)
        return error_set(err, -EBADMSG, "'%s' has no run", shard->path);
    if (rc < 0)
        return rc;
    shard->begin_ns = sqlite3_column_int64(stmt, 0);
    shard->ended = sqlite3_column_type(stmt, 1) != SQLITE_NULL;
    shard->end_ns = sqlite3_column_int64(stmt, 1);
    shard->threshold_ns = sqlite3_column_int64(stmt, 2);
    shard->sample_hz = sqlite3_column_int64(stmt, 3);
    shard->started_wall_ns = sqlite3_column_int64(stmt, 4);
    int64_t pid = sqlite3_column_int64(stmt, 5), start = sqlite3_column_int64(stmt, 6);
    struct proc_stat stat;
    shard->alive = pid > 0 && pid <= INT32_MAX && !proc_stat_of((pid_t)pid, &stat) &&
            proc_same_start(stat.start_ticks, (uint64_t)start);
    for (int column = 7; column < 10 && !shard->ended; column++)
        if (sqlite3_column_int64(stmt, column) > shard->end_ns)
            shard->end_ns = sqlite3_column_int64(stmt, column);
    rc = store_step_end(store, stmt, err);
    if (rc)
        return rc;
    if (shard->end_ns < shard->begin_ns) // no event
        shard->end_ns = shard->begin_ns;
    shard->ending = scan_is_ending(shard);
    for (size_t k = 0; k < shard->held_count && shard->outer_ranks; k++) {
        shard->held[k].begin_ns = shard->begin_ns;
        shard->held[k].end_ns = shard->end_ns;
    }
    if (!shard->part && !shard->outer_ranks && scan_hold_all(shard))
        return error_set(err, -EINVAL, "'%s' has a rank twice", shard->path);
    // of a part: no time in which all of its ranks were recorded
    if (!shard->part && shard->end_ns == shard->begin_ns)
        rc = error_set(err, -ENODATA, "'%s' is empty: its recorder %s", shard->path,
                shard->ending ? "has stored nothing yet"
                              : "was ended before it had recorded anything");
    return rc;
}

struct scan_work {
    struct scan_shard *shards;
    const struct scan_visitor *visitor;
};

// What the row of it says; a failure stays with it.
static void scan_read(void *arg, size_t index)
{
    const struct scan_work *work = arg;
    const struct scan_visitor *visitor = work->visitor;
    struct scan_shard *shard = &work->shards[index];
    struct error err = {0};
    struct store *store = NULL;
    struct stat info;
    if (shard->why)
        return;
    shard->bytes = stat(shard->path, &info) == 0 ? (int64_t)info.st_size : 0;
    int rc = scan_open(shard, &store, &err);
    if (rc == 0)
        rc = scan_read_identity(store, shard, &err);
    if (rc == 0)
        rc = scan_read_times(store, shard, &err);
    if (rc)
        shard->why = xstrdup(err.text);
    shard->read = rc == 0;
    if (rc == 0 && visitor && (!visitor->run || strcmp(visitor->run, shard->run) == 0))
        visitor->visit(visitor->arg, shard, index, store);
    store_close(store);
}

void scan_cpus(struct scan_shard *shard)
{
    struct error err = {0};
    struct store *store = NULL;
    int64_t last = -1;
    if (scan_open(shard, &store, &err) == 0 &&
            store_get_int(store, &last, &err,
                    "SELECT max((SELECT coalesce(max(cpu), -1) FROM sample), (SELECT max(coalesce(max(cpu_in), -1), coalesce(max(cpu_out), -1)) FROM gap))",
                    "") == 0)
        shard->cpus = last < INT16_MAX ? last + 1 : 0;
    store_close(store);
}

int64_t scan_clock_error_ns(const struct scan_shard *shard)
{
    const struct identity_clock *begin = &shard->who.clock, *end = &shard->end_clock;
    if (begin->error_ns < 0)
        return -1;
    if (!end->wall_minus_monotonic_ns) // killed: its clock at the end is as good as at the begin
        return begin->error_ns;
    if (end->error_ns < 0)
        return -1;
    int64_t set_ns = llabs(end->wall_minus_monotonic_ns - begin->wall_minus_monotonic_ns);
    return (begin->error_ns > end->error_ns ? begin->error_ns : end->error_ns) + set_ns;
}

// "0-13.db", "0-13.2.db", "0-8.part.db", "0-13.why".
static bool scan_name(const char *name, int64_t *ret_restart, int64_t *ret_rank, bool *ret_why)
{
    int restart, rank, number, at = 0, len = 0;
    if (sscanf(name, "%9d-%9d%n", &restart, &rank, &at) != 2 || restart < 0 || rank < 0)
        return false;
    const char *ending = name + at;
    *ret_restart = restart;
    *ret_rank = rank;
    *ret_why = strcmp(ending, ".why") == 0;
    return *ret_why || strcmp(ending, ".db") == 0 || strcmp(ending, ".part.db") == 0 ||
            // %n is not reached where the ending differs
            (sscanf(ending, ".%9d.db%n", &number, &len) == 1 && len > 0 && !ending[len]);
}

int32_t scan_next_restart(const char *dir, int32_t rank)
{
    DIR *folder = opendir(dir);
    int64_t last = 0;
    bool here = false, why;
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        int64_t restart, of;
        if (!scan_name(entry->d_name, &restart, &of, &why) || restart < last)
            continue;
        here = (here && restart == last) || of == rank;
        last = restart;
    }
    if (folder)
        closedir(folder);
    return (int32_t)(last + here); // scan_name reads 9 digits
}

static char *scan_reason(const char *path)
{
    enum { REASON_MAX = 1000 };
    size_t len = 0;
    char *text = string_read_file(path, REASON_MAX, &len);
    if (!text)
        return xasprintf("'%s' cannot be read: %s", path, strerror(errno));
    text[strcspn(text, "\n")] = 0;
    string_make_plain(text, strlen(text));
    if (*text)
        return text;
    free(text);
    // it had room for the name only
    return xstrdup(
            "it was not recorded, and the reason could not be written: the disk may have been full");
}

static int scan_run(const char *dir, const char *run, struct scan *scan, struct error *err)
{
    DIR *folder = opendir(dir);
    struct dirent *entry;
    struct stat info;
    int rc = 0;
    if (!folder)
        return error_set(err, errno == ENOENT || errno == ENOTDIR ? -EINVAL : -errno,
                "failed to read directory '%s': %s", dir, strerror(errno));
    while (rc == 0 && (entry = readdir(folder))) {
        int64_t restart, rank;
        bool why;
        if (!scan_name(entry->d_name, &restart, &rank, &why))
            continue;
        char *path = xasprintf("%s/%s", dir, entry->d_name);
        if (lstat(path, &info) < 0 || !S_ISREG(info.st_mode)) { // a FIFO would be waited for
            free(path);
            continue;
        }
        if (scan->count == SCAN_SHARDS_MAX) { // the others would be missing, as if they had none
            rc = error_set(err, -E2BIG,
                    "more than %d shards, the last of them in '%s': name the directory of one run, or merge those of each node by "
                    "themselves (--part), and the parts then",
                    (int)SCAN_SHARDS_MAX, dir);
            free(path);
            continue;
        }
        vector_push(scan->shards, scan->count,
                (struct scan_shard){.path = path,
                        .run = xstrdup(run),
                        .restart = restart,
                        .rank = rank,
                        .why = why ? scan_reason(path) : NULL});
    }
    closedir(folder);
    return rc;
}

static int scan_by_name(const void *left, const void *right)
{
    const struct scan_shard *a = left, *b = right;
    int order = strcmp(a->run, b->run);
    if (order)
        return order;
    if (a->restart != b->restart)
        return a->restart < b->restart ? -1 : 1;
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    return strcmp(a->path, b->path);
}

void scan_sort(struct scan *scan)
{
    if (scan->count)
        qsort(scan->shards, scan->count, sizeof *scan->shards, scan_by_name);
}

int scan_dir(
        const char *dir, const struct scan_visitor *visitor, struct scan *ret, struct error *err)
{
    struct scan scan = {0};
    char *real = realpath(dir, NULL);
    const char *slash = real ? strrchr(real, '/') : NULL;
    int rc = scan_run(dir, slash ? slash + 1 : dir, &scan, err);
    DIR *folder = rc == 0 && !scan.count ? opendir(dir) : NULL;
    struct dirent *entry;
    while (folder && rc == 0 && (entry = readdir(folder))) {
        char *path = xasprintf("%s/%s", dir, entry->d_name);
        struct stat info;
        if (entry->d_name[0] != '.' && lstat(path, &info) == 0 && S_ISDIR(info.st_mode))
            rc = scan_run(path, entry->d_name, &scan, err);
        free(path);
    }
    if (folder)
        closedir(folder);
    free(real);
    if (rc == 0 && !scan.count)
        rc = error_set(err, -EINVAL,
                "no shards in '%s': `upgate rank -o %s -- COMMAND…` in front of each worker makes them",
                dir, dir);
    scan_sort(&scan);
    if (rc == 0 && visitor)
        visitor->begin(visitor->arg);
    if (rc == 0)
        parallel_each(scan.count, scan_read, &(struct scan_work){scan.shards, visitor});
    if (rc)
        scan_free(&scan);
    else
        *ret = scan;
    return rc;
}

void scan_free(struct scan *scan)
{
    for (size_t i = 0; i < scan->count; i++) {
        free(scan->shards[i].path);
        free(scan->shards[i].run);
        free(scan->shards[i].why);
        free(scan->shards[i].held);
        json_decref(scan->shards[i].missing);
    }
    free(scan->shards);
    *scan = (struct scan){0};
}
