// SPDX-License-Identifier: Apache-2.0
// Why a program whose steps the library in it should mark (tracer/inject/steps) has none, from what
// its processes saw.
#ifndef UPGATE_HARNESS_STEPS_UNSEEN_H
#define UPGATE_HARNESS_STEPS_UNSEEN_H

#include "harness/steps/reader.h"

// `step`: "nvtx:NAME" or "graph". Words without an end; the caller frees.
char *unseen_why(const struct reader *reader, const char *step);

#endif
