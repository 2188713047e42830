// SPDX-License-Identifier: Apache-2.0
// Names of places, which hold paths and numbers of layers, of libraries, which hold versions, and
// how alike two names are. Pure functions.
#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reports/analyse/names/names.h"
#include "reports/analyse/names/names_words.h"

// What is left of a path when where it is installed is taken away.
static const char *place_path(const char *place)
{
    static const char *const roots[] = {"/site-packages/", "/dist-packages/"};
    const char *best = NULL;
    for (size_t i = 0; i < sizeof roots / sizeof *roots; i++)
        for (const char *at = strstr(place, roots[i]); at; at = strstr(at + 1, roots[i]))
            best = at + strlen(roots[i]) > best ? at + strlen(roots[i]) : best;
    if (best)
        return best;
    for (const char *at = strstr(place, "/lib/python"); at; at = strstr(at + 1, "/lib/python")) {
        const char *slash = strchr(at + strlen("/lib/python"), '/');
        if (slash && slash[1])
            return slash + 1;
    }
    if (*place != '/')
        return place;
    const char *last = strrchr(place, '/'), *before = last; // of a checkout: its last two parts
    while (before > place && before[-1] != '/')
        before--;
    return before > place ? before : last + 1;
}

static bool place_bound(char c)
{
    return !c || strchr(".:/ []()#=,", c);
}

size_t names_place(const char *place, char *buf, size_t buf_size)
{
    if (!buf_size)
        return 0;
    size_t size = buf_size < NAMES_LENGTH_MAX ? buf_size : NAMES_LENGTH_MAX;
    struct names_out out = {.text = buf, .max = size - 1};
    const char *at = place_path(place);
    for (char before = 0; *at; before = at[-1]) {
        size_t digits = 0, hex = 0;
        while (isdigit((unsigned char)at[digits]))
            digits++;
        if (place_bound(before) && digits && place_bound(at[digits])) {
            names_put(&out, "*", 1);
            at += digits;
            continue;
        }
        if (at[0] == '0' && at[1] == 'x')
            for (hex = 2; isxdigit((unsigned char)at[hex]);)
                hex++;
        if (hex > 4) {
            names_put(&out, "*", 1);
            at += hex;
            continue;
        }
        names_put(&out, at++, 1);
    }
    names_end(&out, true);
    return out.len;
}

// "-2.31", "3.11", "-r0.3.21" at the end: digits with a dot between them. "libc10" is a name.
static size_t library_cut_version(const char *name, size_t len)
{
    size_t at = len;
    bool dot = false;
    while (at > 0 && (strchr("0123456789.", name[at - 1]))) {
        at--;
        dot |= name[at] == '.' && at + 1 < len;
    }
    while (at < len && name[at] == '.')
        at++;
    if (!dot || at == 0 || at == len)
        return len;
    if (at > 2 && name[at - 1] == 'r' && strchr("-p", name[at - 2]))
        at--;
    return at > 1 && name[at - 1] == '-' ? at - 1 : at;
}

// "-a34b3233" at the end: what a wheel's builder adds to the libraries that it takes with it.
static size_t library_cut_hash(const char *name, size_t len)
{
    enum { DIGITS = 8 };
    size_t digits = strspn(name + (len > DIGITS ? len - DIGITS : len), "0123456789abcdef");
    bool hash = len > DIGITS + 1 && digits >= DIGITS && name[len - DIGITS - 1] == '-';
    return hash ? len - DIGITS - 1 : len;
}

size_t names_library(const char *name, char *buf, size_t buf_size)
{
    const char *so = strstr(name, ".so"), *python = strstr(name, ".cpython-");
    while (so && so[3] && so[3] != '.')
        so = strstr(so + 1, ".so");
    size_t len = !so ? strlen(name) : (size_t)((python && python < so ? python : so) - name);
    if (so && len > 5 && memcmp(name + len - 5, ".abi3", 5) == 0)
        len -= 5;
    len = library_cut_version(name, so ? library_cut_hash(name, len) : len);
    len = len < NAMES_LENGTH_MAX ? len : NAMES_LENGTH_MAX;
    int written = snprintf(buf, buf_size, "%.*s%s", (int)len, name, so ? ".so" : "");
    return written < 0 || !buf_size      ? 0
            : (size_t)written < buf_size ? (size_t)written
                                         : buf_size - 1;
}

static int words_by_hash(const void *left, const void *right)
{
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return (a > b) - (a < b);
}

static bool words_hump(const char *name, size_t at) // "FillFunctor" is two words
{
    return at && isupper((unsigned char)name[at]) && islower((unsigned char)name[at - 1]);
}

size_t names_words(const char *name, uint32_t *ret, size_t max)
{
    size_t count = 0;
    for (size_t at = 0; name[at] && count < max;) {
        if (!isalnum((unsigned char)name[at]) && (unsigned char)name[at] < 0x80) {
            at++;
            continue;
        }
        uint32_t hash = 2166136261u;
        size_t from = at;
        while ((isalnum((unsigned char)name[at]) || (unsigned char)name[at] >= 0x80) &&
                (at == from || !words_hump(name, at)))
            hash = (hash ^ (uint32_t)tolower((unsigned char)name[at++])) * 16777619u;
        ret[count++] = hash;
    }
    qsort(ret, count, sizeof *ret, words_by_hash);
    return count;
}

double names_words_similarity(const uint32_t *a, size_t count_a, const uint32_t *b, size_t count_b)
{
    size_t i = 0, k = 0, shared = 0;
    while (i < count_a && k < count_b) {
        if (a[i] == b[k])
            shared++, i++, k++;
        else if (a[i] < b[k])
            i++;
        else
            k++;
    }
    return count_a + count_b ? 2.0 * (double)shared / (double)(count_a + count_b) : 1;
}

double names_similarity(const char *a, const char *b)
{
    enum { WORDS = 128 };
    uint32_t words_a[WORDS], words_b[WORDS];
    return names_words_similarity(
            words_a, names_words(a, words_a, WORDS), words_b, names_words(b, words_b, WORDS));
}

size_t names_label(const char *name, char *buf, size_t buf_size, size_t max)
{
    char own[NAMES_LENGTH_MAX];
    if (names_operator_of(name, own, sizeof own))
        return names_short(own, buf, buf_size, max);
    size_t len = names_short(name, buf, buf_size, max);
    // "cutlass::Kernel2" is the name of them all: what its template is of tells which.
    const char *inner = strncmp(buf, "cutlass::Kernel", 15) == 0 ? strchr(name, '<') : NULL;
    if (!inner)
        return len;
    size_t size = strcspn(inner + 1, "<>,(");
    snprintf(own, sizeof own, "%.*s", (int)(size < sizeof own ? size : sizeof own - 1), inner + 1);
    return names_short(own, buf, buf_size, max);
}
