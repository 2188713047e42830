// SPDX-License-Identifier: Apache-2.0
// Strings of the tool. Out of memory ends the program: nothing sensible can follow, and the store
// is safe because only committed transactions count.
#include "common/strings.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *string_check(void *memory)
{
    if (memory)
        return memory;
    fputs("upgate: error: out of memory\n", stderr);
    _exit(4);
}

void *xcalloc(size_t count, size_t size)
{
    return string_check(calloc(count ? count : 1, size ? size : 1));
}

void *xrealloc(void *old, size_t size)
{
    return string_check(realloc(old, size ? size : 1));
}

char *xstrdup(const char *text)
{
    return string_check(strdup(text));
}

char *xvasprintf(const char *fmt, va_list args)
{
    char *text = NULL;
    int len = vasprintf(&text, fmt, args);
    return string_check(len < 0 ? NULL : text);
}

char *xasprintf(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    char *text = xvasprintf(fmt, args);
    va_end(args);
    return text;
}

static void strbuf_reserve(struct strbuf *buf, size_t extra)
{
    if (buf->len + extra + 1 <= buf->capacity)
        return;
    size_t capacity = buf->capacity ? buf->capacity : 256;
    while (capacity < buf->len + extra + 1)
        capacity *= 2;
    buf->text = xrealloc(buf->text, capacity);
    buf->capacity = capacity;
}

void strbuf_add_bytes(struct strbuf *buf, const void *bytes, size_t len)
{
    strbuf_reserve(buf, len);
    if (len)
        memcpy(buf->text + buf->len, bytes, len);
    buf->len += len;
    buf->text[buf->len] = 0;
}

void strbuf_add(struct strbuf *buf, const char *fmt, ...)
{
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int len = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (len >= 0) { // an empty text is a text, too
        strbuf_reserve(buf, (size_t)len);
        vsnprintf(buf->text + buf->len, (size_t)len + 1, fmt, again);
        buf->len += (size_t)len;
    }
    va_end(again);
}

void strbuf_free(struct strbuf *buf)
{
    free(buf->text);
    *buf = (struct strbuf){0};
}

char *strbuf_take(struct strbuf *buf)
{
    char *text = buf->text ? buf->text : xstrdup("");
    *buf = (struct strbuf){0};
    return text;
}

// Optimal string alignment distance; words longer than 63 are never near.
static size_t string_distance(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b);
    if (n > 63 || m > 63)
        return SIZE_MAX;
    unsigned char d[64][64];
    for (size_t i = 0; i <= n; i++)
        d[i][0] = (unsigned char)i;
    for (size_t j = 0; j <= m; j++)
        d[0][j] = (unsigned char)j;
    for (size_t i = 1; i <= n; i++) {
        for (size_t j = 1; j <= m; j++) {
            unsigned best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            if (d[i - 1][j] + 1u < best)
                best = d[i - 1][j] + 1u;
            if (d[i][j - 1] + 1u < best)
                best = d[i][j - 1] + 1u;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                    d[i - 2][j - 2] + 1u < best)
                best = d[i - 2][j - 2] + 1u;
            d[i][j] = (unsigned char)best;
        }
    }
    return d[n][m];
}

const char *string_nearest(const char *word, const char *const *words, size_t count)
{
    const char *nearest = NULL;
    size_t limit = strlen(word) / 3 + 1;
    for (size_t i = 0; i < count; i++) {
        size_t distance = string_distance(word, words[i]);
        if (distance <= limit) {
            nearest = words[i];
            limit = distance ? distance - 1 : 0;
            if (distance == 0)
                break;
        }
    }
    return nearest;
}

const char *string_base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

char *string_folder(const char *path)
{
    int len = (int)(string_base_name(path) - path);
    return len ? xasprintf("%.*s", len, path) : xstrdup(".");
}

char *string_read_file(const char *path, size_t max, size_t *ret_len)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    struct strbuf buf = {0};
    char chunk[16384];
    while (buf.len < max) {
        ssize_t got = read(fd, chunk, sizeof chunk);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            int saved = errno;
            close(fd);
            strbuf_free(&buf);
            errno = saved;
            return NULL;
        }
        if (got == 0)
            break;
        size_t room = max - buf.len;
        strbuf_add_bytes(&buf, chunk, (size_t)got < room ? (size_t)got : room);
    }
    close(fd);
    if (ret_len)
        *ret_len = buf.len;
    return strbuf_take(&buf);
}

// Length of the whole character at the start, by RFC 3629 (no surrogates, nothing overlong, nothing
// above U+10FFFF); 0 = none.
static size_t string_utf8_length(const unsigned char *text, size_t left)
{
    unsigned char first = text[0], low = 0x80, high = 0xbf;
    size_t len = first < 0x80 ? 1
            : first < 0xc2    ? 0
            : first < 0xe0    ? 2
            : first < 0xf0    ? 3
            : first < 0xf5    ? 4
                              : 0;
    if (first == 0 || len == 0 || len > left)
        return 0;
    if (first == 0xe0)
        low = 0xa0;
    else if (first == 0xed)
        high = 0x9f;
    else if (first == 0xf0)
        low = 0x90;
    else if (first == 0xf4)
        high = 0x8f;
    for (size_t i = 1; i < len; i++, low = 0x80, high = 0xbf)
        if (text[i] < low || text[i] > high)
            return 0;
    return len;
}

// C0, DEL, C1, and the marks, embeddings and isolates that reorder the text around them; s has
// `len` valid bytes.
static bool string_harmful(const unsigned char *s, size_t len)
{
    if (len == 1)
        return (s[0] < 0x20 && s[0] != '\n') || s[0] == 0x7f;
    if (len == 2)
        return (s[0] == 0xc2 && s[1] < 0xa0) || (s[0] == 0xd8 && s[1] == 0x9c);
    if (len == 3 && s[0] == 0xe2)
        return (s[1] == 0x80 && (s[2] == 0x8e || s[2] == 0x8f || (s[2] >= 0xa8 && s[2] <= 0xae))) ||
                (s[1] == 0x81 && s[2] >= 0xa0 && s[2] <= 0xaf);
    return false;
}

void string_make_plain(char *text, size_t len)
{
    string_make_utf8(text, len);
    for (size_t at = 0, whole; at < len; at += whole) {
        whole = string_utf8_length((const unsigned char *)text + at, len - at);
        if (string_harmful((const unsigned char *)text + at, whole))
            memset(text + at, '?', whole);
    }
}

void string_make_utf8(char *text, size_t len)
{
    for (size_t at = 0; at < len;) {
        size_t whole = string_utf8_length((const unsigned char *)text + at, len - at);
        if (!whole)
            text[at] = '?';
        at += whole ? whole : 1;
    }
}
