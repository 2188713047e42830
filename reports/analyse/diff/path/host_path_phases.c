// SPDX-License-Identifier: Apache-2.0
// Steps and phases of each rank as disjoint stretches of time, each with its way of phases, so that
// an instant's place is one binary search. Phases that do not nest are cut at the end of the one
// they began in. Also the calls in which the step thread waits for the device. Reads the launch,
// writes host_path.
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "common/containers/map.h"
#include "common/containers/search.h"
#include "common/containers/vector.h"
#include "reports/analyse/diff/path/host_path_index.h"

enum {
    HOST_NEST_MAX = 32,
    HOST_CHAINS_MAX = 4096 // each thread has a list for each; the harness keeps 1,024 names
};

struct host_open { // a step or phase that has begun
    int64_t end;
    uint32_t chain;
    bool step;
};

struct host_sweep {
    struct host_path *path;
    struct host_rank *rank;
    struct host_open open[HOST_NEST_MAX];
    int depth;
    uint32_t base;
};

static uint32_t host_chain_add(struct host_path *path, uint32_t parent, const char *name)
{
    static const char *const data_words[] = {"data", "load", "batch", "input", "fetch"};
    struct host_chain *chain = vector_add(path->chains, path->chain_count);
    *chain = (struct host_chain){parent, cost_tree_text(path->tree, name), HOST_NONE, false};
    if (parent != HOST_NONE && path->chains[parent].data)
        chain->data = true;
    for (size_t i = 0; name && i < sizeof data_words / sizeof data_words[0]; i++)
        chain->data |= strcasestr(name, data_words[i]) != NULL;
    return (uint32_t)path->chain_count - 1;
}

// Few distinct phases, many of each: looked for among the parent's children.
static uint32_t host_chain_of(struct host_path *path, uint32_t parent, const char *name)
{
    const char *text = cost_tree_text(path->tree, name ? name : "");
    uint64_t key = (uint64_t)(uintptr_t)text * 31 + parent; // equal texts are one
    uint32_t found = map_get(&path->chain_of, key);
    if (found != HOST_NONE && path->chains[found].name == text &&
            path->chains[found].parent == parent)
        return found;
    for (uint32_t i = 0; i < path->chain_count; i++)
        if (path->chains[i].name == text && path->chains[i].parent == parent)
            return i;
    if (path->chain_count >= HOST_CHAINS_MAX) // of a damaged store: a part of what it is in
        return parent == HOST_NONE ? HOST_CHAIN_STEP : parent;
    uint32_t chain = host_chain_add(path, parent, text);
    *map_put(&path->chain_of, key) = chain;
    return chain;
}

static void host_sweep_put(struct host_sweep *sweep, int64_t at)
{
    struct host_rank *rank = sweep->rank;
    uint32_t chain = sweep->depth ? sweep->open[sweep->depth - 1].chain : sweep->base;
    struct host_stretch *last =
            rank->stretch_count ? &rank->stretches[rank->stretch_count - 1] : NULL;
    if (last && last->begin >= at) { // empty: replaced
        last->chain = chain;
        return;
    }
    if (last && last->chain == chain)
        return;
    vector_push(rank->stretches, rank->stretch_count, (struct host_stretch){at, chain});
}

static void host_sweep_close(struct host_sweep *sweep, int64_t until)
{
    while (sweep->depth && sweep->open[sweep->depth - 1].end <= until) {
        int64_t at = sweep->open[--sweep->depth].end;
        host_sweep_put(sweep, at);
    }
}

static void host_sweep_open(
        struct host_sweep *sweep, int64_t begin, int64_t end, const char *name, bool step)
{
    host_sweep_close(sweep, begin);
    struct host_open *top = sweep->depth ? &sweep->open[sweep->depth - 1] : NULL;
    if (end <= begin)
        return;
    if (step && top && top->step) { // requests that overlap
        top->end = end > top->end ? end : top->end;
        return;
    }
    if (sweep->depth == HOST_NEST_MAX)
        return;
    uint32_t below = top ? top->chain : HOST_NONE;
    bool plain = below == HOST_NONE || below == HOST_CHAIN_STEP;
    uint32_t chain = step ? (top ? top->chain : HOST_CHAIN_STEP)
                          : host_chain_of(sweep->path, plain ? HOST_NONE : below, name);
    if (top && !top->step && end > top->end)
        end = top->end;
    sweep->open[sweep->depth++] = (struct host_open){end, chain, step};
    host_sweep_put(sweep, begin);
}

// A phase may end after the step it began in: what encloses is closed first by time, so order by
// end is kept by the cut below.
static void host_sweep_fit(struct host_sweep *sweep)
{
    for (int i = sweep->depth - 1; i > 0; i--)
        if (sweep->open[i].end > sweep->open[i - 1].end)
            sweep->open[i].end = sweep->open[i - 1].end;
}

static void host_phases_rank(struct host_path *path, uint32_t index, size_t *step)
{
    const struct launch_trace *trace = path->trace;
    const struct launch_rank *rank = &trace->ranks[index];
    while (*step < trace->step_count && trace->steps[*step].rank < index)
        (*step)++;
    size_t step_at = *step, step_end = step_at;
    while (step_end < trace->step_count && trace->steps[step_end].rank == index)
        step_end++;
    *step = step_end;
    struct host_sweep sweep = {.path = path,
            .rank = &path->ranks[index],
            .base = step_end > step_at ? HOST_CHAIN_BETWEEN : HOST_CHAIN_STEP};
    host_sweep_put(&sweep, INT64_MIN);
    size_t phase = rank->phase_first, phase_end = phase + rank->phase_count;
    phase_end = phase_end > trace->phase_count ? trace->phase_count : phase_end;
    int64_t last = INT64_MIN;
    while (step_at < step_end || phase < phase_end) {
        bool is_step = phase >= phase_end ||
                (step_at < step_end && trace->steps[step_at].begin <= trace->phases[phase].begin);
        int64_t begin = is_step ? trace->steps[step_at].begin : trace->phases[phase].begin;
        int64_t end = is_step ? trace->steps[step_at].end : trace->phases[phase].end;
        const char *name = is_step ? NULL : trace->phases[phase].name;
        step_at += is_step;
        phase += !is_step;
        begin = begin < last ? last : begin; // damaged: not in order
        last = begin;
        host_sweep_open(&sweep, begin, end, name, is_step);
        host_sweep_fit(&sweep);
    }
    host_sweep_close(&sweep, INT64_MAX);
}

void host_phases_index(struct host_path *path)
{
    host_chain_add(path, HOST_NONE, "step");
    host_chain_add(path, HOST_NONE, NULL); // no phase has this one's name: made by nobody else
    path->chains[HOST_CHAIN_STEP].data = path->chains[HOST_CHAIN_BETWEEN].data = false;
    size_t step = 0;
    for (uint32_t i = 0; i < path->trace->rank_count; i++)
        host_phases_rank(path, i, &step);
}

size_t host_stretch_at(const struct host_path *path, uint32_t rank, int64_t at)
{
    const struct host_rank *row = &path->ranks[rank];
    return search_between(middle, 1, row->stretch_count, row->stretches[middle].begin > at) - 1;
}

uint32_t host_chain_node(struct host_path *path, uint32_t chain)
{
    struct host_chain *row = &path->chains[chain];
    if (row->node != HOST_NONE)
        return row->node;
    uint32_t parent = row->parent == HOST_NONE ? 0 : host_chain_node(path, row->parent);
    const char *name = row->name ? row->name : "step";
    uint32_t node = cost_tree_child(
            path->tree, parent, &(struct cost_key){.kind = COST_PHASE, .name = name});
    path->chains[chain].node = node;
    return node;
}

uint32_t host_path_phase(struct host_path *path, uint32_t rank, int64_t at)
{
    return rank < path->trace->rank_count
            ? host_chain_node(
                      path, path->ranks[rank].stretches[host_stretch_at(path, rank, at)].chain)
            : 0;
}

// ---- calls that wait for the device ----

static bool host_call_waits(const char *name)
{
    static const char *const copies[] = {
            "cudaMemcpy", "cudaMemcpy2D", "cuMemcpyDtoH", "cuMemcpyHtoD"};
    if (!name)
        return false;
    if (strstr(name, "Synchronize"))
        return true;
    for (size_t i = 0; i < sizeof copies / sizeof copies[0]; i++) {
        size_t len = strlen(copies[i]);
        if (!strncmp(name, copies[i], len) && (!name[len] || !strncmp(name + len, "_v", 2)))
            return true;
    }
    return false;
}

void host_syncs_index(struct host_path *path, uint32_t index)
{
    const struct launch_trace *trace = path->trace;
    struct host_rank *rank = &path->ranks[index];
    for (size_t i = 0; i < trace->call_count; i++) {
        const struct launch_call *call = &trace->calls[i];
        if (call->rank != index || call->thread == LAUNCH_TRACE_NONE ||
                call->thread != trace->ranks[index].thread || call->end <= call->begin ||
                !host_call_waits(call->name))
            continue;
        int64_t begin = call->begin;
        if (rank->sync_count && rank->syncs[rank->sync_count - 1].end > begin) // one within another
            begin = rank->syncs[rank->sync_count - 1].end;
        if (begin >= call->end)
            continue;
        rank->sync_names =
                vector_room(rank->sync_names, rank->sync_count, sizeof *rank->sync_names);
        rank->sync_names[rank->sync_count] = cost_tree_text(path->tree, call->name);
        vector_push(rank->syncs, rank->sync_count, (struct trace_window){begin, call->end});
    }
}

size_t host_sync_from(const struct host_rank *rank, int64_t at)
{
    return search_first(middle, rank->sync_count, rank->syncs[middle].end > at);
}
