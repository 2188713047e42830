// SPDX-License-Identifier: Apache-2.0
// See html_text.h. Pure functions that append to a buffer.
#include "reports/render/text/html_text.h"

#include <string.h>

// In a script element nothing but "</script" and "<!--" has a meaning, and in a JSON text "<"
// stands in strings only. U+2028 and U+2029 end a line for old readers of JavaScript.
void html_text_json(struct strbuf *out, const char *json)
{
    for (const char *from = json;; json++) {
        const char *as = NULL;
        size_t len = 1;
        if (*json == '<')
            as = "\\u003c";
        else if (strncmp(json, "\xe2\x80\xa8", 3) == 0)
            as = "\\u2028", len = 3;
        else if (strncmp(json, "\xe2\x80\xa9", 3) == 0)
            as = "\\u2029", len = 3;
        else if (*json)
            continue;
        strbuf_add_bytes(out, from, (size_t)(json - from));
        if (!*json)
            return;
        strbuf_add_bytes(out, as, strlen(as));
        from = json + len;
        json += len - 1;
    }
}

void html_text_escaped(struct strbuf *out, const char *text)
{
    for (; *text; text++) {
        const char *as = *text == '&'   ? "&amp;"
                         : *text == '<' ? "&lt;"
                         : *text == '>' ? "&gt;"
                         : *text == '"' ? "&quot;"
                                        : NULL;
        strbuf_add_bytes(out, as ? as : text, as ? strlen(as) : 1);
    }
}
