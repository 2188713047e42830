// SPDX-License-Identifier: Apache-2.0
// See table.h. Appends to the table's buffer.
#include "reports/render/text/table.h"

#include <stdlib.h>

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
