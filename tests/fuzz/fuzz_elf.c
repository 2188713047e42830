// SPDX-License-Identifier: Apache-2.0
// An executable or library of a target, and a debug file that somebody left for it: what `record`
// reads of both to name addresses, and what a fingerprint tells of it. The input is an ELF file, or
// 2 bytes of length, an ELF file of that length and its debug file.
#include <string.h>
#include <unistd.h>

#include "harness/fingerprint/elf_file.h"
#include "tests/fuzz/fuzz.h"
#include "tracer/pystack/image.h"
#include "tracer/symbols/debug_file.h"
#include "tracer/symbols/demangle.h"
#include "tracer/symbols/eh_file.h"

enum { SYMBOLS_MAX = 1 << 16, LOOKUPS_MAX = 256, FUNCTIONS_MAX = 16 };

static void look_up(const struct elf_table *table, uint64_t address)
{
    char name[ELF_NAME_MAX], readable[SYMBOL_NAME_MAX];
    uint64_t offset = 0;
    size_t len = elf_table_find(table, address, name, sizeof name, &offset, NULL);
    fuzz_require(len < sizeof name, "a name in its buffer");
    if (len)
        symbol_name_readable(name, len, readable);
}

static bool look_at(void *context, uint64_t address, const char *name)
{
    size_t *total = context;
    (void)address;
    *total += strlen(name); // within what was read
    return true;
}

static void find_functions(int fd, const struct elf_image *image)
{
    struct eh_file file;
    if (eh_file_open(fd, &file) == 0) {
        for (uint32_t i = 0; i < FUNCTIONS_MAX; i++) {
            const struct elf_segment *segment = &image->segments[i % image->segment_count];
            uint64_t begin, end, address = segment->address + segment->bytes / FUNCTIONS_MAX * i;
            if (eh_file_function(&file, address, &begin, &end))
                fuzz_require(begin <= address && address < end, "an address within its function");
        }
    }
    eh_file_close(&file);
}

static void read_symbols(int fd, int debug_fd)
{
    struct elf_image image;
    struct elf_table table = {0};
    struct elf_sections sections;
    if (elf_image_read(fd, &image))
        return;
    find_functions(fd, &image);
    const struct debug_search search = {.path = "/nowhere/file", .debug_path = "/nowhere/debug"};
    debug_table_load(&table, &image, fd, &search, SYMBOLS_MAX);
    elf_sections_read(debug_fd, &sections);
    elf_table_add(
            &table, &image, debug_fd, false, &sections.symtab, &sections.symtab_names, SYMBOLS_MAX);
    elf_table_sort(&table);
    for (uint32_t i = 0; i < table.count && i < LOOKUPS_MAX; i++)
        look_up(&table, table.base + table.symbols[i].address);
    size_t total = 0;
    elf_table_each(&table, look_at, &total);
    for (uint32_t i = 0; i < image.segment_count; i++) {
        uint64_t address = 0;
        elf_image_address(&image, image.segments[i].offset, &address);
        look_up(&table, address);
        look_up(&table, image.segments[i].address + image.segments[i].bytes - 1);
    }
    elf_table_free(&table);
}

static void read_facts(int fd)
{
    static const char *const prefixes[] = {NULL, "OpenBLAS ", "@GOMP_"};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        struct elf_facts facts = {0};
        struct error err = {0};
        fuzz_check(elf_facts_read(fd, prefixes[i], &facts, &err), &err);
        elf_facts_clear(&facts);
    }
}

static void read_image(int fd)
{
    struct image_symbol wanted[] = {{.name = "_PyRuntime"}, {.name = "Py_Version"}};
    struct error err = {0};
    uint64_t value = 0;
    char version[64];
    fuzz_check(image_symbols(fd, wanted, 2, &err), &err);
    image_section(fd, ".PyRuntime", &value);
    fuzz_check(image_bias(fd, 0x7f0000001000, 0x1000, &value, &err), &err);
    image_version(fd, 11, version, sizeof version);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    size_t len = size;
    if (size < 4 ||
            memcmp(data,
                    "\x7f"
                    "ELF",
                    4) != 0)
        len = fuzz_take(&input, 2);
    len = len < input.size ? len : input.size;
    int fd = fuzz_memfd(input.data, len), debug_fd = fuzz_memfd(input.data + len, input.size - len);
    read_symbols(fd, debug_fd);
    read_facts(fd);
    read_image(fd);
    close(fd);
    close(debug_fd);
    return 0;
}
