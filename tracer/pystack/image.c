// SPDX-License-Identifier: Apache-2.0
#include "tracer/pystack/image.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/elf.h"
#include "common/target/file.h"
#include "tracer/pystack/layout.h"
#include "tracer/pystack/machine.h"

#define NAMES_MAX (64ull << 20) // bytes of a string table; a debug build of CPython has 1 MiB
#define SYMBOLS_MAX (4u << 20)
#define FILE_MAX (256ull << 20) // of what is searched for the version

static int open_of_this_machine(int fd, struct elf_file *ret)
{
    int code = elf_file_open(fd, ret);
    return code ? code : ret->header.e_machine == MACHINE_ELF ? 0 : -ENOTSUP;
}

// A string table with a NUL behind it; NULL when it cannot be.
static char *read_names(int fd, const Elf64_Shdr *section, size_t *ret_len)
{
    if (section->sh_type != SHT_STRTAB || section->sh_size == 0 || section->sh_size > NAMES_MAX)
        return NULL;
    char *names = malloc(section->sh_size + 1);
    if (!names)
        return NULL;
    if (elf_read(fd, names, section->sh_size, section->sh_offset)) {
        free(names);
        return NULL;
    }
    names[section->sh_size] = '\0';
    *ret_len = section->sh_size;
    return names;
}

static void match_symbol(const Elf64_Sym *symbol, const char *names, size_t names_len,
        struct image_symbol *wanted, size_t count)
{
    if (symbol->st_shndx == SHN_UNDEF || symbol->st_name >= names_len || symbol->st_value == 0)
        return;
    const char *name = names + symbol->st_name;
    if (name[0] != '_' && name[0] != 'P') // nearly all others are out by one byte
        return;
    for (size_t i = 0; i < count; i++)
        if (wanted[i].value == 0 && !strcmp(name, wanted[i].name))
            wanted[i].value = symbol->st_value;
}

static int search_table(int fd, const Elf64_Shdr *table, const Elf64_Shdr *strings,
        struct image_symbol *wanted, size_t count)
{
    Elf64_Sym symbols[512];
    size_t names_len = 0, total = table->sh_size / sizeof(Elf64_Sym);
    if (table->sh_entsize != sizeof(Elf64_Sym) || total > SYMBOLS_MAX)
        return -ENOEXEC;
    char *names = read_names(fd, strings, &names_len);
    if (!names)
        return -ENOEXEC;
    int code = 0;
    for (size_t first = 0; first < total && code == 0; first += 512) {
        size_t n = total - first < 512 ? total - first : 512;
        code = elf_read(
                fd, symbols, n * sizeof(Elf64_Sym), table->sh_offset + first * sizeof(Elf64_Sym));
        for (size_t i = 0; i < n && code == 0; i++)
            match_symbol(&symbols[i], names, names_len, wanted, count);
    }
    free(names);
    return code;
}

static size_t symbols_found(const struct image_symbol *wanted, size_t count)
{
    size_t found = 0;
    for (size_t i = 0; i < count; i++)
        found += wanted[i].value != 0;
    return found;
}

// .symtab is read only where .dynsym has some of the symbols but not all, or is not there: a
// program that exports none of them is no Python that could import anything, and its .symtab may
// have 100 MiB.
int image_symbols(int fd, struct image_symbol *wanted, size_t count, struct error *err)
{
    static const uint32_t types[] = {SHT_DYNSYM, SHT_SYMTAB};
    struct elf_file file;
    Elf64_Shdr section, strings;
    size_t tables = 0;
    for (size_t i = 0; i < count; i++)
        wanted[i].value = 0;
    int code = open_of_this_machine(fd, &file);
    if (code == 0)
        code = elf_sections_open(&file);
    for (size_t t = 0; t < 2 && code == 0; t++) {
        size_t found = symbols_found(wanted, count);
        if (found == count || (tables > 0 && found == 0))
            break;
        for (uint32_t i = 0; i < file.section_count && code == 0; i++) {
            code = elf_section(&file, i, &section);
            if (code || section.sh_type != types[t] || section.sh_link >= file.section_count)
                continue;
            tables++;
            code = elf_section(&file, section.sh_link, &strings);
            if (code == 0)
                code = search_table(fd, &section, &strings, wanted, count);
        }
    }
    if (code < 0)
        return error_set(
                err, code, "failed to read the symbols of an ELF file: %s", strerror(-code));
    return 0;
}

int image_section(int fd, const char *name, uint64_t *ret)
{
    struct elf_file file;
    Elf64_Shdr section;
    int code = open_of_this_machine(fd, &file);
    if (code == 0)
        code = elf_sections_open(&file);
    for (uint32_t i = 0; code == 0 && i < file.section_count; i++) {
        code = elf_section(&file, i, &section);
        if (code == 0 && section.sh_addr != 0 && elf_section_is(&file, &section, name)) {
            *ret = section.sh_addr;
            return 0;
        }
    }
    return code ? code : -ENOENT;
}

int image_bias(int fd, uint64_t start, uint64_t offset, uint64_t *ret, struct error *err)
{
    struct elf_file file;
    Elf64_Phdr segment;
    int code = open_of_this_machine(fd, &file);
    // the kernel maps whole pages, of 4 to 64 KiB
    uint64_t in_page = (uint64_t)sysconf(_SC_PAGESIZE) - 1;
    for (uint32_t i = 0; code == 0 && i < elf_segment_count(&file); i++) {
        code = elf_segment(&file, i, &segment);
        if (code == 0 && segment.p_type == PT_LOAD && (segment.p_offset & ~in_page) == offset) {
            *ret = start - (segment.p_vaddr & ~in_page);
            return 0;
        }
    }
    if (code < 0)
        return error_set(
                err, code, "failed to read the segments of an ELF file: %s", strerror(-code));
    return error_set(err, -ENOEXEC, "no segment of the ELF file is mapped at offset %#llx",
            (unsigned long long)offset);
}

// Length of "3.8.18" (or "3.8.0rc1+") at the start of a NUL-terminated text; 0: it is none of that
// kind.
static size_t version_length(const char *text, size_t len, int minor)
{
    int found = -1, patch = -1, used = 0;
    char word[24];
    size_t end = strnlen(text, len < sizeof(word) ? len : sizeof(word));
    if (end == len || end == sizeof(word))
        return 0;
    memcpy(word, text, end + 1);
    if (sscanf(word, "3.%2d.%3d%n", &found, &patch, &used) < 2 || found < 0 || patch < 0)
        return 0;
    for (const char *tail = word + used; *tail; tail++)
        if (!isdigit((unsigned char)*tail) && !strchr("abrc+", *tail))
            return 0;
    if (minor >= 0 ? found != minor : found < LAYOUT_MINOR_MIN || found > LAYOUT_MINOR_MAX)
        return 0;
    return end;
}

int image_version(int fd, int minor, char *ret, size_t ret_size)
{
    const size_t chunk = 1 << 20, overlap = 32;
    char *bytes = malloc(chunk);
    int code = bytes ? -ENOENT : -ENOMEM;
    for (uint64_t at = 0; at < FILE_MAX && code == -ENOENT; at += chunk - overlap) {
        ssize_t got = target_file_read(fd, bytes, chunk, at);
        if (got <= (ssize_t)overlap)
            break;
        const char *p = bytes, *end = bytes + got;
        while ((p = memmem(p, (size_t)(end - p), "3.", 2)) != NULL) {
            // A linker lets the constant share the tail of another: ".../versions/3.8.18".
            bool is_whole = p > bytes && !isalnum((unsigned char)p[-1]) && p[-1] != '.';
            if (!is_whole) {
                p++;
                continue;
            }
            size_t len = version_length(p, (size_t)(end - p), minor);
            if (len > 0 && len < ret_size) {
                memcpy(ret, p, len + 1);
                code = 0;
                break;
            }
            p++;
        }
    }
    free(bytes);
    return code;
}
