// SPDX-License-Identifier: Apache-2.0
// Least privilege of a recorder: once its capture is attached, what only attaching needs is given
// up for good.
#ifndef UPGATE_TRACER_RECORD_PRIVILEGES_H
#define UPGATE_TRACER_RECORD_PRIVILEGES_H

#include "common/error.h"

// The calling thread keeps the capabilities that reading a target takes, and can never gain others;
// other threads of the process keep theirs (Linux has both for each thread). 0 or -errno; the
// recording can go on either way, with what could not be given up.
int privileges_drop(struct error *err);

#endif
