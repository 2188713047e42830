// SPDX-License-Identifier: Apache-2.0
// A file that is made from tables, as the pages in docs/ and the manual pages are.
#ifndef UPGATE_VERBS_PAGE_H
#define UPGATE_VERBS_PAGE_H

#include <stdio.h>

#include "common/error.h"

// What `print` writes into a new file at path, which is taken. -EIO in words.
int page_write(char *path, void (*print)(const void *context, FILE *file), const void *context,
        struct error *err);

#endif
