// SPDX-License-Identifier: Apache-2.0
// What the collectives of both sides took, summed up by function, type and size: with which
// algorithm and protocol, how often, how long, how much of that nothing hid. Two versions of NCCL
// are compared by it where the step does not differ, too. Reads the store for the versions.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/containers/vector.h"
#include "common/strings.h"
#include "reports/analyse/diff/explain/explain.h"
#include "reports/analyse/names/names.h"

enum {
    COLLECTIVES_WAYS = 24, // NCCL has 7 algorithms and 3 protocols, and there is the one not told
    COLLECTIVES_WAYS_TOLD = 4,
    COLLECTIVES_NAME_MAX = 60
};

struct collectives_way { // an algorithm with a protocol
    const char *how;
    double ns;
};

struct collectives_sum {
    struct diff_collective of;
    struct collectives_way ways[2][COLLECTIVES_WAYS];
};

struct collectives_sums { // as many as there are: names of kernels differ where NCCL tells nothing
    struct collectives_sum *all;
    size_t count;
};

// NCCL chooses another protocol (LL, LL128, Simple) and algorithm about there.
static const char *collectives_size(int64_t bytes)
{
    if (bytes <= 0)
        return "";
    if (bytes <= 64 << 10)
        return "up to 64 KiB";
    if (bytes <= 1 << 20)
        return "64 KiB to 1 MiB";
    return bytes <= 16 << 20 ? "1 to 16 MiB" : "more than 16 MiB";
}

// What was asked for, where NCCL told it; else the kernel.
static const char *collectives_name(struct arena *arena, const struct cost_node *node)
{
    char label[NAMES_LENGTH_MAX] = "";
    if (node->collective.how)
        return arena_copy(arena, node->collective.what);
    names_short(node->name, label, sizeof label, COLLECTIVES_NAME_MAX);
    return arena_copy(arena, label);
}

static struct collectives_sum *collectives_find(
        struct collectives_sums *sums, const char *name, const char *size)
{
    for (size_t i = 0; i < sums->count; i++)
        if (strcmp(sums->all[i].of.name, name) == 0 && strcmp(sums->all[i].of.size, size) == 0)
            return &sums->all[i];
    struct collectives_sum *sum = vector_add(sums->all, sums->count);
    sum->of.name = name;
    sum->of.size = size;
    return sum;
}

static void collectives_way_add(struct collectives_way *ways, const char *how, double ns)
{
    for (size_t i = 0; i < COLLECTIVES_WAYS; i++)
        if (!ways[i].how || strcmp(ways[i].how, how) == 0) {
            ways[i].how = how;
            ways[i].ns += ns;
            return;
        }
}

static void collectives_side(
        const struct diff_compared *compared, int side, struct collectives_sums *sums)
{
    const struct cost_tree *tree = compared->trees[side];
    const struct diff_units *units = compared->units;
    double steps = compared->untraced->launches ? units->pairs : units->total_steps[side];
    double factor = units->scale[side] / units->total_steps[side];
    for (uint32_t i = 0; i < tree->node_count; i++) {
        const struct cost_node *node = &tree->nodes[i];
        if (node->kind != COST_COLLECTIVE || node->collective.waits)
            continue;
        struct diff_sums leaf = diff_leaf_sums(compared, side, i);
        if (leaf.count == 0 && leaf.busy == 0)
            continue;
        struct collectives_sum *sum = collectives_find(
                sums, collectives_name(compared->arena, node), collectives_size(node->shape.bytes));
        sum->of.count[side] += leaf.count / steps;
        sum->of.busy_ns[side] += factor * leaf.busy;
        sum->of.exposed_ns[side] += factor * leaf.ns;
        collectives_way_add(
                sum->ways[side], node->collective.how ? node->collective.how : "", leaf.busy);
    }
}

static int way_compare(const void *left, const void *right)
{
    const struct collectives_way *a = left, *b = right;
    if (!a->how || !b->how)
        return !a->how - !b->how;
    return a->ns > b->ns ? -1 : a->ns < b->ns ? 1 : strcmp(a->how, b->how);
}

static void collectives_ways(struct arena *arena, struct collectives_sum *sum)
{
    for (int side = 0; side < 2; side++) {
        struct collectives_way *ways = sum->ways[side];
        struct strbuf text = {0};
        if (!ways[0].how) { // not on this side
            sum->of.count[side] = sum->of.busy_ns[side] = sum->of.exposed_ns[side] = NAN;
            continue;
        }
        qsort(ways, COLLECTIVES_WAYS, sizeof *ways, way_compare);
        for (size_t i = 0; i < COLLECTIVES_WAYS_TOLD && ways[i].how; i++)
            strbuf_add(&text, "%s%s", text.len ? ", " : "", ways[i].how);
        sum->of.how[side] = diff_text(arena, &text);
    }
}

static int collectives_compare(const void *left, const void *right)
{
    const struct diff_collective *a = left, *b = right;
    double x = fmax(a->busy_ns[0], a->busy_ns[1]), y = fmax(b->busy_ns[0], b->busy_ns[1]);
    if (x != y)
        return x > y ? -1 : 1;
    int order = strcmp(a->name, b->name);
    return order ? order : strcmp(a->size, b->size);
}

// The library that ran said it: a fingerprint also knows those that were only there.
static const char *collectives_version(const struct diff_input *input, int64_t launch)
{
    struct error none = {0};
    int64_t version = 0;
    int rc = store_get_int(input->store, &version, &none,
            "SELECT ifnull(max(g.nccl_version), 0) FROM gpu_process g JOIN process p ON "
            "p.id = g.process_id JOIN recording r ON r.id = p.recording_id "
            "WHERE r.launch_id = ?",
            "i", launch);
    if (rc || version <= 0)
        return NULL;
    // 2.8.4 is 2804, 2.9.6 is 20906.
    int64_t major = version < 10000 ? 1000 : 10000;
    return arena_print(input->arena, "%lld.%lld.%lld", (long long)(version / major),
            (long long)(version % major / 100), (long long)(version % 100));
}

void diff_collectives(const struct diff_input *input, const struct diff_compared *compared,
        struct diff_workload *workload)
{
    struct collectives_sums sums = {0};
    for (int side = 0; side < 2; side++)
        collectives_side(compared, side, &sums);
    size_t count = sums.count;
    workload->collectives = arena_alloc(compared->arena, count + 1, sizeof *workload->collectives);
    for (size_t i = 0; i < count; i++) {
        collectives_ways(compared->arena, &sums.all[i]);
        workload->collectives[i] = sums.all[i].of;
    }
    workload->collective_count = count;
    qsort(workload->collectives, count, sizeof *workload->collectives, collectives_compare);
    for (int side = 0; side < 2 && count; side++)
        workload->nccl_version[side] = collectives_version(input, workload->launches[side]);
    free(sums.all);
}
