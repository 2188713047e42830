// SPDX-License-Identifier: Apache-2.0
// What several kernels of one side are called together: those that take most first, by name, for people. Pure.
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "reports/analyse/diff/contribute/contributions.h"
#include "reports/analyse/names/names.h"

enum { KERNELS_MAX = 64, KERNELS_TOLD = 3, KERNELS_MORE = 4 }; // more: of a name, for the number of others

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
        kernels->of[kernels->count++] =
            (struct kernel){.name = leaf->name, .ns = (double)leaf->ns};
}

// "triton_red_fused_sum_1" and "_4" are one.
static void kernels_merge(struct diff_job *job, struct kernels *kernels)
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
        kernels->of[kept++].normal = arena_copy(job->arena, buf);
    }
    kernels->count = kept;
}

static int kernels_compare(const void *left, const void *right)
{
    const struct kernel *a = left, *b = right;
    return a->ns > b->ns ? -1 : a->ns < b->ns ? 1 : strcmp(a->normal, b->normal);
}

static void kernels_group(struct kernels *kernels, const struct diff_job *job,
                          const struct align_group *group, int side)
{
    const struct cost_tree *tree = job->workload->trees[side];
    const uint32_t *leaves = side ? group->b : group->a;
    for (size_t i = 0; i < (side ? group->count_b : group->count_a); i++)
        kernels_add(kernels, &tree->nodes[leaves[i]]);
}

// The longest `told` of them, each at most `max` bytes.
static const char *kernels_text(struct diff_job *job, struct kernels *kernels, size_t told, size_t max)
{
    struct strbuf text = {0};
    kernels_merge(job, kernels);
    size_t less = told == 1 && kernels->count > told ? KERNELS_MORE : 0;
    qsort(kernels->of, kernels->count, sizeof *kernels->of, kernels_compare);
    for (size_t i = 0; i < kernels->count && i < told; i++) {
        char name[NAMES_LENGTH_MAX] = "";
        names_label(kernels->of[i].name, name, sizeof name, max - less);
        strbuf_add(&text, "%s%s", i ? " + " : "", name);
    }
    if (kernels->count > told)
        strbuf_add(&text, " + %zu%s more", kernels->count - told, kernels->more ? " or" : "");
    const char *copy = arena_copy(job->arena, text.len ? text.text : "nothing");
    strbuf_free(&text);
    return copy;
}

const char *contributions_side(const struct contributions *all, const struct contributions_item *item,
                               int side)
{
    struct kernels kernels = {.count = 0};
    for (size_t i = 0; i < item->count; i++)
        kernels_group(&kernels, all->job, all->groups[all->members[item->first + i]].group, side);
    return kernels_text(all->job, &kernels, 1, CONTRIBUTIONS_HALF_MAX);
}

const char *contributions_group_side(struct diff_job *job, const struct diff_group *group, int side)
{
    struct kernels kernels = {.count = 0};
    kernels_group(&kernels, job, group->group, side);
    return kernels_text(job, &kernels, KERNELS_TOLD, CONTRIBUTIONS_LABEL_MAX);
}
