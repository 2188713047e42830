// SPDX-License-Identifier: Apache-2.0
// The one binary search: the first i of [0, count) for which `holds`, an expression of i, is true, or count. It must be false
// for all before that i and true from there on. i is a name that the macro makes, of type size_t.
//     size_t at = search_first(i, trace->row_count, trace->rows[i].begin >= when);
#ifndef UPGATE_COMMON_SEARCH_H
#define UPGATE_COMMON_SEARCH_H

#include <stddef.h>

#define search_first(i, count, holds) search_between(i, 0, count, holds)

// The same in [from, to); none: to.
#define search_between(i, from, to, holds)                  \
    ({                                                      \
        size_t search_low = (from), search_high = (to);     \
        while (search_low < search_high) {                  \
            size_t i = search_low + (search_high - search_low) / 2; \
            if (holds)                                      \
                search_high = i;                            \
            else                                            \
                search_low = i + 1;                         \
        }                                                   \
        search_low;                                         \
    })

#endif
