// SPDX-License-Identifier: Apache-2.0
// The sentences of what could have done it: what differs between the sides, and what ties it to a
// contribution. Pure.
#include <string.h>

#include "common/strings.h"
#include "reports/render/diff/diff_words.h"

enum { SUSPECTS_VALUE_MAX = 80 };

// Before what it is of.
static const char *const suspects_words[DIFF_SUSPECT_WHYS] = {
        [DIFF_SUSPECT_BELONGS] = "libc10 belongs to torch",
        [DIFF_SUSPECT_FUNCTION_OF] = "a function of ",
        [DIFF_SUSPECT_KERNEL_OF] = "a kernel of ",
        [DIFF_SUSPECT_SETTING_OF] = "a setting of ",
        [DIFF_SUSPECT_PRODUCT] = "a matrix product",
        [DIFF_SUSPECT_TRITON] = "made by Triton",
        [DIFF_SUSPECT_INTERPRETER] = "the interpreter",
        [DIFF_SUSPECT_ALLOCATOR] = "the allocator",
        [DIFF_SUSPECT_PRODUCT_PRECISION] = "the precision of matrix products",
        [DIFF_SUSPECT_CONVOLUTION_PRECISION] = "the precision of convolutions",
        [DIFF_SUSPECT_PRODUCTS_OF] = "matrix products come from ",
        [DIFF_SUSPECT_CONVOLUTIONS_OF] = "convolutions come from ",
        [DIFF_SUSPECT_ATTENTION] = "the backend of attention",
        [DIFF_SUSPECT_ATTENTION_SOFTMAX] =
                "attention composed of its parts has a softmax of its own",
        [DIFF_SUSPECT_ATTENTION_PRODUCTS] =
                "attention composed of its parts has products of its own",
        [DIFF_SUSPECT_COMPILED] = "compiled code has other kernels",
        [DIFF_SUSPECT_GPU_CLOCK] = "the GPU's clock or power",
        [DIFF_SUSPECT_VECTOR_UNITS] = "which vector units are used",
        [DIFF_SUSPECT_PRODUCT_THREADS] = "threads of matrix products",
        [DIFF_SUSPECT_THREADS] = "how many threads work",
        [DIFF_SUSPECT_CPUS] = "which CPUs may be used",
        [DIFF_SUSPECT_ALLOCATOR_SETTINGS] = "the allocator or its settings",
        [DIFF_SUSPECT_HUGE_PAGES] = "huge pages",
        [DIFF_SUSPECT_NUMA] = "NUMA balancing",
        [DIFF_SUSPECT_COMPILE_SETTINGS] = "settings of torch.compile",
        [DIFF_SUSPECT_LAUNCHES] = "the interpreter launches the work",
        [DIFF_SUSPECT_OPERATORS] = "every operator goes through torch",
        [DIFF_SUSPECT_BLOCKING] = "launches wait for the device",
        [DIFF_SUSPECT_COLLECTOR] = "the garbage collector's settings",
        [DIFF_SUSPECT_CGROUP] = "limits of the control group",
        [DIFF_SUSPECT_LOADER] = "the loader is torch's",
        [DIFF_SUSPECT_LAZY_LOADING] = "lazy loading of modules",
        [DIFF_SUSPECT_BESIDE] = "the collective beside it",
};

// A long value is cut between characters.
static void suspects_value(struct strbuf *text, const char *value)
{
    size_t len = value ? strlen(value) : 0;
    if (len <= SUSPECTS_VALUE_MAX) {
        strbuf_add(text, "%s", value ? value : "none");
        return;
    }
    len = SUSPECTS_VALUE_MAX - 3;
    while (len && ((unsigned char)value[len] & 0xc0) == 0x80) // within a character
        len--;
    strbuf_add(text, "%.*s...", (int)len, value);
}

char *diff_text_suspect(const struct diff_suspect *suspect)
{
    struct strbuf text = {0};
    strbuf_add(&text, "%s ", suspect->what);
    suspects_value(&text, suspect->value[0]);
    strbuf_add(&text, " -> ");
    suspects_value(&text, suspect->value[1]);
    const char *of = suspect->of ? suspect->of : "";
    if (suspect->why == DIFF_SUSPECT_HOLDS)
        strbuf_add(&text, ": %s holds it", of);
    else if (suspect->why > DIFF_SUSPECT_KIND && suspect->why < DIFF_SUSPECT_WHYS)
        strbuf_add(&text, ": %s%s", suspects_words[suspect->why], of);
    return strbuf_take(&text);
}
