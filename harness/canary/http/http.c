// SPDX-License-Identifier: Apache-2.0
// HTTP by libcurl's multi interface, so that no server can hold up the loop that asks it.
#include "harness/canary/http/http.h"

#include <curl/curl.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/strings.h"

struct http {
    CURLM *multi;
};

struct http_call {
    struct http *http;
    CURL *easy;
    struct curl_slist *headers;
    char *url; // to tell
    struct strbuf body;
    size_t answer_max;
    bool added, ended, too_long;
    CURLcode code;
    char problem[CURL_ERROR_SIZE];
};

int http_open(struct http **ret_http, struct error *err)
{
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return error_set(err, -EIO, "failed to initialise libcurl");
    struct http *http = xcalloc(1, sizeof *http);
    http->multi = curl_multi_init();
    if (!http->multi) {
        free(http);
        return error_set(err, -ENOMEM, "failed to initialise libcurl: no memory");
    }
    *ret_http = http;
    return 0;
}

void http_close(struct http *http)
{
    if (!http)
        return;
    curl_multi_cleanup(http->multi);
    curl_global_cleanup();
    free(http);
}

static size_t http_take(char *bytes, size_t size, size_t count, void *arg)
{
    struct http_call *call = arg;
    size_t len = size * count;
    if (call->body.len + len > call->answer_max) {
        call->too_long = true;
        return 0; // ends the transfer
    }
    strbuf_add_bytes(&call->body, bytes, len);
    return len;
}

static void http_set_protocols(CURL *easy)
{
#if LIBCURL_VERSION_NUM >= 0x075500
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
#else
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
}

// A libcurl that came along from another distribution names that one's file of authorities: here
// another may have them.
static void http_set_authorities(CURL *easy)
{
#if LIBCURL_VERSION_NUM >= 0x075400
    static const char *const files[] = {"/etc/ssl/certs/ca-certificates.crt",
            "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem",
            "/etc/ssl/cert.pem"}; // Debian, Fedora, SUSE, Alpine
    char *own = NULL;
    if (curl_easy_getinfo(easy, CURLINFO_CAINFO, &own) || !own || access(own, R_OK) == 0)
        return;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        if (access(files[i], R_OK) == 0) {
            curl_easy_setopt(easy, CURLOPT_CAINFO, files[i]);
            return;
        }
    }
#else
    (void)easy;
#endif
}

// An older list is still the call's when one more does not fit.
static bool http_add_header(struct http_call *call, const char *name, const char *value)
{
    char *line = xasprintf("%s%s", name, value);
    struct curl_slist *longer = curl_slist_append(call->headers, line);
    free(line);
    if (longer)
        call->headers = longer;
    return longer != NULL;
}

int http_call_new(struct http *http, const struct http_request *request,
        struct http_call **ret_call, struct error *err)
{
    struct http_call *call = xcalloc(1, sizeof *call);
    call->http = http;
    call->url = http_url_plain(request->url);
    call->answer_max = request->answer_max;
    call->easy = curl_easy_init();
    bool ok = call->easy && http_add_header(call, "Expect:", ""); // no waiting for "100 Continue"
    if (ok && request->body)
        ok = http_add_header(call, "Content-Type: ", request->content_type);
    if (ok && request->token)
        ok = http_add_header(call, "Authorization: Bearer ", request->token);
    if (ok) {
        int64_t timeout_ms = request->timeout_ns / 1000000;
        curl_easy_setopt(call->easy, CURLOPT_URL, request->url);
        http_set_protocols(call->easy);
        http_set_authorities(call->easy);
        curl_easy_setopt(call->easy, CURLOPT_NOSIGNAL, 1L);
        curl_easy_setopt(call->easy, CURLOPT_TIMEOUT_MS, (long)(timeout_ms > 1 ? timeout_ms : 1));
        curl_easy_setopt(call->easy, CURLOPT_HTTPHEADER, call->headers);
        curl_easy_setopt(call->easy, CURLOPT_USERAGENT, "upgate/" UPGATE_VERSION);
        curl_easy_setopt(call->easy, CURLOPT_WRITEFUNCTION, http_take);
        curl_easy_setopt(call->easy, CURLOPT_WRITEDATA, call);
        curl_easy_setopt(call->easy, CURLOPT_PRIVATE, call);
        curl_easy_setopt(call->easy, CURLOPT_ERRORBUFFER, call->problem);
        if (request->body)
            curl_easy_setopt(call->easy, CURLOPT_COPYPOSTFIELDS, request->body);
        ok = curl_multi_add_handle(http->multi, call->easy) == CURLM_OK;
        call->added = ok;
    }
    if (!ok) {
        int rc = error_set(err, -ENOMEM, "failed to ask '%s': no memory", call->url);
        http_call_free(call);
        return rc;
    }
    *ret_call = call;
    return 0;
}

void http_call_free(struct http_call *call)
{
    if (!call)
        return;
    if (call->added)
        curl_multi_remove_handle(call->http->multi, call->easy);
    if (call->easy)
        curl_easy_cleanup(call->easy);
    curl_slist_free_all(call->headers);
    strbuf_free(&call->body);
    free(call->url);
    free(call);
}

void http_work(struct http *http, int timeout_ms)
{
    int running = 0, left;
    if (curl_multi_perform(http->multi, &running) == CURLM_OK && running && timeout_ms > 0) {
        curl_multi_poll(http->multi, NULL, 0, timeout_ms, NULL);
        curl_multi_perform(http->multi, &running);
    }
    for (CURLMsg *message; (message = curl_multi_info_read(http->multi, &left));) {
        struct http_call *call = NULL;
        if (message->msg != CURLMSG_DONE)
            continue;
        CURLcode code = message->data.result; // the message ends with the handle
        curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &call);
        curl_multi_remove_handle(http->multi, call->easy);
        call->added = false;
        call->ended = true;
        call->code = code;
    }
}

bool http_call_ended(const struct http_call *call)
{
    return call->ended;
}

static int http_errno(const struct http_call *call)
{
    switch (call->code) {
    case CURLE_OPERATION_TIMEDOUT:
        return -ETIMEDOUT;
    case CURLE_COULDNT_CONNECT:
        return -ECONNREFUSED;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
        return -EHOSTUNREACH;
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
        return -EINVAL;
    default:
        return -EIO;
    }
}

int http_call_answer(
        const struct http_call *call, long *ret_status, const char **ret_body, struct error *err)
{
    if (call->too_long)
        return error_set(
                err, -EMSGSIZE, "'%s' answers more than %zu bytes", call->url, call->answer_max);
    if (call->code != CURLE_OK)
        return error_set(err, http_errno(call), "failed to ask '%s': %s", call->url,
                call->problem[0] ? call->problem : curl_easy_strerror(call->code));
    curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, ret_status);
    *ret_body = call->body.text ? call->body.text : "";
    return 0;
}
