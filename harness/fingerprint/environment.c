// SPDX-License-Identifier: Apache-2.0
// Which environment variables a fingerprint holds, and how values that look like secrets are
// hidden. A whitelist: a variable nobody thought of stays out of stores that are mailed around.
#include "harness/fingerprint/environment.h"

#include <ctype.h>
#include <fnmatch.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "harness/fingerprint/fingerprint.h"
#include "harness/fingerprint/read.h"

#define REDACTED "[redacted]"

enum { VALUE_CHARACTERS_MAX = 4096 };

// clang-format off
static const char *const environment_names[] = {
    "ATEN_*", "BLIS_*", "CUBLASLT_*", "CUBLAS_*", "CUDA*", "CUDNN_*", "CUTENSOR_*", "DISABLE_ADDMM_CUDA_LT", "DNNL_*",
    "FI_*", "FLASHINFER_*", "FLASH_*", "GLIBC_TUNABLES", "GLOO_*", "GOMP_*", "GOTO_*", "HIPBLASLT_*", "HIP_*", "HSA_*",
    "IPEX_*", "JAX_*", "JEMALLOC_*", "KINETO_*", "KMP_*", "LD_AUDIT", "LD_BIND_NOW", "LD_LIBRARY_PATH", "LD_PRELOAD",
    "LIBOMP_*", "LRU_CACHE_CAPACITY", "MALLOC_*", "MIMALLOC_*", "MIOPEN_*", "MKLDNN_*", "MKL_*", "NCCL_*", "NPY_*", "NUMBA_*",
    "NUMEXPR_*", "NVFUSER_*", "NVIDIA_TF32_OVERRIDE", "NVIDIA_VISIBLE_DEVICES", "NVSHMEM_*", "NVTE_*", "OMP_*",
    "ONEDNN_*", "OPENBLAS_*", "PYTHON*", "PYTORCH_*", "RCCL_*", "ROCBLAS_*", "ROCM_*", "TBB_*", "TCMALLOC_*", "TF_*",
    "TOKENIZERS_*", "TORCH*", "TRITON_*", "UCX_*", "UPGATE_*", "VECLIB_*", "VLLM_*", "XFORMERS_*", "XLA_*",
};
// clang-format on

// Parts of a variable's name that make its value a secret.
static const char *const secret_words[] = {
        "TOKEN",
        "SECRET",
        "PASSWORD",
        "PASSWD",
        "PASSPHRASE",
        "CREDENTIAL",
        "API_KEY",
        "APIKEY",
        "ACCESS_KEY",
        "PRIVATE",
        "AUTH",
        "COOKIE",
};

// Beginnings of well-known tokens: such a value is a secret whatever its name says.
static const char *const secret_beginnings[] = {
        "ghp_",
        "gho_",
        "ghs_",
        "github_pat_",
        "glpat-",
        "hf_",
        "sk-",
        "AKIA",
        "ASIA",
        "xoxb-",
        "xoxp-",
        "eyJ",
        "Bearer ",
        "Basic ",
        "-----BEGIN",
};

// Names that hold such a part as a piece of another word.
static const char *const harmless_beginnings[] = {"TOKENIZERS_"};

static bool name_is_listed(const char *name)
{
    for (size_t i = 0; i < sizeof(environment_names) / sizeof(environment_names[0]); i++)
        if (!fnmatch(environment_names[i], name, 0))
            return true;
    return false;
}

// "--api-key=abc" and "password: abc" inside a value; "/home/author/lib" is none.
static bool assigns(const char *value, const char *word)
{
    for (const char *at = value; (at = strcasestr(at, word)); at++) {
        const char *end = at + strlen(word);
        while (isalnum((unsigned char)*end) || *end == '_' || *end == '-')
            end++;
        if ((*end == '=' || *end == ':') && end[1] && end[1] != '/')
            return true;
    }
    return false;
}

static bool is_secret(const char *name, const char *value)
{
    for (size_t i = 0; i < sizeof(harmless_beginnings) / sizeof(harmless_beginnings[0]); i++)
        if (!strncmp(name, harmless_beginnings[i], strlen(harmless_beginnings[i])))
            name += strlen(harmless_beginnings[i]);
    for (size_t i = 0; i < sizeof(secret_words) / sizeof(secret_words[0]); i++)
        if (strcasestr(name, secret_words[i]) || assigns(value, secret_words[i]))
            return true;
    for (size_t i = 0; i < sizeof(secret_beginnings) / sizeof(secret_beginnings[0]); i++)
        if (!strncmp(value, secret_beginnings[i], strlen(secret_beginnings[i])))
            return true;
    return false;
}

// "https://user:password@host" -> "https://[redacted]@host", wherever it stands in the value.
static char *hide_user_info(const char *value)
{
    struct strbuf out = {0};
    const char *rest = value, *mark;
    while ((mark = strstr(rest, "://"))) {
        const char *begin = mark + 3;
        size_t authority = strcspn(begin, "/?# \t\n,;");
        const char *at = memrchr(begin, '@', authority);
        strbuf_add_bytes(&out, rest, (size_t)(begin - rest));
        if (at)
            strbuf_add(&out, REDACTED);
        rest = at ? at : begin;
    }
    strbuf_add(&out, "%s", rest);
    return strbuf_take(&out);
}

char *fingerprint_environment_value(const char *name, const char *value)
{
    if (!name_is_listed(name))
        return NULL;
    if (*value && is_secret(name, value))
        return xstrdup(REDACTED);
    char *shown = hide_user_info(value);
    if (strlen(shown) > VALUE_CHARACTERS_MAX)
        strcpy(shown + VALUE_CHARACTERS_MAX - 4, "...");
    return shown;
}

json_t *environment_collect(const char *block, size_t length, size_t *ret_other_count)
{
    json_t *object = json_object();
    const char *end = block + length;
    *ret_other_count = 0;
    for (const char *entry = block; entry < end;) {
        size_t entry_length = strnlen(entry, (size_t)(end - entry));
        const char *equals = memchr(entry, '=', entry_length);
        if (equals) {
            char *name = xasprintf("%.*s", (int)(equals - entry), entry);
            char *value = xasprintf(
                    "%.*s", (int)(entry_length - (size_t)(equals - entry) - 1), equals + 1);
            char *shown = fingerprint_environment_value(name, value);
            if (shown)
                json_object_set_new(object, name, json_text_take(shown));
            else
                ++*ret_other_count;
            free(name);
            free(value);
        }
        entry += entry_length + 1;
    }
    return object;
}
