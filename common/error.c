// SPDX-License-Identifier: Apache-2.0
// Errors with a text. Reads nothing, writes only the caller's struct. Thread-safe.
#include "common/error.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "contracts/exit_code.h"

int error_set(struct error *err, int code, const char *fmt, ...)
{
    if (err) {
        va_list args;
        va_start(args, fmt);
        vsnprintf(err->text, sizeof err->text, fmt, args);
        va_end(args);
        err->code = code;
    }
    return code;
}

int error_prefix(struct error *err, const char *fmt, ...)
{
    if (!err)
        return 0;
    char text[sizeof err->text];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    size_t len = strlen(text);
    snprintf(text + len, sizeof text - len, ": %s", err->text);
    memcpy(err->text, text, sizeof text);
    return err->code;
}

int error_exit_code(int code)
{
    if (code == 0)
        return EXIT_CODE_PASS;
    return code == -EINVAL ? EXIT_CODE_USAGE : EXIT_CODE_OPERATIONAL;
}
