// SPDX-License-Identifier: Apache-2.0
// Where the server is, and what it says of itself: the one blocking exchange, before the load.
#include <errno.h>
#include <inttypes.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/units.h"
#include "reference_models/load/http.h"
#include "reference_models/load/load_args.h"

int load_url_parse(const char *text, const char *path, struct load_url *ret_url, struct error *err)
{
    static const char scheme[] = "http://";
    if (strncmp(text, scheme, sizeof scheme - 1) != 0)
        return error_set(err, -EINVAL, "'%s' is not http://HOST:PORT/PATH", text);
    const char *host = text + sizeof scheme - 1, *slash = strchr(host, '/');
    size_t len = slash ? (size_t)(slash - host) : strlen(host);
    for (const char *c = text; *c; c++) {
        if ((unsigned char)*c <= ' ' || *c == 0x7f)
            return error_set(err, -EINVAL, "'%s' has a space or a control character", text);
    }
    struct load_url url = {.text = text,
            .host = xasprintf("%.*s", (int)len, host),
            .path = xstrdup(slash && slash[1] ? slash : path)};
    char *name = xstrdup(url.host), *colon = strrchr(name, ':');
    uint64_t port = 80;
    int rc = 0;
    if (colon) {
        *colon = '\0';
        rc = unit_parse_uint(colon + 1, 1, 65535, &port, err);
        if (rc)
            error_prefix(err, "the port of '%s'", text);
    }
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found = NULL;
    int problem = rc ? 0 : getaddrinfo(name, NULL, &hints, &found);
    if (problem)
        rc = error_set(err, -EHOSTUNREACH, "failed to find '%s': %s", name, gai_strerror(problem));
    if (!rc) {
        memcpy(&url.address, found->ai_addr, sizeof url.address);
        url.address.sin_port = htons((uint16_t)port);
        freeaddrinfo(found);
        *ret_url = url;
    } else {
        load_url_free(&url);
    }
    free(name);
    return rc;
}

void load_url_free(struct load_url *url)
{
    free(url->host);
    free(url->path);
    url->host = url->path = NULL;
}

// The answer into *parser, which the caller frees.
static int load_get(const struct load_url *url, const char *path, struct http_parser *parser)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    struct timeval limit = {.tv_sec = 5};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    char *text =
            xasprintf("GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", path, url->host);
    int rc = 0;
    if (connect(fd, (const struct sockaddr *)&url->address, sizeof url->address) ||
            send(fd, text, strlen(text), MSG_NOSIGNAL) < 0)
        rc = -errno;
    free(text);
    enum http_result result = HTTP_MORE;
    while (!rc && result == HTTP_MORE) {
        char buf[4096];
        size_t used;
        ssize_t got = recv(fd, buf, sizeof buf, 0);
        if (got < 0 && errno != EINTR)
            rc = -errno;
        else if (got == 0)
            result = http_eof(parser) == HTTP_DONE ? HTTP_DONE : HTTP_BAD;
        else if (got > 0)
            result = http_feed(parser, buf, (size_t)got, &used);
    }
    close(fd);
    return rc ? rc : result == HTTP_DONE ? 0 : -EPROTO;
}

int load_ask_health(const struct load_url *url, struct bodies_opts *bodies, struct error *err)
{
    struct http_parser *parser = xcalloc(1, sizeof *parser);
    http_init(parser);
    int rc = load_get(url, "/health", parser);
    if (rc == -EAGAIN)
        rc = -ETIMEDOUT;
    json_t *root = NULL;
    if (!rc)
        root = json_loadb(parser->body ? parser->body : "", parser->size, 0, NULL);
    const char *kind = json_string_value(json_object_get(root, "kind"));
    const json_t *features = json_object_get(root, "features");
    json_int_t least = json_integer_value(json_array_get(features, 0));
    json_int_t most = json_integer_value(json_array_get(features, 1));
    if (rc) {
        error_set(err, rc,
                "failed to ask http://%s/health what the model takes: %s; or say it with "
                "--features and --kind",
                url->host, strerror(-rc));
    } else if (!kind || least < 1 || most < least || most > 4096) {
        rc = error_set(err, -EPROTO,
                "http://%s/health does not say what the model takes (not warm "
                "yet?); say it with --features and --kind",
                url->host);
    } else {
        bodies->kind = strcmp(kind, "transformer") == 0 ? BODIES_TRANSFORMER : BODIES_DLRM;
        bodies->least = (size_t)least;
        bodies->most = (size_t)most;
    }
    json_decref(root);
    http_free(parser);
    free(parser);
    return rc;
}
