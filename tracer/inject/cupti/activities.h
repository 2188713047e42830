// SPDX-License-Identifier: Apache-2.0
// Attributes and kinds of CUPTI's activity interface for the kinds of ours. Whoever starts or stops
// a session.
#ifndef UPGATE_TRACER_INJECT_CUPTI_ACTIVITIES_H
#define UPGATE_TRACER_INJECT_CUPTI_ACTIVITIES_H

#include <stdbool.h>
#include <stdint.h>

#include "tracer/inject/cupti/cupti_abi.h"

// Before the buffer callbacks are registered and any kind is on. Quirks: enum cupti_quirk.
void activities_attributes(const struct cupti *cupti, uint32_t quirks);
// Switches on what `kinds` (enum ug_spool_want) ask for; is_early: inside cuInit. Returns the bits
// that CUPTI took, the others are in the reason.
uint32_t activities_enable(const struct cupti *cupti, uint32_t kinds, bool is_early);
void activities_disable(const struct cupti *cupti, uint32_t quirks);

#endif
