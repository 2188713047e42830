// SPDX-License-Identifier: Apache-2.0
// The ELF reader against files that lie. Damage is made from the fixture library by a fixed random
// sequence, so a failure comes again; the sanitizers are the judge.
#include "tests/unit/runner.h"
#include "tests/unit/symbols_world.h"

#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/strings.h"
#include "tracer/symbols/debug_file.h"
#include "tracer/symbols/eh_file.h"
#include "tracer/symbols/eh_record.h"

static const struct debug_search nowhere = {.path = "/lib/x.so", .debug_path = "/nowhere"};

struct bytes {
    unsigned char *at;
    size_t len;
};

static struct bytes whole_file(void)
{
    struct bytes bytes = {0};
    bytes.at = (unsigned char *)string_read_file(SYMBOLS_WHOLE, 64 << 20, &bytes.len);
    CHECK(bytes.at);
    return bytes;
}

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static void use_functions(int fd, size_t len)
{
    struct eh_file file;
    uint64_t begin, end;
    if (!eh_file_open(fd, &file))
        for (uint64_t address = 0; address < len; address += 1021)
            if (eh_file_function(&file, address, &begin, &end))
                CHECK(begin <= address && address < end);
    eh_file_close(&file);
}

// Everything that the room does with a file. Returns the number of symbols.
static size_t use_file(const unsigned char *bytes, size_t len)
{
    int fd = memfd_create("damaged", MFD_CLOEXEC);
    struct elf_image image = {0};
    struct elf_table table = {0};
    size_t count = 0;
    CHECK(fd >= 0 && write(fd, bytes, len) == (ssize_t)len);
    if (!elf_image_read(fd, &image)) {
        char name[ELF_NAME_MAX];
        uint64_t offset, address;
        count = debug_table_load(&table, &image, fd, &nowhere, 100000);
        CHECK(count <= 100000);
        for (uint64_t at = 0; at < len; at += 61)
            if (elf_image_address(&image, at, &address))
                elf_table_find(&table, address, name, sizeof(name), &offset, NULL);
        elf_table_find(&table, 0, name, sizeof(name), &offset, NULL);
        elf_table_find(&table, UINT64_MAX, name, sizeof(name), &offset, NULL);
        elf_table_free(&table);
        use_functions(fd, len);
    }
    close(fd);
    return count;
}

TEST(whole_file_is_read)
{
    struct bytes file = whole_file();
    CHECK(use_file(file.at, file.len) >= 5);
    free(file.at);
}

TEST(every_truncation_is_survived)
{
    struct bytes file = whole_file();
    size_t whole = use_file(file.at, file.len);
    for (size_t len = 0; len < file.len; len += 97)
        CHECK(use_file(file.at, len) <= whole);
    free(file.at);
}

TEST(random_damage_is_survived)
{
    struct bytes file = whole_file();
    unsigned char *copy = xcalloc(1, file.len);
    uint32_t state = 20240717;
    Elf64_Ehdr header;
    memcpy(&header, file.at, sizeof(header));
    for (int round = 0; round < 1500; round++) {
        memcpy(copy, file.at, file.len);
        for (int i = 0; i < 12; i++) {
            // Headers are where lies matter: half of the damage goes there.
            size_t at = next_random(&state) % file.len;
            if (i % 4 == 0)
                at = next_random(&state) % 1024;
            if (i % 4 == 1 && header.e_shoff < file.len)
                at = header.e_shoff + next_random(&state) % (file.len - header.e_shoff);
            static const unsigned char evil[] = {0, 1, 0x7f, 0x80, 0xff};
            copy[at] = i % 2 ? evil[next_random(&state) % sizeof(evil)]
                             : (unsigned char)next_random(&state);
        }
        CHECK(use_file(copy, file.len) <= 100000);
    }
    free(copy);
    free(file.at);
}

// Each 8-byte word of a section header in turn: huge, nearly overflowing, and pointing at itself.
TEST(lying_section_headers_are_survived)
{
    static const uint64_t lies[] = {0, 1, 0x7fffffffffffffff, 0x8000000000000000,
            0xffffffffffffffff, 0xfffffffffffff000, 0x100000000};
    struct bytes file = whole_file();
    unsigned char *copy = xcalloc(1, file.len);
    Elf64_Ehdr header;
    memcpy(&header, file.at, sizeof(header));
    size_t words = (size_t)header.e_shnum * sizeof(Elf64_Shdr) / 8;
    for (size_t i = 0; i < words; i++)
        for (size_t lie = 0; lie < sizeof(lies) / sizeof(*lies); lie++) {
            memcpy(copy, file.at, file.len);
            memcpy(copy + header.e_shoff + i * 8, &lies[lie], 8);
            CHECK(use_file(copy, file.len) <= 100000);
        }
    free(copy);
    free(file.at);
}

TEST(huge_counts_cost_nothing)
{
    struct bytes file = whole_file();
    Elf64_Ehdr *header = (Elf64_Ehdr *)file.at;
    header->e_shnum = 0; // then the count is in the first section header
    uint64_t count = UINT64_MAX;
    memcpy(file.at + header->e_shoff + offsetof(Elf64_Shdr, sh_size), &count, sizeof(count));
    CHECK(use_file(file.at, file.len) <= 100000);
    header->e_phnum = UINT16_MAX;
    CHECK(use_file(file.at, file.len) <= 100000);
    header->e_shoff = UINT64_MAX - 8;
    header->e_phoff = UINT64_MAX - 8;
    CHECK_INT(use_file(file.at, file.len), 0);
    free(file.at);
}

TEST(sparse_giant_is_read_in_bounds)
{
    // A symbol table of 1 TiB that holds nothing but zeros: it is scanned up to a maximum.
    struct bytes file = whole_file();
    Elf64_Ehdr header;
    const char *path = world_path("giant.so");
    memcpy(&header, file.at, sizeof(header));
    for (int i = 0; i < header.e_shnum; i++) {
        Elf64_Shdr section;
        unsigned char *at = file.at + header.e_shoff + (size_t)i * sizeof(section);
        memcpy(&section, at, sizeof(section));
        if (section.sh_type != SHT_SYMTAB && section.sh_type != SHT_DYNSYM)
            continue;
        section.sh_offset = 1 << 20;
        section.sh_size = 1ull << 40;
        memcpy(at, &section, sizeof(section));
    }
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && write(fd, file.at, file.len) == (ssize_t)file.len);
    if (ftruncate(fd, (off_t)1 << 41))
        runner_skip("this file system has no sparse files of 2 TiB");
    struct elf_image image = {0};
    struct elf_table table = {0};
    CHECK_INT(elf_image_read(fd, &image), 0);
    CHECK_INT(debug_table_load(&table, &image, fd, &nowhere, 1000), 0);
    elf_table_free(&table);
    close(fd);
    free(file.at);
}

TEST(table_keeps_its_maximum)
{
    struct elf_image image = {0};
    struct elf_table table = {0};
    int fd = open(SYMBOLS_WHOLE, O_RDONLY | O_CLOEXEC);
    CHECK_INT(elf_image_read(fd, &image), 0);
    CHECK_STR(image.build_id, SYMBOLS_BUILD_ID);
    CHECK_INT(debug_table_load(&table, &image, fd, &nowhere, 3), 3);
    CHECK(table.dropped > 0);
    elf_table_free(&table);
    close(fd);
}

static void note_room(void *context, uint64_t bytes)
{
    uint64_t *asked = context;
    *asked = *asked > bytes ? *asked : bytes;
}

TEST(table_asks_for_room_before_it_takes_it)
{
    struct elf_image image = {0};
    uint64_t asked = 0;
    struct elf_table table = {.make_room = note_room, .context = &asked};
    int fd = open(SYMBOLS_WHOLE, O_RDONLY | O_CLOEXEC);
    CHECK_INT(elf_image_read(fd, &image), 0);
    CHECK(debug_table_load(&table, &image, fd, &nowhere, 1000) > 3);
    CHECK_INT(asked, table.count * sizeof *table.symbols);
    elf_table_free(&table);
    close(fd);
}

TEST(not_an_elf_file)
{
    struct elf_image image;
    int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    CHECK_INT(elf_image_read(fd, &image), -8); // ENOEXEC
    close(fd);
    CHECK_INT(use_file((const unsigned char *)"\177ELF", 4), 0);
    CHECK_INT(use_file((const unsigned char *)"", 0), 0);
    struct bytes file = whole_file();
    file.at[EI_CLASS] = ELFCLASS32;
    CHECK_INT(use_file(file.at, file.len), 0);
    file.at[EI_CLASS] = ELFCLASS64;
    file.at[EI_DATA] ^= 3; // the other byte order
    CHECK_INT(use_file(file.at, file.len), 0);
    free(file.at);
}

// Without names, from the same file stripped: where functions begin and end.
TEST(functions_begin_and_end_by_unwind_information)
{
    struct eh_file file;
    struct elf_image image = {0};
    struct elf_table table = {0};
    int fd = open(SYMBOLS_STRIPPED, O_RDONLY | O_CLOEXEC),
        whole = open(SYMBOLS_WHOLE, O_RDONLY | O_CLOEXEC);
    CHECK_INT(eh_file_open(fd, &file), 0);
    CHECK_INT(elf_image_read(whole, &image), 0);
    CHECK(debug_table_load(&table, &image, whole, &nowhere, 1000) > 3);
    for (int i = 0; i < FIXTURE_COUNT; i++) {
        uint64_t address = world_library_address(SYMBOLS_STRIPPED, i), begin = 0, end = 0,
                 offset = 0;
        char name[ELF_NAME_MAX];
        CHECK(eh_file_function(&file, address, &begin, &end));
        CHECK_INT(begin, address);
        // The end is that of the symbol, neither less nor more.
        CHECK(elf_table_find(&table, end - 1, name, sizeof name, &offset, NULL) > 0);
        CHECK_INT(offset, end - 1 - begin);
        CHECK(!elf_table_find(&table, end, name, sizeof name, &offset, NULL) ||
                offset != end - begin);
        CHECK(eh_file_function(&file, end - 1, &begin, &end) && begin == address);
        CHECK(!eh_file_function(&file, end, &begin, &end) || begin > address);
    }
    uint64_t begin, end;
    CHECK(!eh_file_function(&file, 0, &begin, &end)); // headers are no function
    CHECK(!eh_file_function(&file, UINT64_MAX, &begin, &end));
    CHECK(!file.blocks); // a megabyte less
    elf_table_free(&table);
    eh_file_close(&file);
    close(whole);
    close(fd);
}

// A CIE as compilers for arm64 write it (code by 4, data by -8, x30, PC-relative addresses of 4
// bytes), behind its length.
static bool cie_is_read(const char *letters, struct eh_cie *ret)
{
    // last: CFA = sp + 0
    static const uint8_t head[] = {0, 0, 0, 0, 1}, rest[] = {4, 0x78, 30, 1, 0x1b, 0x0c, 31, 0};
    uint8_t record[32];
    size_t size = sizeof head, length = strlen(letters) + 1;
    memcpy(record, head, sizeof head);
    memcpy(record + size, letters, length);
    memcpy(record + size + length, rest, sizeof rest);
    size += length + sizeof rest;
    struct eh_bytes bytes = {record, record + size, false};
    return eh_cie_read(&bytes, ret) && bytes.end - bytes.at == 3;
}

// Code built with -mbranch-protection=pac-ret+b-key or with tagged stacks.
TEST(functions_with_signed_return_addresses_are_found)
{
    static const char *const known[] = {"zR", "zRB", "zRBG", "zRSB", "zBR"};
    struct eh_cie cie;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        CHECK(cie_is_read(known[i], &cie));
        CHECK(cie.has_augmentation && cie.pointer == 0x1b && cie.return_register == 30 &&
                cie.code_unit == 4 && cie.data_unit == -8);
        CHECK_INT(cie.signal, strchr(known[i], 'S') != NULL);
    }
    CHECK(!cie_is_read("zRX", &cie)); // of others nobody knows what belongs to them
    CHECK(!cie_is_read("RB", &cie));
    // Its function: 64 bytes from 0x10000 on, described at 0x20000.
    static const uint8_t fde[] = {0x24, 0, 0, 0, 0xf8, 0xff, 0xfe, 0xff, 64, 0, 0, 0, 0};
    struct eh_bytes bytes = {fde, fde + sizeof fde, false};
    uint64_t begin = 0, end = 0;
    CHECK(cie_is_read("zRB", &cie));
    CHECK_INT(eh_fde_cie(&bytes, 0x20000), 0x20004 - 0x24);
    CHECK(eh_fde_read(&bytes, 0x20000, &cie, &begin, &end));
    CHECK(begin == 0x10000 && end == 0x10040);
}
