// SPDX-License-Identifier: Apache-2.0
// The files of the nodes. A line is one write of a file that is opened for it and closed behind it,
// and what is read is opened anew: network file systems promise that who opens a file sees what was
// written before it was closed, and nothing more. A line that is not ended yet is not read.
#include "harness/run/nodes/nodes.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/directory.h"
#include "common/strings.h"
#include "common/units.h"

enum {
    NODES_FILE_BYTES_MAX = 16 << 20, // of another node: 40,000 pairs
    NODES_LOOK_NS_MIN = 5000000,     // between two looks at the others,
    NODES_LOOK_NS_MAX = 100000000,   // longer the longer they take
    // node 0 waits for answers, stores, judges: so many times what it may wait for one
    NODES_ORDER_HANDOVERS = 6
};

struct nodes_peer {
    char *path;
    int64_t read_bytes;
    json_t *lines; // array, of what was read so far
};

struct nodes {
    int node, count;
    char *dir, *master, *reason, *gone;
    char nonce[37];
    int64_t wait_ns, handover_ns;
    const volatile int *stop;
    struct nodes_peer *peers;
    int64_t pair; // number of the present one
};

int nodes_self(const struct nodes *nodes)
{
    return nodes->node;
}

int nodes_count(const struct nodes *nodes)
{
    return nodes->count;
}

const char *nodes_master(const struct nodes *nodes)
{
    return nodes->master;
}

char *nodes_store_path(const struct nodes *nodes, int node)
{
    return node ? xasprintf("%s/node-%d.db", nodes->dir, node) : xasprintf("%s/run.db", nodes->dir);
}

// --- lines ---------------------------------------------------------------------------------------

// line: taken.
static int nodes_say(struct nodes *nodes, json_t *line, struct error *err)
{
    const char *path = nodes->peers[nodes->node].path;
    char *text = json_dumps(line, JSON_COMPACT), *ended = xasprintf("%s\n", text ? text : "{}");
    int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW), rc = fd < 0 ? -errno : 0;
    ssize_t len = (ssize_t)strlen(ended), wrote = rc ? -1 : write(fd, ended, (size_t)len);
    if (rc == 0 && wrote != len)
        rc = wrote < 0 ? -errno : -ENOSPC;
    if (fd >= 0 && close(fd) < 0 && rc == 0)
        rc = -errno;
    free(text);
    free(ended);
    json_decref(line);
    return rc ? error_set(err, rc, "failed to write to '%s': %s", path, strerror(-rc)) : 0;
}

static void nodes_parse(struct nodes_peer *peer, const char *text, size_t len)
{
    const char *at = text, *end;
    for (; (end = memchr(at, '\n', len - (size_t)(at - text))); at = end + 1) {
        json_t *line = json_loadb(at, (size_t)(end - at), 0, NULL);
        if (json_is_object(line))
            json_array_append(peer->lines, line);
        json_decref(line);
    }
    peer->read_bytes += at - text;
}

// What a node has said since it was read last. One that begins anew is not who it was.
static void nodes_read(struct nodes *nodes, int node)
{
    struct nodes_peer *peer = &nodes->peers[node];
    struct stat info;
    int fd = open(peer->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return;
    if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_size != peer->read_bytes &&
            info.st_size <= NODES_FILE_BYTES_MAX) {
        if (info.st_size < peer->read_bytes) {
            json_array_clear(peer->lines);
            peer->read_bytes = 0;
        }
        size_t len = (size_t)(info.st_size - peer->read_bytes);
        char *text = xcalloc(len + 1, 1);
        ssize_t got = pread(fd, text, len, peer->read_bytes);
        if (got > 0)
            nodes_parse(peer, text, (size_t)got);
        free(text);
    }
    close(fd);
}

// The last line of a node with this key; n: of this pair, -1: of any. NULL: none.
static const json_t *nodes_find(const struct nodes *nodes, int node, const char *key, int64_t n)
{
    const json_t *lines = nodes->peers[node].lines;
    for (size_t i = json_array_size(lines); i-- > 0;) {
        const json_t *line = json_array_get(lines, i);
        if (json_object_get(line, key) &&
                (n < 0 || json_integer_value(json_object_get(line, "n")) == n))
            return line;
    }
    return NULL;
}

static const char *nodes_text(const json_t *line, const char *key)
{
    const char *text = json_string_value(json_object_get(line, key));
    return text ? text : "";
}

// A moment until the next look. false: no more, the time is over or somebody wants the end.
static bool nodes_pause(const struct nodes *nodes, int64_t begin_ns, int64_t deadline_ns)
{
    int64_t now = clock_monotonic_ns(), pause = (now - begin_ns) / 8;
    if (now >= deadline_ns || (nodes->stop && *nodes->stop))
        return false;
    pause = pause < NODES_LOOK_NS_MIN   ? NODES_LOOK_NS_MIN
            : pause > NODES_LOOK_NS_MAX ? NODES_LOOK_NS_MAX
                                        : pause;
    clock_sleep_until_ns(now + pause);
    return true;
}

// --- the start -----------------------------------------------------------------------------------

static int nodes_compare(
        const struct nodes *nodes, int node, const char *identity, struct error *err)
{
    const json_t *here = nodes_find(nodes, node, "here", -1),
                 *fail = here ? NULL : nodes_find(nodes, node, "fail", -1);
    const json_t *own = json_object_get(here, "count");
    if (fail) {
        error_set(err, -ECANCELED, "node %d cannot take part: %s", node, nodes_text(fail, "why"));
        string_make_plain(err->text, strlen(err->text));
        return -ECANCELED;
    }
    if (here &&
            (json_integer_value(own) != nodes->count ||
                    json_integer_value(json_object_get(here, "node")) != node))
        return error_set(err, -EINVAL,
                "node %d is one of %lld nodes, this one is one of %d; start all with the same launcher, or name "
                "another --job",
                node, (long long)json_integer_value(own), nodes->count);
    if (here && strcmp(nodes_text(here, "identity"), identity) != 0)
        return error_set(err, -EINVAL,
                "node %d has another plan, seed or version of upgate than node %d: all must have the same; "
                "compare `upgate ab PLAN.yaml --dry-run` and `upgate --version` on both",
                node, nodes->node);
    return 0;
}

// Node 0 names all that are there, by words that no earlier run has said.
static json_t *nodes_all(const struct nodes *nodes)
{
    json_t *all = json_array();
    for (int k = 0; k < nodes->count; k++)
        json_array_append_new(all,
                json_string(k == nodes->node
                                ? nodes->nonce
                                : nodes_text(nodes_find(nodes, k, "here", -1), "nonce")));
    return json_pack("{so}", "all", all);
}

// Who has not come; NULL: all have. Of the others: node 0 has named us.
static char *nodes_missing(const struct nodes *nodes, bool ready)
{
    struct strbuf names = {0};
    int missing = 0;
    for (int k = 0; k < nodes->count; k++) {
        bool there = k == nodes->node || nodes_find(nodes, k, "here", -1);
        if (ready && k && there)
            there = strcmp(nodes_text(nodes_find(nodes, k, "ready", -1), "ready"), nodes->nonce) ==
                    0;
        if (!there)
            strbuf_add(&names, "%s%d", missing++ ? ", " : "", k);
    }
    if (!missing)
        return NULL;
    char *list = strbuf_take(&names),
         *text = xasprintf("%s %s of %d", missing == 1 ? "node" : "nodes", list, nodes->count);
    free(list);
    return text;
}

static int nodes_late(const struct nodes *nodes, char *missing, struct error *err)
{
    char limit[32];
    bool stopped = nodes->stop && *nodes->stop;
    int rc = stopped
            ? error_set(err, -EINTR, "stopped while waiting for %s", missing)
            : error_set(err, -ETIMEDOUT,
                      "%s did not come within %s; is '%s' on a file system that all nodes share, and is "
                      "`upgate node` started on each? --wait waits longer",
                      missing, unit_format_ns(limit, sizeof limit, (double)nodes->wait_ns),
                      nodes->dir);
    free(missing);
    return rc;
}

static int nodes_roll_call(struct nodes *nodes, const char *identity, struct error *err)
{
    int64_t begin = clock_monotonic_ns(), deadline = begin + nodes->wait_ns;
    bool named = false, ready = false;
    int rc = 0;
    for (;;) {
        for (int k = 0; k < nodes->count && rc == 0; k++) {
            nodes_read(nodes, k);
            rc = nodes_compare(nodes, k, identity, err);
        }
        if (rc)
            return rc;
        char *missing = nodes_missing(nodes, nodes->node == 0 && named);
        if (!missing && nodes->node == 0 && named)
            return 0;
        if (!missing && nodes->node == 0) {
            named = true;
            rc = nodes_say(nodes, nodes_all(nodes), err);
            continue;
        }
        const json_t *all = json_object_get(nodes_find(nodes, 0, "all", -1), "all");
        const char *own = json_string_value(json_array_get(all, (size_t)nodes->node));
        ready = nodes->node && own && strcmp(own, nodes->nonce) == 0;
        if (ready) { // what node 0 said before was another run's
            free(missing);
            return nodes_say(nodes,
                    json_pack("{ss?}", "ready", json_string_value(json_array_get(all, 0))), err);
        }
        if (!nodes_pause(nodes, begin, deadline))
            return nodes_late(nodes, missing ? missing : xstrdup("node 0"), err);
        free(missing);
    }
}

// The file of this node, which says who had this name first.
static int nodes_make(struct nodes *nodes, struct error *err)
{
    const char *path = nodes->peers[nodes->node].path;
    int rc = directory_make_above(path, 0777, err);
    if (rc)
        return rc;
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 && errno == EEXIST)
        return error_set(err, -EINVAL,
                "'%s' exists: this run has been started before; name another one with --job, or another "
                "directory with -o",
                path);
    if (fd < 0)
        return error_set(err, -errno, "failed to make '%s': %s", path, strerror(errno));
    close(fd);
    char *nonce = string_read_file("/proc/sys/kernel/random/uuid", 36, NULL);
    snprintf(nodes->nonce, sizeof nodes->nonce, "%s", nonce ? nonce : "");
    free(nonce);
    return 0;
}

// Why this node does not come, for those who wait for it. A signal is for all of them: their
// launcher has it.
static int nodes_decline(struct nodes *nodes, int rc, const struct error *why, struct error *err)
{
    if (nodes->stop && *nodes->stop) {
        unlink(nodes->peers[nodes->node].path);
        return error_set(err, -EINTR, "stopped: %s", why->text);
    }
    char *text = xstrdup(why->text);
    string_make_utf8(text, strlen(text));
    nodes_fail(nodes, -1, text);
    free(text);
    return error_set(err, rc, "%s", why->text);
}

static int nodes_come(struct nodes *nodes, const struct nodes_opts *opts, struct error *err)
{
    struct error why = {0};
    int rc = opts->prepare ? opts->prepare(opts->arg, &why) : 0;
    if (rc)
        return nodes_decline(nodes, rc, &why, err);
    rc = nodes_say(nodes,
            json_pack("{sb si si ss ss ss}", "here", 1, "node", nodes->node, "count", nodes->count,
                    "nonce", nodes->nonce, "identity", opts->identity, "master", opts->master),
            err);
    if (rc == 0)
        rc = nodes_roll_call(nodes, opts->identity, err);
    if (rc)
        unlink(nodes->peers[nodes->node].path);
    return rc;
}

int nodes_open(const struct nodes_opts *opts, struct nodes **ret_nodes, struct error *err)
{
    struct nodes *nodes = xcalloc(1, sizeof *nodes);
    *nodes = (struct nodes){.node = opts->node,
            .count = opts->count,
            .dir = xstrdup(opts->dir),
            .wait_ns = opts->wait_ns,
            .handover_ns = opts->handover_ns,
            .stop = opts->stop};
    nodes->peers = xcalloc((size_t)opts->count, sizeof *nodes->peers);
    for (int k = 0; k < opts->count; k++) {
        nodes->peers[k].path = xasprintf("%s/node-%d.log", opts->dir, k);
        nodes->peers[k].lines = json_array();
    }
    int rc = nodes_make(nodes, err);
    if (rc == 0)
        rc = nodes_come(nodes, opts, err);
    if (rc) {
        nodes_close(nodes);
        return rc;
    }
    nodes_read(nodes, 0);
    nodes->master = xstrdup(nodes_text(nodes_find(nodes, 0, "here", -1), "master"));
    *ret_nodes = nodes;
    return 0;
}

void nodes_close(struct nodes *nodes)
{
    if (!nodes)
        return;
    for (int k = 0; k < nodes->count; k++) {
        free(nodes->peers[k].path);
        json_decref(nodes->peers[k].lines);
    }
    free(nodes->peers);
    free(nodes->dir);
    free(nodes->master);
    free(nodes->reason);
    free(nodes->gone);
    free(nodes);
}

// --- pairs ---------------------------------------------------------------------------------------

// A node has ended: "has ended", with what it said last about itself. NULL: it has not. Until the
// next call.
static const char *nodes_gone(struct nodes *nodes, int node)
{
    const json_t *fail = nodes_find(nodes, node, "fail", -1);
    bool own = fail && json_integer_value(json_object_get(fail, "fail")) < 0;
    if (!nodes_find(nodes, node, "end", -1))
        return NULL;
    free(nodes->gone);
    nodes->gone = own ? xasprintf("has ended: %s", nodes_text(fail, "why")) : xstrdup("has ended");
    string_make_plain(nodes->gone, strlen(nodes->gone));
    return nodes->gone;
}

int nodes_order(struct nodes *nodes, json_t *order, char **ret_why, struct error *err)
{
    int64_t begin = clock_monotonic_ns(), deadline = begin + nodes->handover_ns;
    nodes->pair++;
    int rc = nodes_say(
            nodes, json_pack("{sI so}", "n", (json_int_t)nodes->pair, "order", order), err);
    if (rc)
        return rc;
    for (int k = 1; k < nodes->count;) {
        nodes_read(nodes, k);
        if (nodes_find(nodes, k, "begun", nodes->pair)) {
            k++;
            continue;
        }
        const char *gone = nodes_gone(nodes, k);
        if (!gone && nodes_pause(nodes, begin, deadline))
            continue;
        char limit[32];
        *ret_why = gone ? xasprintf("node %d of %d %s", k, nodes->count, gone)
                        : xasprintf("node %d of %d did not answer within %s", k, nodes->count,
                                  unit_format_ns(limit, sizeof limit, (double)nodes->handover_ns));
        rc = nodes_say(nodes, json_pack("{sI sb}", "n", (json_int_t)nodes->pair, "skip", 1), err);
        return rc ? rc : 1;
    }
    return nodes_say(nodes, json_pack("{sI sb}", "n", (json_int_t)nodes->pair, "go", 1), err);
}

int nodes_next(struct nodes *nodes, const json_t **ret_order, int *ret_exit, struct error *err)
{
    int64_t begin = clock_monotonic_ns(),
            deadline = begin + NODES_ORDER_HANDOVERS * nodes->handover_ns, begun = 0;
    char limit[32];
    do {
        nodes_read(nodes, 0);
        const json_t *end = nodes_find(nodes, 0, "end", -1),
                     *line = nodes_find(nodes, 0, "order", -1);
        int64_t n = json_integer_value(json_object_get(line, "n"));
        if (end) {
            *ret_exit = (int)json_integer_value(json_object_get(end, "end"));
            return 0;
        }
        if (n > nodes->pair && n != begun) { // the newest: those before it are over
            begun = n;
            begin = clock_monotonic_ns();
            deadline = begin + NODES_ORDER_HANDOVERS * nodes->handover_ns;
            int rc = nodes_say(nodes, json_pack("{sI sb}", "n", (json_int_t)n, "begun", 1), err);
            if (rc)
                return rc;
        }
        if (begun && nodes_find(nodes, 0, "skip", begun)) {
            nodes->pair = begun;
            begun = 0;
        } else if (begun && nodes_find(nodes, 0, "go", begun)) {
            nodes->pair = begun;
            *ret_order = json_object_get(line, "order");
            return 1;
        }
    } while (nodes_pause(nodes, begin, deadline));
    if (nodes->stop && *nodes->stop)
        return error_set(err, -EINTR, "stopped");
    return error_set(err, -ETIMEDOUT,
            "node 0 of %d said nothing for %s: it is lost, and the run with it", nodes->count,
            unit_format_ns(
                    limit, sizeof limit, (double)(NODES_ORDER_HANDOVERS * nodes->handover_ns)));
}

void nodes_fail(struct nodes *nodes, int side, const char *reason)
{
    struct error err = {0}; // who cannot say it is found out by what it does not answer
    (void)!nodes_say(nodes,
            json_pack("{sI si ss}", "n", (json_int_t)nodes->pair, "fail", side, "why", reason),
            &err);
}

// What one node says of a side, or of itself, in this pair.
static const json_t *nodes_failure(const struct nodes *nodes, int node, int side)
{
    const json_t *lines = nodes->peers[node].lines;
    for (size_t i = json_array_size(lines); i-- > 0;) {
        const json_t *line = json_array_get(lines, i), *failed = json_object_get(line, "fail");
        if (failed && json_integer_value(json_object_get(line, "n")) == nodes->pair &&
                (json_integer_value(failed) == side || json_integer_value(failed) < 0))
            return line;
    }
    return NULL;
}

const char *nodes_failed(struct nodes *nodes, int side)
{
    int first = nodes->node == 0, last = nodes->node == 0 ? nodes->count : 1;
    for (int k = first; k < last; k++) {
        nodes_read(nodes, k);
        const json_t *line = nodes_failure(nodes, k, side);
        const char *gone = line ? NULL : nodes_gone(nodes, k);
        if (!line && !gone)
            continue;
        free(nodes->reason);
        const char *why = line ? nodes_text(line, "why") : gone;
        bool told = strncmp(why, "node ", 5) == 0; // by node 0, of another
        nodes->reason = told ? xstrdup(why)
                : line       ? xasprintf("node %d: %s", k, why)
                             : xasprintf("node %d %s", k, why);
        string_make_plain(nodes->reason, strlen(nodes->reason));
        return nodes->reason;
    }
    return NULL;
}

int nodes_answer(struct nodes *nodes, json_t *answer, struct error *err)
{
    return nodes_say(
            nodes, json_pack("{sI so}", "n", (json_int_t)nodes->pair, "answer", answer), err);
}

const json_t *nodes_wait_answer(struct nodes *nodes, int node)
{
    int64_t begin = clock_monotonic_ns();
    do {
        nodes_read(nodes, node);
        const json_t *line = nodes_find(nodes, node, "answer", nodes->pair);
        if (line)
            return json_object_get(line, "answer");
    } while (!nodes_gone(nodes, node) && nodes_pause(nodes, begin, begin + nodes->handover_ns));
    return NULL;
}

void nodes_end(struct nodes *nodes, int exit_code)
{
    struct error err = {0};
    (void)!nodes_say(nodes, json_pack("{si}", "end", exit_code), &err);
}
