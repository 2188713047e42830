// SPDX-License-Identifier: Apache-2.0
// Element types of recorded tensors: their names in the store, their size, their values as doubles.
// 64-bit integers keep 53 bits as doubles: where sides have the same type, bytes are compared.
#ifndef UPGATE_ANALYSE_DTYPE_H
#define UPGATE_ANALYSE_DTYPE_H

#include <stdbool.h>
#include <stddef.h>

enum dtype {
    DTYPE_F64,
    DTYPE_F32,
    DTYPE_F16,
    DTYPE_BF16,
    DTYPE_I64,
    DTYPE_I32,
    DTYPE_I16,
    DTYPE_I8,
    DTYPE_U64,
    DTYPE_U32,
    DTYPE_U16,
    DTYPE_U8,
    DTYPE_BOOL,
    DTYPE_COUNT // also: a name that is not known
};

enum dtype dtype_from_name(const char *name);
const char *dtype_name(enum dtype dtype);
size_t dtype_bytes(enum dtype dtype);
bool dtype_is_float(enum dtype dtype);
// torch.testing's defaults for two results of this type; 0 for integers.
void dtype_tolerance(enum dtype dtype, double *ret_relative, double *ret_absolute);
// Little endian bytes, unaligned, to `count` doubles. NaN and Inf stay what they are.
void dtype_decode(enum dtype dtype, const void *bytes, size_t count, double *ret_values);

#endif
