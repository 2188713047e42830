// SPDX-License-Identifier: Apache-2.0
// Lists of shards between processes, as JSON.
#include "harness/rank/seen.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/containers/vector.h"
#include "common/strings.h"
#include "harness/rank/choose.h"
#include "reports/analyse/reduce/reduced.h"

#define SEEN_FILE_BYTES_MAX \
    ((int64_t)1 << 44) // a larger one counts as much: sums of them have room

// --- texts and numbers ---------------------------------------------------------------------------

// A new reference. Paths may be no UTF-8.
static json_t *seen_text(const char *text)
{
    char *copy = xstrdup(text);
    string_make_utf8(copy, strlen(copy));
    json_t *json = json_string(copy);
    free(copy);
    return json;
}

static bool seen_number(
        const json_t *entry, const char *name, int64_t least, int64_t most, int64_t *ret)
{
    const json_t *value = json_object_get(entry, name);
    *ret = (int64_t)json_integer_value(value);
    return json_is_integer(value) && *ret >= least && *ret <= most;
}

static int seen_dump_bytes(const char *bytes, size_t size, void *ret)
{
    strbuf_add_bytes(ret, bytes, size);
    return 0;
}

// The document is taken.
static int seen_dump(json_t *document, struct strbuf *ret, struct error *err)
{
    int failed = document ? json_dump_callback(document, seen_dump_bytes, ret, JSON_COMPACT) : -1;
    json_decref(document);
    return failed ? error_set(err, -ENOMEM, "failed to list shards for other processes") : 0;
}

static int seen_bad(const char *what, struct error *err)
{
    return error_set(err, -EBADMSG, "what another process sent is damaged: %s", what);
}

// --- what there is -------------------------------------------------------------------------------

// The caller frees.
static char *seen_key(const struct scan_shard *shard)
{
    const char *name = string_base_name(shard->path);
    const struct identity *who = &shard->who;
    char *key = shard->why
            ? xasprintf("%s/%s: %s", shard->run, name, shard->why)
            : xasprintf("%s/%s: %s %d-%d %s %lld %lld", shard->run, name, who->run,
                      (int)who->launcher.restart,
                      (int)(shard->outer_ranks ? shard->outer_rank : who->launcher.rank), who->boot,
                      (long long)shard->pid, (long long)shard->started_wall_ns);
    string_make_utf8(key, strlen(key));
    return key;
}

// Of a part: what it says of ranks that it lacks, and nothing else that may stand there.
static json_t *seen_missing_of(const struct scan_shard *shard)
{
    json_t *list = json_array(), *one;
    size_t i;
    json_array_foreach(shard->missing, i, one)
    {
        json_t *rank = json_object_get(one, "rank"), *why = json_object_get(one, "why");
        if (json_is_integer(rank) && json_is_string(why))
            json_array_append_new(list, json_pack("{sO sO}", "rank", rank, "why", why));
    }
    return list;
}

static json_t *seen_entry(const struct scan_shard *shard, int process)
{
    json_t *entry = json_object(), *held = json_array();
    for (size_t i = 0; i < shard->held_count; i++)
        json_array_append_new(held, json_integer(shard->held[i].rank));
    json_object_set_new(entry, "path", seen_text(shard->path));
    json_object_set_new(entry, "folder", seen_text(shard->run));
    json_object_set_new(entry, "restart", json_integer((json_int_t)shard->restart));
    json_object_set_new(entry, "rank", json_integer((json_int_t)shard->rank));
    if (shard->why)
        json_object_set_new(entry, "why", seen_text(shard->why));
    else
        json_object_set_new(entry, "who", identity_json(&shard->who));
    json_object_set_new(entry, "part", json_boolean(shard->part));
    json_object_set_new(entry, "outer_rank", json_integer(shard->outer_rank));
    json_object_set_new(entry, "outer_ranks", json_integer(shard->outer_ranks));
    json_object_set_new(entry, "held", held);
    if (scan_is_shared(shard))
        json_object_set_new(entry, "shared", json_true());
    json_object_set_new(entry, "missing", seen_missing_of(shard));
    json_object_set_new(entry, "pid", json_integer((json_int_t)shard->pid));
    json_object_set_new(entry, "started_wall_ns", json_integer((json_int_t)shard->started_wall_ns));
    json_object_set_new(entry, "bytes",
            json_integer((json_int_t)(shard->bytes < SEEN_FILE_BYTES_MAX ? shard->bytes
                                                                         : SEEN_FILE_BYTES_MAX)));
    json_object_set_new(entry, "alive", json_boolean(shard->alive));
    json_object_set_new(entry, "processes", json_pack("[i]", process));
    return entry;
}

static json_int_t seen_bytes_of(const json_t *entry)
{
    return json_integer_value(json_object_get(entry, "bytes"));
}

// The entry is taken. One that is there is also seen by others then, one of whom may know that its
// recorder lives. Of copies of different sizes the largest counts: a smaller one was made while it
// was recorded, and who reduces it must not depend on who has how much to do.
static void seen_put_entry(struct seen *seen, const char *key, json_t *entry)
{
    if (!seen->shards)
        seen->shards = json_object();
    json_t *known = json_object_get(seen->shards, key);
    if (json_is_true(json_object_get(entry, "alive")) ||
            json_is_true(json_object_get(known, "alive"))) {
        json_object_set_new(entry, "alive", json_true());
        json_object_set_new(known, "alive", json_true()); // NULL ok
    }
    if (!known || seen_bytes_of(entry) > seen_bytes_of(known)) {
        json_object_set_new(seen->shards, key, entry);
        return;
    }
    if (seen_bytes_of(entry) == seen_bytes_of(known))
        json_array_extend(json_object_get(known, "processes"), json_object_get(entry, "processes"));
    json_decref(entry);
}

void seen_put(struct seen *seen, const struct scan *scan, int process)
{
    for (size_t i = 0; i < scan->count; i++) {
        char *key = seen_key(&scan->shards[i]);
        seen_put_entry(seen, key, seen_entry(&scan->shards[i], process));
        free(key);
    }
}

void seen_put_none(struct seen *seen, const char *why)
{
    seen->blind++;
    if (!seen->why)
        seen->why = xstrdup(why);
}

static const char *seen_version(const struct seen *seen)
{
    return seen->version ? seen->version : "";
}

int seen_encode(const struct seen *seen, struct strbuf *ret, struct error *err)
{
    json_t *document = json_object();
    json_object_set_new(
            document, "shards", seen->shards ? json_incref(seen->shards) : json_object());
    json_object_set_new(document, "blind", json_integer((json_int_t)seen->blind));
    json_object_set_new(document, "version", json_string(seen_version(seen)));
    if (seen->why)
        json_object_set_new(document, "why", seen_text(seen->why));
    return seen_dump(document, ret, err);
}

int seen_add(struct seen *seen, const void *bytes, size_t size, struct error *err)
{
    json_t *document = json_loadb(bytes, size, JSON_REJECT_DUPLICATES, NULL),
           *shards = json_object_get(document, "shards"), *entry;
    const char *key, *why = json_string_value(json_object_get(document, "why")),
                     *version = json_string_value(json_object_get(document, "version"));
    int64_t blind = 0;
    // what two versions make of shards is not one job's
    if (version && strcmp(version, seen_version(seen)) != 0) {
        error_set(err, -EINVAL,
                "this is %s, and another process is %.80s: start one version on all nodes",
                seen_version(seen), version);
        json_decref(document);
        return -EINVAL;
    }
    bool good = version && json_is_object(shards) &&
            seen_number(document, "blind", 0, INT32_MAX, &blind);
    json_object_foreach(shards, key, entry) good &=
            json_array_size(json_object_get(entry, "processes")) > 0;
    if (!good) {
        json_decref(document);
        return seen_bad("it is no list of shards", err);
    }
    json_object_foreach(shards, key, entry) seen_put_entry(seen, key, json_incref(entry));
    seen->blind += blind;
    if (why && !seen->why)
        seen->why = xstrdup(why);
    json_decref(document);
    return 0;
}

void seen_free(struct seen *seen)
{
    json_decref(seen->shards);
    free(seen->why);
    *seen = (struct seen){0};
}

// --- as a scan -----------------------------------------------------------------------------------

static bool seen_read_held(const json_t *entry, struct scan_shard *ret)
{
    const json_t *list = json_object_get(entry, "held"), *one;
    size_t i;
    bool own = false;
    json_array_foreach(list, i, one)
    {
        json_int_t rank = json_is_integer(one) ? json_integer_value(one) : -1;
        own |= rank == ret->who.launcher.rank;
        if (rank < 0 || rank >= ret->who.launcher.ranks || (i && rank <= ret->held[i - 1].rank))
            return false;
        vector_push(ret->held, ret->held_count, (struct scan_rank){.rank = (int32_t)rank});
    }
    // with those that joined its recorder, which may come before it
    bool shared = json_is_true(json_object_get(entry, "shared"));
    return own &&
            (shared ||
                    (ret->held[0].rank == ret->who.launcher.rank &&
                            (ret->part || ret->outer_ranks || ret->held_count == 1)));
}

// What is in ret is scan_free's, in any case.
static bool seen_read(const json_t *entry, struct scan_shard *ret)
{
    enum { NUMBER_MAX = 999999999 }; // of a name, as scan_dir reads them
    const char *path = json_string_value(json_object_get(entry, "path")),
               *folder = json_string_value(json_object_get(entry, "folder"));
    const char *why = json_string_value(json_object_get(entry, "why"));
    json_t *missing = json_object_get(entry, "missing");
    ret->path = xstrdup(path ? path : "");
    ret->run = xstrdup(folder ? folder : "");
    ret->why = why ? xstrdup(why) : NULL;
    ret->missing = json_is_array(missing) ? json_incref(missing) : NULL;
    ret->part = json_is_true(json_object_get(entry, "part"));
    ret->alive = json_is_true(json_object_get(entry, "alive"));
    int64_t outer_rank, outer_ranks;
    if (!seen_number(entry, "outer_rank", 0, INT32_MAX, &outer_rank) ||
            !seen_number(entry, "outer_ranks", 0, INT32_MAX, &outer_ranks))
        return false;
    ret->outer_rank = (int32_t)outer_rank;
    ret->outer_ranks = (int32_t)outer_ranks;
    if (!path || !folder || !seen_number(entry, "restart", 0, NUMBER_MAX, &ret->restart) ||
            !seen_number(entry, "rank", 0, NUMBER_MAX, &ret->rank) ||
            !seen_number(entry, "pid", INT64_MIN, INT64_MAX, &ret->pid) ||
            !seen_number(entry, "started_wall_ns", INT64_MIN, INT64_MAX, &ret->started_wall_ns) ||
            !seen_number(entry, "bytes", 0, SEEN_FILE_BYTES_MAX, &ret->bytes))
        return false;
    return why ||
            (identity_parse(json_object_get(entry, "who"), &ret->who) &&
                    seen_read_held(entry, ret));
}

int seen_scan(const struct seen *seen, struct scan *ret, struct error *err)
{
    struct scan scan = {0};
    const char *key;
    json_t *entry;
    bool good = true;
    json_object_foreach(seen->shards, key, entry)
    {
        struct scan_shard shard = {0};
        good &= seen_read(entry, &shard);
        vector_push(scan.shards, scan.count, shard);
    }
    if (!good) {
        scan_free(&scan);
        return seen_bad("a shard in it cannot be", err);
    }
    scan_sort(&scan);
    *ret = scan;
    return 0;
}

// --- who reduces what ----------------------------------------------------------------------------

// -1: nobody that there is sees it.
static int seen_owner(const json_t *list, int processes, const uint64_t *loads)
{
    const json_t *one;
    size_t i;
    int owner = -1;
    json_array_foreach(list, i, one)
    {
        json_int_t process = json_is_integer(one) ? json_integer_value(one) : -1;
        if (process >= 0 && process < processes && (owner < 0 || loads[process] < loads[owner]))
            owner = (int)process;
    }
    return owner;
}

int seen_share(const struct seen *seen, const struct merge_result *shards, int processes,
        uint64_t window_steps, struct strbuf *ret, struct error *err)
{
    uint64_t *loads = xcalloc((size_t)processes, sizeof *loads);
    json_t *owners = json_object();
    bool good = true;
    for (size_t i = 0; i < shards->chosen_count; i++) {
        const struct scan_shard *shard = shards->chosen[i];
        char *key = seen_key(shard);
        int owner = seen_owner(
                json_object_get(json_object_get(seen->shards, key), "processes"), processes, loads);
        good &= owner >= 0 && json_object_set_new(owners, key, json_integer(owner)) == 0;
        if (owner >= 0)
            loads[owner] += (uint64_t)shard->bytes + 1;
        free(key);
    }
    free(loads);
    if (!good || json_object_size(owners) != shards->chosen_count) {
        json_decref(owners);
        return seen_bad("nobody sees one of the shards in it", err);
    }
    return seen_dump(json_pack("{si sI so}", "ranks", (int)shards->ranks, "window_steps",
                             (json_int_t)window_steps, "owners", owners),
            ret, err);
}

static bool seen_is_of(const json_t *owner, int process)
{
    return json_is_integer(owner) && json_integer_value(owner) == process;
}

// All that the process was given is there, and of that job.
static bool seen_take_owned(json_t *owners, int process, int64_t ranks, struct merge_result *mine)
{
    const char *key_left;
    json_t *owner;
    for (size_t i = 0; i < mine->scan.count; i++) {
        struct scan_shard *shard = &mine->scan.shards[i];
        char *key = seen_key(shard);
        bool taken = seen_is_of(json_object_get(owners, key), process);
        if (taken)
            json_object_del(owners, key); // once
        free(key);
        if (taken && (shard->why || shard->who.launcher.ranks != ranks))
            return false;
        if (taken)
            vector_push(mine->chosen, mine->chosen_count, shard);
    }
    json_object_foreach(owners, key_left, owner) if (seen_is_of(owner, process)) return false;
    return true;
}

int seen_take_share(const void *bytes, size_t size, int process, struct merge_result *mine,
        uint64_t *ret_window_steps, struct error *err)
{
    json_t *document = json_loadb(bytes, size, JSON_REJECT_DUPLICATES, NULL),
           *owners = json_object_get(document, "owners");
    int64_t ranks = 0, window = 0;
    bool good = json_is_object(owners) &&
            seen_number(document, "ranks", 1, REDUCED_RANKS_MAX, &ranks) &&
            seen_number(document, "window_steps", 1, INT64_MAX, &window) &&
            seen_take_owned(owners, process, ranks, mine);
    json_decref(document);
    if (!good)
        return seen_bad("it is no share of the shards here", err);
    mine->run = mine->chosen_count ? mine->chosen[0]->run : "";
    mine->ranks = (int32_t)ranks;
    mine->lacks = xcalloc((size_t)ranks, sizeof *mine->lacks);
    *ret_window_steps = (uint64_t)window;
    return 0;
}

// --- who is missing ------------------------------------------------------------------------------

int seen_missing_encode(const struct merge_result *shards, struct strbuf *ret, struct error *err)
{
    json_t *list = json_array();
    for (size_t i = 0; i < shards->missing_count; i++)
        json_array_append_new(list,
                json_pack("{si so}", "rank", (int)shards->missing[i].rank, "why",
                        seen_text(shards->missing[i].why)));
    return seen_dump(list, ret, err);
}

int seen_missing_add(struct merge_result *shards, const void *bytes, size_t size, struct error *err)
{
    json_t *list = json_loadb(bytes, size, JSON_REJECT_DUPLICATES, NULL), *one;
    size_t i;
    bool good = json_is_array(list);
    json_array_foreach(list, i, one)
    {
        const char *why = json_string_value(json_object_get(one, "why"));
        int64_t rank;
        if (seen_number(one, "rank", 0, (int64_t)shards->ranks - 1, &rank) && why)
            choose_add_missing(shards, (int32_t)rank, why);
        else
            good = false;
    }
    json_decref(list);
    return good ? 0 : seen_bad("it is no list of ranks that are missing", err);
}
