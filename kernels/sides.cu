// SPDX-License-Identifier: Apache-2.0
// Kernels of other compilers in place of the program's own, as sides.h says it.
//     nvcc -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a -I. -c kernels/sides.cu
// Linked with --wrap of the names below (kernels/CMakeLists.txt). They are what nvcc's stubs and
// the launchers call: a registration tells the name of a kernel, __cudaGetKernel its handle, and
// every later call that takes a kernel is given the side's.
#include "kernels/sides.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#include <cxxabi.h>
#include <dirent.h>
#include <errno.h>

#define SHARED_BYTES_PLAIN \
    ((size_t)48 << 10) // of dynamic shared memory: more must be asked for, kernel by kernel

struct side {
    std::string name;
    std::vector<cudaLibrary_t> libraries;
    std::map<std::string, cudaKernel_t> kernels; // NULL: it has none of this name
    std::map<cudaKernel_t, size_t> raised;       // what was asked for
};

static std::vector<struct side> sides(1);
static int in_use;
static struct sides_launched launched;

// By the host's function and by the kernel's handle. Filled before main() too, so made by the first
// call.
static std::map<const void *, std::string> &names()
{
    static std::map<const void *, std::string> all;
    return all;
}

// NULL: it has none of this name.
static cudaKernel_t side_kernel(struct side *side, const std::string &name)
{
    const auto found = side->kernels.find(name);
    if (found != side->kernels.end())
        return found->second;
    cudaKernel_t own = NULL;
    for (cudaLibrary_t library : side->libraries)
        if (!own && cudaLibraryGetKernel(&own, library, name.c_str()) != cudaSuccess) {
            own = NULL;
            cudaGetLastError(); // it is in another one, or in none
        }
    return side->kernels[name] = own;
}

// What is to be asked or launched in place of `kernel`.
static const void *replace(const void *kernel)
{
    const auto name = in_use ? names().find(kernel) : names().end();
    const cudaKernel_t own =
            name == names().end() ? NULL : side_kernel(&sides[in_use], name->second);
    return own ? (const void *)own : kernel;
}

static const void *replace_launched(const void *kernel, size_t shared_bytes)
{
    const void *own = replace(kernel);
    if (!in_use)
        return kernel;
    const auto name = names().find(kernel);
    (own != kernel ? launched.own : launched.program)
            .insert(name == names().end() ? "?" : name->second);
    if (own != kernel && shared_bytes > SHARED_BYTES_PLAIN) {
        size_t &raised = sides[in_use].raised[(cudaKernel_t)own];
        // Where it cannot be, the launch says so.
        if (shared_bytes > raised &&
                cudaFuncSetAttribute(own, cudaFuncAttributeMaxDynamicSharedMemorySize,
                        (int)shared_bytes) == cudaSuccess)
            raised = shared_bytes;
    }
    return own;
}

extern "C" {
void __real___cudaRegisterFunction(
        void **, const char *, char *, const char *, int, uint3 *, uint3 *, dim3 *, dim3 *, int *);
void __wrap___cudaRegisterFunction(void **binary, const char *host, char *device, const char *name,
        int limit, uint3 *tid, uint3 *bid, dim3 *block, dim3 *grid, int *warp)
{
    names()[host] = name;
    __real___cudaRegisterFunction(binary, host, device, name, limit, tid, bid, block, grid, warp);
}

cudaError_t __real___cudaGetKernel(cudaKernel_t *, const void *);
cudaError_t __wrap___cudaGetKernel(cudaKernel_t *ret, const void *host)
{
    const cudaError_t error = __real___cudaGetKernel(ret, host);
    if (error == cudaSuccess)
        names()[*ret] = names()[host];
    return error;
}

cudaError_t __real___cudaLaunchKernel(cudaKernel_t, dim3, dim3, void **, size_t, cudaStream_t);
cudaError_t __wrap___cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments,
        size_t shared_bytes, cudaStream_t stream)
{
    return __real___cudaLaunchKernel((cudaKernel_t)replace_launched(kernel, shared_bytes), grid,
            block, arguments, shared_bytes, stream);
}

cudaError_t __real_cudaLaunchKernelExC(const cudaLaunchConfig_t *, const void *, void **);
cudaError_t __wrap_cudaLaunchKernelExC(
        const cudaLaunchConfig_t *config, const void *kernel, void **arguments)
{
    return __real_cudaLaunchKernelExC(
            config, replace_launched(kernel, config->dynamicSmemBytes), arguments);
}

cudaError_t __real_cudaFuncSetAttribute(const void *, enum cudaFuncAttribute, int);
cudaError_t __wrap_cudaFuncSetAttribute(
        const void *kernel, enum cudaFuncAttribute attribute, int value)
{
    // The launchers ask once, whichever side is in use then: the program's own is launched later
    // too.
    const void *own = replace(kernel);
    const cudaError_t error = __real_cudaFuncSetAttribute(kernel, attribute, value);
    return error != cudaSuccess || own == kernel
            ? error
            : __real_cudaFuncSetAttribute(own, attribute, value);
}

cudaError_t __real_cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *, const void *, int, size_t);
cudaError_t __wrap_cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        int *ret, const void *kernel, int threads, size_t bytes)
{
    return __real_cudaOccupancyMaxActiveBlocksPerMultiprocessor(
            ret, replace(kernel), threads, bytes);
}
}

// All *.cubin of a directory.
static int side_load(struct side *side, const char *directory, struct error *err)
{
    DIR *listing = opendir(directory);
    int rc = 0;
    for (struct dirent *entry; !rc && listing && (entry = readdir(listing));) {
        const std::string file = std::string(directory) + "/" + entry->d_name;
        if (file.size() < 6 || file.compare(file.size() - 6, 6, ".cubin") != 0)
            continue;
        cudaLibrary_t library;
        const cudaError_t error =
                cudaLibraryLoadFromFile(&library, file.c_str(), NULL, NULL, 0, NULL, NULL, 0);
        if (error == cudaSuccess)
            side->libraries.push_back(library);
        else
            rc = error_set(err, -EIO, "the driver does not take %s: %s", file.c_str(),
                    cudaGetErrorString(error));
    }
    if (listing)
        closedir(listing);
    if (!rc && side->libraries.empty())
        rc = error_set(err, -EINVAL, "no .cubin in %s", directory);
    return rc;
}

// Those of CUB and Thrust lie in their namespaces, what only measures (bench.cu) in one, too; what
// a side must have in none.
static bool is_of_a_side(const std::string &name)
{
    return name.compare(0, 3, "_ZN") != 0;
}

static std::string shown(const std::string &name)
{
    char *text = abi::__cxa_demangle(name.c_str(), NULL, NULL, NULL);
    const std::string words = text ? text : name;
    free(text);
    return words;
}

// A kernel that it lacks would be launched from the program, and the side be judged by what is not
// its own.
static int side_complete(
        struct side *side, const char *directory, struct kernel_origins *ret, struct error *err)
{
    struct kernel_origins origins = {};
    std::set<std::string> all, lacks;
    for (const auto &name : names())
        all.insert(name.second);
    for (const std::string &name : all)
        if (side_kernel(side, name)) // nvcc's cubins have those of libraries, too
            origins.side++;
        else if (is_of_a_side(name))
            lacks.insert(name);
        else
            origins.program++;
    if (!lacks.empty())
        return error_set(err, -EINVAL,
                "the .cubin of %s lack %zu of the %zu kernels that this program launches, and it would launch its own: "
                "compile all of kernels/ for the side, from the source of this program (ci/gpu/models --pack); the first that is "
                "missing: %.600s",
                directory, lacks.size(), lacks.size() + origins.side,
                shown(*lacks.begin()).c_str());
    *ret = origins;
    return 0;
}

int kernel_side(const char *directory, struct kernel_origins *ret, struct error *err)
{
    struct side side;
    int rc = side_load(&side, directory, err);
    if (!rc)
        rc = side_complete(&side, directory, ret, err);
    if (rc)
        return rc;
    side.name = directory;
    sides.push_back(side);
    sides_use(sides_count() - 1);
    return 0;
}

void sides_open(const char *name_and_directory)
{
    const char *directory = strchr(name_and_directory, '=');
    struct side side;
    if (!directory || directory == name_and_directory) {
        fprintf(stderr, "upgate_kernels: side '%s': NAME=DIRECTORY is wanted\n",
                name_and_directory);
        exit(2);
    }
    side.name.assign(name_and_directory, (size_t)(directory - name_and_directory));
    struct error err;
    const int rc = side_load(&side, directory + 1, &err);
    if (rc) {
        fprintf(stderr, "upgate_kernels: side %s: %s\n", side.name.c_str(), err.text);
        exit(rc == -EINVAL ? 2 : 4);
    }
    sides.push_back(side);
}

int sides_count()
{
    return (int)sides.size();
}

const char *sides_name(int side)
{
    return side ? sides[side].name.c_str() : "program";
}

void sides_use(int side)
{
    in_use = side;
}

int sides_in_use()
{
    return in_use;
}

struct sides_launched *sides_launched()
{
    return &launched;
}
