// SPDX-License-Identifier: Apache-2.0
// CUDA's runtime on the host, as cuda_runtime.h here says it. Memory starts poisoned: NaN in every
// type.
#include <cuda_runtime.h>

#include <stdlib.h>
#include <string.h>

struct fake_cuda fake_cuda = {
        .driver = 13000, .runtime = 13000, .gpus = 1, .major = 9, .memory = (size_t)1 << 40};

struct fake_stream {
    int unused;
};

struct fake_event {
    int unused;
};

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = fake_cuda.driver;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = fake_cuda.runtime;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = fake_cuda.gpus;
    if (fake_cuda.driver / 1000 < fake_cuda.runtime / 1000)
        return cudaErrorInsufficientDriver;
    return fake_cuda.gpus ? cudaSuccess : cudaErrorNoDevice;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    (void)device;
    *value = attribute == cudaDevAttrComputeCapabilityMajor ? fake_cuda.major : fake_cuda.minor;
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    (void)flags;
    *stream = calloc(1, sizeof **stream);
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    (void)stream;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    free(stream);
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    return device >= 0 && device < fake_cuda.gpus ? cudaSuccess : cudaErrorNoDevice;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    (void)stream;
    (void)event;
    (void)flags;
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    (void)flags;
    *event = calloc(1, sizeof **event);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    (void)event;
    (void)stream;
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    free(event);
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **memory, size_t bytes)
{
    if (fake_cuda.used + bytes > fake_cuda.memory)
        return cudaErrorMemoryAllocation;
    *memory = aligned_alloc(256, (bytes + 255) / 256 * 256);
    memset(*memory, 0xff, bytes);
    fake_cuda.used += bytes;
    fake_cuda.allocations++;
    return cudaSuccess;
}

cudaError_t cudaFree(void *memory)
{
    free(memory);
    if (--fake_cuda.allocations == 0)
        fake_cuda.used = 0;
    return cudaSuccess;
}

cudaError_t cudaMallocHost(void **memory, size_t bytes)
{
    *memory = malloc(bytes);
    memset(*memory, 0xff, bytes);
    fake_cuda.allocations++;
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *memory)
{
    return cudaFree(memory);
}

cudaError_t cudaMemcpyAsync(
        void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    (void)kind;
    (void)stream;
    memcpy(to, from, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
    (void)stream;
    memset(to, value, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *all)
{
    *free_bytes = fake_cuda.memory - fake_cuda.used;
    *all = fake_cuda.memory;
    return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t error)
{
    return error == cudaErrorMemoryAllocation ? "out of memory" : "no error";
}

const char *cudaGetErrorName(cudaError_t error)
{
    return error == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation" : "cudaSuccess";
}
