// SPDX-License-Identifier: Apache-2.0
// HTTP in, queue out, and back. The thread of libmicrohttpd runs everything here but server_done()
// (a worker) and reload_run() (a thread of its own); a request that waits for its answer is a
// suspended connection.
#include "reference_models/serve/server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/strings.h"
#include "contracts/upgate_step.h"
#include "reference_models/serve/answer.h"

#define SERVER_IDLE_S 75u // of a keep-alive connection, and of a client that does not go on
#define SERVER_BACKLOG 1024

struct server {
    struct server_opts opts;
    struct batcher *batcher;
    struct workers *workers;
    struct plants *plants;
    struct MHD_Daemon *daemon;
    uint16_t port;
    struct answer_counts counts; // of the HTTP thread
    _Atomic uint64_t in_flight;
    _Atomic bool draining, reloading;
    pthread_t reload_thread;
    bool has_reload_thread;
};

struct exchange { // one request of any kind
    struct score_request score;
    struct server *server;
    struct MHD_Connection *connection;
    const struct route *route;
    int64_t arrived_ns;
    bool waiting; // suspended, or just resumed with its answer
    bool too_large;
    char *body;
    size_t size, room;
    char *reload_path;
};

struct route {
    const char *method, *path;
    enum MHD_Result (*handle)(struct exchange *exchange);
};

static enum MHD_Result score_handle(struct exchange *exchange);

// Requests to score are told by the step protocol, for `upgate canary`.
static enum MHD_Result server_reply(struct exchange *exchange, int status, char *body, int flags)
{
    struct server *server = exchange->server;
    struct answer answer = {.status = status,
            .side = server->opts.side,
            .body = body,
            .close = atomic_load(&server->draining),
            .wrong = flags & ANSWER_WRONG,
            .cut = flags & ANSWER_CUT};
    if (exchange->route && exchange->route->handle == score_handle)
        ug_request_done(
                (uint64_t)exchange->arrived_ns, answer.cut ? 0 : (uint32_t)status, answer.wrong);
    return answer_queue(exchange->connection, &answer, &server->counts);
}

static enum MHD_Result server_refuse(struct exchange *exchange, int status, const char *text)
{
    exchange->score.status = status;
    snprintf(exchange->score.text, sizeof exchange->score.text, "%s", text);
    return server_reply(exchange, status, request_answer(&exchange->score), 0);
}

// --- scoring ---

static void server_done(struct score_request *request)
{
    struct exchange *exchange = request->owner;
    MHD_resume_connection(exchange->connection);
}

static enum MHD_Result score_answer(struct exchange *exchange)
{
    struct score_request *request = &exchange->score;
    int flags = request_wrong(request) ? ANSWER_WRONG : 0;
    if (request->status == 200 && plants_cuts(exchange->server->plants, request))
        flags |= ANSWER_CUT;
    return server_reply(exchange, request->status, request_answer(request), flags);
}

static enum MHD_Result score_handle(struct exchange *exchange)
{
    struct server *server = exchange->server;
    struct score_request *request = &exchange->score;
    if (exchange->waiting)
        return score_answer(exchange);
    struct error err = {0};
    if (request_parse(request, exchange->body ? exchange->body : "", exchange->size, &err))
        return server_refuse(exchange, 400, err.text);
    struct workers_state state;
    workers_look(server->workers, &state);
    if (!state.ready)
        return server_refuse(exchange, 503, "the model is not loaded yet");
    request->owner = exchange;
    request->done = server_done;
    if (!plants_arrived(server->plants, request))
        return server_reply(exchange, request->status, request_answer(request), 0);
    exchange->waiting = true;
    MHD_suspend_connection(exchange->connection); // before a worker can resume it
    int rc = batcher_push(server->batcher, request);
    if (rc) {
        request->status = 503;
        snprintf(request->text, sizeof request->text, "%s",
                rc == -EAGAIN ? "too many requests wait" : "the server ends");
        MHD_resume_connection(exchange->connection);
    }
    return MHD_YES;
}

// --- health ---

// A request waits for too long, in the queue or with a worker.
static bool server_stuck(struct server *server, const struct workers_state *state)
{
    int64_t oldest = batcher_oldest_ns(server->batcher), limit = server->opts.stuck_ns;
    int64_t now = clock_monotonic_ns();
    return (oldest && now - oldest > limit) || (state->busy_ns && now - state->busy_ns > limit);
}

static enum MHD_Result health_handle(struct exchange *exchange)
{
    struct server *server = exchange->server;
    struct workers_state state;
    workers_look(server->workers, &state);
    bool stuck = server_stuck(server, &state);
    const char *status = stuck ? "stuck" : "ok";
    char *body = !state.ready
            ? xasprintf("{\"status\":\"%s\",\"model\":null}", status)
            : xasprintf("{\"status\":\"%s\",\"model\":\"%s\",\"kind\":\"%s\","
                        "\"features\":[%zu,%zu]}",
                      status, state.model, state.kind, state.values_least, state.values_most);
    return server_reply(exchange, stuck ? 503 : 200, body, 0);
}

static enum MHD_Result ready_handle(struct exchange *exchange)
{
    struct server *server = exchange->server;
    struct workers_state state;
    workers_look(server->workers, &state);
    const char *why = NULL;
    if (atomic_load(&server->draining))
        why = "draining";
    else if (!state.ready)
        why = "warming up";
    else if (server_stuck(server, &state))
        why = "stuck";
    char *body = why ? xasprintf("{\"ready\":false,\"why\":\"%s\"}", why)
                     : xasprintf("{\"ready\":true,\"model\":\"%s\"}", state.model);
    return server_reply(exchange, why ? 503 : 200, body, 0);
}

static enum MHD_Result stats_handle(struct exchange *exchange)
{
    struct server *server = exchange->server;
    struct workers_state state;
    workers_look(server->workers, &state);
    char *codes = answer_counts_json(&server->counts);
    char *body = xasprintf("{\"answers\":%s,\"in_flight\":%" PRIu64 ",\"scored\":%" PRIu64
                           ",\"batches\":%" PRIu64 ",\"loads\":%" PRIu64 "}",
            codes, atomic_load(&server->in_flight), state.scored, state.batches, state.loads);
    free(codes);
    return server_reply(exchange, 200, body, 0);
}

// --- hot swap ---

static void *reload_run(void *arg)
{
    struct exchange *exchange = arg;
    struct server *server = exchange->server;
    struct score_request *answer = &exchange->score;
    struct model_choice choice;
    struct error err = {0};
    int rc = model_choice_load(server->opts.models, exchange->reload_path, &choice, &err);
    if (!rc)
        rc = workers_load(server->workers, &choice, &err);
    answer->status = rc == 0 ? 200 : rc == -EINVAL ? 400 : 500;
    snprintf(answer->text, sizeof answer->text, "%s", err.text);
    if (!rc)
        memcpy(answer->model, choice.name, sizeof answer->model);
    atomic_store(&server->reloading, false);
    MHD_resume_connection(exchange->connection);
    return NULL;
}

static enum MHD_Result reload_handle(struct exchange *exchange)
{
    struct server *server = exchange->server;
    if (exchange->waiting) {
        const struct score_request *answer = &exchange->score;
        if (answer->status != 200)
            return server_reply(exchange, answer->status, request_answer(answer), 0);
        return server_reply(exchange, 200, xasprintf("{\"model\":\"%s\"}", answer->model), 0);
    }
    json_t *root = json_loadb(exchange->body ? exchange->body : "", exchange->size, 0, NULL);
    const char *path = json_string_value(json_object_get(root, "path"));
    exchange->reload_path = path ? xstrdup(path) : NULL;
    json_decref(root);
    if (!exchange->reload_path)
        return server_refuse(exchange, 400, "the body is not {\"path\": \"FILE\"}");
    if (atomic_exchange(&server->reloading, true))
        return server_refuse(exchange, 409, "another model is being loaded");
    if (server->has_reload_thread)
        pthread_join(server->reload_thread, NULL); // it has ended
    exchange->waiting = true;
    MHD_suspend_connection(exchange->connection);
    server->has_reload_thread =
            pthread_create(&server->reload_thread, NULL, reload_run, exchange) == 0;
    if (!server->has_reload_thread) {
        atomic_store(&server->reloading, false);
        exchange->score.status = 500;
        snprintf(exchange->score.text, sizeof exchange->score.text, "failed to start a thread");
        MHD_resume_connection(exchange->connection);
    }
    return MHD_YES;
}

// --- one request ---

static const struct route routes[] = {
        {"POST", "/score", score_handle},
        {"GET", "/health", health_handle},
        {"GET", "/ready", ready_handle},
        {"GET", "/stats", stats_handle},
        {"POST", "/reload", reload_handle},
        {NULL, NULL, NULL},
};

static enum MHD_Result server_begin(struct server *server, struct MHD_Connection *connection,
        const char *url, const char *method, void **ret_exchange)
{
    struct exchange *exchange = xcalloc(1, sizeof *exchange);
    exchange->server = server;
    exchange->connection = connection;
    exchange->arrived_ns = clock_monotonic_ns();
    *ret_exchange = exchange;
    atomic_fetch_add(&server->in_flight, 1);
    int status = 404;
    for (const struct route *route = routes; route->path; route++) {
        if (strcmp(url, route->path) != 0)
            continue;
        if (strcmp(method, route->method) == 0 ||
                (strcmp(method, "HEAD") == 0 && strcmp(route->method, "GET") == 0))
            exchange->route = route;
        else
            status = 405;
    }
    if (!exchange->route)
        return server_refuse(exchange, status,
                status == 405 ? "this path has another method"
                              : "known: /score /health /ready /reload /stats");
    const char *length = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Content-Length");
    if (length && strtoull(length, NULL, 10) > REQUEST_BYTES_MAX)
        return server_refuse(exchange, 413, "the body is longer than 64 KiB");
    return MHD_YES;
}

static enum MHD_Result server_collect(struct exchange *exchange, const char *data, size_t *size)
{
    size_t more = *size;
    *size = 0;
    if (exchange->size + more > REQUEST_BYTES_MAX) {
        // A body of unknown length: a little more is swallowed, so that the answer can be read.
        exchange->too_large = true;
        exchange->size += more;
        return exchange->size > 16 * REQUEST_BYTES_MAX ? MHD_NO : MHD_YES;
    }
    if (exchange->size + more > exchange->room) {
        exchange->room = 2 * (exchange->size + more);
        exchange->body = xrealloc(exchange->body, exchange->room);
    }
    memcpy(exchange->body + exchange->size, data, more);
    exchange->size += more;
    return MHD_YES;
}

static enum MHD_Result server_handle(void *cls, struct MHD_Connection *connection, const char *url,
        const char *method, const char *version, const char *data, size_t *size, void **state)
{
    (void)version;
    struct exchange *exchange = *state;
    if (!exchange)
        return server_begin(cls, connection, url, method, state);
    if (*size > 0)
        return server_collect(exchange, data, size);
    if (exchange->too_large)
        return server_refuse(exchange, 413, "the body is longer than 64 KiB");
    return exchange->route->handle(exchange);
}

static void server_completed(void *cls, struct MHD_Connection *connection, void **state,
        enum MHD_RequestTerminationCode code)
{
    (void)connection, (void)code;
    struct server *server = cls;
    struct exchange *exchange = *state;
    if (!exchange)
        return;
    request_clear(&exchange->score);
    free(exchange->body);
    free(exchange->reload_path);
    free(exchange);
    atomic_fetch_sub(&server->in_flight, 1);
}

// --- begin and end ---

static int server_listen(struct server *server, int *ret_fd, struct error *err)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(server->opts.port)};
    if (inet_pton(AF_INET, server->opts.host, &address.sin_addr) != 1)
        return error_set(err, -EINVAL, "'%s' is not an IPv4 address", server->opts.host);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return error_set(err, -errno, "failed to make a socket: %s", strerror(errno));
    int yes = 1;
    socklen_t len = sizeof address;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) || listen(fd, SERVER_BACKLOG) ||
            getsockname(fd, (struct sockaddr *)&address, &len)) {
        int rc = -errno;
        close(fd);
        return error_set(err, rc, "failed to listen on %s:%u: %s", server->opts.host,
                server->opts.port, strerror(-rc));
    }
    server->port = ntohs(address.sin_port);
    *ret_fd = fd;
    return 0;
}

int server_new(const struct server_opts *opts, struct batcher *batcher, struct workers *workers,
        struct plants *plants, struct server **ret_server, struct error *err)
{
    struct server *server = xcalloc(1, sizeof *server);
    *server = (struct server){
            .opts = *opts, .batcher = batcher, .workers = workers, .plants = plants};
    int fd = -1;
    int rc = server_listen(server, &fd, err);
    if (!rc) {
        server->daemon = MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME,
                0, NULL, NULL, server_handle, server, MHD_OPTION_LISTEN_SOCKET, fd,
                MHD_OPTION_NOTIFY_COMPLETED, server_completed, server, MHD_OPTION_CONNECTION_LIMIT,
                opts->connections_max, MHD_OPTION_CONNECTION_TIMEOUT, SERVER_IDLE_S,
                MHD_OPTION_END);
        if (!server->daemon) {
            close(fd);
            rc = error_set(err, -EIO,
                    "failed to start the HTTP server; are there enough descriptors "
                    "for %u connections (ulimit -n)?",
                    opts->connections_max);
        }
    }
    if (rc)
        free(server);
    else
        *ret_server = server;
    return rc;
}

uint16_t server_port(const struct server *server)
{
    return server->port;
}

void server_drain(struct server *server)
{
    atomic_store(&server->draining, true);
}

void server_close_door(struct server *server)
{
    int fd = MHD_quiesce_daemon(server->daemon);
    if (fd < 0)
        return;
    for (;;) {
        struct sockaddr_storage address;
        socklen_t len = sizeof address;
        int client = accept4(fd, (struct sockaddr *)&address, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (client < 0)
            break;
        MHD_add_connection(server->daemon, client, (struct sockaddr *)&address, len);
    }
    close(fd);
}

uint64_t server_in_flight(const struct server *server)
{
    return atomic_load(&server->in_flight);
}

void server_free(struct server *server)
{
    if (!server)
        return;
    MHD_stop_daemon(server->daemon);
    if (server->has_reload_thread)
        pthread_join(server->reload_thread, NULL);
    free(server);
}
