// SPDX-License-Identifier: Apache-2.0
// A traced launch as a file for Perfetto's UI (ui.perfetto.dev, opened from disk): steps, phases,
// processes, threads with their waits and what ran, CUDA calls, NVTX, NCCL, and each GPU stream
// with every kernel. What overlaps on one stream gets a track of its own, because the UI drops
// slices that do not nest. Reads the store only; written as it is read, so that ten million kernels
// fit.
#ifndef UPGATE_REPORTS_PFTRACE_H
#define UPGATE_REPORTS_PFTRACE_H

#include <stdint.h>

#include "common/error.h"
#include "tracer/store/store.h"

// launch: an id of table launch; 0: the candidate's first traced launch, of `upgate record` its
// first recording. The file appears whole or not at all. -ENODATA: nothing was traced. -EINVAL:
// that launch was not; the error names those that were.
ERROR_CHECKED int pftrace_write(
        struct store *store, int64_t launch, const char *path, struct error *err);

// Is there what pftrace_write would write?
int pftrace_check(struct store *store, int64_t launch, struct error *err);

#endif
