// SPDX-License-Identifier: Apache-2.0
// The one sort that takes no memory beside the array: qsort(3) of glibc 2.36 copies all of it. A
// heap sort, so that no order of the items makes it slow; equal ones come in any order. x and y are
// names that the macro makes, const pointers to items; `before` is an expression of them: x has to
// come before y.
//     sort_in_place(list->items, list->count, x, y, x->at < y->at);
#ifndef UPGATE_COMMON_CONTAINERS_SORT_H
#define UPGATE_COMMON_CONTAINERS_SORT_H

#include <stdbool.h>
#include <stddef.h>

#define sort_in_place(items, count, x, y, before) \
    do { \
        __typeof__(*(items)) *sort_items = (items), sort_moved; \
        size_t sort_count = (count), sort_root = sort_count / 2, sort_at, sort_child; \
        while (sort_count > 1) { \
            if (sort_root) { /* the heap is built, from its last parent to the first */ \
                sort_moved = sort_items[--sort_root]; \
            } else { /* the last of all goes to the end */ \
                sort_moved = sort_items[--sort_count]; \
                sort_items[sort_count] = sort_items[0]; \
            } \
            for (sort_at = sort_root; (sort_child = 2 * sort_at + 1) < sort_count; \
                    sort_at = sort_child) { \
                bool sort_is_before; \
                if (sort_child + 1 < sort_count) { \
                    const __typeof__(*(items)) *x = &sort_items[sort_child], *y = x + 1; \
                    sort_child += (before) ? 1 : 0; \
                } \
                { \
                    const __typeof__(*(items)) *x = &sort_moved, *y = &sort_items[sort_child]; \
                    sort_is_before = (before); \
                } \
                if (!sort_is_before) \
                    break; \
                sort_items[sort_at] = sort_items[sort_child]; \
            } \
            sort_items[sort_at] = sort_moved; \
        } \
    } while (0)

#endif
