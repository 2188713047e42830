// SPDX-License-Identifier: Apache-2.0
// Reads build-id, SONAME, compiler and version text of a shared object through libelf. Program
// headers are asked for the build-id first: they are what the loader needs, so no strip tool
// removes them. Knows nothing of libraries; library.c says which text to look for.
#include "harness/fingerprint/elf_file.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef UPGATE_HAVE_LIBELF
#include <gelf.h>
#include <libelf.h>
#endif

#include "common/strings.h"

void elf_facts_clear(struct elf_facts *facts)
{
    free(facts->build_id);
    free(facts->soname);
    free(facts->compiler);
    free(facts->version);
    *facts = (struct elf_facts){0};
}

#ifdef UPGATE_HAVE_LIBELF

enum {
    CHUNK_BYTES = 256 << 10,
    // Constants of the largest library seen that carries its version as text (libnccl) are 20 MB.
    SEARCH_BYTES_MAX = 64 << 20,
    VERSION_CHARACTERS_MAX = 48,
    COMPILER_CHARACTERS_MAX = 120,
    BUILD_ID_BYTES_MAX = 64,
};

static char *hex(const unsigned char *bytes, size_t count)
{
    struct strbuf text = {0};
    for (size_t i = 0; i < count; i++)
        strbuf_add(&text, "%02x", bytes[i]);
    return strbuf_take(&text);
}

static char *build_id_of_notes(Elf_Data *data)
{
    GElf_Nhdr note;
    size_t at = 0, next, name_at, text_at;
    while (data && (next = gelf_getnote(data, at, &note, &name_at, &text_at)) > 0) {
        const char *bytes = data->d_buf;
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == sizeof("GNU") &&
                !memcmp(bytes + name_at, "GNU", sizeof("GNU")) && note.n_descsz > 0 &&
                note.n_descsz <= BUILD_ID_BYTES_MAX)
            return hex((const unsigned char *)bytes + text_at, note.n_descsz);
        at = next;
    }
    return NULL;
}

static char *read_build_id(Elf *elf)
{
    size_t count = 0;
    if (elf_getphdrnum(elf, &count))
        return NULL;
    for (size_t i = 0; i < count; i++) {
        GElf_Phdr header;
        if (!gelf_getphdr(elf, (int)i, &header) || header.p_type != PT_NOTE)
            continue;
        Elf_Type type = header.p_align == 8 ? ELF_T_NHDR8 : ELF_T_NHDR;
        char *found = build_id_of_notes(
                elf_getdata_rawchunk(elf, (int64_t)header.p_offset, header.p_filesz, type));
        if (found)
            return found;
    }
    return NULL;
}

static char *read_soname(Elf *elf, Elf_Scn *section, const GElf_Shdr *header)
{
    Elf_Data *data = elf_getdata(section, NULL);
    size_t count = header->sh_entsize ? header->sh_size / header->sh_entsize : 0;
    for (size_t i = 0; data && i < count; i++) {
        GElf_Dyn entry;
        if (!gelf_getdyn(data, (int)i, &entry) || entry.d_tag == DT_NULL)
            return NULL;
        if (entry.d_tag != DT_SONAME)
            continue;
        const char *name = elf_strptr(elf, header->sh_link, entry.d_un.d_val);
        return name ? xstrdup(name) : NULL;
    }
    return NULL;
}

static char *read_compiler(Elf_Scn *section)
{
    Elf_Data *data = elf_rawdata(section, NULL);
    if (!data || !data->d_buf || !data->d_size)
        return NULL;
    const char *text = data->d_buf;
    size_t length = strnlen(text, data->d_size);
    if (length > COMPILER_CHARACTERS_MAX)
        length = COMPILER_CHARACTERS_MAX;
    return length ? xasprintf("%.*s", (int)length, text) : NULL;
}

static bool is_version_character(char c)
{
    return isalnum((unsigned char)c) || (c && strchr(".+-_~", c));
}

// The version behind a prefix inside one chunk, or NULL. A prefix also opens other messages
// ("OpenBLAS warning: ..."), so a digit has to follow.
static char *version_in_chunk(const char *chunk, size_t length, const char *prefix)
{
    size_t prefix_length = strlen(prefix);
    for (const char *at = chunk;
            (at = memmem(at, length - (size_t)(at - chunk), prefix, prefix_length)); at++) {
        const char *version = at + prefix_length, *end = version, *limit = chunk + length;
        while (end < limit && end - version < VERSION_CHARACTERS_MAX && is_version_character(*end))
            end++;
        while (end > version && !isalnum((unsigned char)end[-1]))
            end--;
        if (end > version && isdigit((unsigned char)*version))
            return xasprintf("%.*s", (int)(end - version), version);
    }
    return NULL;
}

static char *search_section(int fd, const GElf_Shdr *header, const char *prefix)
{
    const size_t overlap = strlen(prefix) + VERSION_CHARACTERS_MAX;
    uint64_t size = header->sh_size < SEARCH_BYTES_MAX ? header->sh_size : SEARCH_BYTES_MAX;
    char *chunk = xcalloc(1, CHUNK_BYTES), *found = NULL;
    for (uint64_t at = 0; at < size && !found;) {
        size_t want = size - at < CHUNK_BYTES ? (size_t)(size - at) : CHUNK_BYTES;
        ssize_t got = pread(fd, chunk, want, (off_t)(header->sh_offset + at));
        if (got <= 0)
            break;
        found = version_in_chunk(chunk, (size_t)got, prefix);
        if ((size_t)got < overlap || at + (uint64_t)got >= size)
            break;
        at += (uint64_t)got - overlap;
    }
    free(chunk);
    return found;
}

// The highest version of symbols "PREFIX..." that the library defines. Runtimes of GCC keep their
// file name for a decade, but each release that adds a function adds a version.
static char *highest_symbol_version(
        Elf *elf, Elf_Scn *section, const GElf_Shdr *header, const char *prefix)
{
    Elf_Data *data = elf_getdata(section, NULL);
    const char *highest = NULL;
    GElf_Verdef definition;
    // sh_info is the number of entries: a damaged chain of offsets cannot run for ever.
    for (size_t at = 0, left = header->sh_info; data && left-- && at < data->d_size;) {
        GElf_Verdaux entry;
        if (!gelf_getverdef(data, (int)at, &definition) ||
                !gelf_getverdaux(data, (int)(at + definition.vd_aux), &entry))
            break;
        const char *name = elf_strptr(elf, header->sh_link, entry.vda_name);
        if (name && !strncmp(name, prefix, strlen(prefix)) &&
                isdigit((unsigned char)name[strlen(prefix)]) &&
                (!highest || strverscmp(name, highest) > 0))
            highest = name;
        if (!definition.vd_next)
            break;
        at += definition.vd_next;
    }
    return highest ? xstrdup(highest) : NULL;
}

static int read_sections(int fd, Elf *elf, const char *prefix, struct elf_facts *facts)
{
    GElf_Ehdr elf_header;
    size_t names, count = 0;
    if (!gelf_getehdr(elf, &elf_header) || elf_header.e_shoff > facts->size_bytes ||
            elf_getshdrnum(elf, &count))
        return -EBADMSG;
    if (!count) // a file may live without sections
        return 0;
    if (elf_getshdrstrndx(elf, &names))
        return -EBADMSG;
    for (Elf_Scn *section = NULL; (section = elf_nextscn(elf, section));) {
        GElf_Shdr header;
        if (!gelf_getshdr(section, &header))
            return -EBADMSG;
        if (header.sh_type != SHT_NOBITS &&
                (header.sh_offset > facts->size_bytes ||
                        header.sh_size > facts->size_bytes - header.sh_offset))
            return -EBADMSG;
        const char *name = elf_strptr(elf, names, header.sh_name);
        if (header.sh_type == SHT_DYNAMIC && !facts->soname)
            facts->soname = read_soname(elf, section, &header);
        else if (name && !strcmp(name, ".comment") && !facts->compiler)
            facts->compiler = read_compiler(section);
        else if (prefix && *prefix == '@' && header.sh_type == SHT_GNU_verdef)
            facts->version = highest_symbol_version(elf, section, &header, prefix + 1);
        else if (prefix && *prefix != '@' && !facts->version && name &&
                header.sh_type == SHT_PROGBITS &&
                (!strncmp(name, ".rodata", 7) || !strcmp(name, ".data")))
            facts->version = search_section(fd, &header, prefix);
    }
    return 0;
}

int elf_facts_read(int fd, const char *prefix, struct elf_facts *ret_facts, struct error *err)
{
    struct elf_facts facts = {0};
    struct stat status;
    char magic[4];
    *ret_facts = facts;
    if (fstat(fd, &status))
        return error_set(err, -errno, "failed to look at the file: %s", strerror(errno));
    facts.size_bytes = status.st_size > 0 ? (uint64_t)status.st_size : 0;
    if (pread(fd, magic, sizeof(magic), 0) != sizeof(magic) || memcmp(magic, "\177ELF", 4)) {
        *ret_facts = facts;
        return error_set(err, -ENOEXEC, "not an ELF file");
    }
    elf_version(EV_CURRENT);
    Elf *elf = elf_begin(fd, ELF_C_READ, NULL);
    int code = 0;
    if (!elf || elf_kind(elf) != ELF_K_ELF) {
        code = error_set(err, -EBADMSG, "damaged ELF file: %s", elf_errmsg(-1));
    } else {
        facts.build_id = read_build_id(elf);
        if (read_sections(fd, elf, prefix, &facts))
            code = error_set(err, -EBADMSG, "ELF file is cut off or damaged");
    }
    elf_end(elf);
    *ret_facts = facts;
    return code;
}

#else

int elf_facts_read(int fd, const char *prefix, struct elf_facts *ret_facts, struct error *err)
{
    struct stat status;
    (void)prefix;
    *ret_facts = (struct elf_facts){0};
    if (fstat(fd, &status))
        return error_set(err, -errno, "failed to look at the file: %s", strerror(errno));
    ret_facts->size_bytes = status.st_size > 0 ? (uint64_t)status.st_size : 0;
    return error_set(err, -ENOSYS, "this upgate was built without libelf");
}

#endif
