// SPDX-License-Identifier: Apache-2.0
// Messages to stderr: "upgate: warning: ...". Only verbs and the run loop log above debug; library
// code returns errors instead. Thread-safe: each message is one write.
#ifndef UPGATE_COMMON_LOG_H
#define UPGATE_COMMON_LOG_H

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

// Messages above `level` are dropped. Default LOG_LEVEL_INFO; -q sets WARN, -v DEBUG.
void log_set_level(enum log_level level);

// Called before each message, so that a progress line can be cleared first. NULL removes it.
void log_set_hook(void (*before)(void));

void log_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void log_warn(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void log_info(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void log_debug(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
