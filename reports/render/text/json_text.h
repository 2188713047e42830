// SPDX-License-Identifier: Apache-2.0
// Values of the store in JSON documents; what is not known is null. All that is returned is a new
// reference.
#ifndef UPGATE_REPORTS_RENDER_JSON_TEXT_H
#define UPGATE_REPORTS_RENDER_JSON_TEXT_H

#include <jansson.h>
#include <stdint.h>

json_t *render_json_text(const char *text); // a broken byte of UTF-8, which JSON cannot hold,
                                            // becomes U+FFFD; null for NULL
json_t *render_json_take(char *text);       // the same; frees the text
json_t *render_json_real(double value);     // null unless finite
json_t *render_json_whole(double value);  // an integer of nanoseconds or bytes; null unless finite
json_t *render_json_count(int64_t value); // null below 0
json_t *render_json_pair(json_t *a, json_t *b); // [a, b]; takes both over

// An array of `value`, an expression of i, for each i in [0, count). i is a name that the macro
// makes, of type size_t.
#define render_json_list(i, count, value) \
    ({ \
        json_t *render_list = json_array(); \
        for (size_t i = 0; i < (count); i++) \
            json_array_append_new(render_list, (value)); \
        render_list; \
    })

// Members behind those that the object has, in this order, each a name and a json_t * that is taken
// over, up to NULL: render_json_set(item, "pairs", render_json_count(pairs), "note",
// render_json_text(note), NULL). Values are made in no order. Returns the object.
json_t *render_json_set(json_t *object, ...) __attribute__((sentinel));

#endif
