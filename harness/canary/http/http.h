// SPDX-License-Identifier: Apache-2.0
// Questions to HTTP servers that are not trusted: bounded in time and in size, no redirect is
// followed, no file is read. By libcurl; a build without it has the same functions, and each says
// what is missing. One thread.
#ifndef UPGATE_HARNESS_CANARY_HTTP_H
#define UPGATE_HARNESS_CANARY_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

struct http;
struct http_call;

struct http_request {
    const char *url;          // http or https
    const char *content_type; // of `body`; NULL where there is none
    const char *body;         // NULL: GET; else POST
    const char *token;        // bearer token; NULL: none
    int64_t timeout_ns;       // of everything together
    size_t answer_max;        // bytes; a longer one is an error
};

// -ENOSYS in words where upgate was built without libcurl.
int http_open(struct http **ret_http, struct error *err);
void http_close(struct http *http); // NULL ok; its calls must have been freed

// A question under way. The strings of the request are copied.
int http_call_new(struct http *http, const struct http_request *request,
        struct http_call **ret_call, struct error *err);
void http_call_free(struct http_call *call);       // NULL ok; also one that is under way
void http_work(struct http *http, int timeout_ms); // waits so long for something to do, at most
bool http_call_ended(const struct http_call *call);
// Of one that has ended: the answer, whatever its status, NUL-terminated, the call's; or what went
// wrong: -ETIMEDOUT, -ECONNREFUSED, -EHOSTUNREACH (no such name), -EMSGSIZE, -EIO.
int http_call_answer(
        const struct http_call *call, long *ret_status, const char **ret_body, struct error *err);

// An address as it may be told in a log or a report: without user, password and query. New string.
char *http_url_plain(const char *url);

// A bearer token out of a file, without the line end. New string; -EINVAL for a file that holds
// none.
int http_token_read(const char *path, char **ret_token, struct error *err);

#endif
