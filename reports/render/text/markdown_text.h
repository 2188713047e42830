// SPDX-License-Identifier: Apache-2.0
// Texts of the store in Markdown: names, sentences and what workloads wrote on stderr, so that none
// of it can act as markup. Internal to this room.
#ifndef UPGATE_REPORTS_MARKDOWN_TEXT_H
#define UPGATE_REPORTS_MARKDOWN_TEXT_H

#include "common/strings.h"

// Inline text: what Markdown or HTML would read as markup is escaped.
void markdown_text(struct strbuf *out, const char *raw);
// The same between two pieces of markup, which stay as they are.
void markdown_put(struct strbuf *out, const char *before, const char *raw, const char *behind);
// and frees the text
void markdown_take(struct strbuf *out, const char *before, char *raw, const char *behind);
// Text inside an HTML line such as <summary>, where Markdown does not look.
void markdown_html(struct strbuf *out, const char *raw);
// A name: as code where it can be, else escaped text.
void markdown_name(struct strbuf *out, const char *name);
// The last lines of `tail`, in a fence that no run of backticks in them can close.
void markdown_stderr(struct strbuf *out, const char *tail);

#endif
