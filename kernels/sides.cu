// SPDX-License-Identifier: Apache-2.0
// Kernels of other compilers in place of the program's own, as sides.h says it.
//     nvcc -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a -I. -c kernels/sides.cu
// Linked with --wrap of the names below (kernels/CMakeLists.txt). They are what nvcc's stubs and
// the launchers call: a registration tells the name of a kernel, __cudaGetKernel its handle, and
// every later call that takes a kernel is given the side's.
#include "kernels/sides.h"

#include <map>
#include <set>
#include <string>

#include <dirent.h>
#include <errno.h>

#define SIDES_SAMPLES 21
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
static std::set<std::string> launched_own, launched_program;

// By the host's function and by the kernel's handle. Filled before main() too, so made by the first
// call.
static std::map<const void *, std::string> &names()
{
    static std::map<const void *, std::string> all;
    return all;
}

static cudaKernel_t side_kernel(const void *kernel)
{
    struct side &side = sides[in_use];
    const auto name = names().find(kernel);
    if (name == names().end())
        return NULL;
    const auto found = side.kernels.find(name->second);
    if (found != side.kernels.end())
        return found->second;
    cudaKernel_t own = NULL;
    for (cudaLibrary_t library : side.libraries)
        if (!own && cudaLibraryGetKernel(&own, library, name->second.c_str()) != cudaSuccess) {
            own = NULL;
            cudaGetLastError(); // it is in another one, or in none
        }
    return side.kernels[name->second] = own;
}

// What is to be asked or launched in place of `kernel`.
static const void *replace(const void *kernel)
{
    const cudaKernel_t own = in_use ? side_kernel(kernel) : NULL;
    return own ? (const void *)own : kernel;
}

static const void *replace_launched(const void *kernel, size_t shared_bytes)
{
    const void *own = replace(kernel);
    if (!in_use)
        return kernel;
    const auto name = names().find(kernel);
    (own != kernel ? launched_own : launched_program)
            .insert(name == names().end() ? "?" : name->second);
    if (own != kernel && shared_bytes > SHARED_BYTES_PLAIN) {
        size_t &raised = sides[in_use].raised[(cudaKernel_t)own];
        if (shared_bytes > raised) {
            BENCH_CHECK(cudaFuncSetAttribute(
                    own, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared_bytes));
            raised = shared_bytes;
        }
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

int kernel_side(const char *directory, struct error *err)
{
    struct side side;
    int rc = side_load(&side, directory, err);
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

std::vector<std::vector<double>> sides_time(
        cudaStream_t stream, void (*launch)(void *, int, cudaStream_t), void *arg, int sets)
{
    const int count = sides_count(), was = in_use;
    std::vector<std::vector<double>> times(count);
    int launches = 1;
    launched_own.clear();
    launched_program.clear();
    for (int side = 0; side < count; side++) {
        sides_use(side);
        launches = std::max(launches, bench_launches(stream, launch, arg, sets));
    }
    for (int i = 0; i < SIDES_SAMPLES; i++)
        for (int k = 0; k < count; k++) {
            sides_use(i % 2 ? (i + count - 1 - k) % count : (i + k) % count);
            times[in_use].push_back(bench_sample(stream, launch, arg, sets, launches));
        }
    sides_use(was);
    return times;
}

static void print_names(const char *what, std::set<std::string> &launched)
{
    const char *between = "";
    printf(", \"%s\": [", what);
    for (const std::string &name : launched) {
        printf("%s\"%s\"", between, name.c_str());
        between = ", ";
    }
    printf("]");
    launched.clear();
}

void sides_print(const std::vector<std::vector<double>> &times)
{
    if (times.empty())
        return;
    printf(", \"sides\": {");
    for (size_t side = 0; side < times.size(); side++) {
        printf("%s\"%s\": [", side ? ", " : "", sides_name((int)side));
        for (size_t i = 0; i < times[side].size(); i++)
            printf("%s%.1f", i ? ", " : "", times[side][i]);
        printf("]");
    }
    printf("}");
    print_names("replaced", launched_own);
    print_names("kept", launched_program);
}
