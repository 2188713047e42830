// SPDX-License-Identifier: Apache-2.0
// A table of integers as a SQLite database in memory, its pages written by us; INSERT INTO main.T
// SELECT * FROM image.T then copies whole records (SQLite's transfer optimisation), without a step
// of the interpreter for every column. The file of the store is written by SQLite alone, as ever:
// journal, locks and crash safety are its.
#ifndef UPGATE_TRACER_GPU_IMAGE_H
#define UPGATE_TRACER_GPU_IMAGE_H

#include <sqlite3.h>
#include <stdint.h>

#include "common/error.h"

struct image;

enum { IMAGE_ROWS_MIN = 4096, IMAGE_COLUMNS_MAX = 8 };

// For a table without id column and index. Not inside a transaction. NULL: this SQLite cannot;
// other ways work.
struct image *image_new(sqlite3 *db, const char *table, int columns, int rows_max);
void image_free(struct image *image); // NULL ok
// Inside a transaction: rows x columns values, at least IMAGE_ROWS_MIN rows; NULL is INT64_MIN.
// SQLITE_OK or its code.
ERROR_CHECKED int image_insert(struct image *image, const int64_t *values, int rows);

#endif
