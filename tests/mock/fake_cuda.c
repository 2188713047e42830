// SPDX-License-Identifier: Apache-2.0
// libcuda.so.1 of a machine without a GPU: the driver calls that the tracer's library asks, and, as
// the real one does in cuInit, the library of CUDA_INJECTION64_PATH loaded and started. The device
// it tells of is an H200 in numbers. Any thread.
#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "tests/mock/fake.h"

#define FAKE_EXPORT __attribute__((visibility("default")))

int cuDriverGetVersion(int *version);
int cuDeviceGet(int *device, int ordinal);
int cuDeviceGetCount(int *count);
int cuDeviceGetName(char *name, int len, int device);
int cuDeviceGetAttribute(int *value, int attribute, int device);
int cuDeviceGetUuid(void *uuid, int device);
int cuDeviceGetUuid_v2(void *uuid, int device);
int cuDeviceTotalMem_v2(size_t *bytes, int device);
int cuGetErrorName(int error, const char **name);
int cuGetErrorString(int error, const char **text);
int cuCtxGetCurrent(void **context);
int cuCtxGetDevice(int *device);
int cuCtxPushCurrent_v2(void *context);
int cuCtxPopCurrent_v2(void **context);
int cuCtxSynchronize(void);

int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active);
int cuDevicePrimaryCtxRetain(void **context, int device);
int cuDevicePrimaryCtxRelease_v2(int device);

static _Atomic(const struct fake_hooks *) current;
static _Atomic(void (*)(enum fake_where)) watcher;
static atomic_uint contexts;
static atomic_int retained;
static atomic_uint waits;
static _Thread_local void *pushed;
static int injected = -1;

FAKE_EXPORT int cuInit(unsigned flags)
{
    static atomic_flag once = ATOMIC_FLAG_INIT;
    (void)flags;
    if (atomic_flag_test_and_set(&once))
        return 0;
    const char *path = getenv("CUDA_INJECTION64_PATH");
    if (!path || !*path)
        return 0;
    void *handle = dlopen(path, RTLD_NOW);
    if (!handle) {
        fprintf(stderr, "fake cuda: %s\n", dlerror());
        return 0;
    }
    int (*start)(void) = (int (*)(void))dlsym(handle, "InitializeInjection");
    injected = start ? start() : 0;
    return 0;
}

FAKE_EXPORT int cuDriverGetVersion(int *version)
{
    const char *text = getenv("FAKE_CUDA_VERSION");
    *version = text ? atoi(text) : 13000;
    return 0;
}

FAKE_EXPORT int cuDeviceGetCount(int *count)
{
    *count = 2;
    return 0;
}

FAKE_EXPORT int cuDeviceGet(int *device, int ordinal)
{
    *device = ordinal;
    return ordinal >= 0 && ordinal < 2 ? 0 : 101; // CUDA_ERROR_INVALID_DEVICE
}

FAKE_EXPORT int cuDeviceGetName(char *name, int len, int device)
{
    if (device < 0 || device > 1)
        return 101;
    snprintf(name, (size_t)len, "Fake H200 %d", device);
    return 0;
}

FAKE_EXPORT int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    if (device < 0 || device > 1)
        return 101;
    switch (attribute) {
    case 1:
        *value = 1024;
        break; // threads of a block
    case 8:
        *value = 49152;
        break; // shared memory of a block
    case 10:
        *value = 32;
        break; // warp
    case 12:
        *value = 65536;
        break; // registers of a block
    case 16:
        *value = 132;
        break; // multiprocessors
    case 39:
        *value = 2048;
        break; // threads of a multiprocessor
    case 75:
        *value = 9;
        break; // compute capability
    case 76:
        *value = 0;
        break;
    case 81:
        *value = 233472;
        break; // shared memory of a multiprocessor
    case 82:
        *value = 65536;
        break; // registers of a multiprocessor
    default:
        *value = 0;
        return 1; // CUDA_ERROR_INVALID_VALUE
    }
    return 0;
}

FAKE_EXPORT int cuDeviceGetUuid_v2(void *uuid, int device)
{
    memset(uuid, 0xa0 + device, 16);
    return 0;
}

FAKE_EXPORT int cuDeviceGetUuid(void *uuid, int device)
{
    return cuDeviceGetUuid_v2(uuid, device);
}

FAKE_EXPORT int cuDeviceTotalMem_v2(size_t *bytes, int device)
{
    (void)device;
    *bytes = (size_t)141 << 30;
    return 0;
}

FAKE_EXPORT int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active)
{
    *flags = 0;
    *active = device == 0 && atomic_load(&contexts) > 0;
    return 0;
}

FAKE_EXPORT int cuDevicePrimaryCtxRetain(void **context, int device)
{
    *context = (void *)(uintptr_t)(0x1000u * (unsigned)(device + 1));
    atomic_fetch_add(&retained, 1);
    return 0;
}

FAKE_EXPORT int cuDevicePrimaryCtxRelease_v2(int device)
{
    (void)device;
    atomic_fetch_sub(&retained, 1);
    return 0;
}

FAKE_EXPORT int cuGetErrorName(int error, const char **name)
{
    *name = error ? "CUDA_ERROR" : "CUDA_SUCCESS";
    return 0;
}

FAKE_EXPORT int cuGetErrorString(int error, const char **text)
{
    return cuGetErrorName(error, text);
}

FAKE_EXPORT int cuCtxGetCurrent(void **context)
{
    *context = NULL;
    return 0;
}

FAKE_EXPORT int cuCtxGetDevice(int *device)
{
    *device = 0;
    return 0;
}

FAKE_EXPORT int cuCtxPushCurrent_v2(void *context)
{
    pushed = context;
    return 0;
}

FAKE_EXPORT int cuCtxPopCurrent_v2(void **context)
{
    *context = pushed;
    pushed = NULL;
    return 0;
}

FAKE_EXPORT int cuCtxSynchronize(void)
{
    if (!pushed)
        return 201; // CUDA_ERROR_INVALID_CONTEXT
    atomic_fetch_add(&waits, 1);
    return 0;
}

FAKE_EXPORT unsigned fake_cuda_waits(void)
{
    return atomic_load(&waits);
}

FAKE_EXPORT void fake_cuda_hook(const struct fake_hooks *hooks)
{
    atomic_store_explicit(&current, hooks, memory_order_release);
}

FAKE_EXPORT void fake_cuda_watch(void (*watch)(enum fake_where where))
{
    atomic_store_explicit(&watcher, watch, memory_order_release);
}

FAKE_EXPORT void fake_cuda_at(enum fake_where where)
{
    void (*watch)(enum fake_where) = atomic_load_explicit(&watcher, memory_order_acquire);
    if (watch)
        watch(where);
}

FAKE_EXPORT uint32_t fake_op(const struct fake_op *op)
{
    const struct fake_hooks *hooks = atomic_load_explicit(&current, memory_order_acquire);
    if (op->what == FAKE_CONTEXT)
        atomic_fetch_add(&contexts, 1);
    return hooks ? hooks->op(op) : 0;
}

FAKE_EXPORT unsigned fake_cuda_contexts(void)
{
    return atomic_load(&contexts);
}

FAKE_EXPORT void fake_report(FILE *out)
{
    fprintf(out, "{\"type\":\"cuda\",\"contexts\":%u,\"retained\":%d}\n", atomic_load(&contexts),
            atomic_load(&retained));
    const struct fake_hooks *hooks = atomic_load_explicit(&current, memory_order_acquire);
    if (hooks)
        hooks->report(out);
    else
        fprintf(out, "{\"type\":\"fake\",\"loaded\":0}\n");
}

FAKE_EXPORT int fake_cuda_injected(void)
{
    return injected;
}
