// SPDX-License-Identifier: Apache-2.0
// The two halves of the terminal table: the grid of cells, and the sections around it. Internal to
// this room; others call render_verdict_table().
#ifndef UPGATE_REPORTS_TABLE_H
#define UPGATE_REPORTS_TABLE_H

#include "reports/render/render.h"
#include "reports/render/text/screen.h"
#include "reports/render/verdict/report.h"

enum { TABLE_LABEL = 13 }; // columns of the label of a section

struct table {
    struct strbuf out;
    const struct report *report;
    int width;
    bool color, utf8;
};

enum screen_style table_style(enum report_verdict verdict);

// "label        text, wrapped": one line of a section. The text is cleaned.
void table_line(struct table *table, const char *label, enum screen_style style, const char *text);

// One line a cell, failures first, what never gates last and dim; stacked on a narrow terminal.
void table_cells(struct table *table);

#endif
