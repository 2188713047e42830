// SPDX-License-Identifier: Apache-2.0
// When both sides share no names (one side's were scrambled, another library's took their place),
// names still say which kernels of one side are the same: a first alignment by order and shape
// votes which name of a became which of b, and where both sides agree the second one follows.
#include <stdlib.h>
#include <string.h>

#include "common/containers/vector.h"
#include "common/strings.h"
#include "reports/analyse/diff/align/align_inside.h"
#include "reports/analyse/diff/align/align_order.h"

void align_vote(struct align_job *job, const struct align_leaf *a, const struct align_leaf *b)
{
    double ns = a->ns < b->ns ? a->ns : b->ns;
    vector_push(job->votes, job->vote_count,
            (struct align_vote){.a = a->label, .b = b->label, .count = 1, .ns = ns});
}

// By names of a, then b; votes for the same two become one. How many are left.
static size_t learn_merge(struct align_vote **votes, size_t count)
{
    struct order_keyed *keys = xcalloc(count + 1, sizeof *keys);
    struct align_vote *merged = xcalloc(count + 1, sizeof *merged);
    size_t kept = 0;
    for (size_t i = 0; i < count; i++)
        keys[i] = (struct order_keyed){(uint64_t)(*votes)[i].a << 32 | (*votes)[i].b, (uint32_t)i};
    order_sort(keys, count);
    for (size_t i = 0; i < count; i++) {
        const struct align_vote *vote = &(*votes)[keys[i].at];
        if (kept && keys[i - 1].key == keys[i].key) {
            merged[kept - 1].count += vote->count;
            merged[kept - 1].ns += vote->ns;
        } else {
            merged[kept++] = *vote;
        }
    }
    free(keys);
    free(*votes);
    *votes = merged;
    return kept;
}

// More votes, then more time, then the names themselves: their numbers depend on ids.
static bool learn_better(
        const struct align_job *job, const struct align_vote *vote, const struct align_vote *best)
{
    if (!best || vote->count != best->count)
        return !best || vote->count > best->count;
    if (vote->ns != best->ns)
        return vote->ns > best->ns;
    int order = strcmp(job->texts->nodes[vote->a].name, job->texts->nodes[best->a].name);
    return order ? order < 0
                 : strcmp(job->texts->nodes[vote->b].name, job->texts->nodes[best->b].name) < 0;
}

// Pairs of names that are each other's best.
static uint32_t *learn_pairs(struct align_job *job)
{
    size_t numbers = job->texts->node_count;
    const struct align_vote **best[ALIGN_SIDES];
    uint32_t *learned = xcalloc(numbers + 1, sizeof *learned); // of b's name: a's
    memset(learned, 0xff, (numbers + 1) * sizeof *learned);
    for (int s = 0; s < ALIGN_SIDES; s++)
        best[s] = xcalloc(numbers + 1, sizeof *best[s]);
    for (size_t i = 0; i < job->vote_count; i++) {
        const struct align_vote *vote = &job->votes[i];
        if (learn_better(job, vote, best[0][vote->a]))
            best[0][vote->a] = vote;
        if (learn_better(job, vote, best[1][vote->b]))
            best[1][vote->b] = vote;
    }
    for (size_t i = 0; i < job->vote_count; i++)
        if (best[0][job->votes[i].a] == &job->votes[i] &&
                best[1][job->votes[i].b] == &job->votes[i])
            learned[job->votes[i].b] = job->votes[i].a;
    free(best[0]);
    free(best[1]);
    return learned;
}

void align_learn(struct align_job *job)
{
    if (job->names_work)
        return;
    int64_t half = job->cells / 2; // the second pass gets what is left
    job->cells -= half;
    job->voting = true;
    for (size_t i = 0; i < job->pool_count; i++)
        align_order(job, &job->pools[i]);
    job->voting = false;
    job->cells += half;
    job->vote_count = learn_merge(&job->votes, job->vote_count);
    uint32_t *learned = learn_pairs(job);
    uint8_t *mapped = xcalloc(job->texts->node_count + 1, 1); // a's names that have a partner
    for (size_t i = 0; i < job->texts->node_count; i++)
        if (learned[i] != COST_NONE)
            mapped[learned[i]] = 1;
    for (int s = 0; s < ALIGN_SIDES; s++)
        for (size_t i = 0; i < job->sides[s].leaf_count; i++) {
            struct align_leaf *leaf = &job->sides[s].leaves[i];
            if (leaf->ordered)
                leaf->learned = s             ? learned[leaf->label]
                        : mapped[leaf->label] ? leaf->label
                                              : COST_NONE;
        }
    free(mapped);
    free(learned);
    free(job->votes);
    job->votes = NULL;
    job->vote_count = 0;
}
