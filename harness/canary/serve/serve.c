// SPDX-License-Identifier: Apache-2.0
// `upgate canary serve`: options in, a server that runs until it is told to end. Puts the parts
// together: socket, tokens, the thread that refreshes the answers, the HTTP loop.
#include "harness/canary/serve/serve.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "common/log.h"
#include "common/strings.h"
#include "harness/canary/serve/http.h"
#include "harness/canary/serve/listen.h"
#include "harness/canary/serve/refresh.h"

enum {
    SERVE_CONNECTIONS = 16384,
    SERVE_PER_ADDRESS = 1024, // a service mesh's gateway may be one address
    SERVE_FILES_BESIDE = 64,  // descriptors that are no connections: store, epoll, log, …
    SERVE_TURN_MS = 100,      // how late fresh answers and a signal are seen at most
    SERVE_GRACE_MS = 2000,
    SERVE_PEM_MAX = 1 << 20
};

static volatile sig_atomic_t serve_ends;

static void serve_signalled(int number)
{
    (void)number;
    serve_ends = 1;
}

// SIGTERM and SIGINT end the loop, SIGPIPE is a client that has gone. `old` has room for three.
static const int serve_signals[] = {SIGTERM, SIGINT, SIGPIPE};

static void signals_take(struct sigaction *old)
{
    struct sigaction ends = {.sa_handler = serve_signalled}, ignore = {.sa_handler = SIG_IGN};
    serve_ends = 0;
    for (int i = 0; i < 3; i++)
        sigaction(serve_signals[i], serve_signals[i] == SIGPIPE ? &ignore : &ends, &old[i]);
}

static void signals_give(const struct sigaction *old)
{
    for (int i = 0; i < 3; i++)
        sigaction(serve_signals[i], &old[i], NULL);
}

// "/data/ranker.rollout.db" -> "ranker".
static char *name_of(const char *store)
{
    static const char *const endings[] = {".rollout.db", ".db"};
    char *name = xstrdup(string_base_name(store));
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        size_t len = strlen(name), end = strlen(endings[i]);
        if (len > end && strcmp(name + len - end, endings[i]) == 0) {
            name[len - end] = 0;
            break;
        }
    }
    return name;
}

static int name_check(const char *name, struct error *err)
{
    bool ok = *name && strlen(name) <= 200;
    for (const char *at = name; *at; at++)
        ok = ok && *at > ' ' && *at < 0x7f && *at != '/' && *at != '?' && *at != '#' && *at != '%';
    return ok
            ? 0
            : error_set(err, -EINVAL,
                      "'%s' cannot stand in a path; name the rollout with letters, digits, '.', '-' and '_'",
                      name);
}

// Room for so many descriptors; fewer connections where the system does not give it.
static uint32_t connections_possible(uint32_t wanted)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return wanted;
    rlim_t need = (rlim_t)wanted + SERVE_FILES_BESIDE;
    if (limit.rlim_cur < need) {
        limit.rlim_cur = limit.rlim_max < need ? limit.rlim_max : need;
        setrlimit(RLIMIT_NOFILE, &limit);
        getrlimit(RLIMIT_NOFILE, &limit);
    }
    if (limit.rlim_cur >= need)
        return wanted;
    uint32_t possible = limit.rlim_cur > 2 * SERVE_FILES_BESIDE
            ? (uint32_t)limit.rlim_cur - SERVE_FILES_BESIDE
            : SERVE_FILES_BESIDE;
    log_warn("only %u connections instead of %u: the limit of open files is %llu", possible, wanted,
            (unsigned long long)limit.rlim_cur);
    return possible;
}

struct serve {
    struct tokens *tokens;
    char *cert, *key, *name;
    struct refresh *refresh;
    struct http *http;
    struct listen_address address;
};

static int read_pem(const char *path, char **ret, struct error *err)
{
    size_t len = 0;
    *ret = path ? string_read_file(path, SERVE_PEM_MAX, &len) : NULL;
    return *ret || !path ? 0
                         : error_set(err, errno == ENOENT ? -EINVAL : -errno,
                                   "failed to read '%s': %s", path, strerror(errno));
}

static int serve_prepare(
        struct serve *serve, const struct serve_options *options, struct error *err)
{
    if (!options->store)
        return error_set(err, -EINVAL, "no store was named");
    if (!options->tls_cert != !options->tls_key)
        return error_set(err, -EINVAL, "TLS needs both, a certificate and its key");
    serve->name = options->name ? xstrdup(options->name) : name_of(options->store);
    int rc = name_check(serve->name, err);
    if (rc == 0 && options->token_file)
        rc = tokens_load(options->token_file, &serve->tokens, err);
    if (rc == 0)
        rc = read_pem(options->tls_cert, &serve->cert, err);
    return rc ? rc : read_pem(options->tls_key, &serve->key, err);
}

static int serve_open(struct serve *serve, const struct serve_options *options, struct error *err)
{
    struct http_options http = {.listen_fd = -1,
            .tokens = serve->tokens,
            .cert = serve->cert,
            .key = serve->key,
            .open_metrics = options->open_metrics};
    int rc = listen_open(options->listen ? options->listen : "127.0.0.1:8080",
            serve->tokens || options->no_token, &http.listen_fd, &serve->address, err);
    if (rc)
        return rc;
    rc = refresh_start(options->store, serve->name, &serve->refresh, err);
    if (rc == 0) {
        http.connections = connections_possible(
                options->connections ? options->connections : SERVE_CONNECTIONS);
        http.connections_per_address = options->connections_per_address
                ? options->connections_per_address
                : SERVE_PER_ADDRESS;
        rc = http_start(&http, refresh_take(serve->refresh), &serve->http, err);
    }
    if (rc)
        listen_close(http.listen_fd);
    return rc;
}

static int serve_loop(struct serve *serve, struct error *err)
{
    int rc = 0;
    while (rc == 0 && !serve_ends) {
        struct answers *fresh = refresh_take(serve->refresh);
        if (fresh)
            http_set_answers(serve->http, fresh);
        rc = http_run(serve->http, SERVE_TURN_MS, err);
    }
    return rc;
}

int canary_serve(const struct serve_options *options, struct error *err)
{
    struct serve serve = {0};
    struct sigaction old[3];
    signals_take(old);
    int rc = serve_prepare(&serve, options, err);
    if (rc == 0)
        rc = serve_open(&serve, options, err);
    if (rc == 0) {
        if (!serve.address.loopback && !serve.cert && serve.tokens)
            log_warn(
                    "the token travels unencrypted: give --tls-cert and --tls-key, or let a mesh encrypt");
        log_info("answering for '%s' on http%s://%s%s", serve.name, serve.cert ? "s" : "",
                serve.address.text, serve.tokens ? "" : ", without a token");
        rc = serve_loop(&serve, err);
        if (rc == 0)
            log_info("ending");
    }
    http_stop(serve.http, SERVE_GRACE_MS);
    refresh_stop(serve.refresh);
    tokens_free(serve.tokens);
    if (serve.key)
        explicit_bzero(serve.key, strlen(serve.key));
    free(serve.key);
    free(serve.cert);
    free(serve.name);
    signals_give(old);
    return rc;
}
