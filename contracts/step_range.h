// SPDX-License-Identifier: Apache-2.0
// The text by which a range of NVTX is named, as Nsight Systems' --nvtx-capture has it: "NAME" of
// the default domain, "NAME@DOMAIN", "NAME@*" of any. A '*' at the end of NAME stands for the rest.
// "\@", "\*" and "\\" are these characters themselves. Read by the harness, which says what is
// wrong with it, and in the program by the library that looks for it. Pure, no allocation.
#ifndef UPGATE_CONTRACTS_STEP_RANGE_H
#define UPGATE_CONTRACTS_STEP_RANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define UG_RANGE_RULE "nvtx:"
#define UG_GRAPH_RULE "graph"
#define UG_RANGE_BYTES 128u // of a name or a domain, with its NUL

struct step_range {
    char name[UG_RANGE_BYTES], domain[UG_RANGE_BYTES]; // domain "": the default one
    size_t name_bytes;
    bool is_prefix, is_any_domain;
};

// Copies up to `end` without the backslashes. False: empty, or too long.
static inline bool step_range_copy(
        char to[UG_RANGE_BYTES], const char *from, const char *end, size_t *ret_bytes)
{
    size_t bytes = 0;

    for (; from < end; from++) {
        if (*from == '\\' && from + 1 < end && strchr("@*\\", from[1]) != NULL)
            from++;
        if (bytes == UG_RANGE_BYTES - 1)
            return false;
        to[bytes++] = *from;
    }
    to[bytes] = '\0';
    *ret_bytes = bytes;
    return bytes > 0;
}

// What stands behind "nvtx:". NULL, or what is wrong with it.
static inline const char *step_range_parse(const char *text, struct step_range *ret)
{
    // the last character, unless it is escaped
    const char *at = NULL, *end = text, *last = NULL, *last_of_name = NULL;
    size_t bytes = 0;
    struct step_range range;

    memset(&range, 0, sizeof(range));
    for (; *end != '\0'; end++) {
        if (*end == '@') {
            at = end;
            last_of_name = last;
        }
        last = end;
        if (*end == '\\' && end[1] != '\0') {
            end++;
            last = NULL;
        }
    }
    if (at != NULL) {
        range.is_any_domain = strcmp(at, "@*") == 0;
        if (!range.is_any_domain && !step_range_copy(range.domain, at + 1, end, &bytes))
            return at[1] == '\0' ? "no domain behind '@'" : "a domain of more than 127 bytes";
        end = at;
        last = last_of_name;
    }
    range.is_prefix = last != NULL && *last == '*';
    if (end - text == (range.is_prefix ? 1 : 0))
        return "no name";
    if (!step_range_copy(range.name, text, range.is_prefix ? last : end, &range.name_bytes))
        return "a name of more than 127 bytes";
    *ret = range;
    return NULL;
}

static inline bool step_range_matches_name(const struct step_range *range, const char *name)
{
    return range->is_prefix ? strncmp(name, range->name, range->name_bytes) == 0
                            : strcmp(name, range->name) == 0;
}

// domain NULL: the default one.
static inline bool step_range_matches_domain(const struct step_range *range, const char *domain)
{
    return range->is_any_domain || strcmp(domain == NULL ? "" : domain, range->domain) == 0;
}

#endif
