// SPDX-License-Identifier: Apache-2.0
// struct diff_workload as the HTML page reads it: decomposition, contributions, the table of
// everything aligned, stragglers. Memory in, JSON out; judges nothing. Long lists are cut to what a
// page can hold, and what was left out is counted.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "common/units.h"
#include "reports/render/diff/diff_view.h"
#include "reports/render/diff/diff_words.h"
#include "reports/render/html/html_parts.h"

enum {
    HTML_CONTRIBUTIONS_MAX = 200, // the page shows ten and draws the rest as one bar
    HTML_ROWS_MAX = 5000,
    DIFF_NAME_BYTES_MAX = 1000,
};

static json_t *diff_interval(double low, double high)
{
    return isfinite(low) && isfinite(high)
            ? render_json_pair(render_json_whole(low), render_json_whole(high))
            : json_null();
}

// A page holds no names of 64 KB.
static json_t *diff_cut(json_t *text)
{
    return json_is_string(text) && json_string_length(text) > DIFF_NAME_BYTES_MAX
            ? html_text(json_string_value(text), DIFF_NAME_BYTES_MAX)
            : json_incref(text);
}

static json_t *diff_cut_all(json_t *item)
{
    const char *key;
    json_t *cut = json_object(), *value, *text;
    size_t i;
    json_object_foreach(item, key, value)
    {
        json_array_foreach(value, i, text) json_array_set_new(value, i, diff_cut(text));
        json_object_set_new(cut, key, diff_cut(value));
    }
    json_decref(item);
    return cut;
}

static json_t *diff_contribution(const struct diff_contribution *contribution)
{
    json_t *item = diff_cut_all(diff_view_json_contribution(contribution));
    json_object_set_new(
            item, "ci_ns", diff_interval(contribution->ci_lo_ns, contribution->ci_hi_ns));
    return item;
}

static const char *const diff_node_words[COST_KIND_COUNT] = {
        [COST_ROOT] = "root",
        [COST_PHASE] = "phase",
        [COST_MODULE] = "module",
        [COST_RANGE] = "range",
        [COST_PYTHON] = "python",
        [COST_KERNEL] = "kernel",
        [COST_GRAPH] = "graph",
        [COST_TRANSFER] = "transfer",
        [COST_SYNC] = "sync",
        [COST_FUNCTION] = "function",
        [COST_COLLECTIVE] = "collective",
        [COST_STALL] = "stall",
        [COST_GAP] = "gap",
};
static const char *const diff_match_words[ALIGN_MATCH_COUNT] = {
        [ALIGN_EXACT] = "exact",
        [ALIGN_NORMALISED] = "normalised",
        [ALIGN_RESOURCES] = "resources",
        [ALIGN_SIMILAR] = "similar",
        [ALIGN_GROUP] = "group",
        [ALIGN_ONLY_A] = "only_a",
        [ALIGN_ONLY_B] = "only_b",
};

// A name that is the label already is not written again.
static json_t *diff_row_name(const struct diff_row *row, const char *name)
{
    return name && row->label && strcmp(name, row->label) == 0
            ? json_null()
            : html_text(name, HTML_NAME_BYTES_MAX);
}

static json_t *diff_row(const struct diff_row *row)
{
    return json_pack("[o, o, o, o, s, s, s, o, o, o, o, o, o]",
            html_text(row->label, HTML_NAME_BYTES_MAX), diff_row_name(row, row->name_a),
            diff_row_name(row, row->name_b), html_text(row->where, HTML_NAME_BYTES_MAX),
            diff_node_words[row->kind], cost_class_word(row->class), diff_match_words[row->match],
            render_json_whole(row->a_ns), render_json_whole(row->b_ns),
            render_json_whole(row->busy_a_ns), render_json_whole(row->busy_b_ns),
            render_json_real(row->count_a), render_json_real(row->count_b));
}

// What a row is worth in the table: the time it has on either side.
static double diff_row_size(const struct diff_row *row)
{
    return (isfinite(row->a_ns) ? row->a_ns : 0) + (isfinite(row->b_ns) ? row->b_ns : 0);
}

static int diff_row_compare(const void *left, const void *right)
{
    const struct diff_row *a = *(const struct diff_row *const *)left,
                          *b = *(const struct diff_row *const *)right;
    double size_a = diff_row_size(a), size_b = diff_row_size(b);
    if (size_a != size_b)
        return size_a > size_b ? -1 : 1;
    return a < b ? -1 : a > b; // both in one array: the order they came in
}

static size_t diff_row_bytes(const struct diff_row *row)
{
    const char *const texts[] = {row->label, row->name_a, row->name_b, row->where};
    size_t bytes = 120; // of numbers and words
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        size_t len = texts[i] ? strnlen(texts[i], HTML_NAME_BYTES_MAX) : 0;
        bytes += i > 0 && texts[i] && row->label && strcmp(texts[i], row->label) == 0 ? 4 : len;
    }
    return bytes;
}

static void diff_rows(json_t *diff, const struct diff_workload *workload, size_t bytes_max)
{
    const struct diff_row **order = xcalloc(workload->row_count + 1, sizeof *order);
    for (size_t i = 0; i < workload->row_count; i++)
        order[i] = &workload->rows[i];
    qsort(order, workload->row_count, sizeof *order, diff_row_compare);
    size_t count = 0, bytes = 0;
    json_t *rows = json_array();
    for (; count < workload->row_count && count < HTML_ROWS_MAX; count++) {
        bytes += diff_row_bytes(order[count]);
        if (bytes > bytes_max)
            break;
        json_array_append_new(rows, diff_row(order[count]));
    }
    free(order);
    render_json_set(diff, "rows", rows, "rows_left_out",
            json_integer((json_int_t)(workload->row_count - count)), NULL);
}

static json_t *diff_parts(const struct diff_workload *workload)
{
    json_t *parts = json_array();
    for (int class = 0; class < COST_CLASS_COUNT; class ++) {
        json_array_append_new(parts,
                render_json_set(json_object(), "class",
                        json_string(cost_class_word((enum cost_class) class)), "title",
                        json_string(diff_text_class((enum cost_class) class)), "a_ns",
                        render_json_whole(workload->parts[class].a_ns), "b_ns",
                        render_json_whole(workload->parts[class].b_ns), NULL));
    }
    return parts;
}

static json_t *diff_stragglers(const struct diff_workload *workload)
{
    json_t *list = json_array();
    for (size_t i = 0; i < workload->straggler_count && i < HTML_LIST_MAX; i++)
        if (workload->stragglers[i].told) // some rank always comes last
            json_array_append_new(
                    list, diff_cut_all(diff_view_json_straggler(&workload->stragglers[i])));
    return list;
}

static void diff_collectives(json_t *diff, const struct diff_workload *workload)
{
    char *answer = diff_text_collectives(workload);
    if (!answer)
        return;
    json_t *item = diff_view_json_collectives(workload), *kinds = json_object_get(item, "kinds"),
           *kind;
    size_t i;
    json_array_foreach(kinds, i, kind)
            json_array_set_new(kinds, i, diff_cut_all(json_incref(kind)));
    json_object_set_new(item, "answer", html_take(answer));
    json_object_set_new(diff, "collectives", item);
}

static void diff_numbers(json_t *diff, const struct diff_workload *workload)
{
    char traced[160];
    bool known = isfinite(workload->traced_ratio[0]) || isfinite(workload->traced_ratio[1]);
    unit_format_traced(traced, sizeof traced, workload->unit, workload->traced_ratio);
    render_json_set(diff, "traced", known ? json_string(traced) : json_null(), "step_a_ns",
            render_json_whole(workload->step_a_ns), "step_b_ns",
            render_json_whole(workload->step_b_ns), "delta_ns",
            render_json_whole(workload->delta_ns), "delta_ci_ns",
            diff_interval(workload->delta_lo_ns, workload->delta_hi_ns), "traced_ratio",
            render_json_pair(render_json_real(workload->traced_ratio[0]),
                    render_json_real(workload->traced_ratio[1])),
            "match_coverage", render_json_real(workload->match_coverage), "residual_ns",
            render_json_whole(workload->residual_ns), "unaccounted",
            render_json_pair(render_json_real(workload->unaccounted[0]),
                    render_json_real(workload->unaccounted[1])),
            "traced_pairs", json_integer((json_int_t)workload->traced_pairs), "windows",
            render_json_pair(json_integer((json_int_t)workload->windows[0]),
                    json_integer((json_int_t)workload->windows[1])),
            "cold_a_ns", render_json_whole(workload->cold_a_ns), "cold_b_ns",
            render_json_whole(workload->cold_b_ns), NULL);
}

// Names of 64 KB are cut as in the contributions.
static json_t *diff_cut_parts(json_t *item)
{
    json_t *parts = json_object_get(item, "contributions"), *part;
    size_t i;
    json_array_foreach(parts, i, part)
            json_array_set_new(parts, i, diff_cut_all(json_incref(part)));
    return item;
}

// A part of the answer with its own headline; takes all of them. Missing where it has none.
static void diff_section(json_t *diff, const char *key, json_t *item, char *headline, char *answer)
{
    if (headline) {
        render_json_set(item, "headline", html_take(headline), "answer", html_take(answer), NULL);
        json_object_set(diff, key, item);
    } else {
        free(answer);
    }
    json_decref(item);
}

static void diff_memory(json_t *diff, const char *key, const struct diff_workload *workload,
        const struct diff_memory *memory)
{
    char *headline = diff_text_memory(workload, memory);
    if (!headline)
        return;
    json_t *item = diff_view_json_memory(memory), *parts = json_object_get(item, "parts"), *part;
    size_t i;
    json_array_foreach(parts, i, part)
    {
        part = diff_cut_all(json_incref(part));
        json_object_set_new(part, "title",
                html_text(diff_text_memory_name(&memory->parts[i]), DIFF_NAME_BYTES_MAX));
        json_array_set_new(parts, i, part);
    }
    json_t *touched = json_object_get(item, "touched");
    while (json_array_size(touched) > HTML_CONTRIBUTIONS_MAX)
        json_array_remove(touched, json_array_size(touched) - 1);
    json_array_foreach(touched, i, part)
    {
        part = diff_cut_all(json_incref(part));
        json_object_set_new(part, "title", html_take(diff_text_touch_name(&memory->touches[i])));
        json_array_set_new(touched, i, part);
    }
    render_json_set(item, "headline", html_take(headline), "answer",
            html_take(diff_text_memory_answer(memory)), "code",
            html_take(diff_text_memory_touched(memory)), NULL);
    json_object_set_new(diff, key, item);
}

json_t *html_diff(const struct diff_workload *workload, size_t bytes_max)
{
    json_t *diff = json_object(), *contributions = json_array();
    render_json_set(diff, "unexplained", html_take(diff_text_unexplained(workload)), "notes",
            render_json_list(
                    i, workload->note_count, html_take(diff_text_note(&workload->notes[i]))),
            "late", html_take(diff_text_late(workload->late)), NULL);
    diff_numbers(diff, workload);
    diff_memory(diff, "memory", workload, &workload->memory);
    diff_memory(diff, "gpu_memory", workload, &workload->gpu_memory);
    if (workload->unexplained) {
        json_decref(contributions);
        return diff;
    }
    for (size_t i = 0; i < workload->contribution_count && i < HTML_CONTRIBUTIONS_MAX; i++)
        json_array_append_new(contributions, diff_contribution(&workload->contributions[i]));
    render_json_set(diff, "parts", diff_parts(workload), "contributions", contributions, NULL);
    diff_rows(diff, workload, bytes_max);
    diff_collectives(diff, workload);
    render_json_set(diff, "stragglers", diff_stragglers(workload), "first_step",
            diff_cut_parts(diff_view_json_first(workload)), NULL);
    diff_section(diff, "slow_steps", diff_cut_parts(diff_cut_all(diff_view_json_slow(workload))),
            diff_text_slow(workload), diff_text_slow_answer(workload));
    diff_section(diff, "cpu_time", diff_cut_parts(diff_view_json_cpu(workload)),
            diff_text_cpu(workload), diff_text_cpu_answer(workload));
    return diff;
}
