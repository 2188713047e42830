// SPDX-License-Identifier: Apache-2.0
// What a contribution is called: after what changed most in it, short, for people. It is a name and
// not a sentence, and so not made in reports/render: parts of one name are added up, rows are
// ordered by it, it is cut to its length as any name is, and it stands within another one. Pure.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "reports/analyse/diff/contribute/contributions.h"
#include "reports/analyse/diff/thresholds.h"
#include "reports/analyse/names/names.h"
#include "reports/analyse/stalls/stalls.h"

enum { LABEL_PARTS = 3 };

// ---- what several kernels of one side are called together: those that take most first ----

// more: of a name, for the number of others
enum { KERNELS_MAX = 64, KERNELS_TOLD = 3, KERNELS_MORE = 4 };

struct kernel { // of one side of several groups, by normalised name
    const char *name, *normal;
    double ns;
};

struct kernels {
    struct kernel of[KERNELS_MAX];
    size_t count;
    bool more; // than fit
};

static void kernels_add(struct kernels *kernels, const struct cost_node *leaf)
{
    for (size_t i = 0; i < kernels->count; i++)
        if (kernels->of[i].name == leaf->name) { // equal texts of a tree are one
            kernels->of[i].ns += (double)leaf->ns;
            return;
        }
    kernels->more |= kernels->count == KERNELS_MAX;
    if (kernels->count < KERNELS_MAX)
        kernels->of[kernels->count++] = (struct kernel){.name = leaf->name, .ns = (double)leaf->ns};
}

// "triton_red_fused_sum_1" and "_4" are one.
static void kernels_merge(struct arena *arena, struct kernels *kernels)
{
    size_t kept = 0;
    for (size_t i = 0; i < kernels->count; i++) {
        char buf[NAMES_LENGTH_MAX] = "";
        size_t same = 0;
        names_normalise(kernels->of[i].name, buf, sizeof buf);
        while (same < kept && strcmp(kernels->of[same].normal, buf) != 0)
            same++;
        if (same < kept) {
            kernels->of[same].ns += kernels->of[i].ns;
            continue;
        }
        kernels->of[kept] = kernels->of[i];
        kernels->of[kept++].normal = arena_copy(arena, buf);
    }
    kernels->count = kept;
}

static int kernels_compare(const void *left, const void *right)
{
    const struct kernel *a = left, *b = right;
    return a->ns > b->ns ? -1 : a->ns < b->ns ? 1 : strcmp(a->normal, b->normal);
}

static void kernels_group(struct kernels *kernels, const struct cost_tree *const trees[2],
        const struct align_group *group, int side)
{
    const struct cost_tree *tree = trees[side];
    const uint32_t *leaves = side ? group->b : group->a;
    for (size_t i = 0; i < (side ? group->count_b : group->count_a); i++)
        kernels_add(kernels, &tree->nodes[leaves[i]]);
}

// The longest `told` of them, each at most `max` bytes.
static const char *kernels_text(
        struct arena *arena, struct kernels *kernels, size_t told, size_t max)
{
    struct strbuf text = {0};
    kernels_merge(arena, kernels);
    size_t less = told == 1 && kernels->count > told ? KERNELS_MORE : 0;
    qsort(kernels->of, kernels->count, sizeof *kernels->of, kernels_compare);
    for (size_t i = 0; i < kernels->count && i < told; i++) {
        char name[NAMES_LENGTH_MAX] = "";
        names_label(kernels->of[i].name, name, sizeof name, max - less);
        strbuf_add(&text, "%s%s", i ? " + " : "", name);
    }
    if (kernels->count > told)
        strbuf_add(&text, " + %zu%s more", kernels->count - told, kernels->more ? " or" : "");
    const char *copy = arena_copy(arena, text.len ? text.text : "nothing");
    strbuf_free(&text);
    return copy;
}

// "GammaBetaBackwardCUDAKer… + 4 more": what took most on a side.
static const char *kernels_side(
        const struct contributions *all, const struct contributions_item *item, int side)
{
    struct kernels kernels = {.count = 0};
    for (size_t i = 0; i < item->count; i++)
        kernels_group(&kernels, all->compared->trees,
                all->groups[all->members[item->first + i]].group, side);
    return kernels_text(all->compared->arena, &kernels, 1, CONTRIBUTIONS_HALF_MAX);
}

const char *contributions_group_side(
        const struct diff_compared *compared, const struct diff_group *group, int side)
{
    struct kernels kernels = {.count = 0};
    kernels_group(&kernels, compared->trees, group->group, side);
    return kernels_text(compared->arena, &kernels, KERNELS_TOLD, CONTRIBUTIONS_LABEL_MAX);
}

// ---- one thing ----

const struct cost_node *contributions_place(
        const struct cost_tree *tree, uint32_t leaf, bool outermost)
{
    uint32_t place = tree->nodes[leaf].parent;
    while (outermost && place != COST_NONE && place != 0 && tree->nodes[place].parent != 0 &&
            tree->nodes[place].parent != COST_NONE)
        place = tree->nodes[place].parent;
    return &tree->nodes[place == COST_NONE ? 0 : place];
}

static const char *label_short(struct arena *arena, const char *name, size_t max)
{
    char text[NAMES_LENGTH_MAX] = "";
    names_label(name, text, sizeof text, max);
    return arena_copy(arena, text);
}

static const char *label_stall(struct arena *arena, const struct cost_node *leaf)
{
    const struct stall_cause *cause = stall_cause_of(leaf->name);
    const char *title = cause ? cause->title : leaf->name;
    return leaf->module ? arena_print(arena, "%s (%s)", title, leaf->module) : title;
}

static const char *label_native(
        const struct diff_compared *compared, const struct diff_group *group)
{
    const char *names[DIFF_DEPTH_MAX];
    size_t depth = diff_place_names(compared->places, 1, group->native_place, names);
    return depth ? arena_print(compared->arena, "what %s computes", names[depth - 1])
                 : "native code";
}

static const char *label_make(struct contributions *all, const struct contributions_item *item,
        const struct diff_group *group)
{
    const struct diff_compared *compared = all->compared;
    const struct cost_tree *tree = compared->trees[group->side];
    const struct cost_node *leaf = &tree->nodes[group->leaf];
    switch (item->kind) {
    case DIFF_HOST_STALL:
        return label_stall(compared->arena, leaf);
    case DIFF_KERNEL_REPLACED:
    case DIFF_CPU_FUNCTION_REPLACED:
        return arena_print(compared->arena, "%s -> %s", kernels_side(all, item, 0),
                kernels_side(all, item, 1));
    case DIFF_CLOCK_THROTTLE:
        return arena_print(compared->arena, "%zu kernels", item->count);
    case DIFF_PARALLELISM:
        return arena_print(compared->arena, "%.0f threads -> %.0f",
                round(compared->parallel[0].threads), round(compared->parallel[1].threads));
    case DIFF_LAUNCH_GAP:
        return arena_print(compared->arena, "launches of %s",
                label_short(
                        compared->arena, contributions_place(tree, group->leaf, true)->name, 40));
    case DIFF_DATA_WAIT:
        return "next batch";
    case DIFF_COMPILE:
        return "torch.compile";
    case DIFF_NATIVE_CODE:
        return label_native(compared, group);
    case DIFF_MEMCPY: // "DtoD" alone is no thing
        return strcmp(leaf->name, "set") == 0 ? "memset"
                : strcmp(leaf->name, "copy") == 0
                ? "copy"
                : arena_print(compared->arena, "%s copy", leaf->name);
    default:
        if (leaf->kind == COST_FUNCTION && leaf->name[0] == '[' && leaf->module)
            return arena_print(compared->arena, "%s in %s", leaf->name,
                    label_short(compared->arena, leaf->module, 40));
        return label_short(compared->arena,
                group->side && group->name_b ? group->name_b
                        : group->name_a      ? group->name_a
                                             : leaf->name,
                CONTRIBUTIONS_LABEL_MAX);
    }
}

// The same Python function at many places keeps its name; several functions together have none.
static const char *label_python(const struct diff_compared *compared,
        const struct diff_group *groups, const uint32_t *members, size_t count)
{
    const char *name = NULL;
    for (size_t i = 0; i < count; i++) {
        const struct diff_group *group = &groups[members[i]];
        const struct cost_node *place =
                contributions_place(compared->trees[group->side], group->leaf, false);
        if (place->kind == COST_ROOT || (name && strcmp(name, place->name) != 0))
            return "Python interpreter";
        name = place->name;
    }
    if (name && strcmp(name, "[gc]") == 0)
        return "garbage collection";
    return name ? label_short(compared->arena, name, CONTRIBUTIONS_LABEL_MAX)
                : "Python interpreter";
}

const char *contributions_label(struct contributions *all, const struct contributions_item *item)
{
    const uint32_t *members = all->members + item->first;
    if (item->kind == DIFF_PYTHON_OVERHEAD)
        return label_python(all->compared, all->groups, members, item->count);
    return label_make(all, item, &all->groups[members[0]]);
}

const char *contributions_label_called(
        struct arena *arena, const struct cost_node *leaf, const char *label, const char *last)
{
    char name[NAMES_LENGTH_MAX] = "";
    if (leaf->kind != COST_FUNCTION || leaf->name[0] != '[' || !last)
        return label;
    names_label(last, name, sizeof name, CONTRIBUTIONS_HALF_MAX);
    return arena_print(arena, "%s, called by %s", label, name);
}

// ---- what is spread over a place ----

// "Block.attend: gemm_kernel, copy_kernel and more": the place, and what makes half of the change
// there, three at most.
static const char *label_place(
        struct arena *arena, const char *place, const struct diff_contribution *made)
{
    char name[NAMES_LENGTH_MAX] = "";
    struct strbuf text = {0};
    double held = 0;
    size_t shown = 0;
    const struct diff_contribution_part *first = &made->parts[0];
    if (first->kind == DIFF_NATIVE_CODE &&
            (first->b_ns - first->a_ns) / made->delta_ns >= diff_most)
        return first->label; // it says the place
    names_label(place, name, sizeof name, CONTRIBUTIONS_HALF_MAX);
    strbuf_add(&text, "%s:", name);
    for (; shown < made->part_count && shown < LABEL_PARTS && held < 0.5; shown++) {
        const struct diff_contribution_part *part = &made->parts[shown];
        names_label(part->label, name, sizeof name, CONTRIBUTIONS_HALF_MAX);
        strbuf_add(&text, "%s %s", shown ? "," : "", name);
        held += (part->b_ns - part->a_ns) / made->delta_ns;
    }
    const char *label =
            arena_print(arena, "%s%s", text.text, shown < made->part_count ? " and more" : "");
    strbuf_free(&text);
    return label;
}

struct part { // of what is spread over a place
    struct diff_contribution_part told;
    enum diff_kind family; // kernels and functions, whatever happened to them
    uint32_t top;          // group
    double sign;           // of the whole
};

static enum diff_kind part_family(enum diff_kind kind)
{
    return kind <= DIFF_KERNEL_REPLACED          ? DIFF_KERNEL_SLOWER
            : kind <= DIFF_CPU_FUNCTION_REPLACED ? DIFF_CPU_FUNCTION_SLOWER
                                                 : kind;
}

static int part_compare_label(const void *left, const void *right)
{
    const struct part *a = left, *b = right;
    int order = strcmp(a->told.label, b->told.label);
    return order                     ? order
            : a->family != b->family ? (int)a->family - (int)b->family
                                     : (a->top > b->top) - (a->top < b->top);
}

static int part_compare(const void *left, const void *right)
{
    const struct part *a = left, *b = right;
    double x = a->sign * (a->told.b_ns - a->told.a_ns), y = b->sign * (b->told.b_ns - b->told.a_ns);
    return x > y ? -1 : x < y ? 1 : part_compare_label(left, right);
}

// A function that one place below lost and another one got is neither added nor removed here.
static size_t parts_merge(struct part *parts, size_t count)
{
    size_t kept = 0;
    qsort(parts, count, sizeof *parts, part_compare_label);
    for (size_t i = 0; i < count; i++) {
        struct part *last = kept ? &parts[kept - 1] : NULL;
        if (!last || last->family != parts[i].family ||
                strcmp(last->told.label, parts[i].told.label) != 0) {
            parts[kept++] = parts[i];
            continue;
        }
        last->told.a_ns += parts[i].told.a_ns;
        last->told.b_ns += parts[i].told.b_ns;
        if (last->family == DIFF_KERNEL_SLOWER || last->family == DIFF_CPU_FUNCTION_SLOWER)
            last->told.kind = last->told.a_ns <= 0 ? last->family + 1
                    : last->told.b_ns <= 0         ? last->family + 2
                                                   : last->family;
    }
    qsort(parts, kept, sizeof *parts, part_compare);
    return kept;
}

// The kind of most of the change. Functions of which some are added, some replaced and some slower
// are work that got slower: "added" is said where it is four fifths of that.
static enum diff_kind parts_kind(const struct diff_contribution *made, double sign)
{
    double sums[DIFF_KIND_COUNT] = {0}, families[DIFF_KIND_COUNT] = {0};
    enum diff_kind best = part_family(made->parts[0].kind);
    for (size_t i = 0; i < made->part_count; i++) {
        double delta = sign * (made->parts[i].b_ns - made->parts[i].a_ns);
        sums[made->parts[i].kind] += delta;
        families[part_family(made->parts[i].kind)] += delta;
    }
    for (int kind = 0; kind < DIFF_KIND_COUNT; kind++)
        if (families[kind] > families[best])
            best = (enum diff_kind)kind;
    enum diff_kind only = best;
    for (int kind = 0; kind < DIFF_KIND_COUNT; kind++)
        if (part_family((enum diff_kind)kind) == best && sums[kind] >= diff_most * families[best])
            only = (enum diff_kind)kind;
    return only;
}

void contributions_parts(struct contributions *all, const struct contributions_item *item,
        struct diff_contribution *made)
{
    const struct diff_compared *compared = all->compared;
    struct part *parts = xcalloc(item->part_count + 1, sizeof *parts);
    double sign = made->delta_ns < 0 ? -1 : 1;
    for (size_t i = 0; i < item->part_count; i++) {
        const struct contributions_item *one = &item->parts[i];
        diff_groups_sort(all->groups, all->members + one->first, one->count);
        parts[i] = (struct part){.told = {.kind = one->kind,
                                         .label = contributions_label(all, one),
                                         .a_ns = one->estimate.a,
                                         .b_ns = one->estimate.b},
                .family = part_family(one->kind),
                .top = all->members[one->first],
                .sign = sign};
    }
    made->part_count = parts_merge(parts, item->part_count);
    made->parts = arena_alloc(compared->arena, made->part_count, sizeof *made->parts);
    for (size_t i = 0; i < made->part_count; i++)
        made->parts[i] = parts[i].told;
    const struct diff_group *top = &all->groups[parts[0].top];
    made->name_a = top->name_a || parts[0].told.a_ns <= 0 ? top->name_a : top->name_b;
    made->name_b = top->name_b || parts[0].told.b_ns <= 0 ? top->name_b : top->name_a;
    made->kind = item->label ? item->whole : parts_kind(made, sign);
    made->label = item->label ? item->label : label_place(compared->arena, item->place, made);
    free(parts);
}
