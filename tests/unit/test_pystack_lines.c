// SPDX-License-Identifier: Apache-2.0
// Line tables of six real interpreters, every instruction; then tables that are cut off or damaged.
#include "tracer/pystack/line_table.h"

#include <stdlib.h>
#include <string.h>

#include "tests/unit/pystack_lines.h"
#include "tests/unit/runner.h"

#define FIXTURES (sizeof(line_fixtures) / sizeof(line_fixtures[0]))

TEST(every_instruction_has_the_line_its_interpreter_gives)
{
    CHECK(FIXTURES >= 6);
    for (size_t f = 0; f < FIXTURES; f++) {
        enum layout_lines format = layout_lines_of(line_fixtures[f].minor);
        for (size_t r = 0; r < line_fixtures[f].range_count; r++) {
            struct line_range range = line_fixtures[f].ranges[r];
            for (int at = range.start; at < range.end; at++)
                CHECK_INT(line_table_lookup(format, line_fixtures[f].table,
                                  line_fixtures[f].table_len, line_fixtures[f].first_line, at),
                        range.line);
        }
    }
}

TEST(the_three_formats_are_all_there)
{
    unsigned formats = 0;
    for (size_t f = 0; f < FIXTURES; f++)
        formats |= 1u << layout_lines_of(line_fixtures[f].minor);
    CHECK_INT(formats, 7);
}

TEST(before_the_first_instruction_is_the_first_line)
{
    for (int format = 0; format < 3; format++) {
        CHECK_INT(line_table_lookup(format, NULL, 0, 42, -1), 42);
        CHECK_INT(line_table_lookup(format, NULL, 0, 42, -2), 42);
    }
}

TEST(behind_the_last_instruction_is_no_line_where_the_format_has_an_end)
{
    for (size_t f = 0; f < FIXTURES; f++)
        if (line_fixtures[f].minor >= 10)
            CHECK_INT(line_table_lookup(layout_lines_of(line_fixtures[f].minor),
                              line_fixtures[f].table, line_fixtures[f].table_len,
                              line_fixtures[f].first_line, 1 << 20),
                    0);
}

// PEP 657 by hand: short form, one-line form, no columns with a negative delta, long form, no
// location.
TEST(the_location_table_by_hand)
{
    const uint8_t table[] = {
            0x80 | 5 << 3 | 1, 0x35,                  // 2 units on the same line
            0x80 | 11 << 3 | 0, 1, 2,                 // 1 unit, a line further
            0x80 | 13 << 3 | 2, 3,                    // 3 units, delta -1: 3 = 1 << 1 | 1
            0x80 | 14 << 3 | 0, 0x40 | 2, 2, 0, 1, 1, // 1 unit, delta (2 | 2 << 6) >> 1 = 65
            0x80 | 15 << 3 | 7,                       // 8 units without a line
            0x80 | 12 << 3 | 0, 9, 9,                 // 1 unit, 2 lines further
    };
    static const int wanted[] = {100, 100, 101, 100, 100, 100, 165, 0, 0, 0, 0, 0, 0, 0, 0, 167};
    for (int unit = 0; unit < 16; unit++) {
        CHECK_INT(line_table_lookup(LAYOUT_LINES_LOCATIONS, table, sizeof(table), 100, unit * 2),
                wanted[unit]);
        CHECK_INT(
                line_table_lookup(LAYOUT_LINES_LOCATIONS, table, sizeof(table), 100, unit * 2 + 1),
                wanted[unit]);
    }
    CHECK_INT(line_table_lookup(LAYOUT_LINES_LOCATIONS, table, sizeof(table), 100, 32), 0);
}

TEST(a_damaged_table_gives_some_line_or_none)
{
    const uint8_t no_entry[] = {0x05, 0x10, 0x7f};
    CHECK_INT(line_table_lookup(LAYOUT_LINES_LOCATIONS, no_entry, sizeof(no_entry), 5, 0), 0);
    const uint8_t below_zero[] = {2, 0x81, 200, 0}; // -127
    CHECK_INT(line_table_lookup(LAYOUT_LINES_TABLE, below_zero, sizeof(below_zero), 5, 0), 0);
    srand(1);
    for (int i = 0; i < 20000; i++) {
        size_t len = (size_t)(rand() % 40);
        uint8_t *table = malloc(len ? len : 1); // exactly as long as it says, for the sanitizer
        for (size_t b = 0; b < len; b++)
            table[b] = (uint8_t)rand();
        int line = line_table_lookup(i % 3, table, len, rand() % 1000, rand() % 200 - 2);
        CHECK(line >= 0);
        free(table);
    }
    for (size_t f = 0; f < FIXTURES; f++)
        for (size_t len = 0; len < line_fixtures[f].table_len; len++) {
            uint8_t *table = malloc(len ? len : 1);
            memcpy(table, line_fixtures[f].table, len);
            CHECK(line_table_lookup(layout_lines_of(line_fixtures[f].minor), table, len,
                          line_fixtures[f].first_line, 300) >= 0);
            free(table);
        }
}
