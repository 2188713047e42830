// SPDX-License-Identifier: Apache-2.0
// Functions without a name: who is one, and what it is inside of. Pure functions.
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reports/analyse/names/names.h"

static bool inside_begins(const char *text, const char *const *prefixes)
{
    for (; *prefixes; prefixes++)
        if (!strncmp(text, *prefixes, strlen(*prefixes)))
            return true;
    return false;
}

bool names_is_interpreter(const char *name, const char *module)
{
    static const char *const names[] = {
            "_PyEval_", "PyEval_", "_PyObject_", "PyObject_", "_PyFunction_", NULL};
    if (!strncmp(module, "libpython", strlen("libpython")))
        return true;
    if (!strncmp(module, "python", strlen("python"))) {
        const char *at = module + strlen("python");
        while (isdigit((unsigned char)*at) || *at == '.')
            at++;
        if (!*at)
            return true;
    }
    return inside_begins(name, names);
}

// "libfoo.so+0x1234": at the end, as C++ has a + in names, too.
static const char *nameless_number(const char *name)
{
    const char *at = NULL;
    for (const char *next = name; (next = strstr(next, "+0x")); next++)
        at = next;
    return at && at > name && at[3] && strspn(at + 3, "0123456789abcdef") == strlen(at + 3) ? at + 3
                                                                                            : NULL;
}

bool names_is_nameless(const char *name)
{
    return name && nameless_number(name);
}

bool names_has_start(const char *name, int64_t offset)
{
    const char *number = name ? nameless_number(name) : NULL;
    return number && offset >= 0 && (uint64_t)offset != strtoull(number, NULL, 16);
}

bool names_inside_next(struct names_inside *inside, const char *name, const char *module)
{
    static const char *const operators[] = {"at::_ops::", NULL},
                             *const frameworks[] = {"libtorch", "libc10", NULL};
    if (!name || !module)
        return true;
    if (names_is_interpreter(name, module))
        return false; // what is further out called Python
    if (!*name || *name == '[' || nameless_number(name))
        return true;
    if (inside_begins(name, operators)) {
        inside->found = name;
        return false;
    }
    if (!inside->nearest && (!strcmp(module, inside->module) || inside_begins(module, frameworks)))
        inside->nearest = name;
    return true;
}

size_t names_inside_text(const struct names_inside *inside, char *buf, size_t buf_size)
{
    static const char call[] = "::call"; // at::_ops::index_add::call
    const char *found = inside->found ? inside->found : inside->nearest;
    if (!found || !buf_size)
        return 0;
    size_t len = strcspn(found, "(<"), tail = sizeof call - 1;
    len = len < NAMES_INSIDE_MAX ? len : NAMES_INSIDE_MAX;
    if (len > tail && !strncmp(found + len - tail, call, tail))
        len -= tail;
    int got = snprintf(buf, buf_size, "%.*s", (int)len, found);
    return got < (int)buf_size ? (size_t)got : buf_size - 1;
}
