// SPDX-License-Identifier: Apache-2.0
// --max-size: keeps the newest events of a recording. Once a second, inside the recorder's
// transaction, it looks at the size of the file and deletes whole seconds of the oldest rows
// (gpu_op, gpu_call, gap, sample, python_mark, ...); SQLite uses their pages again, so the file
// stays at or below the limit plus what one transaction adds. What went is in the ledger and in a
// note. Works without a GPU.
#ifndef UPGATE_TRACER_GPU_RETENTION_H
#define UPGATE_TRACER_GPU_RETENTION_H

#include <stdint.h>

#include "common/error.h"
#include "tracer/store/store.h"

struct retention;

// max_bytes below RETENTION_MIN_BYTES: -EINVAL in words.
enum { RETENTION_MIN_BYTES = 8 << 20 };
int retention_new(struct store *store, int64_t recording_id, int64_t max_bytes,
        struct retention **ret_retention, struct error *err);
void retention_free(struct retention *retention); // NULL ok
// Inside an open transaction, about once a second before its commit. 0 or -errno (as any write).
int retention_step(struct retention *retention, struct error *err);
// Inside an open transaction, at the end: ledger (producer "retention", a row a table) and the
// note. Nothing went: nothing.
int retention_end(struct retention *retention, const int64_t *launch_id, struct error *err);
uint64_t retention_rows(const struct retention *retention); // that went, for progress

#endif
