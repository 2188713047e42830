// SPDX-License-Identifier: Apache-2.0
// Names, versions and roles of libraries from their paths.
#include "harness/fingerprint/library.h"

#include <stdlib.h>

#include "tests/unit/runner.h"

static void check_version(const char *path, const char *want)
{
    char *got = library_version_of_name(path);
    if (want)
        CHECK_STR(got, want);
    else
        CHECK(got == NULL);
    free(got);
}

static void check_key(const char *path, const char *want)
{
    char *got = library_key(path);
    CHECK_STR(got, want);
    free(got);
}

static void check_kind(const char *path, enum library_role role, const char *name)
{
    const struct library_kind *kind = library_kind_of(path);
    CHECK_STR(library_role_name(kind->role), library_role_name(role));
    if (name)
        CHECK_STR(kind->name, name);
    else
        CHECK(kind->name == NULL);
}

TEST(versions_in_file_names)
{
    check_version("/usr/lib/libz.so.1.2.13", "1.2.13");
    check_version("/usr/lib/openblas-openmp/libopenblasp-r0.3.21.so", "0.3.21");
    check_version("/usr/lib/libdw-0.188.so", "0.188");
    check_version("/usr/lib/libcuda.so.575.51.03", "575.51.03");
    check_version("/lib/libc.so.6", NULL); // an interface, not a version
    check_version("/usr/lib/libcudart.so.12", NULL);
    check_version("/x/libgomp-a34b3233.so.1.0.0", "1.0.0");
    check_version("/x/libscipy_openblas64_-32a4b2a6.so", NULL);
    check_version("/x/libtorch_cpu.so", NULL);
    check_version("/usr/bin/python3.11", NULL);
    check_version("", NULL);
}

TEST(keys_outlast_versions_hashes_and_places)
{
    check_key("/usr/lib/libz.so.1.2.13", "libz");
    check_key("/x/numpy.libs/libgfortran-040039e1-0352e75f.so.5.0.0", "libgfortran");
    check_key("/x/torch.libs/libgomp-a34b3233.so.1.0.0", "libgomp");
    check_key("/usr/lib/libopenblasp-r0.3.21.so", "libopenblasp");
    check_key("/usr/lib/libdw-0.188.so", "libdw");
    check_key("/usr/lib/libdouble-conversion.so.3.1", "libdouble-conversion");
    check_key("/usr/lib/libstdc++.so.6.0.30", "libstdc++");
    check_key(
            "/v/lib/python3.11/site-packages/torch/_C.cpython-311-x86_64-linux-gnu.so", "torch/_C");
    check_key(
            "/v/lib/python3.12/site-packages/torch/_C.cpython-312-x86_64-linux-gnu.so", "torch/_C");
    check_key("/v/lib/python3/dist-packages/pkg/sub/_x.abi3.so", "pkg/sub/_x");
    check_key("/usr/lib/python3.11/lib-dynload/_bz2.cpython-311-x86_64-linux-gnu.so", "_bz2");
    check_key("/tmp/torchinductor_root/ab/cabcdef.so", "inductor kernel");
    check_key("/usr/bin/python3.11", "python3.11");
}

TEST(roles)
{
    check_kind("/x/torch/lib/libtorch_cpu.so", LIBRARY_ROLE_FRAMEWORK, "torch");
    check_kind("/usr/lib/libc10.so.1.13.0", LIBRARY_ROLE_FRAMEWORK, "torch");
    check_kind("/usr/lib/x86_64-linux-gnu/openblas-openmp/libblas.so.3", LIBRARY_ROLE_BLAS,
            "OpenBLAS");
    check_kind("/usr/lib/x86_64-linux-gnu/blis-openmp/libblas.so.3", LIBRARY_ROLE_BLAS, "BLIS");
    check_kind("/usr/lib/x86_64-linux-gnu/blas/libblas.so.3.11.0", LIBRARY_ROLE_BLAS,
            "reference BLAS");
    check_kind("/opt/intel/libmkl_core.so.2", LIBRARY_ROLE_BLAS, "MKL");
    check_kind("/usr/lib/libdnnl.so.2.6", LIBRARY_ROLE_ONEDNN, "oneDNN");
    check_kind("/x/nvidia/cublas/lib/libcublasLt.so.12", LIBRARY_ROLE_CUBLAS, "cuBLAS");
    check_kind("/x/nvidia/cudnn/lib/libcudnn_ops.so.9", LIBRARY_ROLE_CUDNN, "cuDNN");
    check_kind("/x/nvidia/nccl/lib/libnccl.so.2", LIBRARY_ROLE_NCCL, "NCCL");
    check_kind("/x/libnccl-net.so", LIBRARY_ROLE_COMMUNICATION, "NCCL plugin");
    check_kind("/usr/lib/libcuda.so.575.51.03", LIBRARY_ROLE_CUDA_DRIVER, "CUDA driver");
    check_kind("/usr/lib/libiomp5.so", LIBRARY_ROLE_OPENMP, "Intel OpenMP");
    check_kind("/usr/lib/libomp.so.5", LIBRARY_ROLE_OPENMP, "LLVM OpenMP");
    check_kind("/usr/lib/libjemalloc.so.2", LIBRARY_ROLE_ALLOCATOR, "jemalloc");
    check_kind("/lib/libc.so.6", LIBRARY_ROLE_LIBC, "glibc");
    check_kind("/usr/lib/libcrypto.so.3", LIBRARY_ROLE_OTHER, NULL);
    check_kind("/v/site-packages/numpy/linalg/_umath_linalg.cpython-311-x86_64-linux-gnu.so",
            LIBRARY_ROLE_EXTENSION, NULL);
    check_kind("/root/.triton/cache/abc/kernel.so", LIBRARY_ROLE_JIT, "triton kernel");
    check_kind("/memfd:code", LIBRARY_ROLE_JIT, "memory file");
}

TEST(every_role_has_a_name)
{
    for (int role = 0; role < LIBRARY_ROLE_COUNT; role++)
        CHECK(library_role_name(role) != NULL);
    CHECK(library_role_has_component(LIBRARY_ROLE_BLAS));
    CHECK(!library_role_has_component(
            LIBRARY_ROLE_FRAMEWORK)); // frameworks are components by their version
    CHECK(!library_role_has_component(LIBRARY_ROLE_OTHER));
}
