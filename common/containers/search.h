// SPDX-License-Identifier: Apache-2.0
// The one binary search: the first i of [0, count) for which `holds`, an expression of i, is true,
// or count. It must be false for all before that i and true from there on. i is a name that the
// macro makes, of type size_t.
//     size_t at = search_first(i, trace->row_count, trace->rows[i].begin >= when);
#ifndef UPGATE_COMMON_CONTAINERS_SEARCH_H
#define UPGATE_COMMON_CONTAINERS_SEARCH_H

#include <stddef.h>

#define search_first(i, count, holds) search_between(i, 0, count, holds)

// The same in [from, to); none: to.
#define search_between(i, from, to, holds) \
    ({ \
        size_t search_low = (from), search_high = (to); \
        while (search_low < search_high) { \
            size_t i = search_low + (search_high - search_low) / 2; \
            if (holds) \
                search_high = i; \
            else \
                search_low = i + 1; \
        } \
        search_low; \
    })

// The one bisection of numbers: `holds`, an expression of x, is false at *out and true at *in, and
// changes once between them. Both close in on that place, until they are neighbours or `steps`
// halvings have been made. `out` and `in` are variables.
#define search_narrow(x, out, in, steps, holds) \
    do { \
        for (int search_step = 0; search_step < (steps); search_step++) { \
            double x = 0.5 * ((out) + (in)); \
            if (x == (out) || x == (in)) \
                break; \
            if (holds) \
                (in) = x; \
            else \
                (out) = x; \
        } \
    } while (0)

#endif
