// SPDX-License-Identifier: Apache-2.0
// What the kernels share on the device: 16-byte vectors of three types as floats, sums over a warp
// or a group of warps, and asynchronous copies into shared memory; on the host, how a launch is
// prepared and a CUDA error becomes a sentence.
#ifndef UPGATE_KERNELS_DEVICE_CUH
#define UPGATE_KERNELS_DEVICE_CUH

#include <errno.h>
#include <stdint.h>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "kernels/kernels.h"

template <typename T> constexpr int vector_lanes = 16 / (int)sizeof(T); // values in 16 bytes

static __device__ __forceinline__ void vector_unpack(const uint4 &raw, float (&out)[4], float)
{
    out[0] = __uint_as_float(raw.x);
    out[1] = __uint_as_float(raw.y);
    out[2] = __uint_as_float(raw.z);
    out[3] = __uint_as_float(raw.w);
}

static __device__ __forceinline__ void vector_unpack(
        const uint4 &raw, float (&out)[8], __nv_bfloat16)
{
    const uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        out[2 * i] = __uint_as_float(words[i] << 16);
        out[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
    }
}

static __device__ __forceinline__ void vector_unpack(const uint4 &raw, float (&out)[8], __half)
{
    const uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        __half2 pair;
        memcpy(&pair, &words[i], sizeof pair);
        float2 both = __half22float2(pair);
        out[2 * i] = both.x;
        out[2 * i + 1] = both.y;
    }
}

static __device__ __forceinline__ uint4 vector_pack(const float (&in)[4], float)
{
    return make_uint4(__float_as_uint(in[0]), __float_as_uint(in[1]), __float_as_uint(in[2]),
            __float_as_uint(in[3]));
}

static __device__ __forceinline__ uint4 vector_pack(const float (&in)[8], __nv_bfloat16)
{
    uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        __nv_bfloat162 pair = __floats2bfloat162_rn(in[2 * i], in[2 * i + 1]);
        memcpy(&words[i], &pair, sizeof pair);
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
}

static __device__ __forceinline__ uint4 vector_pack(const float (&in)[8], __half)
{
    uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        __half2 pair = __floats2half2_rn(in[2 * i], in[2 * i + 1]);
        memcpy(&words[i], &pair, sizeof pair);
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
}

static __device__ __forceinline__ float warp_sum(float value)
{
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
        value += __shfl_xor_sync(0xffffffffu, value, distance);
    return value;
}

// The sum over GROUP threads (whole warps of one block), the same bits in each. slots: a float a
// warp of the block, in shared memory; the next call must be given others, the one after that may
// use these again. Every thread of the block must come.
template <int GROUP> static __device__ __forceinline__ float group_sum(float value, float *slots)
{
    constexpr int WARPS = GROUP / 32;
    value = warp_sum(value);
    if (GROUP == 32)
        return value;
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32,
              first = warp / WARPS * WARPS;
    if (lane == 0)
        slots[warp] = value;
    __syncthreads();
    return warp_sum(lane < WARPS ? slots[first + lane] : 0);
}

// Likewise of two values at once.
template <int GROUP>
static __device__ __forceinline__ void group_sums(float &a, float &b, float2 *slots)
{
    constexpr int WARPS = GROUP / 32;
    a = warp_sum(a);
    b = warp_sum(b);
    if (GROUP == 32)
        return;
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32,
              first = warp / WARPS * WARPS;
    if (lane == 0)
        slots[warp] = make_float2(a, b);
    __syncthreads();
    const float2 each = lane < WARPS ? slots[first + lane] : make_float2(0, 0);
    a = warp_sum(each.x);
    b = warp_sum(each.y);
}

// 16 bytes into shared memory; this thread may read them after async_wait<left>() has let all but
// its `left` newest commits end.
static __device__ __forceinline__ void async_copy(void *shared, const void *global)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                         (uint32_t)__cvta_generic_to_shared(shared)),
                 "l"(global)
                 : "memory");
}
static __device__ __forceinline__ void async_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int LEFT> static __device__ __forceinline__ void async_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}

// Of a kernel launched by device_launch_early(), which may begin before its predecessor in the
// stream has ended: launch_wait() before it reads or writes anything, launch_next() to let its
// successor begin, which waits likewise. Nothing before Hopper.
static __device__ __forceinline__ void launch_wait()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
static __device__ __forceinline__ void launch_next()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

#ifndef __CUDACC_RTC__ // what the host does: NVRTC takes the kernels alone
// 0, or -EIO and "failed to WHAT: CUDA's sentence".
static inline int device_error(cudaError_t error, const char *what, struct error *err)
{
    if (error == cudaSuccess)
        return 0;
    return error_set(err, error == cudaErrorMemoryAllocation ? -ENOMEM : -EIO,
            "failed to %s: %s (%s)", what, cudaGetErrorString(error), cudaGetErrorName(error));
}

// Multiprocessors of the current device; 0 and the error when there is none.
static inline int device_multiprocessors(struct error *err, int *ret_count)
{
    int device = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess)
        error = cudaDeviceGetAttribute(ret_count, cudaDevAttrMultiProcessorCount, device);
    return device_error(error, "ask the device for its multiprocessors", err);
}

// How many blocks of this kernel the whole device holds at once, with `bytes` of dynamic shared
// memory each.
static inline int device_resident(
        const void *kernel, int threads, size_t bytes, int *ret_blocks, struct error *err)
{
    int multiprocessors = 0, each = 0;
    int rc = device_multiprocessors(err, &multiprocessors);
    if (rc)
        return rc;
    cudaError_t error =
            cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    if (error == cudaSuccess)
        error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, threads, bytes);
    if (error == cudaSuccess && each == 0)
        error = cudaErrorLaunchOutOfResources;
    *ret_blocks = multiprocessors * each;
    return device_error(error, "fit the kernel onto a multiprocessor", err);
}

template <typename... PARAMS, typename... ARGUMENTS>
static inline cudaError_t device_launch_early(void (*kernel)(PARAMS...), dim3 blocks, dim3 threads,
        size_t bytes, cudaStream_t stream, ARGUMENTS... arguments)
{
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute early = {};
    int device = 0, major = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess)
        error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    if (error != cudaSuccess)
        return error;
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = blocks;
    config.blockDim = threads;
    config.dynamicSmemBytes = bytes;
    config.stream = stream;
    config.attrs = &early;
    config.numAttrs = major >= 9;
    return cudaLaunchKernelEx(&config, kernel, PARAMS(arguments)...);
}
#endif

#endif
