// SPDX-License-Identifier: Apache-2.0
// Shared by the files of the preflight.
#ifndef UPGATE_HARNESS_CANARY_PREFLIGHT_PREFLIGHT_INTERNAL_H
#define UPGATE_HARNESS_CANARY_PREFLIGHT_PREFLIGHT_INTERNAL_H

#include <stdarg.h>

#include "contracts/exit_code.h"
#include "harness/canary/preflight/preflight.h"

// The first failure is the one that is told. Returns code.
int preflight_fail(struct preflight *ret, enum exit_code code, const char *fmt, ...)
        __attribute__((format(printf, 3, 4)));
// a line of notes
void preflight_note(struct preflight *ret, const char *fmt, ...)
        __attribute__((format(printf, 2, 3)));

#endif
