// SPDX-License-Identifier: Apache-2.0
// NVTX: every library of the workload that uses it loads NVTX_INJECTION64_PATH, which is us, at its
// first range. We keep its table, and hand it on to libcupti's own entry once NVTX is wanted, be it
// then or an hour later.
#ifndef UPGATE_TRACER_INJECT_CUPTI_NVTX_H
#define UPGATE_TRACER_INJECT_CUPTI_NVTX_H

#include "tracer/inject/cupti/cupti_abi.h"

// From now on libcupti serves NVTX; NULL: nobody does.
void nvtx_forward(const struct cupti *cupti);
// libcupti has left the process (cuptiFinalize): its functions are to be installed anew.
void nvtx_forget(void);
// In the child of a fork: no lock is held by a thread that is not there.
void nvtx_child(void);

#endif
