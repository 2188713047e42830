// SPDX-License-Identifier: Apache-2.0
// The headers of an ELF file, 64-bit and of this machine's byte order, read with plain reads: a
// file that shrinks meanwhile gives a short read, never SIGBUS. Every size and count of the file is
// doubted: it may belong to a traced process. Not libelf: it holds whole tables, and touched 95 MB
// for the symbols of one libtorch_cpu.so (434 MB, 605,884 symbols: elf_getdata of .symtab, .dynsym
// and their strings, getrusage), read or mapped; a mapped file that its owner cuts short ends the
// reader. Functions return 0, -ENOEXEC: it is no such file, or ends before; -EIO: it cannot be
// read; -EAGAIN: its file system does not answer now.
#ifndef UPGATE_COMMON_ELF_H
#define UPGATE_COMMON_ELF_H

#include <elf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ELF_CHUNK_SECTIONS = 64 }; // 4 KiB a read

struct elf_range {
    uint64_t offset, bytes; // bytes = 0: absent
};

struct elf_file {
    int fd; // the caller's
    uint64_t bytes;
    Elf64_Ehdr header;
    uint32_t section_count; // after elf_sections_open: those that the file really has room for
    struct elf_range names; // of sections
    Elf64_Shdr chunk[ELF_CHUNK_SECTIONS];
    uint32_t chunk_first, chunk_count;
};

// All len bytes at offset.
int elf_read(int fd, void *buf, size_t len, uint64_t offset);
int elf_file_open(int fd, struct elf_file *ret);
// How many program headers may be asked for.
uint32_t elf_segment_count(const struct elf_file *file);
int elf_segment(const struct elf_file *file, uint32_t i, Elf64_Phdr *ret);
// A file may live without sections: 0, and it has none. -ENOEXEC: some are cut off; the others can
// be asked for.
int elf_sections_open(struct elf_file *file);
int elf_section(struct elf_file *file, uint32_t i, Elf64_Shdr *ret);
// Where its bytes stand; absent also where they are not in the file, or compressed.
struct elf_range elf_section_range(const struct elf_file *file, const Elf64_Shdr *section);
bool elf_section_is(const struct elf_file *file, const Elf64_Shdr *section, const char *name);

#endif
