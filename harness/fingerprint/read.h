// SPDX-License-Identifier: Apache-2.0
// Small readers of /proc and /sys for the fingerprint: a file's text into JSON, null when it is not
// there.
#ifndef UPGATE_FINGERPRINT_READ_H
#define UPGATE_FINGERPRINT_READ_H

#include <jansson.h>

// Text of the file at the printf-made path, without blanks around it; NULL with errno. Caller
// frees.
char *read_text(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

// The chosen one of a kernel selection: "always [madvise] never" -> "madvise"; other text as it is.
char *read_choice(const char *text); // caller frees

// Take the text: a JSON string of it (bytes that are not UTF-8 become '?'), or null for NULL.
json_t *json_text_take(char *text);
json_t *json_text(const char *text);  // the same, copying
json_t *json_number_take(char *text); // an integer if the whole text is one, else as json_text_take

// Remember why `path` (dotted, as the comparison names it) is null.
void missing_add(json_t *missing, const char *path, const char *fmt, ...)
        __attribute__((format(printf, 3, 4)));

#endif
