// SPDX-License-Identifier: Apache-2.0
// The few facts of an ELF file that naming needs.
#ifndef UPGATE_TRACER_SYMBOLS_ELF_READER_H
#define UPGATE_TRACER_SYMBOLS_ELF_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/elf.h"

enum {
    ELF_SEGMENTS_MAX = 8, // executable PT_LOAD; linkers make one, hugepage layouts two
    ELF_BUILD_ID_BYTES_MAX = 32,
    ELF_LINK_MAX = 256,
};

struct elf_segment {
    uint64_t offset, file_bytes; // in the file
    uint64_t address, bytes;     // virtual
};

struct elf_image {
    struct elf_segment segments[ELF_SEGMENTS_MAX];
    uint32_t segment_count;
    char build_id[2 * ELF_BUILD_ID_BYTES_MAX + 1]; // lower-case hex; "" if none
};

struct elf_sections {
    struct elf_range symtab, symtab_names, dynsym, dynsym_names;
    struct elf_range debug_data;   // .gnu_debugdata
    char debug_link[ELF_LINK_MAX]; // .gnu_debuglink; "" if none
};

// 0, -ENOEXEC, or -EAGAIN: its file system does not answer now.
int elf_image_read(int fd, struct elf_image *ret);
// A file without sections, or with damaged ones, has none: all ranges are empty.
void elf_sections_read(int fd, struct elf_sections *ret);
// Virtual address of a byte of the file, as the loader maps it. False: in no executable segment.
bool elf_image_address(const struct elf_image *image, uint64_t file_offset, uint64_t *ret);
// Is the address inside an executable segment?
bool elf_image_executable(const struct elf_image *image, uint64_t address);

#endif
