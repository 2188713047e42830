// SPDX-License-Identifier: Apache-2.0
// Program headers, notes and section headers through pread. Loops are bounded by named maxima,
// ranges are checked against the size of the file; what does not fit is treated as absent.
// Not libelf: it holds whole tables, and touched 95 MB for the symbols of one libtorch_cpu.so (434 MB, 605,884 symbols: elf_getdata
// of .symtab, .dynsym and their strings, getrusage), read or mapped; a mapped file that its owner cuts short ends the reader.
#include "tracer/symbols/elf_reader.h"

#include <elf.h>
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    ELF_PROGRAM_HEADERS_MAX = 512,
    ELF_SECTIONS_MAX = 65536, // C++ objects with a section a function
    ELF_SECTIONS_CHUNK = 64,  // 4 KiB a read
    ELF_NOTES_BYTES_MAX = 16 << 10,
    ELF_NOTE_SEGMENTS_MAX = 16,
    ELF_PAGE = 4096,
};

bool elf_read_at(int fd, void *buf, size_t len, uint64_t offset)
{
    if (offset > INT64_MAX - len)
        return false;
    for (size_t done = 0; done < len;) {
        ssize_t got = pread(fd, (char *)buf + done, len - done, (off_t)(offset + done));
        if (got <= 0) // also EINTR: reads of regular files are not interrupted half-way
            return false;
        done += (size_t)got;
    }
    return true;
}

static bool elf_header_read(int fd, Elf64_Ehdr *ret)
{
    const unsigned char order = BYTE_ORDER == LITTLE_ENDIAN ? ELFDATA2LSB : ELFDATA2MSB;
    return elf_read_at(fd, ret, sizeof(*ret), 0) && !memcmp(ret->e_ident, ELFMAG, SELFMAG) &&
           ret->e_ident[EI_CLASS] == ELFCLASS64 && ret->e_ident[EI_DATA] == order;
}

static bool elf_note_build_id(const char *notes, size_t bytes, char *ret)
{
    for (size_t at = 0; at + sizeof(Elf64_Nhdr) <= bytes;) {
        Elf64_Nhdr note;
        memcpy(&note, notes + at, sizeof(note));
        at += sizeof(note);
        size_t name = ((size_t)note.n_namesz + 3) & ~(size_t)3;
        size_t text = ((size_t)note.n_descsz + 3) & ~(size_t)3;
        if (name > bytes - at || text > bytes - at - name)
            return false;
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
            !memcmp(notes + at, "GNU", 4) && note.n_descsz > 0 &&
            note.n_descsz <= ELF_BUILD_ID_BYTES_MAX) {
            const unsigned char *id = (const unsigned char *)notes + at + name;
            for (size_t i = 0; i < note.n_descsz; i++)
                snprintf(ret + 2 * i, 3, "%02x", id[i]);
            return true;
        }
        at += name + text;
    }
    return false;
}

static void elf_image_notes(int fd, const Elf64_Phdr *header, struct elf_image *image)
{
    size_t bytes = header->p_filesz < ELF_NOTES_BYTES_MAX ? header->p_filesz : ELF_NOTES_BYTES_MAX;
    char *notes = malloc(bytes + 1);
    if (notes && elf_read_at(fd, notes, bytes, header->p_offset))
        elf_note_build_id(notes, bytes, image->build_id);
    free(notes);
}

int elf_image_read(int fd, struct elf_image *ret)
{
    struct elf_image image = {0};
    Elf64_Ehdr elf;
    if (!elf_header_read(fd, &elf) || elf.e_phentsize != sizeof(Elf64_Phdr))
        return -ENOEXEC;
    int notes = 0;
    for (unsigned i = 0; i < elf.e_phnum && i < ELF_PROGRAM_HEADERS_MAX; i++) {
        Elf64_Phdr header;
        if (elf.e_phoff > INT64_MAX - i * sizeof(header) ||
            !elf_read_at(fd, &header, sizeof(header), elf.e_phoff + i * sizeof(header)))
            break;
        if (header.p_type == PT_NOTE && !*image.build_id && notes++ < ELF_NOTE_SEGMENTS_MAX)
            elf_image_notes(fd, &header, &image);
        if (header.p_type == PT_LOAD && (header.p_flags & PF_X) && header.p_memsz &&
            header.p_vaddr <= UINT64_MAX - header.p_memsz &&
            header.p_offset <= INT64_MAX - ELF_PAGE && header.p_filesz <= INT64_MAX &&
            image.segment_count < ELF_SEGMENTS_MAX)
            image.segments[image.segment_count++] = (struct elf_segment){
                header.p_offset, header.p_filesz, header.p_vaddr, header.p_memsz};
    }
    if (!image.segment_count)
        return -ENOEXEC;
    *ret = image;
    return 0;
}

bool elf_image_address(const struct elf_image *image, uint64_t file_offset, uint64_t *ret)
{
    for (uint32_t i = 0; i < image->segment_count; i++) {
        const struct elf_segment *one = &image->segments[i];
        if (file_offset >= one->offset && file_offset - one->offset < one->file_bytes) {
            *ret = one->address + (file_offset - one->offset);
            return true;
        }
    }
    return false;
}

bool elf_image_executable(const struct elf_image *image, uint64_t address)
{
    for (uint32_t i = 0; i < image->segment_count; i++)
        if (address >= image->segments[i].address &&
            address - image->segments[i].address < image->segments[i].bytes)
            return true;
    return false;
}

static struct elf_range elf_range_of(const Elf64_Shdr *header, uint64_t file_bytes)
{
    if (header->sh_type == SHT_NOBITS || (header->sh_flags & SHF_COMPRESSED) ||
        header->sh_offset > file_bytes || header->sh_size > file_bytes - header->sh_offset)
        return (struct elf_range){0};
    return (struct elf_range){header->sh_offset, header->sh_size};
}

struct elf_section_walk {
    int fd;
    uint64_t file_bytes, headers_offset;
    uint32_t count;
    struct elf_range names;
};

static bool elf_section_get(const struct elf_section_walk *walk, uint32_t idx, Elf64_Shdr *ret)
{
    return idx < walk->count &&
           elf_read_at(walk->fd, ret, sizeof(*ret), walk->headers_offset + idx * sizeof(*ret));
}

static void elf_section_symbols(const struct elf_section_walk *walk, const Elf64_Shdr *header,
                                struct elf_range *ret_symbols, struct elf_range *ret_names)
{
    Elf64_Shdr names;
    if (ret_symbols->bytes || header->sh_entsize != sizeof(Elf64_Sym) ||
        !elf_section_get(walk, header->sh_link, &names) || names.sh_type != SHT_STRTAB)
        return;
    *ret_names = elf_range_of(&names, walk->file_bytes);
    if (ret_names->bytes)
        *ret_symbols = elf_range_of(header, walk->file_bytes);
}

static void elf_section_named(const struct elf_section_walk *walk, const Elf64_Shdr *header,
                              struct elf_sections *ret)
{
    char name[sizeof(".gnu_debuglink")] = "";
    if (header->sh_name >= walk->names.bytes ||
        walk->names.bytes - header->sh_name < sizeof(".gnu_debugdata") ||
        !elf_read_at(walk->fd, name, sizeof(name), walk->names.offset + header->sh_name))
        return;
    struct elf_range range = elf_range_of(header, walk->file_bytes);
    if (!memcmp(name, ".gnu_debugdata", sizeof(".gnu_debugdata")))
        ret->debug_data = range;
    if (!memcmp(name, ".gnu_debuglink", sizeof(".gnu_debuglink")) && range.bytes > 1) {
        size_t len = range.bytes < ELF_LINK_MAX ? range.bytes : ELF_LINK_MAX - 1;
        if (!elf_read_at(walk->fd, ret->debug_link, len, range.offset))
            *ret->debug_link = '\0';
        ret->debug_link[ELF_LINK_MAX - 1] = '\0';
    }
}

// False: the file has no usable section headers.
static bool elf_walk_start(int fd, struct elf_section_walk *walk)
{
    Elf64_Ehdr elf;
    Elf64_Shdr first, names;
    struct stat status;
    if (!elf_header_read(fd, &elf) || fstat(fd, &status) || status.st_size <= 0 || !elf.e_shoff ||
        elf.e_shentsize != sizeof(Elf64_Shdr) || elf.e_shoff > (uint64_t)status.st_size)
        return false;
    *walk = (struct elf_section_walk){.fd = fd,
                                      .file_bytes = (uint64_t)status.st_size,
                                      .headers_offset = elf.e_shoff,
                                      .count = 1};
    if (!elf_section_get(walk, 0, &first))
        return false;
    uint64_t count = elf.e_shnum ? elf.e_shnum : first.sh_size;
    uint64_t fit = (walk->file_bytes - elf.e_shoff) / sizeof(Elf64_Shdr);
    count = count < fit ? count : fit;
    walk->count = count < ELF_SECTIONS_MAX ? (uint32_t)count : ELF_SECTIONS_MAX;
    uint32_t names_idx = elf.e_shstrndx == SHN_XINDEX ? first.sh_link : elf.e_shstrndx;
    if (elf_section_get(walk, names_idx, &names))
        walk->names = elf_range_of(&names, walk->file_bytes);
    return true;
}

void elf_sections_read(int fd, struct elf_sections *ret)
{
    struct elf_section_walk walk;
    Elf64_Shdr chunk[ELF_SECTIONS_CHUNK];
    *ret = (struct elf_sections){0};
    if (!elf_walk_start(fd, &walk))
        return;
    for (uint32_t at = 0; at < walk.count; at += ELF_SECTIONS_CHUNK) {
        uint32_t n = walk.count - at < ELF_SECTIONS_CHUNK ? walk.count - at : ELF_SECTIONS_CHUNK;
        if (!elf_read_at(fd, chunk, n * sizeof(*chunk), walk.headers_offset + at * sizeof(*chunk)))
            return;
        for (uint32_t i = 0; i < n; i++) {
            if (chunk[i].sh_type == SHT_SYMTAB)
                elf_section_symbols(&walk, &chunk[i], &ret->symtab, &ret->symtab_names);
            else if (chunk[i].sh_type == SHT_DYNSYM)
                elf_section_symbols(&walk, &chunk[i], &ret->dynsym, &ret->dynsym_names);
            else if (chunk[i].sh_type == SHT_PROGBITS && !(chunk[i].sh_flags & SHF_ALLOC))
                elf_section_named(&walk, &chunk[i], ret);
        }
    }
}
