// SPDX-License-Identifier: Apache-2.0
// The two halves of the terminal table: the grid of cells, and the sections around it. Internal to
// this folder; others call render_verdict_table().
#ifndef UPGATE_REPORTS_VERDICT_TABLE_H
#define UPGATE_REPORTS_VERDICT_TABLE_H

#include "reports/render/text/table.h"
#include "reports/render/verdict/report.h"

enum screen_style table_style(enum report_verdict verdict);

// One line a cell, failures first, what never gates last and dim; stacked on a narrow terminal.
void table_cells(struct table *table, const struct report *report);

#endif
