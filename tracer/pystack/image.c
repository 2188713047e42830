// SPDX-License-Identifier: Apache-2.0
#include "tracer/pystack/image.h"

#include <ctype.h>
#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tracer/pystack/layout.h"
#include "tracer/pystack/machine.h"

#define SECTIONS_MAX 1024
#define SEGMENTS_MAX 128
#define NAMES_MAX (64ull << 20) // bytes of a string table; a debug build of CPython has 1 MiB
#define SYMBOLS_MAX (4u << 20)
#define FILE_MAX (256ull << 20) // of what is searched for the version

// 0: all of it was read.
static int read_at(int fd, void *buf, size_t len, uint64_t offset)
{
    for (size_t done = 0; done < len;) {
        if (offset + done > INT64_MAX)
            return -ENOEXEC;
        ssize_t got = pread(fd, (char *)buf + done, len - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -EIO;
        if (got == 0)
            return -ENOEXEC; // cut off
        done += (size_t)got;
    }
    return 0;
}

static int read_header(int fd, Elf64_Ehdr *ret)
{
    int code = read_at(fd, ret, sizeof(*ret), 0);
    if (code < 0)
        return code;
    if (memcmp(ret->e_ident, ELFMAG, SELFMAG) || ret->e_ident[EI_CLASS] != ELFCLASS64 ||
        ret->e_ident[EI_DATA] != ELFDATA2LSB)
        return -ENOEXEC;
    return ret->e_machine == MACHINE_ELF ? 0 : -ENOTSUP;
}

// The section headers: *ret is the caller's to free.
static int read_sections(int fd, Elf64_Shdr **ret, size_t *ret_count, size_t *ret_names)
{
    Elf64_Ehdr header;
    int code = read_header(fd, &header);
    if (code < 0)
        return code;
    *ret = NULL;
    *ret_count = 0;
    *ret_names = header.e_shstrndx;
    if (header.e_shoff == 0 || header.e_shnum == 0)
        return 0;
    if (header.e_shnum > SECTIONS_MAX || header.e_shentsize != sizeof(Elf64_Shdr))
        return -ENOEXEC;
    Elf64_Shdr *sections = calloc(header.e_shnum, sizeof(*sections));
    if (!sections)
        return -ENOMEM;
    code = read_at(fd, sections, header.e_shnum * sizeof(*sections), header.e_shoff);
    if (code < 0) {
        free(sections);
        return code;
    }
    *ret = sections;
    *ret_count = header.e_shnum;
    return 0;
}

// A string table with a NUL behind it; NULL when it cannot be.
static char *read_names(int fd, const Elf64_Shdr *section, size_t *ret_len)
{
    if (section->sh_type != SHT_STRTAB || section->sh_size == 0 || section->sh_size > NAMES_MAX)
        return NULL;
    char *names = malloc(section->sh_size + 1);
    if (!names)
        return NULL;
    if (read_at(fd, names, section->sh_size, section->sh_offset) < 0) {
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
        code = read_at(fd, symbols, n * sizeof(Elf64_Sym),
                       table->sh_offset + first * sizeof(Elf64_Sym));
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
    Elf64_Shdr *sections = NULL;
    size_t section_count = 0, names = 0, tables = 0;
    for (size_t i = 0; i < count; i++)
        wanted[i].value = 0;
    int code = read_sections(fd, &sections, &section_count, &names);
    for (size_t t = 0; t < 2 && code == 0; t++) {
        size_t found = symbols_found(wanted, count);
        if (found == count || (tables > 0 && found == 0))
            break;
        for (size_t i = 0; i < section_count && code == 0; i++)
            if (sections[i].sh_type == types[t] && sections[i].sh_link < section_count) {
                tables++;
                code =
                    search_table(fd, &sections[i], &sections[sections[i].sh_link], wanted, count);
            }
    }
    free(sections);
    if (code < 0)
        return error_set(err, code, "failed to read the symbols of an ELF file: %s",
                         strerror(-code));
    return 0;
}

int image_section(int fd, const char *name, uint64_t *ret)
{
    Elf64_Shdr *sections = NULL;
    size_t count = 0, names_idx = 0, names_len = 0;
    int code = read_sections(fd, &sections, &count, &names_idx);
    if (code < 0)
        return code;
    char *names = names_idx < count ? read_names(fd, &sections[names_idx], &names_len) : NULL;
    code = -ENOENT;
    for (size_t i = 0; i < count && names && code < 0; i++)
        if (sections[i].sh_name < names_len && !strcmp(names + sections[i].sh_name, name) &&
            sections[i].sh_addr != 0) {
            *ret = sections[i].sh_addr;
            code = 0;
        }
    free(names);
    free(sections);
    return code;
}

int image_bias(int fd, uint64_t start, uint64_t offset, uint64_t *ret, struct error *err)
{
    Elf64_Ehdr header;
    Elf64_Phdr segments[SEGMENTS_MAX];
    int code = read_header(fd, &header);
    if (code == 0 && (header.e_phnum > SEGMENTS_MAX || header.e_phentsize != sizeof(Elf64_Phdr)))
        code = -ENOEXEC;
    if (code == 0)
        code = read_at(fd, segments, header.e_phnum * sizeof(*segments), header.e_phoff);
    if (code < 0)
        return error_set(err, code, "failed to read the segments of an ELF file: %s",
                         strerror(-code));
    uint64_t in_page = (uint64_t)sysconf(_SC_PAGESIZE) - 1; // the kernel maps whole pages, of 4 to 64 KiB
    for (size_t i = 0; i < header.e_phnum; i++)
        if (segments[i].p_type == PT_LOAD && (segments[i].p_offset & ~in_page) == offset) {
            *ret = start - (segments[i].p_vaddr & ~in_page);
            return 0;
        }
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
        ssize_t got = pread(fd, bytes, chunk, (off_t)at);
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
