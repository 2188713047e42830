// SPDX-License-Identifier: Apache-2.0
// Are two answers to one request the same? JSON by structure: numbers of one field (all elements of
// an array together) by the root mean square of their difference in units of the baseline's own, as
// reports/analyse/parity.h; everything else must be equal. What is not JSON must be equal byte by
// byte. Pure.
#ifndef UPGATE_HARNESS_CANARY_SHADOW_PARITY_H
#define UPGATE_HARNESS_CANARY_SHADOW_PARITY_H

#include <stdbool.h>
#include <stddef.h>

struct shadow_answer {
    long status;
    const char *body;
    size_t size;
};

struct shadow_rule {
    double limit;              // of the distance: parity_spread_limit()
    const char *const *ignore; // names of members; NULL-terminated or NULL
    // ".meta.time", "[]" for any element: not compared; NULL-terminated or NULL
    const char *const *paths;
};

struct shadow_compared {
    bool equal;
    bool nan[2];     // has bare NaN or Infinity, which JSON does not know
    double distance; // largest of all fields; NAN: not compared by numbers
    char *what; // "status 200 and 404", ".scores differs by 0.12"; NULL: equal. The caller frees
    char *path; // of the field that differs, NULL: none. The caller frees
};

void shadow_compare(const struct shadow_answer *baseline, const struct shadow_answer *candidate,
        const struct shadow_rule *rule, struct shadow_compared *ret_compared);
void shadow_compared_clear(struct shadow_compared *compared);

#endif
