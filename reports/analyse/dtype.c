// SPDX-License-Identifier: Apache-2.0
// Decoding of tensor bytes. Reads raw little-endian bytes as the workload wrote them; the host is
// little endian (x86-64, aarch64).
#include "reports/analyse/dtype.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tensors are read as little endian");

struct dtype_info {
    const char *name;
    size_t bytes;
    bool is_float;
    double relative, absolute;
};

static const struct dtype_info dtype_infos[DTYPE_COUNT] = {
        [DTYPE_F64] = {"f64", 8, true, 1e-7, 1e-7},
        [DTYPE_F32] = {"f32", 4, true, 1.3e-6, 1e-5},
        [DTYPE_F16] = {"f16", 2, true, 1e-3, 1e-5},
        [DTYPE_BF16] = {"bf16", 2, true, 1.6e-2, 1e-5},
        [DTYPE_I64] = {"i64", 8, false, 0, 0},
        [DTYPE_I32] = {"i32", 4, false, 0, 0},
        [DTYPE_I16] = {"i16", 2, false, 0, 0},
        [DTYPE_I8] = {"i8", 1, false, 0, 0},
        [DTYPE_U64] = {"u64", 8, false, 0, 0},
        [DTYPE_U32] = {"u32", 4, false, 0, 0},
        [DTYPE_U16] = {"u16", 2, false, 0, 0},
        [DTYPE_U8] = {"u8", 1, false, 0, 0},
        [DTYPE_BOOL] = {"bool", 1, false, 0, 0},
};

enum dtype dtype_from_name(const char *name)
{
    for (int i = 0; i < DTYPE_COUNT; i++)
        if (strcmp(dtype_infos[i].name, name) == 0)
            return (enum dtype)i;
    return DTYPE_COUNT;
}

const char *dtype_name(enum dtype dtype)
{
    return dtype < DTYPE_COUNT ? dtype_infos[dtype].name : "unknown";
}

size_t dtype_bytes(enum dtype dtype)
{
    return dtype < DTYPE_COUNT ? dtype_infos[dtype].bytes : 0;
}

bool dtype_is_float(enum dtype dtype)
{
    return dtype < DTYPE_COUNT && dtype_infos[dtype].is_float;
}

void dtype_tolerance(enum dtype dtype, double *ret_relative, double *ret_absolute)
{
    *ret_relative = dtype < DTYPE_COUNT ? dtype_infos[dtype].relative : 0;
    *ret_absolute = dtype < DTYPE_COUNT ? dtype_infos[dtype].absolute : 0;
}

// By the exponent of float: 2^112 is what its bias has more, and a denormal half comes out normal.
static double dtype_half(uint16_t bits)
{
    uint32_t wide = (uint32_t)(bits & 0x7fff) << 13;
    float value;
    memcpy(&value, &wide, sizeof value);
    value *= 0x1p112f;
    if ((bits & 0x7c00) == 0x7c00)
        value = bits & 1023 ? NAN : INFINITY;
    return bits & 0x8000 ? -value : value;
}

static double dtype_brain(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

// One loop a type: the choice of the type within the loop took four times as long.
#define DTYPE_LOOP(type, expression) \
    for (size_t i = 0; i < count; i++) { \
        type raw; \
        memcpy(&raw, at + i * sizeof raw, sizeof raw); \
        ret_values[i] = (double)(expression); \
    } \
    break

void dtype_decode(enum dtype dtype, const void *bytes, size_t count, double *ret_values)
{
    const unsigned char *at = bytes;
    switch (dtype) {
    case DTYPE_F64:
        DTYPE_LOOP(double, raw);
    case DTYPE_F32:
        DTYPE_LOOP(float, raw);
    case DTYPE_F16:
        DTYPE_LOOP(uint16_t, dtype_half(raw));
    case DTYPE_BF16:
        DTYPE_LOOP(uint16_t, dtype_brain(raw));
    case DTYPE_I64:
        DTYPE_LOOP(int64_t, raw);
    case DTYPE_I32:
        DTYPE_LOOP(int32_t, raw);
    case DTYPE_I16:
        DTYPE_LOOP(int16_t, raw);
    case DTYPE_I8:
        DTYPE_LOOP(int8_t, raw);
    case DTYPE_U64:
        DTYPE_LOOP(uint64_t, raw);
    case DTYPE_U32:
        DTYPE_LOOP(uint32_t, raw);
    case DTYPE_U16:
        DTYPE_LOOP(uint16_t, raw);
    case DTYPE_U8:
        DTYPE_LOOP(uint8_t, raw);
    case DTYPE_BOOL:
        DTYPE_LOOP(uint8_t, raw != 0);
    case DTYPE_COUNT:
        break;
    }
}
