// SPDX-License-Identifier: Apache-2.0
// The target of a request ("/v1/gate/x?stage=2") and the body of a form, taken apart. Strict: what
// is not well-formed is refused, nothing is guessed. Pure.
#ifndef UPGATE_HARNESS_CANARY_SERVE_TARGET_H
#define UPGATE_HARNESS_CANARY_SERVE_TARGET_H

#include <stddef.h>

enum { TARGET_BYTES_MAX = 4096, TARGET_PARTS_MAX = 8, TARGET_PAIRS_MAX = 16 };

struct target_pair {
    const char *key, *value;
};

struct target {
    char text[TARGET_BYTES_MAX + 1];     // what the pointers point into
    const char *parts[TARGET_PARTS_MAX]; // of the path between its slashes, decoded; a part may be
                                         // empty
    int part_count;
    struct target_pair pairs[TARGET_PAIRS_MAX]; // of the query, or of a form; in their order
    int pair_count;
};

// 0, -EINVAL (not a path, a broken %XX, a NUL, a control character), -E2BIG (longer, or more of it,
// than is taken).
int target_parse(const char *text, size_t len, struct target *ret);
// A form's body: pairs only. The same errors.
int target_parse_form(const char *text, size_t len, struct target *ret);
// The value of the only pair of this key; NULL: none. *ret_twice (NULL ok): there is more than one.
const char *target_get(const struct target *target, const char *key, int *ret_twice);

#endif
