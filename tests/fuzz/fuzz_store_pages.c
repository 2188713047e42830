// SPDX-License-Identifier: Apache-2.0
// Stores with damaged pages, through all that reads one. The input is a whole store, or patches of
// the template: which reader (255: all), then offset (3 bytes), length (1 byte, at most 32) and the
// bytes, again and again.
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/store_readers.h"

enum { PATCH_BYTES_MAX = 32 };

static void run_store(const void *data, size_t size, unsigned readers)
{
    const char *path = fuzz_path("pages.db");
    fuzz_write(path, data, size);
    store_readers_run(path, readers);
    fuzz_remove("pages.db");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t *template;
    static size_t template_size;
    if (!template) {
        store_readers_start();
        template = fuzz_template(&template_size);
    }
    if (size > 16 && memcmp(data, "SQLite format 3", 16) == 0) {
        run_store(data, size, STORE_READER_ALL);
        return 0;
    }
    struct fuzz_input input = {data, size};
    unsigned reader = (unsigned)fuzz_take(&input, 1);
    uint8_t *store = malloc(template_size);
    fuzz_require(store != NULL, "memory");
    memcpy(store, template, template_size);
    while (input.size) {
        size_t at = fuzz_take(&input, 3) % template_size,
               bytes = fuzz_take(&input, 1) % (PATCH_BYTES_MAX + 1);
        uint8_t patch[PATCH_BYTES_MAX];
        bytes = fuzz_take_bytes(&input, patch, bytes);
        memcpy(store + at, patch, bytes < template_size - at ? bytes : template_size - at);
    }
    run_store(store, template_size,
            reader == 0xff ? STORE_READER_ALL : 1u << reader % STORE_READER_COUNT);
    free(store);
    return 0;
}
