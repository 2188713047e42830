// SPDX-License-Identifier: Apache-2.0
// What makes one source serve float32 and float64: the type `real`, its names, its limits, and the
// marks that let the compiler vectorise. The numeric files are compiled once with
// NATIVE_REAL_BITS=32 and once with 64; the macros below give every exported function its suffix.
#ifndef UPGATE_NATIVE_REAL_H
#define UPGATE_NATIVE_REAL_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#if NATIVE_REAL_BITS == 32
#define real float
#define NATIVE_NAME(name) name##_f32
#define NATIVE_SQRT(x) sqrtf(x)
#define NATIVE_ERF(x) erff(x)
#elif NATIVE_REAL_BITS == 64
#define real double
#define NATIVE_NAME(name) name##_f64
#define NATIVE_SQRT(x) sqrt(x)
#define NATIVE_ERF(x) erf(x)
#else
#error "define NATIVE_REAL_BITS to 32 or 64"
#endif

// Hot loops are compiled for the baseline of the architecture and for AVX2 with FMA; the loader
// picks. 256 bits, not 512: wide units move the clock of many server cores, which is noise here.
#ifdef NATIVE_HAVE_CLONES
#define NATIVE_CLONES __attribute__((target_clones("arch=x86-64-v3", "default")))
#else
#define NATIVE_CLONES
#endif

// With -fopenmp-simd a floating-point sum may be reordered into lanes; without it the same loop
// runs in order. No OpenMP runtime is involved.
#ifdef NATIVE_HAVE_SIMD
#define NATIVE_PRAGMA(text) _Pragma(#text)
#define NATIVE_SIMD NATIVE_PRAGMA(omp simd)
#define NATIVE_SIMD_SUM(sum) NATIVE_PRAGMA(omp simd reduction(+ : sum))
#define NATIVE_SIMD_MAX(top) NATIVE_PRAGMA(omp simd reduction(max : top))
#else
#define NATIVE_SIMD
#define NATIVE_SIMD_SUM(sum)
#define NATIVE_SIMD_MAX(top)
#endif

// Start values and inputs are drawn in fp64 and rounded to float32 for every type, so that a
// float64 run starts from the very same values and its result can anchor the parity rule.
static inline real real_start(double value)
{
    return (real)(float)value;
}

// exp(x) by 2^n * P(r), |r| <= ln(2)/2, branch-free so that it vectorises. Relative error against
// expl: below 1.2e-7 (float) and 4e-16 (double); checked in tests/unit/test_native_ops.c. NaN stays
// NaN.
#if NATIVE_REAL_BITS == 32
static inline real real_exp(real x)
{
    x = x < -87.0f ? -87.0f : x;
    x = x > 88.0f ? 88.0f : x;
    real t = x * 1.44269504f + 0x1.8p23f;
    real n = t - 0x1.8p23f;
    real r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    real p = 1.0f / 5040;
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1;
    p = p * r + 1;
    uint32_t bits;
    memcpy(&bits, &t, sizeof bits);
    bits = (bits + 127) << 23;
    real scale;
    memcpy(&scale, &bits, sizeof scale);
    return p * scale;
}
#else
static inline real real_exp(real x)
{
    x = x < -708 ? -708 : x;
    x = x > 709 ? 709 : x;
    real t = x * 1.4426950408889634 + 0x1.8p52;
    real n = t - 0x1.8p52;
    real r = (x - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10;
    real p = 1.0 / 6227020800;
    p = p * r + 1.0 / 479001600;
    p = p * r + 1.0 / 39916800;
    p = p * r + 1.0 / 3628800;
    p = p * r + 1.0 / 362880;
    p = p * r + 1.0 / 40320;
    p = p * r + 1.0 / 5040;
    p = p * r + 1.0 / 720;
    p = p * r + 1.0 / 120;
    p = p * r + 1.0 / 24;
    p = p * r + 1.0 / 6;
    p = p * r + 0.5;
    p = p * r + 1;
    p = p * r + 1;
    uint64_t bits;
    memcpy(&bits, &t, sizeof bits);
    bits = (bits + 1023) << 52;
    real scale;
    memcpy(&scale, &bits, sizeof scale);
    return p * scale;
}
#endif

// tanh in the form that neither overflows nor loses its sign at large |x|.
static inline real real_tanh(real x)
{
    return 1 - 2 / (real_exp(2 * x) + 1);
}

static inline real real_sigmoid(real x)
{
    return 1 / (1 + real_exp(-x));
}

#endif
