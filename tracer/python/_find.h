// SPDX-License-Identifier: Apache-2.0
// Steps that are found without a step call: between _find.c (what a step is) and _core.c (the
// markers).
#ifndef UPGATE_TRACER_PYTHON_FIND_H
#define UPGATE_TRACER_PYTHON_FIND_H

#include "_core.h"

// --- _core.c ---
// Waits at the gate, then begins a step. -1: a signal handler raised, and no step was begun.
int core_begin(void);
// What a device computes at the end of a step, as jax gives it; borrowed until NULL.
void core_awaits(PyObject *result);
// -1: a signal handler raised while we waited for the device; the step has ended all the same.
int core_end(double samples);

// --- _find.c ---
// The program has made a step call of its own: what was found gives way.
void find_gives_way(void);
int find_add_functions(PyObject *module); // 0, or -1 with an exception

#endif
