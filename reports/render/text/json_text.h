// SPDX-License-Identifier: Apache-2.0
// Text of the store as a JSON string; a broken byte of UTF-8, which JSON cannot hold, becomes U+FFFD.
#ifndef UPGATE_REPORTS_RENDER_JSON_TEXT_H
#define UPGATE_REPORTS_RENDER_JSON_TEXT_H

#include <jansson.h>

json_t *render_json_text(const char *text); // a new reference; null for NULL

#endif
