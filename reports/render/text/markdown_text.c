// SPDX-License-Identifier: Apache-2.0
// Texts of the store in Markdown. Pure functions that append to a buffer; what they append ends no
// table cell, opens no tag, mentions nobody and links no issue.
#include "reports/render/text/markdown_text.h"

#include <stdlib.h>
#include <string.h>

#include "reports/render/text/screen.h"

enum {
    MARKDOWN_TEXT_MAX = 1500, // bytes of one text
    MARKDOWN_STDERR_LINES = 30,
    MARKDOWN_STDERR_COLUMNS = 400
};

static bool markdown_is_word(unsigned point)
{
    return (point >= 'a' && point <= 'z') || (point >= 'A' && point <= 'Z') ||
            (point >= '0' && point <= '9');
}

void markdown_text(struct strbuf *out, const char *raw)
{
    char *clean = screen_clean(raw, true);
    size_t begin = out->len;
    unsigned before = ' ';
    for (const char *text = clean; *text && out->len - begin < MARKDOWN_TEXT_MAX;) {
        const char *at = text;
        unsigned point = screen_next(&text);
        if (point == '&')
            strbuf_add(out, "&amp;");
        else if (point == '<')
            strbuf_add(out, "&lt;");
        else if (point == '|')
            strbuf_add(out, "&#124;"); // GitHub splits table cells at \| within code
        else if (point == '@' || point == '#')
            strbuf_add(out, "%c<!-- -->", (char)point); // no mention, no link to an issue
        else if (point == '_' && markdown_is_word(before) && markdown_is_word((unsigned char)*text))
            strbuf_add(out, "_"); // within a word it is no emphasis
        else if (point < 0x80 && strchr("\\`*_[]~$", (int)point))
            strbuf_add(out, "\\%c", (char)point);
        else
            strbuf_add_bytes(out, at, (size_t)(text - at));
        if (out->len - begin >= MARKDOWN_TEXT_MAX)
            strbuf_add(out, " \xe2\x80\xa6");
        before = point;
    }
    free(clean);
}

void markdown_put(struct strbuf *out, const char *before, const char *raw, const char *behind)
{
    strbuf_add(out, "%s", before);
    markdown_text(out, raw);
    strbuf_add(out, "%s", behind);
}

void markdown_take(struct strbuf *out, const char *before, char *raw, const char *behind)
{
    markdown_put(out, before, raw, behind);
    free(raw);
}

void markdown_html(struct strbuf *out, const char *raw)
{
    char *clean = screen_clean(raw, true);
    size_t begin = out->len;
    for (const char *c = clean; *c && out->len - begin < MARKDOWN_TEXT_MAX; c++) {
        if (*c == '&')
            strbuf_add(out, "&amp;");
        else if (*c == '<')
            strbuf_add(out, "&lt;");
        else if (*c == '@' || *c == '#')
            strbuf_add(out, "%c<!-- -->", *c);
        else
            strbuf_add_bytes(out, c, 1);
    }
    free(clean);
}

void markdown_name(struct strbuf *out, const char *name)
{
    static const char plain[] =
            "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.:/+-@,= ";
    if (*name && name[strspn(name, plain)] == 0 && strlen(name) < MARKDOWN_TEXT_MAX && *name != ' ')
        strbuf_add(out, "`%s`", name);
    else
        markdown_text(out, name);
}

void markdown_stderr(struct strbuf *out, const char *tail)
{
    size_t run = 0, longest = 2;
    for (const char *c = tail; *c; c++) {
        run = *c == '`' ? run + 1 : 0;
        longest = run > longest ? run : longest;
    }
    int lines = 0;
    const char *line = tail + strlen(tail);
    while (line > tail && line[-1] == '\n')
        line--;
    const char *end = line;
    for (; line > tail; line--)
        if (line[-1] == '\n' && ++lines == MARKDOWN_STDERR_LINES)
            break;
    screen_repeat(out, "`", (int)longest + 1);
    strbuf_add(out, "text\n");
    while (line < end) {
        size_t len = strcspn(line, "\n");
        struct strbuf text = {0};
        strbuf_add_bytes(
                &text, line, len > MARKDOWN_STDERR_COLUMNS ? MARKDOWN_STDERR_COLUMNS : len);
        char *clean = screen_clean(text.text, true);
        strbuf_add(out, "%s\n", clean);
        free(clean);
        strbuf_free(&text);
        line += len;
        line += *line == '\n';
    }
    screen_repeat(out, "`", (int)longest + 1);
    strbuf_add(out, "\n");
}
