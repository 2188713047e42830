// SPDX-License-Identifier: Apache-2.0
// Anchors: kernels that can be told on both sides because they are the only ones of their kind there. Those that keep their order
// cut a long sequence into short ones.
#include "reports/analyse/diff/align_order.h"

#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "reports/analyse/diff/align_inside.h"

// What a level takes for equal when it looks for anchors.
static uint64_t order_key(const struct order_item *item, int level)
{
    uint64_t name = level == 0 ? item->exact : level == 1 ? item->normal : item->exact;
    if (name == COST_NONE)
        return UINT64_MAX;
    return level < 2 ? name << 32 | item->shape : name << 32 | item->kind;
}

struct order_keyed {
    uint64_t key;
    uint32_t at;
};

static int order_by_key(const void *left, const void *right)
{
    const struct order_keyed *a = left, *b = right;
    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    return (a->at > b->at) - (a->at < b->at);
}

static struct order_keyed *order_keys(const struct order_item *items, size_t count, int level)
{
    struct order_keyed *keys = xcalloc(count + 1, sizeof *keys);
    for (size_t i = 0; i < count; i++)
        keys[i] = (struct order_keyed){order_key(&items[i], level), (uint32_t)i};
    qsort(keys, count, sizeof *keys, order_by_key);
    return keys;
}

static int order_by_a(const void *left, const void *right)
{
    const struct order_anchor *a = left, *b = right;
    return (a->a > b->a) - (a->a < b->a);
}

size_t order_unique(const struct order_item *a, size_t n, const struct order_item *b, size_t m, int level, bool equal,
                           struct order_anchor *anchors)
{
    struct order_keyed *keys_a = order_keys(a, n, level), *keys_b = order_keys(b, m, level);
    size_t count = 0;
    for (size_t i = 0, k = 0; i < n && k < m;) {
        size_t end_a = i + 1, end_b = k + 1;
        while (end_a < n && keys_a[end_a].key == keys_a[i].key)
            end_a++;
        while (end_b < m && keys_b[end_b].key == keys_b[k].key)
            end_b++;
        if (keys_a[i].key != keys_b[k].key) {
            if (keys_a[i].key < keys_b[k].key)
                i = end_a;
            else
                k = end_b;
            continue;
        }
        bool same = end_a - i == end_b - k && (equal || end_a - i == 1);
        for (size_t x = 0; same && keys_a[i].key != UINT64_MAX && x < end_a - i; x++)
            anchors[count++] = (struct order_anchor){keys_a[i + x].at, keys_b[k + x].at, COST_NONE};
        i = end_a;
        k = end_b;
    }
    free(keys_a);
    free(keys_b);
    qsort(anchors, count, sizeof *anchors, order_by_a);
    return count;
}

size_t order_rising(struct order_anchor *anchors, size_t count)
{
    uint32_t *last = xcalloc(count + 1, sizeof *last), *run = xcalloc(count + 1, sizeof *run);
    size_t length = 0;
    for (size_t i = 0; i < count; i++) {
        size_t low = 0, high = length;
        while (low < high) {
            size_t middle = (low + high) / 2;
            if (anchors[last[middle]].b < anchors[i].b)
                low = middle + 1;
            else
                high = middle;
        }
        anchors[i].back = low ? last[low - 1] : COST_NONE;
        last[low] = (uint32_t)i;
        length = low == length ? length + 1 : length;
    }
    for (size_t i = length, at = length ? last[length - 1] : 0; i-- > 0; at = anchors[at].back)
        run[i] = (uint32_t)at;
    for (size_t i = 0; i < length; i++)
        anchors[i] = anchors[run[i]];
    free(last);
    free(run);
    return length;
}
