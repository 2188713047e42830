// SPDX-License-Identifier: Apache-2.0
#include "tracer/pystack/line_table.h"

#define CODE_UNIT 2 // bytes of an instruction or of an inline cache entry

// Pairs of (bytes, signed lines); a line holds from the sum of the bytes before it on.
static int64_t lnotab_lookup(const uint8_t *table, size_t len, int64_t line, int64_t offset)
{
    int64_t at = 0;
    for (size_t i = 0; i + 1 < len; i += 2) {
        at += table[i];
        if (at > offset)
            break;
        line += (int8_t)table[i + 1];
    }
    return line;
}

// Pairs of (bytes, signed lines); the lines change first, then the range is that many bytes; -128:
// the range has no line.
static int64_t linetable_lookup(const uint8_t *table, size_t len, int64_t line, int64_t offset)
{
    int64_t end = 0;
    for (size_t i = 0; i + 1 < len; i += 2) {
        int delta = (int8_t)table[i + 1];
        if (delta != -128)
            line += delta;
        end += table[i];
        if (offset < end)
            return delta == -128 ? 0 : line;
    }
    return 0;
}

// A signed number in 6-bit pieces, low first, bit 6 says that another follows; its lowest bit is
// the sign. More than 6 pieces are no line number. 0 when cut off.
static int64_t read_signed(const uint8_t *table, size_t len, size_t at)
{
    uint64_t value = 0;
    for (unsigned piece = 0; piece < 6 && at < len; piece++, at++) {
        value |= (uint64_t)(table[at] & 63) << (6 * piece);
        if (!(table[at] & 64))
            break;
    }
    return value & 1 ? -(int64_t)(value >> 1) : (int64_t)(value >> 1);
}

// Entries that begin with a byte whose bit 7 is set: 4 bits of kind, 3 of length in code units
// less 1.
static int64_t locations_lookup(const uint8_t *table, size_t len, int64_t line, int64_t offset)
{
    int64_t end = 0;
    for (size_t i = 0; i < len;) {
        unsigned kind = table[i] >> 3 & 15;
        if (!(table[i] & 128))
            return 0;
        if (kind == 14 || kind == 13) // long, or without columns
            line += read_signed(table, len, i + 1);
        else if (kind >= 10 && kind <= 12) // a line 0, 1 or 2 further
            line += kind - 10;
        end += ((table[i] & 7) + 1) * CODE_UNIT;
        if (offset < end)
            return kind == 15 ? 0 : line;
        do
            i++;
        while (i < len && !(table[i] & 128));
    }
    return 0;
}

int line_table_lookup(
        enum layout_lines format, const uint8_t *table, size_t len, int first_line, int64_t offset)
{
    int64_t line = 0;
    if (offset < 0)
        line = first_line;
    else if (format == LAYOUT_LINES_LNOTAB)
        line = lnotab_lookup(table, len, first_line, offset);
    else if (format == LAYOUT_LINES_TABLE)
        line = linetable_lookup(table, len, first_line, offset);
    else
        line = locations_lookup(table, len, first_line, offset);
    return line > 0 && line <= INT32_MAX ? (int)line : 0;
}
