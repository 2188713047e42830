// SPDX-License-Identifier: Apache-2.0
// Functions without a name in the stacks of a recording: what they are inside of, and whether the
// address they are told by means the same in all that is compared.
#include <stdlib.h>
#include <string.h>

#include "common/containers/arena.h"
#include "common/containers/intern.h"
#include "common/containers/vector.h"
#include "common/strings.h"
#include "reports/analyse/names/names.h"
#include "reports/analyse/trace/trace.h"

// Of a library: the part of its name that its versions share. "libopenblasp-r0.3.21.so" is
// "libopenblasp".
static size_t builds_stem(const char *module)
{
    return strspn(module, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_");
}

enum { BUILDS_UNKNOWN, BUILDS_SEVERAL }; // then numbers of build-ids, plus 2

struct trace_builds {
    struct intern *stems, *ids;
    uint32_t *of_stem;
    size_t count;
};

struct trace_builds *trace_builds_new(void)
{
    struct trace_builds *builds = xcalloc(1, sizeof *builds);
    builds->stems = intern_new();
    builds->ids = intern_new();
    return builds;
}

void trace_builds_free(struct trace_builds *builds)
{
    if (!builds)
        return;
    intern_free(builds->stems);
    intern_free(builds->ids);
    free(builds->of_stem);
    free(builds);
}

static void builds_note(struct trace_builds *builds, const char *module, const char *build_id)
{
    uint32_t stem = intern_number(builds->stems, module, builds_stem(module));
    uint32_t build = build_id ? intern_text(builds->ids, build_id) + 2 : BUILDS_UNKNOWN;
    if (stem == builds->count)
        vector_push(builds->of_stem, builds->count, build);
    else if (builds->of_stem[stem] != build)
        builds->of_stem[stem] = BUILDS_SEVERAL;
}

int trace_builds_read(struct trace_builds *builds, struct store *store, struct error *err)
{
    // With names on one side only it does not matter which build that has.
    sqlite3_stmt *stmt = store_query(store, err,
            "SELECT DISTINCT module, build_id FROM frame WHERE instr(name, '+0x') > 0 AND module IS NOT NULL",
            "");
    int rc;
    while ((rc = store_step(store, stmt, err)) == 1) {
        const char *module = (const char *)sqlite3_column_text(stmt, 0);
        if (module)
            builds_note(builds, module, (const char *)sqlite3_column_text(stmt, 1));
    }
    return rc;
}

bool trace_builds_one(const struct trace_builds *builds, const char *module)
{
    uint32_t stem = module ? intern_find(builds->stems, module, builds_stem(module)) : INTERN_NONE;
    return stem != INTERN_NONE && builds->of_stem[stem] > BUILDS_SEVERAL;
}

int trace_keep_starts(struct trace *trace, struct store *store, struct error *err)
{
    size_t first = 0;
    while (first < trace->frame_count && !trace->frames[first].starts)
        first++;
    if (first == trace->frame_count)
        return 0;
    struct trace_builds *builds = trace_builds_new();
    int rc = trace_builds_read(builds, store, err);
    for (size_t i = first; i < trace->frame_count; i++) {
        struct trace_frame *frame = &trace->frames[i];
        frame->starts = frame->starts && rc == 0 && trace_builds_one(builds, frame->module);
    }
    trace_builds_free(builds);
    return rc;
}

const char *trace_inside(const struct trace *trace, uint32_t stack, uint32_t depth)
{
    const struct trace_stack *row = &trace->stacks[stack];
    if (depth >= row->count)
        return NULL;
    const struct trace_frame *frame = &trace->frames[trace->stack_frames[row->first + depth]];
    struct names_inside inside = {.module = frame->module ? frame->module : ""};
    char text[NAMES_INSIDE_MAX + 1];
    if (frame->kind != 'u' || !names_is_nameless(frame->name))
        return NULL;
    for (uint32_t i = depth + 1; i < row->count; i++) {
        frame = &trace->frames[trace->stack_frames[row->first + i]];
        if (!names_inside_next(&inside, frame->name, frame->module))
            break;
    }
    return names_inside_text(&inside, text, sizeof text) ? arena_copy(trace->arena, text) : NULL;
}

char *trace_leaf_inside(struct store *store, int64_t stack_id)
{
    char text[NAMES_INSIDE_MAX + 1];
    struct names_inside inside = {0};
    struct trace_names *stack = xcalloc(1, sizeof *stack);
    struct arena *arena = arena_new(); // what is found must live until the text is made
    trace_read_stack(store, stack_id, arena, stack, NULL);
    const struct trace_name *leaf = &stack->functions[0];
    bool more = stack->count && stack->kind == 'u' && names_is_nameless(leaf->name);
    inside.module = more && leaf->module ? leaf->module : "";
    for (size_t i = 1; i < stack->count && more; i++)
        more = names_inside_next(&inside, stack->functions[i].name, stack->functions[i].module);
    char *ret = names_inside_text(&inside, text, sizeof text) ? xstrdup(text) : NULL;
    arena_free(arena);
    free(stack);
    return ret;
}
