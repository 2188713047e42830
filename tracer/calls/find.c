// SPDX-License-Identifier: Apache-2.0
#include "tracer/calls/find.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "tracer/symbols/debug_file.h"
#include "tracer/symbols/demangle.h"
#include "tracer/symbols/elf_reader.h"
#include "tracer/symbols/elf_table.h"

#define FIND_WORD "symbol:"
#define FIND_DEBUG_PATH "/usr/lib/debug"

enum { FIND_SYMBOLS_MAX = 4 << 20 };

// The one colon that is none of C++'s "::".
static const char *find_colon(const char *text)
{
    for (const char *at = text; *at; at++)
        if (at[0] == ':' && at[1] == ':')
            at++;
        else if (*at == ':')
            return at;
    return NULL;
}

void find_parse(const char *text, struct find *ret)
{
    const char *rest = strncmp(text, FIND_WORD, strlen(FIND_WORD)) == 0 ? text + strlen(FIND_WORD)
                                                                        : text,
               *colon = find_colon(rest);
    *ret = (struct find){.name = xstrdup(colon ? colon + 1 : rest)};
    if (colon) {
        char *library = xasprintf("%.*s", (int)(colon - rest), rest);
        ret->library = xstrdup(string_base_name(library));
        free(library);
    }
}

// "libserve" and "libserve.so" are libserve.so.1.2, too; "libserve" is not libserver.so.
static bool find_is_library(const struct find *find, const char *module)
{
    size_t len = strlen(find->library);
    return strncmp(module, find->library, len) == 0 &&
            (module[len] == '\0' || module[len] == '.' || module[len] == '-');
}

// What a file says, harmless for a terminal.
static char *find_copy(const char *text)
{
    char *copy = xstrdup(text);
    string_make_plain(copy, strlen(copy));
    return copy;
}

struct find_scan {
    struct find *find;
    const struct elf_image *image;
    const char *module;
    uint64_t device, inode;
    const char *word; // of the name, the last part: a mangled name has it as it is
    bool loader;
    uint64_t loader_offset;
};

static bool find_file_offset(const struct elf_image *image, uint64_t address, uint64_t *ret)
{
    for (uint32_t i = 0; i < image->segment_count; i++) {
        const struct elf_segment *segment = &image->segments[i];
        if (address >= segment->address && address - segment->address < segment->file_bytes) {
            *ret = segment->offset + (address - segment->address);
            return true;
        }
    }
    return false;
}

static void find_take(
        struct find_scan *scan, uint64_t address, const char *symbol, const char *name)
{
    struct find *find = scan->find;
    uint64_t offset = 0;
    if (!find_file_offset(scan->image, address, &offset))
        return;
    for (size_t i = 0; i < find->place_count; i++) // an alias, or a constructor's second name
        if (find->places[i].inode == scan->inode && find->places[i].device == scan->device &&
                find->places[i].offset == offset)
            return;
    if (find->place_count == FIND_PLACES_MAX) {
        find->place_over++;
        return;
    }
    find->places[find->place_count++] = (struct find_place){.device = scan->device,
            .inode = scan->inode,
            .offset = offset,
            .name = find_copy(name),
            .symbol = find_copy(symbol),
            .module = find_copy(scan->module)};
}

// A name that has the wanted one in it, or is like it; the shortest are kept.
static void find_note_near(struct find *find, const char *name)
{
    const char *const one[] = {name};
    size_t len = strlen(name), wanted = strlen(find->name), distance;
    if (strcasestr(name, find->name))
        distance = len - wanted;
    else if (len <= wanted + 3 && wanted <= len + 3 && string_nearest(find->name, one, 1))
        distance = 1000;
    else
        return;
    for (size_t i = 0; i < find->near_count; i++)
        if (strcmp(find->near[i], name) == 0)
            return;
    size_t at = find->near_count;
    while (at > 0 && find->near_distance[at - 1] > distance)
        at--;
    if (at == FIND_NEAR_MAX)
        return;
    if (find->near_count == FIND_NEAR_MAX)
        free(find->near[--find->near_count]);
    memmove(find->near + at + 1, find->near + at, (find->near_count - at) * sizeof *find->near);
    memmove(find->near_distance + at + 1, find->near_distance + at,
            (find->near_count - at) * sizeof *find->near_distance);
    find->near[at] = find_copy(name);
    find->near_distance[at] = distance;
    find->near_count++;
}

// Parts of a function that stand for themselves: nobody calls them.
static bool find_is_part(const char *symbol)
{
    return strstr(symbol, ".cold") || strstr(symbol, ".part.");
}

static bool find_each(void *context, uint64_t address, const char *symbol)
{
    struct find_scan *scan = context;
    const struct find *find = scan->find;
    if (scan->loader && strncmp(symbol, "_dl_debug_state", 15) == 0 &&
            (!symbol[15] || symbol[15] == '@'))
        find_file_offset(scan->image, address, &scan->loader_offset);
    if (find->library && !find_is_library(find, scan->module))
        return true;
    size_t len = symbol_name_plain(symbol, strlen(symbol));
    bool mangled = strncmp(symbol, "_Z", 2) == 0 || strncmp(symbol, "_R", 2) == 0;
    bool raw = strcmp(symbol, find->name) == 0;
    // Demangling takes a microsecond, and libtorch has 600,000 names: only what can be it is
    // demangled.
    if (!raw && mangled && !strcasestr(symbol, scan->word) && find->near_count == FIND_NEAR_MAX)
        return true;
    if (!raw && mangled && !strcasestr(symbol, scan->word) && len > 2 * strlen(find->name) + 32)
        return true;
    char name[SYMBOL_NAME_MAX];
    symbol_name_readable(symbol, strlen(symbol), name);
    if ((raw || strcmp(name, find->name) == 0) && !find_is_part(symbol))
        find_take(scan, address, symbol, name);
    else if (!find_is_part(symbol))
        find_note_near(scan->find, name);
    return true;
}

static bool find_is_loader(const char *module)
{
    return strncmp(module, "ld-", 3) == 0 || strncmp(module, "ld.", 3) == 0 ||
            strncmp(module, "ld64", 4) == 0;
}

int find_in_file(struct find *find, int fd, const char *path, uint64_t device, uint64_t inode,
        uint64_t *ret_loader)
{
    struct elf_image image;
    struct elf_table table = {0};
    const char *module = string_base_name(path), *word = strrchr(find->name, ':');
    struct find_scan scan = {.find = find,
            .image = &image,
            .module = module,
            .device = device,
            .inode = inode,
            .word = word ? word + 1 : find->name,
            .loader = find_is_loader(module)};
    *ret_loader = 0;
    bool named = !find->library || find_is_library(find, module);
    int rc = elf_image_read(fd, &image);
    if (rc)
        return rc;
    find->file_count++;
    find->library_count += find->library && named;
    if (!named && !scan.loader)
        return 0;
    const struct debug_search search = {.path = path, .debug_path = FIND_DEBUG_PATH};
    if (debug_table_load(&table, &image, fd, &search, FIND_SYMBOLS_MAX))
        elf_table_each(&table, find_each, &scan);
    elf_table_free(&table);
    *ret_loader = scan.loader_offset;
    return 0;
}

char *find_why_not(const struct find *find)
{
    struct strbuf out = {0};
    if (find->place_count == 1 && !find->place_over)
        return NULL;
    if (find->place_count) {
        strbuf_add(
                &out, "'%s' is %zu functions:", find->name, find->place_count + find->place_over);
        for (size_t i = 0; i < find->place_count; i++)
            strbuf_add(&out, "%s %s in %s", i ? "," : "", find->places[i].symbol,
                    find->places[i].module);
        strbuf_add(&out, "%s; name one of them, as symbol:LIBRARY:NAME",
                find->place_over ? ", …" : "");
        return strbuf_take(&out);
    }
    if (find->library && !find->library_count)
        strbuf_add(&out, "no file '%s' among the %zu that were mapped", find->library,
                find->file_count);
    else
        strbuf_add(&out,
                "no function '%s' in the %zu file%s that were mapped (it may be inlined, or its file stripped)",
                find->name, find->library ? find->library_count : find->file_count,
                (find->library ? find->library_count : find->file_count) == 1 ? "" : "s");
    for (size_t i = 0; i < find->near_count; i++)
        strbuf_add(&out, "%s %s", i ? "," : "; near:", find->near[i]);
    return strbuf_take(&out);
}

void find_free(struct find *find)
{
    for (size_t i = 0; i < find->place_count; i++) {
        free(find->places[i].name);
        free(find->places[i].symbol);
        free(find->places[i].module);
    }
    for (size_t i = 0; i < find->near_count; i++)
        free(find->near[i]);
    free(find->library);
    free(find->name);
    *find = (struct find){0};
}
