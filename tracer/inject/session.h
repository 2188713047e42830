// SPDX-License-Identifier: Apache-2.0
// CUPTI switched on, kept running and switched off again. All functions but session_start run on
// the control thread; the first session_start may run inside cuInit, before that thread exists.
// Every refusal of CUPTI's ends in words in header.reason, never in the workload.
#ifndef UPGATE_TRACER_INJECT_SESSION_H
#define UPGATE_TRACER_INJECT_SESSION_H

#include <stdbool.h>
#include <stdint.h>

// Records `kinds` (enum ug_spool_want) from now on; also when it is active with others. State is
// ACTIVE, or REFUSED. Inside cuInit no function of the driver's may be called: is_early.
void session_start(uint32_t kinds, bool is_early);
// Before it: callbacks by which steps are seen and the device is waited for (steps/steps.h), for as
// long as CUPTI stays. Nothing where no rule asks for steps. May run inside cuInit.
void session_watch_steps(void);
// Flush, clock samples, devices, drops: whatever is due. Nothing while it is off.
void session_tick(uint64_t now_ns);
// Off, everything flushed; CUPTI leaves the process at the end of the workload's next call into
// CUDA.
void session_stop(void);
// The process exits: everything is flushed, CUPTI stays.
void session_finish(void);
bool session_is_on(void);
// of CUPTI, as its records have it; 0: none. Any thread, while kinds of CUPTI are on
uint64_t session_timestamp(void);

#endif
