// SPDX-License-Identifier: Apache-2.0
// The tables as a page in docs/. Reads the tables, writes Markdown to the stream it is given.
#include <stdio.h>
#include <stdlib.h>

#include "common/strings.h"
#include "harness/plan/schema.h"

static char *schema_type(const struct field *field)
{
    static const char *const names[] = {[FIELD_TEXT] = "text",
            [FIELD_TEXTS] = "list of text",
            [FIELD_BOOL] = "true, false",
            [FIELD_UINT] = "whole number",
            [FIELD_NUMBER] = "number",
            [FIELD_FRACTION] = "share, `2%`",
            [FIELD_RATE] = "rate, `20/s`",
            [FIELD_DURATION] = "duration, `20ms`",
            [FIELD_MAP] = "map"};
    if (field->kind == FIELD_CUSTOM)
        return xstrdup(field->custom->type);
    if (field->kind != FIELD_CHOICE && field->kind != FIELD_SWITCH)
        return xstrdup(names[field->kind]);
    struct strbuf list = {0};
    for (size_t i = 0; field->choices[i]; i++)
        strbuf_add(&list, "%s`%s`", i ? ", " : "", field->choices[i]);
    return strbuf_take(&list);
}

void schema_print_markdown(const struct field *fields, const char *title, void *stream)
{
    FILE *file = stream;
    fprintf(file, "\n## %s\n\n| key | value | default | meaning |\n|---|---|---|---|\n", title);
    for (const struct field *field = fields; field->kind != FIELD_END; field++) {
        if (field->json_only)
            continue;
        char *type = schema_type(field);
        fprintf(file, "| `%s` | %s | %s%s%s | %s |\n", field->key, type,
                field->default_text ? "`" : "",
                field->default_text       ? field->default_text
                        : field->required ? "required"
                                          : "",
                field->default_text ? "`" : "", field->help);
        free(type);
    }
    for (const struct field *field = fields; field->kind != FIELD_END; field++) {
        bool again = field > fields && field[-1].fields == field->fields; // the two sides
        if (!field->fields || again)
            continue;
        char *name = field[1].fields == field->fields
                ? xasprintf("%s, %s", field->key, field[1].key)
                : xstrdup(field->key);
        schema_print_markdown(field->fields, name, file);
        free(name);
    }
}
