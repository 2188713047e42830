// SPDX-License-Identifier: Apache-2.0
// One JSON object on a line, member by member, in place: for lines that come 2,000 times a second
// and more. Strings are given as they are spelt, escapes included; members that are objects or
// arrays are passed over. Foreign bytes: nothing behind the line is read.
//
// Not jansson: a line of HAProxy's log takes 1.0 us here and 3.0 us there, one of a JSON source 0.3
// and 1.2 us (ci/bench/json_lines). At 2,000 a second that is 0.4 % of a core, of the 2 % that a
// controller may take, and names point into the line.
#ifndef UPGATE_HARNESS_CANARY_SOURCES_JSON_FLAT_H
#define UPGATE_HARNESS_CANARY_SOURCES_JSON_FLAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct text { // not terminated
    const char *at;
    size_t len;
};

enum json_kind {
    JSON_FLAT_STRING,
    JSON_FLAT_NUMBER,
    JSON_FLAT_TRUE,
    JSON_FLAT_FALSE,
    JSON_FLAT_NULL,
    JSON_FLAT_NESTED
};

struct json_flat {
    const char *at, *end;
    bool first, closed, bad;
};

struct json_member {
    struct text key, value; // of strings: without the quotes
    enum json_kind kind;
};

// with white space around the object or none
void json_flat_begin(struct json_flat *json, const char *line, size_t len);
// False: no more; `bad` tells an object that is none, that is not closed or that has something
// behind it.
bool json_flat_next(struct json_flat *json, struct json_member *ret);

bool text_is(struct text text, const char *word);
// Whole texts, of digits with a sign ("-1", "+12"), and, for the second, with a fraction and an
// exponent. False: anything else, and what does not fit.
bool text_integer(struct text text, int64_t *ret);
bool text_number(struct text text, double *ret); // finite

#endif
