// SPDX-License-Identifier: Apache-2.0
// Between the parts of the alignment of sequences: what is known of a kernel in its sequence, what
// makes two the same, and anchors of long ones.
#ifndef UPGATE_DIFF_ALIGN_ORDER_H
#define UPGATE_DIFF_ALIGN_ORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "reports/analyse/diff/align/align_inside.h"

struct order_item {
    uint32_t leaf, exact, normal, learned, shape, dense;
    float ns;
    float usual; // of all of its name and shape the shortest execution; 0: not asked
    uint8_t kind;
};

// What is known of the names of a stretch's kernels.
struct order_kin {
    float *similar; // of dense numbers of normalised names; NULL: too many
    // generated code and a kernel of one of the operators in its name; NULL: too many
    bool *operators;
    uint32_t dense_b;
    bool gathered; // the stretch is of many places of one side: see align_gather.c
};

// A kernel that can be told on both sides.
struct order_anchor {
    uint32_t a, b, back; // back: the one before it in the longest run
};

struct order_keyed {
    uint64_t key;
    uint32_t at;
};

void order_kin_fill(struct order_kin *kin, struct align_job *job, struct order_item *a, size_t n,
        struct order_item *b, size_t m);
void order_kin_free(struct order_kin *kin);
void order_usual(const struct align_job *job, int s, struct order_item *items, size_t count);
// Of taking a for b; one out and one in cost 2.
float order_cost(
        const struct order_kin *kin, const struct order_item *a, const struct order_item *b);
enum align_match order_match(
        const struct align_job *job, const struct order_item *a, const struct order_item *b);
// A pair that is no border between what was fused, split or replaced before it and behind it.
bool order_is_weak(const struct order_kin *kin, const struct align_job *job,
        const struct order_item *a, const struct order_item *b);
// What stands between two borders, in its order: one group, or several where generated code begins
// with an operator's work where the other side does.
void order_join(struct align_job *job, const uint32_t *a, size_t n, const uint32_t *b, size_t m);

// By key; equal ones stay in their order.
void order_sort(struct order_keyed *keys, size_t count);

// of what counts as equal: name and shape, normalised name and shape, name
enum { ORDER_LEVELS = 3 };

// Keys that occur once on each side; or, with equal, as often on both sides (the k-th is the k-th
// then). By a; the number of them.
size_t order_unique(const struct order_item *a, size_t n, const struct order_item *b, size_t m,
        int level, bool equal, struct order_anchor *anchors);
// The longest run of anchors that rise on both sides, in place; its length.
size_t order_rising(struct order_anchor *anchors, size_t count);

#endif
