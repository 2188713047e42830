// SPDX-License-Identifier: Apache-2.0
// See json_text.h. Any thread.
#include "reports/render/text/json_text.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>

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

json_t *render_json_take(char *text)
{
    json_t *value = render_json_text(text);
    free(text);
    return value;
}

json_t *render_json_real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

json_t *render_json_whole(double value)
{
    return isfinite(value) && fabs(value) < 9e18 ? json_integer(llround(value)) : json_null();
}

json_t *render_json_count(int64_t value)
{
    return value < 0 ? json_null() : json_integer(value);
}

json_t *render_json_pair(json_t *a, json_t *b)
{
    json_t *pair = json_array();
    json_array_append_new(pair, a);
    json_array_append_new(pair, b);
    return pair;
}

json_t *render_json_set(json_t *object, ...)
{
    va_list members;
    va_start(members, object);
    for (const char *name; (name = va_arg(members, const char *));)
        json_object_set_new(object, name, va_arg(members, json_t *));
    va_end(members);
    return object;
}
