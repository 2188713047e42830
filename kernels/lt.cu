// SPDX-License-Identifier: Apache-2.0
// Opens cuBLASLt and asks it for algorithms, as lt.h says it.
//     nvcc -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a -I. -c kernels/lt.cu
#include "kernels/lt.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <string>

int lt_error(int status, const char *what, struct error *err)
{
    return status == 0 ? 0
                       : error_set(err, -EIO, "cuBLASLt: failed to %s: status %d", what, status);
}

int lt_open(const struct lt **ret, struct error *err)
{
    static struct lt lt;
    const char *asked = getenv("UPGATE_CUBLASLT"), *home = getenv("CUDA_HOME");
    const struct {
        const char *name;
        void *to;
    } symbols[] = {{"cublasLtCreate", &lt.create}, {"cublasLtMatmulDescCreate", &lt.desc_create},
            {"cublasLtMatmulDescDestroy", &lt.desc_destroy},
            {"cublasLtMatmulDescSetAttribute", &lt.desc_set},
            {"cublasLtMatrixLayoutCreate", &lt.layout_create},
            {"cublasLtMatrixLayoutDestroy", &lt.layout_destroy},
            {"cublasLtMatmulPreferenceCreate", &lt.preference_create},
            {"cublasLtMatmulPreferenceDestroy", &lt.preference_destroy},
            {"cublasLtMatmulPreferenceSetAttribute", &lt.preference_set},
            {"cublasLtMatmulAlgoGetHeuristic", &lt.heuristic}, {"cublasLtMatmul", &lt.matmul}};
    *ret = &lt;
    if (lt.handle)
        return 0;
    if (asked && !*asked) // "" would be the program itself
        asked = NULL;
    void *library = asked ? dlopen(asked, RTLD_NOW | RTLD_LOCAL) : NULL;
    for (const char *name : {"libcublasLt.so.13", "libcublasLt.so.12"})
        if (!library && !asked && home)
            library = dlopen((std::string(home) + "/lib64/" + name).c_str(), RTLD_NOW | RTLD_LOCAL);
    for (const char *name : {"libcublasLt.so.13", "libcublasLt.so.12"})
        if (!library && !asked)
            library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return error_set(
                err, -ENOSYS, "no cuBLASLt: %s; UPGATE_CUBLASLT=path of libcublasLt.so", dlerror());
    for (const auto &symbol : symbols) {
        void *found = dlsym(library, symbol.name);
        if (!found)
            return error_set(err, -ENOSYS, "cuBLASLt is too old: %s", dlerror());
        memcpy(symbol.to, &found, sizeof found);
    }
    return lt_error(lt.create(&lt.handle), "create a handle", err);
}

int lt_algorithms(const struct lt *lt, void *desc, void *a, void *b, void *out,
        struct lt_heuristic (*ret)[LT_ALGORITHMS], int *ret_count, struct error *err)
{
    const size_t workspace = LT_WORKSPACE;
    void *preference = NULL;
    int rc = lt_error(lt->preference_create(&preference), "create a preference", err);
    if (rc)
        return rc;
    rc = lt_error(
            lt->preference_set(preference, LT_PREFERENCE_WORKSPACE, &workspace, sizeof workspace),
            "set the workspace", err);
    if (!rc) {
        const int status = lt->heuristic(
                lt->handle, desc, a, b, out, out, preference, LT_ALGORITHMS, *ret, ret_count);
        if (status || *ret_count < 1)
            rc = error_set(
                    err, -ENOSYS, "cuBLASLt has no algorithm for this product: status %d", status);
    }
    lt->preference_destroy(preference);
    return rc;
}
