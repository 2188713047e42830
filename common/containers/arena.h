// SPDX-License-Identifier: Apache-2.0
// Memory that is freed at once: strings and arrays of one analysis. Nothing is given back before
// arena_free. One owner thread; allocation that fails ends the program in words, as xcalloc does.
#ifndef UPGATE_COMMON_CONTAINERS_ARENA_H
#define UPGATE_COMMON_CONTAINERS_ARENA_H

#include <stddef.h>

struct arena;

struct arena *arena_new(void);
void arena_free(struct arena *arena);                              // NULL ok
void *arena_alloc(struct arena *arena, size_t count, size_t size); // zeroed
char *arena_copy(struct arena *arena, const char *text);           // NULL gives NULL
// The same of somebody else's text, made valid UTF-8 (string_make_utf8).
char *arena_copy_utf8(struct arena *arena, const char *text);
char *arena_print(struct arena *arena, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
