// SPDX-License-Identifier: Apache-2.0
// The function symbols of one ELF file as a sorted, packed table: 12 bytes a symbol. Names stay in
// the file and are read when asked for. A table draws from at most two files: stripped
// distributions keep half of the symbols in .dynsym and half in a separate or compressed one.
#ifndef UPGATE_TRACER_SYMBOLS_ELF_TABLE_H
#define UPGATE_TRACER_SYMBOLS_ELF_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tracer/symbols/elf_reader.h"

enum { ELF_SOURCES_MAX = 2, ELF_NAME_MAX = 4096, ELF_NAMES_MAX = 128 << 20 };

struct elf_symbol {
    uint32_t address; // from the lowest executable address
    uint32_t size;    // the top bit is the source
    uint32_t name;    // offset in the string table of the source
};

struct elf_source {
    int fd; // belongs to the table if owned
    bool owned;
    struct elf_range names;
};

struct elf_table { // = {0} is empty
    uint64_t base;
    struct elf_symbol *symbols;
    uint32_t count;
    uint32_t source_count;
    struct elf_source sources[ELF_SOURCES_MAX];
    uint64_t dropped;      // did not fit into the maximum
    uint64_t memory_bytes; // of sources that live in memory
    // told before so many bytes more are taken; NULL: nobody wants to know
    void (*make_room)(void *context, uint64_t bytes);
    void *context;
};

// Add the functions of one symbol section of the file fd: those inside the executable segments of
// image, which is the running file's even if fd is its debug file. At most count_max in the table.
// With `owned` the table closes fd, also on failure. Returns the number added; sort when all are
// in.
size_t elf_table_add(struct elf_table *table, const struct elf_image *image, int fd, bool owned,
        const struct elf_range *symbols, const struct elf_range *names, uint32_t count_max);
void elf_table_sort(struct elf_table *table);
// The name of the function around address, as it stands in the file (at most size - 1 bytes, size
// <= ELF_NAME_MAX), and how far into it the address lies. 0: none. Of aliases the one that reads
// best, always the same. *ret_sized (NULL ok): the file says how long it is. If not, it is a
// function by hand that may have ended before the address.
size_t elf_table_find(const struct elf_table *table, uint64_t address, char *name, size_t size,
        uint64_t *ret_offset, bool *ret_sized);
// Every function with its address and its name as it stands in the file, in no order, until `each`
// says false. The names of a source are read as a whole for that, up to ELF_NAMES_MAX bytes; of
// those beyond nothing is told.
void elf_table_each(const struct elf_table *table,
        bool (*each)(void *context, uint64_t address, const char *name), void *context);
void elf_table_free(struct elf_table *table);

#endif
