// SPDX-License-Identifier: Apache-2.0
// Lists of words that NULL ends: is a text one of them, does it begin with one, does it hold one?
#ifndef UPGATE_NAMES_WORDLISTS_H
#define UPGATE_NAMES_WORDLISTS_H

#include <stdbool.h>
#include <string.h>

static inline bool words_equal(const char *text, const char *const *words)
{
    while (*words && strcmp(text, *words) != 0)
        words++;
    return *words;
}

static inline bool words_begin(const char *text, const char *const *words)
{
    while (*words && strncmp(text, *words, strlen(*words)) != 0)
        words++;
    return *words;
}

static inline bool words_within(const char *text, const char *const *words)
{
    while (*words && !strstr(text, *words))
        words++;
    return *words;
}

#endif
