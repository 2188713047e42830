// SPDX-License-Identifier: Apache-2.0
// Generated kernels say what they do: "triton_per_fused_add_native_layer_norm_backward_view_6" was made of an addition and a layer
// norm's backward pass, which other libraries have kernels for: "layer_norm_grad_input_kernel", "CUDAFunctor_add". A hint, no more.
#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "reports/analyse/diff/names.h"

enum { OPERATOR_LENGTH_MIN = 3, OPERATOR_LENGTH_MAX = 31 };

// Words of generated names that are no work, or everybody's.
static const char *const operator_none[] = {"backward", "forward", "native", "view",     "transpose", "permute", "clone", "copy",
                                            "expand",   "select",  "slice",  "unsqueeze", "squeeze",   "default", "and",   "for"};

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
    while (words && *words) {
        char word[OPERATOR_LENGTH_MAX + 1];
        size_t len = strcspn(words, "_");
        if (len >= OPERATOR_LENGTH_MIN && len <= OPERATOR_LENGTH_MAX) {
            memcpy(word, words, len);
            word[len] = '\0';
            if (!operator_is_none(word) && strcasestr(other, word))
                return true;
        }
        words += len + (words[len] == '_');
    }
    return false;
}
