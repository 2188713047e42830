// SPDX-License-Identifier: Apache-2.0
// Which variables a fingerprint keeps, and that no secret gets into it.
#include "harness/fingerprint/environment.h"

#include <stdlib.h>

#include "common/strings.h"
#include "harness/fingerprint/fingerprint.h"
#include "tests/unit/runner.h"

static void check_value(const char *name, const char *value, const char *want)
{
    char *got = fingerprint_environment_value(name, value);
    if (want)
        CHECK_STR(got, want);
    else
        CHECK(got == NULL);
    free(got);
}

TEST(listed_names_are_kept)
{
    check_value("OMP_NUM_THREADS", "4", "4");
    check_value("MKL_CBWR", "AVX2", "AVX2");
    check_value("LD_LIBRARY_PATH", "/a:/home/author/lib", "/a:/home/author/lib");
    check_value("LD_PRELOAD", "/usr/lib/libjemalloc.so.2", "/usr/lib/libjemalloc.so.2");
    check_value("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True", "expandable_segments:True");
    check_value("TORCH_LOGS", "+dynamo", "+dynamo");
    check_value("GLIBC_TUNABLES", "glibc.malloc.arena_max=1", "glibc.malloc.arena_max=1");
    check_value("XLA_FLAGS", "", "");
    check_value("TOKENIZERS_PARALLELISM", "false", "false"); // no token of a service
    check_value("LRU_CACHE_CAPACITY", "1024", "1024"); // primitives that oneDNN keeps in torch
    check_value("DISABLE_ADDMM_CUDA_LT", "1", "1");
    check_value("LD_AUDIT", "/opt/audit.so", "/opt/audit.so");
    check_value("NPY_DISABLE_CPU_FEATURES", "AVX512F", "AVX512F");
    check_value("VLLM_ATTENTION_BACKEND", "FLASHINFER", "FLASHINFER");
    check_value("MIMALLOC_LARGE_OS_PAGES", "1", "1");
}

TEST(other_names_are_not_kept)
{
    check_value("HOME", "/root", NULL);
    check_value("AWS_SECRET_ACCESS_KEY", "abc", NULL);
    check_value("PATH", "/bin", NULL);
    check_value("NVIDIA_REQUIRE_CUDA", "cuda>=13.0", NULL); // of container images, and long
    check_value("omp_num_threads", "4", NULL);
    check_value("", "x", NULL);
}

TEST(secrets_are_hidden_by_name)
{
    check_value("TORCH_HUB_TOKEN", "abcdef", "[redacted]");
    check_value("UPGATE_PASSWORD", "hunter2", "[redacted]");
    check_value("CUDA_MY_SECRET", "x", "[redacted]");
    check_value("NCCL_AUTH_FILE", "/run/key", "[redacted]");
    check_value("TOKENIZERS_API_TOKEN", "abc", "[redacted]");
    check_value("VLLM_API_KEY", "abc", "[redacted]");
    check_value("PYTHON_KEYRING_CREDENTIALS", "x", "[redacted]");
    check_value("TORCH_HUB_TOKEN", "", ""); // empty is no secret, and says that it is not set
}

TEST(secrets_are_hidden_by_value)
{
    check_value("UPGATE_NOTE", "ghp_0123456789abcdef", "[redacted]");
    check_value("JAX_SERVICE", "Bearer abc", "[redacted]");
    check_value("XLA_FLAGS", "--xla_api_key=abc", "[redacted]");
    check_value("TORCH_STORE", "user password: abc", "[redacted]");
    check_value("TORCH_HOME", "https://joe:pw@host/models", "https://[redacted]@host/models");
    check_value("TORCH_HOME", "s3://k:v@a,s3://l:w@b", "s3://[redacted]@a,s3://[redacted]@b");
    check_value("TORCH_HOME", "https://host/path@v2",
            "https://host/path@v2"); // an @ behind the host
}

TEST(block_of_a_process)
{
    static const char block[] =
            "OMP_NUM_THREADS=2\0HOME=/root\0NCCL_DEBUG=INFO\0ODD\0MKL_X=a=b\0TORCH_TOKEN=t\0"
            "TORCH_BYTES=\xff\xfe\0PYTHONPATH=/cut";
    size_t others = 99;
    json_t *object = environment_collect(block, sizeof(block) - 1, &others);
    CHECK_INT(json_object_size(object), 6);
    CHECK_INT(others, 1);
    CHECK_STR(json_string_value(json_object_get(object, "MKL_X")), "a=b");
    CHECK_STR(json_string_value(json_object_get(object, "TORCH_TOKEN")), "[redacted]");
    CHECK_STR(json_string_value(json_object_get(object, "TORCH_BYTES")), "??");
    CHECK_STR(json_string_value(json_object_get(object, "PYTHONPATH")),
            "/cut"); // no NUL at the end
    json_decref(object);
    object = environment_collect("", 0, &others);
    CHECK_INT(json_object_size(object), 0);
    json_decref(object);
}

TEST(long_values_are_cut)
{
    char *value = xcalloc(1, 100001);
    memset(value, 'x', 100000);
    char *got = fingerprint_environment_value("XLA_FLAGS", value);
    CHECK(strlen(got) < 5000);
    CHECK_CONTAINS(got, "...");
    free(got);
    free(value);
}
