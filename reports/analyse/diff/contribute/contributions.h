// SPDX-License-Identifier: Apache-2.0
// Between the parts that make contributions: the aligned groups with what they are together.
// Internal to this room. One owner thread; what is reported lives in the arena.
#ifndef UPGATE_DIFF_CONTRIBUTIONS_H
#define UPGATE_DIFF_CONTRIBUTIONS_H

#include "reports/analyse/diff/contribute/contribute.h"

enum { CONTRIBUTIONS_LABEL_MAX = 56, CONTRIBUTIONS_HALF_MAX = 26 };

struct contributions_item {
    size_t first, count; // of members
    enum diff_kind kind;
    struct diff_estimate estimate;
    double half;
    double nearest; // of its interval's bounds the one near 0, where executions tell the sign; else
                    // 0
    bool named;
    bool few; // not named, but would be, had more launches differed as little as these
    // Of a whole: the items that its members were of. NULL: an item of one thing.
    const char *place;    // spread over a place: its innermost link
    const char *label;    // code that one side has, or runs more often
    enum diff_kind whole; // of it; DIFF_KIND_COUNT: that of most of its parts
    struct contributions_item *parts;
    size_t part_count;
};

struct contributions_whole { // groups that are told as one
    struct diff_estimate estimate;
    double half, nearest;      // as of an item
    const char *place, *label; // as of an item
    enum diff_kind kind;       // with a label
};

struct contributions {
    const struct diff_compared *compared;
    const struct diff_launches *launches;
    struct diff_prior *prior;
    struct diff_group *groups;
    struct diff_key *keys;
    size_t group_count;
    uint32_t *members; // groups, by key
    struct contributions_item *items;
    size_t count, candidates; // candidates: for being named
};

// Is it one to be told, at `half` of the width of its interval? busy: by how much the busy time of
// its groups changed.
bool contributions_told(const struct diff_compared *compared, const struct diff_estimate *estimate,
        double half, double busy);
void contributions_estimate_groups(const struct contributions *all, const uint32_t *groups,
        size_t count, struct diff_estimate *ret);
void contributions_estimate(struct contributions *all, size_t from, size_t end); // of items
double contributions_floor_ns(
        const struct diff_untraced *untraced); // the least that is worth a line
// contributions_executions.c: what the executions take, of the side that it changed towards, that
// each of its windows has beyond each of the other side's; at most estimate.nearest. 0: none.
double contributions_executes_more(const struct contributions *all, const uint32_t *groups,
        size_t count, const struct diff_estimate *estimate);
// contributions_split.c. owner: of each group the whole that takes it; COST_NONE. A whole that owns
// nothing is none. Items keep whether they are named.
void contributions_split(struct contributions *all, const uint32_t *owner,
        const struct contributions_whole *wholes, size_t count);
// contributions_native.c: functions that only one side has names for get the kind DIFF_NATIVE_CODE,
// and are one thing by place.
void contributions_native(struct contributions *all);
// contributions_code.c: code that one side alone has, or runs more often, becomes one item with all
// that it causes.
void contributions_code(struct contributions *all);
// contributions_moved.c. Of samples by side: what this side alone has here, the other one has
// elsewhere, and this side has not.
bool contributions_moves(const double here[2], const double elsewhere[2], int side);
// Of native functions that one side's first steps alone have; members: largest change first.
bool contributions_moved(const struct contributions *all, const struct contributions_item *item);
// contributions_places.c: what no named item holds, but is told from noise as the sum of a place,
// becomes an item.
void contributions_places(struct contributions *all);
// contributions_label.c. members: largest change first.
const char *contributions_label(struct contributions *all, const struct contributions_item *item);
// What took most on a side, of one group: three at most.
const char *contributions_group_side(
        const struct diff_compared *compared, const struct diff_group *group, int side);
// Of what is spread over a place: parts, names, label and kind of the contribution.
void contributions_parts(struct contributions *all, const struct contributions_item *item,
        struct diff_contribution *made);
// Code without a name ("[unknown] in [jit]") is told by the place that holds four fifths of its
// change, too: its innermost link; NULL: none.
const char *contributions_label_called(
        struct arena *arena, const struct cost_node *leaf, const char *label, const char *last);
// Name of the outermost place of a leaf, or of the innermost.
const struct cost_node *contributions_place(
        const struct cost_tree *tree, uint32_t leaf, bool outermost);

#endif
