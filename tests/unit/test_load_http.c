// SPDX-License-Identifier: Apache-2.0
// The parser of answers: every kind of body, cut at every byte, and what is not HTTP.
#include <stdlib.h>

#include "reference_models/load/http.h"
#include "tests/unit/runner.h"

static struct http_parser parser;

static enum http_result feed(const char *text, size_t len, size_t *ret_used)
{
    http_next(&parser);
    return http_feed(&parser, text, len, ret_used);
}

// Whole, and in two pieces cut at every place: always the same answer.
static void whole(const char *text, size_t len, int status, const char *body, bool keep_alive)
{
    for (size_t cut = 0; cut <= len; cut++) {
        size_t used = 0, more = 0;
        http_next(&parser);
        enum http_result result = http_feed(&parser, text, cut, &used);
        if (cut < len) {
            CHECK_INT(result, HTTP_MORE);
            CHECK_INT(used, cut);
            // A copy of its own size: a read behind its end is found by the sanitizer.
            char *rest = malloc(len - cut);
            memcpy(rest, text + cut, len - cut);
            result = http_feed(&parser, rest, len - cut, &more);
            free(rest);
        }
        CHECK_INT(result, HTTP_DONE);
        CHECK_INT(used + more, len);
        CHECK_INT(parser.status, status);
        CHECK_INT(parser.size, strlen(body));
        CHECK(memcmp(parser.body ? parser.body : "", body, strlen(body)) == 0);
        CHECK_INT(parser.keep_alive, keep_alive);
    }
}
#define WHOLE(text, status, body, keep) whole(text, sizeof(text) - 1, status, body, keep)

TEST(bodies_of_every_kind)
{
    http_init(&parser);
    WHOLE("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 200, "hello", true);
    WHOLE("HTTP/1.1 200\nContent-Length:5\n\nhello", 200, "hello", true);
    WHOLE("HTTP/1.1 503 Busy\r\nconnection: Close\r\nCONTENT-LENGTH: 0\r\n\r\n", 503, "", false);
    WHOLE("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=1\r\nhel\r\n2\r\nlo\r\n0\r\n"
          "Trailer: x\r\n\r\n",
            200, "hello", true);
    WHOLE("HTTP/1.1 204 No Content\r\n\r\n", 204, "", true);
    WHOLE("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", 200, "ok",
            true);
    WHOLE("HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", 200, "ok", false);
    WHOLE("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok", 200, "ok",
            true);
    http_free(&parser);
}

TEST(the_side_is_read_and_cut_to_fit)
{
    size_t used;
    http_init(&parser);
    static const char side[] =
            "HTTP/1.1 200 OK\r\nX-Upgate-Side:  new \r\nContent-Length: 0\r\n\r\n";
    CHECK_INT(feed(side, sizeof side - 1, &used), HTTP_DONE);
    CHECK_STR(parser.side, "new");
    static const char longer[] = "HTTP/1.1 200 OK\r\nx-upgate-side: "
                                 "0123456789012345678901234567890123456789\r\n"
                                 "Content-Length: 0\r\n\r\n";
    CHECK_INT(feed(longer, sizeof longer - 1, &used), HTTP_DONE);
    CHECK_STR(parser.side, "0123456789012345678901234567890");
    http_free(&parser);
}

TEST(what_follows_an_answer_is_left)
{
    size_t used;
    http_init(&parser);
    static const char two[] = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK";
    CHECK_INT(feed(two, sizeof two - 1, &used), HTTP_DONE);
    CHECK_INT(used, sizeof two - 1 - strlen("HTTP/1.1 200 OK"));
    http_free(&parser);
}

TEST(the_end_of_the_connection)
{
    size_t used;
    http_init(&parser);
    static const char open[] = "HTTP/1.1 200 OK\r\n\r\nto the end";
    CHECK_INT(feed(open, sizeof open - 1, &used), HTTP_MORE);
    CHECK_INT(http_eof(&parser), HTTP_DONE);
    CHECK_INT(parser.size, strlen("to the end"));
    CHECK(!parser.keep_alive);
    static const char cut[] = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nto th";
    CHECK_INT(feed(cut, sizeof cut - 1, &used), HTTP_MORE);
    CHECK_INT(http_eof(&parser), HTTP_MORE);
    CHECK(parser.begun);
    static const char chunks[] =
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n";
    CHECK_INT(feed(chunks, sizeof chunks - 1, &used), HTTP_MORE);
    CHECK_INT(http_eof(&parser), HTTP_MORE);
    http_next(&parser);
    CHECK(!parser.begun);
    CHECK_INT(http_eof(&parser), HTTP_MORE);
    http_free(&parser);
}

TEST(what_is_not_http_is_refused)
{
    static const char *const bad[] = {
            "HTTP/2 200 OK\r\n\r\n",
            "HTTP/1.1 20 OK\r\n\r\n",
            "HTTP/1.1 2000 OK\r\n\r\n",
            "HTTP/1.1 099 OK\r\n\r\n",
            "SSH-2.0-OpenSSH\r\n",
            "\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 1x\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: \r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 1048577\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
            "HTTP/1.1 200 OK\r\n folded: x\r\n\r\n",
            "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffff\r\n",
    };
    http_init(&parser);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        size_t used;
        CHECK_INT(feed(bad[i], strlen(bad[i]), &used), HTTP_BAD);
        CHECK(parser.why && parser.why[0]);
    }
    size_t used;
    static const char nul[] = "HTTP/1.1 200 OK\r\nx: \0y\r\n\r\n";
    CHECK_INT(feed(nul, sizeof nul - 1, &used), HTTP_BAD);
    http_free(&parser);
}

TEST(without_end_is_refused)
{
    http_init(&parser);
    size_t used;
    enum http_result result = feed("HTTP/1.1 200 OK\r\nx: ", 20, &used);
    int fed = 0;
    for (; result == HTTP_MORE && fed < 20000; fed++)
        result = http_feed(&parser, "y", 1, &used);
    CHECK_INT(result, HTTP_BAD);
    CHECK(fed < (int)HTTP_LINE_MAX);
    result = feed("HTTP/1.1 200 OK\r\n", 17, &used);
    for (fed = 0; result == HTTP_MORE && fed < 1000; fed++)
        result = http_feed(&parser, "a: b\r\n", 6, &used);
    CHECK_INT(result, HTTP_BAD);
    static char block[65536];
    result = feed("HTTP/1.1 200 OK\r\n\r\n", 19, &used);
    for (fed = 0; result == HTTP_MORE && fed < 100; fed++)
        result = http_feed(&parser, block, sizeof block, &used);
    CHECK_INT(result, HTTP_BAD);
    CHECK_INT(fed, 17);
    http_free(&parser);
}

// Random bytes of an alphabet that gets far: the sanitizer watches.
TEST(any_bytes_end_in_words)
{
    static const char *const words[] = {"HTTP/1.1 ", "200", " OK", "\r\n", "\n",
            "Content-Length: ", "Transfer-Encoding: chunked", "5", "0", "hello", ":", " ",
            "x-upgate-side: a", "Connection: close"};
    http_init(&parser);
    srand(1);
    int ends[3] = {0};
    for (int round = 0; round < 20000; round++) {
        http_next(&parser);
        enum http_result result = HTTP_MORE;
        size_t used;
        result = http_feed(&parser, "HTTP/1.1 200 OK\r\n", 17, &used);
        for (int i = 0; i < 30 && result == HTTP_MORE; i++) {
            const char *word = words[(size_t)rand() % (sizeof words / sizeof *words)];
            result = http_feed(&parser, word, strlen(word), &used);
            CHECK(used <= strlen(word));
        }
        ends[result]++;
    }
    CHECK(ends[HTTP_DONE] > 0 && ends[HTTP_BAD] > 0 && ends[HTTP_MORE] > 0);
    http_free(&parser);
}
