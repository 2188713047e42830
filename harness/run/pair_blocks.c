// SPDX-License-Identifier: Apache-2.0
// Blocks of a pair: how many steps make one, and what they took once the pair is over. Runs
// nothing.
#include "harness/run/pair_internal.h"

#include <math.h>
#include <stdlib.h>

#include "common/containers/search.h"
#include "common/containers/sort.h"
#include "common/strings.h"

enum {
    PAIR_BLOCK_STEPS_MAX = 4096,
    PAIR_REQUEST_TURN_NS = 1000000000, // open-loop latency is measured in turns of seconds,
    PAIR_REQUEST_TURNS_MIN = 8         // but a burst must meet both sides of a short launch as well
};

// --- how many steps ------------------------------------------------------------------------------

uint64_t pair_block_steps(const struct pair_spec *spec, struct pair *pair, int64_t couple)
{
    if (couple == 0)
        return 1;
    if (pair->block_steps)
        return pair->block_steps;
    if (spec->workload->mode == PLAN_MODE_INFER && spec->rate_per_s > 0)
        return pair->block_steps = (uint64_t)fmax(1,
                       fmin(spec->rate_per_s * PAIR_REQUEST_TURN_NS / 1e9,
                               (double)spec->steps / PAIR_REQUEST_TURNS_MIN));
    return couple == 1 ? 2 : 0;
}

// A usual step of a side, the cold one left out: the lower quartile, so that neither a neighbour's
// burst nor a workload of unequal steps misleads. 0 = none yet.
static double pair_usual_step_ns(const struct samples *samples)
{
    double *times = xcalloc(samples->step_count, sizeof *times);
    size_t count = 0;
    for (size_t i = 0; i < samples->step_count; i++)
        if (samples->steps[i].idx > 0)
            times[count++] = (double)(samples->steps[i].end_ns - samples->steps[i].begin_ns);
    sort_in_place(times, count, x, y, *x < *y);
    double usual = count ? times[count / 4] : 0;
    free(times);
    return usual;
}

void pair_learn_block(const struct pair_spec *spec, struct pair *pair)
{
    double step_ns =
            fmax(pair_usual_step_ns(&pair->samples[0]), pair_usual_step_ns(&pair->samples[1]));
    double steps = round((double)spec->plan->schedule.block_ns / fmax(step_ns, 1));
    pair->block_steps = steps < 1          ? 1
            : steps > PAIR_BLOCK_STEPS_MAX ? PAIR_BLOCK_STEPS_MAX
                                           : (uint64_t)steps;
}

// --- what they took ------------------------------------------------------------------------------

struct pair_begin { // of the first step of a block, on the earliest rank; 0 = its record was lost
    int64_t step, ns;
};

// One entry a couple, in the order of the couples.
static struct pair_begin *pair_find_begins(const struct pair *pair, int side)
{
    size_t count = pair->block_count / 2;
    struct pair_begin *begins = xcalloc(count, sizeof *begins);
    for (size_t i = 0; i < count; i++)
        begins[i].step = pair->blocks[2 * i + (size_t)side].first_step;
    for (size_t i = 0; i < pair->samples[side].step_count; i++) {
        const struct samples_step *step = &pair->samples[side].steps[i];
        size_t at = search_first(k, count, begins[k].step >= (int64_t)step->idx);
        if (at < count && begins[at].step == (int64_t)step->idx &&
                (!begins[at].ns || step->begin_ns < begins[at].ns))
            begins[at].ns = step->begin_ns;
    }
    return begins;
}

// The first step of a block has to wait until the other nodes have handed over, too: it is taken
// out of its block and of what was recorded. Not the first of the launch, which is a metric of its
// own.
static size_t pair_skip_borders_of(struct pair *pair, int side)
{
    struct samples *samples = &pair->samples[side];
    size_t count = pair->block_count / 2, kept = 0;
    int64_t behind = -1; // the step at which the rest of the launch began
    for (size_t i = 0; i < count; i++)
        behind = pair->blocks[2 * i + (size_t)side].first_step +
                pair->blocks[2 * i + (size_t)side].steps;
    for (size_t i = 0; i < samples->step_count; i++) {
        int64_t idx = samples->steps[i].idx;
        size_t at = search_first(k, count, pair->blocks[2 * k + (size_t)side].first_step >= idx);
        bool border = idx == behind ||
                (at < count && pair->blocks[2 * at + (size_t)side].first_step == idx);
        if (!border || idx == 0)
            samples->steps[kept++] = samples->steps[i];
    }
    return kept;
}

void pair_skip_borders(struct pair *pair)
{
    for (int side = 0; side < 2; side++)
        pair->samples[side].step_count = pair_skip_borders_of(pair, side);
    for (size_t i = 0; i < pair->block_count; i++) {
        struct pair_block *block = &pair->blocks[i];
        block->turn.ranks++; // those of other nodes: what one of several ranks lost is not what the
                             // block lost
        if (block->first_step == 0 || block->steps < 2)
            continue;
        block->first_step++;
        block->steps--;
    }
}

void pair_close_blocks(struct pair *pair)
{
    struct pair_begin *begins[2] = {pair_find_begins(pair, 0), pair_find_begins(pair, 1)};
    size_t kept = 0;
    for (size_t i = 0; i + 1 < pair->block_count; i += 2) {
        bool whole = true;
        for (size_t side = 0; side < 2; side++) {
            struct pair_block *block = &pair->blocks[i + side];
            block->begin_ns = begins[side][i / 2].ns;
            whole = whole && block->begin_ns && block->active_ns > block->begin_ns;
            block->active_ns -= block->begin_ns;
            machine_judge(&block->turn, block->begin_ns, block->active_ns, &block->share);
        }
        if (whole) {
            pair->blocks[kept++] = pair->blocks[i];
            pair->blocks[kept++] = pair->blocks[i + 1];
        }
    }
    pair->block_count = kept;
    free(begins[0]);
    free(begins[1]);
}
