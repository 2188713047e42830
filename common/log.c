// SPDX-License-Identifier: Apache-2.0
// Messages to stderr. One write(2) a message, so that messages of several threads do not mix.
#include "common/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/strings.h"

static enum log_level log_level_max = LOG_LEVEL_INFO;
static void (*log_before)(void);

void log_set_level(enum log_level level)
{
    log_level_max = level;
}

void log_set_hook(void (*before)(void))
{
    log_before = before;
}

static void log_write(enum log_level level, const char *prefix, const char *fmt, va_list args)
{
    if (level > log_level_max)
        return;
    if (log_before)
        log_before();
    char text[4096];
    int len = snprintf(text, sizeof text, "upgate: %s", prefix);
    int body = vsnprintf(text + len, sizeof text - (size_t)len - 1, fmt, args);
    if (body < 0)
        return;
    size_t total = strlen(text);
    string_make_plain(text, total); // names, paths and foreign messages stand in it
    text[total++] = '\n';
    // A closed stderr must not end the run: the result goes to the store and to stdout.
    ssize_t written = write(STDERR_FILENO, text, total);
    (void)written;
}

#define LOG_FUNCTION(name, level, prefix) \
    void name(const char *fmt, ...) \
    { \
        va_list args; \
        va_start(args, fmt); \
        log_write(level, prefix, fmt, args); \
        va_end(args); \
    }

LOG_FUNCTION(log_error, LOG_LEVEL_ERROR, "error: ")
LOG_FUNCTION(log_warn, LOG_LEVEL_WARN, "warning: ")
LOG_FUNCTION(log_info, LOG_LEVEL_INFO, "")
LOG_FUNCTION(log_debug, LOG_LEVEL_DEBUG, "debug: ")
