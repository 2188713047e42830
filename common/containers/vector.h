// SPDX-License-Identifier: Apache-2.0
// Arrays that grow. An array is its pointer and its count, two members of whoever owns it; room for
// the next item is made where the count says that the last room is full (at 0, 8, 16, 32, …), so
// that no capacity is kept. Memory that is missing ends the program in words, as xrealloc does.
// What grew by these macros grows by nothing else, and is freed with free().
#ifndef UPGATE_COMMON_CONTAINERS_VECTOR_H
#define UPGATE_COMMON_CONTAINERS_VECTOR_H

#include <stddef.h>

enum { VECTOR_FIRST = 8 }; // items; a power of two

void *vector_grow(void *items, size_t count, size_t item_bytes);
// Room for `want` items, by doubling: for arrays that take many at once, or that are emptied and
// filled again.
void *vector_reserve(void *items, size_t *capacity, size_t want, size_t item_bytes);

// The same, and what is new is zeroed: for arrays by number.
void *vector_reserve_zero(void *items, size_t *capacity, size_t want, size_t item_bytes);

// Room for one more behind `count`: for several arrays of one count.
static inline void *vector_room(void *items, size_t count, size_t item_bytes)
{
    return count && (count < VECTOR_FIRST || (count & (count - 1)))
            ? items
            : vector_grow(items, count, item_bytes);
}

// One item at the end: vector_push(list->items, list->count, (struct item){.at = at}); the item is
// made first. Array and count are asked several times.
#define vector_push(items, count, ...) \
    do { \
        __typeof__(*(items)) vector_item = __VA_ARGS__; \
        (items) = vector_room((items), (size_t)(count), sizeof *(items)); \
        (items)[(count)++] = vector_item; \
    } while (0)

// A pointer to the new last item, zeroed. For an initialisation, struct item *item = vector_add(…),
// and nothing else: what stands beside it in an expression may see the count of before or after.
#define vector_add(items, count) \
    ((items) = vector_room((items), (size_t)(count), sizeof *(items)), \
            (items)[(count)] = (__typeof__(*(items))){0}, &(items)[(count)++])

#endif
