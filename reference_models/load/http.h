// SPDX-License-Identifier: Apache-2.0
// Answers of an HTTP/1.1 server, read as the bytes come: status line, the headers that matter here,
// the body by length, in chunks, or until the connection ends. Reads bytes of strangers: what is
// not HTTP, or too long, is HTTP_BAD.
#ifndef UPGATE_LOAD_HTTP_H
#define UPGATE_LOAD_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HTTP_LINE_MAX ((size_t)8192)
#define HTTP_LINES_MAX 200
#define HTTP_BODY_MAX ((size_t)1 << 20)
#define HTTP_SIDE_MAX 32

enum http_result {
    HTTP_MORE, // the answer is not whole yet
    HTTP_DONE, // it is; bytes behind it were not used
    HTTP_BAD   // `why` says what is wrong; nothing more can be read from this connection
};

enum http_at {
    HTTP_AT_STATUS,
    HTTP_AT_HEADER,
    HTTP_AT_BODY,
    HTTP_AT_BODY_END, // of unknown length
    HTTP_AT_CHUNK_SIZE,
    HTTP_AT_CHUNK,
    HTTP_AT_CHUNK_END,
    HTTP_AT_TRAILER,
    HTTP_AT_DONE
};

struct http_parser {
    // Of the answer, known when HTTP_DONE.
    int status;
    bool keep_alive;          // the connection can carry another request
    char side[HTTP_SIDE_MAX]; // header x-upgate-side, cut to fit; "" without it
    char *body;               // size bytes; belongs to the parser
    size_t size;
    const char *why; // HTTP_BAD
    bool begun;      // a byte of the answer has come
    // Within.
    enum http_at at;
    bool chunked, has_length, old; // old: HTTP/1.0
    uint64_t left;                 // bytes of the body or of the chunk
    size_t room, line_len;
    int lines;
    char line[HTTP_LINE_MAX];
};

void http_init(struct http_parser *parser); // once
void http_next(struct http_parser *parser); // before each answer; keeps the memory of the body
void http_free(struct http_parser *parser);

enum http_result http_feed(
        struct http_parser *parser, const char *bytes, size_t len, size_t *ret_used);
// The peer has closed: HTTP_DONE for a body of unknown length, HTTP_MORE where something is
// missing.
enum http_result http_eof(struct http_parser *parser);

#endif
