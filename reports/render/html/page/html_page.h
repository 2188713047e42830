// SPDX-License-Identifier: Apache-2.0
// The page of the HTML report as it was built into the program: everything but the data. A report is
//     piece 0, title (HTML text), piece 1, one sentence of the verdict (HTML text, for readers without scripts), piece 2,
//     the data document (DATA.md; JSON with every "<" as \u003c), piece 3.
// Read only; any thread.
#ifndef UPGATE_RENDER_HTML_PAGE_H
#define UPGATE_RENDER_HTML_PAGE_H

#include <stddef.h>

enum { HTML_PAGE_PIECES = 4 };

// NULL: built without the page; html_page_missing() says which packages the build did not find.
const char *html_page_piece(int index, size_t *ret_size);
const char *html_page_missing(void); // NULL: it is there

#endif
