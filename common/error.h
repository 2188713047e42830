// SPDX-License-Identifier: Apache-2.0
// An error that a person can act on: a negative errno and one sentence. Filled by the function that
// failed, printed once by the verb. -EINVAL means bad input (exit 2); everything else is
// operational (exit 4). Functions take `struct error *err` last; NULL is allowed and drops the
// text.
#ifndef UPGATE_COMMON_ERROR_H
#define UPGATE_COMMON_ERROR_H

#include <stdarg.h>

struct error {
    int code;        // 0 or -errno
    char text[2000]; // "failed to X 'y': cause; hint"
};

// Before what writes evidence, reads it, or makes a file: a failure that nobody looks at would be
// evidence that is missing, and nobody would know.
#define ERROR_CHECKED __attribute__((warn_unused_result))

// Fill *err and return code, so that callers write `return error_set(err, -EINVAL, ...)`.
int error_set(struct error *err, int code, const char *fmt, ...)
        __attribute__((format(printf, 3, 4)));

// Put context before an error that is already set: "CONTEXT: old text". Returns err->code.
int error_prefix(struct error *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

// Exit code of the process for an error code: 0 -> 0, -EINVAL -> 2, anything else -> 4.
int error_exit_code(int code);

#endif
