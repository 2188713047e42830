// SPDX-License-Identifier: Apache-2.0
// Kernels of another compiler in place of a program's own, without a GPU: kernels/sides.cu as nvcc
// compiled it, over a runtime whose cubins are lists of names. What a side lacks is refused before
// anything is launched; what it has is launched in place of the program's.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <cuda_runtime.h>

#include "kernels/kernels.h"
#include "runner.h"

#define FORWARD "_Z7forwardIfEvPKfPf"
#define BACKWARD "_Z8backwardPf"
#define SORTED "_ZN3cub15DeviceRadixSortEv"

struct dim3 {
    unsigned x, y, z;
};

// --- the runtime ---------------------------------------------------------------------------------

static struct fake_cubin {
    char names[256];
} cubins[8];
static int loaded, raised;
static const void *launched;

void **__cudaRegisterFatBinary(void *binary);
void __cudaRegisterFatBinaryEnd(void **binary);
void __cudaUnregisterFatBinary(void **binary);
cudaError_t cudaLibraryLoadFromFile(struct fake_cubin **ret, const char *file, void *jit,
        void **values, unsigned jits, void *options, void **option_values, unsigned count);
cudaError_t cudaLibraryGetKernel(const char **ret, struct fake_cubin *cubin, const char *name);
cudaError_t cudaFuncSetAttribute(const void *kernel, int attribute, int value);
void __real___cudaRegisterFunction(
        void **, const char *, char *, const char *, int, void *, void *, void *, void *, int *);
void __wrap___cudaRegisterFunction(
        void **, const char *, char *, const char *, int, void *, void *, void *, void *, int *);
cudaError_t __real___cudaGetKernel(const void **, const void *);
cudaError_t __wrap___cudaGetKernel(const void **, const void *);
cudaError_t __real___cudaLaunchKernel(
        const void *, struct dim3, struct dim3, void **, size_t, cudaStream_t);
cudaError_t __wrap___cudaLaunchKernel(
        const void *, struct dim3, struct dim3, void **, size_t, cudaStream_t);
cudaError_t __real_cudaLaunchKernelExC(const void *, const void *, void **);
cudaError_t __real_cudaFuncSetAttribute(const void *, int, int);
cudaError_t __real_cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *, const void *, int, size_t);

void **__cudaRegisterFatBinary(void *binary)
{
    static void *handle;
    (void)binary;
    return &handle;
}

void __cudaRegisterFatBinaryEnd(void **binary)
{
    (void)binary;
}

void __cudaUnregisterFatBinary(void **binary)
{
    (void)binary;
}

cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t error)
{
    (void)error;
    return "no kernel image is available for execution on the device";
}

cudaError_t cudaLibraryLoadFromFile(struct fake_cubin **ret, const char *path, void *jit,
        void **values, unsigned jits, void *options, void **option_values, unsigned count)
{
    (void)jit, (void)values, (void)jits, (void)options, (void)option_values, (void)count;
    FILE *file = fopen(path, "re");
    struct fake_cubin *cubin = &cubins[loaded++];
    size_t bytes = file ? fread(cubin->names, 1, sizeof cubin->names - 1, file) : 0;
    cubin->names[bytes] = '\0';
    if (file)
        fclose(file);
    *ret = cubin;
    return strncmp(cubin->names, "sm_80", 5) == 0 ? (cudaError_t)209 : cudaSuccess;
}

cudaError_t cudaLibraryGetKernel(const char **ret, struct fake_cubin *cubin, const char *name)
{
    const char *at = strstr(cubin->names, name);
    if (!at)
        return (cudaError_t)500;
    *ret = at;
    return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void *kernel, int attribute, int value)
{
    (void)kernel, (void)attribute;
    raised = value;
    return cudaSuccess;
}

void __real___cudaRegisterFunction(void **binary, const char *host, char *device, const char *name,
        int limit, void *tid, void *bid, void *block, void *grid, int *warp)
{
    (void)binary, (void)host, (void)device, (void)name, (void)limit, (void)tid, (void)bid,
            (void)block, (void)grid, (void)warp;
}

cudaError_t __real___cudaGetKernel(const void **ret, const void *host)
{
    *ret = host;
    return cudaSuccess;
}

cudaError_t __real___cudaLaunchKernel(const void *kernel, struct dim3 grid, struct dim3 block,
        void **arguments, size_t bytes, cudaStream_t stream)
{
    (void)grid, (void)block, (void)arguments, (void)bytes, (void)stream;
    launched = kernel;
    return cudaSuccess;
}

cudaError_t __real_cudaLaunchKernelExC(const void *config, const void *kernel, void **arguments)
{
    (void)config, (void)kernel, (void)arguments;
    return cudaSuccess;
}

cudaError_t __real_cudaFuncSetAttribute(const void *kernel, int attribute, int value)
{
    (void)kernel, (void)attribute, (void)value;
    return cudaSuccess;
}

cudaError_t __real_cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        int *ret, const void *kernel, int threads, size_t bytes)
{
    (void)ret, (void)kernel, (void)threads, (void)bytes;
    return cudaSuccess;
}

// --- the program ---------------------------------------------------------------------------------

static char forward, backward, sorted; // what stands for the host's functions

static void program(void)
{
    static const struct {
        const char *host, *name;
    } kernels[] = {{&forward, FORWARD}, {&backward, BACKWARD}, {&sorted, SORTED}};
    for (size_t i = 0; i < 3; i++)
        __wrap___cudaRegisterFunction(
                NULL, kernels[i].host, NULL, kernels[i].name, -1, NULL, NULL, NULL, NULL, NULL);
}

static const void *launch(const char *host, size_t shared_bytes)
{
    const void *kernel = NULL;
    CHECK_INT(__wrap___cudaGetKernel(&kernel, host), cudaSuccess);
    CHECK_INT(__wrap___cudaLaunchKernel(kernel, (struct dim3){1, 1, 1}, (struct dim3){1, 1, 1},
                      NULL, shared_bytes, NULL),
            cudaSuccess);
    return launched;
}

static char directory[] = "/tmp/upgate-sides-XXXXXX";

static void put(const char *name, const char *names)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "we");
    CHECK(file && fputs(names, file) >= 0 && fclose(file) == 0);
}

static void check_refused(int rc, const char *words)
{
    struct kernel_origins origins = {.side = 99};
    struct error err = {0};
    CHECK_INT(kernel_side(directory, &origins, &err), rc);
    CHECK_CONTAINS(err.text, words);
    CHECK_CONTAINS(err.text, directory);
    CHECK_INT(origins.side, 99);
    CHECK(launch(&forward, 0) == &forward); // the program's own, as before
}

TEST(a_side_that_has_all_is_launched)
{
    struct kernel_origins origins = {0};
    struct error err = {0};
    program();
    CHECK(runner_directory(directory) != NULL);
    put("forward.cubin", FORWARD);
    put("backward.cubin", BACKWARD);
    put("notes.txt", SORTED);
    CHECK(launch(&forward, 0) == &forward);
    CHECK_INT(kernel_side(directory, &origins, &err), 0);
    CHECK_INT(origins.side, 2);
    CHECK_INT(origins.program, 1);
    CHECK(strcmp(launch(&forward, 0), FORWARD) == 0);
    CHECK(strcmp(launch(&backward, 100000), BACKWARD) == 0);
    CHECK_INT(raised, 100000);
    CHECK(launch(&sorted, 0) == &sorted); // it has none of CUB's
}

TEST(kernels_of_libraries_that_a_side_has_are_its_own)
{
    struct kernel_origins origins = {0};
    struct error err = {0};
    program();
    CHECK(runner_directory(directory) != NULL);
    put("all.cubin", FORWARD " " BACKWARD " " SORTED);
    CHECK_INT(kernel_side(directory, &origins, &err), 0);
    CHECK_INT(origins.side, 3);
    CHECK_INT(origins.program, 0);
    CHECK(strcmp(launch(&sorted, 0), SORTED) == 0);
}

TEST(a_side_that_lacks_a_kernel_is_refused)
{
    program();
    CHECK(runner_directory(directory) != NULL);
    put("forward.cubin", FORWARD);
    check_refused(-EINVAL, "lack 1 of the 2 kernels");
    check_refused(-EINVAL, "compile all of kernels/ for the side");
    check_refused(-EINVAL, "the first that is missing: backward(float*)");
    CHECK_INT(error_exit_code(-EINVAL), 2);
}

TEST(a_side_of_another_program_is_refused)
{
    program();
    CHECK(runner_directory(directory) != NULL);
    put("other.cubin", "_Z5otherv");
    check_refused(-EINVAL, "lack 2 of the 2 kernels");
}

TEST(cubins_that_cannot_be_had_are_refused)
{
    program();
    CHECK(runner_directory(directory) != NULL);
    check_refused(-EINVAL, "no .cubin in");
    put("forward.cubin", "sm_80 " FORWARD);
    check_refused(-EIO, "/forward.cubin: no kernel image is available");
    CHECK_INT(error_exit_code(-EIO), 4);
}
