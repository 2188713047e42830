// SPDX-License-Identifier: Apache-2.0
// The GPU of a model, as device.h says it.
#include "reference_models/cuda/device.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/environment.h"
#include "contracts/exit_code.h"
#include "contracts/upgate_step.h"

void device_check(struct device *device, cudaError_t error, const char *what)
{
    if (error == cudaSuccess || device_failed(device))
        return;
    error_set(&device->err, error == cudaErrorMemoryAllocation ? -ENOMEM : -EIO,
            "failed to %s: %s (%s)", what, cudaGetErrorString(error), cudaGetErrorName(error));
    device_must(device, device->err.code);
}

void device_must(struct device *device, int rc)
{
    if (rc == 0)
        return;
    if (device->running) {
        fprintf(stderr, "%s\n", device->err.text);
        if (device->ranked)
            _exit(EXIT_CODE_OPERATIONAL);
        exit(EXIT_CODE_OPERATIONAL);
    }
    device->err.code = rc;
}

int device_created(struct device *device, struct error *err)
{
    device_wait(device);
    if (device_failed(device))
        return error_set(err, device->err.code, "%s", device->err.text);
    device->running = true;
    return 0;
}

static int device_version(int version, int *ret_minor)
{
    *ret_minor = version % 1000 / 10;
    return version / 1000;
}

int device_open(struct device *device, struct error *err)
{
    return device_open_rank(device, 0, 1, err);
}

int device_open_rank(struct device *device, uint32_t rank, uint32_t ranks, struct error *err)
{
    int driver = 0, runtime = 0, count = 0, driver_minor, runtime_minor, major = 0, minor = 0;
    *device = (struct device){.ranked = ranks > 1};
    if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0)
        return error_set(
                err, -ENODEV, "there is no NVIDIA driver on this machine; --device cpu needs none");
    cudaError_t error = cudaRuntimeGetVersion(&runtime);
    if (error == cudaSuccess)
        error = cudaGetDeviceCount(&count);
    if (error == cudaErrorInsufficientDriver ||
            (error == cudaSuccess && driver / 1000 < runtime / 1000)) {
        int driver_major = device_version(driver, &driver_minor),
            runtime_major = device_version(runtime, &runtime_minor);
        return error_set(err, -ENODEV,
                "the driver is too old: it takes programs up to CUDA %d.%d, this one is of %d.%d",
                driver_major, driver_minor, runtime_major, runtime_minor);
    }
    if (error == cudaErrorNoDevice || (error == cudaSuccess && count == 0))
        return error_set(err, -ENODEV,
                "there is no GPU, or CUDA_VISIBLE_DEVICES hides it; --device cpu needs none");
    if (error == cudaSuccess && (uint32_t)count < ranks)
        return error_set(err, -EINVAL,
                "%u ranks need a GPU each, and this machine shows %d; --ranks %d, or --device cpu",
                ranks, count, count);
    if (error == cudaSuccess)
        error = cudaSetDevice((int)rank);
    if (error == cudaSuccess)
        error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, (int)rank);
    if (error == cudaSuccess)
        error = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, (int)rank);
    if (error == cudaSuccess && (major != 9 || minor != 0))
        return error_set(err, -EINVAL,
                "this GPU has compute capability %d.%d; the kernels are built for 9.0 (Hopper); --device cpu needs none",
                major, minor);
    if (error == cudaSuccess)
        error = cudaStreamCreateWithFlags(&device->stream, cudaStreamNonBlocking);
    if (error != cudaSuccess)
        return error_set(err, -EIO, "failed to open the GPU: %s (%s)", cudaGetErrorString(error),
                cudaGetErrorName(error));
    const char *side = environment_get(ENVIRONMENT_KERNELS);
    struct kernel_origins origins;
    if (side) {
        if (kernel_side(side, &origins, err))
            return error_prefix(err, "UPGATE_KERNELS");
        ug_step_note("kernels_of_side", (double)origins.side);
        ug_step_note("kernels_of_program", (double)origins.program);
    }
    device->workspace = device_alloc(device, KERNEL_MLP_WORKSPACE, "the workspace of products");
    return 0;
}

void device_close(struct device *device)
{
    if (!device->stream)
        return;
    cudaStreamSynchronize(device->stream);
    for (size_t i = 0; i < device->blocks; i++)
        cudaFree(device->block[i]);
    for (size_t i = 0; i < device->pinned_count; i++)
        cudaFreeHost(device->pinned[i]);
    cudaStreamDestroy(device->stream);
    *device = (struct device){.running = false};
}

void *device_alloc(struct device *device, size_t bytes, const char *what)
{
    void *memory = NULL;
    size_t free_bytes = 0, all = 0;
    if (device_failed(device))
        return NULL;
    if (device->blocks == DEVICE_BLOCKS_MAX) {
        error_set(&device->err, -ENOMEM, "a model of more than %d arrays", DEVICE_BLOCKS_MAX);
        return NULL;
    }
    if (cudaMalloc(&memory, bytes ? bytes : 1) != cudaSuccess) {
        cudaGetLastError(); // it is not the next launch's
        cudaMemGetInfo(&free_bytes, &all);
        error_set(&device->err, -ENOMEM,
                "no room on the GPU for %s: %.1f MiB more are needed, %.1f of its %.1f MiB are free; a smaller --size?",
                what, (double)bytes / 0x1p20, (double)free_bytes / 0x1p20, (double)all / 0x1p20);
        return NULL;
    }
    device->block[device->blocks++] = memory;
    device->bytes += bytes;
    device_zero(device, memory, bytes);
    return memory;
}

void *device_pinned(struct device *device, size_t bytes)
{
    void *memory = NULL;
    if (device_failed(device))
        return NULL;
    if (device->pinned_count == DEVICE_BLOCKS_MAX ||
            cudaMallocHost(&memory, bytes ? bytes : 1) != cudaSuccess) {
        cudaGetLastError();
        error_set(&device->err, -ENOMEM, "failed to pin %.1f MiB of the host's memory",
                (double)bytes / 0x1p20);
        return NULL;
    }
    device->pinned[device->pinned_count++] = memory;
    return memory;
}

void device_upload(struct device *device, void *to, const void *from, size_t bytes)
{
    if (!device_failed(device))
        device_check(device,
                cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, device->stream),
                "copy to the GPU");
}

void device_download(struct device *device, void *to, const void *from, size_t bytes)
{
    if (!device_failed(device))
        device_check(device,
                cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, device->stream),
                "copy from the GPU");
}

void device_zero(struct device *device, void *to, size_t bytes)
{
    if (!device_failed(device) && bytes)
        device_check(
                device, cudaMemsetAsync(to, 0, bytes, device->stream), "clear memory of the GPU");
}

void device_wait(struct device *device)
{
    if (!device_failed(device))
        device_check(device, cudaStreamSynchronize(device->stream), "wait for the GPU");
}
