// SPDX-License-Identifier: Apache-2.0
// The places of operations: the phase in which the host made the call, and the module that Python
// ran on the calling thread then; without phases and modules, ranges of NVTX. Both are time lines
// made beforehand, with a cursor each, as calls come nearly in the order of time. A node of a graph
// has the module of its capture. One rank; one owner thread.
#include <stdlib.h>
#include <string.h>

#include "common/containers/map.h"
#include "common/containers/search.h"
#include "common/containers/sort.h"
#include "common/containers/vector.h"
#include "common/strings.h"
#include "contracts/spool.h"
#include "reports/analyse/diff/path/gpu_path_parts.h"

enum { RANGES_DEEP_MAX = 16 }; // nested NVTX ranges

struct module { // what ran on a thread; [0]: nothing known
    const char *name;
    uint32_t parent; // of ranges: the one around it; 0
    bool backward, range;
};

enum { PLACES_RECENT = 256 }; // of a few hundred modules

struct gpu_places {
    struct place_recent {
        uint32_t phase, module, place;
    } recent[PLACES_RECENT];
    struct module *modules;
    uint32_t *line_of; // by thread, the last one for those not known; COST_NONE
    struct map module_map, place_map;
    size_t module_count, line_count, thread_count;
};

static uint32_t module_of(
        struct gpu_path *path, const char *name, bool backward, bool range, uint32_t parent)
{
    struct gpu_places *places = path->places;
    if (!name || !*name)
        return parent;
    name = cost_tree_text(path->tree, name);
    uint64_t key = (uint64_t)(uintptr_t)name ^ (uint64_t)parent << 50;
    uint32_t *slot;
    for (key = key << 2 | (uint64_t)backward << 1 | range;; key += 4) {
        slot = map_put(&places->module_map, key);
        if (*slot == COST_NONE)
            break;
        const struct module *there = &places->modules[*slot];
        if (there->name == name && there->backward == backward && there->range == range &&
                there->parent == parent)
            return *slot;
    }
    *slot = (uint32_t)places->module_count;
    vector_push(places->modules, places->module_count,
            (struct module){.name = name, .backward = backward, .range = range, .parent = parent});
    return *slot;
}

static size_t thread_slot(const struct gpu_places *places, uint32_t thread)
{
    return thread < places->thread_count ? thread : places->thread_count;
}

static struct gpu_timeline *line_of(struct gpu_path *path, uint32_t thread)
{
    struct gpu_places *places = path->places;
    uint32_t *line = &places->line_of[thread_slot(places, thread)];
    if (*line == COST_NONE) {
        *line = (uint32_t)places->line_count;
        vector_push(path->lines, places->line_count, (struct gpu_timeline){0});
        gpu_timeline_add(&path->lines[*line], 0, 0);
    }
    return &path->lines[*line];
}

// Digits of a range are its iteration more often than not: "step 17" of each step is one place.
static void range_name(const char *name, char *buf, size_t size)
{
    size_t length = 0;
    for (bool digit = false; *name && length + 1 < size; name++) {
        bool is = *name >= '0' && *name <= '9';
        if (!is || !digit)
            buf[length++] = is ? '*' : *name;
        digit = is;
    }
    buf[length] = 0;
}

static int by_thread_and_begin(const void *left, const void *right)
{
    const struct launch_range *a = left, *b = right;
    if (a->thread != b->thread)
        return a->thread < b->thread ? -1 : 1;
    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    return (a->end < b->end) - (a->end > b->end); // the outer one first
}

static void ranges_close(struct gpu_timeline *line, const struct launch_range **open,
        const uint32_t *modules, int *deep, int64_t until)
{
    for (; *deep && open[*deep - 1]->end <= until; --*deep)
        gpu_timeline_add(line, open[*deep - 1]->end, *deep > 1 ? modules[*deep - 2] : 0);
}

static void ranges_load(struct gpu_path *path)
{
    const struct launch_trace *trace = path->trace;
    struct launch_range *ranges = xcalloc(trace->range_count + 1, sizeof *ranges);
    const struct launch_range *open[RANGES_DEEP_MAX];
    uint32_t modules[RANGES_DEEP_MAX];
    int deep = 0;
    struct gpu_timeline *line = NULL;
    if (trace->range_count)
        memcpy(ranges, trace->ranges, trace->range_count * sizeof *ranges);
    qsort(ranges, trace->range_count, sizeof *ranges, by_thread_and_begin);
    for (size_t i = 0; i < trace->range_count; i++) {
        const struct launch_range *range = &ranges[i];
        if (!i || range->thread != ranges[i - 1].thread) {
            if (line)
                ranges_close(line, open, modules, &deep, INT64_MAX);
            deep = 0;
            line = line_of(path, range->thread);
        }
        ranges_close(line, open, modules, &deep, range->begin);
        if (deep == RANGES_DEEP_MAX || range->end <= range->begin ||
                (deep && range->end > open[deep - 1]->end))
            continue; // crossing ranges: the outer one stays
        char name[256];
        range_name(range->name ? range->name : "", name, sizeof name);
        modules[deep] = module_of(path, name, false, true, deep ? modules[deep - 1] : 0);
        open[deep] = range;
        gpu_timeline_add(line, range->begin, modules[deep++]);
    }
    if (line)
        ranges_close(line, open, modules, &deep, INT64_MAX);
    free(ranges);
}

static void modules_load(struct gpu_path *path)
{
    enum { SEEN = 256 };
    struct seen {
        const char *name;
        uint32_t module;
        uint8_t kind;
    } seen[SEEN] = {{0}}; // no mark of a module has kind 0
    const struct launch_trace *trace = path->trace;
    struct gpu_places *places = path->places;
    places->thread_count = trace->host ? trace->host->thread_count : 0;
    places->line_of = xcalloc(places->thread_count + 1, sizeof *places->line_of);
    memset(places->line_of, 0xff, (places->thread_count + 1) * sizeof *places->line_of);
    vector_push(places->modules, places->module_count, (struct module){0}); // [0]: none
    bool any = trace->ranks[path->rank].phase_count > 0;
    for (size_t i = 0; i < trace->mark_count; i++) {
        const struct launch_mark *mark = &trace->marks[i];
        if (mark->rank != path->rank ||
                (mark->kind != UG_MARK_MODULE && mark->kind != UG_MARK_BACKWARD))
            continue;
        struct seen *known = &seen[((uintptr_t)mark->name >> 3 ^ mark->kind) % SEEN];
        // a name is one text of the trace: millions of marks share few
        if (known->name != mark->name || known->kind != mark->kind)
            *known = (struct seen){mark->name,
                    module_of(path, mark->name, mark->kind == UG_MARK_BACKWARD, false, 0),
                    mark->kind};
        gpu_timeline_add(line_of(path, mark->thread), mark->at, known->module);
        any = true;
    }
    if (!any)
        ranges_load(path);
}

// Phases change where one begins or ends. Which one it is at a time, the host's path says: host
// leaves go to the same places.
static void phases_load(struct gpu_path *path)
{
    const struct launch_trace *trace = path->trace;
    const struct launch_rank *rank = &trace->ranks[path->rank];
    const struct launch_phase *phases = trace->phases ? trace->phases + rank->phase_first : NULL;
    size_t count = 0;
    int64_t *times = xcalloc(rank->phase_count * (size_t)2 + 1, sizeof *times);
    for (uint32_t i = 0; i < rank->phase_count; i++) {
        times[count++] = phases[i].begin;
        times[count++] = phases[i].end;
    }
    sort_in_place(times, count, x, y, *x < *y);
    gpu_timeline_add(
            &path->phases, 0, host_path_phase(path->host, path->rank, count ? times[0] - 1 : 0));
    for (size_t i = 0; i < count; i++)
        if (!i || times[i] != times[i - 1])
            gpu_timeline_add(
                    &path->phases, times[i], host_path_phase(path->host, path->rank, times[i]));
    free(times);
}

static uint32_t module_node(struct gpu_path *path, uint32_t phase, uint32_t module)
{
    const struct module *at = &path->places->modules[module];
    if (!module)
        return phase;
    if (at->range) {
        uint32_t above = module_node(path, phase, at->parent); // at most RANGES_DEEP_MAX deep
        return cost_tree_child(
                path->tree, above, &(struct cost_key){.kind = COST_RANGE, .name = at->name});
    }
    if (at->backward && strcmp(path->tree->nodes[phase].name, "backward"))
        phase = cost_tree_child(
                path->tree, phase, &(struct cost_key){.kind = COST_PHASE, .name = "backward"});
    return cost_tree_child(
            path->tree, phase, &(struct cost_key){.kind = COST_MODULE, .name = at->name});
}

uint32_t gpu_place_find(struct gpu_path *path, uint32_t phase, uint32_t module)
{
    struct gpu_places *places = path->places;
    struct place_recent *recent = &places->recent[(module + 37 * phase) % PLACES_RECENT];
    if (recent->phase != phase || recent->module != module) {
        uint32_t *slot = map_put(&places->place_map, (uint64_t)phase << 32 | module);
        if (*slot == COST_NONE)
            *slot = module_node(path, phase, module);
        *recent = (struct place_recent){phase, module, *slot};
    }
    path->last_phase = phase;
    path->last_module = module;
    return path->last_place = recent->place;
}

int64_t gpu_place_phase_end(struct gpu_path *path, int64_t at)
{
    struct gpu_timeline *phases = &path->phases;
    gpu_timeline_at(phases, at);
    return phases->cursor + 1 < phases->count ? phases->at[phases->cursor + 1] : INT64_MAX;
}

uint32_t gpu_place_line(const struct gpu_path *path, uint32_t thread)
{
    return path->places->line_of[thread_slot(path->places, thread)];
}

static uint32_t gpu_place_module(struct gpu_path *path, uint32_t line, int64_t at)
{
    return line == COST_NONE ? 0 : gpu_timeline_at(&path->lines[line], at);
}

uint32_t gpu_place_at(struct gpu_path *path, uint32_t thread, int64_t at)
{
    return gpu_place_of(path, gpu_place_phase(path, at),
            gpu_place_module(path, gpu_place_line(path, thread), at));
}

bool gpu_place_captured(struct gpu_path *path, uint64_t node, uint32_t *ret_module)
{
    const struct launch_trace *trace = path->trace;
    const struct launch_node *nodes = trace->nodes; // by node, then rank
    size_t i = search_first(middle, trace->node_count,
            nodes[middle].node > node ||
                    (nodes[middle].node == node && nodes[middle].rank >= path->rank));
    if (i == trace->node_count || nodes[i].node != node || nodes[i].rank != path->rank)
        return false;
    *ret_module = gpu_place_module(path, gpu_place_line(path, nodes[i].thread), nodes[i].at);
    return true;
}

struct gpu_places *gpu_places_new(struct gpu_path *path)
{
    struct gpu_places *places = path->places = xcalloc(1, sizeof *places);
    path->last_phase = path->last_module = COST_NONE;
    memset(places->recent, 0xff, sizeof places->recent);
    phases_load(path);
    modules_load(path);
    return places;
}

void gpu_places_free(struct gpu_path *path)
{
    struct gpu_places *places = path->places;
    if (!places)
        return;
    for (size_t i = 0; i < places->line_count; i++)
        gpu_timeline_free(&path->lines[i]);
    gpu_timeline_free(&path->phases);
    map_free(&places->module_map);
    map_free(&places->place_map);
    free(places->modules);
    free(path->lines);
    free(places->line_of);
    free(places);
}
