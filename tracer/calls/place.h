// SPDX-License-Identifier: Apache-2.0
// Where a breakpoint is cheap. The kernel runs most instructions under a breakpoint out of line, by
// a single step: a second exception, which ends in the hypervisor where there is one (10 us each in
// a nested VM, measured 2026-11). A few it emulates: pushes, jumps, calls, nops. So the breakpoint
// goes to the first of those that nothing but what comes before leads to. Pure functions.
#ifndef UPGATE_TRACER_CALLS_PLACE_H
#define UPGATE_TRACER_CALLS_PLACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PLACE_BYTES = 64 }; // of code that is looked at

// How far behind code[0] a breakpoint may stand instead: 0 where nothing better is known. `entry`:
// code is the begin of a function, and the stack pointer must be what it is there; else what a
// function returns to.
size_t place_cheap(const uint8_t *code, size_t len, bool entry);

#endif
