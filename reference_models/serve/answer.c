// SPDX-License-Identifier: Apache-2.0
// Answers for libmicrohttpd. One that is cut says its whole length and sends half.
#include "reference_models/serve/answer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"

static ssize_t answer_half(void *cls, uint64_t at, char *buf, size_t max)
{
    const char *body = cls;
    size_t half = strlen(body) / 2;
    if (at >= half)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    size_t count = half - (size_t)at < max ? half - (size_t)at : max;
    memcpy(buf, body + at, count);
    return (ssize_t)count;
}

enum MHD_Result answer_queue(
        struct MHD_Connection *connection, struct answer *answer, struct answer_counts *counts)
{
    size_t size = strlen(answer->body);
    struct MHD_Response *response = answer->cut
            ? MHD_create_response_from_callback(size, 1024, answer_half, answer->body, free)
            : MHD_create_response_from_buffer(size, answer->body, MHD_RESPMEM_MUST_FREE);
    if (!response) {
        free(answer->body);
        return MHD_NO;
    }
    MHD_add_response_header(response, "Content-Type", "application/json");
    MHD_add_response_header(response, "x-upgate-side", answer->side);
    if (answer->wrong)
        MHD_add_response_header(response, "x-upgate-wrong", "1");
    if (answer->close)
        MHD_add_response_header(response, "Connection", "close");
    if (answer->status == 405)
        MHD_add_response_header(response, "Allow", "GET, POST");
    counts->of[answer->status < ANSWER_CODES_MAX ? answer->status : 0]++;
    enum MHD_Result result = MHD_queue_response(connection, (unsigned)answer->status, response);
    MHD_destroy_response(response);
    return result;
}

char *answer_counts_json(const struct answer_counts *counts)
{
    struct strbuf text = {0};
    for (int code = 0; code < ANSWER_CODES_MAX; code++) {
        if (counts->of[code])
            strbuf_add(&text, "%s\"%d\":%" PRIu64, text.len ? "," : "{", code, counts->of[code]);
    }
    strbuf_add(&text, "%s}", text.len ? "" : "{");
    return strbuf_take(&text);
}
