// SPDX-License-Identifier: Apache-2.0
// Readers shared by the collectors of the fingerprint. Nothing here decides what is read.
#include "harness/fingerprint/read.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"

enum { READ_BYTES_MAX = 1 << 20 };

char *read_text(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    char *path = xvasprintf(fmt, args);
    va_end(args);
    size_t length = 0;
    char *text = string_read_file(path, READ_BYTES_MAX, &length);
    int saved = errno;
    free(path);
    errno = saved;
    if (!text)
        return NULL;
    while (length && isspace((unsigned char)text[length - 1]))
        text[--length] = '\0';
    size_t blanks = strspn(text, " \t\n");
    memmove(text, text + blanks, length - blanks + 1);
    return text;
}

char *read_choice(const char *text)
{
    const char *open = strchr(text, '['), *close = open ? strchr(open, ']') : NULL;
    return close ? xasprintf("%.*s", (int)(close - open - 1), open + 1) : xstrdup(text);
}

json_t *json_text(const char *text)
{
    return text ? json_text_take(xstrdup(text)) : json_null();
}

json_t *json_text_take(char *text)
{
    if (!text)
        return json_null();
    json_t *value = json_string(text);
    if (!value) { // a path or variable may hold any bytes
        for (char *at = text; *at; at++)
            if ((unsigned char)*at >= 0x80)
                *at = '?';
        value = json_string(text);
    }
    free(text);
    return value;
}

json_t *json_number_take(char *text)
{
    if (!text || !*text)
        return json_text_take(text);
    char *end;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    if (*end || errno)
        return json_text_take(text);
    free(text);
    return json_integer(number);
}

void missing_add(json_t *missing, const char *path, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    json_object_set_new(missing, path, json_text_take(xvasprintf(fmt, args)));
    va_end(args);
}
