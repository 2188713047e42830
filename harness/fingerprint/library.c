// SPDX-License-Identifier: Apache-2.0
// The table of libraries that decide how fast a training step is, and the rules that take version
// and lasting name out of a file name. Data first: a new library is a new line here.
#include "harness/fingerprint/library.h"

#include <ctype.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"

struct known_library {
    const char *pattern; // of the whole path if it holds a '/', else of the file name
    struct library_kind kind;
};

// First match wins: exact places before file names, Debian's alternatives before the reference
// BLAS.
// clang-format off
static const struct known_library known_libraries[] = {
    {"*/torchinductor_*/*", {LIBRARY_ROLE_JIT, "inductor kernel", NULL, NULL}},
    {"*/.triton/*", {LIBRARY_ROLE_JIT, "triton kernel", NULL, NULL}},
    {"*/torch_extensions/*", {LIBRARY_ROLE_JIT, "torch extension", NULL, NULL}},
    {"/memfd:*", {LIBRARY_ROLE_JIT, "memory file", NULL, NULL}},
    {"libtorch_cpu.so*", {LIBRARY_ROLE_FRAMEWORK, "torch", NULL, "torch"}},
    {"libtorch_cuda*.so*", {LIBRARY_ROLE_FRAMEWORK, "torch", NULL, "torch"}},
    {"libtorch*.so*", {LIBRARY_ROLE_FRAMEWORK, "torch", NULL, "torch"}},
    {"libc10*.so*", {LIBRARY_ROLE_FRAMEWORK, "torch", NULL, "torch"}},
    {"libshm.so*", {LIBRARY_ROLE_FRAMEWORK, "torch", NULL, "torch"}},
    {"libtensorflow*.so*", {LIBRARY_ROLE_FRAMEWORK, "tensorflow", NULL, "tensorflow"}},
    {"_pywrap_tensorflow*.so", {LIBRARY_ROLE_FRAMEWORK, "tensorflow", NULL, "tensorflow"}},
    {"xla_extension.so", {LIBRARY_ROLE_FRAMEWORK, "jaxlib", NULL, "jaxlib"}},
    {"libjax_common.so", {LIBRARY_ROLE_FRAMEWORK, "jaxlib", NULL, "jaxlib"}},
    {"libonnxruntime.so*", {LIBRARY_ROLE_FRAMEWORK, "onnxruntime", NULL, "onnxruntime"}},
    {"libnvinfer*.so*", {LIBRARY_ROLE_FRAMEWORK, "TensorRT", NULL, "tensorrt"}},
    {"*/openblas-*/lib*.so*", {LIBRARY_ROLE_BLAS, "OpenBLAS", "OpenBLAS ", NULL}},
    {"*/blis-*/lib*.so*", {LIBRARY_ROLE_BLAS, "BLIS", NULL, NULL}},
    {"*/atlas/lib*.so*", {LIBRARY_ROLE_BLAS, "ATLAS", NULL, NULL}},
    {"libopenblas*.so*", {LIBRARY_ROLE_BLAS, "OpenBLAS", "OpenBLAS ", NULL}},
    {"libscipy_openblas*.so*", {LIBRARY_ROLE_BLAS, "OpenBLAS", "OpenBLAS ", NULL}},
    {"libmkl_*.so*", {LIBRARY_ROLE_BLAS, "MKL", NULL, "mkl"}},
    {"libblis*.so*", {LIBRARY_ROLE_BLAS, "BLIS", NULL, NULL}},
    {"lib?atlas.so*", {LIBRARY_ROLE_BLAS, "ATLAS", NULL, NULL}},
    {"libarmpl*.so*", {LIBRARY_ROLE_BLAS, "Arm Performance Libraries", NULL, NULL}},
    {"libnvpl_*.so*", {LIBRARY_ROLE_BLAS, "NVPL", NULL, NULL}},
    {"libblas.so*", {LIBRARY_ROLE_BLAS, "reference BLAS", NULL, NULL}},
    {"liblapack.so*", {LIBRARY_ROLE_BLAS, "reference LAPACK", NULL, NULL}},
    {"libdnnl.so*", {LIBRARY_ROLE_ONEDNN, "oneDNN", NULL, NULL}},
    {"libmkldnn.so*", {LIBRARY_ROLE_ONEDNN, "oneDNN", NULL, NULL}},
    {"libcuda.so*", {LIBRARY_ROLE_CUDA_DRIVER, "CUDA driver", NULL, NULL}},
    {"libcudart*.so*", {LIBRARY_ROLE_CUDA_RUNTIME, "CUDA runtime", NULL, "nvidia-cuda-runtime*"}},
    {"libcublas*.so*", {LIBRARY_ROLE_CUBLAS, "cuBLAS", NULL, "nvidia-cublas*"}},
    {"libcudnn*.so*", {LIBRARY_ROLE_CUDNN, "cuDNN", NULL, "nvidia-cudnn*"}},
    {"libnccl.so*", {LIBRARY_ROLE_NCCL, "NCCL", "NCCL version ", "nvidia-nccl*"}},
    {"libcufft*.so*", {LIBRARY_ROLE_CUDA_OTHER, "cuFFT", NULL, "nvidia-cufft*"}},
    {"libcusparse.so*", {LIBRARY_ROLE_CUDA_OTHER, "cuSPARSE", NULL, "nvidia-cusparse*"}},
    {"libcusparseLt.so*", {LIBRARY_ROLE_CUDA_OTHER, "cuSPARSELt", NULL, "nvidia-cusparselt*"}},
    {"libcusolver*.so*", {LIBRARY_ROLE_CUDA_OTHER, "cuSOLVER", NULL, "nvidia-cusolver*"}},
    {"libcurand.so*", {LIBRARY_ROLE_CUDA_OTHER, "cuRAND", NULL, "nvidia-curand*"}},
    {"libnvrtc*.so*", {LIBRARY_ROLE_CUDA_OTHER, "NVRTC", NULL, "nvidia-cuda-nvrtc*"}},
    {"libnvJitLink.so*", {LIBRARY_ROLE_CUDA_OTHER, "nvJitLink", NULL, "nvidia-nvjitlink*"}},
    {"libcupti.so*", {LIBRARY_ROLE_CUDA_OTHER, "CUPTI", NULL, "nvidia-cuda-cupti*"}},
    {"libcutensor*.so*", {LIBRARY_ROLE_CUDA_OTHER, "cuTENSOR", NULL, NULL}},
    {"libcufile*.so*", {LIBRARY_ROLE_CUDA_OTHER, "cuFile", NULL, "nvidia-cufile*"}},
    {"libnvshmem*.so*", {LIBRARY_ROLE_CUDA_OTHER, "NVSHMEM", NULL, "nvidia-nvshmem*"}},
    {"libnvidia-ml.so*", {LIBRARY_ROLE_CUDA_DRIVER, "NVML", NULL, NULL}},
    {"libnvidia-*.so*", {LIBRARY_ROLE_CUDA_DRIVER, "NVIDIA driver library", NULL, NULL}},
    {"libgomp*.so*", {LIBRARY_ROLE_OPENMP, "GNU OpenMP", "@GOMP_", NULL}},
    {"libiomp5*.so*", {LIBRARY_ROLE_OPENMP, "Intel OpenMP", NULL, "intel-openmp"}},
    {"libomp*.so*", {LIBRARY_ROLE_OPENMP, "LLVM OpenMP", NULL, NULL}},
    {"libjemalloc*.so*", {LIBRARY_ROLE_ALLOCATOR, "jemalloc", NULL, NULL}},
    {"libtcmalloc*.so*", {LIBRARY_ROLE_ALLOCATOR, "tcmalloc", NULL, NULL}},
    {"libmimalloc*.so*", {LIBRARY_ROLE_ALLOCATOR, "mimalloc", NULL, NULL}},
    {"libc.so*", {LIBRARY_ROLE_LIBC, "glibc", "stable release version ", NULL}},
    {"libc-2.*.so", {LIBRARY_ROLE_LIBC, "glibc", "stable release version ", NULL}},
    {"ld-musl-*", {LIBRARY_ROLE_LIBC, "musl", NULL, NULL}},
    {"libstdc++.so*", {LIBRARY_ROLE_CXX_RUNTIME, "libstdc++", "@GLIBCXX_", NULL}},
    {"libc++.so*", {LIBRARY_ROLE_CXX_RUNTIME, "libc++", NULL, NULL}},
    {"libgloo*.so*", {LIBRARY_ROLE_COMMUNICATION, "Gloo", NULL, NULL}},
    {"libmpi*.so*", {LIBRARY_ROLE_COMMUNICATION, "MPI", NULL, NULL}},
    {"libuc[pst].so*", {LIBRARY_ROLE_COMMUNICATION, "UCX", NULL, NULL}},
    {"libfabric*.so*", {LIBRARY_ROLE_COMMUNICATION, "libfabric", NULL, NULL}},
    {"libibverbs*.so*", {LIBRARY_ROLE_COMMUNICATION, "libibverbs", NULL, NULL}},
    {"libnccl-*.so*", {LIBRARY_ROLE_COMMUNICATION, "NCCL plugin", NULL, NULL}},
    {"libsleef*.so*", {LIBRARY_ROLE_KERNELS, "SLEEF", NULL, NULL}},
    {"libXNNPACK*.so*", {LIBRARY_ROLE_KERNELS, "XNNPACK", NULL, NULL}},
    {"libpthreadpool*.so*", {LIBRARY_ROLE_KERNELS, "pthreadpool", NULL, NULL}},
    {"libfbgemm*.so*", {LIBRARY_ROLE_KERNELS, "FBGEMM", NULL, NULL}},
    {"libcpuinfo*.so*", {LIBRARY_ROLE_KERNELS, "cpuinfo", NULL, NULL}},
    {"libtbb*.so*", {LIBRARY_ROLE_KERNELS, "TBB", NULL, NULL}},
    {"libtriton*.so*", {LIBRARY_ROLE_KERNELS, "Triton", NULL, "triton"}},
    {"libpython*.so*", {LIBRARY_ROLE_INTERPRETER, "libpython", NULL, NULL}},
};
// clang-format on
static const struct library_kind kind_extension = {LIBRARY_ROLE_EXTENSION, NULL, NULL, NULL};
static const struct library_kind kind_other = {LIBRARY_ROLE_OTHER, NULL, NULL, NULL};

static bool is_extension(const char *path)
{
    return strstr(path, ".cpython-") || strstr(path, ".abi3.so") || strstr(path, "/lib-dynload/") ||
            ((strstr(path, "/site-packages/") || strstr(path, "/dist-packages/")) &&
                    strncmp(string_base_name(path), "lib", 3));
}

const struct library_kind *library_kind_of(const char *path)
{
    for (size_t i = 0; i < sizeof(known_libraries) / sizeof(known_libraries[0]); i++) {
        const struct known_library *known = &known_libraries[i];
        const char *subject = strchr(known->pattern, '/') ? path : string_base_name(path);
        if (!fnmatch(known->pattern, subject, 0))
            return &known->kind;
    }
    return is_extension(path) ? &kind_extension : &kind_other;
}

// clang-format off
static const char *const role_names[LIBRARY_ROLE_COUNT] = {
    [LIBRARY_ROLE_FRAMEWORK] = "framework",     [LIBRARY_ROLE_BLAS] = "blas",
    [LIBRARY_ROLE_ONEDNN] = "onednn",           [LIBRARY_ROLE_CUDA_DRIVER] = "cuda_driver",
    [LIBRARY_ROLE_CUDA_RUNTIME] = "cuda_runtime", [LIBRARY_ROLE_CUBLAS] = "cublas",
    [LIBRARY_ROLE_CUDNN] = "cudnn",             [LIBRARY_ROLE_NCCL] = "nccl",
    [LIBRARY_ROLE_CUDA_OTHER] = "cuda_other",   [LIBRARY_ROLE_OPENMP] = "openmp",
    [LIBRARY_ROLE_ALLOCATOR] = "allocator",     [LIBRARY_ROLE_LIBC] = "libc",
    [LIBRARY_ROLE_CXX_RUNTIME] = "cxx_runtime", [LIBRARY_ROLE_COMMUNICATION] = "communication",
    [LIBRARY_ROLE_KERNELS] = "kernels",         [LIBRARY_ROLE_INTERPRETER] = "interpreter",
    [LIBRARY_ROLE_JIT] = "jit",                 [LIBRARY_ROLE_EXTENSION] = "extension",
    [LIBRARY_ROLE_OTHER] = "other",
};
// clang-format on

const char *library_role_name(enum library_role role)
{
    return role_names[role];
}

bool library_role_has_component(enum library_role role)
{
    return role >= LIBRARY_ROLE_BLAS && role <= LIBRARY_ROLE_KERNELS;
}

// Length of a version at `text`: digits and dots, with a letter or two between, ending in a digit.
static size_t version_length(const char *text)
{
    size_t length = 0;
    while (isdigit((unsigned char)text[length]) ||
            (length && text[length] == '.' && isdigit((unsigned char)text[length + 1])))
        length++;
    return length;
}

char *library_version_of_name(const char *path)
{
    const char *name = string_base_name(path), *so = strstr(name, ".so");
    if (so && so[3] == '.' && isdigit((unsigned char)so[4])) {
        size_t length = version_length(so + 4);
        // A lone number ("libc.so.6") names the interface and stays for decades: no version.
        return memchr(so + 4, '.', length) ? xasprintf("%.*s", (int)length, so + 4) : NULL;
    }
    // "libdw-0.188.so", "libopenblasp-r0.3.21.so", "libtbb-12.8.so": the last "-" with a dotted
    // number.
    for (const char *at = so; so && at > name; at--) {
        if (*at != '-')
            continue;
        const char *version = at + 1 + (at[1] == 'r' || at[1] == 'v');
        size_t length = version_length(version);
        if (length && version + length == so && memchr(version, '.', length))
            return xasprintf("%.*s", (int)length, version);
    }
    return NULL;
}

// Cut "-0.188", "-r0.3.21" and the "-a34b3233" that auditwheel adds, once or twice, from the end.
static size_t cut_suffixes(const char *name, size_t length)
{
    for (;;) {
        size_t dash = length;
        while (dash > 0 && name[dash - 1] != '-')
            dash--;
        if (dash < 2)
            return length;
        const char *tail = name + dash;
        size_t count = length - dash, hex_count = 0, digits = 0;
        while (hex_count < count && isxdigit((unsigned char)tail[hex_count]))
            digits += isdigit((unsigned char)tail[hex_count++]) != 0;
        size_t skip = count && (tail[0] == 'r' || tail[0] == 'v');
        bool version = count > skip && version_length(tail + skip) == count - skip;
        bool hash = hex_count == count && count >= 8 && digits > 0;
        if (!version && !hash)
            return length;
        length = dash - 1;
    }
}

char *library_key(const char *path)
{
    const char *name = string_base_name(path);
    const struct library_kind *kind = library_kind_of(path);
    if (kind->role == LIBRARY_ROLE_JIT)
        return xstrdup(kind->name);
    const char *end = strstr(name, ".so");
    if (!end)
        end = name + strlen(name);
    if (kind->role != LIBRARY_ROLE_EXTENSION)
        return xasprintf("%.*s", (int)cut_suffixes(name, (size_t)(end - name)), name);
    static const char *const roots[] = {"/site-packages/", "/dist-packages/", "/lib-dynload/"};
    const char *from = name;
    for (size_t i = 0; i < sizeof(roots) / sizeof(roots[0]); i++) {
        const char *root = strstr(path, roots[i]);
        if (root)
            from = root + strlen(roots[i]);
    }
    const char *tag = strstr(name, ".cpython-"), *abi = strstr(name, ".abi3");
    end = tag ? tag : abi ? abi : end;
    return xasprintf("%.*s", (int)(end - from), from);
}
