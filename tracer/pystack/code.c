// SPDX-License-Identifier: Apache-2.0
#include "tracer/pystack/code.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "tracer/pystack/line_table.h"
#include "tracer/pystack/pystack.h"

#define CODE_REFRESH_MAX 64 // code objects of one system call
#define OBJECT_TYPE 8       // offset of ob_type in every build without Py_TRACE_REFS

static uint64_t u64_at(const uint8_t *bytes, int offset)
{
    uint64_t value;
    memcpy(&value, bytes + offset, sizeof(value));
    return value;
}

int code_cache_init(struct code_cache *cache, const struct layout *layout, struct memory *memory)
{
    *cache = (struct code_cache){.layout = layout, .memory = memory};
    cache->slots = calloc(CODE_CACHE_SLOTS, sizeof(*cache->slots));
    return cache->slots ? 0 : -ENOMEM;
}

static void code_free(struct code *code)
{
    if (!code)
        return;
    free(code->function);
    free(code->file);
    free(code->lines);
    free(code);
}

static void forget(struct code_cache *cache)
{
    for (size_t i = 0; i < CODE_CACHE_SLOTS; i++) {
        code_free(cache->slots[i]);
        cache->slots[i] = NULL;
    }
    cache->count = 0;
    cache->bytes = 0;
}

void code_cache_clear(struct code_cache *cache)
{
    if (cache->slots)
        forget(cache);
    free(cache->slots);
    cache->slots = NULL;
}

void code_cache_trim(struct code_cache *cache)
{
    if (cache->count >= CODE_CACHE_ENTRIES || cache->bytes >= CODE_CACHE_BYTES)
        forget(cache);
}

size_t code_head_size(const struct layout *layout)
{
    return (size_t)layout->code_start;
}

// The characters of a str of 1, 2 or 4 bytes each as UTF-8; what is no character becomes '?'.
static size_t to_utf8(const uint8_t *from, size_t count, unsigned kind, char *buf, size_t size)
{
    size_t len = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t c = 0;
        memcpy(&c, from + i * kind, kind); // little endian
        if (c == 0 || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
            c = '?';
        size_t bytes = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
        if (len + bytes >= size)
            break;
        static const uint8_t lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
        for (size_t b = bytes; b-- > 1; c >>= 6)
            buf[len + b] = (char)(0x80 | (c & 0x3f));
        buf[len] = (char)(lead[bytes] | c);
        len += bytes;
    }
    buf[len] = '\0';
    return len;
}

// How the bits of a str's state stand: 3.14 made the first, `interned`, 16 bits wide. At the wrong
// place the kind reads as 0, which no string has, so the bits themselves tell.
static bool string_state(uint32_t state, unsigned *ret_kind, bool *ret_ascii)
{
    for (unsigned shift = 2; shift <= 16; shift += 14) {
        unsigned kind = state >> shift & 7;
        bool is_compact = state >> (shift + 3) & 1;
        if ((kind == 1 || kind == 2 || kind == 4) && is_compact) {
            *ret_kind = kind;
            *ret_ascii = state >> (shift + 4) & 1;
            return true;
        }
    }
    return false;
}

int code_read_string(struct code_cache *cache, uint64_t address, char *buf, size_t size)
{
    const struct layout *layout = cache->layout;
    uint8_t head[128], text[PYSTACK_STRING_MAX * 4];
    unsigned kind;
    bool is_ascii;
    uint32_t state;
    size_t head_size = (size_t)layout->unicode_state + sizeof(state);
    if (size == 0 || head_size > sizeof(head) ||
            memory_read(cache->memory, address, head, head_size) < 0)
        return -EFAULT;
    if (cache->string_type && u64_at(head, OBJECT_TYPE) != cache->string_type)
        return -EFAULT;
    uint64_t length = u64_at(head, layout->unicode_length);
    memcpy(&state, head + layout->unicode_state, sizeof(state));
    if (length > INT64_MAX || !string_state(state, &kind, &is_ascii))
        return -EFAULT;
    if (length > size)
        length = size;
    if (length > PYSTACK_STRING_MAX)
        length = PYSTACK_STRING_MAX;
    address += (uint64_t)(is_ascii ? layout->ascii_size : layout->compact_size);
    if (memory_read(cache->memory, address, text, length * kind) < 0)
        return -EFAULT;
    to_utf8(text, length, kind, buf, size);
    return 0;
}

static char *read_text(struct code_cache *cache, uint64_t address)
{
    char text[PYSTACK_STRING_MAX];
    if (code_read_string(cache, address, text, sizeof(text)) < 0 || text[0] == '\0')
        strcpy(text, "?");
    return strdup(text);
}

// A bytes object; one that is too long or cannot be read gives none, and its function no lines.
static void read_lines(struct code_cache *cache, uint64_t address, struct code *code)
{
    const struct layout *layout = cache->layout;
    uint8_t head[128];
    size_t head_size = (size_t)layout->bytes_length + 8;
    if (head_size > sizeof(head) || memory_read(cache->memory, address, head, head_size) < 0)
        return;
    uint64_t length = u64_at(head, layout->bytes_length);
    if ((cache->bytes_type && u64_at(head, OBJECT_TYPE) != cache->bytes_type) || length == 0 ||
            length > CODE_TABLE_MAX)
        return;
    uint8_t *lines = malloc(length);
    if (!lines ||
            memory_read(cache->memory, address + (uint64_t)layout->bytes_data, lines, length) < 0) {
        free(lines);
        return;
    }
    code->lines = lines;
    code->lines_len = length;
}

static struct code *code_read(struct code_cache *cache, uint64_t address, const uint64_t *fields)
{
    struct code *code = calloc(1, sizeof(*code));
    if (!code)
        return NULL;
    code->address = address;
    code->round = cache->round;
    memcpy(code->fields, fields, sizeof(code->fields));
    code->first_line = (int)(uint32_t)fields[3];
    code->line_offset = INT64_MIN;
    code->function = read_text(cache, fields[0]);
    code->file = read_text(cache, fields[1]);
    if (!code->function || !code->file) {
        code_free(code);
        return NULL;
    }
    read_lines(cache, fields[2], code);
    cache->misses++;
    return code;
}

static size_t code_bytes(const struct code *code)
{
    return sizeof(*code) + strlen(code->function) + strlen(code->file) + code->lines_len;
}

// What tells a code object from another one at its address. False: there is none.
static bool code_fields(const struct code_cache *cache, const uint8_t *head, uint64_t fields[4])
{
    const struct layout *layout = cache->layout;
    int name = layout->code_qualname >= 0 ? layout->code_qualname : layout->code_name;
    int32_t first_line;
    memcpy(&first_line, head + layout->code_first_line, sizeof(first_line));
    fields[0] = u64_at(head, name);
    fields[1] = u64_at(head, layout->code_file);
    fields[2] = u64_at(head, layout->code_lines);
    fields[3] = (uint32_t)first_line;
    return (!cache->code_type || u64_at(head, OBJECT_TYPE) == cache->code_type) && first_line >= 0;
}

// Where the address stands or would.
static size_t code_slot(const struct code_cache *cache, uint64_t address)
{
    size_t slot = (address * 0x9e3779b97f4a7c15ull) >> 50; // 14 bits: CODE_CACHE_SLOTS
    while (cache->slots[slot] && cache->slots[slot]->address != address)
        slot = (slot + 1) % CODE_CACHE_SLOTS;
    return slot;
}

const struct code *code_cache_known(const struct code_cache *cache, uint64_t address)
{
    return cache->slots[code_slot(cache, address)];
}

static void read_again(struct code_cache *cache)
{
    uint8_t heads[CODE_REFRESH_MAX][LAYOUT_CODE_MAX];
    struct memory_span spans[CODE_REFRESH_MAX];
    struct code *codes[CODE_REFRESH_MAX];
    uint64_t fields[4];
    for (size_t slot = 0, count = 0; slot < CODE_CACHE_SLOTS; slot++) {
        struct code *code = cache->slots[slot];
        if (code) {
            spans[count] = (struct memory_span){
                    code->address, heads[count], code_head_size(cache->layout), false};
            codes[count++] = code;
        }
        if (count < CODE_REFRESH_MAX && (slot + 1 < CODE_CACHE_SLOTS || count == 0))
            continue;
        if (memory_read_now(cache->memory, spans, count) < 0)
            return; // the process is gone: who walks it is told
        for (size_t i = 0; i < count; i++) {
            codes[i]->round = cache->round;
            if (!spans[i].ok || !code_fields(cache, heads[i], fields) ||
                    memcmp(codes[i]->fields, fields, sizeof(fields)))
                codes[i]->round = 0;
            cache->changed |= !codes[i]->round;
        }
        count = 0;
    }
}

bool code_cache_refresh(struct code_cache *cache, bool all)
{
    cache->round++;
    if (all)
        read_again(cache);
    bool changed = cache->changed;
    cache->changed = false;
    return changed;
}

const struct code *code_cache_get(struct code_cache *cache, uint64_t address, const uint8_t *head)
{
    uint64_t fields[4];
    if (!code_fields(cache, head, fields))
        return NULL;
    size_t slot = code_slot(cache, address);
    struct code *old = cache->slots[slot];
    if (old && !memcmp(old->fields, fields, sizeof(fields))) {
        old->round = cache->round;
        return old;
    }
    cache->changed |= old != NULL;
    struct code *code = code_read(cache, address, fields);
    if (!code)
        return NULL;
    if (old)
        cache->bytes -= code_bytes(old);
    else
        cache->count++;
    code_free(old);
    cache->slots[slot] = code;
    cache->bytes += code_bytes(code);
    return code;
}

int code_line(const struct layout *layout, const struct code *code, int64_t offset)
{
    if (code->line_offset == offset)
        return code->line;
    // The last answer is kept inside: a thread that waits is asked for the same place again.
    struct code *known = (struct code *)(uintptr_t)code;
    known->line = line_table_lookup(
            layout_lines_of(layout->minor), code->lines, code->lines_len, code->first_line, offset);
    known->line_offset = offset;
    return known->line;
}
