// SPDX-License-Identifier: Apache-2.0
// Shards into one store: which, on which clock, then one by one.
#include "harness/rank/merge.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/containers/vector.h"
#include "common/directory.h"
#include "common/parallel.h"
#include "common/strings.h"
#include "harness/contain/process.h"
#include "harness/rank/choose.h"
#include "harness/rank/clocks.h"
#include "harness/run/shard.h"

enum { MERGE_CPUS_MAX = INT16_MAX }; // as analyses keep them

// --- nodes and their clocks ----------------------------------------------------------------------

static void merge_read_cpus(void *chosen, size_t index)
{
    scan_cpus(((struct scan_shard **)chosen)[index]);
}

// Within what the clock by which its node's shards are moved is known to this one. Where it was set
// between their begins, and nobody saw both, it is not known better than that.
static int64_t merge_error_of(const struct scan_shard *shard, const struct merge_node *node)
{
    int64_t error_ns = scan_clock_error_ns(shard),
            set_ns =
                    llabs(shard->who.clock.wall_minus_monotonic_ns - node->wall_minus_monotonic_ns);
    return error_ns >= 0 && error_ns + set_ns < MERGE_ERROR_NS_END ? error_ns + set_ns : -1;
}

// Shards are by node.
static void merge_find_nodes(struct merge_result *result)
{
    parallel_each(result->chosen_count, merge_read_cpus, result->chosen);
    for (size_t i = 0; i < result->chosen_count; i++) {
        const struct scan_shard *shard = result->chosen[i];
        if (shard->node == result->node_count)
            vector_push(result->nodes, result->node_count,
                    ((struct merge_node){.host = shard->who.host,
                            .boot = shard->who.boot,
                            .wall_minus_monotonic_ns = shard->who.clock.wall_minus_monotonic_ns}));
        struct merge_node *node = &result->nodes[shard->node];
        int64_t error_ns = merge_error_of(shard, node);
        node->ranks += (int64_t)shard->held_count;
        if (node->error_ns >= 0)
            node->error_ns = error_ns < 0       ? -1
                    : error_ns > node->error_ns ? error_ns
                                                : node->error_ns;
        node->cpus = shard->cpus > node->cpus ? shard->cpus : node->cpus;
    }
    int64_t cpus = 0;
    for (size_t i = 0; i < result->node_count; i++) {
        struct merge_node *node = &result->nodes[i];
        node->cpu_first = cpus + node->cpus <= MERGE_CPUS_MAX ? cpus : -1;
        cpus += node->cpus;
    }
}

static void merge_find_residual(struct merge_result *result)
{
    int64_t worst[2] = {0, 0};
    bool known = true;
    for (size_t i = 0; i < result->node_count; i++) {
        const struct merge_node *node = &result->nodes[i];
        known &= node->error_ns >= 0;
        result->by_collectives += node->by_collectives;
        if (node->error_ns > worst[0]) {
            worst[1] = worst[0];
            worst[0] = node->error_ns;
        } else if (node->error_ns > worst[1]) {
            worst[1] = node->error_ns;
        }
    }
    result->clock_residual_ns = result->node_count < 2 ? 0 : known ? worst[0] + worst[1] : -1;
}

// --- the store -----------------------------------------------------------------------------------

static int merge_store_run(
        struct store *store, const struct merge_opts *opts, struct store *first, struct error *err)
{
    char *uuid = string_read_file("/proc/sys/kernel/random/uuid", 36, NULL);
    char *host = store_get_text(first, "SELECT host FROM run", ""),
         *key = store_get_text(first, "SELECT host_key FROM run", "");
    int64_t started_ns = 0;
    int rc = store_get_int(first, &started_ns, err, "SELECT started_wall_ns FROM run", "");
    if (rc == 0)
        rc = store_exec(store, err,
                "INSERT INTO run (id, uuid, kind, state, upgate_version, started_wall_ns, seed, plan, command_line, host, host_key, "
                "writer_pid, writer_start) VALUES (1, ?, 'record', 'running', ?, ?, 0, '{}', ?, ?, ?, ?, ?)",
                "ssisssii", uuid ? uuid : "", UPGATE_VERSION, started_ns, opts->command_line,
                host ? host : "{}", key ? key : "", (int64_t)getpid(),
                process_start_ticks(getpid()));
    free(host);
    free(key);
    free(uuid);
    return rc;
}

static int merge_store_recording(struct store *store, const struct merge_result *result,
        struct store *first, struct error *err)
{
    int64_t python = 0, threshold_ns = 0;
    int rc = store_get_int(
            first, &python, err, "SELECT python FROM recording ORDER BY id LIMIT 1", "");
    for (size_t i = 0; i < result->chosen_count; i++)
        if (result->chosen[i]->threshold_ns > threshold_ns)
            threshold_ns = result->chosen[i]->threshold_ns;
    return rc
            ? rc
            : store_exec(store, err,
                      "INSERT INTO recording (id, begin_ns, end_ns, threshold_ns, sample_hz, python, target, missing) VALUES (1, ?, ?, ?, "
                      "?, ?, '{}', '[]')",
                      "iiiii", result->begin_ns, result->end_ns, threshold_ns,
                      result->chosen[0]->sample_hz, python);
}

// --- what recording.target says ------------------------------------------------------------------

struct merge_words {
    json_t *pids, *ranks, *command, *missing, *merged;
};

static bool merge_is_told(const json_t *target, json_int_t pid)
{
    json_t *one;
    size_t i;
    json_array_foreach(json_object_get(target, "ranks"), i,
            one) if (json_integer_value(json_object_get(one, "pid")) == pid) return true;
    return false;
}

// Those that joined its recorder, and whose environment says nothing.
static void merge_add_joined(const json_t *target, const struct scan_shard *shard, size_t node,
        struct merge_words *words)
{
    json_t *one;
    size_t i;
    json_array_foreach(shard->part ? NULL : json_object_get(target, "joined"), i, one)
    {
        json_int_t pid = json_integer_value(json_object_get(one, "pid")),
                   rank = json_integer_value(json_object_get(one, "rank"));
        json_array_append_new(words->pids, json_integer(pid));
        if (!merge_is_told(target, pid))
            json_array_append_new(words->ranks,
                    json_pack("{sI sI si si sI}", "pid", pid, "start_ns", (json_int_t)0, "rank",
                            (int)rank, "ranks", (int)shard->who.launcher.ranks, "node",
                            (json_int_t)node));
    }
}

// Who of the shard's processes is which rank, with the node: pids of others may be the same.
static void merge_add_ranks(const json_t *target, const struct scan_shard *shard, size_t node,
        struct merge_words *words)
{
    json_t *one;
    size_t i;
    bool told = false, single = !shard->part && !shard->outer_ranks;
    json_array_foreach(json_object_get(target, "ranks"), i, one)
    {
        json_t *copy = json_is_object(one) ? json_deep_copy(one) : NULL;
        // Its identity may be newer than its environment. What a part says has been put right
        // already, and of several ranks their environment is all.
        if (copy && single && json_integer_value(json_object_get(copy, "pid")) == shard->pid) {
            told = true;
            json_object_set_new(copy, "rank", json_integer(shard->who.launcher.rank));
            json_object_set_new(copy, "ranks", json_integer(shard->who.launcher.ranks));
        }
        if (copy && json_object_set_new(copy, "node", json_integer((json_int_t)node)) == 0)
            json_array_append(words->ranks, copy);
        json_decref(copy);
    }
    if (!told && single) // its environment said nothing, or could not be read
        json_array_append_new(words->ranks,
                json_pack("{sI sI si si sI}", "pid", (json_int_t)shard->pid, "start_ns",
                        (json_int_t)0, "rank", (int)shard->who.launcher.rank, "ranks",
                        (int)shard->who.launcher.ranks, "node", (json_int_t)node));
    merge_add_joined(target, shard, node, words);
    if (shard->part)
        json_array_extend(words->pids, json_object_get(target, "pids"));
    else
        json_array_append_new(words->pids, json_integer((json_int_t)shard->pid));
    if (!words->command)
        words->command = json_incref(json_object_get(target, "command"));
}

// Which of its ranks were recorded from when to when: of a part its merge with others asks.
static void merge_add_held(
        const struct scan_shard *shard, const struct clock_map *map, struct merge_words *words)
{
    for (size_t i = 0; i < shard->held_count; i++)
        json_array_append_new(words->merged,
                json_pack("{si sI sI}", "rank", (int)shard->held[i].rank, "begin_ns",
                        (json_int_t)clock_map_apply(map, shard->held[i].begin_ns), "end_ns",
                        (json_int_t)clock_map_apply(map, shard->held[i].end_ns)));
}

static void merge_add_sentence(struct merge_words *words, const char *sentence)
{
    json_t *one, *text;
    size_t i;
    json_array_foreach(words->missing, i,
            one) if (json_is_string(one) && strcmp(json_string_value(one), sentence) == 0) return;
    text = json_string(sentence);
    if (text)
        json_array_append_new(words->missing, text);
}

// What a part says of a rank that it lacks is said again when nobody else has that rank.
static bool merge_is_of_missing(const struct scan_shard *shard, const char *sentence)
{
    json_t *one;
    size_t i;
    bool same = false;
    json_array_foreach(shard->missing, i, one)
    {
        const char *why = json_string_value(json_object_get(one, "why"));
        char *text = xasprintf("rank %d: %s", (int)json_integer_value(json_object_get(one, "rank")),
                why ? why : "");
        same |= strcmp(text, sentence) == 0;
        free(text);
    }
    return same;
}

static int merge_read_words(struct store *shard_store, const struct scan_shard *shard, size_t node,
        struct merge_words *words, struct error *err)
{
    char *target_text =
            store_get_text(shard_store, "SELECT target FROM recording ORDER BY id LIMIT 1", "");
    char *missing_text =
            store_get_text(shard_store, "SELECT missing FROM recording ORDER BY id LIMIT 1", "");
    json_t *target = target_text ? json_loads(target_text, 0, NULL) : NULL,
           *missing = missing_text ? json_loads(missing_text, 0, NULL) : NULL, *one;
    size_t i;
    merge_add_ranks(target, shard, node, words);
    json_array_foreach(missing, i, one)
    {
        if (json_is_string(one) && !merge_is_of_missing(shard, json_string_value(one)))
            merge_add_sentence(words, json_string_value(one));
    }
    json_decref(target);
    json_decref(missing);
    free(target_text);
    free(missing_text);
    return store_failed(shard_store, err);
}

static int merge_write_words(struct store *store, const struct merge_result *result,
        struct merge_words *words, struct error *err)
{
    json_t *nodes = json_array(), *lacks = json_array();
    for (size_t i = 0; i < result->node_count; i++) {
        const struct merge_node *node = &result->nodes[i];
        json_array_append_new(nodes,
                json_pack("{ss ss sI sI sI sI sI sf sI so}", "host", node->host, "boot", node->boot,
                        "process_first", (json_int_t)node->process_first, "process_last",
                        (json_int_t)node->process_last, "cpu_first", (json_int_t)node->cpu_first,
                        "offset_ns", (json_int_t)node->map.shift_ns, "drift_from_ns",
                        (json_int_t)node->map.from_ns, "drift", node->map.drift,
                        "wall_minus_monotonic_ns", (json_int_t)node->wall_minus_monotonic_ns,
                        "clock_error_ns",
                        node->error_ns < 0 ? json_null()
                                           : json_integer((json_int_t)node->error_ns)));
    }
    for (size_t i = 0; i < result->missing_count; i++) {
        char *text = xasprintf("rank %d: %s", (int)result->missing[i].rank, result->missing[i].why);
        // each once: not looked for among the others
        json_array_append_new(words->missing, json_string(text));
        json_array_append_new(lacks,
                json_pack("{si ss}", "rank", (int)result->missing[i].rank, "why",
                        result->missing[i].why));
        free(text);
    }
    for (size_t i = 0; i < result->note_count; i++)
        merge_add_sentence(words, result->notes[i]);
    json_t *target = json_pack("{sO so so ss sI si so sO sO so}", "pids", words->pids, "cgroup",
            json_null(), "command", words->command ? json_incref(words->command) : json_array(),
            "run", result->chosen[0]->who.run, "restart", (json_int_t)result->restart, "world",
            (int)result->ranks, "nodes", nodes, "ranks", words->ranks, "merged", words->merged,
            "missing", lacks);
    char *text = target ? json_dumps(target, JSON_COMPACT) : NULL,
         *missing = json_dumps(words->missing, JSON_COMPACT);
    int rc = text && missing
            ? store_exec(store, err, "UPDATE recording SET target = ?, missing = ?", "ss", text,
                      missing)
            : error_set(err, -ENOMEM, "out of memory");
    json_decref(target);
    free(text);
    free(missing);
    return rc;
}

// --- shards, one by one --------------------------------------------------------------------------

// What a recorder that was killed has dropped stands in its counters only.
static int merge_tell_unended(struct store *store, struct store *shard_store,
        const struct scan_shard *shard, struct error *err)
{
    char *detail = xasprintf(
            "the recorder of rank %d was not ended in order", (int)shard->who.launcher.rank);
    int rc = store_ledger(store, NULL, "recorder", "end", -1, -1, 0, 1, detail, err);
    free(detail);
    sqlite3_stmt *stmt = rc
            ? NULL
            : store_query(shard_store, err,
                      "SELECT name, max(value) AS dropped FROM counter WHERE source = 'drops' GROUP BY name",
                      "");
    if (!stmt)
        return rc ? rc : err->code;
    int step;
    while ((step = store_step(shard_store, stmt, err)) == 1 && rc == 0) {
        char *producer = xasprintf("bpf.%s", store_text(shard_store, stmt, 0));
        int64_t dropped = sqlite3_column_int64(stmt, 1);
        if (dropped > 0)
            rc = store_ledger(store, NULL, producer, "records", -1, -1, dropped, 0, NULL, err);
        free(producer);
    }
    return rc ? rc : step;
}

// Whose fault an input or output error was: SQLite forgets on the way what the system said.
static bool merge_is_whole(struct store *shard_store)
{
    char *word = store_get_text(shard_store, "PRAGMA quick_check(1)", "");
    bool whole = word && strcmp(word, "ok") == 0;
    free(word);
    return whole;
}

// Whose a cgroup is that several ranks have in common: everybody's, where there is no other shard,
// else theirs. NULL: it is of one rank.
static char *merge_cgroup_ranks(const struct merge_opts *opts, const struct merge_result *result,
        const struct scan_shard *shard)
{
    if (!scan_has_several(shard))
        return NULL;
    json_t *list = json_array();
    for (size_t i = 0; i < shard->held_count && (opts->part || result->chosen_count > 1); i++)
        json_array_append_new(list, json_integer(shard->held[i].rank));
    char *text = json_dumps(list, JSON_COMPACT);
    json_decref(list);
    return text;
}

// -ENOSPC, -EBUSY: of the store, and the end; else the shard is damaged, and its rank missing.
static int merge_take(struct store *store, const struct merge_opts *opts,
        struct merge_result *result, struct scan_shard *shard, struct merge_words *words,
        struct error *err)
{
    struct merge_node *node = &result->nodes[shard->node];
    struct store *shard_store = NULL;
    int64_t last = 0;
    int rc = scan_open(shard, &shard_store, err);
    if (rc) // locked by somebody or damaged meanwhile: the others are merged
        return rc == -ENOSPC || rc == -EBUSY ? -EBADMSG : rc;
    rc = store_get_int(store, &last, err, "SELECT coalesce(max(id), 0) FROM process", "");
    if (rc) {
        store_close(shard_store);
        return error_set(err, -ENOSPC, "failed to read '%s' again, into which the shards go",
                store_path(store));
    }
    char *cgroup_ranks = merge_cgroup_ranks(opts, result, shard);
    const struct shard_place place = {.recording_id = 1,
            .process_first = node->process_first ? node->process_first : last + 1,
            .shift_ns = node->map.shift_ns,
            .drift_from_ns = node->map.from_ns,
            .drift = node->map.drift,
            .cpu_first = node->cpu_first,
            .rank = shard->part || scan_is_shared(shard) ? -1 : shard->who.launcher.rank,
            .several = shard->outer_ranks > 0,
            .cgroup_ranks = cgroup_ranks,
            .machine = !node->process_first};
    rc = shard_take(store, shard_store, &place, err);
    free(cgroup_ranks);
    if (rc == -EIO && merge_is_whole(shard_store))
        rc = error_set(err, -ENOSPC,
                "failed to write '%s': the disk is full, or files may not be that large; name another place with -o",
                store_path(store));
    if (rc == -EBADMSG)
        error_prefix(err, "'%s' is damaged", shard->path);
    if (rc == 0)
        rc = merge_read_words(shard_store, shard, (size_t)(node - result->nodes), words, err);
    if (rc == 0 && !shard->ended)
        rc = merge_tell_unended(store, shard_store, shard, err);
    store_close(shard_store);
    if (rc == 0) {
        merge_add_held(shard, &node->map, words);
        node->process_first = place.process_first;
        rc = store_get_int(
                store, &node->process_last, err, "SELECT coalesce(max(id), 0) FROM process", "");
    }
    return rc;
}

static int merge_take_all(struct store *store, const struct merge_opts *opts,
        struct merge_result *result, struct merge_words *words, struct error *err)
{
    size_t taken = 0;
    int rc = 0;
    for (size_t i = 0; i < result->chosen_count && rc == 0; i++) {
        struct scan_shard *shard = result->chosen[i];
        struct error own = {0};
        rc = merge_take(store, opts, result, shard, words, &own);
        if (rc == -ENOSPC || rc == -EBUSY)
            return error_set(err, rc, "%s", own.text);
        taken += rc == 0;
        for (size_t k = 0; rc && k < shard->held_count; k++, result->merged--)
            choose_add_missing(result, shard->held[k].rank, own.text);
        rc = 0;
    }
    return taken ? 0
                 : error_set(err, -EBADMSG, "none of the shards in run '%s' can be read: %s",
                           result->run,
                           result->missing_count ? result->missing[result->missing_count - 1].why
                                                 : "there is none");
}

// Equal lines of many recorders are one.
static int merge_sum_ledger(struct store *store, struct error *err)
{
    static const char sql[] =
            "CREATE TEMP TABLE merge_ledger AS SELECT producer, kind, sum(seen) AS seen, sum(kept) AS kept, sum(dropped) AS dropped, max(breach) AS "
            "breach, detail FROM ledger GROUP BY producer, kind, detail ORDER BY min(id); DELETE FROM ledger; INSERT INTO ledger (producer, kind, "
            "seen, kept, dropped, breach, detail) SELECT producer, kind, seen, kept, dropped, breach, detail FROM merge_ledger; "
            "DROP TABLE merge_ledger; DROP INDEX merge_thread; DROP INDEX merge_process";
    return sqlite3_exec(store_db(store), sql, NULL, NULL, NULL) == SQLITE_OK
            ? 0
            : error_set(err, sqlite3_errcode(store_db(store)) == SQLITE_FULL ? -ENOSPC : -EIO,
                      "failed to write '%s': %s", store_path(store),
                      sqlite3_errmsg(store_db(store)));
}

static int merge_fill(struct store *store, const struct merge_opts *opts,
        struct merge_result *result, struct error *err)
{
    struct merge_words words = {json_array(), json_array(), NULL, json_array(), json_array()};
    struct store *first = NULL;
    int rc = scan_open(result->chosen[0], &first, err);
    if (rc == 0)
        rc = merge_store_run(store, opts, first, err);
    if (rc == 0)
        rc = merge_store_recording(store, result, first, err);
    store_close(first);
    // Until it is whole it has another name, and nobody needs what a loss of power leaves of it.
    if (rc == 0 &&
            sqlite3_exec(store_db(store),
                    "PRAGMA synchronous = OFF; PRAGMA foreign_keys = OFF; CREATE INDEX merge_thread ON thread "
                    "(process_id, tid); CREATE INDEX merge_process ON process (tgid)",
                    NULL, NULL, NULL) != SQLITE_OK)
        rc = error_set(err, -EIO, "failed to write '%s': %s", store_path(store),
                sqlite3_errmsg(store_db(store)));
    if (rc == 0)
        rc = merge_take_all(store, opts, result, &words, err);
    if (rc == 0)
        rc = merge_write_words(store, result, &words, err);
    if (rc == 0)
        rc = merge_sum_ledger(store, err);
    if (rc == 0)
        rc = store_get_int(store, &result->steps, err,
                "SELECT coalesce(max(steps), 0) FROM (SELECT count(*) AS steps FROM recorded_step GROUP BY rank)",
                "");
    sqlite3_exec(store_db(store), "PRAGMA synchronous = FULL", NULL, NULL, NULL);
    if (rc == 0)
        rc = store_exec(store, err,
                "UPDATE run SET state = 'done', ended_wall_ns = ?, writer_pid = NULL, writer_start = NULL",
                "i", clock_wall_ns());
    json_decref(words.pids);
    json_decref(words.ranks);
    json_decref(words.command);
    json_decref(words.missing);
    json_decref(words.merged);
    return rc;
}

// Right behind the end of a job its recorders still write: they get a while.
int merge_scan(const struct merge_opts *opts, struct merge_result *ret, struct error *err)
{
    enum { WAIT_NS = 200000000, WAITS_MAX = 50 };
    for (int waits = 0;; waits++) {
        bool ending = false;
        int rc = scan_dir(opts->dir, opts->visitor, &ret->scan, err);
        for (size_t i = 0; i < ret->scan.count; i++)
            ending |= ret->scan.shards[i].ending;
        if (rc || !ending || waits == WAITS_MAX)
            return rc;
        scan_free(&ret->scan);
        clock_sleep_until_ns(clock_monotonic_ns() + WAIT_NS);
    }
}

int merge_find(const struct merge_opts *opts, struct merge_result *ret, struct error *err)
{
    *ret = (struct merge_result){.restart = -1};
    int rc = merge_scan(opts, ret, err);
    return rc ? rc : choose_shards(opts, ret, err);
}

static int merge_is_new(const char *path, const char *what, struct error *err)
{
    struct stat info;
    return stat(path, &info) < 0
            ? 0
            : error_set(err, -EINVAL, "'%s' exists already; name another %s with -o", path, what);
}

// A part is named by its first rank, so that those of all nodes go into one directory.
static int merge_find_path(
        const struct merge_opts *opts, struct merge_result *result, struct error *err)
{
    if (!opts->part) {
        result->path = xstrdup(opts->path);
        return 0;
    }
    if (result->node_count > 1)
        return error_set(err, -EINVAL,
                "'%s' has shards of %zu nodes, and a part is of one: merge them without --part",
                opts->dir, result->node_count);
    const struct identity *who = &result->chosen[0]->who;
    result->path = xasprintf("%s/%s/%lld-%d.part.db", opts->path, who->run,
            (long long)result->restart, (int)who->launcher.rank);
    int rc = merge_is_new(result->path, "directory", err);
    return rc || opts->dry_run ? rc : directory_make_above(result->path, 0777, err);
}

// Two merges of one path must not write into the same.
char *merge_partial(const char *path)
{
    char host[HOST_NAME_MAX + 1] = "";
    gethostname(host, sizeof host - 1);
    char *prefix = xasprintf("%s.%s-", string_base_name(path), host), *folder = string_folder(path);
    DIR *dir = opendir(folder);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        char *end;
        long pid = strncmp(entry->d_name, prefix, strlen(prefix)) == 0
                ? strtol(entry->d_name + strlen(prefix), &end, 10)
                : 0;
        // its journal, too
        if (pid > 0 && strncmp(end, ".partial", 8) == 0 && kill((pid_t)pid, 0) < 0 &&
                errno == ESRCH)
            unlinkat(dirfd(dir), entry->d_name, 0);
    }
    if (dir)
        closedir(dir);
    free(folder);
    free(prefix);
    return xasprintf("%s.%s-%d.partial", path, host, (int)getpid());
}

// Where a file system has no links, as many of those over the network: whoever makes the name has
// it, and puts the file into its own place. 0, or an errno.
static int merge_settle_alone(const char *partial, const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return errno;
    close(fd);
    if (rename(partial, path) == 0)
        return 0;
    int code = errno;
    unlink(path);
    return code;
}

int merge_settle(const char *partial, const char *path, struct error *err)
{
    int code = link(partial, path) == 0 ? 0 : errno; // takes nobody's place, as a rename does
    if (code && code != EEXIST)
        code = merge_settle_alone(partial, path);
    if (code == 0)
        return 0;
    return error_set(
            err, code == EEXIST ? -EINVAL : -code, "failed to make '%s': %s", path, strerror(code));
}

int merge_run(const struct merge_opts *opts, struct merge_result *ret, struct error *err)
{
    struct store *store = NULL;
    *ret = (struct merge_result){.restart = -1};
    int rc = opts->part ? 0 : merge_is_new(opts->path, "file", err);
    if (rc == 0)
        rc = merge_find(opts, ret, err);
    if (rc)
        return rc;
    merge_find_nodes(ret);
    clocks_find(ret);
    merge_find_residual(ret);
    choose_window(ret, opts->part);
    rc = merge_find_path(opts, ret, err);
    if (rc || opts->dry_run)
        return rc;
    char *partial = merge_partial(ret->path);
    rc = store_open(partial, STORE_CREATE, &store, err);
    if (rc == 0)
        rc = merge_fill(store, opts, ret, err);
    store_close(store);
    if (rc == 0)
        rc = merge_settle(partial, ret->path, err);
    unlink(partial);
    free(partial);
    return rc;
}
