// SPDX-License-Identifier: Apache-2.0
// Opened as a file, as everybody opens it, then put into memory.
#include "tests/fuzz/fuzz_store.h"

#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"

struct store *fuzz_store_open(void)
{
    struct store *store = NULL;
    struct error err = {0};
    size_t size = 0;
    uint8_t *bytes = fuzz_template(&size), *copy = sqlite3_malloc64(size);
    fuzz_require(copy != NULL, "memory");
    memcpy(copy, bytes, size);
    fuzz_write(fuzz_path("template.db"), bytes, size);
    free(bytes);
    fuzz_require(store_open(fuzz_path("template.db"), STORE_WRITE, &store, &err) == 0, err.text);
    fuzz_require(
            sqlite3_deserialize(store_db(store), "main", copy, (sqlite3_int64)size,
                    (sqlite3_int64)size,
                    SQLITE_DESERIALIZE_FREEONCLOSE | SQLITE_DESERIALIZE_RESIZEABLE) == SQLITE_OK,
            "a store in memory");
    fuzz_remove("template.db");
    return store;
}
