// SPDX-License-Identifier: Apache-2.0
// What becomes header.reason: why tracing was refused, or what of the wishes is missing. Control
// thread.
#ifndef UPGATE_TRACER_INJECT_REASON_H
#define UPGATE_TRACER_INJECT_REASON_H

#include "contracts/spool.h"
#include "tracer/inject/cupti/cupti_abi.h"

void reason_clear(void);
void reason_add(const char *text);
// "WHAT: CUPTI_ERROR_... (NUMBER)".
void reason_cupti(const struct cupti *cupti, const char *what, int result);
const char *reason_text(void); // UG_SPOOL_REASON_BYTES

#endif
