// SPDX-License-Identifier: Apache-2.0
// CUPTI leaves the process: a process that was traced once stays 10 to 20 % slower without
// cuptiFinalize (PyTorch PR 146604), and its documentation calls the exit of a CUDA call the safe
// place for it. An idle process costs nothing, so that its next call, whenever it comes, is soon
// enough.
#ifndef UPGATE_TRACER_INJECT_CUPTI_LEAVE_H
#define UPGATE_TRACER_INJECT_CUPTI_LEAVE_H

#include <stdbool.h>
#include <stdint.h>

#include "tracer/inject/cupti/cupti_abi.h"

// From now on CUPTI may be gone at any moment; everything is off and flushed. Control thread.
void leave_begin(const struct cupti *cupti, void *subscriber);
// Before a new session. 1: not yet gone, and it stays, the subscriber too; 0: gone, or never begun;
// -ETIMEDOUT: a thread of the workload is still in the middle of it.
int leave_cancel(const struct cupti *cupti, void *subscriber);
// In the callback of every call.
void leave_here(const struct cupti *cupti, uint32_t domain, uint32_t cbid,
        const struct cupti_callback_data *call);

#endif
