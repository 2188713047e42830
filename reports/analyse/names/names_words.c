// SPDX-License-Identifier: Apache-2.0
// Words of names: which ones are of an architecture, a version or a generator's counter and say
// nothing about what a function does. The tables are what the two kernel worlds really print
// (cuBLAS, cuDNN, CUTLASS, NCCL, Triton, PyTorch, MKL, oneDNN, OpenBLAS, glibc). Pure functions.
#include "reports/analyse/names/names_words.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { NAMES_HASH_TAIL = 10 }; // "~" and eight digits and NUL

void names_put(struct names_out *out, const char *text, size_t len)
{
    size_t room = out->max > out->len ? out->max - out->len : 0,
           fits = out->cut ? 0
            : len < room   ? len
                           : room;
    memcpy(out->text + out->len, text, fits);
    out->len += fits;
    if (fits == len)
        return;
    out->cut = true;
    for (size_t i = fits; i < len; i++)
        out->lost = (out->lost ^ (unsigned char)text[i]) * 16777619u;
}

void names_end(struct names_out *out, bool hash)
{
    if (out->cut && hash && out->max > NAMES_HASH_TAIL) {
        out->len = out->len > out->max - NAMES_HASH_TAIL ? out->max - NAMES_HASH_TAIL : out->len;
        out->len += (size_t)snprintf(
                out->text + out->len, NAMES_HASH_TAIL, "~%08x", (unsigned)out->lost);
    }
    out->text[out->len] = '\0';
}

static bool names_is(const char *text, size_t len, const char *word)
{
    return strlen(word) == len && !memcmp(text, word, len);
}

bool names_ident(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '$' || (unsigned char)c >= 0x80;
}

static bool words_any(const char *text, size_t len, const char *const *list)
{
    for (; *list; list++)
        if (strlen(*list) == len && !strncasecmp(text, *list, len))
            return true;
    return false;
}

static size_t words_digits(const char *text, size_t len)
{
    size_t digits = 0;
    while (digits < len && isdigit((unsigned char)text[digits]))
        digits++;
    return digits;
}

static bool words_starts(const char *text, size_t len, const char *start)
{
    size_t size = strlen(start);
    return len >= size && !strncasecmp(text, start, size);
}

// sm90, sm90a, avx512bw, sse41: a prefix and a number.
static bool words_arch(const char *text, size_t len)
{
    static const char *const words[] = {"ampere", "volta", "turing", "hopper", "blackwell",
            "maxwell", "pascal", "kepler", "avx", "evex", "erms", "amx", "vnni", "movbe", "rtm",
            "unaligned", "skx", "hsw", "knl", "haswell", "skylakex", "prescott", "sandybridge",
            "nehalem", "cooperlake", "sapphirerapids", "cascadelake", "neon", "sve", "neoversen1",
            "neoversev1", NULL};
    static const char *const numbered[] = {
            "sm", "avx", "sse", "ssse", "zen", "gfx", "compute", NULL};
    if (words_any(text, len, words))
        return true;
    for (const char *const *start = numbered; *start; start++) {
        size_t size = strlen(*start);
        if (words_starts(text, len, *start) && words_digits(text + size, len - size))
            return true;
    }
    return false;
}

static bool words_hash(const char *text, size_t len)
{
    size_t digits = 0, letters = 0;
    for (size_t i = 0; i < len; i++) {
        if (!isxdigit((unsigned char)text[i]))
            return false;
        digits += !!isdigit((unsigned char)text[i]);
        letters += !isdigit((unsigned char)text[i]);
    }
    return len >= 8 && digits >= 2 && letters;
}

static bool words_version(const char *text, size_t len)
{
    size_t digits = words_digits(text, len);
    if (digits && digits + 1 == len && text[digits] == 'x')
        return true; // "kernel__5x_cublas"
    return len > 1 && text[0] == 'v' && words_digits(text + 1, len - 1) == len - 1;
}

// Names that a generator numbers: the number is the order of compilation.
static bool words_generated(const char *text, size_t len)
{
    static const char *const starts[] = {"triton_", "cudnn_generated", "mkl_", "jit_", "cpp_fused",
            "graph_", "nvfuser_", "kernel_cpp_", NULL};
    for (const char *const *start = starts; *start; start++)
        if (words_starts(text, len, *start))
            return true;
    return false;
}

struct words_state {
    bool any, arch, after_arch, generated;
};

static bool words_drop(const struct words_state *state, const char *text, size_t len,
        const char *last, size_t last_len)
{
    if (words_arch(text, len) || words_hash(text, len) || words_version(text, len))
        return true;
    if (state->after_arch && names_is(text, len, "core"))
        return true; // avx512_core
    bool number = words_digits(text, len) == len;
    if (number &&
            (names_is(last, last_len, "cutlass") || names_is(last, last_len, "sm") ||
                    names_is(last, last_len, "knob")))
        return true;
    if (!state->generated)
        return false;
    // "_3", "_0d1d2de", "_b0", "graph_0_"
    return (isdigit((unsigned char)*text) && !memchr(text, 'x', len)) ||
            (len == 2 && text[0] == 'b' && isdigit((unsigned char)text[1]));
}

static void words_put(struct names_out *out, const char *text, size_t len, bool generated)
{
    static const char kernel[] = "kernel"; // "kernel0" of cuDNN's generator
    size_t size = sizeof kernel - 1;
    if (generated && words_starts(text, len, kernel) &&
            words_digits(text + size, len - size) == len - size)
        len = size;
    names_put(out, text, len);
}

bool names_identifier(struct names_out *out, const char *text, size_t len)
{
    struct words_state state = {.generated = words_generated(text, len)};
    const char *last = "";
    size_t last_len = 0, lead = 0;
    while (lead < len && text[lead] == '_')
        lead++;
    // does a word go? then the underscores of its spelling go too (__memcpy_evex)
    for (size_t at = lead; at < len; at++)
        if ((at == lead || text[at - 1] == '_') && text[at] != '_') {
            const char *end = memchr(text + at, '_', len - at);
            state.arch |= words_arch(text + at, end ? (size_t)(end - text) - at : len - at);
        }
    if (lead && lead < len && !state.arch)
        names_put(out, "_", 1);
    for (size_t at = lead; at < len;) {
        const char *end = memchr(text + at, '_', len - at);
        size_t size = end ? (size_t)(end - text) - at : len - at;
        bool sm = size == 2 && words_starts(text + at, size, "sm") && end &&
                words_digits(end + 1, len - at - size - 1);
        bool drop = !size || sm || words_drop(&state, text + at, size, last, last_len);
        if (!drop) {
            if (state.any)
                names_put(out, "_", 1);
            words_put(out, text + at, size, state.generated);
            state.any = true;
        }
        if (size) {
            state.after_arch = words_arch(text + at, size);
            last = text + at;
            last_len = size;
        }
        at += size + 1;
    }
    if (state.any && text[len - 1] == '_' && !state.arch)
        names_put(out, "_", 1); // add_ is not add
    return state.any;
}

bool names_namespace_noise(const char *text, size_t len)
{
    static const char *const noise[] = {"at", "c10", "std", "native", "detail", "internal", "impl",
            "__cxx11", "__detail", "__gnu_cxx", "DEFAULT", "flash", "pytorch_flash",
            "FLASH_NAMESPACE", NULL};
    for (const char *const *word = noise; *word; word++)
        if (names_is(text, len, *word))
            return true;
    if (words_starts(text, len, "_GLOBAL__N_") || words_starts(text, len, "CPU_CAPABILITY"))
        return true;
    if ((words_starts(text, len, "THRUST_") || words_starts(text, len, "CUB_")) && len > 3 &&
            !memcmp(text + len - 3, "_NS", 3))
        return true; // inline namespaces of CCCL: version and architectures
    size_t digits = 0;
    while (digits < len && (text[digits] == '_' || isdigit((unsigned char)text[digits])))
        digits++;
    return digits == len; // __1, __4
}

static int words_order(const void *left, const void *right)
{
    return strcmp(left, right);
}

// "ncclDevKernel_AllReduce_Sum_f32_RING_LL(...)" was "ncclKernel_AllReduce_RING_LL_Sum_float(...)":
// the words in one order.
bool names_nccl(struct names_out *out, const char *name)
{
    enum { WORDS = 12, LENGTH = 32 };
    static const char *const types[][2] = {{"float", "f32"}, {"half", "f16"}, {"double", "f64"},
            {"bfloat16", "bf16"}, {"int8", "i8"}, {"uint8", "u8"}, {"int32", "i32"},
            {"uint32", "u32"}, {"int64", "i64"}, {"uint64", "u64"}};
    char words[WORDS][LENGTH];
    size_t count = 0, end = strcspn(name, "(< ");
    const char *kernel = memmem(name, end, "Kernel_", 7);
    if (!words_starts(name, end, "nccl") || !kernel)
        return false;
    for (const char *at = kernel + 7; at < name + end && count < WORDS;) {
        size_t size = strcspn(at, "_(< ");
        bool noise = !size || size >= LENGTH || names_is(at, size, "nv") || names_is(at, size, "t");
        if (!noise) {
            snprintf(words[count], LENGTH, "%.*s", (int)size, at);
            for (size_t i = 0; i < sizeof types / sizeof *types; i++)
                if (!strcmp(words[count], types[i][0]))
                    snprintf(words[count], LENGTH, "%s", types[i][1]);
            count++;
        }
        at += size + (at[size] == '_');
    }
    qsort(words, count, LENGTH, words_order);
    names_put(out, "nccl", 4);
    for (size_t i = 0; i < count; i++) {
        names_put(out, "_", 1);
        names_put(out, words[i], strlen(words[i]));
    }
    return true;
}

bool names_plumbing(const char *text, size_t len)
{
    static const char *const types[] = {"array", "Array", "TrivialOffsetCalculator",
            "OffsetCalculator", "LoadWithoutCast", "StoreWithoutCast", "LoadWithCast",
            "StoreWithCast", "allocator", "char_traits", "integral_constant", "typelist",
            "make_index_sequence", "index_sequence", "integer_sequence", "enable_if_t", "enable_if",
            "less", "equal_to", NULL};
    for (const char *const *type = types; *type; type++)
        if (names_is(text, len, *type))
            return true;
    return false;
}

const char *names_type(const char *text, size_t len)
{
    static const char *const pairs[][2] = {{"size_t", "unsignedlong"}, {"uint64_t", "unsignedlong"},
            {"int64_t", "long"}, {"uint32_t", "unsignedint"}, {"int32_t", "int"},
            {"uint8_t", "unsignedchar"}, {"int8_t", "signedchar"}, {"__half", "half"},
            {"half_t", "half"}, {"Half", "half"}, {"BFloat16", "bf16"}, {"__nv_bfloat16", "bf16"},
            {"nv_bfloat16", "bf16"}, {"bfloat16_t", "bf16"}, {"__bfloat16", "bf16"},
            {"basic_string", "string"}, {"Vec256", "Vectorized"}, {"vec256", "vec"},
            {"basic_string_view", "string_view"}, {"class", ""}, {"struct", ""}, {"enum", ""},
            {"const", ""}, {"volatile", ""}, {"__restrict__", ""}, {"noexcept", ""}, {"true", ""},
            {"false", ""}, {"void", ""}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (names_is(text, len, pairs[i][0]))
            return pairs[i][1];
    return NULL;
}
