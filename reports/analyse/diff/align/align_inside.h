// SPDX-License-Identifier: Apache-2.0
// Between the parts of the alignment: both sides' leaves with their names and shapes as numbers,
// pools (the leaves of a pair of places), groups as they are found. Numbers of names come from one
// table for both sides, so that equal means equal.
#ifndef UPGATE_DIFF_ALIGN_INSIDE_H
#define UPGATE_DIFF_ALIGN_INSIDE_H

#include "common/containers/arena.h"
#include "reports/analyse/diff/align/align.h"

enum { ALIGN_SIDES = 2 };

struct align_leaf {
    uint32_t node, pool, group; // COST_NONE: in no group yet
    uint32_t exact;             // name and module; COST_NONE with ignore_names
    uint32_t name, normal;      // name alone, normalised; COST_NONE with ignore_names
    uint32_t label;   // normalised name; also with ignore_names, to tell kernels of one side apart
    uint32_t learned; // label on side a, of both; COST_NONE: not learned
    uint32_t shape;   // grid, block, bytes; COST_NONE: it has none
    uint32_t module;  // file without its version
    uint8_t kind, class;
    bool ordered;            // kernels and the like: their order says who is who
    double ns, order, count; // count: executions
};

struct align_side {
    const struct cost_tree *tree;
    // by order, functions by time; the same for the same tree with other ids
    struct align_leaf *leaves;
    size_t leaf_count;
    uint32_t *partner; // of each place: the other side's, COST_NONE
    uint32_t *pool;    // of each matched place
    double *below_ns;  // of each node
    // of each node: the next one of its leaf, COST_NONE; NULL: no leaf has several
    uint32_t *variant;
};

struct align_pool {
    uint32_t place[ALIGN_SIDES];
    uint32_t parent;               // pool; COST_NONE: the root's
    uint32_t *leaves[ALIGN_SIDES]; // indexes of leaves
    size_t count[ALIGN_SIDES];
    bool gathered; // holds kernels of the places below it
};

struct align_words {
    uint32_t *words;
    size_t count;
};

struct align_vote {       // a kernel of a name stood where one of another name stands
    uint32_t a, b, count; // labels
    double ns;
};

struct align_job {
    struct arena *arena;
    struct align_opts opts;
    struct align_side sides[ALIGN_SIDES];
    struct align_pool *pools;
    size_t pool_count;
    struct cost_tree *texts;   // numbers for names, shapes, keys of places
    uint32_t *normal;          // of the number of a name
    struct align_words *words; // of the number of a normalised name
    size_t normal_capacity, words_capacity;
    struct align_group *groups;
    size_t group_count;
    struct align_vote *votes;
    size_t vote_count;
    bool voting;     // a first pass: no groups
    bool names_work; // both sides share enough names to trust them
    int64_t cells;   // of edit distances, still allowed
    int64_t visits;  // of leftovers on their way up, still allowed
    int64_t signs;   // of nodes below places compared by content, still allowed
};

// Keys, the same text on both sides giving the same number.
enum align_table {
    ALIGN_TABLE_NAME = 1,
    ALIGN_TABLE_NORMAL,
    ALIGN_TABLE_MODULE,
    ALIGN_TABLE_EXACT,
    ALIGN_TABLE_SHAPE,
    ALIGN_TABLE_PLACE,
    ALIGN_TABLE_PLACE_NORMAL,
    ALIGN_TABLE_PLACE_NAME
};
uint32_t align_number(struct align_job *job, enum align_table table, int kind, const char *name,
        const char *module);
uint32_t align_normal(struct align_job *job, uint32_t name, const char *text);
double align_similarity(struct align_job *job, uint32_t normal_a, uint32_t normal_b);
bool align_is_place(const struct cost_node *node);
// of one against one: the best word for it
enum align_match align_pair_match(const struct align_leaf *a, const struct align_leaf *b);

void align_leaves(struct align_job *job);   // fills the sides' leaves
void align_variants(struct align_job *job); // one leaf of those that are one kernel in many shapes
void align_places(struct align_job *job);   // finds partners of places, makes pools
void align_fill_pools(struct align_job *job);
// kernels of places that one side has lost go to the pool above
void align_gather(struct align_job *job);
// leaves below functions that one side alone runs: they have no partner
void align_new(struct align_job *job);
void align_learn(struct align_job *job); // without common names: which of a is which of b
void align_vote(struct align_job *job, const struct align_leaf *a, const struct align_leaf *b);
void align_order(struct align_job *job, const struct align_pool *pool);     // kernels of a pool
void align_functions(struct align_job *job, const struct align_pool *pool); // what has no order
// what is at another place now, and what is left of functions
void align_rest_functions(struct align_job *job);
void align_rest_neighbours(struct align_job *job); // what is left of kernels, and then everything

// A new group of these leaves (indexes of leaves); either may be empty.
void align_join(struct align_job *job, enum align_match match, const uint32_t *a, size_t count_a,
        const uint32_t *b, size_t count_b);
// Several against several: one group; of one against one the best word for it.
void align_join_several(struct align_job *job, const uint32_t *a, size_t count_a, const uint32_t *b,
        size_t count_b);

#endif
