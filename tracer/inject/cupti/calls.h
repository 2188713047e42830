// SPDX-License-Identifier: Apache-2.0
// The calls that are recorded: those that launch, wait, allocate or load. An eager PyTorch step
// makes 4,087 API calls for 453 kernels, and recording them all is what costs. Ours are taken in
// callbacks at the driver, in which every runtime call ends: on an H200 that gives 74,970 of 74,970
// launches at 1.08x of an eager step, at any time and with every CUPTI. Its activity records of
// calls give one in five at 1.34x (driver) or cost 1.58x (runtime too), and can be chosen one
// by one from 12.5 on only.
#ifndef UPGATE_TRACER_INJECT_CUPTI_CALLS_H
#define UPGATE_TRACER_INJECT_CUPTI_CALLS_H

#include <stdbool.h>
#include <stdint.h>

#include "tracer/inject/cupti/cupti_abi.h"

// Callbacks at the enter and exit of the calls of `kinds` (enum ug_spool_want), which write
// UG_REC_CALL. 0 or the first error of CUPTI.
int calls_enable(const struct cupti *cupti, void *subscriber, uint32_t kinds);
void calls_disable(const struct cupti *cupti, void *subscriber);
// From the subscriber's callback, of the driver's domain.
void calls_callback(
        const struct cupti *cupti, uint32_t cbid, const struct cupti_callback_data *data);
bool calls_is_launch(uint32_t cbid);                // of the driver
bool calls_is_wait(uint32_t domain, uint32_t cbid); // for the GPU

#endif
