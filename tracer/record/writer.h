// SPDX-License-Identifier: Apache-2.0
// Rows of a recording into the store: prepared statements, numbers of rows given out here, one
// transaction for about a second. The first failure (full disk, lock) rolls the open transaction
// back and closes the writer: what was committed stays readable, what comes later is counted as
// lost.
//
// While a recording goes on the store belongs to it, and foreign keys are not checked: a gap names
// its stacks before their symbols are known, and ten checks a row would double the cost of a row.
#ifndef UPGATE_TRACER_RECORD_WRITER_H
#define UPGATE_TRACER_RECORD_WRITER_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "tracer/store/store.h"

enum writer_table {
    WRITER_PROCESS,
    WRITER_THREAD,
    WRITER_FRAME,
    WRITER_STACK,
    WRITER_GAP,
    WRITER_SAMPLE,
    WRITER_FAULT,
    WRITER_LOCK,
    WRITER_FACT,
    WRITER_COUNTER,
    WRITER_TOTAL,
    WRITER_STEP,
    WRITER_CONNECTION,
    WRITER_TABLE_COUNT,
};

struct writer;

// A row being filled, column by column in the order of the schema.
struct row {
    sqlite3_stmt *stmt; // NULL: the writer has failed, nothing is kept
    int column;
};

ERROR_CHECKED int writer_new(struct store *store, struct writer **ret_writer, struct error *err);
void writer_abandon(struct writer *writer); // rolls back what is open; later rows are ignored
void writer_free(struct writer *writer);    // NULL ok; rolls back what is open

// process, thread, frame, stack
uint32_t writer_next_id(struct writer *writer, enum writer_table table);
// For those that write rows of their own into the transaction: opens it unless it is open. 0, or
// why nothing can be written.
ERROR_CHECKED int writer_begin(struct writer *writer);
// a statement of theirs failed: rolls back and closes the writer
void writer_fail(struct writer *writer);
struct row writer_row(struct writer *writer, enum writer_table table);
void row_int(struct row *row, int64_t value);
void row_id(struct row *row, int64_t id);         // 0 becomes NULL
void row_time(struct row *row, uint64_t ns);      // 0 becomes NULL
void row_text(struct row *row, const char *text); // NULL becomes NULL; copied by writer_put
void row_null(struct row *row);
void writer_put(struct writer *writer, struct row *row);

// in the store, or in the open transaction
uint64_t writer_rows(const struct writer *writer, enum writer_table table);
// Rows after the failure, and those of the transaction that it rolled back.
uint64_t writer_lost(const struct writer *writer, enum writer_table table);
uint64_t writer_lost_all(const struct writer *writer);
bool writer_failed(const struct writer *writer, struct error *err);
// 0 when nothing is open, and, unless it is the last one, when a reader is in the way: the next one
// will do.
ERROR_CHECKED int writer_commit(struct writer *writer, bool last, struct error *err);

#endif
