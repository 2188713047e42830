// SPDX-License-Identifier: Apache-2.0
// The same functions in a build without libcurl: no client can be opened, and so nothing else is
// ever called.
#include <assert.h>
#include <errno.h>
#include <stddef.h>

#include "harness/canary/http/http.h"

static int http_missing(struct error *err)
{
    return error_set(err, -ENOSYS,
            "this upgate was built without libcurl, which asks HTTP servers; install "
            "libcurl4-openssl-dev (or libcurl-devel) and build again");
}

int http_open(struct http **ret_http, struct error *err)
{
    (void)ret_http;
    return http_missing(err);
}

void http_close(struct http *http)
{
    assert(!http);
}

int http_call_new(struct http *http, const struct http_request *request,
        struct http_call **ret_call, struct error *err)
{
    (void)http;
    (void)request;
    (void)ret_call;
    return http_missing(err);
}

void http_call_free(struct http_call *call)
{
    assert(!call);
}

void http_work(struct http *http, int timeout_ms)
{
    (void)timeout_ms;
    assert(!http);
}

bool http_call_ended(const struct http_call *call)
{
    return !call;
}

int http_call_answer(
        const struct http_call *call, long *ret_status, const char **ret_body, struct error *err)
{
    (void)call;
    (void)ret_status;
    (void)ret_body;
    return http_missing(err);
}
