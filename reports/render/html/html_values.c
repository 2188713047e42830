// SPDX-License-Identifier: Apache-2.0
// Values of the HTML report's data document: names, texts cut to a length. Reads and writes memory
// only; see html_parts.h.
#include <stdlib.h>
#include <string.h>

#include "common/containers/intern.h"
#include "common/containers/vector.h"
#include "common/strings.h"
#include "reports/render/html/html_parts.h"

struct html_names {
    struct intern *keys;
    char **texts; // NULL where it is the key
    uint32_t count;
};

struct html_names *html_names_new(void)
{
    struct html_names *names = xcalloc(1, sizeof *names);
    names->keys = intern_new();
    return names;
}

void html_names_free(struct html_names *names)
{
    if (!names)
        return;
    for (uint32_t i = 0; i < names->count; i++)
        free(names->texts[i]);
    intern_free(names->keys);
    free(names->texts);
    free(names);
}

uint32_t html_names_add_as(struct html_names *names, const char *key, const char *text)
{
    uint32_t number = intern_text(names->keys, key);
    if (number == names->count)
        vector_push(names->texts, names->count, key == text ? NULL : xstrdup(text));
    return number;
}

uint32_t html_names_add(struct html_names *names, const char *text)
{
    const char *known = text ? text : "[unknown]";
    return html_names_add_as(names, known, known);
}

uint32_t html_names_count(const struct html_names *names)
{
    return names->count;
}

json_t *html_names_json(const struct html_names *names)
{
    return render_json_list(i, names->count,
            html_text(names->texts[i] ? names->texts[i] : intern_get(names->keys, (uint32_t)i),
                    HTML_NAME_BYTES_MAX));
}

json_t *html_text(const char *text, size_t bytes)
{
    size_t len = text ? strlen(text) : 0;
    if (len <= bytes)
        return render_json_text(text);
    while (bytes > 0 && ((unsigned char)text[bytes] & 0xc0) == 0x80)
        bytes--; // not inside a character
    char *cut = xasprintf("%.*s\xe2\x80\xa6 (%zu bytes)", (int)bytes, text, len);
    json_t *value = render_json_text(cut);
    free(cut);
    return value;
}

json_t *html_take(char *text)
{
    json_t *value = html_text(text, HTML_TEXT_BYTES_MAX);
    free(text);
    return value;
}
