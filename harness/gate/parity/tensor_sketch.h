// SPDX-License-Identifier: Apache-2.0
// What the run loop keeps of an output that is too long to be kept.
#ifndef UPGATE_GATE_TENSOR_SKETCH_H
#define UPGATE_GATE_TENSOR_SKETCH_H

#include <stddef.h>

enum { TENSOR_SKETCH_BYTES = 4096 * 8 };

// Its sums (reports/analyse/sketch.h), TENSOR_SKETCH_BYTES of doubles; the caller frees. NULL where
// the type, by its name in the store, is not decoded or the bytes are not those of count values.
double *tensor_sketch(const char *dtype, const void *bytes, size_t len, size_t count);

#endif
