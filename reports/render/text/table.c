// SPDX-License-Identifier: Apache-2.0
// See table.h. Appends to the table's buffer.
#include "reports/render/text/table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct table table_begin(int width, bool color, bool utf8)
{
    return (struct table){.width = width > TABLE_WIDTH_MAX ? TABLE_WIDTH_MAX : width,
            .color = color,
            .utf8 = utf8};
}

int table_end(struct table *table, FILE *stream, const char *what, struct error *err)
{
    int rc = 0;
    errno = 0;
    if (fwrite(table->out.text, 1, table->out.len, stream) != table->out.len || fflush(stream) != 0)
        rc = error_set(err, errno ? -errno : -EIO, "failed to print %s: %s", what,
                strerror(errno ? errno : EIO));
    strbuf_free(&table->out);
    return rc;
}

void table_paragraph(struct table *table, enum screen_style style, const char *text)
{
    char *clean = screen_clean(text, table->utf8);
    struct strbuf lines = {0};
    screen_wrap(&lines, clean, table->width, 0, 0);
    lines.text[--lines.len] = 0;
    screen_style(&table->out, style, table->color, lines.text);
    strbuf_add(&table->out, "\n");
    strbuf_free(&lines);
    free(clean);
}

void table_line(struct table *table, const char *label, enum screen_style style, const char *text)
{
    struct strbuf padded = {0};
    screen_pad(&padded, label, TABLE_LABEL, false);
    screen_style(&table->out, *label ? style : SCREEN_STYLE_PLAIN, table->color, padded.text);
    strbuf_free(&padded);
    char *clean = screen_clean(text, table->utf8);
    screen_wrap(&table->out, clean, table->width, TABLE_LABEL, TABLE_LABEL);
    free(clean);
}

void table_take(struct table *table, const char *label, enum screen_style style, char *text)
{
    table_line(table, label, style, text);
    free(text);
}
