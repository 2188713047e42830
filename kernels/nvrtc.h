// SPDX-License-Identifier: Apache-2.0
// What NVRTC, which has neither a host compiler nor its headers, needs to know before a kernel's
// file (ci/gpu/compilers includes it first, and gives an empty file for each header of C and C++):
// types as nvcc has them, so that names of kernels are the same.
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long int64_t;
typedef unsigned long uint64_t;
typedef long intptr_t;
typedef unsigned long uintptr_t;
#define INT_MAX 2147483647
#define INT32_MAX 2147483647
#define INT64_MIN (-9223372036854775807L - 1)
#define INFINITY __int_as_float(0x7f800000)

namespace std
{
template <bool VALUE> struct integral {
    static constexpr bool value = VALUE;
    __device__ constexpr operator bool() const
    {
        return VALUE;
    }
};
typedef integral<true> true_type;
typedef integral<false> false_type;
template <typename A, typename B> struct is_same : false_type {
};
template <typename A> struct is_same<A, A> : true_type {
};
} // namespace std
