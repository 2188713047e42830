// SPDX-License-Identifier: Apache-2.0
// What a page takes in that others wrote: a JSON document in a script element, and text. Internal to the rooms of pages.
#ifndef UPGATE_REPORTS_HTML_TEXT_H
#define UPGATE_REPORTS_HTML_TEXT_H

#include "common/strings.h"

void html_text_json(struct strbuf *out, const char *json); // cannot end the element it stands in
void html_text_escaped(struct strbuf *out, const char *text);      // is no markup, in an attribute neither

#endif
