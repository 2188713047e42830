// SPDX-License-Identifier: Apache-2.0
// Takes request targets and forms apart; RFC 3986 and the form encoding of the URL standard, as far
// as the answers need them.
#include "harness/canary/serve/target.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

static int hex(char digit)
{
    return digit >= '0' && digit <= '9'    ? digit - '0'
            : digit >= 'a' && digit <= 'f' ? digit - 'a' + 10
            : digit >= 'A' && digit <= 'F' ? digit - 'A' + 10
                                           : -1;
}

// In place: decoded text is never longer. A part of a path, a key or a value.
static int decode(char *text, bool plus)
{
    char *to = text;
    for (const char *at = text; *at; at++, to++) {
        if (*at == '%') {
            int high = hex(at[1]), low = high < 0 ? -1 : hex(at[2]);
            if (low < 0 || high * 16 + low < ' ' || high * 16 + low == 0x7f)
                return -EINVAL;
            *to = (char)(high * 16 + low);
            at += 2;
        } else {
            *to = plus && *at == '+' ? ' ' : *at;
        }
    }
    *to = 0;
    return 0;
}

static int take_pairs(char *text, struct target *ret)
{
    for (char *next, *at = text; at; at = next) {
        next = strchr(at, '&');
        if (next)
            *next++ = 0;
        if (!*at)
            continue;
        if (ret->pair_count == TARGET_PAIRS_MAX)
            return -E2BIG;
        char *value = strchr(at, '=');
        if (value)
            *value++ = 0;
        struct target_pair *pair = &ret->pairs[ret->pair_count++];
        pair->key = at;
        pair->value = value ? value : "";
        if (decode(at, true) || (value && decode(value, true)))
            return -EINVAL;
    }
    return 0;
}

static int take_text(const char *text, size_t len, struct target *ret)
{
    ret->part_count = ret->pair_count = 0;
    if (len > TARGET_BYTES_MAX)
        return -E2BIG;
    memcpy(ret->text, text, len);
    ret->text[len] = 0;
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)ret->text[i] < ' ' || ret->text[i] == 0x7f)
            return -EINVAL;
    return 0;
}

int target_parse(const char *text, size_t len, struct target *ret)
{
    int rc = take_text(text, len, ret);
    if (rc)
        return rc;
    if (ret->text[0] != '/' || strchr(ret->text, '#'))
        return -EINVAL;
    char *query = strchr(ret->text, '?');
    if (query)
        *query++ = 0;
    for (char *next, *at = ret->text + 1; at; at = next) {
        next = strchr(at, '/');
        if (next)
            *next++ = 0;
        if (ret->part_count == TARGET_PARTS_MAX)
            return -E2BIG;
        if (decode(at, false))
            return -EINVAL;
        ret->parts[ret->part_count++] = at;
    }
    return query ? take_pairs(query, ret) : 0;
}

int target_parse_form(const char *text, size_t len, struct target *ret)
{
    int rc = take_text(text, len, ret);
    return rc ? rc : take_pairs(ret->text, ret);
}

const char *target_get(const struct target *target, const char *key, int *ret_twice)
{
    const char *value = NULL;
    int count = 0;
    for (int i = 0; i < target->pair_count; i++)
        if (strcmp(target->pairs[i].key, key) == 0 && count++ == 0)
            value = target->pairs[i].value;
    if (ret_twice)
        *ret_twice = count > 1;
    return value;
}
