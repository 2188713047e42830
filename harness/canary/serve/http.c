// SPDX-License-Identifier: Apache-2.0
// The HTTP server: libmicrohttpd in epoll mode, driven by our own loop. Answers of a snapshot are
// response objects that are made once and sent many times.
#include "harness/canary/serve/http.h"

#include <errno.h>
#include <microhttpd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/strings.h"
#include "harness/canary/serve/peers.h"
#include "harness/canary/serve/refresh.h"

// Silence for so long ends a connection in any phase; the deadlines of peers.c are shorter but for
// a kept one.
enum { HTTP_SILENT_S = 80 };

struct http {
    struct MHD_Daemon *daemon;
    struct peers peers;
    struct http_options options;
    struct answers *answers;
    struct MHD_Response **prepared; // by the number of the body; NULL: not asked for so far
    int prepared_count;
    struct call_counts counts;
    int64_t swept_ns;
};

static struct peer *http_peer(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
            MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}

static void http_connected(void *cls, struct MHD_Connection *connection, void **socket_context,
        enum MHD_ConnectionNotificationCode code)
{
    struct http *http = cls;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *info =
                MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
        *socket_context = peers_add(&http->peers, info->connect_fd, clock_monotonic_ns());
    } else {
        peers_remove(&http->peers, *socket_context);
        *socket_context = NULL;
    }
}

// The request's line is in.
static void *http_begun(void *cls, const char *uri, struct MHD_Connection *connection)
{
    struct http *http = cls;
    struct peer *peer = http_peer(connection);
    peers_move(&http->peers, peer, PEER_ASKING, clock_monotonic_ns());
    peer_keep_target(peer, uri, strlen(uri));
    return peer;
}

static void http_completed(void *cls, struct MHD_Connection *connection, void **request,
        enum MHD_RequestTerminationCode code)
{
    struct http *http = cls;
    struct peer *peer = *request;
    (void)connection, (void)code;
    if (peer && peer->phase == PEER_ASKING)
        peers_move(&http->peers, peer, PEER_IDLE, clock_monotonic_ns());
    *request = NULL;
}

// Paths are decoded by target.c, which refuses what is malformed.
static size_t http_unescape(void *cls, struct MHD_Connection *connection, char *text)
{
    (void)cls, (void)connection;
    return strlen(text);
}

static struct MHD_Response *response_make(
        const struct answer *answer, enum MHD_ResponseMemoryMode mode)
{
    struct MHD_Response *response = MHD_create_response_from_buffer(
            answer->body_len, (void *)(uintptr_t)answer->body, mode);
    if (!response)
        return NULL;
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, answer->type);
    MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    if (answer->allow)
        MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, answer->allow);
    return response;
}

static enum MHD_Result http_send(struct http *http, struct MHD_Connection *connection, int status,
        struct MHD_Response *response)
{
    uint64_t *count = status < 300 ? &http->counts.answers_2xx
            : status < 500         ? &http->counts.answers_4xx
                                   : &http->counts.answers_5xx;
    ++*count;
    return MHD_queue_response(connection, (unsigned)status, response);
}

// An answer to what is not worth more of the connection: it ends.
static enum MHD_Result http_refuse(
        struct http *http, struct MHD_Connection *connection, int status, const char *text)
{
    struct answer answer = {
            .type = "text/plain; charset=utf-8", .body = text, .body_len = strlen(text)};
    struct MHD_Response *response = response_make(&answer, MHD_RESPMEM_PERSISTENT);
    if (!response)
        return MHD_NO;
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
    if (status == MHD_HTTP_UNAUTHORIZED)
        MHD_add_response_header(
                response, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer realm=\"upgate\"");
    enum MHD_Result result = http_send(http, connection, status, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result http_reply(struct http *http, struct MHD_Connection *connection,
        const struct peer *peer, enum call_method method)
{
    http->counts.connections = http->peers.count;
    http->counts.cut_off = http->peers.cut_off;
    struct call call = {.method = method,
            .target = peer->target,
            .target_len = peer->target_len,
            .now = refresh_clock(),
            .counts = &http->counts};
    if (method == CALL_POST && peer->body_len) {
        call.body = peer->body;
        call.body_len = peer->body_len;
    }
    struct answer answer;
    answers_give(http->answers, &call, &answer);
    struct MHD_Response *response = answer.prepared >= 0 ? http->prepared[answer.prepared] : NULL;
    if (!response) {
        response = response_make(
                &answer, answer.prepared >= 0 ? MHD_RESPMEM_MUST_COPY : MHD_RESPMEM_MUST_FREE);
        if (!response) {
            if (answer.prepared < 0)
                free((void *)(uintptr_t)answer.body);
            return MHD_NO;
        }
        if (answer.prepared >= 0)
            http->prepared[answer.prepared] = response;
    }
    if (peer->stranger && answer.prepared < 0)
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
    enum MHD_Result result = http_send(http, connection, answer.status, response);
    if (answer.prepared < 0)
        MHD_destroy_response(response);
    return result;
}

static enum call_method method_of(const char *method)
{
    return strcmp(method, "GET") == 0     ? CALL_GET
            : strcmp(method, "HEAD") == 0 ? CALL_HEAD
            : strcmp(method, "POST") == 0 ? CALL_POST
                                          : CALL_OTHER;
}

static const char *header_of(struct MHD_Connection *connection, const char *name)
{
    return MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);
}

// A stranger is told what needs no token, and keeps no connection for it.
static bool http_allowed(struct http *http, struct MHD_Connection *connection, struct peer *peer)
{
    peer->stranger = http->options.tokens &&
            !tokens_allow(
                    http->options.tokens, header_of(connection, MHD_HTTP_HEADER_AUTHORIZATION));
    return !peer->stranger ||
            answers_open(peer->target, peer->target_len, http->options.open_metrics);
}

// The headers are in: what is refused at once, and ends the connection. *ret_done: so it was. An
// answer at this point would end it, too: libmicrohttpd then does not look for a body, nor for the
// next request behind it.
static enum MHD_Result http_head(struct http *http, struct MHD_Connection *connection,
        struct peer *peer, enum call_method method, bool *ret_done)
{
    bool reads = method == CALL_GET || method == CALL_HEAD;
    *ret_done = true;
    peer->seen = true;
    if (MHD_get_connection_values(connection, MHD_HEADER_KIND, NULL, NULL) > HTTP_HEADERS_MAX)
        return http_refuse(
                http, connection, MHD_HTTP_REQUEST_HEADER_FIELDS_TOO_LARGE, "too many headers\n");
    const char *length = reads ? NULL : header_of(connection, MHD_HTTP_HEADER_CONTENT_LENGTH);
    // two lengths: another server may take the other one
    if (length && header_of(connection, MHD_HTTP_HEADER_TRANSFER_ENCODING))
        return http_refuse(http, connection, MHD_HTTP_BAD_REQUEST, "the body has two lengths\n");
    peer->refused = !http_allowed(http, connection, peer);
    http->counts.refused_tokens += peer->refused;
    bool large = length && strtoull(length, NULL, 10) > ANSWERS_BODY_MAX;
    if (large && !peer->refused)
        return http_refuse(http, connection, MHD_HTTP_CONTENT_TOO_LARGE, "the body is too large\n");
    if (peer->refused && (large || reads))
        return http_refuse(http, connection, MHD_HTTP_UNAUTHORIZED, "a token is needed\n");
    *ret_done = false; // a client that is still sending its body would not see the answer
    return MHD_YES;
}

static enum MHD_Result http_request(void *cls, struct MHD_Connection *connection, const char *url,
        const char *method, const char *version, const char *upload, size_t *upload_size,
        void **request)
{
    struct http *http = cls;
    struct peer *peer = *request;
    (void)url, (void)version;
    if (!peer)
        return MHD_NO;
    enum call_method kind = method_of(method);
    if (!peer->seen) {
        bool done = false;
        enum MHD_Result result = http_head(http, connection, peer, kind, &done);
        return done ? result : MHD_YES;
    }
    if (*upload_size) {
        if (peer->body_len + *upload_size > ANSWERS_BODY_MAX)
            return MHD_NO; // chunks without end: nothing can be answered in the middle of them
        if (peer->refused || kind != CALL_POST)
            peer->body_len += *upload_size; // thrown away
        else
            peer_add_body(peer, upload, *upload_size);
        *upload_size = 0;
        return MHD_YES;
    }
    return peer->refused
            ? http_refuse(http, connection, MHD_HTTP_UNAUTHORIZED, "a token is needed\n")
            : http_reply(http, connection, peer, kind);
}

static void http_forget(struct http *http)
{
    for (int i = 0; i < http->prepared_count; i++)
        if (http->prepared[i])
            // those under way keep theirs, with a copy of the body
            MHD_destroy_response(http->prepared[i]);
    free(http->prepared);
    answers_free(http->answers);
}

void http_set_answers(struct http *http, struct answers *answers)
{
    http_forget(http);
    http->answers = answers;
    http->prepared_count = answers_prepared(answers);
    http->prepared = xcalloc((size_t)http->prepared_count, sizeof(struct MHD_Response *));
}

int http_start(const struct http_options *options, struct answers *answers, struct http **ret_http,
        struct error *err)
{
    struct http *http = xcalloc(1, sizeof *http);
    http->options = *options;
    http->counts.connections_max = options->connections;
    http_set_answers(http, answers);
    struct MHD_OptionItem tls[] = {
            {MHD_OPTION_HTTPS_MEM_CERT, 0, (void *)(uintptr_t)options->cert},
            {MHD_OPTION_HTTPS_MEM_KEY, 0, (void *)(uintptr_t)options->key},
            {MHD_OPTION_HTTPS_PRIORITIES, 0,
                    (void *)(uintptr_t) "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"},
            {MHD_OPTION_END, 0, NULL},
    };
    if (!options->cert)
        tls[0] = (struct MHD_OptionItem){MHD_OPTION_END, 0, NULL};
    http->daemon = MHD_start_daemon(MHD_USE_EPOLL | (options->cert ? MHD_USE_TLS : 0), 0, NULL,
            NULL, http_request, http, MHD_OPTION_LISTEN_SOCKET, options->listen_fd,
            MHD_OPTION_CONNECTION_LIMIT, options->connections, MHD_OPTION_PER_IP_CONNECTION_LIMIT,
            options->connections_per_address, MHD_OPTION_CONNECTION_TIMEOUT,
            (unsigned)HTTP_SILENT_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
            (size_t)HTTP_HEADER_BYTES_MAX, MHD_OPTION_STRICT_FOR_CLIENT, 1,
            MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1, MHD_OPTION_NOTIFY_CONNECTION, http_connected,
            http, MHD_OPTION_NOTIFY_COMPLETED, http_completed, http, MHD_OPTION_URI_LOG_CALLBACK,
            http_begun, http, MHD_OPTION_UNESCAPE_CALLBACK, http_unescape, http, MHD_OPTION_ARRAY,
            tls, MHD_OPTION_END);
    if (!http->daemon) {
        http_forget(http);
        free(http);
        return options->cert
                ? error_set(err, -EINVAL,
                          "failed to start with TLS: are these a PEM certificate and its key?")
                : error_set(err, -EIO, "failed to start the HTTP server");
    }
    *ret_http = http;
    return 0;
}

int http_run(struct http *http, int timeout_ms, struct error *err)
{
    if (MHD_run_wait(http->daemon, timeout_ms) != MHD_YES)
        return error_set(err, -EIO, "the HTTP server's event loop failed");
    int64_t now = clock_monotonic_ns();
    if (now - http->swept_ns > INT64_C(500000000)) {
        uint64_t limit = http->options.connections;
        peers_sweep(&http->peers, now);
        if (http->peers.count > limit - limit / 16)
            peers_make_room(&http->peers, limit - limit / 8, now);
        http->swept_ns = now;
    }
    return 0;
}

void http_stop(struct http *http, int grace_ms)
{
    if (!http)
        return;
    MHD_socket fd = MHD_quiesce_daemon(http->daemon);
    if (fd != MHD_INVALID_SOCKET)
        close(fd);
    int64_t until = clock_monotonic_ns() + grace_ms * INT64_C(1000000);
    while (http->peers.oldest[PEER_ASKING] && clock_monotonic_ns() < until &&
            MHD_run_wait(http->daemon, 20) == MHD_YES)
        ;
    MHD_stop_daemon(http->daemon);
    http_forget(http);
    free(http);
}
