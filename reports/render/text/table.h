// SPDX-License-Identifier: Apache-2.0
// A report on a terminal while it is written: sections of labelled, wrapped lines. Internal to
// reports/render.
#ifndef UPGATE_REPORTS_TABLE_H
#define UPGATE_REPORTS_TABLE_H

#include <stdio.h>

#include "common/error.h"
#include "reports/render/text/screen.h"

enum {
    TABLE_LABEL = 13,     // columns of the label of a section
    TABLE_WIDTH_MAX = 140 // longer lines are hard to follow
};

struct table {
    struct strbuf out;
    int width;
    bool color, utf8;
};

struct table table_begin(int width, bool color, bool utf8);
// Prints the table and frees it. what: "the difference". -EIO, -ENOSPC, -EPIPE when the stream did
// not take it.
int table_end(struct table *table, FILE *stream, const char *what, struct error *err);

// The text, cleaned and wrapped. The style ends before the last line does.
void table_paragraph(struct table *table, enum screen_style style, const char *text);
// "label        text, wrapped": one line of a section. The text is cleaned.
void table_line(struct table *table, const char *label, enum screen_style style, const char *text);
// and frees the text
void table_take(struct table *table, const char *label, enum screen_style style, char *text);

#endif
