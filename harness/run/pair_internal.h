// SPDX-License-Identifier: Apache-2.0
// Between pair.c, which runs a pair, pair_blocks.c, which cuts it into blocks, and pair_check.c,
// which looks at it afterwards.
#ifndef UPGATE_HARNESS_RUN_PAIR_INTERNAL_H
#define UPGATE_HARNESS_RUN_PAIR_INTERNAL_H

#include "harness/run/pair.h"

// What a pair on several nodes knows of the others. Empty at first.
struct pair_nodes {
    bool turned, turning; // turns have begun; are going on: steps must come
    bool failed[2];       // has been told
    int64_t looked_ns;    // when the others were looked at
    int64_t moved_ns[2];  // when a side made its last step, or arrived
    uint64_t moved[2];    // steps and arrivals at that moment
};
// False: a side cannot come to its next border, and has been ended: it has failed elsewhere, or
// made no step for longer than a hand-over may take.
bool pair_nodes_patience(
        struct pair_nodes *nodes, const struct pair_spec *spec, struct pair *pair, int side);
void pair_nodes_fail(
        struct pair_nodes *nodes, const struct pair_spec *spec, int side, const char *how);

// The pair has failed; the first reason stays. reason is taken.
void pair_fail(struct pair *pair, char *reason);
// Fails a pair whose launches say they went well and lost records, ranks or steps. Not for a pair
// that was stopped.
void pair_check(const struct pair_spec *spec, struct pair *pair);
// Fails a pair whose sides were cut by different rules, as far as they have said by now.
void pair_check_rules(const struct pair_spec *spec, struct pair *pair);
// Fails a pair for a side that ended without a step.
void pair_miss_steps(const struct pair_spec *spec, struct pair *pair, int side);
// Steps of the block of a couple; 0: not known yet.
uint64_t pair_block_steps(const struct pair_spec *spec, struct pair *pair, int64_t couple);
// How many steps make a block of the planned length on the slower side: after the couple of two
// steps for this pair, and once more at its end, from all its steps, for the pairs to come.
void pair_learn_block(const struct pair_spec *spec, struct pair *pair);
// On several nodes, before pair_close_blocks: the first step of each block is not counted.
void pair_skip_borders(struct pair *pair);
// From arrivals to lengths. A block whose first step was lost has none: it is taken out, with its
// partner.
void pair_close_blocks(struct pair *pair);

// Of the job that a launch is, as its processes say; 1: none says so.
uint32_t pair_told_ranks(const struct launch *launch);

// In a turn, steps being marked by our library: a process has stood at the gate for long while
// another marks none. The launch is ended then, and the pair has failed.
bool pair_check_even(const struct pair_spec *spec, struct pair *pair, int side);

#endif
