// SPDX-License-Identifier: Apache-2.0
// The calls that are recorded: those that launch, wait, allocate or load. An eager PyTorch step
// makes 4,087 API calls for 453 kernels, and recording them all is what costs. A runtime call ends
// in a driver call with the same correlation id, which CUPTI records unless it records the
// runtime's: so the driver's alone are asked for, which gives every launch (3,961 of 3,961 on an
// H200) and costs least.
#ifndef UPGATE_TRACER_INJECT_CALLS_H
#define UPGATE_TRACER_INJECT_CALLS_H

#include <stdbool.h>
#include <stdint.h>

#include "tracer/inject/cupti_abi.h"

// Names of the wanted ones of `kinds` (enum ug_spool_want), asked of CUPTI; before calls_enable.
void calls_names(const struct cupti *cupti, uint32_t kinds);
enum calls_how {
    CALLS_WHOLE,        // before 12.5: all of the kind; decoding leaves the others out
    CALLS_WANTED_ON,    // one by one: records nothing unless it is done before the first context
    CALLS_UNWANTED_OFF, // all of the kind on, which forgets earlier choices, then the others off:
                        // at any time
    CALLS_CALLBACK      // no activity records: our own callback at their enter and exit writes
                        // UG_REC_CALL
};
// Records exactly the named ones. 0 or the first error of CUPTI.
int calls_enable(const struct cupti *cupti, void *subscriber, enum calls_how how);
void calls_disable(const struct cupti *cupti, void *subscriber);
// For CALLS_CALLBACK, from the subscriber's callback.
void calls_callback(const struct cupti *cupti, uint32_t domain, uint32_t cbid,
                    const struct cupti_callback_data *data);
// decode_call_name of decode.h: NULL for what is not wanted.
const char *calls_name(int is_driver, uint32_t cbid);
// Callbacks at the entry of every launch.
int calls_subscribe_launches(const struct cupti *cupti, void *subscriber, bool on);
bool calls_is_launch(uint32_t domain, uint32_t cbid);
bool calls_is_wait(uint32_t domain, uint32_t cbid); // for the GPU

#endif
