// SPDX-License-Identifier: Apache-2.0
// The parser of answers, a state for each part of one. Lines end with LF or CR LF.
#include "reference_models/load/http.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/strings.h"

void http_init(struct http_parser *parser)
{
    memset(parser, 0, sizeof *parser);
    http_next(parser);
}

void http_next(struct http_parser *parser)
{
    parser->status = 0;
    parser->keep_alive = true;
    parser->side[0] = '\0';
    parser->size = 0;
    parser->why = NULL;
    parser->begun = parser->chunked = parser->has_length = parser->old = false;
    parser->at = HTTP_AT_STATUS;
    parser->left = 0;
    parser->line_len = 0;
    parser->lines = 0;
}

void http_free(struct http_parser *parser)
{
    free(parser->body);
    parser->body = NULL;
}

static enum http_result http_bad(struct http_parser *parser, const char *why)
{
    parser->why = why;
    return HTTP_BAD;
}

static enum http_result http_status_line(struct http_parser *parser, const char *line)
{
    bool known = strncmp(line, "HTTP/1.", 7) == 0 && (line[7] == '0' || line[7] == '1') &&
            line[8] == ' ' && isdigit((unsigned char)line[9]) && isdigit((unsigned char)line[10]) &&
            isdigit((unsigned char)line[11]) && (line[12] == ' ' || line[12] == '\0');
    if (!known)
        return http_bad(parser, "the status line is not HTTP/1");
    parser->old = line[7] == '0';
    parser->keep_alive = !parser->old;
    parser->status = (line[9] - '0') * 100 + (line[10] - '0') * 10 + (line[11] - '0');
    if (parser->status < 100)
        return http_bad(parser, "the status is below 100");
    parser->at = HTTP_AT_HEADER;
    return HTTP_MORE;
}

// The value of the header if the line is that header; NULL if not.
static const char *http_value(const char *line, const char *name)
{
    size_t len = strlen(name);
    if (strncasecmp(line, name, len) != 0 || line[len] != ':')
        return NULL;
    return line + len + 1 + strspn(line + len + 1, " \t");
}

static bool http_has_word(const char *value, const char *word)
{
    size_t len = strlen(word);
    while (*value) {
        value += strspn(value, " \t,");
        size_t part = strcspn(value, " \t,");
        if (part == len && strncasecmp(value, word, len) == 0)
            return true;
        value += part;
    }
    return false;
}

static enum http_result http_length(struct http_parser *parser, const char *value)
{
    size_t digits = strspn(value, "0123456789");
    if (digits == 0 || digits > 18 || value[digits + strspn(value + digits, " \t")])
        return http_bad(parser, "Content-Length is not a number");
    uint64_t length = strtoull(value, NULL, 10);
    if (parser->has_length && parser->left != length)
        return http_bad(parser, "two lengths of one body");
    if (length > HTTP_BODY_MAX)
        return http_bad(parser, "the body is longer than 1 MiB");
    parser->has_length = true;
    parser->left = length;
    return HTTP_MORE;
}

static enum http_result http_header(struct http_parser *parser, const char *line)
{
    if (line[0] == ' ' || line[0] == '\t' || line[0] == ':' || !strchr(line, ':'))
        return http_bad(parser, "a header line without a name");
    const char *value;
    if ((value = http_value(line, "Content-Length")))
        return http_length(parser, value);
    if ((value = http_value(line, "Transfer-Encoding"))) {
        if (!http_has_word(value, "chunked"))
            return http_bad(parser, "a transfer encoding that is not chunked");
        parser->chunked = true;
    } else if ((value = http_value(line, "Connection"))) {
        if (http_has_word(value, "close"))
            parser->keep_alive = false;
        else if (parser->old && http_has_word(value, "keep-alive"))
            parser->keep_alive = true;
    } else if ((value = http_value(line, "x-upgate-side"))) {
        size_t len = strcspn(value, " \t");
        len = len < HTTP_SIDE_MAX ? len : HTTP_SIDE_MAX - 1;
        memcpy(parser->side, value, len);
        parser->side[len] = '\0';
    }
    return HTTP_MORE;
}

static enum http_result http_done(struct http_parser *parser)
{
    parser->at = HTTP_AT_DONE;
    return HTTP_DONE;
}

// The empty line behind the headers: where the body begins, and how it ends.
static enum http_result http_headers_end(struct http_parser *parser)
{
    if (parser->status < 200) { // 100 Continue: the answer proper follows
        bool begun = parser->begun;
        http_next(parser);
        parser->begun = begun;
        return HTTP_MORE;
    }
    if (parser->chunked && parser->has_length)
        return http_bad(parser, "a length and chunks for one body");
    if (parser->status == 204 || parser->status == 304)
        return http_done(parser);
    if (parser->chunked) {
        parser->at = HTTP_AT_CHUNK_SIZE;
        return HTTP_MORE;
    }
    if (parser->has_length) {
        parser->at = HTTP_AT_BODY;
        return parser->left ? HTTP_MORE : http_done(parser);
    }
    parser->keep_alive = false;
    parser->at = HTTP_AT_BODY_END;
    return HTTP_MORE;
}

static enum http_result http_chunk_size(struct http_parser *parser, const char *line)
{
    size_t digits = strspn(line, "0123456789abcdefABCDEF");
    char after = line[digits];
    if (digits == 0 || digits > 8 || (after && !strchr("; \t", after)))
        return http_bad(parser, "the size of a chunk is not a number");
    parser->left = strtoull(line, NULL, 16);
    parser->at = parser->left ? HTTP_AT_CHUNK : HTTP_AT_TRAILER;
    return HTTP_MORE;
}

static enum http_result http_line(struct http_parser *parser, const char *line)
{
    if (++parser->lines > HTTP_LINES_MAX && parser->at != HTTP_AT_CHUNK_SIZE &&
            parser->at != HTTP_AT_CHUNK_END)
        return http_bad(parser, "too many header lines");
    switch (parser->at) {
    case HTTP_AT_STATUS:
        return http_status_line(parser, line);
    case HTTP_AT_HEADER:
        return line[0] ? http_header(parser, line) : http_headers_end(parser);
    case HTTP_AT_CHUNK_SIZE:
        return http_chunk_size(parser, line);
    case HTTP_AT_CHUNK_END:
        if (line[0])
            return http_bad(parser, "a chunk is longer than its size");
        parser->at = HTTP_AT_CHUNK_SIZE;
        return HTTP_MORE;
    default: // a trailer
        return line[0] ? HTTP_MORE : http_done(parser);
    }
}

// Collects a line; *used grows.
static enum http_result http_feed_line(
        struct http_parser *parser, const char *bytes, size_t len, size_t *used)
{
    const char *end = memchr(bytes + *used, '\n', len - *used);
    size_t more = end ? (size_t)(end - bytes) - *used : len - *used;
    if (parser->line_len + more >= HTTP_LINE_MAX)
        return http_bad(parser, "a line is longer than 8 KiB");
    memcpy(parser->line + parser->line_len, bytes + *used, more);
    parser->line_len += more;
    *used += more + (end != NULL);
    if (!end)
        return HTTP_MORE;
    if (parser->line_len && parser->line[parser->line_len - 1] == '\r')
        parser->line_len--;
    parser->line[parser->line_len] = '\0';
    bool whole = strlen(parser->line) == parser->line_len;
    parser->line_len = 0;
    return whole ? http_line(parser, parser->line) : http_bad(parser, "a NUL in a header");
}

static enum http_result http_feed_body(
        struct http_parser *parser, const char *bytes, size_t len, size_t *used)
{
    size_t more = len - *used;
    if (parser->at != HTTP_AT_BODY_END && more > parser->left)
        more = (size_t)parser->left;
    if (parser->size + more > HTTP_BODY_MAX)
        return http_bad(parser, "the body is longer than 1 MiB");
    if (parser->size + more > parser->room) {
        parser->room = 2 * (parser->size + more);
        parser->body = xrealloc(parser->body, parser->room);
    }
    memcpy(parser->body + parser->size, bytes + *used, more);
    parser->size += more;
    *used += more;
    if (parser->at == HTTP_AT_BODY_END)
        return HTTP_MORE;
    parser->left -= more;
    if (parser->left)
        return HTTP_MORE;
    if (parser->at == HTTP_AT_BODY)
        return http_done(parser);
    parser->at = HTTP_AT_CHUNK_END;
    return HTTP_MORE;
}

enum http_result http_feed(
        struct http_parser *parser, const char *bytes, size_t len, size_t *ret_used)
{
    enum http_result result = HTTP_MORE;
    size_t used = 0;
    if (len)
        parser->begun = true;
    while (result == HTTP_MORE && used < len) {
        bool body = parser->at == HTTP_AT_BODY || parser->at == HTTP_AT_BODY_END ||
                parser->at == HTTP_AT_CHUNK;
        result = body ? http_feed_body(parser, bytes, len, &used)
                      : http_feed_line(parser, bytes, len, &used);
    }
    *ret_used = used;
    return result;
}

enum http_result http_eof(struct http_parser *parser)
{
    parser->keep_alive = false;
    return parser->at == HTTP_AT_BODY_END ? http_done(parser) : HTTP_MORE;
}
