// SPDX-License-Identifier: Apache-2.0
// CUPTI's clock against CLOCK_MONOTONIC: UG_REC_CLOCK.
#ifndef UPGATE_TRACER_INJECT_CUPTI_CLOCK_H
#define UPGATE_TRACER_INJECT_CUPTI_CLOCK_H

#include "tracer/inject/cupti/cupti_abi.h"

// Five bracketed samples, of which the tightest is written: 5 us. Any thread, no lock of ours held.
void clock_sample(const struct cupti *cupti);

#endif
