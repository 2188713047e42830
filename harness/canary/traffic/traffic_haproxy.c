// SPDX-License-Identifier: Apache-2.0
// The built-in way: weights of both servers at HAProxy's runtime socket, 256 together, so that a
// percent is 2.56 of them. Both servers stay up and checked; only weights move, and what was set is
// read back as HAProxy has it.
#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/containers/hash.h"
#include "common/strings.h"
#include "harness/canary/traffic/haproxy_socket.h"
#include "harness/canary/traffic/haproxy_state.h"
#include "harness/canary/traffic/traffic_internal.h"

enum { HAPROXY_WEIGHTS = 256, HAPROXY_ARMS = 3, HAPROXY_BASELINE2 = 2, HAPROXY_RELOADS = 3 };
#define HAPROXY_DRAIN_LOOK_NS 50000000LL

struct traffic_haproxy {
    const char *names[HAPROXY_ARMS]; // of the servers; the third may be NULL
    uint64_t weights[HAPROXY_ARMS];  // as they were set last
    bool was_set;
    uint64_t pid, uptime_s; // of the process that answered last
    char anew[96];          // "": it is the one that was set
    int claim_fd;           // 0: none
};

static int64_t haproxy_deadline_ns(const struct traffic *traffic)
{
    return clock_monotonic_ns() + traffic->plan->timeout_ns;
}

static int haproxy_say(const struct traffic *traffic, const char *command, int64_t deadline_ns,
        char **ret_answer, struct error *err)
{
    return haproxy_ask(
            traffic->plan->socket, command, traffic->plan->retries, deadline_ns, ret_answer, err);
}

// A command that answers nothing where it was carried out.
static int haproxy_do(
        const struct traffic *traffic, const char *command, int64_t deadline_ns, struct error *err)
{
    char *answer;
    int rc = haproxy_say(traffic, command, deadline_ns, &answer, err);
    if (rc)
        return rc;
    if (strstr(answer, "Permission denied"))
        rc = error_set(err, -EACCES,
                "HAProxy's socket '%s' may not set weights; it needs `level admin`",
                traffic->plan->socket);
    else if (strstr(answer, "static LB algorithm"))
        rc = error_set(err, -ENOTSUP,
                "the backend '%s' has a `balance` algorithm whose weights cannot be changed; use roundrobin, "
                "leastconn, random, or `hash-type consistent`",
                traffic->plan->backend);
    else if (answer[0])
        rc = error_set(err, -EPROTO, "HAProxy refuses '%s': %.200s", command, answer);
    free(answer);
    return rc;
}

// Another process, or the same number and a younger one (a container's first process).
static void haproxy_know(struct traffic_haproxy *own, const struct haproxy_backend *backend)
{
    if (!backend->pid)
        return;
    if (own->pid && (own->pid != backend->pid || own->uptime_s > backend->uptime_s))
        snprintf(own->anew, sizeof own->anew, "HAProxy was started again (process %llu, then %llu)",
                (unsigned long long)own->pid, (unsigned long long)backend->pid);
    own->pid = backend->pid;
    own->uptime_s = backend->uptime_s;
}

// What HAProxy has now. Filled: servers by name, with weights and, where `stat`, with sessions and
// health.
static int haproxy_read(const struct traffic *traffic, bool stat, int64_t deadline_ns,
        struct haproxy_backend *ret, struct error *err)
{
    const char *backend = traffic->plan->backend;
    // one connection: one process
    char *command = xasprintf("show info;show servers state %s", backend), *answer = NULL;
    int rc = haproxy_say(traffic, command, deadline_ns, &answer, err);
    if (rc == 0)
        rc = haproxy_read_state(answer, backend, ret, err);
    haproxy_know(traffic->own, ret);
    free(answer);
    free(command);
    if (rc || !stat)
        return rc;
    command = xasprintf("show stat %s 6 -1", backend); // the backend (2) and its servers (4)
    answer = NULL;
    rc = haproxy_say(traffic, command, deadline_ns, &answer, err);
    if (rc == 0)
        rc = haproxy_read_stat(answer, backend, ret, err);
    free(answer);
    free(command);
    return rc;
}

static bool haproxy_is_arm(const struct traffic_haproxy *own, const char *name)
{
    for (int i = 0; i < HAPROXY_ARMS; i++)
        if (own->names[i] && strcmp(own->names[i], name) == 0)
            return true;
    return false;
}

static int haproxy_check_arms(
        const struct traffic *traffic, struct haproxy_backend *backend, struct error *err)
{
    const struct traffic_haproxy *own = traffic->own;
    for (int i = 0; i < HAPROXY_ARMS; i++) {
        const struct haproxy_server *server =
                own->names[i] ? haproxy_server(backend, own->names[i]) : NULL;
        if (!own->names[i] || (server && server->listed))
            continue;
        struct strbuf names = {0};
        for (int j = 0; j < backend->count && j < 20; j++)
            strbuf_add(&names, "%s%s", j ? ", " : "", backend->servers[j].name);
        int rc = error_set(err, -ENOENT,
                "the backend '%s' of HAProxy has no server '%s'; it has: %s",
                traffic->plan->backend, own->names[i], names.text);
        strbuf_free(&names);
        return rc;
    }
    return 0;
}

// All arms are there, weights tell who gets requests, and nobody else gets any.
static int haproxy_check_servers(
        const struct traffic *traffic, struct haproxy_backend *backend, struct error *err)
{
    const struct traffic_haproxy *own = traffic->own;
    int rc = haproxy_check_arms(traffic, backend, err);
    for (int i = 0; rc == 0 && i < backend->count; i++) {
        const struct haproxy_server *server = &backend->servers[i];
        if (server->cookie && backend->cookie[0] && haproxy_is_arm(own, server->name))
            return error_set(err, -EINVAL,
                    "the backend '%s' keeps users on their server by the cookie '%s': weights would move new users "
                    "only, and a way back would leave the others on the candidate; take the `cookie` out for the "
                    "rollout",
                    traffic->plan->backend, backend->cookie);
        if (haproxy_is_arm(own, server->name) || !server->weight || server->maintenance ||
                server->draining || server->backup)
            continue;
        return error_set(err, -EINVAL,
                "the server '%s' of the backend '%s' has weight %llu and is in neither arm, so it would answer "
                "requests that nobody compares; give it weight 0",
                server->name, traffic->plan->backend, (unsigned long long)server->weight);
    }
    return rc;
}

static int haproxy_check_algorithm(
        const struct traffic *traffic, const struct haproxy_backend *backend, struct error *err)
{
    const char *algorithm = backend->algorithm;
    if (strcmp(algorithm, "static-rr") == 0)
        return error_set(err, -EINVAL,
                "the backend '%s' has `balance static-rr`, whose weights cannot be changed while HAProxy runs; "
                "use roundrobin, leastconn or random",
                traffic->plan->backend);
    if (strcmp(algorithm, "first") == 0)
        return error_set(err, -EINVAL,
                "the backend '%s' has `balance first`, which does not split by weights; use roundrobin, "
                "leastconn or random",
                traffic->plan->backend);
    return 0;
}

static int haproxy_check_level(
        const struct traffic *traffic, int64_t deadline_ns, struct error *err)
{
    char *answer;
    int rc = haproxy_say(traffic, "show cli level", deadline_ns, &answer, err);
    if (rc)
        return rc;
    if (strcmp(answer, "admin") != 0)
        rc = strcmp(answer, "operator") == 0 || strcmp(answer, "user") == 0
                ? error_set(err, -EACCES,
                          "HAProxy's socket '%s' has level %s; weights need `stats socket … level admin`",
                          traffic->plan->socket, answer)
                : error_set(err, -EBADMSG,
                          "what listens at '%s' is not HAProxy (1.9 or newer); it answers 'show cli level' with: "
                          "%.120s",
                          traffic->plan->socket, answer);
    free(answer);
    return rc;
}

// The store keeps two controllers of one rollout apart; this, those that have two stores (a
// relative name, two directories) or two names for one backend. An abstract socket of this machine:
// the kernel takes it back with the process.
static int haproxy_claim(struct traffic *traffic, struct error *err)
{
    struct traffic_haproxy *own = traffic->own;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char *path = realpath(traffic->plan->socket, NULL), name[40];
    const char *socket_name = path ? path : traffic->plan->socket,
               *backend = traffic->plan->backend;
    uint64_t key = hash_mix(hash_bytes(0, socket_name, strlen(socket_name)),
            hash_bytes(0, backend, strlen(backend)));
    snprintf(name, sizeof name, "upgate-canary-%016llx", (unsigned long long)key);
    strcpy(address.sun_path + 1, name);
    free(path);
    own->claim_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
    if (own->claim_fd < 0 || bind(own->claim_fd, (struct sockaddr *)&address, len) == 0 ||
            errno != EADDRINUSE)
        return 0; // what else could fail keeps nobody apart, and no rollout from going on
    return error_set(err, -EBUSY,
            "another controller moves the backend '%s' of '%s': of another rollout, or of this one, begun in another "
            "directory",
            backend, traffic->plan->socket);
}

static int traffic_haproxy_open(struct traffic *traffic, bool back, struct error *err)
{
    const struct rollout_traffic *plan = traffic->plan;
    struct traffic_haproxy *own = xcalloc(1, sizeof *own);
    int64_t deadline_ns = haproxy_deadline_ns(traffic);
    struct haproxy_backend backend = {0};
    traffic->own = own;
    if (!plan->socket || !plan->backend || !plan->servers[CANARY_BASELINE] ||
            !plan->servers[CANARY_CANDIDATE])
        return error_set(
                err, -EINVAL, "traffic.haproxy needs socket, backend, baseline and candidate");
    own->names[CANARY_BASELINE] = plan->servers[CANARY_BASELINE];
    own->names[CANARY_CANDIDATE] = plan->servers[CANARY_CANDIDATE];
    own->names[HAPROXY_BASELINE2] = plan->baseline2;
    for (int i = 0; i < HAPROXY_ARMS; i++)
        for (int j = 0; j < i; j++)
            if (own->names[i] && strcmp(own->names[i], own->names[j]) == 0)
                return error_set(
                        err, -EINVAL, "the server '%s' is named for two arms", own->names[i]);
    int rc = haproxy_check_level(traffic, deadline_ns, err);
    if (rc == 0 && !back)
        rc = haproxy_claim(traffic, err);
    if (rc == 0)
        rc = haproxy_read(traffic, true, deadline_ns, &backend, err);
    if (rc == 0 && !back)
        rc = haproxy_check_algorithm(traffic, &backend, err);
    if (rc == 0)
        rc = back ? haproxy_check_arms(traffic, &backend, err)
                  : haproxy_check_servers(traffic, &backend, err);
    haproxy_backend_free(&backend);
    return rc;
}

static void traffic_haproxy_close(struct traffic *traffic)
{
    struct traffic_haproxy *own = traffic->own;
    if (own && own->claim_fd > 0)
        close(own->claim_fd);
    free(own);
}

static void haproxy_weights(
        const struct traffic *traffic, struct haproxy_backend *backend, uint64_t ret[HAPROXY_ARMS])
{
    const struct traffic_haproxy *own = traffic->own;
    for (int i = 0; i < HAPROXY_ARMS; i++) {
        const struct haproxy_server *server =
                own->names[i] ? haproxy_server(backend, own->names[i]) : NULL;
        ret[i] = server && !server->maintenance && !server->draining ? server->weight : 0;
    }
}

static double haproxy_percent(const uint64_t weights[HAPROXY_ARMS], int arm)
{
    uint64_t sum = 0;
    for (int i = 0; i < HAPROXY_ARMS; i++)
        sum += weights[i];
    return sum ? 100.0 * (double)weights[arm] / (double)sum : 0;
}

static int haproxy_set_weight(const struct traffic *traffic, int arm, uint64_t weight,
        int64_t deadline_ns, struct error *err)
{
    const struct traffic_haproxy *own = traffic->own;
    char *command = xasprintf("set weight %s/%s %llu", traffic->plan->backend, own->names[arm],
            (unsigned long long)weight);
    int rc = haproxy_do(traffic, command, deadline_ns, err);
    free(command);
    return rc;
}

// A server that is to get requests again after it was drained.
static int haproxy_make_ready(const struct traffic *traffic, const struct haproxy_server *server,
        int64_t deadline_ns, struct error *err)
{
    if (server->maintenance)
        return error_set(err, -EPROTO,
                "the server '%s/%s' is in maintenance, so no weight brings it requests; set it to `state ready` "
                "when it may have some",
                traffic->plan->backend, server->name);
    if (!server->draining)
        return 0;
    char *command = xasprintf("set server %s/%s state ready", traffic->plan->backend, server->name);
    int rc = haproxy_do(traffic, command, deadline_ns, err);
    free(command);
    return rc;
}

static int haproxy_verify(const struct traffic *traffic, const uint64_t wanted[HAPROXY_ARMS],
        int64_t deadline_ns, struct error *err)
{
    struct haproxy_backend backend = {0};
    uint64_t have[HAPROXY_ARMS];
    int rc = haproxy_read(traffic, false, deadline_ns, &backend, err);
    if (rc == 0)
        haproxy_weights(traffic, &backend, have);
    haproxy_backend_free(&backend);
    if (rc || memcmp(have, wanted, sizeof have) == 0)
        return rc;
    return error_set(err, -EPROTO,
            "the weights of the backend '%s' were set to %llu (baseline) and %llu (candidate), and are %llu and "
            "%llu: HAProxy was reloaded, or somebody else sets them",
            traffic->plan->backend, (unsigned long long)wanted[0], (unsigned long long)wanted[1],
            (unsigned long long)have[0], (unsigned long long)have[1]);
}

// What grows first, then what shrinks: at no moment is there a backend without weights.
static int haproxy_move_once(
        struct traffic *traffic, const uint64_t wanted[HAPROXY_ARMS], struct error *err)
{
    struct traffic_haproxy *own = traffic->own;
    int64_t deadline_ns = haproxy_deadline_ns(traffic);
    struct haproxy_backend backend = {0};
    bool up = wanted[CANARY_CANDIDATE] > 0;
    // `show stat` tells who is a backup, and has no part
    int rc = haproxy_read(traffic, up, deadline_ns, &backend, err);
    // A foreign server forbids a move up, but never the way back.
    if (rc == 0 && up)
        rc = haproxy_check_servers(traffic, &backend, err);
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; rc == 0 && i < HAPROXY_ARMS; i++) {
            const struct haproxy_server *server =
                    own->names[i] ? haproxy_server(&backend, own->names[i]) : NULL;
            if (!server || (wanted[i] < server->weight) != (pass == 1))
                continue;
            if (wanted[i] > 0)
                rc = haproxy_make_ready(traffic, server, deadline_ns, err);
            if (rc == 0 && server->weight != wanted[i])
                rc = haproxy_set_weight(traffic, i, wanted[i], deadline_ns, err);
        }
    haproxy_backend_free(&backend);
    if (rc == 0)
        rc = haproxy_verify(traffic, wanted, deadline_ns, err);
    if (rc == 0) {
        memcpy(own->weights, wanted, sizeof own->weights);
        own->was_set = true;
        own->anew[0] = 0;
    }
    return rc;
}

static int haproxy_move(
        struct traffic *traffic, const uint64_t wanted[HAPROXY_ARMS], struct error *err)
{
    const struct traffic_haproxy *own = traffic->own;
    int rc = haproxy_move_once(traffic, wanted, err);
    // what was set is the old process's
    for (int i = 0; rc == -EPROTO && own->anew[0] && i < HAPROXY_RELOADS; i++)
        rc = haproxy_move_once(traffic, wanted, err);
    return rc;
}

static const char *traffic_haproxy_began_anew(const struct traffic *traffic)
{
    const struct traffic_haproxy *own = traffic->own;
    return own->anew[0] ? own->anew : NULL;
}

static int64_t traffic_haproxy_age_ns(const struct traffic *traffic)
{
    const struct traffic_haproxy *own = traffic->own;
    return own->pid && own->uptime_s < INT64_MAX / 1000000000 ? (int64_t)own->uptime_s * 1000000000
                                                              : -1;
}

// The nearest of 256; what is neither nothing nor all stays so.
static uint64_t haproxy_weight_of(double percent)
{
    uint64_t weight = (uint64_t)llrint(percent * HAPROXY_WEIGHTS / 100);
    if (percent > 0 && weight == 0)
        return 1;
    return percent < 100 && weight == HAPROXY_WEIGHTS ? HAPROXY_WEIGHTS - 1 : weight;
}

static int traffic_haproxy_set(
        struct traffic *traffic, double percent, double *ret_percent, struct error *err)
{
    uint64_t weight = haproxy_weight_of(percent),
             wanted[HAPROXY_ARMS] = {HAPROXY_WEIGHTS - weight, weight, 0};
    int rc = haproxy_move(traffic, wanted, err);
    if (rc == 0)
        *ret_percent = haproxy_percent(wanted, CANARY_CANDIDATE);
    return rc;
}

static int traffic_haproxy_set_aa(
        struct traffic *traffic, double percent, double *ret_percent, struct error *err)
{
    const struct traffic_haproxy *own = traffic->own;
    if (!own->names[HAPROXY_BASELINE2])
        return error_set(err, -ENOTSUP,
                "the plan has no second baseline server (traffic.haproxy.baseline2)");
    uint64_t weight = haproxy_weight_of(percent),
             wanted[HAPROXY_ARMS] = {HAPROXY_WEIGHTS - weight, 0, weight};
    int rc = haproxy_move(traffic, wanted, err);
    if (rc == 0)
        *ret_percent = haproxy_percent(wanted, HAPROXY_BASELINE2);
    return rc;
}

static int traffic_haproxy_get(struct traffic *traffic, double *ret_percent, struct error *err)
{
    struct haproxy_backend backend = {0};
    uint64_t weights[HAPROXY_ARMS];
    int rc = haproxy_read(traffic, false, haproxy_deadline_ns(traffic), &backend, err);
    if (rc == 0)
        rc = haproxy_check_arms(traffic, &backend, err);
    if (rc == 0) {
        haproxy_weights(traffic, &backend, weights);
        *ret_percent = haproxy_percent(weights, CANARY_CANDIDATE);
    }
    haproxy_backend_free(&backend);
    return rc;
}

static int traffic_haproxy_look(
        struct traffic *traffic, struct traffic_arm ret_arms[CANARY_ARMS], struct error *err)
{
    const struct traffic_haproxy *own = traffic->own;
    struct haproxy_backend backend = {0};
    uint64_t have[HAPROXY_ARMS];
    int rc = haproxy_read(traffic, true, haproxy_deadline_ns(traffic), &backend, err);
    for (int i = 0; rc == 0 && i < CANARY_ARMS; i++) {
        const struct haproxy_server *server = haproxy_server(&backend, own->names[i]);
        if (server && server->listed && server->counted)
            ret_arms[i] = (struct traffic_arm){
                    server->up, server->sessions + server->queued, server->total};
        else
            rc = haproxy_check_servers(traffic, &backend, err);
    }
    if (rc == 0) {
        haproxy_weights(traffic, &backend, have);
        rc = haproxy_check_servers(traffic, &backend, err);
    }
    haproxy_backend_free(&backend);
    if (rc || !own->was_set || memcmp(have, own->weights, sizeof have) == 0)
        return rc;
    return error_set(err, -EPROTO,
            "the weights of the backend '%s' were set to %llu (baseline) and %llu (candidate), and are now %llu "
            "and %llu: HAProxy was reloaded, or somebody else has set them",
            traffic->plan->backend, (unsigned long long)own->weights[0],
            (unsigned long long)own->weights[1], (unsigned long long)have[0],
            (unsigned long long)have[1]);
}

// Its sessions and what waits for it. -ENOENT where it is gone.
static int haproxy_in_flight(const struct traffic *traffic, enum canary_arm arm,
        int64_t deadline_ns, uint64_t *ret_left, struct error *err)
{
    const struct traffic_haproxy *own = traffic->own;
    struct haproxy_backend backend = {0};
    int rc = haproxy_read(traffic, true, deadline_ns, &backend, err);
    const struct haproxy_server *server =
            rc == 0 ? haproxy_server(&backend, own->names[arm]) : NULL;
    if (server)
        *ret_left = server->sessions + server->queued;
    else if (rc == 0)
        rc = error_set(err, -ENOENT, "the backend '%s' has no server '%s' any more",
                traffic->plan->backend, own->names[arm]);
    haproxy_backend_free(&backend);
    return rc;
}

static int traffic_haproxy_drain(struct traffic *traffic, enum canary_arm arm, int64_t deadline_ns,
        uint64_t *ret_left, struct error *err)
{
    const struct traffic_haproxy *own = traffic->own;
    char *command =
            xasprintf("set server %s/%s state drain", traffic->plan->backend, own->names[arm]);
    uint64_t left = 0;
    // Also where the deadline has passed already: it is set and looked at once.
    int64_t command_ns = haproxy_deadline_ns(traffic);
    int rc = haproxy_do(traffic, command, command_ns, err);
    free(command);
    while (rc == 0) {
        rc = haproxy_in_flight(traffic, arm, command_ns, &left, err);
        int64_t now_ns = clock_monotonic_ns();
        if (rc || !left || now_ns >= deadline_ns)
            break;
        int64_t next_ns = now_ns + HAPROXY_DRAIN_LOOK_NS;
        clock_sleep_until_ns(next_ns < deadline_ns ? next_ns : deadline_ns);
        command_ns = haproxy_deadline_ns(traffic);
    }
    if (rc == 0)
        *ret_left = left;
    return rc;
}

const struct traffic_ops traffic_haproxy_ops = {
        .open = traffic_haproxy_open,
        .close = traffic_haproxy_close,
        .set = traffic_haproxy_set,
        .set_aa = traffic_haproxy_set_aa,
        .get = traffic_haproxy_get,
        .began_anew = traffic_haproxy_began_anew,
        .age_ns = traffic_haproxy_age_ns,
        .look = traffic_haproxy_look,
        .drain = traffic_haproxy_drain,
};
