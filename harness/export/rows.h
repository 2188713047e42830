// SPDX-License-Identifier: Apache-2.0
// Rows of a store as lines of a file. CSV (RFC 4180, UTF-8): a header, lines that end in CR LF,
// numbers bare, NULL an empty field, every text and blob in quotes, an empty one "", a blob in
// hexadecimal, infinite numbers Inf and -Inf. A byte that is not UTF-8, and each NUL, is '?'. The
// same with escapes is for harness/export/parquet.c: in texts %XX stands for quotes, % and control
// characters, and lines end in LF, so that no text of a store can be taken for the end of a field
// or a line.
#ifndef UPGATE_HARNESS_EXPORT_ROWS_H
#define UPGATE_HARNESS_EXPORT_ROWS_H

#include <signal.h>

#include "harness/export/tables.h"
#include "tracer/store/store.h"

enum rows_form { ROWS_CSV, ROWS_ESCAPED };

// All rows of a table into fd, and what is to be known of them into *table. -EBADMSG: a value is of
// another type than the schema's, or out of its range; -EINTR by *stop; -ENOSPC and the like: in
// words. Nothing is closed.
ERROR_CHECKED int rows_write(struct store *store, struct table *table, enum rows_form form, int fd,
        const volatile sig_atomic_t *stop, struct error *err);

#endif
