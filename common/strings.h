// SPDX-License-Identifier: Apache-2.0
// Strings of the tool (never of the injected library): allocation that dies in words, a growing
// buffer, nearest-word search for error messages. The caller frees what is returned.
#ifndef UPGATE_COMMON_STRINGS_H
#define UPGATE_COMMON_STRINGS_H

#include <stdarg.h>
#include <stddef.h>

void *xcalloc(size_t count, size_t size);
void *xrealloc(void *old, size_t size);
char *xstrdup(const char *text);
char *xasprintf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
char *xvasprintf(const char *fmt, va_list args) __attribute__((format(printf, 1, 0)));

// A growing text. `= {0}` is empty; text is NULL until the first append. Free with strbuf_free.
struct strbuf {
    char *text;
    size_t len;
    size_t capacity;
};
void strbuf_add(struct strbuf *buf, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void strbuf_add_bytes(struct strbuf *buf, const void *bytes, size_t len);
void strbuf_free(struct strbuf *buf);
// the text, now the caller's ("" if empty); buf is empty again
char *strbuf_take(struct strbuf *buf);

// The word nearest to `word` (Damerau-Levenshtein, at most a third of its length + 1), or NULL.
const char *string_nearest(const char *word, const char *const *words, size_t count);

// Make len bytes of somebody else's text valid UTF-8, in place: each byte that is not part of a
// whole character, and each NUL, becomes '?'.
void string_make_utf8(char *text, size_t len);

// The same, and what moves a terminal's cursor, colours it or turns its text around becomes '?',
// too: control characters but the line end, and those that change the direction.
void string_make_plain(char *text, size_t len);

// The last part of a path, behind its last slash.
const char *string_base_name(const char *path);
// What a path lies in, with the slash; "." for a name alone. The caller frees.
char *string_folder(const char *path);

// Whole file or stream into a new string, NUL-terminated; NULL with errno on failure. max in bytes;
// a longer file is cut.
char *string_read_file(const char *path, size_t max, size_t *ret_len);

#endif
