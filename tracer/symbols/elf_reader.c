// SPDX-License-Identifier: Apache-2.0
// What naming needs of an ELF file's headers; what does not fit is treated as absent.
#include "tracer/symbols/elf_reader.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    ELF_NOTES_BYTES_MAX = 16 << 10,
    ELF_NOTE_SEGMENTS_MAX = 16,
    ELF_PAGE = 4096,
};

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
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && !memcmp(notes + at, "GNU", 4) &&
                note.n_descsz > 0 && note.n_descsz <= ELF_BUILD_ID_BYTES_MAX) {
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
    if (notes && !elf_read(fd, notes, bytes, header->p_offset))
        elf_note_build_id(notes, bytes, image->build_id);
    free(notes);
}

int elf_image_read(int fd, struct elf_image *ret)
{
    struct elf_image image = {0};
    struct elf_file file;
    Elf64_Phdr header;
    int code = elf_file_open(fd, &file), notes = 0;
    if (code)
        return code == -EAGAIN ? code : -ENOEXEC;
    for (uint32_t i = 0; !(code = elf_segment(&file, i, &header)); i++) {
        if (header.p_type == PT_NOTE && !*image.build_id && notes++ < ELF_NOTE_SEGMENTS_MAX)
            elf_image_notes(fd, &header, &image);
        if (header.p_type == PT_LOAD && (header.p_flags & PF_X) && header.p_memsz &&
                header.p_vaddr <= UINT64_MAX - header.p_memsz &&
                header.p_offset <= INT64_MAX - ELF_PAGE && header.p_filesz <= INT64_MAX &&
                image.segment_count < ELF_SEGMENTS_MAX)
            image.segments[image.segment_count++] = (struct elf_segment){
                    header.p_offset, header.p_filesz, header.p_vaddr, header.p_memsz};
    }
    if (code == -EAGAIN || !image.segment_count)
        return code == -EAGAIN ? code : -ENOEXEC;
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

static void elf_section_symbols(struct elf_file *file, const Elf64_Shdr *section,
        struct elf_range *ret_symbols, struct elf_range *ret_names)
{
    Elf64_Shdr names;
    if (ret_symbols->bytes || section->sh_entsize != sizeof(Elf64_Sym) ||
            elf_section(file, section->sh_link, &names) || names.sh_type != SHT_STRTAB)
        return;
    *ret_names = elf_section_range(file, &names);
    if (ret_names->bytes)
        *ret_symbols = elf_section_range(file, section);
}

static void elf_section_named(
        const struct elf_file *file, const Elf64_Shdr *section, struct elf_sections *ret)
{
    struct elf_range range = elf_section_range(file, section);
    if (elf_section_is(file, section, ".gnu_debugdata"))
        ret->debug_data = range;
    if (range.bytes > 1 && elf_section_is(file, section, ".gnu_debuglink")) {
        size_t len = range.bytes < ELF_LINK_MAX ? range.bytes : ELF_LINK_MAX - 1;
        if (elf_read(file->fd, ret->debug_link, len, range.offset))
            *ret->debug_link = '\0';
        ret->debug_link[ELF_LINK_MAX - 1] = '\0';
    }
}

void elf_sections_read(int fd, struct elf_sections *ret)
{
    struct elf_file file;
    Elf64_Shdr section;
    *ret = (struct elf_sections){0};
    if (elf_file_open(fd, &file))
        return;
    elf_sections_open(&file); // of a file that is cut off those that are there
    for (uint32_t i = 0; !elf_section(&file, i, &section); i++) {
        if (section.sh_type == SHT_SYMTAB)
            elf_section_symbols(&file, &section, &ret->symtab, &ret->symtab_names);
        else if (section.sh_type == SHT_DYNSYM)
            elf_section_symbols(&file, &section, &ret->dynsym, &ret->dynsym_names);
        else if (section.sh_type == SHT_PROGBITS && !(section.sh_flags & SHF_ALLOC))
            elf_section_named(&file, &section, ret);
    }
}
