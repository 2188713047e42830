// SPDX-License-Identifier: Apache-2.0
// The table of offsets, and the offsets that 3.13 and 3.14 publish: a block as each writes it, read
// back field by field, and blocks that must be refused in words.
#include "tracer/pystack/layout.h"

#include <errno.h>
#include <string.h>

#include "tests/unit/runner.h"

struct block {
    uint64_t words[LAYOUT_PUBLISHED_SIZE / 8];
};

// Words of the block that hold what is wanted, for 3.13 and 3.14: position in uint64_t, as
// pycore_debug_offsets.h of each orders them.
static const struct {
    const char *name;
    size_t offset; // of the field in struct layout
    int word_13, word_14, value;
} fields[] = {
// clang-format off
#define FIELD(field, word_13, word_14, value) \
    {#field, offsetof(struct layout, field), word_13, word_14, value}
        // clang-format on
        FIELD(runtime_interpreters, 5, 5, 632),
        FIELD(interpreter_next, 8, 8, 7264),
        FIELD(interpreter_threads, 9, 9, 7344),
        FIELD(interpreter_gc, 10, 11, 7704),
        FIELD(interpreter_gil, 14, 15, 16),
        FIELD(thread_size, 19, 22, 304),
        FIELD(thread_prev, 20, 23, 8),
        FIELD(thread_next, 21, 24, 16),
        FIELD(thread_interpreter, 22, 25, 24),
        FIELD(thread_frame, 23, 26, 72),
        FIELD(thread_id, 24, 27, 152),
        FIELD(thread_native, 25, 28, 160),
        FIELD(frame_back, 29, 32, 8),
        FIELD(frame_code, 30, 33, 0),
        FIELD(frame_instruction, 31, 34, 56),
        FIELD(frame_size, 32, 35, 72),
        FIELD(frame_owner, 33, 36, 70),
        FIELD(code_file, 35, 40, 112),
        FIELD(code_name, 36, 41, 120),
        FIELD(code_qualname, 37, 42, 128),
        FIELD(code_lines, 38, 43, 136),
        FIELD(code_first_line, 39, 44, 68),
        FIELD(code_start, 43, 48, 200),
        FIELD(bytes_length, 65, 75, 16),
        FIELD(bytes_data, 66, 76, 32),
        FIELD(unicode_state, 68, 78, 32),
        FIELD(unicode_length, 69, 79, 17),
        FIELD(ascii_size, 70, 80, 40),
        FIELD(gc_collecting, 72, 82, 188),
};
#define FIELDS (sizeof(fields) / sizeof(fields[0]))

static struct block block_of(int minor)
{
    struct block block;
    memset(&block, 0x6b, sizeof(block)); // whatever is not wanted is nonsense
    memcpy(block.words, "xdebugpy", 8);
    block.words[1] = 3ull << 24 | (uint64_t)minor << 16 | 2 << 8 | 0xf0;
    block.words[2] = 0;
    for (size_t i = 0; i < FIELDS; i++)
        block.words[minor == 13 ? fields[i].word_13 : fields[i].word_14] =
                (uint64_t)fields[i].value;
    int gil = minor == 13 ? 15
                          : 16; // _gil, enabled, locked, last_holder: from the interpreter's start
    block.words[gil] = 1000;
    block.words[gil + 2] = 1000 + 16;
    block.words[gil + 3] = 1000 + 8;
    return block;
}

static int read_block(const struct block *block, int minor, struct layout *ret, struct error *err)
{
    return layout_from_published(block, sizeof(*block), minor, ret, err);
}

TEST(each_published_field_is_taken_from_its_own_place)
{
    for (int minor = 13; minor <= 14; minor++) {
        struct block block = block_of(minor);
        struct layout layout;
        struct error err;
        CHECK_INT(read_block(&block, minor, &layout, &err), 0);
        CHECK_INT(layout.minor, minor);
        for (size_t i = 0; i < FIELDS; i++) {
            int value;
            memcpy(&value, (const char *)&layout + fields[i].offset, sizeof(value));
            CHECK_INT(value, fields[i].value);
        }
        CHECK_INT(layout.gil_locked, 16);
        CHECK_INT(layout.gil_holder, 8);
        CHECK_INT(layout.compact_size, 56);
        CHECK_INT(layout.runtime_gil, -1);
        CHECK_INT(layout.runtime_gc, -1);
        CHECK_INT(layout.thread_cframe, -1);
    }
}

TEST(a_block_that_is_none_is_refused_in_words)
{
    struct layout layout = {.minor = 77};
    struct error err;
    struct block block = block_of(13);
    ((char *)block.words)[0] = 'y';
    CHECK_INT(read_block(&block, 13, &layout, &err), -ENOTSUP);
    CHECK_CONTAINS(err.text, "publishes no offsets");
    block = block_of(13);
    block.words[2] = 1;
    CHECK_INT(read_block(&block, 13, &layout, &err), -ENOTSUP);
    CHECK_CONTAINS(err.text, "free-threaded");
    block = block_of(14);
    CHECK_INT(read_block(&block, 13, &layout, &err), -ENOTSUP);
    CHECK_CONTAINS(err.text, "version");
    CHECK_INT(layout_from_published(&block, 100, 14, &layout, &err), -ENOTSUP);
    CHECK_INT(read_block(&block, 15, &layout, &err), -ENOTSUP);
    CHECK_INT(read_block(&block, 12, &layout, &err), -ENOTSUP);
    CHECK_INT(layout.minor, 77); // untouched
}

// Every wanted word in turn is made impossible.
TEST(an_impossible_offset_is_refused)
{
    static const uint64_t bad[] = {1ull << 30, UINT32_MAX, UINT64_MAX};
    for (int minor = 13; minor <= 14; minor++)
        for (size_t i = 0; i < FIELDS; i++)
            for (size_t b = 0; b < 3; b++) {
                struct layout layout;
                struct error err;
                struct block block = block_of(minor);
                if (!strcmp(fields[i].name, "thread_size")) // not used to read anything
                    continue;
                block.words[minor == 13 ? fields[i].word_13 : fields[i].word_14] = bad[b];
                CHECK_INT(read_block(&block, minor, &layout, &err), -ENOTSUP);
                CHECK_CONTAINS(err.text, "cannot be");
            }
}

TEST(the_table_has_each_version_once_and_fits_the_bounds)
{
    for (int minor = LAYOUT_MINOR_MIN; minor <= 13; minor++) {
        const struct layout *layout = layout_of(minor);
        CHECK(layout != NULL);
        if (!layout)
            continue;
        CHECK(layout->frame_size > 0 && layout->frame_size <= LAYOUT_FRAME_MAX);
        CHECK(layout->code_start > 0 && layout->code_start <= LAYOUT_CODE_MAX);
        CHECK(layout->frame_back + 8 <= layout->frame_size &&
                layout->frame_code + 8 <= layout->frame_size);
        CHECK(layout->code_first_line + 4 <= layout->code_start);
        CHECK((layout->code_qualname >= 0) == (minor >= 11));
        CHECK((layout->thread_native >= 0) == (minor >= 11));
        CHECK((layout->frame_owner >= 0) == (minor >= 11));
        CHECK((layout->thread_cframe >= 0) == (minor == 11 || minor == 12));
        CHECK((layout->runtime_gil >= 0) == (minor <= 11));
        CHECK((layout->runtime_gc >= 0) == (minor == 8));
    }
    CHECK_INT(layout_table_count, 6);
    CHECK(layout_of(7) == NULL);
    CHECK(layout_of(15) == NULL);
}
