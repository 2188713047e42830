// SPDX-License-Identifier: Apache-2.0
// Between the parts of the alignment of sequences: what is known of a kernel in its sequence, and anchors of long ones.
#ifndef UPGATE_DIFF_ALIGN_ORDER_H
#define UPGATE_DIFF_ALIGN_ORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct order_item {
    uint32_t leaf, exact, normal, learned, shape, dense;
    float ns;
    uint8_t kind;
};

// A kernel that can be told on both sides.
struct order_anchor {
    uint32_t a, b, back; // back: the one before it in the longest run
};

struct order_keyed {
    uint64_t key;
    uint32_t at;
};

// By key; equal ones stay in their order.
void order_sort(struct order_keyed *keys, size_t count);

enum { ORDER_LEVELS = 3 }; // of what counts as equal: name and shape, normalised name and shape, name

// Keys that occur once on each side; or, with equal, as often on both sides (the k-th is the k-th then). By a; the number of them.
size_t order_unique(const struct order_item *a, size_t n, const struct order_item *b, size_t m, int level, bool equal,
                    struct order_anchor *anchors);
// The longest run of anchors that rise on both sides, in place; its length.
size_t order_rising(struct order_anchor *anchors, size_t count);

#endif
