// SPDX-License-Identifier: Apache-2.0
// The headers of our own program against what the C library's loader and the linker say, and of
// files made up.
#include "common/elf.h"

#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/unit/runner.h"

// A file that has nothing but its header and section headers, zeroed but for the first: `count` are
// said to follow.
static int make(uint32_t count, uint32_t written)
{
    bool fits = count < SHN_LORESERVE;
    Elf64_Ehdr header = {.e_shoff = sizeof header,
            .e_shentsize = sizeof(Elf64_Shdr),
            .e_shnum = fits ? (uint16_t)count : 0};
    Elf64_Shdr first = {.sh_size = fits ? 0 : count};
    int fd = memfd_create("elf", MFD_CLOEXEC);
    memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? ELFDATA2LSB : ELFDATA2MSB;
    CHECK_INT(write(fd, &header, sizeof header), sizeof header);
    CHECK_INT(write(fd, &first, sizeof first), sizeof first);
    CHECK_INT(ftruncate(fd, (off_t)(sizeof header + written * sizeof first)), 0);
    return fd;
}

static int count_segments(struct dl_phdr_info *info, size_t size, void *arg)
{
    (void)size;
    *(uint32_t *)arg = info->dlpi_phnum;
    return 1; // the first is the program
}

TEST(segments_are_those_of_the_loader)
{
    struct elf_file file;
    Elf64_Phdr segment;
    uint32_t wanted = 0, count = 0;
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    dl_iterate_phdr(count_segments, &wanted);
    CHECK_INT(elf_file_open(fd, &file), 0);
    CHECK_INT(elf_segment_count(&file), wanted);
    while (!elf_segment(&file, count, &segment))
        count++;
    CHECK_INT(count, wanted);
    file.header.e_phentsize--;
    CHECK_INT(elf_segment(&file, 0, &segment), -ENOEXEC);
    close(fd);
}

TEST(sections_have_names_and_ranges)
{
    struct elf_file file;
    Elf64_Shdr section;
    uint32_t texts = 0, zeroes = 0;
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    CHECK_INT(elf_file_open(fd, &file), 0);
    CHECK_INT(elf_section(&file, 0, &section), -ENOEXEC); // not opened yet
    CHECK_INT(elf_sections_open(&file), 0);
    for (uint32_t i = 0; i < file.section_count; i++) {
        CHECK_INT(elf_section(&file, i, &section), 0);
        texts += elf_section_is(&file, &section, ".text") &&
                elf_section_range(&file, &section).bytes == section.sh_size;
        zeroes += elf_section_is(&file, &section, ".bss") &&
                elf_section_range(&file, &section).bytes == 0;
        CHECK(!elf_section_is(&file, &section, ".tex"));
    }
    CHECK_INT(texts, 1);
    CHECK_INT(zeroes, 1);
    CHECK_INT(elf_section(&file, file.section_count, &section), -ENOEXEC);
    section.sh_offset = file.bytes;
    section.sh_size = 1;
    section.sh_type = SHT_PROGBITS;
    section.sh_flags = 0;
    CHECK_INT(elf_section_range(&file, &section).bytes, 0);
    close(fd);
}

TEST(more_sections_than_sixteen_bits_and_fewer_than_said)
{
    struct elf_file file;
    Elf64_Shdr section;
    int fd = make(0, 0);
    CHECK_INT(elf_file_open(fd, &file), 0);
    CHECK_INT(elf_sections_open(&file), -ENOEXEC); // the first is not there
    CHECK_INT(file.section_count, 0);
    close(fd);
    fd = make(0xff10, 0xff10); // the count stands in the first one
    CHECK_INT(elf_file_open(fd, &file), 0);
    CHECK_INT(elf_sections_open(&file), 0);
    CHECK_INT(file.section_count, 0xff10);
    CHECK_INT(elf_section(&file, 0xff0f, &section), 0);
    close(fd);
    fd = make(200, 131); // cut off: the others can be asked for
    CHECK_INT(elf_file_open(fd, &file), 0);
    CHECK_INT(elf_sections_open(&file), -ENOEXEC);
    CHECK_INT(file.section_count, 131);
    CHECK_INT(elf_section(&file, 130, &section), 0);
    // its owner cuts it short meanwhile
    CHECK_INT(ftruncate(fd, sizeof(Elf64_Ehdr) + 64 * sizeof(Elf64_Shdr)), 0);
    CHECK_INT(elf_section(&file, 63, &section), 0);
    CHECK_INT(elf_section(&file, 64, &section), -ENOEXEC);
    close(fd);
}

TEST(what_is_none_is_said)
{
    struct elf_file file;
    char byte;
    int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC),
        folder = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK_INT(elf_file_open(fd, &file), -ENOEXEC);
    CHECK_INT(elf_file_open(folder, &file), -EIO);
    CHECK_INT(elf_read(fd, &byte, 1, UINT64_MAX), -ENOEXEC);
    close(folder);
    close(fd);
}
