// SPDX-License-Identifier: Apache-2.0
// The HTML report: one file that needs no network, with the verdict, every pair, where the time
// went, a timeline, flame graphs and how each number was made. The page (page/) is built into the
// program; here the data document is made and put into it. Reads the store only; the same store
// gives the same file.
#ifndef UPGATE_REPORTS_HTML_H
#define UPGATE_REPORTS_HTML_H

#include "common/error.h"
#include "tracer/store/store.h"

// The whole file; the caller frees. A store of `upgate record` gives a report of its recordings,
// without a verdict. -ENODATA: a run that was not judged. -ENOSYS: built without the page.
int html_make(struct store *store, char **ret_text, struct error *err);

#endif
