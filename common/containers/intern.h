// SPDX-License-Identifier: Apache-2.0
// Equal bytes get equal numbers, 0, 1, 2, …, and one copy that never moves, with a NUL behind it.
// Texts and fixed arrays of words alike; whoever needs a limit asks intern_find first. One owner
// thread.
#ifndef UPGATE_COMMON_CONTAINERS_INTERN_H
#define UPGATE_COMMON_CONTAINERS_INTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define INTERN_NONE UINT32_MAX

struct intern;

struct intern *intern_new(void);
void intern_free(struct intern *intern); // NULL ok
// INTERN_NONE: not there
uint32_t intern_find(const struct intern *intern, const void *bytes, size_t len);
// made when it is new: the count before it
uint32_t intern_number(struct intern *intern, const void *bytes, size_t len);
uint32_t intern_text(struct intern *intern, const char *text);
const char *intern_get(const struct intern *intern, uint32_t number); // aligned to 16 bytes
uint32_t intern_count(const struct intern *intern);
void intern_clear(struct intern *intern);

#endif
