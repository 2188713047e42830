// SPDX-License-Identifier: Apache-2.0
// A report on a terminal while it is written: sections of labelled, wrapped lines. Internal to reports/render.
#ifndef UPGATE_REPORTS_TABLE_H
#define UPGATE_REPORTS_TABLE_H

#include "reports/render/text/screen.h"

enum { TABLE_LABEL = 13 }; // columns of the label of a section

struct table {
    struct strbuf out;
    int width;
    bool color, utf8;
};

// "label        text, wrapped": one line of a section. The text is cleaned.
void table_line(struct table *table, const char *label, enum screen_style style, const char *text);

#endif
