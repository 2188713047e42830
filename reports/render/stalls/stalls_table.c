// SPDX-License-Identifier: Apache-2.0
// The terminal table of stalls: the answer first, then all causes by what they cost, the first few
// in full, what the answer rests on, and what to do next. Reads what was found, writes the stream.
// Every text of the store is cleaned on its way.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reports/render/stalls/stalls_heat.h"
#include "reports/render/stalls/stalls_text.h"
#include "reports/render/stalls/stalls_view.h"
#include "reports/render/stalls/stalls_what_if.h"
#include "reports/render/text/table.h"

enum {
    STALLS_KERNEL_MAX = 6, // frames of a line
    STALLS_USER_MAX = 5,
    STALLS_CMDLINE_MAX = 240, // columns of a command line
    STALLS_MISSING_MAX = 8
};

// --- the ranked list of causes -------------------------------------------------------------------

enum { GRID_GAP = 2, GRID_CAUSE_MIN = 14, GRID_CULPRIT_MIN = 22, GRID_TITLE_WIDTH = 112 };

struct grid {
    char *(*rows)[STALLS_COLUMNS];
    size_t count;
    int widths[STALLS_COLUMNS]; // 0: left out
};

static void grid_fill(
        char **row, const struct stall *stall, size_t i, int64_t window_ns, bool title, bool utf8)
{
    stalls_text_row(stall, i, window_ns, title, row);
    for (int column = 0; column < STALLS_COLUMNS; column++) {
        char *clean = screen_clean(row[column], utf8);
        free(row[column]);
        row[column] = clean;
    }
}

static int grid_width(const struct grid *grid)
{
    int width = 0;
    for (int column = 0; column < STALLS_COLUMNS; column++)
        width += grid->widths[column] ? grid->widths[column] + (width ? GRID_GAP : 0) : 0;
    return width;
}

static void grid_measure(struct grid *grid, int width)
{
    // First "sure", then "longest": the details have both.
    static const enum stalls_column dispensable[] = {
            STALLS_COLUMN_SURE, STALLS_COLUMN_LONGEST, STALLS_COLUMN_COUNT, STALLS_COLUMN_PERIOD};
    for (int column = 0; column < STALLS_COLUMNS; column++) {
        grid->widths[column] = screen_columns(stalls_heads[column]);
        for (size_t i = 0; i < grid->count; i++) {
            int columns = screen_columns(grid->rows[i][column]);
            if (columns > grid->widths[column])
                grid->widths[column] = columns;
        }
    }
    int *cause = &grid->widths[STALLS_COLUMN_CAUSE],
        *culprit = &grid->widths[STALLS_COLUMN_CULPRIT];
    for (size_t i = 0; i <= sizeof dispensable / sizeof *dispensable; i++) {
        int spare_cause = *cause > GRID_CAUSE_MIN ? *cause - GRID_CAUSE_MIN : 0;
        int spare_culprit = *culprit > GRID_CULPRIT_MIN ? *culprit - GRID_CULPRIT_MIN : 0;
        int excess = grid_width(grid) - width;
        if (excess <= 0)
            return;
        if (excess <= spare_cause + spare_culprit ||
                i == sizeof dispensable / sizeof *dispensable) {
            int take = excess < spare_culprit ? excess : spare_culprit;
            *culprit -= take;
            excess -= take;
            *cause -= excess < spare_cause ? excess : spare_cause;
            return;
        }
        grid->widths[dispensable[i]] = 0;
    }
}

static void grid_line(const struct grid *grid, struct table *table, const char *const *row,
        enum screen_style style)
{
    struct strbuf line = {0};
    for (int column = 0; column < STALLS_COLUMNS; column++) {
        if (!grid->widths[column])
            continue;
        char *fit = screen_fit(row[column], grid->widths[column], table->utf8);
        screen_repeat(&line, " ", line.len ? GRID_GAP : 0);
        screen_pad(&line, fit, grid->widths[column], stalls_column_is_right(column));
        free(fit);
    }
    while (line.len && line.text[line.len - 1] == ' ')
        line.text[--line.len] = 0;
    screen_style(&table->out, style, table->color, line.text);
    strbuf_add(&table->out, "\n");
    strbuf_free(&line);
}

// The analysis lets turns on a busy machine come second: the list says so where it shows.
static bool grid_is_unsorted(const struct stall *stalls, size_t count)
{
    for (size_t i = 1; i < count; i++)
        if (stalls[i].total_ns > stalls[0].total_ns &&
                strcmp(stalls[i].cause, "cpu_contention") == 0)
            return true;
    return false;
}

// A line a cause, the numbers in columns, at most rows_max of them; nothing when there is none.
// Names give way to the width, then the columns that are told again below. Shares are of window_ns.
static void stalls_grid(struct table *table, const struct stall *stalls, size_t count,
        int64_t window_ns, size_t rows_max)
{
    struct grid grid = {.count = count < rows_max ? count : rows_max};
    if (grid.count == 0)
        return;
    grid.rows = xcalloc(grid.count, sizeof *grid.rows);
    for (size_t i = 0; i < grid.count; i++)
        grid_fill(grid.rows[i], &stalls[i], i, window_ns, table->width >= GRID_TITLE_WIDTH,
                table->utf8);
    grid_measure(&grid, table->width);
    grid_line(&grid, table, stalls_heads, SCREEN_STYLE_DIM);
    for (size_t i = 0; i < grid.count; i++)
        grid_line(&grid, table, (const char *const *)grid.rows[i], SCREEN_STYLE_PLAIN);
    if (count > grid.count)
        strbuf_add(
                &table->out, "%zu more with less: --top %zu or --all\n", count - grid.count, count);
    if (grid_is_unsorted(stalls, grid.count)) {
        struct strbuf lines = {0};
        screen_wrap(&lines,
                "The machine is busy as well: turns that neighbours take on its CPUs are listed "
                "behind what somebody does to the program.",
                table->width, 0, 0);
        screen_style(&table->out, SCREEN_STYLE_DIM, table->color, lines.text);
        strbuf_free(&lines);
    }
    for (size_t i = 0; i < grid.count; i++)
        for (int column = 0; column < STALLS_COLUMNS; column++)
            free(grid.rows[i][column]);
    free(grid.rows);
}

// --- the sections around it ----------------------------------------------------------------------

// Below a hundredth of the window nobody needs to get up.
static enum screen_style stalls_style(const struct stalls *stalls)
{
    if (stalls->count == 0)
        return stalls->quiet.known || stalls_text_dropped(stalls) > 0 ? SCREEN_STYLE_INCONCLUSIVE
                                                                      : SCREEN_STYLE_PASS;
    return stalls_text_fraction(stalls, &stalls->stalls[0]) < 0.01 ? SCREEN_STYLE_INCONCLUSIVE
                                                                   : SCREEN_STYLE_FAIL;
}

static void stalls_answer(struct table *table, const struct stalls_shown *shown)
{
    char *why_not = stalls_view_nothing(shown);
    char *answer = why_not ? why_not : stalls_text_answer(shown);
    table_paragraph(
            table, why_not ? SCREEN_STYLE_INCONCLUSIVE : stalls_style(shown->stalls), answer);
    free(answer);
}

// A line of the details; nothing for an empty text. Takes the text.
static void stalls_line(struct table *table, const char *label, char *text)
{
    if (text && *text)
        table_line(table, label, SCREEN_STYLE_BOLD, text);
    free(text);
}

static void stalls_stacks(struct table *table, const struct stall *stall)
{
    stalls_line(table, "  kernel",
            stalls_text_stack(&stall->victim_kernel, STALLS_KERNEL_MAX, table->utf8));
    stalls_line(table, "  native",
            stalls_text_stack(&stall->victim_user, STALLS_USER_MAX, table->utf8));
    stalls_line(table, "  python",
            stalls_text_stack(&stall->victim_python, STALLS_USER_MAX, table->utf8));
}

static void stalls_culprit(struct table *table, const struct stall *stall)
{
    if (!stall->culprit.known) {
        stalls_line(table, "culprit", xstrdup("nobody: none was seen, or the cause needs none"));
        return;
    }
    stalls_line(table, "culprit", stalls_text_thread(&stall->culprit));
    if (stall->culprit.cmdline) {
        char *clean = screen_clean(stall->culprit.cmdline, table->utf8);
        stalls_line(table, "  command", screen_fit(clean, STALLS_CMDLINE_MAX, table->utf8));
        free(clean);
    }
    char *stack = stalls_text_stack(&stall->culprit_kernel, STALLS_KERNEL_MAX, table->utf8);
    if (stall->culprit_function &&
            stalls_text_begins(&stall->culprit_kernel, stall->culprit_function))
        stalls_line(table, "  in", xstrdup(stack)); // it is the leaf of the stack
    else if (stall->culprit_function && *stack)
        stalls_line(table, "  in", xasprintf("%s: %s", stall->culprit_function, stack));
    else if (stall->culprit_function || *stack)
        stalls_line(
                table, "  in", xstrdup(stall->culprit_function ? stall->culprit_function : stack));
    free(stack);
}

static void stalls_straggler(struct table *table, const struct stall *stall)
{
    char *who = stalls_text_rank(stall);
    stalls_line(
            table, "culprit", stall->host ? xasprintf("%s on %s", who, stall->host) : xstrdup(who));
    free(who);
    stalls_line(table, "  late", xstrdup(numbers_ns((double)stall->late_ns, NUMBERS_BUFFER)));
    stalls_line(table, "  what", stalls_text_what(stall));
    stalls_line(table, "  native",
            stalls_text_stack(&stall->culprit_user, STALLS_USER_MAX, table->utf8));
    stalls_line(table, "  python",
            stalls_text_stack(&stall->culprit_python, STALLS_USER_MAX, table->utf8));
}

static void stalls_chain(struct table *table, const struct stall *stall)
{
    // One link says what victim and culprit say already; only what it went by is news.
    if (stall->chain_count == 1 && stall->resource.kind == STALL_RESOURCE_NONE)
        stalls_line(table, "by", stalls_text_via(&stall->chain[0]));
    for (size_t i = 0; stall->chain_count > 1 && i < stall->chain_count; i++)
        stalls_line(
                table, i ? "" : "chain", stalls_text_link(stall, &stall->chain[i], table->utf8));
}

static void stalls_detail(struct table *table, const struct stalls *stalls, size_t i)
{
    const struct stall *stall = &stalls->stalls[i];
    char *title = screen_clean(stall->title, table->utf8);
    char *head = xasprintf("%zu. %s", i + 1, title);
    strbuf_add(&table->out, "\n");
    screen_style(&table->out, SCREEN_STYLE_BOLD, table->color, head);
    strbuf_add(&table->out, " (%s)\n", stall->cause);
    free(head);
    free(title);
    stalls_line(table, "lost", stalls_text_lost(stall));
    stalls_line(table, "steps hit", stalls_text_steps(stall));
    if (stall->is_straggler) {
        stalls_straggler(table, stall);
    } else {
        stalls_line(table, "victim", stalls_text_thread(&stall->victim));
        stalls_stacks(table, stall);
        stalls_culprit(table, stall);
    }
    if (stall->has_period)
        stalls_line(
                table, "  every", xstrdup(numbers_ns((double)stall->period_ns, NUMBERS_BUFFER)));
    stalls_line(table, "over", stalls_text_resource(&stall->resource));
    stalls_chain(table, stall);
    stalls_line(table, "sure", stalls_text_sure(stall));
    char *advice = stalls_text_advice(stall);
    if (advice)
        table_take(table, "do", SCREEN_STYLE_PASS, advice);
}

static void stalls_trust(struct table *table, const struct stalls_shown *shown)
{
    const struct stalls *stalls = shown->stalls;
    stalls_line(table, "recorded", stalls_text_watched(shown));
    if (stalls->breach_count == 0)
        table_line(table, "trust", SCREEN_STYLE_PASS, "ok: no event was dropped");
    for (size_t i = 0; i < stalls->breach_count; i++) {
        char *breach = stalls_text_breach(&stalls->breaches[i]);
        table_take(table, i ? "" : "trust", SCREEN_STYLE_INCONCLUSIVE,
                xasprintf("%s%s", i ? "" : "BREACHED: ", breach));
        free(breach);
    }
    const char *blind = stalls_text_blind(shown->recording);
    stalls_line(table, "not seen", blind ? xstrdup(blind) : NULL);
    for (size_t i = 0; i < stalls->missing_count && i < STALLS_MISSING_MAX; i++)
        stalls_line(table, i || blind ? "" : "not seen", stalls_text_missing(&stalls->missing[i]));
    if (stalls->missing_count > STALLS_MISSING_MAX)
        stalls_line(table, "",
                xasprintf("%zu more: select missing from recording",
                        stalls->missing_count - STALLS_MISSING_MAX));
}

static void stalls_more(
        struct table *table, const struct stalls_view *view, const struct stalls_shown *shown)
{
    char *clean = screen_clean(view->path, table->utf8);
    struct strbuf line = {0};
    strbuf_add(&line, "\n%zu more in full: upgate stalls %s --all",
            shown->stalls->count - view->details_max, clean);
    if (view->count > 1)
        strbuf_add(&line, " --recording %lld", (long long)shown->recording->id);
    screen_style(&table->out, SCREEN_STYLE_DIM, table->color, line.text);
    strbuf_add(&table->out, "\n");
    strbuf_free(&line);
    free(clean);
}

// None of several recordings has a stall: the first line, which many read alone, says how far that
// goes.
static char *stalls_none(size_t count, size_t mute, size_t doubtful)
{
    struct strbuf out = {0};
    if (mute == count)
        strbuf_add(&out, "Nothing can be said: none of %zu recordings has events of its target",
                count);
    else if (mute)
        strbuf_add(&out, "No stall found in %zu of %zu recordings; the other%s nothing",
                count - mute, count, mute == 1 ? " says" : "s say");
    else
        strbuf_add(&out, "No stall found in %zu recordings", count);
    if (doubtful)
        strbuf_add(&out, "; in %zu of them events were dropped, or the main thread hardly ran",
                doubtful);
    return strbuf_take(&out);
}

// Of several recordings the one that lost most speaks first.
static void stalls_worst(struct table *table, const struct stalls_view *view)
{
    const struct stalls_shown *worst = &view->shown[0];
    double most = 0;
    size_t mute = 0, doubtful = 0;
    bool found = false;
    for (size_t i = 0; i < view->count; i++) {
        const struct stalls *stalls = view->shown[i].stalls;
        double share = stalls->count ? stalls_text_fraction(stalls, &stalls->stalls[0]) : 0;
        char *why_not = stalls_view_nothing(&view->shown[i]);
        mute += why_not != NULL;
        doubtful += !why_not && (stalls->quiet.known || stalls_text_dropped(stalls) > 0);
        free(why_not);
        if (stalls->count && (!found || share > most)) { // also of what cost no time
            found = true;
            most = isfinite(share) ? share : 0;
            worst = &view->shown[i];
        }
    }
    char *name = stalls_text_recording(worst->recording), *answer = stalls_text_answer(worst);
    char *text = found ? xasprintf("Worst of %zu recordings, %s: %s", view->count, name, answer)
                       : stalls_none(view->count, mute, doubtful);
    table_paragraph(table, SCREEN_STYLE_PLAIN, text);
    strbuf_add(&table->out, "\n");
    free(text);
    free(answer);
    free(name);
}

// What happens once is told behind what happens in every step, and in short.
static void stalls_outside(struct table *table, const struct stalls *stalls, size_t rows_max)
{
    enum { ROWS_MAX = 5 };
    char *head = stalls_text_outside(stalls);
    strbuf_add(&table->out, "\n");
    screen_style(&table->out, SCREEN_STYLE_BOLD, table->color, head);
    strbuf_add(&table->out, "\n");
    free(head);
    stalls_grid(table, stalls->outside, stalls->outside_count, stalls->startup_ns + stalls->exit_ns,
            rows_max < SIZE_MAX && rows_max > ROWS_MAX ? ROWS_MAX : rows_max);
}

// A line a question, behind what the job took.
static void stalls_what_if(struct table *table, const struct stall_what_if *what_if)
{
    enum { QUESTION = 34, TIME = 10, CHANGE = 9 };
    char *head = stalls_what_if_head(what_if);
    if (!head)
        return;
    strbuf_add(&table->out, "\n");
    table_paragraph(table, SCREEN_STYLE_PLAIN, head);
    for (int i = 0; i < STALLS_QUESTION_COUNT; i++) {
        double ns = stalls_what_if_ns(what_if, (enum stalls_question)i);
        if (!isfinite(ns))
            continue;
        char *question = stalls_what_if_question(what_if, (enum stalls_question)i);
        screen_pad(&table->out, question, QUESTION, false);
        screen_pad(&table->out, numbers_ns(ns, NUMBERS_BUFFER), TIME, true);
        screen_pad(&table->out, stalls_what_if_change(what_if, ns, NUMBERS_BUFFER), CHANGE, true);
        strbuf_add(&table->out, "\n");
        free(question);
    }
    free(head);
}

static void stalls_section(struct table *table, const struct stalls_view *view, size_t i)
{
    const struct stalls_shown *shown = &view->shown[i];
    if (view->count > 1) {
        char *name = stalls_text_recording(shown->recording);
        char *clean = screen_clean(name, table->utf8);
        strbuf_add(&table->out, i ? "\n" : "");
        screen_style(&table->out, SCREEN_STYLE_BOLD, table->color, clean);
        strbuf_add(&table->out, "\n");
        free(clean);
        free(name);
    }
    stalls_answer(table, shown);
    const struct stalls *stalls = shown->stalls;
    if (stalls->count)
        strbuf_add(&table->out, "\n");
    stalls_grid(table, stalls->stalls, stalls->count, stalls->window_ns, view->rows_max);
    stalls_what_if(table, &stalls->what_if);
    if (view->heat)
        stalls_heat_table(table, &stalls->heat);
    for (size_t k = view->details_from;
            k < stalls->count && k - view->details_from < view->details_max; k++)
        stalls_detail(table, stalls, k);
    if (view->path && stalls->count > view->details_max)
        stalls_more(table, view, shown);
    if (stalls->outside_count)
        stalls_outside(table, stalls, view->rows_max);
    strbuf_add(&table->out, "\n");
    stalls_trust(table, shown);
}

int stalls_view_table(const struct stalls_view *view, const struct render_opts *opts, FILE *stream,
        struct error *err)
{
    struct table table = table_begin(
            opts->width > 0 ? opts->width : RENDER_WIDTH_DEFAULT, opts->color, opts->utf8);
    if (view->count > 1)
        stalls_worst(&table, view);
    for (size_t i = 0; i < view->count; i++)
        stalls_section(&table, view, i);
    return table_end(&table, stream, "the stalls", err);
}
