// SPDX-License-Identifier: Apache-2.0
// The pages that are built into the program, one file each that needs no network: the report of a
// judged run (or of recordings), and that of a rollout. Style, libraries and what every part uses
// stand here; each page's own scripts beside the C code that makes its data (html/page,
// rollout/page, with DATA.md). Read only; any thread.
#ifndef UPGATE_RENDER_PAGE_H
#define UPGATE_RENDER_PAGE_H

#include <stddef.h>

enum page { PAGE_VERDICT, PAGE_ROLLOUT, PAGE_COUNT };

// NULL: the page is there. Else why not: which packages the build did not find.
const char *page_missing(enum page page);
size_t page_bytes(enum page page); // without data

// The whole file; the caller frees. title: of the tab; sentence: for readers without scripts; json:
// the data document. All are valid UTF-8; none can act as markup.
char *page_make(enum page page, const char *title, const char *sentence, const char *json);

#endif
