// SPDX-License-Identifier: Apache-2.0
// The event loop. A call is a request without an outcome: it waits for a connection, or has one.
// Calls stand in one list by age, which is the order of their deadlines, for all have the same
// time.
#include "reference_models/load/client.h"

#include <errno.h>
#include <math.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"

#define CLIENT_EVENTS 256
#define CLIENT_READ ((size_t)64 << 10)
#define CLIENT_S 1e9

enum connection_state { CONNECTION_OPENING, CONNECTION_BUSY, CONNECTION_IDLE, CONNECTION_CLOSED };

struct connection {
    struct connection *next, *previous; // idle, or closed
    enum connection_state state;
    int fd;
    uint64_t answers; // that came on it
    struct call *call;
    struct strbuf out;
    size_t written;
    struct http_parser parser;
};

struct call {
    uint64_t id;
    int64_t due_ns, sent_ns;
    bool retried, queued, finished;
    struct connection *connection;
    struct call *older, *newer; // by deadline
    struct call *next;          // in the queue, or free
};

struct client {
    const struct client_opts *opts;
    struct schedule *schedule;
    struct account *account;
    int epoll_fd;
    int64_t begin_ns, wall_ns, next_ns, last_ns, progress_ns;
    bool more; // arrivals
    struct connection *idle, *closed;
    size_t connections;
    struct call *oldest, *newest, *queue, **queue_end, *free_calls;
    char buf[CLIENT_READ];
};

static void client_dispatch(struct client *client, struct call *call);
static void connection_read(struct client *client, struct connection *connection, bool ending);

// --- calls ---

static struct call *call_new(struct client *client, int64_t due_ns)
{
    struct call *call = client->free_calls;
    if (call)
        client->free_calls = call->next;
    else
        call = xcalloc(1, sizeof *call);
    *call = (struct call){.id = client->account->sent++, .due_ns = due_ns, .older = client->newest};
    if (client->newest)
        client->newest->newer = call;
    else
        client->oldest = call;
    client->newest = call;
    return call;
}

static void call_free(struct client *client, struct call *call)
{
    call->next = client->free_calls;
    client->free_calls = call;
}

static void call_finish(struct client *client, struct call *call, enum outcome outcome,
        enum wrong wrong, const struct http_parser *answer)
{
    struct account_request request = {.outcome = outcome,
            .wrong = wrong,
            .status = answer ? answer->status : 0,
            .side = answer ? answer->side : "",
            .due_ns = call->due_ns,
            .sent_ns = call->sent_ns,
            .done_ns = clock_monotonic_ns(),
            .wall_ns = client->wall_ns};
    account_add(client->account, &request);
    client->last_ns = request.done_ns;
    if (client->opts->log)
        account_log(client->opts->log, call->id, call->retried, &request);
    *(call->older ? &call->older->newer : &client->oldest) = call->newer;
    *(call->newer ? &call->newer->older : &client->newest) = call->older;
    call->finished = true;
    if (!call->queued)
        call_free(client, call);
}

// --- connections ---

static void connection_idle(struct client *client, struct connection *connection)
{
    connection->state = CONNECTION_IDLE;
    connection->call = NULL;
    connection->previous = NULL;
    connection->next = client->idle;
    if (client->idle)
        client->idle->previous = connection;
    client->idle = connection;
}

static void connection_not_idle(struct client *client, struct connection *connection)
{
    *(connection->previous ? &connection->previous->next : &client->idle) = connection->next;
    if (connection->next)
        connection->next->previous = connection->previous;
}

// Freed after the events of this turn: one of them may be its own.
static void connection_close(struct client *client, struct connection *connection)
{
    if (connection->state == CONNECTION_IDLE)
        connection_not_idle(client, connection);
    close(connection->fd);
    connection->state = CONNECTION_CLOSED;
    connection->call = NULL;
    connection->next = client->closed;
    client->closed = connection;
    client->connections--;
}

static void connections_free_closed(struct client *client)
{
    while (client->closed) {
        struct connection *connection = client->closed;
        client->closed = connection->next;
        http_free(&connection->parser);
        strbuf_free(&connection->out);
        free(connection);
    }
}

static struct call *client_queue_take(struct client *client)
{
    while (client->queue) {
        struct call *call = client->queue;
        client->queue = call->next;
        if (!client->queue)
            client->queue_end = &client->queue;
        call->queued = false;
        if (!call->finished)
            return call;
        call_free(client, call); // its time was over while it waited
    }
    return NULL;
}

// A place is free: for the call that has waited longest.
static void client_take_next(struct client *client)
{
    struct call *call = client_queue_take(client);
    if (call)
        client_dispatch(client, call);
}

// The connection ended without an outcome of its call by an answer.
static void connection_broken(struct client *client, struct connection *connection)
{
    struct call *call = connection->call;
    bool begun = connection->parser.begun, reused = connection->answers > 0;
    if (connection->state == CONNECTION_IDLE)
        client->account->idle_closed++;
    connection_close(client, connection);
    if (!call)
        return;
    call->connection = NULL;
    if (!begun && reused && !call->retried) {
        call->retried = true;
        client->account->retried++;
        client_dispatch(client, call);
        return;
    }
    call_finish(client, call, begun ? OUTCOME_TRUNCATED : OUTCOME_LOST, WRONG_NONE,
            begun ? &connection->parser : NULL);
    client_take_next(client);
}

static void connection_write(struct client *client, struct connection *connection)
{
    while (connection->written < connection->out.len) {
        ssize_t sent = send(connection->fd, connection->out.text + connection->written,
                connection->out.len - connection->written, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0) {
            if (errno != EAGAIN) // an answer may have come before the end
                connection_read(client, connection, true);
            return;
        }
        connection->written += (size_t)sent;
    }
}

static void connection_ask(struct client *client, struct connection *connection, struct call *call)
{
    const struct client_opts *opts = client->opts;
    struct strbuf *out = &connection->out;
    out->len = 0;
    connection->written = 0;
    connection->call = call;
    call->connection = connection;
    http_next(&connection->parser);
    if (opts->bodies) {
        strbuf_add(out,
                "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n"
                "Content-Length: %zu\r\n\r\n",
                opts->path, opts->host, bodies_size(opts->bodies, call->id));
        bodies_add(opts->bodies, call->id, out);
    } else {
        strbuf_add(out, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", opts->path, opts->host);
    }
    if (connection->state == CONNECTION_OPENING)
        return;
    connection->state = CONNECTION_BUSY;
    call->sent_ns = clock_monotonic_ns();
    connection_write(client, connection);
}

static struct connection *connection_open(struct client *client)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return NULL;
    struct connection *connection = xcalloc(1, sizeof *connection);
    connection->fd = fd;
    http_init(&connection->parser);
    int yes = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    struct epoll_event event = {
            .events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = connection};
    const struct sockaddr *address = (const struct sockaddr *)&client->opts->address;
    if ((connect(fd, address, sizeof client->opts->address) && errno != EINPROGRESS) ||
            epoll_ctl(client->epoll_fd, EPOLL_CTL_ADD, fd, &event)) {
        close(fd);
        free(connection);
        return NULL;
    }
    client->connections++;
    client->account->opened++;
    return connection;
}

// Gives a call a connection, or a place in the queue.
static void client_dispatch(struct client *client, struct call *call)
{
    struct connection *connection = call->retried ? NULL : client->idle;
    if (connection) {
        connection_not_idle(client, connection);
        connection->state = CONNECTION_BUSY;
    } else if (call->retried || client->connections < client->opts->connections_max) {
        connection = connection_open(client);
        if (!connection) {
            call_finish(client, call, OUTCOME_LOST, WRONG_NONE, NULL);
            return;
        }
    } else {
        call->queued = true;
        call->next = NULL;
        *client->queue_end = call;
        client->queue_end = &call->next;
        return;
    }
    connection_ask(client, connection, call);
}

// --- answers ---

static void connection_answered(struct client *client, struct connection *connection, bool ending)
{
    struct call *call = connection->call;
    const struct http_parser *answer = &connection->parser;
    enum outcome outcome = answer->status == 200 ? OUTCOME_OK : OUTCOME_HTTP;
    enum wrong wrong = WRONG_NONE;
    if (outcome == OUTCOME_OK && client->opts->bodies) {
        bool compared = false;
        wrong = bodies_check(client->opts->bodies, call->id, answer->side, answer->body,
                answer->size, &compared);
        client->account->compared += compared;
        outcome = wrong == WRONG_NONE ? OUTCOME_OK : OUTCOME_WRONG;
    }
    // After an answer that is not ours nothing on this connection can be trusted.
    bool mixed = wrong == WRONG_SWAPPED || wrong == WRONG_DOUBLED;
    connection->answers++;
    call_finish(client, call, outcome, wrong, answer);
    connection->call = NULL;
    if (!answer->keep_alive || ending || mixed) {
        connection_close(client, connection);
        client_take_next(client);
        return;
    }
    struct call *next = client_queue_take(client);
    if (next)
        connection_ask(client, connection, next);
    else
        connection_idle(client, connection);
}

static void connection_ended(struct client *client, struct connection *connection)
{
    if (connection->call && http_eof(&connection->parser) == HTTP_DONE)
        connection_answered(client, connection, true);
    else
        connection_broken(client, connection);
}

// Bytes of an answer. False: nothing more is to be read from this connection.
static bool connection_feed(
        struct client *client, struct connection *connection, size_t len, bool ending)
{
    if (!connection->call) {
        client->account->extra++;
        connection_close(client, connection);
        return false;
    }
    size_t used = 0;
    enum http_result result = http_feed(&connection->parser, client->buf, len, &used);
    if (result == HTTP_MORE)
        return true;
    if (result == HTTP_BAD) {
        struct call *call = connection->call;
        call_finish(client, call, OUTCOME_WRONG, WRONG_MALFORMED, &connection->parser);
        connection_close(client, connection);
        client_take_next(client);
        return false;
    }
    if (used < len)
        client->account->extra++;
    connection_answered(client, connection, ending || used < len);
    return connection->state != CONNECTION_CLOSED;
}

static void connection_read(struct client *client, struct connection *connection, bool ending)
{
    for (;;) {
        ssize_t got = recv(connection->fd, client->buf, sizeof client->buf, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && errno == EAGAIN)
            return;
        if (got < 0) {
            connection_broken(client, connection);
            return;
        }
        if (got == 0) {
            connection_ended(client, connection);
            return;
        }
        if (!connection_feed(client, connection, (size_t)got, ending))
            return;
        if ((size_t)got < sizeof client->buf && !ending)
            return;
    }
}

static void client_event(struct client *client, struct connection *connection, uint32_t events)
{
    if (connection->state == CONNECTION_CLOSED)
        return;
    if (connection->state == CONNECTION_OPENING) {
        int problem = 0;
        socklen_t len = sizeof problem;
        getsockopt(connection->fd, SOL_SOCKET, SO_ERROR, &problem, &len);
        if (problem || !(events & EPOLLOUT)) {
            connection_broken(client, connection);
            return;
        }
        connection->state = CONNECTION_BUSY;
        connection->call->sent_ns = clock_monotonic_ns();
    }
    if (events & EPOLLOUT && connection->state == CONNECTION_BUSY)
        connection_write(client, connection);
    bool ending = events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR);
    if ((events & EPOLLIN || ending) && connection->state != CONNECTION_CLOSED)
        connection_read(client, connection, ending);
}

// --- time ---

static void client_arrivals(struct client *client, int64_t now)
{
    while (client->more && client->next_ns <= now) {
        client_dispatch(client, call_new(client, client->next_ns));
        double next = schedule_next(client->schedule);
        client->more = isfinite(next) && client->account->sent < client->opts->requests_max;
        if (client->more)
            client->next_ns = client->begin_ns + (int64_t)(next * CLIENT_S);
    }
}

static void client_deadlines(struct client *client, int64_t now)
{
    while (client->oldest && client->oldest->due_ns + client->opts->timeout_ns <= now) {
        struct call *call = client->oldest;
        struct connection *connection = call->connection;
        call_finish(client, call, OUTCOME_TIMED_OUT, WRONG_NONE, NULL);
        if (connection) { // an answer to it may still come: not for the next one
            connection_close(client, connection);
            client_take_next(client);
        }
    }
}

static void client_progress(struct client *client, int64_t now)
{
    if (!client->opts->progress || now < client->progress_ns)
        return;
    client->progress_ns += (int64_t)CLIENT_S;
    account_print_progress(client->account, (double)(now - client->begin_ns) / CLIENT_S, stderr);
}

static int client_wait(struct client *client, struct epoll_event *events)
{
    static bool coarse; // a kernel before 5.11
    int64_t until = client->more ? client->next_ns : INT64_MAX;
    if (client->oldest && client->oldest->due_ns + client->opts->timeout_ns < until)
        until = client->oldest->due_ns + client->opts->timeout_ns;
    if (client->opts->progress && client->progress_ns < until)
        until = client->progress_ns;
    int64_t span = until - clock_monotonic_ns();
    span = span < 0 ? 0 : span > (int64_t)CLIENT_S ? (int64_t)CLIENT_S : span;
    struct timespec time = {
            .tv_sec = span / (int64_t)CLIENT_S, .tv_nsec = span % (int64_t)CLIENT_S};
    if (!coarse) {
        int count = epoll_pwait2(client->epoll_fd, events, CLIENT_EVENTS, &time, NULL);
        if (count >= 0 || errno != ENOSYS)
            return count;
        coarse = true;
    }
    return epoll_wait(client->epoll_fd, events, CLIENT_EVENTS, (int)(span / 1000000));
}

static void client_loop(struct client *client)
{
    struct epoll_event events[CLIENT_EVENTS];
    while (client->more || client->oldest) {
        int count = client_wait(client, events);
        for (int i = 0; i < count; i++)
            client_event(client, events[i].data.ptr, events[i].events);
        connections_free_closed(client);
        int64_t now = clock_monotonic_ns();
        if (*client->opts->stop)
            client->more = false;
        client_deadlines(client, now);
        client_arrivals(client, now);
        connections_free_closed(client);
        client_progress(client, now);
    }
}

int client_run(const struct client_opts *opts, struct schedule *schedule, struct account *account,
        struct error *err)
{
    struct client *client = xcalloc(1, sizeof *client);
    client->opts = opts;
    client->schedule = schedule;
    client->account = account;
    client->queue_end = &client->queue;
    client->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (client->epoll_fd < 0) {
        free(client);
        return error_set(err, -errno, "failed to make an epoll: %s", strerror(errno));
    }
    client->begin_ns = client->last_ns = client->progress_ns = clock_monotonic_ns();
    client->wall_ns = clock_wall_ns() - client->begin_ns;
    double first = schedule_next(schedule);
    client->more = isfinite(first) && opts->requests_max > 0;
    client->next_ns = client->begin_ns + (client->more ? (int64_t)(first * CLIENT_S) : 0);
    client_loop(client);
    account->seconds = (double)(client->last_ns - client->begin_ns) / CLIENT_S;
    client_queue_take(client); // frees what was over while it waited
    while (client->idle)
        connection_close(client, client->idle);
    connections_free_closed(client);
    while (client->free_calls) {
        struct call *call = client->free_calls;
        client->free_calls = call->next;
        free(call);
    }
    close(client->epoll_fd);
    free(client);
    return 0;
}
