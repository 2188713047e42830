// SPDX-License-Identifier: Apache-2.0
// The kernel's text symbols from kallsyms, read once: 12 bytes a symbol and its name.
#ifndef UPGATE_TRACER_SYMBOLS_KERNEL_H
#define UPGATE_TRACER_SYMBOLS_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kernel_symbols {
    struct kernel_symbol *all; // sorted by address
    uint32_t count;
    char *names; // per name: two bytes of module index, text, NUL
    size_t names_bytes;
    char (*modules)[64]; // "kernel", then "[nvidia]" and so on
    uint32_t module_count;
    uint64_t dropped; // beyond the maximum
    bool loaded;
    char why[512]; // why nothing is there; "" if it is
};

void kernel_symbols_load(struct kernel_symbols *kernel, const char *path);
// The function around ip; NULL: none. Strings belong to the table.
const char *kernel_symbols_find(const struct kernel_symbols *kernel, uint64_t ip,
        const char **ret_module, uint64_t *ret_offset);
uint64_t kernel_symbols_bytes(const struct kernel_symbols *kernel);
void kernel_symbols_free(struct kernel_symbols *kernel);

#endif
