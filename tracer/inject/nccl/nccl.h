// SPDX-License-Identifier: Apache-2.0
// What the core of the library calls in its NCCL part (nccl_plugin.c). NCCL itself comes in through
// the exported structs ncclProfiler_v1 to ncclProfiler_v6.
#ifndef UPGATE_TRACER_INJECT_NCCL_NCCL_H
#define UPGATE_TRACER_INJECT_NCCL_NCCL_H

#include <stdint.h>

// The control thread, after every change of the kinds: sets the activation masks. Without
// UG_WANT_NCCL, what is in flight is written first, so call it before the spool becomes dormant or
// ended.
void nccl_kinds_changed(uint32_t kinds);
// The control thread, about once a second while recording: writes operations whose end nobody
// reports.
void nccl_poll(void);
// In the child of a fork, where no communicator works any more.
void nccl_forget(void);

#endif
