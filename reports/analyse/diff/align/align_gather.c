// SPDX-License-Identifier: Apache-2.0
// Places that one side has lost: below a compiled region, a CUDA graph or a scripted module nobody
// says which module a kernel is of, so that the kernels of twelve blocks stand at one place there,
// and at a hundred on the other side. Place by place none of them would find its partner. Where
// that is so, the lowest place that holds both is aligned as one sequence.
#include <stdlib.h>

#include "common/strings.h"
#include "reports/analyse/diff/align/align_inside.h"
#include "reports/analyse/diff/thresholds.h"

struct gather_sum {
    double ns[ALIGN_SIDES]; // of kernels and the like, here and below
    size_t count[ALIGN_SIDES];
    double same; // at the same places on both sides
    bool lost;   // its kernels are one sequence with those below
};

static double gather_shorter(const struct gather_sum *sum)
{
    return sum->ns[0] < sum->ns[1] ? sum->ns[0] : sum->ns[1];
}

static bool gather_is_lost(const struct gather_sum *sum)
{
    return sum->count[0] >= gather_least && sum->count[1] >= gather_least &&
            sum->same < gather_same * gather_shorter(sum);
}

void align_gather(struct align_job *job)
{
    struct gather_sum *sums = xcalloc(job->pool_count + 1, sizeof *sums);
    uint32_t *to = xcalloc(job->pool_count + 1, sizeof *to);
    for (int s = 0; s < ALIGN_SIDES; s++)
        // those come first
        for (size_t i = 0; i < job->sides[s].leaf_count && job->sides[s].leaves[i].ordered; i++) {
            struct gather_sum *sum = &sums[job->sides[s].leaves[i].pool];
            sum->ns[s] += job->sides[s].leaves[i].ns;
            sum->count[s]++;
        }
    for (size_t i = 0; i < job->pool_count; i++)
        sums[i].same = gather_shorter(&sums[i]);
    for (size_t i = job->pool_count; i-- > 0;) { // a pool's parent comes before it
        struct gather_sum *sum = &sums[i];
        sum->lost = gather_is_lost(sum);
        if (sum->lost)
            sum->same = gather_shorter(sum);
        if (job->pools[i].parent == COST_NONE)
            continue;
        struct gather_sum *above = &sums[job->pools[i].parent];
        for (int s = 0; s < ALIGN_SIDES; s++) {
            above->ns[s] += sum->ns[s];
            above->count[s] += sum->count[s];
        }
        above->same += sum->same;
    }
    for (size_t i = 0; i < job->pool_count; i++) { // the outermost lost place takes all below it
        uint32_t parent = job->pools[i].parent;
        bool within = parent != COST_NONE && sums[parent].lost;
        to[i] = within ? to[parent] : (uint32_t)i;
        job->pools[i].gathered = sums[i].lost && !within;
        sums[i].lost |= within;
    }
    for (int s = 0; s < ALIGN_SIDES; s++)
        for (size_t i = 0; i < job->sides[s].leaf_count && job->sides[s].leaves[i].ordered; i++)
            job->sides[s].leaves[i].pool = to[job->sides[s].leaves[i].pool];
    free(sums);
    free(to);
}
