// SPDX-License-Identifier: Apache-2.0
// The ranked list of causes: a line a cause, the numbers in columns. Names give way to the width,
// then the columns that are told again below. Reads what was found, writes the buffer of the table.
#include "reports/render/stalls/stalls_grid.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reports/render/stalls/stalls_text.h"

enum { GRID_GAP = 2, GRID_CAUSE_MIN = 14, GRID_CULPRIT_MIN = 22, GRID_TITLE_WIDTH = 112 };

enum grid_column {
    GRID_RANK,
    GRID_CAUSE,
    GRID_LOST,
    GRID_SHARE,
    GRID_COUNT,
    GRID_LONGEST,
    GRID_PERIOD,
    GRID_CULPRIT,
    GRID_SURE,
    GRID_COLUMN_COUNT
};

static const char *const grid_heads[GRID_COLUMN_COUNT] = {
    "#", "cause", "lost", "of time", "times", "longest", "every", "culprit", "sure"};

struct grid {
    char *(*rows)[GRID_COLUMN_COUNT];
    size_t count;
    int widths[GRID_COLUMN_COUNT]; // 0: left out
};

static bool grid_is_right(int column)
{
    return column == GRID_RANK || (column >= GRID_LOST && column <= GRID_PERIOD) ||
           column == GRID_SURE;
}

static char *grid_clean(char *text, bool utf8)
{
    char *clean = screen_clean(text, utf8);
    free(text);
    return clean;
}

static void grid_fill(char **row, const struct stall *stall, size_t i, int64_t window_ns, bool title, bool utf8)
{
    row[GRID_RANK] = xasprintf("%zu", i + 1);
    row[GRID_CAUSE] =
        grid_clean(xstrdup(title && stall->title ? stall->title : stall->cause), utf8);
    row[GRID_LOST] = xstrdup(numbers_ns((double)stall->total_ns, NUMBERS_BUFFER));
    row[GRID_SHARE] = xstrdup(stalls_text_share(window_ns > 0 ? (double)stall->total_ns / (double)window_ns : NAN, NUMBERS_BUFFER));
    row[GRID_COUNT] = xstrdup(numbers_count((int64_t)stall->count, NUMBERS_BUFFER));
    row[GRID_LONGEST] = xstrdup(numbers_ns((double)stall->max_ns, NUMBERS_BUFFER));
    row[GRID_PERIOD] = xstrdup(numbers_ns(stall->has_period ? (double)stall->period_ns : NAN, NUMBERS_BUFFER));
    row[GRID_CULPRIT] =
        grid_clean(stall->is_straggler    ? stalls_text_rank(stall)
                   : stall->culprit.known ? stalls_text_task(&stall->culprit, STALLS_NAME_PROGRAM)
                                          : xstrdup("-"),
                   utf8);
    row[GRID_SURE] = xstrdup(stalls_text_confidence(stall->confidence, NUMBERS_BUFFER));
}

static int grid_width(const struct grid *grid)
{
    int width = 0;
    for (int column = 0; column < GRID_COLUMN_COUNT; column++)
        width += grid->widths[column] ? grid->widths[column] + (width ? GRID_GAP : 0) : 0;
    return width;
}

static void grid_measure(struct grid *grid, int width)
{
    // First "sure", then "longest": the details have both.
    static const enum grid_column dispensable[] = {GRID_SURE, GRID_LONGEST, GRID_COUNT,
                                                   GRID_PERIOD};
    for (int column = 0; column < GRID_COLUMN_COUNT; column++) {
        grid->widths[column] = screen_columns(grid_heads[column]);
        for (size_t i = 0; i < grid->count; i++) {
            int columns = screen_columns(grid->rows[i][column]);
            if (columns > grid->widths[column])
                grid->widths[column] = columns;
        }
    }
    int *cause = &grid->widths[GRID_CAUSE], *culprit = &grid->widths[GRID_CULPRIT];
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
    for (int column = 0; column < GRID_COLUMN_COUNT; column++) {
        if (!grid->widths[column])
            continue;
        char *fit = screen_fit(row[column], grid->widths[column], table->utf8);
        screen_repeat(&line, " ", line.len ? GRID_GAP : 0);
        screen_pad(&line, fit, grid->widths[column], grid_is_right(column));
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
        if (stalls[i].total_ns > stalls[0].total_ns && strcmp(stalls[i].cause, "cpu_contention") == 0)
            return true;
    return false;
}

void stalls_grid(struct table *table, const struct stall *stalls, size_t count, int64_t window_ns, size_t rows_max)
{
    struct grid grid = {.count = count < rows_max ? count : rows_max};
    if (grid.count == 0)
        return;
    grid.rows = xcalloc(grid.count, sizeof *grid.rows);
    for (size_t i = 0; i < grid.count; i++)
        grid_fill(grid.rows[i], &stalls[i], i, window_ns, table->width >= GRID_TITLE_WIDTH, table->utf8);
    grid_measure(&grid, table->width);
    grid_line(&grid, table, grid_heads, SCREEN_STYLE_DIM);
    for (size_t i = 0; i < grid.count; i++)
        grid_line(&grid, table, (const char *const *)grid.rows[i], SCREEN_STYLE_PLAIN);
    if (count > grid.count)
        strbuf_add(&table->out, "%zu more with less: --top %zu or --all\n", count - grid.count, count);
    if (grid_is_unsorted(stalls, grid.count)) {
        struct strbuf lines = {0};
        screen_wrap(
            &lines,
            "The machine is busy as well: turns that neighbours take on its CPUs are listed "
            "behind what somebody does to the program.",
            table->width, 0, 0);
        screen_style(&table->out, SCREEN_STYLE_DIM, table->color, lines.text);
        strbuf_free(&lines);
    }
    for (size_t i = 0; i < grid.count; i++)
        for (int column = 0; column < GRID_COLUMN_COUNT; column++)
            free(grid.rows[i][column]);
    free(grid.rows);
}
