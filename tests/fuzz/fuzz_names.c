// SPDX-License-Identifier: Apache-2.0
// A name of a symbol table, as it is read and as it is shown.
#include <string.h>

#include "tests/fuzz/fuzz.h"
#include "tracer/symbols/demangle.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char readable[SYMBOL_NAME_MAX];
    size = strnlen((const char *)data, size); // names of string tables and of lines hold no NUL
    fuzz_require(symbol_name_plain((const char *)data, size) <= size,
            "a plain name is no longer than the name");
    size_t len = symbol_name_readable((const char *)data, size, readable);
    fuzz_require(
            len < SYMBOL_NAME_MAX && strlen(readable) == len, "a name that ends where it says");
    return 0;
}
