// SPDX-License-Identifier: Apache-2.0
// Builds and searches the packed symbol table. A symbol section is streamed in 48 KiB pieces,
// twice: counted, then filled, so that memory is exactly what is needed. Between the two the file
// may change: the second pass never writes more than the first one counted.
#include "tracer/symbols/elf_table.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/containers/search.h"
#include "common/containers/sort.h"
#include "common/strings.h"

enum {
    TABLE_CHUNK_SYMBOLS = 2048,
    TABLE_SCAN_MAX = 8 << 20, // entries of one section: libtorch_cuda.so has under 1 M
    TABLE_ALIASES_MAX = 16,
    TABLE_NESTING_MAX = 32,         // how far back an enclosing function is looked for
    TABLE_UNSIZED_BYTES_MAX = 4096, // a hand-written function without size ends here at the latest
};
#define TABLE_SOURCE_BIT 0x80000000u

static uint64_t table_base(const struct elf_image *image)
{
    uint64_t base = UINT64_MAX;
    for (uint32_t i = 0; i < image->segment_count; i++)
        if (image->segments[i].address < base)
            base = image->segments[i].address;
    return base;
}

static bool table_wanted(const struct elf_image *image, uint64_t base, const Elf64_Sym *symbol)
{
    unsigned type = ELF64_ST_TYPE(symbol->st_info), bind = ELF64_ST_BIND(symbol->st_info);
    // Assembler functions are often untyped; local untyped ones are labels inside functions.
    bool function =
            type == STT_FUNC || type == STT_GNU_IFUNC || (type == STT_NOTYPE && bind != STB_LOCAL);
    return function && symbol->st_shndx != SHN_UNDEF && symbol->st_name &&
            elf_image_executable(image, symbol->st_value) && symbol->st_value - base <= UINT32_MAX;
}

struct table_fill {
    const struct elf_image *image;
    uint64_t base;
    uint32_t source_bit;
    struct elf_symbol *to; // NULL: only count
    size_t count, room;
};

static void table_take(struct table_fill *fill, const Elf64_Sym *symbol)
{
    if (!table_wanted(fill->image, fill->base, symbol))
        return;
    if (fill->to) {
        if (fill->count == fill->room)
            return;
        uint64_t size = symbol->st_size < TABLE_SOURCE_BIT ? symbol->st_size : TABLE_SOURCE_BIT - 1;
        fill->to[fill->count] = (struct elf_symbol){(uint32_t)(symbol->st_value - fill->base),
                (uint32_t)size | fill->source_bit, symbol->st_name};
    }
    fill->count++;
}

static void table_stream(
        int fd, const struct elf_range *symbols, Elf64_Sym *chunk, struct table_fill *fill)
{
    uint64_t left = symbols->bytes / sizeof(Elf64_Sym);
    left = left < TABLE_SCAN_MAX ? left : TABLE_SCAN_MAX;
    for (uint64_t at = symbols->offset; left;) {
        size_t n = left < TABLE_CHUNK_SYMBOLS ? (size_t)left : TABLE_CHUNK_SYMBOLS;
        if (elf_read(fd, chunk, n * sizeof(*chunk), at))
            return;
        for (size_t i = 0; i < n; i++)
            table_take(fill, &chunk[i]);
        at += n * sizeof(*chunk);
        left -= n;
    }
}

size_t elf_table_add(struct elf_table *table, const struct elf_image *image, int fd, bool owned,
        const struct elf_range *symbols, const struct elf_range *names, uint32_t count_max)
{
    struct table_fill fill = {.image = image,
            .base = table_base(image),
            .source_bit = table->source_count ? TABLE_SOURCE_BIT : 0};
    if (table->source_count < ELF_SOURCES_MAX && symbols->bytes) {
        Elf64_Sym *chunk = xcalloc(TABLE_CHUNK_SYMBOLS, sizeof(*chunk));
        table_stream(fd, symbols, chunk, &fill);
        fill.room = count_max > table->count ? count_max - table->count : 0;
        table->dropped += fill.count > fill.room ? fill.count - fill.room : 0;
        fill.room = fill.count < fill.room ? fill.count : fill.room;
        if (fill.room) {
            size_t total = table->count + fill.room;
            if (table->make_room)
                table->make_room(table->context, total * sizeof(*table->symbols));
            table->symbols = xrealloc(table->symbols, total * sizeof(*table->symbols));
            fill.to = table->symbols + table->count;
            fill.count = 0;
            table_stream(fd, symbols, chunk, &fill);
        }
        free(chunk);
    }
    if (!fill.to || !fill.count) {
        if (owned)
            close(fd);
        return 0;
    }
    table->base = fill.base;
    table->count += (uint32_t)fill.count;
    table->sources[table->source_count++] = (struct elf_source){fd, owned, *names};
    return fill.count;
}

static bool table_before(const struct elf_symbol *a, const struct elf_symbol *b)
{
    if (a->address != b->address)
        return a->address < b->address;
    return a->size != b->size ? a->size < b->size : a->name < b->name;
}

void elf_table_sort(struct elf_table *table)
{
    sort_in_place(table->symbols, table->count, x, y, table_before(x, y));
}

static uint32_t table_size(const struct elf_symbol *symbol)
{
    return symbol->size & ~TABLE_SOURCE_BIT;
}

static size_t table_name(
        const struct elf_table *table, const struct elf_symbol *symbol, char *name, size_t size)
{
    const struct elf_source *source = &table->sources[(symbol->size & TABLE_SOURCE_BIT) != 0];
    if (symbol->name >= source->names.bytes)
        return 0;
    uint64_t left = source->names.bytes - symbol->name;
    size_t want = left < size - 1 ? (size_t)left : size - 1;
    uint64_t offset = source->names.offset + symbol->name;
    // Names are short: one small read serves nearly all of them.
    size_t first = want < 128 ? want : 128;
    if (elf_read(source->fd, name, first, offset))
        return 0;
    size_t len = strnlen(name, first);
    if (len == first && first < want) {
        if (elf_read(source->fd, name, want, offset))
            return 0;
        len = strnlen(name, want);
    }
    name[len] = '\0';
    return len;
}

// Aliases: "write" reads better than "__write", and "memcpy" than "__memcpy_avx_unaligned_erms".
static bool table_better(const char *a, size_t a_len, const char *b, size_t b_len)
{
    size_t a_lead = strspn(a, "_"), b_lead = strspn(b, "_");
    if (a_lead != b_lead)
        return a_lead < b_lead;
    return a_len != b_len ? a_len < b_len : strcmp(a, b) < 0;
}

static size_t table_best_alias(
        const struct elf_table *table, uint32_t idx, uint64_t offset, char *name, size_t size)
{
    size = size < ELF_NAME_MAX ? size : ELF_NAME_MAX;
    uint32_t address = table->symbols[idx].address;
    size_t best = 0;
    char other[ELF_NAME_MAX];
    for (uint32_t seen = 0; seen < TABLE_ALIASES_MAX; seen++) {
        const struct elf_symbol *one = &table->symbols[idx];
        uint32_t bytes = table_size(one);
        if (one->address != address || (best && bytes <= offset))
            break;
        size_t len = table_name(table, one, other, size);
        if (len && (!best || table_better(other, len, name, best))) {
            memcpy(name, other, len + 1);
            best = len;
        }
        if (!idx--)
            break;
    }
    return best;
}

size_t elf_table_find(const struct elf_table *table, uint64_t address, char *name, size_t size,
        uint64_t *ret_offset, bool *ret_sized)
{
    if (!table->count || address < table->base || address - table->base > UINT32_MAX)
        return 0;
    uint32_t wanted = (uint32_t)(address - table->base);
    uint32_t low = (uint32_t)search_first(i, table->count, table->symbols[i].address > wanted);
    if (!low)
        return 0;
    uint32_t nearest = table->symbols[low - 1].address;
    for (uint32_t i = low, back = 0; i-- > 0 && back < TABLE_NESTING_MAX; back++) {
        const struct elf_symbol *one = &table->symbols[i];
        uint32_t offset = wanted - one->address, bytes = table_size(one);
        bool inside = bytes ? offset < bytes
                            : one->address == nearest && offset < TABLE_UNSIZED_BYTES_MAX;
        if (!inside)
            continue;
        size_t len = table_best_alias(table, i, offset, name, size);
        if (len)
            *ret_offset = offset;
        if (len && ret_sized)
            *ret_sized = bytes > 0;
        return len;
    }
    return 0;
}

// With a NUL behind them; NULL: they cannot be read.
static char *table_names(const struct elf_source *source, uint64_t *ret_bytes)
{
    uint64_t bytes = source->names.bytes < ELF_NAMES_MAX ? source->names.bytes : ELF_NAMES_MAX;
    char *names = xcalloc(bytes + 1, 1);
    if (elf_read(source->fd, names, bytes, source->names.offset)) {
        free(names);
        return NULL;
    }
    *ret_bytes = bytes;
    return names;
}

void elf_table_each(const struct elf_table *table,
        bool (*each)(void *context, uint64_t address, const char *name), void *context)
{
    bool more = true;
    for (uint32_t source = 0; source < table->source_count && more; source++) {
        uint64_t bytes = 0;
        char *names = table_names(&table->sources[source], &bytes);
        for (uint32_t i = 0; names && i < table->count && more; i++) {
            const struct elf_symbol *one = &table->symbols[i];
            if (((one->size & TABLE_SOURCE_BIT) != 0) == (source == 1) && one->name < bytes)
                more = each(context, table->base + one->address, names + one->name);
        }
        free(names);
    }
}

void elf_table_free(struct elf_table *table)
{
    for (uint32_t i = 0; i < table->source_count; i++)
        if (table->sources[i].owned)
            close(table->sources[i].fd);
    free(table->symbols);
    *table = (struct elf_table){0};
}
