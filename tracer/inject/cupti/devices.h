// SPDX-License-Identifier: Apache-2.0
// UG_REC_DEVICE of every device with a context: properties from the driver, on the control thread.
#ifndef UPGATE_TRACER_INJECT_CUPTI_DEVICES_H
#define UPGATE_TRACER_INJECT_CUPTI_DEVICES_H

#include <stdbool.h>
#include <stdint.h>

#include "tracer/inject/cupti/cupti_abi.h"

// In the callback of CUPTI: a context was made. Any thread.
void devices_context_created(const struct cupti *cupti, void *context);
bool devices_context_seen(void); // the CUDA of this process is up
// A new recorder: everything is written again; with are_contexts_open primary contexts that exist
// already are looked for.
void devices_restart(bool are_contexts_open);
// Writes what is due.
void devices_write(const struct cupti *cupti);

#endif
