// SPDX-License-Identifier: Apache-2.0
// What is left of kernels when all places are done: a run of leftovers on each side behind the same
// matched kernel (or before it) is one piece of work at two places: one group. What is left then
// exists on one side only.
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "reports/analyse/diff/align/align_inside.h"

struct rest_ends { // of a group: its last and first leaf on side b
    uint32_t first, last;
};

static size_t rest_ordered(const struct align_side *side)
{
    size_t count = 0;
    while (count < side->leaf_count && side->leaves[count].ordered)
        count++;
    return count;
}

static bool rest_left(const struct align_side *side, size_t leaf)
{
    return side->leaves[leaf].group == COST_NONE;
}

static void rest_group(struct align_job *job, size_t a0, size_t a1, size_t b0, size_t b1)
{
    uint32_t *a = xcalloc(a1 - a0 + 1, sizeof *a), *b = xcalloc(b1 - b0 + 1, sizeof *b);
    for (int comm = 0; comm < 2; comm++) {
        size_t n = 0, m = 0;
        for (size_t i = a0; i < a1; i++)
            if ((job->sides[0].leaves[i].kind == COST_COLLECTIVE) == comm)
                a[n++] = (uint32_t)i;
        for (size_t i = b0; i < b1; i++)
            if ((job->sides[1].leaves[i].kind == COST_COLLECTIVE) == comm)
                b[m++] = (uint32_t)i;
        if (n && m)
            align_join_several(job, a, n, b, m);
    }
    free(a);
    free(b);
}

// The leftovers of side b that follow the partner of the kernel before [from, to), or go before
// that of the one behind.
static void rest_find(struct align_job *job, const struct rest_ends *ends, size_t from, size_t to,
        size_t count_a, size_t count_b)
{
    const struct align_side *a = &job->sides[0], *b = &job->sides[1];
    uint32_t before = from ? a->leaves[from - 1].group : COST_NONE,
             behind = to < count_a ? a->leaves[to].group : COST_NONE;
    if (before != COST_NONE && ends[before].last != COST_NONE) {
        size_t first = ends[before].last + 1, last = first;
        while (last < count_b && rest_left(b, last))
            last++;
        if (last > first) {
            rest_group(job, from, to, first, last);
            return;
        }
    }
    if (behind == COST_NONE || ends[behind].first == COST_NONE)
        return;
    size_t last = ends[behind].first, first = last;
    while (first && rest_left(b, first - 1))
        first--;
    if (last > first)
        rest_group(job, from, to, first, last);
}

void align_rest_neighbours(struct align_job *job)
{
    struct align_side *a = &job->sides[0], *b = &job->sides[1];
    size_t count_a = rest_ordered(a), count_b = rest_ordered(b), groups = job->group_count;
    struct rest_ends *ends = xcalloc(groups + 1, sizeof *ends);
    memset(ends, 0xff, (groups + 1) * sizeof *ends);
    for (size_t i = 0; i < count_b; i++) {
        uint32_t group = b->leaves[i].group;
        if (group == COST_NONE)
            continue;
        ends[group].last = (uint32_t)i;
        if (ends[group].first == COST_NONE)
            ends[group].first = (uint32_t)i;
    }
    for (size_t i = 0; i < count_a;) {
        size_t end = i;
        while (end < count_a && rest_left(a, end))
            end++;
        if (end > i)
            rest_find(job, ends, i, end, count_a, count_b);
        // groups made here have no ends: they are nobody's neighbours
        i = end > i ? end : i + 1;
    }
    free(ends);
    for (int s = 0; s < ALIGN_SIDES; s++)
        for (size_t i = 0; i < job->sides[s].leaf_count; i++) {
            uint32_t leaf = (uint32_t)i;
            if (rest_left(&job->sides[s], i))
                align_join(job, s ? ALIGN_ONLY_B : ALIGN_ONLY_A, &leaf, !s, &leaf, s);
        }
}
