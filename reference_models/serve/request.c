// SPDX-License-Identifier: Apache-2.0
// JSON of requests and answers. Reads bytes of strangers; touches no socket.
#include "reference_models/serve/request.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"

static int request_take_id(struct score_request *request, const json_t *id, struct error *err)
{
    if (!json_is_string(id) && !json_is_integer(id))
        return error_set(err, -EINVAL, "'id' is missing, or neither a string nor a whole number");
    char *text = json_dumps(id, JSON_ENCODE_ANY | JSON_COMPACT);
    if (!text)
        return error_set(err, -EINVAL, "'id' cannot be written back as JSON");
    size_t len = strlen(text);
    if (len <= REQUEST_ID_MAX)
        memcpy(request->id, text, len + 1);
    free(text);
    if (len > REQUEST_ID_MAX)
        return error_set(err, -EINVAL, "'id' is longer than %zu bytes", REQUEST_ID_MAX);
    return 0;
}

static int request_take_features(
        struct score_request *request, const json_t *features, struct error *err)
{
    size_t count = json_array_size(features); // 0 where it is no array
    if (count == 0 || count > REQUEST_VALUES_MAX)
        return error_set(err, -EINVAL, "'features' is missing, or no array of 1 to %zu numbers",
                REQUEST_VALUES_MAX);
    double *values = xcalloc(count, sizeof *values);
    for (size_t i = 0; i < count; i++) {
        const json_t *value = json_array_get(features, i);
        if (!json_is_number(value)) {
            free(values);
            return error_set(err, -EINVAL, "features[%zu] is not a number", i);
        }
        values[i] = json_number_value(value);
    }
    request->values = values;
    request->count = count;
    return 0;
}

int request_parse(struct score_request *request, const char *body, size_t size, struct error *err)
{
    json_error_t where;
    json_t *root = json_loadb(body, size, JSON_REJECT_DUPLICATES, &where);
    if (!root)
        return error_set(err, -EINVAL, "the body is not JSON: line %d, column %d: %s", where.line,
                where.column, where.text);
    int rc = request_take_id(request, json_object_get(root, "id"), err);
    if (!rc)
        rc = request_take_features(request, json_object_get(root, "features"), err);
    json_decref(root);
    return rc;
}

void request_clear(struct score_request *request)
{
    free(request->values);
    request->values = NULL;
    request->count = 0;
}

bool request_wrong(const struct score_request *request)
{
    return request->status == 200 && !isfinite(request->score);
}

static char *request_refusal(const struct score_request *request)
{
    json_t *text = json_string(request->text);
    char *quoted = text ? json_dumps(text, JSON_ENCODE_ANY) : NULL;
    char *body = xasprintf("{\"id\":%s,\"error\":%s}", request->id[0] ? request->id : "null",
            quoted ? quoted : "null");
    json_decref(text);
    free(quoted);
    return body;
}

char *request_answer(const struct score_request *request)
{
    if (request->status != 200)
        return request_refusal(request);
    if (!isfinite(request->score))
        return xasprintf(
                "{\"id\":%s,\"scores\":[null],\"model\":\"%s\"}", request->id, request->model);
    return xasprintf("{\"id\":%s,\"scores\":[%.9g],\"model\":\"%s\"}", request->id, request->score,
            request->model);
}
