// SPDX-License-Identifier: Apache-2.0
// Loops over an ELF file are bounded by named maxima, ranges are checked against the size of the
// file.
#include "common/elf.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

#include "common/target/file.h"

enum {
    ELF_SEGMENTS_READ_MAX = 512,
    ELF_SECTIONS_MAX = 65536, // C++ objects with a section a function
    ELF_NAME_MAX = 64,        // of a section that anybody asks for
};

int elf_read(int fd, void *buf, size_t len, uint64_t offset)
{
    if (len > INT64_MAX || offset > INT64_MAX - len)
        return -ENOEXEC;
    for (size_t done = 0; done < len;) {
        ssize_t got = target_file_read(fd, (char *)buf + done, len - done, offset + done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got == 0 ? -ENOEXEC : errno == EAGAIN ? -EAGAIN : -EIO;
        done += (size_t)got;
    }
    return 0;
}

int elf_file_open(int fd, struct elf_file *ret)
{
    const unsigned char order = BYTE_ORDER == LITTLE_ENDIAN ? ELFDATA2LSB : ELFDATA2MSB;
    struct stat status;
    *ret = (struct elf_file){.fd = fd};
    int code = elf_read(fd, &ret->header, sizeof ret->header, 0);
    if (code)
        return code;
    if (memcmp(ret->header.e_ident, ELFMAG, SELFMAG) ||
            ret->header.e_ident[EI_CLASS] != ELFCLASS64 || ret->header.e_ident[EI_DATA] != order)
        return -ENOEXEC;
    if (target_file_status(fd, &status))
        return errno == EAGAIN ? -EAGAIN : -EIO;
    ret->bytes = status.st_size > 0 ? (uint64_t)status.st_size : 0;
    return 0;
}

uint32_t elf_segment_count(const struct elf_file *file)
{
    if (file->header.e_phentsize != sizeof(Elf64_Phdr))
        return 0;
    return file->header.e_phnum < ELF_SEGMENTS_READ_MAX ? file->header.e_phnum
                                                        : ELF_SEGMENTS_READ_MAX;
}

int elf_segment(const struct elf_file *file, uint32_t i, Elf64_Phdr *ret)
{
    uint64_t at = i * sizeof *ret;
    if (i >= elf_segment_count(file) || file->header.e_phoff > INT64_MAX - at)
        return -ENOEXEC;
    return elf_read(file->fd, ret, sizeof *ret, file->header.e_phoff + at);
}

int elf_sections_open(struct elf_file *file)
{
    const Elf64_Ehdr *header = &file->header;
    Elf64_Shdr first, names;
    file->section_count = 0;
    if (!header->e_shoff)
        return 0;
    if (header->e_shentsize != sizeof first || header->e_shoff > file->bytes)
        return -ENOEXEC;
    file->section_count = 1;
    int code = elf_section(file, 0, &first);
    if (code) {
        file->section_count = 0;
        return code;
    }
    // More than fit into 16 bits stand in the first section.
    uint64_t count = header->e_shnum ? header->e_shnum : first.sh_size,
             fit = (file->bytes - header->e_shoff) / sizeof first;
    uint64_t some = count < fit ? count : fit;
    file->section_count = some < ELF_SECTIONS_MAX ? (uint32_t)some : ELF_SECTIONS_MAX;
    file->chunk_count = 0; // it had one
    if (!elf_section(file, header->e_shstrndx == SHN_XINDEX ? first.sh_link : header->e_shstrndx,
                &names))
        file->names = elf_section_range(file, &names);
    return count > fit ? -ENOEXEC : 0;
}

int elf_section(struct elf_file *file, uint32_t i, Elf64_Shdr *ret)
{
    if (i >= file->section_count)
        return -ENOEXEC;
    if (i < file->chunk_first || i - file->chunk_first >= file->chunk_count) {
        uint32_t first = i - i % ELF_CHUNK_SECTIONS, left = file->section_count - first;
        uint32_t count = left < ELF_CHUNK_SECTIONS ? left : ELF_CHUNK_SECTIONS;
        file->chunk_count = 0;
        uint64_t at = file->header.e_shoff + first * sizeof *file->chunk;
        int code = elf_read(file->fd, file->chunk, count * sizeof *file->chunk, at);
        if (code)
            return code;
        file->chunk_first = first;
        file->chunk_count = count;
    }
    *ret = file->chunk[i - file->chunk_first];
    return 0;
}

struct elf_range elf_section_range(const struct elf_file *file, const Elf64_Shdr *section)
{
    if (section->sh_type == SHT_NOBITS || (section->sh_flags & SHF_COMPRESSED) ||
            section->sh_offset > file->bytes || section->sh_size > file->bytes - section->sh_offset)
        return (struct elf_range){0};
    return (struct elf_range){section->sh_offset, section->sh_size};
}

bool elf_section_is(const struct elf_file *file, const Elf64_Shdr *section, const char *name)
{
    char found[ELF_NAME_MAX];
    size_t len = strlen(name) + 1; // with its NUL
    return len <= sizeof found && section->sh_name < file->names.bytes &&
            file->names.bytes - section->sh_name >= len &&
            !elf_read(file->fd, found, len, file->names.offset + section->sh_name) &&
            !memcmp(found, name, len);
}
