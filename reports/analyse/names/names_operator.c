// SPDX-License-Identifier: Apache-2.0
// Generated kernels say what they do: "triton_per_fused_add_native_layer_norm_backward_view_6" was
// made of an addition and a layer norm's backward pass, which other libraries have kernels for:
// "layer_norm_grad_input_kernel", "CUDAFunctor_add". A hint, no more. And templates that all
// operators share say it in their arguments: "vectorized_elementwise_kernel<4,
// ...GeluCUDAKernelImpl...>".
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "reports/analyse/names/names.h"

enum { OPERATOR_LENGTH_MIN = 3, OPERATOR_LENGTH_MAX = 31 };
// Compared for thousands of pairs, and names may have 64 KB: words of generated ones, bytes of the
// others.
enum { OPERATOR_WORDS_MAX = 64, OPERATOR_TEXT_MAX = 2048 };

// Words of generated names that are no work, or everybody's.
static const char *const operator_none[] = {"backward", "forward", "native", "view", "transpose",
        "permute", "clone", "copy", "expand", "select", "slice", "unsqueeze", "squeeze", "default",
        "and", "for"};

static const char *operator_words(const char *name)
{
    static const char mark[] = "_fused_";
    const char *at = strncmp(name, "triton_", 7) == 0 ? strstr(name, mark) : NULL;
    return at ? at + sizeof mark - 1 : NULL;
}

static bool operator_is_none(const char *word)
{
    for (size_t i = 0; i < sizeof operator_none / sizeof *operator_none; i++)
        if (strcmp(operator_none[i], word) == 0)
            return true;
    return isdigit((unsigned char)*word);
}

bool names_operator_shared(const char *a, const char *b)
{
    const char *words = operator_words(a), *other = b;
    if (!words) {
        words = operator_words(b);
        other = a;
    }
    char text[OPERATOR_TEXT_MAX];
    size_t size = words ? strnlen(other, sizeof text - 1) : 0;
    if (size)
        memcpy(text, other, size);
    text[size] = '\0';
    for (int left = OPERATOR_WORDS_MAX; words && *words && left > 0; left--) {
        char word[OPERATOR_LENGTH_MAX + 1];
        size_t len = strcspn(words, "_");
        if (len >= OPERATOR_LENGTH_MIN && len <= OPERATOR_LENGTH_MAX) {
            memcpy(word, words, len);
            word[len] = '\0';
            if (!operator_is_none(word) && strcasestr(text, word))
                return true;
        }
        words += len + (words[len] == '_');
    }
    return false;
}

struct operator_template {
    const char *name, *title;
};

static const struct operator_template operator_templates[] = {
        {"vectorized_elementwise_kernel", "elementwise"},
        {"unrolled_elementwise_kernel", "elementwise"},
        {"elementwise_kernel", "elementwise"},
        {"elementwise_kernel_with_index", "elementwise"},
        {"multi_tensor_apply_kernel", "multi_tensor"},
        {"reduce_kernel", "reduce"},
};

// Arguments that say how it is called, not what it does.
// clang-format off
static const char *const operator_plumbing[] = {
    "at",           "native",   "anonymous",      "namespace",   "gpu_kernel_impl", "gpu_kernel_impl_nocast", "lambda", "operator", "const",
    "unsigned",     "char",     "short",          "int",         "long",            "float",                  "double", "bool",     "c10",
    "ReduceOp",     "Half",     "func_wrapper_t", "BFloat16",    "BinaryFunctor",   "binary_internal",        "std",    "array",    "complex",
    "AUnaryFunctor", "BUnaryFunctor", "TensorListMetadata", "TensorListScalarListMetadata", "FusedOptimizerTensorListMetadata",
    "UnaryOpFunctor", "BinaryOpScalarFunctor", "BinaryOpListAlphaFunctor", "BinaryOpScalarListFunctor", "BinaryOpScalarTensorFunctor",
    "TernaryOpScalarFunctor", "TernaryOpListFunctor", "PointwiseOpScalarFunctor", "PointwiseOpScalarListFunctor", "PointwiseOpListFunctor",
};
// clang-format on
// What is left of a functor's name without these is the operator's.
static const char *const operator_ends[] = {"CUDAKernelImpl", "KernelImpl", "_kernel_cuda",
        "_kernel_impl", "Functor", "_functor", "_cuda", "_out"};
static const char operator_begin[] = "CUDAFunctor_";

static size_t operator_stem(const char **word, size_t len)
{
    size_t begin = sizeof operator_begin - 1;
    if (len > begin && strncmp(*word, operator_begin, begin) == 0) {
        *word += begin;
        len -= begin;
    }
    for (size_t i = 0; i < sizeof operator_ends / sizeof *operator_ends; i++) {
        size_t end = strlen(operator_ends[i]);
        if (len > end && strncmp(*word + len - end, operator_ends[i], end) == 0)
            len -= end;
    }
    return len;
}

static const char *operator_template(const char **name)
{
    static const char *const spaces[] = {"void ", "at::native::", "(anonymous namespace)::"};
    for (size_t i = 0; i < sizeof spaces / sizeof *spaces; i++)
        if (strncmp(*name, spaces[i], strlen(spaces[i])) == 0)
            *name += strlen(spaces[i]);
    size_t len = strcspn(*name, "<");
    for (size_t i = 0; (*name)[len] && i < sizeof operator_templates / sizeof *operator_templates;
            i++)
        if (strlen(operator_templates[i].name) == len &&
                strncmp(*name, operator_templates[i].name, len) == 0) {
            *name += len;
            return operator_templates[i].title;
        }
    return NULL;
}

bool names_operator_of(const char *name, char *buf, size_t buf_size)
{
    const char *title = operator_template(&name);
    for (const char *at = name; title && *at;) {
        size_t len = 0;
        bool plumbing = false;
        while (isalnum((unsigned char)at[len]) || at[len] == '_')
            len++;
        if (!len || isdigit((unsigned char)*at)) {
            at += len ? len : 1;
            continue;
        }
        for (size_t i = 0; i < sizeof operator_plumbing / sizeof *operator_plumbing; i++)
            plumbing |= strlen(operator_plumbing[i]) == len &&
                    strncmp(at, operator_plumbing[i], len) == 0;
        if (!plumbing) {
            len = operator_stem(&at, len);
            return snprintf(buf, buf_size, "%.*s %s", (int)len, at, title) > 0;
        }
        at += len;
    }
    return false;
}
