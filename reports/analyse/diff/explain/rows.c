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

static char *rows_text(const struct diff_job *job, const struct diff_group *group)
{
    const struct cost_node *leaf = diff_leaf(job, group);
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

static void rows_fill(struct diff_job *job, const struct diff_group *groups,
        const struct diff_key *keys, size_t count, struct diff_row *row)
{
    uint32_t *members = xcalloc(count, sizeof *members);
    const struct diff_group *top = &groups[keys[0].group];
    const struct cost_node *leaf = diff_leaf(job, top);
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
    row->label = arena_copy(job->arena, label);
    row->where = diff_where(job, groups, members, count, NULL);
    free(members);
}

void diff_rows_make(struct diff_job *job, const struct diff_group *groups)
{
    struct diff_workload *workload = job->workload;
    size_t count = workload->alignment->count;
    struct diff_key *keys = xcalloc(count + 1, sizeof *keys);
    for (size_t i = 0; i < count; i++)
        keys[i] = (struct diff_key){rows_text(job, &groups[i]), (uint32_t)i};
    diff_keys_sort(keys, count);
    workload->rows = arena_alloc(job->arena, count + 1, sizeof *workload->rows);
    for (size_t i = 0; i < count;) {
        size_t end = i + 1;
        while (end < count && strcmp(keys[end].text, keys[i].text) == 0)
            end++;
        struct diff_row *row = &workload->rows[workload->row_count];
        rows_fill(job, groups, keys + i, end - i, row);
        workload->row_count +=
                row->a_ns > 0 || row->b_ns > 0 || row->busy_a_ns > 0 || row->busy_b_ns > 0;
        i = end;
    }
    qsort(workload->rows, workload->row_count, sizeof *workload->rows, rows_compare);
    for (size_t i = 0; i < count; i++)
        free(keys[i].text);
    free(keys);
}
