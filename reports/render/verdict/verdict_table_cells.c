// SPDX-License-Identifier: Apache-2.0
// The grid of cells: a line a cell, with what it needs to be understood under it or behind it.
// Reads struct report, appends to the table's buffer. Falls back to a stacked form where the lines
// do not fit.
#include <stdlib.h>
#include <string.h>

#include "contracts/metrics.h"
#include "reports/render/text/numbers.h"
#include "reports/render/verdict/cell.h"
#include "reports/render/verdict/verdict_table.h"

enum table_column {
    TABLE_COLUMN_MARK,
    TABLE_COLUMN_WORKLOAD,
    TABLE_COLUMN_METRIC,
    TABLE_COLUMN_MEDIAN_A,
    TABLE_COLUMN_MEDIAN_B,
    TABLE_COLUMN_CHANGE,
    TABLE_COLUMN_INTERVAL,
    TABLE_COLUMN_MARGIN,
    TABLE_COLUMN_PAIRS,
    TABLE_COLUMN_COUNT
};

enum { TABLE_GAP = 2, TABLE_WORKLOAD_MIN = 12, TABLE_MARK = 6 };

struct table_row {
    char *fields[TABLE_COLUMN_COUNT];
    char *remark;
};

struct table_grid {
    struct table_row header, *rows; // a row a cell, in the report's order
    int widths[TABLE_COLUMN_COUNT];
    int gap; // before a column of numbers
    bool fits;
};

// A word in every line: it can be read, searched and pasted without its colour or its heading.
static const char *table_mark(const struct report_cell *cell)
{
    static const char *const marks[REPORT_VERDICT_COUNT] = {
            [REPORT_VERDICT_FAIL] = "FAIL",
            [REPORT_VERDICT_INCONCLUSIVE] = "?",
            [REPORT_VERDICT_PASS] = "pass",
            [REPORT_VERDICT_UNCHECKED] = "-",
    };
    return cell->gating ? marks[cell->verdict] : "info";
}

static void table_row_fill(struct table_row *row, const struct report_cell *cell, bool utf8)
{
    char a[NUMBERS_SIZE], b[NUMBERS_SIZE];
    cell_medians(cell, a, b);
    row->fields[TABLE_COLUMN_MARK] = xstrdup(table_mark(cell));
    row->fields[TABLE_COLUMN_WORKLOAD] = screen_clean(cell->workload, utf8);
    row->fields[TABLE_COLUMN_METRIC] = screen_clean(cell->metric, utf8);
    row->fields[TABLE_COLUMN_MEDIAN_A] = xstrdup(a);
    row->fields[TABLE_COLUMN_MEDIAN_B] = xstrdup(b);
    row->fields[TABLE_COLUMN_CHANGE] = xstrdup(cell_change(cell, NUMBERS_BUFFER));
    row->fields[TABLE_COLUMN_INTERVAL] = xstrdup(cell_interval(cell, NUMBERS_BUFFER));
    row->fields[TABLE_COLUMN_MARGIN] = xstrdup(cell_margin(cell, NUMBERS_BUFFER));
    row->fields[TABLE_COLUMN_PAIRS] = xasprintf("%lld", (long long)cell->pairs);
    char *remark = cell_remark(cell);
    row->remark = screen_clean(remark, utf8);
    free(remark);
}

static void table_row_free(struct table_row *row)
{
    for (int i = 0; i < TABLE_COLUMN_COUNT; i++)
        free(row->fields[i]);
    free(row->remark);
}

static int table_gap(const struct table_grid *grid, int column)
{
    return column >= TABLE_COLUMN_MEDIAN_A ? grid->gap : column ? TABLE_GAP : 0;
}

static int table_grid_width(const struct table_grid *grid)
{
    int width = 0;
    for (int i = 0; i < TABLE_COLUMN_COUNT; i++)
        width += grid->widths[i] + table_gap(grid, i);
    return width;
}

// Cells of one group stand together: same verdict, improved ones by themselves, observed ones last.
static bool table_same_group(const struct report_cell *one, const struct report_cell *other)
{
    if (!one->gating || !other->gating)
        return one->gating == other->gating;
    return one->verdict == other->verdict && cell_improved(one) == cell_improved(other);
}

// "fail: 2"
static char *table_heading_text(const struct report *report, const struct report_cell *cell)
{
    int count = 0;
    for (int i = 0; i < report->cell_count; i++)
        count += table_same_group(cell, &report->cells[i]);
    return xasprintf("%s: %d",
            !cell->gating                 ? "observed"
                    : cell_improved(cell) ? "pass, improved"
                                          : report_verdict_word(cell->verdict),
            count);
}

static void table_grid_measure(struct table_grid *grid, const struct report *report, int width)
{
    for (int i = 0; i < TABLE_COLUMN_COUNT; i++) {
        grid->widths[i] = screen_columns(grid->header.fields[i]);
        for (int j = 0; j < report->cell_count; j++) {
            int columns = screen_columns(grid->rows[j].fields[i]);
            if (columns > grid->widths[i])
                grid->widths[i] = columns;
        }
    }
    int *workload = &grid->widths[TABLE_COLUMN_WORKLOAD], least = TABLE_WORKLOAD_MIN;
    for (int i = 0; i < report->cell_count; i++) { // the headings stand above the first two columns
        char *heading = table_heading_text(report, &report->cells[i]);
        int columns = screen_columns(heading) - grid->widths[TABLE_COLUMN_MARK] - TABLE_GAP;
        least = columns > least ? columns : least;
        free(heading);
    }
    *workload = *workload < least ? least : *workload;
    grid->gap = TABLE_GAP;
    if (table_grid_width(grid) > width) // closer columns before shorter names
        grid->gap = 1;
    int excess = table_grid_width(grid) - width, spare = *workload - least;
    if (excess > 0)
        *workload -= excess < spare ? excess : spare;
    grid->fits = table_grid_width(grid) <= width;
}

static void table_grid_make(
        struct table_grid *grid, const struct table *table, const struct report *report)
{
    static const char *const names[TABLE_COLUMN_COUNT] = {"", "", "metric", "baseline", "candidate",
            // the first two give their place to the heading
            "change", "interval", "margin", "pairs"};
    for (int i = 0; i < TABLE_COLUMN_COUNT; i++)
        grid->header.fields[i] = xstrdup(names[i]);
    grid->rows = xcalloc((size_t)report->cell_count, sizeof *grid->rows);
    for (int i = 0; i < report->cell_count; i++)
        table_row_fill(&grid->rows[i], &report->cells[i], table->utf8);
    table_grid_measure(grid, report, table->width);
}

static void table_grid_clear(struct table_grid *grid, int cell_count)
{
    table_row_free(&grid->header);
    for (int i = 0; i < cell_count; i++)
        table_row_free(&grid->rows[i]);
    free(grid->rows);
}

static enum screen_style table_cell_style(const struct report_cell *cell)
{
    return cell->gating ? table_style(cell->verdict) : SCREEN_STYLE_DIM;
}

// The remark behind the line where there is room, else under it.
static void table_remark(struct table *table, const char *remark, int at, bool dim)
{
    if (!*remark) {
        strbuf_add(&table->out, "\n");
        return;
    }
    if (at + TABLE_GAP + screen_columns(remark) <= table->width) {
        screen_repeat(&table->out, " ", TABLE_GAP);
        screen_style(
                &table->out, dim ? SCREEN_STYLE_DIM : SCREEN_STYLE_PLAIN, table->color, remark);
        strbuf_add(&table->out, "\n");
        return;
    }
    strbuf_add(&table->out, "\n");
    screen_repeat(&table->out, " ", TABLE_MARK);
    screen_wrap(&table->out, remark, table->width, TABLE_MARK, TABLE_MARK);
}

static void table_row_print(struct table *table, const struct table_grid *grid,
        const struct table_row *row, const struct report_cell *cell)
{
    struct strbuf line = {0}, mark = {0};
    for (int i = TABLE_COLUMN_WORKLOAD; i < TABLE_COLUMN_COUNT; i++) {
        char *field = screen_fit(row->fields[i], grid->widths[i], table->utf8);
        screen_repeat(&line, " ", table_gap(grid, i));
        screen_pad(&line, field, grid->widths[i], i >= TABLE_COLUMN_MEDIAN_A);
        free(field);
    }
    screen_pad(&mark, row->fields[TABLE_COLUMN_MARK], grid->widths[TABLE_COLUMN_MARK], false);
    bool fail = cell->gating && cell->verdict == REPORT_VERDICT_FAIL;
    screen_style(&table->out, table_cell_style(cell), table->color, mark.text);
    screen_style(&table->out,
            fail                   ? SCREEN_STYLE_BOLD
                    : cell->gating ? SCREEN_STYLE_PLAIN
                                   : SCREEN_STYLE_DIM,
            table->color, line.text);
    table_remark(table, row->remark, table_grid_width(grid), !cell->gating);
    strbuf_free(&mark);
    strbuf_free(&line);
}

// "FAIL  dlrm-train step_time", then its numbers indented.
static void table_row_stack(
        struct table *table, const struct table_row *row, const struct report_cell *cell)
{
    struct strbuf mark = {0};
    screen_pad(&mark, row->fields[TABLE_COLUMN_MARK], TABLE_MARK, false);
    screen_style(&table->out, table_cell_style(cell), table->color, mark.text);
    strbuf_free(&mark);
    char *title = xasprintf(
            "%s %s", row->fields[TABLE_COLUMN_WORKLOAD], row->fields[TABLE_COLUMN_METRIC]);
    screen_wrap(&table->out, title, table->width, TABLE_MARK, TABLE_MARK);
    const char *margin = row->fields[TABLE_COLUMN_MARGIN];
    char *numbers = xasprintf("%s -> %s, %s (%s)%s%s, %s pairs", row->fields[TABLE_COLUMN_MEDIAN_A],
            row->fields[TABLE_COLUMN_MEDIAN_B], row->fields[TABLE_COLUMN_CHANGE],
            row->fields[TABLE_COLUMN_INTERVAL], strcmp(margin, "-") ? ", margin " : "",
            strcmp(margin, "-") ? margin : "", row->fields[TABLE_COLUMN_PAIRS]);
    screen_repeat(&table->out, " ", TABLE_MARK);
    screen_wrap(&table->out, numbers, table->width, TABLE_MARK, TABLE_MARK);
    if (*row->remark) {
        screen_repeat(&table->out, " ", TABLE_MARK);
        screen_wrap(&table->out, row->remark, table->width, TABLE_MARK, TABLE_MARK);
    }
    free(title);
    free(numbers);
}

// Which of the metrics; METRIC_COUNT: none of this version.
static int table_metric(const struct report_cell *cell)
{
    int metric = 0;
    while (metric < METRIC_COUNT && strcmp(metric_infos[metric].name, cell->metric) != 0)
        metric++;
    return metric;
}

// What the numbers in the lines above are.
static void table_legend(struct table *table, const struct report *report)
{
    struct strbuf text = {0}, higher = {0};
    bool observed = false, told[METRIC_COUNT] = {false};
    for (int i = 0; i < report->cell_count; i++) {
        const struct report_cell *cell = &report->cells[i];
        observed = observed || !cell->gating;
        int metric = table_metric(cell);
        if (cell->higher_is_better && metric < METRIC_COUNT && !told[metric]) {
            strbuf_add(&higher, "%s%s", higher.len ? ", " : "", metric_infos[metric].name);
            told[metric] = true;
        }
    }
    strbuf_add(&text,
            "Medians over launches; change and %s: candidate over baseline, from pairs of launches.",
            cell_confidence(report->cells, report->cell_count, NUMBERS_BUFFER));
    if (higher.len)
        strbuf_add(&text, " Higher is better for %s, lower for the rest.", higher.text);
    else
        strbuf_add(&text, " Lower is better.");
    char *steps = cell_steps_legend(report->cells, report->cell_count);
    strbuf_add(&text, "%s", steps);
    free(steps);
    if (observed)
        strbuf_add(&text, " What is observed never gates.");
    table_paragraph(table, SCREEN_STYLE_DIM, text.text);
    strbuf_free(&higher);
    strbuf_free(&text);
}

// The group in place of the first columns' names, then the names of the others.
static void table_heading(struct table *table, const struct report *report,
        const struct table_grid *grid, const struct report_cell *cell)
{
    char *text = table_heading_text(report, cell);
    strbuf_add(&table->out, "\n");
    screen_style(&table->out, table_cell_style(cell), table->color, text);
    if (grid->fits) {
        struct strbuf names = {0};
        int left =
                grid->widths[TABLE_COLUMN_MARK] + TABLE_GAP + grid->widths[TABLE_COLUMN_WORKLOAD];
        screen_repeat(&names, " ", left - screen_columns(text));
        for (int i = TABLE_COLUMN_METRIC; i < TABLE_COLUMN_COUNT; i++) {
            screen_repeat(&names, " ", table_gap(grid, i));
            screen_pad(&names, grid->header.fields[i], grid->widths[i], i >= TABLE_COLUMN_MEDIAN_A);
        }
        screen_style(&table->out, SCREEN_STYLE_DIM, table->color, names.text);
        strbuf_free(&names);
    }
    strbuf_add(&table->out, "\n");
    free(text);
}

void table_cells(struct table *table, const struct report *report)
{
    if (report->cell_count == 0) {
        strbuf_add(&table->out, "\n");
        table_line(table, "cells", SCREEN_STYLE_BOLD, "none: nothing was measured on both sides");
        return;
    }
    struct table_grid grid = {0};
    table_grid_make(&grid, table, report);
    for (int i = 0; i < report->cell_count; i++) {
        const struct report_cell *cell = &report->cells[i];
        if (i == 0 || !table_same_group(cell - 1, cell))
            table_heading(table, report, &grid, cell);
        if (grid.fits)
            table_row_print(table, &grid, &grid.rows[i], cell);
        else
            table_row_stack(table, &grid.rows[i], cell);
    }
    strbuf_add(&table->out, "\n");
    table_legend(table, report);
    table_grid_clear(&grid, report->cell_count);
}
