// SPDX-License-Identifier: Apache-2.0
// Rows of integers into the store at SQLite's own speed: some thousand of them in memory are handed
// over by one INSERT ... SELECT from a virtual table, which saves the binding and the statement of
// every row (three times faster than a prepared INSERT). Plain tables come out of it, inside
// whatever transaction is open.
#ifndef UPGATE_TRACER_GPU_BATCH_H
#define UPGATE_TRACER_GPU_BATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"
#include "tracer/gpu/gpu.h"
#include "tracer/store/store.h"

#define BATCH_NULL INT64_MIN // SQL NULL

// Under the fuzzer what is held back has a 512th of the room: it gets full, and no input pays for
// memory that it does not use.
#ifdef UPGATE_FUZZ_SIZES
enum { GPU_SHRINK = 9 };
#else
enum { GPU_SHRINK = 0 };
#endif

enum batch_table {
    BATCH_OP,
    BATCH_WORK,
    BATCH_CALL,
    BATCH_SYNC,
    BATCH_MEMORY,
    BATCH_OVERHEAD,
    BATCH_RANGE,
    BATCH_MARK,
    BATCH_GC,
    BATCH_CLOCK,
    BATCH_TABLE_COUNT
};

struct batch;

// callbacks: begin and failed are used; they must outlive the batch.
int batch_new(struct store *store, const struct gpu_callbacks *callbacks, struct batch **ret_batch,
        struct error *err);
void batch_free(struct batch *batch); // NULL ok; what is not flushed is gone

// The columns of the next row of a table, in the order of the schema, for the caller to fill (id of
// gpu_work included, that of gpu_op not). Never NULL: after a failure it is room that nobody reads.
int64_t *batch_row(struct batch *batch, enum batch_table table);
// Hands over what is there. 0, or -errno once nothing can be written.
ERROR_CHECKED int batch_flush(struct batch *batch, struct error *err);
// An open transaction for a statement of the caller's; false: nothing can be written any more,
// counted as a row lost.
bool batch_begin(struct batch *batch);
void batch_fail(struct batch *batch); // the caller's statement failed
// of own transactions (callbacks without begin)
ERROR_CHECKED int batch_commit(struct batch *batch, struct error *err);

uint64_t batch_rows(const struct batch *batch, enum batch_table table); // given, lost ones included
uint64_t batch_lost(const struct batch *batch);
// Rows whose times no clock gives (tracer/store/ranges.h) are not handed over, but counted. For a
// statement of the caller's: false where one of its times is such, counted likewise.
bool batch_holds(struct batch *batch, const int64_t *times, size_t count);
uint64_t batch_odd(const struct batch *batch); // of what was flushed

#endif
