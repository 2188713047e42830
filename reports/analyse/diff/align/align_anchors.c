// SPDX-License-Identifier: Apache-2.0
// Anchors: kernels that can be told on both sides because they are the only ones of their kind
// there. Those that keep their order cut a long sequence into short ones.
#include "reports/analyse/diff/align/align_order.h"

#include <stdlib.h>
#include <string.h>

#include "common/containers/search.h"
#include "common/strings.h"
#include "reports/analyse/diff/align/align_inside.h"

// What a level takes for equal when it looks for anchors.
static uint64_t order_key(const struct order_item *item, int level)
{
    uint64_t name = level == 0 ? item->exact : level == 1 ? item->normal : item->exact;
    if (name == COST_NONE)
        return UINT64_MAX;
    return level < 2 ? name << 32 | item->shape : name << 32 | item->kind;
}

enum { SORT_FEW = 32, DIGITS = 8, DIGIT_VALUES = 256 }; // fewer: comparing is quicker than counting

// Byte by byte, the lowest first, without those that are the same in all keys: of numbers of names
// and shapes that is half of them. Names that were scrambled on one side made comparing a third of
// the time.
void order_sort(struct order_keyed *keys, size_t count)
{
    if (count < SORT_FEW) {
        for (size_t i = 0; i < count; i++)
            for (size_t k = i; k > 0 && keys[k - 1].key > keys[k].key; k--) {
                struct order_keyed swap = keys[k];
                keys[k] = keys[k - 1];
                keys[k - 1] = swap;
            }
        return;
    }
    struct order_keyed *from = keys, *to = xcalloc(count, sizeof *to), *other = to;
    size_t(*counts)[DIGIT_VALUES] = xcalloc(DIGITS, sizeof *counts);
    for (size_t i = 0; i < count; i++)
        for (int d = 0; d < DIGITS; d++)
            counts[d][keys[i].key >> 8 * d & 0xff]++;
    for (int d = 0; d < DIGITS; d++) {
        if (counts[d][keys[0].key >> 8 * d & 0xff] == count)
            continue;
        for (size_t value = 0, first = 0; value < DIGIT_VALUES; value++) {
            size_t many = counts[d][value];
            counts[d][value] = first;
            first += many;
        }
        for (size_t i = 0; i < count; i++)
            to[counts[d][from[i].key >> 8 * d & 0xff]++] = from[i];
        struct order_keyed *swap = from;
        from = to;
        to = swap;
    }
    if (from != keys)
        memcpy(keys, from, count * sizeof *keys);
    free(counts);
    free(other);
}

static struct order_keyed *order_keys(const struct order_item *items, size_t count, int level)
{
    struct order_keyed *keys = xcalloc(count + 1, sizeof *keys);
    for (size_t i = 0; i < count; i++)
        keys[i] = (struct order_keyed){order_key(&items[i], level), (uint32_t)i};
    order_sort(keys, count);
    return keys;
}

// By a, of which there are n and none is there twice.
static void order_by_a(struct order_anchor *anchors, size_t count, size_t n)
{
    uint32_t *partner = xcalloc(n + 1, sizeof *partner); // plus 1
    for (size_t i = 0; i < count; i++)
        partner[anchors[i].a] = anchors[i].b + 1;
    for (size_t a = 0, at = 0; a < n && at < count; a++)
        if (partner[a])
            anchors[at++] = (struct order_anchor){(uint32_t)a, partner[a] - 1, COST_NONE};
    free(partner);
}

size_t order_unique(const struct order_item *a, size_t n, const struct order_item *b, size_t m,
        int level, bool equal, struct order_anchor *anchors)
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
    order_by_a(anchors, count, n);
    return count;
}

size_t order_rising(struct order_anchor *anchors, size_t count)
{
    uint32_t *last = xcalloc(count + 1, sizeof *last), *run = xcalloc(count + 1, sizeof *run);
    size_t length = 0;
    for (size_t i = 0; i < count; i++) {
        size_t low = search_first(middle, length, anchors[last[middle]].b >= anchors[i].b);
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
