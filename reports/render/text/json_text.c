// SPDX-License-Identifier: Apache-2.0
// One function; see json_text.h. Any thread.
#include "reports/render/text/json_text.h"

#include "common/strings.h"
#include "reports/render/text/screen.h"

json_t *render_json_text(const char *text)
{
    if (!text)
        return json_null();
    struct strbuf valid = {0};
    while (*text) {
        const char *begin = text;
        if (screen_next(&text) == 0xfffd)
            strbuf_add(&valid, "\xef\xbf\xbd");
        else
            strbuf_add_bytes(&valid, begin, (size_t)(text - begin));
    }
    json_t *string = json_string(valid.len ? valid.text : "");
    strbuf_free(&valid);
    return string;
}
