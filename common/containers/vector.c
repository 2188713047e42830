// SPDX-License-Identifier: Apache-2.0
// The slow half of arrays that grow.
#include "common/containers/vector.h"

#include <stdint.h>
#include <string.h>

#include "common/strings.h"

static void *vector_resize(void *items, size_t count, size_t item_bytes)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, item_bytes, &bytes))
        bytes = SIZE_MAX; // dies in words
    return xrealloc(items, bytes);
}

void *vector_grow(void *items, size_t count, size_t item_bytes)
{
    return vector_resize(items, count ? count * 2 : VECTOR_FIRST, item_bytes);
}

void *vector_reserve(void *items, size_t *capacity, size_t want, size_t item_bytes)
{
    if (want <= *capacity)
        return items;
    size_t twice = *capacity < VECTOR_FIRST / 2 ? VECTOR_FIRST : *capacity * 2;
    *capacity = want > twice ? want : twice;
    return vector_resize(items, *capacity, item_bytes);
}

void *vector_reserve_zero(void *items, size_t *capacity, size_t want, size_t item_bytes)
{
    size_t old = *capacity;
    items = vector_reserve(items, capacity, want, item_bytes);
    if (*capacity > old)
        memset((char *)items + old * item_bytes, 0, (*capacity - old) * item_bytes);
    return items;
}
