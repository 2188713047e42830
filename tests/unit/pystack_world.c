// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/pystack_world.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/runner.h"
#include "tracer/pystack/machine.h"

static int read_world(void *ctx, struct memory_span *spans, size_t count)
{
    struct world *world = ctx;
    if (world->is_gone)
        return -ESRCH;
    for (size_t i = 0; i < count; i++) {
        uint64_t offset = spans[i].address - WORLD_BASE;
        spans[i].ok = spans[i].address >= WORLD_BASE && offset < WORLD_SIZE &&
                spans[i].len <= WORLD_SIZE - offset;
        if (spans[i].ok)
            memcpy(spans[i].buf, world->bytes + offset, spans[i].len);
    }
    return 0;
}

uint64_t world_take(struct world *world, size_t size)
{
    uint64_t address = WORLD_BASE + world->used;
    world->used += (size + 15) & ~(size_t)15;
    CHECK(world->used <= WORLD_SIZE);
    return address;
}

void world_fill(struct world *world, uint64_t address, const void *bytes, size_t len)
{
    CHECK(address >= WORLD_BASE && address + len <= WORLD_BASE + WORLD_SIZE);
    memcpy(world->bytes + (address - WORLD_BASE), bytes, len);
}

void world_put(struct world *world, uint64_t address, uint64_t value, size_t size)
{
    world_fill(world, address, &value, size); // little endian
}

static void put_field(struct world *world, uint64_t object, int offset, uint64_t value)
{
    if (offset >= 0)
        world_put(world, object + (uint64_t)offset, value, 8);
}

static uint32_t string_state(const struct world *world, unsigned kind, unsigned is_ascii)
{
    return (kind | 1u << 3 | is_ascii << 4) << (world->layout.minor >= 14 ? 16 : 2);
}

uint64_t world_string(struct world *world, const char *text)
{
    size_t len = strlen(text);
    uint64_t at = world_take(world, (size_t)world->layout.ascii_size + len + 1);
    world_put(world, at + 8, world->string_type, 8);
    put_field(world, at, world->layout.unicode_length, len);
    world_put(world, at + (uint64_t)world->layout.unicode_state, string_state(world, 1, 1), 4);
    world_fill(world, at + (uint64_t)world->layout.ascii_size, text, len);
    return at;
}

uint64_t world_wide(struct world *world, unsigned kind, const void *units, size_t count)
{
    uint64_t at = world_take(world, (size_t)world->layout.compact_size + (count + 1) * kind);
    world_put(world, at + 8, world->string_type, 8);
    put_field(world, at, world->layout.unicode_length, count);
    world_put(world, at + (uint64_t)world->layout.unicode_state, string_state(world, kind, 0), 4);
    world_fill(world, at + (uint64_t)world->layout.compact_size, units, count * kind);
    return at;
}

// 4 bytes on the first line, 16 on the next.
static uint64_t world_lines(struct world *world)
{
    static const uint8_t tables[3][4] = {
            [LAYOUT_LINES_LNOTAB] = {4, 1},
            [LAYOUT_LINES_TABLE] = {4, 0, 16, 1},
            [LAYOUT_LINES_LOCATIONS] = {0x80 | 13 << 3 | 1, 0, 0x80 | 13 << 3 | 7, 2},
    };
    enum layout_lines format = layout_lines_of(world->layout.minor);
    size_t len = format == LAYOUT_LINES_LNOTAB ? 2 : 4;
    uint64_t at = world_take(world, (size_t)world->layout.bytes_data + len);
    world_put(world, at + 8, world->bytes_type, 8);
    put_field(world, at, world->layout.bytes_length, len);
    world_fill(world, at + (uint64_t)world->layout.bytes_data, tables[format], len);
    return at;
}

uint64_t world_code(struct world *world, const char *name, const char *file, int first_line)
{
    const struct layout *layout = &world->layout;
    uint64_t at = world_take(world, (size_t)layout->code_start + 64);
    world_put(world, at + 8, world->code_type, 8);
    put_field(world, at, layout->code_name,
            world_string(world, layout->code_qualname < 0 ? name : "short"));
    put_field(world, at, layout->code_qualname, world_string(world, name));
    put_field(world, at, layout->code_file, world_string(world, file));
    put_field(world, at, layout->code_lines, world_lines(world));
    world_put(world, at + (uint64_t)layout->code_first_line, (uint64_t)first_line, 4);
    return at;
}

uint64_t world_frame(struct world *world, uint64_t code, uint64_t back)
{
    const struct layout *layout = &world->layout;
    uint64_t at = world_take(world, (size_t)layout->frame_size + 8);
    put_field(world, at, layout->frame_back, back);
    put_field(world, at, layout->frame_code, layout->minor >= 14 ? code | 1 : code);
    if (layout->minor >= 11)
        put_field(world, at, layout->frame_instruction, code + (uint64_t)layout->code_start + 6);
    else
        world_put(world, at + (uint64_t)layout->frame_instruction, layout->minor == 10 ? 3 : 6, 4);
    return at;
}

void world_leaf(struct world *world, int thread, uint64_t frame)
{
    const struct layout *layout = &world->layout;
    if (layout->thread_frame >= 0)
        put_field(world, world->threads[thread], layout->thread_frame, frame);
    else
        put_field(world, world->cframes[thread], layout->cframe_frame, frame);
}

static void make_threads(struct world *world)
{
    const struct layout *layout = &world->layout;
    for (int i = 0; i < 2; i++)
        world->threads[i] = world_take(world, (size_t)layout->thread_size);
    for (int i = 0; i < 2; i++) {
        uint64_t at = world->threads[i], pthread = world_take(world, 1024);
        world->cframes[i] = world_take(world, 64);
        put_field(world, at, layout->thread_prev, i == 0 ? 0 : world->threads[0]);
        put_field(world, at, layout->thread_next, i == 0 ? world->threads[1] : 0);
        put_field(world, at, layout->thread_interpreter, world->interpreter);
        put_field(world, at, layout->thread_cframe, world->cframes[i]);
        put_field(world, at, layout->thread_id, pthread);
        put_field(world, at, layout->thread_native, WORLD_TID + (unsigned)i);
        world_put(world, pthread + MACHINE_TID_GLIBC, WORLD_TID + (unsigned)i, 4);
    }
}

static void make_interpreter(struct world *world)
{
    const struct layout *layout = &world->layout;
    world->runtime = world_take(world, 8192);
    world->interpreter = world_take(world, 32768);
    world->gil = layout->runtime_gil >= 0 ? world->runtime + (uint64_t)layout->runtime_gil
                                          : world_take(world, 256);
    world->gc = layout->runtime_gc >= 0 ? world->runtime + (uint64_t)layout->runtime_gc
                                        : world->interpreter + (uint64_t)layout->interpreter_gc;
    make_threads(world);
    put_field(world, world->runtime, layout->runtime_interpreters, world->interpreter);
    put_field(world, world->interpreter, layout->interpreter_threads, world->threads[0]);
    put_field(world, world->interpreter, layout->interpreter_gil, world->gil);
    put_field(world, world->gil, layout->gil_holder, world->threads[1]);
    world_put(world, world->gil + (uint64_t)layout->gil_locked, 1, 4);
}

void world_new(struct world *world, int minor)
{
    *world = (struct world){.bytes = calloc(1, WORLD_SIZE)};
    world->layout = *layout_of(minor < 14 ? minor : 13);
    world->layout.minor = minor; // a 3.14 differs from 3.13 in its strings and references
    world->code_type = world_take(world, 16);
    world->string_type = world_take(world, 16);
    world->bytes_type = world_take(world, 16);
    make_interpreter(world);
    CHECK_INT(target_init(&world->target, &world->layout, world->runtime, read_world, world), 0);
    world->target.codes.code_type = world->code_type;
    world->target.codes.string_type = world->string_type;
    world->target.codes.bytes_type = world->bytes_type;
}

void world_free(struct world *world)
{
    target_clear(&world->target);
    free(world->bytes);
}

int world_walk(struct world *world, unsigned tid, struct pystack_frame *frames, size_t max,
        size_t *ret_count, unsigned *ret_flags)
{
    struct target_thread thread;
    memory_refresh(&world->target.memory);
    *ret_flags = 0;
    *ret_count = 0;
    int code = target_thread_find(&world->target, tid, &thread);
    if (code == 0)
        code = target_walk(&world->target, &thread, frames, max, ret_count, ret_flags);
    return code;
}
