// SPDX-License-Identifier: Apache-2.0
// What a shared object is to a workload: its role, the name people use, its version. Works on paths
// and facts; opens nothing.
#ifndef UPGATE_FINGERPRINT_LIBRARY_H
#define UPGATE_FINGERPRINT_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>

// Stored by name (library_role_name). A role that has a component is one line of the fingerprint's
// "components": the libraries behind it are interchangeable, so they are compared across file
// names.
enum library_role {
    LIBRARY_ROLE_FRAMEWORK,
    LIBRARY_ROLE_BLAS,
    LIBRARY_ROLE_ONEDNN,
    LIBRARY_ROLE_CUDA_DRIVER,
    LIBRARY_ROLE_CUDA_RUNTIME,
    LIBRARY_ROLE_CUBLAS,
    LIBRARY_ROLE_CUDNN,
    LIBRARY_ROLE_NCCL,
    LIBRARY_ROLE_CUDA_OTHER,
    LIBRARY_ROLE_OPENMP,
    LIBRARY_ROLE_ALLOCATOR,
    LIBRARY_ROLE_LIBC,
    LIBRARY_ROLE_CXX_RUNTIME,
    LIBRARY_ROLE_COMMUNICATION,
    LIBRARY_ROLE_KERNELS,
    LIBRARY_ROLE_INTERPRETER,
    LIBRARY_ROLE_JIT, // compiled on this machine at run time (inductor, triton, cpp_extension)
    LIBRARY_ROLE_EXTENSION, // a Python extension module
    LIBRARY_ROLE_OTHER,
    LIBRARY_ROLE_COUNT
};

struct library_kind {
    enum library_role role;
    const char *name;    // "OpenBLAS"; NULL: the library's own name
    const char *prefix;  // where elf_facts_read() finds the version; NULL: only in the file name
    const char *package; // Python package that carries it; "*" stands for the CUDA suffix; NULL
};

const char *library_role_name(enum library_role role);
bool library_role_has_component(enum library_role role);

// The kind of the library at `path`. Never NULL.
const struct library_kind *library_kind_of(const char *path);

// The version in a file name: "libz.so.1.2.13" -> "1.2.13", "libopenblasp-r0.3.21.so" -> "0.3.21".
// NULL: none; the 6 of "libc.so.6" is the number of an interface. The caller frees.
char *library_version_of_name(const char *path);

// The name that stays the same across versions, builds and directories; the key of a comparison:
// "/a/libgomp-a34b3233.so.1.0.0" -> "libgomp", ".../site-packages/torch/_C.cpython-311-....so" ->
// "torch/_C". The caller frees.
char *library_key(const char *path);

#endif
