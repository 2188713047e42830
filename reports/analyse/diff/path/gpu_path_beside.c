// SPDX-License-Identifier: Apache-2.0
// What ran at the same time on one device: a kernel becomes slower without having changed when what
// runs beside it takes more of the multiprocessors and of the memory's bandwidth, as an all-reduce
// does that hides behind the backward pass. Kept is, by leaf, how long which other leaf ran beside
// it, and how long the executions took that had others beside them and those that had none. One
// rank; one owner thread.
#include <stdlib.h>

#include "common/containers/map.h"
#include "common/containers/vector.h"
#include "common/strings.h"
#include "reports/analyse/diff/path/gpu_path_parts.h"

// At one time; the device itself runs 128 grids at most, and more than a few are rare. What comes
// beyond that is not looked at.
enum { BESIDE_MAX = 128, BESIDE_PAIRS_MAX = 1 << 20 };
// Of its time: who had others beside it for less than a twentieth ran alone, as far as a mean of
// executions can tell.
enum { BESIDE_PARTS = 20 };

struct active {
    int64_t start, end;
    int64_t until, covered; // others were beside it until then, and for so long
    uint32_t leaf;
    bool counted;
};

struct gpu_beside {
    struct active active[BESIDE_MAX];
    struct cost_beside *pairs;
    struct map map; // node << 32 | other -> index of pairs
    size_t active_count, pair_count;
};

// Only where there are several streams: in one, the next begins when the one before is over.
struct gpu_beside *gpu_beside_new(const struct gpu_path *path)
{
    const struct launch_trace *trace = path->trace;
    const struct launch_work *first = NULL;
    for (size_t i = 0; i < trace->work_count; i++) {
        const struct launch_work *work = &trace->works[i];
        if (work->rank != path->rank)
            continue;
        if (first && first->stream != work->stream)
            return xcalloc(1, sizeof(struct gpu_beside));
        first = work;
    }
    return NULL;
}

static void pair_add(struct gpu_beside *beside, uint32_t node, uint32_t other, int64_t ns)
{
    if (beside->pair_count >= BESIDE_PAIRS_MAX)
        return;
    uint32_t *slot = map_put(&beside->map, (uint64_t)node << 32 | other);
    if (*slot == COST_NONE) {
        *slot = (uint32_t)beside->pair_count;
        vector_push(beside->pairs, beside->pair_count,
                (struct cost_beside){.node = node, .other = other});
    }
    beside->pairs[*slot].ns += ns;
}

static void active_over(struct cost_tree *tree, const struct active *active)
{
    int64_t ns = active->end - active->start;
    int with = active->covered * BESIDE_PARTS >= ns;
    struct cost_overlap overlap = {0};
    if (!active->counted)
        return;
    overlap.count[with] = 1;
    overlap.ns[with] = ns;
    cost_tree_overlap(tree, active->leaf, &overlap);
}

void gpu_beside_add(struct gpu_path *path, const struct launch_op *op, uint32_t leaf, bool counted)
{
    struct gpu_beside *beside = path->beside;
    int64_t end = op->start + op->dur, until = op->start;
    size_t kept = 0;
    for (size_t i = 0; i < beside->active_count; i++) {
        if (beside->active[i].end <= op->start)
            active_over(path->tree, &beside->active[i]);
        else
            beside->active[kept++] = beside->active[i];
    }
    beside->active_count = kept;
    if (!op->dur || kept == BESIDE_MAX)
        return;
    for (size_t i = 0; i < kept; i++) {
        struct active *other = &beside->active[i];
        int64_t both = other->end < end ? other->end : end,
                from = other->until > op->start ? other->until : op->start;
        if (other->counted)
            pair_add(beside, other->leaf, leaf, both - op->start);
        if (counted)
            pair_add(beside, leaf, other->leaf, both - op->start);
        if (both > from) {
            other->covered += both - from;
            other->until = both;
        }
        until = both > until ? both : until;
    }
    beside->active[beside->active_count++] = (struct active){.start = op->start,
            .end = end,
            .until = until,
            .covered = until - op->start,
            .leaf = leaf,
            .counted = counted};
}

void gpu_beside_free(struct gpu_path *path)
{
    struct gpu_beside *beside = path->beside;
    if (!beside)
        return;
    for (size_t i = 0; i < beside->active_count; i++)
        active_over(path->tree, &beside->active[i]);
    for (size_t i = 0; i < beside->pair_count; i++)
        cost_tree_beside(path->tree, &beside->pairs[i]);
    map_free(&beside->map);
    free(beside->pairs);
    free(beside);
    path->beside = NULL;
}
