// SPDX-License-Identifier: Apache-2.0
// A scanner of one flat JSON object. No memory, no state but the place.
#include "harness/canary/sources/json_flat.h"

#include <math.h>
#include <string.h>

enum { JSON_FLAT_DEPTH_MAX = 16, TEXT_DIGITS_MAX = 18 }; // 10^18 fits into 63 bits

static void json_flat_space(struct json_flat *json)
{
    while (json->at < json->end &&
            (*json->at == ' ' || *json->at == '\t' || *json->at == '\r' || *json->at == '\n'))
        json->at++;
}

static bool json_flat_fail(struct json_flat *json)
{
    json->bad = true;
    json->at = json->end;
    return false;
}

static bool json_flat_char(struct json_flat *json, char wanted)
{
    json_flat_space(json);
    if (json->at == json->end || *json->at != wanted)
        return false;
    json->at++;
    return true;
}

// At the opening quote. Line ends and the like cannot stand in a string.
static bool json_flat_string(struct json_flat *json, struct text *ret)
{
    const char *from = ++json->at;
    for (; json->at < json->end && *json->at != '"'; json->at++) {
        if ((unsigned char)*json->at < ' ')
            return false;
        if (*json->at == '\\' && ++json->at == json->end)
            return false;
    }
    if (json->at == json->end)
        return false;
    *ret = (struct text){from, (size_t)(json->at++ - from)};
    return true;
}

// At the opening bracket.
static bool json_flat_nested(struct json_flat *json, struct text *ret)
{
    char open[JSON_FLAT_DEPTH_MAX];
    int depth = 0;
    const char *from = json->at;
    struct text inner;
    while (json->at < json->end) {
        char c = *json->at;
        if (c == '"') {
            if (!json_flat_string(json, &inner))
                return false;
            continue;
        }
        if (c == '{' || c == '[') {
            if (depth == JSON_FLAT_DEPTH_MAX)
                return false;
            open[depth++] = c == '{' ? '}' : ']';
        } else if ((c == '}' || c == ']') && open[--depth] != c) {
            return false;
        }
        json->at++;
        if (depth == 0) {
            *ret = (struct text){from, (size_t)(json->at - from)};
            return true;
        }
    }
    return false;
}

// A number, true, false or null.
static bool json_flat_word(struct json_flat *json, struct json_member *member)
{
    const char *from = json->at;
    while (json->at < json->end && !strchr(" \t\r\n,:{}[]\"", *json->at))
        json->at++;
    member->value = (struct text){from, (size_t)(json->at - from)};
    double number;
    member->kind = text_is(member->value, "true") ? JSON_FLAT_TRUE
            : text_is(member->value, "false")     ? JSON_FLAT_FALSE
            : text_is(member->value, "null")      ? JSON_FLAT_NULL
                                                  : JSON_FLAT_NUMBER;
    return member->kind != JSON_FLAT_NUMBER || text_number(member->value, &number);
}

static bool json_flat_value(struct json_flat *json, struct json_member *member)
{
    json_flat_space(json);
    if (json->at == json->end)
        return false;
    switch (*json->at) {
    case '"':
        member->kind = JSON_FLAT_STRING;
        return json_flat_string(json, &member->value);
    case '{':
    case '[':
        member->kind = JSON_FLAT_NESTED;
        return json_flat_nested(json, &member->value);
    default:
        return json_flat_word(json, member);
    }
}

void json_flat_begin(struct json_flat *json, const char *line, size_t len)
{
    *json = (struct json_flat){.at = line, .end = line + len, .first = true};
    if (!json_flat_char(json, '{'))
        json_flat_fail(json);
}

bool json_flat_next(struct json_flat *json, struct json_member *ret)
{
    if (json->bad || json->closed)
        return false;
    if (json_flat_char(json, '}')) {
        json_flat_space(json);
        json->closed = json->at == json->end;
        return json->closed ? false : json_flat_fail(json);
    }
    if (!json->first && !json_flat_char(json, ','))
        return json_flat_fail(json);
    json->first = false;
    json_flat_space(json);
    if (json->at == json->end || *json->at != '"' || !json_flat_string(json, &ret->key) ||
            !json_flat_char(json, ':') || !json_flat_value(json, ret))
        return json_flat_fail(json);
    return true;
}

bool text_is(struct text text, const char *word)
{
    size_t len = strlen(word);
    return text.len == len && memcmp(text.at, word, len) == 0;
}

bool text_integer(struct text text, int64_t *ret)
{
    const char *at = text.at, *end = text.at + text.len;
    bool minus = at < end && *at == '-';
    if (at < end && (*at == '-' || *at == '+'))
        at++;
    if (at == end || end - at > TEXT_DIGITS_MAX)
        return false;
    int64_t value = 0;
    for (; at < end; at++) {
        if (*at < '0' || *at > '9')
            return false;
        value = value * 10 + (*at - '0');
    }
    *ret = minus ? -value : value;
    return true;
}

// Digits as a whole number below 10^18, which a division rounds once; digits beyond are passed
// over. Returns where they end; *exponent: what was passed over before and taken behind the point.
static const char *text_digits(
        const char *at, const char *end, bool behind, uint64_t *value, int *count, int *exponent)
{
    for (; at < end && *at >= '0' && *at <= '9'; at++) {
        bool fits = *value < 100000000000000000u; // 10^17
        if (fits)
            *value = *value * 10 + (uint64_t)(*at - '0');
        *exponent += behind ? (fits ? -1 : 0) : (fits ? 0 : 1);
        *count += 1;
    }
    return at;
}

bool text_number(struct text text, double *ret)
{
    const char *at = text.at, *end = text.at + text.len;
    bool minus = at < end && *at == '-';
    if (at < end && (*at == '-' || *at == '+'))
        at++;
    uint64_t value = 0;
    int count = 0, exponent = 0;
    at = text_digits(at, end, false, &value, &count, &exponent);
    if (at < end && *at == '.')
        at = text_digits(at + 1, end, true, &value, &count, &exponent);
    if (!count || text.len > 400) // longer than any double
        return false;
    if (at < end && (*at == 'e' || *at == 'E')) {
        int64_t more;
        if (!text_integer((struct text){at + 1, (size_t)(end - at - 1)}, &more) || more > 400 ||
                more < -400)
            return false;
        exponent += (int)more;
        at = end;
    }
    if (at != end)
        return false;
    double number = exponent < 0 && exponent >= -22 ? (double)value / pow(10, -exponent)
                                                    : (double)value * pow(10, exponent);
    if (!isfinite(number))
        return false;
    *ret = minus ? -number : number;
    return true;
}
