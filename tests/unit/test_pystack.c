// SPDX-License-Identifier: Apache-2.0
// Walks over a Python made of our own memory, in the layout of every version: what is right is read
// right, and what is a lie (cycles, garbage pointers, endless strings, freed threads) ends the
// walk, not the walker.
#include "tracer/pystack/target.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/pystack_world.h"
#include "tests/unit/runner.h"

static struct pystack_frame frames[PYSTACK_FRAMES_MAX];
static size_t count;
static unsigned flags;

static int walk(struct world *world, unsigned tid)
{
    return world_walk(world, tid, frames, PYSTACK_FRAMES_MAX, &count, &flags);
}

// Thread 0: leaf() called by middle() called by root(); returns the leaf frame.
static uint64_t three_frames(struct world *world)
{
    uint64_t root = world_frame(world, world_code(world, "root", "/src/root.py", 10), 0);
    uint64_t middle =
            world_frame(world, world_code(world, "Middle.run", "/src/middle.py", 20), root);
    uint64_t leaf = world_frame(world, world_code(world, "leaf", "/src/leaf.py", 30), middle);
    world_leaf(world, 0, leaf);
    return leaf;
}

static void check_three(void)
{
    static const char *const functions[] = {"leaf", "Middle.run", "root"};
    static const char *const files[] = {"/src/leaf.py", "/src/middle.py", "/src/root.py"};
    static const int first_lines[] = {30, 20, 10};
    CHECK_INT(count, 3);
    CHECK_INT(flags, 0);
    for (size_t i = 0; i < 3 && i < count; i++) {
        CHECK_STR(frames[i].function, functions[i]);
        CHECK_STR(frames[i].file, files[i]);
        CHECK_INT(frames[i].first_line, first_lines[i]);
        CHECK_INT(frames[i].line, first_lines[i] + 1);
    }
}

TEST(every_version_is_walked_leaf_first)
{
    for (int minor = LAYOUT_MINOR_MIN; minor <= LAYOUT_MINOR_MAX; minor++) {
        struct world world;
        struct error err;
        world_new(&world, minor);
        three_frames(&world);
        CHECK_INT(target_check(&world.target, &err), 0);
        CHECK_INT(walk(&world, WORLD_TID), 0);
        check_three();
        CHECK_INT(world.target.codes.misses, 3);
        CHECK_INT(walk(&world, WORLD_TID), 0); // from what is remembered
        check_three();
        CHECK_INT(world.target.codes.misses, 3);
        CHECK_INT(walk(&world, WORLD_TID + 1), 0); // a thread without frames
        CHECK_INT(count, 0);
        CHECK_INT(walk(&world, WORLD_TID + 2), -ENOENT);
        CHECK_INT(walk(&world, 0), -ENOENT);
        world_free(&world);
    }
}

TEST(the_gil_and_the_collector_are_read)
{
    for (int minor = LAYOUT_MINOR_MIN; minor <= LAYOUT_MINOR_MAX; minor++) {
        struct world world;
        uint64_t holder = 0, interpreter = 0;
        bool collecting = true;
        world_new(&world, minor);
        CHECK_INT(target_main_interpreter(&world.target, &interpreter), 0);
        CHECK_INT(interpreter, world.interpreter);
        CHECK_INT(target_gil_holder(&world.target, interpreter, &holder), 0);
        CHECK_INT(holder, world.threads[1]);
        CHECK_INT(target_collecting(&world.target, interpreter, &collecting), 0);
        CHECK(!collecting);
        world_put(&world, world.gil + (uint64_t)world.layout.gil_locked, 0, 4);
        world_put(&world, world.gc + (uint64_t)world.layout.gc_collecting, 1, 4);
        memory_refresh(&world.target.memory);
        CHECK_INT(target_gil_holder(&world.target, interpreter, &holder), 0);
        CHECK_INT(holder, 0);
        CHECK_INT(target_collecting(&world.target, interpreter, &collecting), 0);
        CHECK(collecting);
        world_free(&world);
    }
}

TEST(a_fork_that_kept_its_parents_native_id_is_found_by_its_control_block)
{
    struct world world;
    world_new(&world, 11);
    three_frames(&world);
    for (int i = 0; i < 2; i++)
        world_put(&world, world.threads[i] + (uint64_t)world.layout.thread_native, 99, 8);
    CHECK_INT(walk(&world, WORLD_TID), 0);
    check_three();
    CHECK_INT(walk(&world, WORLD_TID), 0); // and again from the remembered state
    check_three();
    world_free(&world);
}

TEST(a_thread_state_that_left_the_list_is_forgotten)
{
    struct world world;
    world_new(&world, 12);
    three_frames(&world);
    CHECK_INT(walk(&world, WORLD_TID), 0);
    // Thread 0 ends: the list begins with thread 1; its freed memory keeps what it had.
    world_put(&world, world.interpreter + (uint64_t)world.layout.interpreter_threads,
            world.threads[1], 8);
    world_put(&world, world.threads[1] + (uint64_t)world.layout.thread_prev, 0, 8);
    CHECK_INT(walk(&world, WORLD_TID), -ENOENT);
    CHECK_INT(walk(&world, WORLD_TID + 1), 0);
    world_free(&world);
}

TEST(entries_of_c_between_frames_are_left_out)
{
    for (int minor = 12; minor <= 14; minor++) {
        struct world world;
        world_new(&world, minor);
        uint64_t leaf = three_frames(&world);
        for (uint64_t owner = 3; owner <= 4; owner++) {
            uint64_t shim = world_frame(&world, 0, leaf);
            world_put(&world, shim + (uint64_t)world.layout.frame_owner, owner, 1);
            leaf = shim;
        }
        world_leaf(&world, 0, leaf);
        CHECK_INT(walk(&world, WORLD_TID), 0);
        check_three();
        world_free(&world);
    }
}

TEST(a_cycle_ends)
{
    for (int minor = LAYOUT_MINOR_MIN; minor <= LAYOUT_MINOR_MAX; minor++) {
        struct world world;
        world_new(&world, minor);
        uint64_t leaf = three_frames(&world), self = world_frame(&world, 0, 0);
        uint64_t back = (uint64_t)world.layout.frame_back;
        uint64_t tail = world_frame(&world, world_code(&world, "tail", "t.py", 1), leaf);
        world_leaf(&world, 0, tail);
        // The root's back pointer goes to the leaf.
        uint64_t at = leaf, next = 0;
        for (int i = 0; i < 2; i++) {
            memcpy(&next, world.bytes + (at + back - WORLD_BASE), 8);
            at = next;
        }
        world_put(&world, at + back, tail, 8);
        CHECK_INT(walk(&world, WORLD_TID), 0);
        CHECK_INT(count, 4);
        CHECK(flags & PYSTACK_TORN);
        // An entry of C that is its own caller.
        if (world.layout.frame_owner >= 0) {
            world_put(&world, self + (uint64_t)world.layout.frame_owner, 3, 1);
            world_put(&world, self + back, self, 8);
            world_leaf(&world, 0, self);
            CHECK_INT(walk(&world, WORLD_TID), 0);
            CHECK_INT(count, 0);
            CHECK(flags & PYSTACK_TORN);
        }
        world_free(&world);
    }
}

TEST(thread_and_interpreter_lists_that_never_end_do)
{
    struct world world;
    uint64_t interpreter = 0;
    world_new(&world, 12);
    world_put(&world, world.threads[1] + (uint64_t)world.layout.thread_next, world.threads[0], 8);
    CHECK_INT(walk(&world, 12345), -ENOENT);
    world_put(&world, world.interpreter + (uint64_t)world.layout.interpreter_next,
            world.interpreter, 8);
    memory_refresh(&world.target.memory);
    CHECK_INT(walk(&world, 12345), -ENOENT);
    CHECK_INT(target_main_interpreter(&world.target, &interpreter), 0);
    world_free(&world);
}

TEST(bad_pointers_end_the_chain_or_the_name)
{
    static const uint64_t bad[] = {
            1, 4096, 0x7f0000000000ull, WORLD_BASE + WORLD_SIZE - 4, 1ull << 60, UINT64_MAX};
    for (int minor = LAYOUT_MINOR_MIN; minor <= LAYOUT_MINOR_MAX; minor++)
        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
            struct world world;
            world_new(&world, minor);
            uint64_t leaf = three_frames(&world);
            uint64_t tail = world_frame(&world, world_code(&world, "tail", "t.py", 1), bad[i]);
            world_leaf(&world, 0, tail);
            CHECK_INT(walk(&world, WORLD_TID), 0);
            CHECK_INT(count, 1);
            CHECK_STR(frames[0].function, "tail");
            CHECK(flags & PYSTACK_TORN);
            world_put(&world, tail + (uint64_t)world.layout.frame_back, leaf, 8);
            world_put(&world, tail + (uint64_t)world.layout.frame_code, bad[i], 8);
            CHECK_INT(walk(&world, WORLD_TID), 0);
            CHECK_INT(count, 4);
            CHECK_STR(frames[0].function, "?");
            CHECK_INT(frames[0].line, 0);
            CHECK_STR(frames[1].function, "leaf");
            CHECK(flags & PYSTACK_TORN);
            world_leaf(&world, 0, bad[i]);
            CHECK_INT(walk(&world, WORLD_TID), 0);
            CHECK_INT(count, 0);
            world_free(&world);
        }
}

TEST(more_frames_than_asked_for_are_cut_at_the_root)
{
    struct world world;
    world_new(&world, 13);
    uint64_t code = world_code(&world, "again", "r.py", 5), frame = 0;
    for (int i = 0; i < 300; i++)
        frame = world_frame(&world, code, frame);
    world_leaf(&world, 0, frame);
    CHECK_INT(world_walk(&world, WORLD_TID, frames, 16, &count, &flags), 0);
    CHECK_INT(count, 16);
    CHECK_INT(flags, PYSTACK_CUT);
    CHECK_INT(walk(&world, WORLD_TID), 0);
    CHECK_INT(count, PYSTACK_FRAMES_MAX);
    CHECK_INT(flags, PYSTACK_CUT);
    CHECK_STR(frames[255].function, "again");
    CHECK_INT(world.target.codes.misses, 1);
    world_free(&world);
}

TEST(names_of_any_width_and_length_become_short_utf8)
{
    static const uint8_t latin[] = {'a', 0xe9, 'b'};
    static const uint16_t two[] = {'f', 0x20ac, 0xd800, 0x3b1};
    static const uint32_t four[] = {0x1f600, 0x110000, 'x', 0};
    for (int minor = 8; minor <= 14; minor += 3) {
        struct world world;
        world_new(&world, minor);
        struct code_cache *codes = &world.target.codes;
        char buf[64], *whole = malloc(200000);
        memset(whole, 'n', 5000);
        whole[5000] = '\0';
        uint64_t latin_at = world_wide(&world, 1, latin, 3), two_at = world_wide(&world, 2, two, 4);
        uint64_t four_at = world_wide(&world, 4, four, 4), long_at = world_string(&world, whole);
        CHECK_INT(code_read_string(codes, latin_at, buf, sizeof(buf)), 0);
        CHECK_STR(buf,
                "a\xc3\xa9"
                "b");
        CHECK_INT(code_read_string(codes, two_at, buf, sizeof(buf)), 0);
        CHECK_STR(buf, "f\xe2\x82\xac?\xce\xb1");
        CHECK_INT(code_read_string(codes, four_at, buf, sizeof(buf)), 0);
        CHECK_STR(buf, "\xf0\x9f\x98\x80?x?");
        CHECK_INT(code_read_string(codes, four_at, buf, 5), 0);
        CHECK_STR(buf, "\xf0\x9f\x98\x80"); // cut between characters
        CHECK_INT(code_read_string(codes, long_at, buf, sizeof(buf)), 0);
        CHECK_INT(strlen(buf), sizeof(buf) - 1);
        CHECK_INT(code_read_string(codes, long_at, whole, PYSTACK_STRING_MAX), 0);
        CHECK_INT(strlen(whole), PYSTACK_STRING_MAX - 1);
        free(whole);
        world_free(&world);
    }
}

TEST(strings_that_lie_about_themselves_are_none)
{
    struct world world;
    char buf[64];
    world_new(&world, 12);
    struct code_cache *codes = &world.target.codes;
    uint64_t name = world_string(&world, "honest");
    CHECK_INT(code_read_string(codes, name, buf, sizeof(buf)), 0);
    CHECK_STR(buf, "honest");
    const uint64_t lengths[] = {UINT64_MAX, 1ull << 63};
    for (size_t i = 0; i < 2; i++) {
        world_put(&world, name + (uint64_t)world.layout.unicode_length, lengths[i], 8);
        memory_refresh(&world.target.memory);
        CHECK_INT(code_read_string(codes, name, buf, sizeof(buf)), -EFAULT);
    }
    world_put(&world, name + (uint64_t)world.layout.unicode_length, 6, 8);
    for (uint32_t kind = 0; kind < 8; kind++) {
        world_put(&world, name + (uint64_t)world.layout.unicode_state, kind << 2 | 1u << 5, 4);
        memory_refresh(&world.target.memory);
        CHECK_INT(code_read_string(codes, name, buf, sizeof(buf)),
                kind == 1 || kind == 2 || kind == 4 ? 0 : -EFAULT);
    }
    uint64_t at_end = WORLD_BASE + WORLD_SIZE - 48; // its characters stand behind the end of memory
    world_put(&world, at_end + 8, world.string_type, 8);
    world_put(&world, at_end + (uint64_t)world.layout.unicode_length, 1 << 20, 8);
    world_put(
            &world, at_end + (uint64_t)world.layout.unicode_state, 1u << 2 | 1u << 5 | 1u << 6, 4);
    memory_refresh(&world.target.memory);
    CHECK_INT(code_read_string(codes, at_end, buf, sizeof(buf)), -EFAULT);
    CHECK_INT(code_read_string(codes, world.threads[0], buf, sizeof(buf)), -EFAULT); // another type
    world_free(&world);
}

TEST(another_object_at_a_known_address_is_read_anew)
{
    struct world world;
    world_new(&world, 11);
    uint64_t leaf = three_frames(&world), code = 0;
    CHECK_INT(walk(&world, WORLD_TID), 0);
    memcpy(&code, world.bytes + (leaf + (uint64_t)world.layout.frame_code - WORLD_BASE), 8);
    world_put(&world, code + (uint64_t)world.layout.code_qualname, world_string(&world, "newcomer"),
            8);
    world_put(&world, code + (uint64_t)world.layout.code_first_line, 77, 4);
    CHECK_INT(walk(&world, WORLD_TID), 0);
    CHECK_STR(frames[0].function, "newcomer");
    CHECK_INT(frames[0].line, 78);
    CHECK_STR(frames[1].function, "Middle.run");
    CHECK_INT(world.target.codes.misses, 4);
    CHECK_INT(world.target.codes.count, 3);
    world_free(&world);
}

// Frames that somebody else has walked: a code object is read once a round, and never where its
// memory must be left alone.
TEST(found_frames_are_named_and_read_again_in_a_new_round)
{
    struct world world;
    world_new(&world, 11);
    uint64_t leaf = world_code(&world, "leaf", "/src/leaf.py", 30),
             root = world_code(&world, "root", "/src/root.py", 10);
    struct pystack_place places[] = {
            {leaf, 6}, {root, INT64_MAX}, {WORLD_BASE + 8, 6}, {0x1238, 6}};
    target_name(&world.target, places, 4, false, frames);
    for (size_t i = 0; i < 4; i++)
        CHECK_INT(frames[i].first_line, -1);
    target_name(&world.target, places, 4, true, frames);
    CHECK_STR(frames[0].function, "leaf");
    CHECK_STR(frames[0].file, "/src/leaf.py");
    CHECK_INT(frames[0].line, 31);
    CHECK_STR(frames[1].function, "root");
    CHECK_INT(frames[1].line, 0);        // not known where in it
    CHECK_INT(frames[2].first_line, -1); // no code object
    CHECK_INT(frames[3].first_line, -1); // no memory
    CHECK(!code_cache_refresh(&world.target.codes, true));
    world_put(&world, leaf + (uint64_t)world.layout.code_qualname, world_string(&world, "another"),
            8);
    target_name(&world.target, places, 2, true, frames);
    CHECK_STR(frames[0].function, "leaf"); // of this round
    CHECK(!code_cache_refresh(&world.target.codes, false));
    target_name(&world.target, places, 2, false, frames);
    CHECK_STR(frames[0].function, "leaf");
    target_name(&world.target, places, 2, true, frames);
    CHECK_STR(frames[0].function, "another");
    CHECK_STR(frames[1].function, "root");
    CHECK(code_cache_refresh(&world.target.codes, false)); // and that is told, once
    CHECK(!code_cache_refresh(&world.target.codes, false));
    world_put(&world, root + 8, 1, 8); // its type: no code object any more
    CHECK(code_cache_refresh(&world.target.codes, true));
    target_name(&world.target, places, 2, true, frames);
    CHECK_INT(frames[1].first_line, -1);
    world.is_gone = true;
    code_cache_refresh(&world.target.codes, true);
    target_name(&world.target, places, 1, false, frames);
    CHECK_STR(frames[0].function, "another");
    target_name(&world.target, places, 1, true, frames); // nothing to be read: as it was known
    CHECK_STR(frames[0].function, "another");
    world_free(&world);
}

TEST(the_code_objects_that_are_remembered_are_bounded)
{
    struct world world;
    uint8_t head[LAYOUT_CODE_MAX] = {0};
    world_new(&world, 12);
    uint64_t code = world_code(&world, "f", "f.py", 1);
    memcpy(head, world.bytes + (code - WORLD_BASE), (size_t)world.layout.code_start);
    for (uint64_t i = 0; i < 3 * CODE_CACHE_ENTRIES; i++) {
        if (i % 100 == 0)
            code_cache_trim(&world.target.codes);
        CHECK(code_cache_get(&world.target.codes, 0x10000 + i * 64, head) != NULL);
        CHECK(world.target.codes.count < CODE_CACHE_ENTRIES + 100);
    }
    CHECK_INT(world.target.codes.misses, 3 * CODE_CACHE_ENTRIES);
    world_free(&world);
}

// Between the two looks at the leaf it moves: the reader itself advances the instruction.
static memory_fn below;
static struct world *moving;
static int read_moving(void *ctx, struct memory_span *spans, size_t n)
{
    int code = below(ctx, spans, n);
    uint64_t at = moving->target.raw[0].frame + (uint64_t)moving->layout.frame_instruction;
    if (n > 1 && moving->target.raw[0].frame)
        memcpy((uint8_t *)spans[n - 1].buf + moving->layout.frame_instruction, &at, 8);
    return code;
}

TEST(a_leaf_that_moves_is_unsure)
{
    struct world world;
    world_new(&world, 13);
    three_frames(&world);
    below = world.target.memory.fn;
    moving = &world;
    world.target.memory.fn = read_moving;
    CHECK_INT(walk(&world, WORLD_TID), 0);
    CHECK_INT(count, 3);
    CHECK_INT(flags, PYSTACK_UNSURE);
    world_free(&world);
}

TEST(a_process_that_ends_is_said)
{
    struct world world;
    struct error err;
    world_new(&world, 12);
    three_frames(&world);
    CHECK_INT(walk(&world, WORLD_TID), 0);
    world.is_gone = true;
    CHECK_INT(walk(&world, WORLD_TID), -ESRCH);
    CHECK_INT(target_check(&world.target, &err), -ESRCH);
    world_free(&world);
}

TEST(structures_that_do_not_fit_are_refused)
{
    struct world world;
    struct error err;
    world_new(&world, 12);
    world_put(&world, world.threads[0] + (uint64_t)world.layout.thread_interpreter,
            world.interpreter + 8, 8);
    CHECK_INT(target_check(&world.target, &err), -ENOTSUP);
    CHECK_CONTAINS(err.text, "3.12");
    world_put(&world, world.runtime + (uint64_t)world.layout.runtime_interpreters, 12345, 8);
    CHECK_INT(target_check(&world.target, &err), -ENOTSUP);
    world_put(&world, world.runtime + (uint64_t)world.layout.runtime_interpreters, 0, 8);
    CHECK_INT(target_check(&world.target, &err), -ENOENT);
    CHECK_CONTAINS(err.text, "not started");
    world_free(&world);
}

// Any byte, any word, any version: never more frames than asked for, always strings, never a bad
// read (the sanitizer looks).
TEST(random_damage_never_breaks_the_walker)
{
    srand(20261);
    for (int minor = LAYOUT_MINOR_MIN; minor <= LAYOUT_MINOR_MAX; minor++) {
        struct world world;
        world_new(&world, minor);
        three_frames(&world);
        uint8_t *whole = malloc(WORLD_SIZE);
        memcpy(whole, world.bytes, WORLD_SIZE);
        for (int round = 0; round < 1500; round++) {
            for (int i = rand() % 8; i >= 0; i--) {
                size_t at = (size_t)rand() % (world.used / 8) * 8;
                uint64_t inside = WORLD_BASE + (uint64_t)rand() % WORLD_SIZE,
                         noise = (uint64_t)rand() << 33 | (unsigned)rand();
                world_put(&world, WORLD_BASE + at, rand() % 2 ? inside : noise, rand() % 4 ? 8 : 1);
            }
            if (walk(&world, WORLD_TID) == 0) {
                CHECK(count <= PYSTACK_FRAMES_MAX);
                for (size_t i = 0; i < count; i++)
                    CHECK(strlen(frames[i].function) < PYSTACK_STRING_MAX &&
                            strlen(frames[i].file) > 0);
            }
            memcpy(world.bytes, whole, WORLD_SIZE);
        }
        struct code_cache *codes = &world.target.codes; // it remembers damaged names: begin anew
        struct code_cache fresh;
        CHECK_INT(code_cache_init(&fresh, codes->layout, codes->memory), 0);
        code_cache_clear(codes);
        *codes = fresh;
        CHECK_INT(walk(&world, WORLD_TID), 0);
        check_three();
        free(whole);
        world_free(&world);
    }
}
