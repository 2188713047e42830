// SPDX-License-Identifier: Apache-2.0
// The calls that are recorded: those that launch, wait, allocate or load. An eager PyTorch step makes 4,087 API calls for
// 453 kernels, and recording them all is what costs (1.28x). CUPTI writes no record of a driver call that the runtime makes, so
// both are asked for: the runtime's, and the driver's of those who call it directly (Triton, NCCL, JAX).
#ifndef UPGATE_TRACER_INJECT_CALLS_H
#define UPGATE_TRACER_INJECT_CALLS_H

#include <stdbool.h>
#include <stdint.h>

#include "tracer/inject/cupti_abi.h"

// Names of the wanted ones of `kinds` (enum ug_spool_want), asked of CUPTI; before calls_enable.
void calls_names(const struct cupti *cupti, uint32_t kinds);
// Records exactly these, or with selective = false all calls. 0 or the first error of CUPTI.
int calls_enable(const struct cupti *cupti, bool selective);
void calls_disable(const struct cupti *cupti);
// decode_call_name of decode.h: NULL for what is not wanted.
const char *calls_name(int is_driver, uint32_t cbid);
// Callbacks at the entry of every launch.
int calls_subscribe_launches(const struct cupti *cupti, void *subscriber, bool on);
bool calls_is_launch(uint32_t domain, uint32_t cbid);
bool calls_is_wait(uint32_t domain, uint32_t cbid); // for the GPU

#endif
