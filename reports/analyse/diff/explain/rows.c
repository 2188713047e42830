// SPDX-License-Identifier: Apache-2.0
// The table of everything: each kernel, function, stall and gap of both sides, aligned, one row a
// name whatever its places, with its time on the path, its busy time and its executions a step.
// Pure.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "reports/analyse/diff/explain/explain.h"
#include "reports/analyse/names/names.h"

enum { ROWS_LABEL_MAX = 80 };

static char *rows_text(const struct cost_tree *const trees[2], const struct diff_group *group)
{
    const struct cost_node *leaf = diff_leaf(trees, group);
    char a[NAMES_LENGTH_MAX] = "", b[NAMES_LENGTH_MAX] = "";
    if (group->name_a)
        names_normalise(group->name_a, a, sizeof a);
    if (group->name_b)
        names_normalise(group->name_b, b, sizeof b);
    return xasprintf("%d|%d|%d|%s|%s|%s", leaf->kind, leaf->class, group->group->match, a, b,
            leaf->kind == COST_STALL && leaf->module ? leaf->module : "");
}

static int rows_compare(const void *left, const void *right)
{
    const struct diff_row *a = left, *b = right;
    double x = (isnan(a->a_ns) ? 0 : a->a_ns) + (isnan(a->b_ns) ? 0 : a->b_ns);
    double y = (isnan(b->a_ns) ? 0 : b->a_ns) + (isnan(b->b_ns) ? 0 : b->b_ns);
    if (x != y)
        return x > y ? -1 : 1;
    int order = strcmp(a->label, b->label);
    return order ? order : strcmp(a->where, b->where);
}

static void rows_put(double *to, double value)
{
    *to = isnan(*to) ? value : *to + value;
}

static void rows_fill(const struct diff_compared *compared, const struct diff_group *groups,
        const struct diff_key *keys, size_t count, struct diff_row *row)
{
    uint32_t *members = xcalloc(count, sizeof *members);
    const struct diff_group *top = &groups[keys[0].group];
    const struct cost_node *leaf = diff_leaf(compared->trees, top);
    bool counted = leaf->kind != COST_FUNCTION && leaf->kind != COST_GAP;
    *row = (struct diff_row){.name_a = top->name_a,
            .name_b = top->name_b,
            .kind = leaf->kind,
            .class = leaf->class,
            .match = top->group->match,
            .a_ns = NAN,
            .b_ns = NAN,
            .busy_a_ns = NAN,
            .busy_b_ns = NAN,
            .count_a = NAN,
            .count_b = NAN};
    for (size_t i = 0; i < count; i++) {
        const struct diff_group *group = &groups[keys[i].group];
        members[i] = keys[i].group;
        if (group->group->count_a) {
            rows_put(&row->a_ns, group->a);
            rows_put(&row->busy_a_ns, group->busy_a);
            if (counted)
                rows_put(&row->count_a, group->count_a);
        }
        if (group->group->count_b) {
            rows_put(&row->b_ns, group->b);
            rows_put(&row->busy_b_ns, group->busy_b);
            if (counted)
                rows_put(&row->count_b, group->count_b);
        }
    }
    char label[NAMES_LENGTH_MAX] = "";
    names_short(row->name_b       ? row->name_b
                    : row->name_a ? row->name_a
                                  : leaf->name,
            label, sizeof label, ROWS_LABEL_MAX);
    row->label = arena_copy(compared->arena, label);
    row->where = diff_where(compared->places, groups, members, count, NULL);
    free(members);
}

struct diff_row *diff_rows_make(
        const struct diff_compared *compared, const struct diff_group *groups, size_t *ret_count)
{
    size_t count = compared->alignment->count, kept = 0;
    struct diff_key *keys = xcalloc(count + 1, sizeof *keys);
    for (size_t i = 0; i < count; i++)
        keys[i] = (struct diff_key){rows_text(compared->trees, &groups[i]), (uint32_t)i};
    diff_keys_sort(keys, count);
    struct diff_row *rows = arena_alloc(compared->arena, count + 1, sizeof *rows);
    for (size_t i = 0; i < count;) {
        size_t end = i + 1;
        while (end < count && strcmp(keys[end].text, keys[i].text) == 0)
            end++;
        struct diff_row *row = &rows[kept];
        rows_fill(compared, groups, keys + i, end - i, row);
        kept += row->a_ns > 0 || row->b_ns > 0 || row->busy_a_ns > 0 || row->busy_b_ns > 0;
        i = end;
    }
    qsort(rows, kept, sizeof *rows, rows_compare);
    for (size_t i = 0; i < count; i++)
        free(keys[i].text);
    free(keys);
    *ret_count = kept;
    return rows;
}
