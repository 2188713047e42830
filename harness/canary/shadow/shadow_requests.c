// SPDX-License-Identifier: Apache-2.0
// See shadow_requests.h. Reads one file.
#include "harness/canary/shadow/shadow_requests.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/containers/vector.h"
#include "common/strings.h"
#include "harness/canary/shadow/shadow.h"

static const size_t requests_method_max = 16, requests_path_max = 8192;

// methods NULL: GET and HEAD.
static bool shadow_request_allowed(const char *const *methods, const char *method)
{
    static const char *const safe[] = {"GET", "HEAD", NULL};
    for (methods = methods ? methods : safe; *methods; methods++)
        if (strcmp(*methods, method) == 0)
            return true;
    return false;
}

bool shadow_request_valid(const char *method, const char *path, size_t size)
{
    size_t letters = strspn(method, "ABCDEFGHIJKLMNOPQRSTUVWXYZ");
    if (letters == 0 || method[letters] || letters > requests_method_max || *path != '/' ||
            strlen(path) > requests_path_max || size > SHADOW_BODY_MAX)
        return false;
    for (const unsigned char *c = (const unsigned char *)path; *c; c++)
        if (*c <= ' ' || *c >= 127) // a blank or a line end would end the request line
            return false;
    return true;
}

void shadow_request_clear(struct shadow_request *request)
{
    free(request->method);
    free(request->path);
    free(request->body);
    *request = (struct shadow_request){0};
}

// A body is a text, or JSON that is sent as it stands.
static char *requests_body(const json_t *body, size_t *ret_size)
{
    *ret_size = 0;
    if (!body || json_is_null(body))
        return NULL;
    char *text = NULL;
    if (json_is_string(body)) {
        *ret_size = json_string_length(body);
        text = xcalloc(*ret_size + 1, 1);
        memcpy(text, json_string_value(body), *ret_size);
        return text;
    }
    text = json_dumps(body, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
    *ret_size = text ? strlen(text) : 0;
    return text;
}

static int requests_line(const char *path, size_t number, const char *line, size_t len,
        const char *const *methods, struct shadow_request **requests, size_t *count,
        struct error *err)
{
    json_error_t at;
    json_t *json = json_loadb(line, len, JSON_ALLOW_NUL, &at);
    const char *method = json_string_value(json_object_get(json, "method")),
               *target = json_string_value(json_object_get(json, "path"));
    struct shadow_request request = {0};
    int rc = 0;
    if (!json_is_object(json) || !method || !target)
        rc = error_set(err, -EINVAL,
                "%s:%zu: no request: %s; a line is {\"method\": \"POST\", \"path\": \"/score\", \"body\": {…}}",
                path, number, json ? "'method' or 'path' is missing" : at.text);
    if (rc == 0 && shadow_request_allowed(methods, method)) {
        request.body = requests_body(json_object_get(json, "body"), &request.size);
        if (!shadow_request_valid(method, target, request.size))
            rc = error_set(err, -EINVAL,
                    "%s:%zu: '%.20s %.60s' with %zu bytes is no request: capital letters, a path from '/' without blanks, %d bytes at most",
                    path, number, method, target, request.size, SHADOW_BODY_MAX);
        request.method = xstrdup(method);
        request.path = xstrdup(target);
        if (rc == 0)
            vector_push(*requests, *count, request);
        else
            shadow_request_clear(&request);
    }
    json_decref(json);
    return rc;
}

int shadow_requests_load(const char *path, const char *const *methods,
        struct shadow_request **ret_requests, size_t *ret_count, struct error *err)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return error_set(
                err, -EINVAL, "failed to read the requests '%s': %s", path, strerror(errno));
    struct shadow_request *requests = NULL;
    char *line = NULL;
    size_t room = 0, count = 0, number = 0;
    ssize_t len;
    int rc = 0;
    while (rc == 0 && count < SHADOW_REQUESTS_MAX && (len = getline(&line, &room, file)) >= 0) {
        number++;
        if (line[strspn(line, " \t\r\n")])
            rc = requests_line(path, number, line, (size_t)len, methods, &requests, &count, err);
    }
    if (rc == 0 && ferror(file))
        rc = error_set(err, -EIO, "failed to read the requests '%s': %s", path, strerror(errno));
    if (rc == 0 && count == 0)
        rc = error_set(err, -EINVAL,
                "'%s' holds no request that may be sent twice: %zu lines, none of a method that the plan allows",
                path, number);
    free(line);
    fclose(file);
    if (rc) {
        for (size_t i = 0; i < count; i++)
            shadow_request_clear(&requests[i]);
        free(requests);
        return rc;
    }
    *ret_requests = requests;
    *ret_count = count;
    return 0;
}
