// SPDX-License-Identifier: Apache-2.0
// Flame graphs of a workload: time on the CPU from the samples of all threads of the target, time
// lost off the CPU from the parts of the stall analysis, both sides in one tree each, in ns of a
// step. A stack reads from the outermost Python function in: Python frames, below them the native
// frames the innermost one called, then the kernel's. Reads the store through the loaders of
// traces.
#include <stdlib.h>
#include <string.h>

#include "common/containers/search.h"
#include "common/strings.h"
#include "reports/analyse/names/names.h"
#include "reports/analyse/stalls/launch_work.h"
#include "reports/render/html/flame/html_tree.h"

static const double flame_narrow =
        0.0001; // of the time: zoomed in ten times such a frame is one pixel wide

// The launch that is being folded into the trees, and what is known of its frames.
struct flame_source {
    const struct trace *trace;
    const struct work *work;
    struct trace_window *windows; // that count, without overlaps, by begin
    size_t window_count;
    uint32_t *names;    // of each frame of the trace, + 1
    uint32_t *nameless; // of each of its stack_frames that has no name, + 1: what that is called
                        // depends on the stack
    bool *python;       // of each thread: some of its samples have a Python stack
    int side;
};

struct flame {
    struct html_names *names;
    struct html_tree *trees[2]; // on the CPU, off it
    double steps[2];            // of each side, over all launches
    bool sides[2];
};

static int flame_compare(const void *left, const void *right)
{
    const struct trace_window *a = left, *b = right;
    return a->begin < b->begin ? -1 : a->begin > b->begin;
}

// Ranks step side by side: their windows are merged, so that no instant counts twice.
static void flame_merge(struct flame_source *source)
{
    if (source->window_count)
        qsort(source->windows, source->window_count, sizeof *source->windows, flame_compare);
    size_t count = 0;
    for (size_t i = 0; i < source->window_count; i++) {
        struct trace_window *last = count ? &source->windows[count - 1] : NULL;
        if (last && source->windows[i].begin <= last->end) {
            if (source->windows[i].end > last->end)
                last->end = source->windows[i].end;
        } else {
            source->windows[count++] = source->windows[i];
        }
    }
    source->window_count = count;
}

// The first window that ends after an instant.
static size_t flame_window_from(const struct flame_source *source, int64_t at)
{
    return search_first(middle, source->window_count, source->windows[middle].end > at);
}

static int64_t flame_overlap(const struct flame_source *source, int64_t begin, int64_t end)
{
    int64_t ns = 0;
    for (size_t i = flame_window_from(source, begin);
            i < source->window_count && source->windows[i].begin < end; i++)
        ns += parts_overlap(begin, end, source->windows[i].begin, source->windows[i].end);
    return ns;
}

// What has no symbol is told by what it is inside of. Its address says something, and tells two
// functions of a library apart, where both sides have the same build.
static uint32_t flame_nameless(
        struct flame *flame, struct flame_source *source, uint32_t stack, uint32_t depth)
{
    const struct trace *trace = source->trace;
    uint32_t at = trace->stacks[stack].first + depth;
    if (source->nameless[at])
        return source->nameless[at] - 1;
    const struct trace_frame *frame = &trace->frames[trace->stack_frames[at]];
    const char *inside = trace_inside(trace, stack, depth);
    int len = (int)(frame->starts ? strlen(frame->name)
                                  : (size_t)(strrchr(frame->name, '+') - frame->name));
    char *text = inside     ? xasprintf("%.*s (inside %s)", len, frame->name, inside)
            : frame->starts ? xstrdup(frame->name)
                            : xasprintf("%.*s (no symbol)", len, frame->name);
    uint32_t name = html_names_add(flame->names, text);
    free(text);
    source->nameless[at] = name + 1;
    return name;
}

// A function is the same in both versions though its templates' arguments moved: the first one's
// name stands for both. A file says which of many functions called "forward" it is.
static uint32_t flame_name(struct flame *flame, struct flame_source *source, uint32_t id)
{
    if (source->names[id])
        return source->names[id] - 1;
    const struct trace_frame *frame = &source->trace->frames[id];
    const char *file = frame->module ? string_base_name(frame->module) : NULL;
    char key[NAMES_LENGTH_MAX];
    uint32_t name;
    if (file && strcmp(file, frame->name) != 0 && (frame->kind == 'p' || frame->name[0] == '[')) {
        char *text = xasprintf("%s (%s)", frame->name, file);
        name = html_names_add(flame->names, text);
        free(text);
    } else {
        names_normalise(frame->name, key, sizeof key);
        name = html_names_add_as(flame->names, key, frame->name);
    }
    source->names[id] = name + 1;
    return name;
}

static bool flame_is_eval(const char *name)
{
    return strncmp(name, "_PyEval_EvalFrame", 17) == 0 ||
            strncmp(name, "PyEval_EvalFrame", 16) == 0;
}

// Frames of a stack below `node`, outermost first, the innermost `count` of them.
static uint32_t flame_frames(struct flame *flame, struct flame_source *source,
        struct html_tree *tree, uint32_t node, uint32_t stack, uint32_t count,
        enum html_frame_kind kind)
{
    const struct trace_stack *row = &source->trace->stacks[stack];
    uint32_t before = UINT32_MAX;
    for (uint32_t i = count < row->count ? count : row->count; i > 0; i--) {
        uint32_t id = source->trace->stack_frames[row->first + i - 1];
        const char *text = source->trace->frames[id].name;
        bool nameless = names_is_nameless(text);
        uint32_t name = nameless ? flame_nameless(flame, source, stack, i - 1)
                                 : flame_name(flame, source, id);
        if (name != before || !(nameless || text[0] == '[')) // ten frames of one library without
                                                             // symbols say no more than one
            node = html_tree_child(tree, node, name, kind);
        before = name;
    }
    return node;
}

// Native frames that the innermost Python function called; all of them where no interpreter is in
// the stack.
static uint32_t flame_below_python(
        const struct flame_source *source, uint32_t stack, bool *ret_eval)
{
    const struct trace_stack *row = &source->trace->stacks[stack];
    for (uint32_t i = 0; i < row->count; i++) {
        if (flame_is_eval(
                    source->trace->frames[source->trace->stack_frames[row->first + i]].name)) {
            *ret_eval = true;
            return i;
        }
    }
    *ret_eval = false;
    return row->count;
}

static uint32_t flame_stack(struct flame *flame, struct flame_source *source,
        struct html_tree *tree, uint32_t node, uint32_t thread, uint32_t python, uint32_t user,
        uint32_t kernel)
{
    bool eval = false;
    uint32_t native = flame_below_python(source, user, &eval);
    if (python)
        node = flame_frames(flame, source, tree, node, python, UINT32_MAX, HTML_FRAME_PYTHON);
    else if (eval || source->python[thread])
        node = html_tree_child(tree, node, html_names_add(flame->names, "(Python stack not read)"),
                HTML_FRAME_PLACE);
    node = flame_frames(flame, source, tree, node, user, native, HTML_FRAME_NATIVE);
    return flame_frames(flame, source, tree, node, kernel, UINT32_MAX, HTML_FRAME_KERNEL);
}

static void flame_on_cpu(struct flame *flame, struct flame_source *source)
{
    const struct trace *trace = source->trace;
    for (size_t i = 0; i < trace->sample_count; i++) {
        const struct trace_sample *sample = &trace->samples[i];
        size_t window = flame_window_from(source, sample->at);
        // why: only the target's own ticks count as its time; others were looked at as owners of
        // locks.
        if (!trace_is_target(trace, sample->thread) || !(sample->why & UG_SAMPLE_TARGET) ||
                window == source->window_count || source->windows[window].begin > sample->at)
            continue;
        uint32_t node = flame_stack(flame, source, flame->trees[0], 0, sample->thread,
                sample->python, sample->user, sample->kernel);
        html_tree_add(flame->trees[0], node, source->side, (double)trace->tick_ns);
    }
}

// Waits with nothing to do are no part of any cause and so not here.
static void flame_off_cpu(struct flame *flame, struct flame_source *source)
{
    for (size_t i = 0; i < source->work->part_count; i++) {
        const struct part *part = &source->work->parts[i];
        int64_t ns = flame_overlap(source, part->begin, part->end);
        if (part->gap == TRACE_NONE || part->cause >= CAUSE_COUNT || ns <= 0)
            continue;
        const struct trace_gap *gap = &source->trace->gaps[part->gap];
        uint32_t node = html_tree_child(flame->trees[1], 0,
                html_names_add(flame->names, causes_row(part->cause)->title), HTML_FRAME_PLACE);
        node = flame_stack(flame, source, flame->trees[1], node, gap->thread, gap->python,
                gap->user, gap->kernel);
        html_tree_add(flame->trees[1], node, source->side, (double)ns);
    }
}

static void flame_fold(struct flame *flame, struct flame_source *source, double steps)
{
    flame_merge(source);
    source->names = xcalloc(source->trace->frame_count + 1, sizeof *source->names);
    source->nameless = xcalloc(source->trace->stack_frame_count + 1, sizeof *source->nameless);
    source->python = xcalloc(source->trace->thread_count + 1, sizeof *source->python);
    for (size_t i = 0; i < source->trace->sample_count; i++)
        source->python[source->trace->samples[i].thread] |= source->trace->samples[i].python != 0;
    flame_on_cpu(flame, source);
    flame_off_cpu(flame, source);
    flame->steps[source->side] += steps;
    flame->sides[source->side] = true;
    free(source->names);
    free(source->nameless);
    free(source->python);
    free(source->windows);
}

// Steps of the launch that its windows hold: those of the rank that has most.
static double flame_launch_steps(const struct launch_trace *launch)
{
    uint64_t most = 0;
    for (size_t rank = 0; rank < launch->rank_count; rank++) {
        uint64_t steps = 0;
        for (uint32_t i = 0; i < launch->ranks[rank].window_count; i++)
            steps += launch->windows[launch->ranks[rank].window_first + i].steps;
        most = steps > most ? steps : most;
    }
    return (double)most;
}

static int flame_launch(struct store *store, struct flame *flame, const struct html_launch *launch,
        struct error *err)
{
    struct launch_trace *loaded = NULL;
    int rc = launch_work_load(
            store, launch->launch_id, &(struct launch_trace_opts){.host_only = true}, &loaded, err);
    if (rc)
        return rc;
    if (loaded->host) {
        struct flame_source source = {
                .trace = loaded->host, .work = loaded->host_work, .side = launch->side};
        source.window_count = loaded->window_count;
        source.windows = xcalloc(loaded->window_count + 1, sizeof *source.windows);
        for (size_t i = 0; i < loaded->window_count; i++)
            source.windows[i] =
                    (struct trace_window){loaded->windows[i].begin, loaded->windows[i].end};
        flame_fold(flame, &source, flame_launch_steps(loaded));
    }
    launch_work_free(loaded);
    return 0;
}

static int flame_recording(struct store *store, struct flame *flame,
        const struct html_launch *launch, struct error *err)
{
    struct arena *arena = arena_new();
    struct trace *trace = NULL;
    int rc = trace_load(store, launch->recording_id, arena, &trace, err);
    if (rc == 0) {
        struct work work;
        work_init(&work, trace);
        work_find(&work);
        struct flame_source source = {
                .trace = trace, .work = &work, .window_count = trace->window_count};
        source.windows = xcalloc(trace->window_count + 1, sizeof *source.windows);
        memcpy(source.windows, trace->windows, trace->window_count * sizeof *source.windows);
        flame_fold(flame, &source, trace->step_count ? (double)trace->step_count : 1);
        work_free(&work);
        trace_free(trace);
    }
    arena_free(arena);
    return rc;
}

static json_t *flame_json(const struct flame *flame, int off, size_t nodes_max)
{
    const struct html_tree *tree = flame->trees[off];
    if (html_tree_total(tree, 0) <= 0 && html_tree_total(tree, 1) <= 0)
        return NULL;
    json_t *item = render_json_set(json_object(), "id", json_string(off ? "off_cpu" : "cpu"),
            "title", json_string(off ? "Off the CPU: waits that held up the work" : "On the CPU"),
            "unit", json_string("ns"), NULL);
    double narrow = flame_narrow;
    html_tree_write(tree, flame->names, flame->steps, flame->sides, narrow, item);
    for (; json_array_size(json_object_get(item, "parent")) > nodes_max && narrow < 0.1;
            narrow *= 2)
        html_tree_write(tree, flame->names, flame->steps, flame->sides, 2 * narrow, item);
    return item;
}

int html_flames(struct store *store, const struct html_launch *launches, size_t count,
        size_t nodes_max, json_t **ret_flames, struct error *err)
{
    struct flame flame = {.names = html_names_new(), .trees = {html_tree_new(), html_tree_new()}};
    int rc = 0;
    for (size_t i = 0; i < count && rc == 0; i++)
        rc = launches[i].side < 0 ? flame_recording(store, &flame, &launches[i], err)
                                  : flame_launch(store, &flame, &launches[i], err);
    if (rc == 0) {
        *ret_flames = json_array();
        for (int off = 0; off < 2; off++) {
            json_t *item = flame_json(&flame, off, nodes_max);
            if (item)
                json_array_append_new(*ret_flames, item);
        }
    }
    html_tree_free(flame.trees[0]);
    html_tree_free(flame.trees[1]);
    html_names_free(flame.names);
    return rc;
}
