// SPDX-License-Identifier: Apache-2.0
// A walk has three steps, so that it costs few system calls: follow the chain of frames (they stand
// next to each other: a page or two), then read the heads of all code objects and, last, the leaf
// once more, in one call; then names and lines, which for known code objects need no read at all.
#include <errno.h>
#include <string.h>

#include "tracer/pystack/target.h"

#define OWNED_BY_C 3 // frame.owner from 3.12: 3 and more are entries of the interpreter's loop
#define CODE_BYTES_MAX (16 << 20) // of the instructions of one function

static uint64_t u64_at(const uint8_t *bytes, int offset)
{
    uint64_t value;
    memcpy(&value, bytes + offset, sizeof(value));
    return value;
}

static bool seen_before(const struct target *target, size_t count, uint64_t frame)
{
    for (size_t i = 0; i < count; i++)
        if (target->raw[i].frame == frame)
            return true;
    return false;
}

static uint64_t instruction_at(const struct layout *layout, const uint8_t *frame)
{
    int32_t index;
    if (layout->minor >= 11)
        return u64_at(frame, layout->frame_instruction);
    memcpy(&index, frame + layout->frame_instruction, sizeof(index));
    return (uint64_t)(int64_t)index;
}

// Fill target->raw from the frame at `at` on. 0, or the code of a memory that is gone.
static int follow(struct target *target, uint64_t at, size_t max, size_t *count, unsigned *flags)
{
    const struct layout *layout = &target->layout;
    uint8_t bytes[LAYOUT_FRAME_MAX];
    *count = 0;
    for (size_t step = 0; at != 0; step++) {
        if (step == TARGET_STEPS_MAX || seen_before(target, *count, at)) {
            *flags |= PYSTACK_TORN; // a cycle
            return 0;
        }
        int code = memory_read(&target->memory, at, bytes, (size_t)layout->frame_size);
        if (code == -EFAULT) {
            *flags |= PYSTACK_TORN;
            return 0;
        }
        if (code < 0)
            return code;
        bool is_python = layout->frame_owner < 0 || bytes[layout->frame_owner] < OWNED_BY_C;
        if (is_python && *count == max) {
            *flags |= PYSTACK_CUT;
            return 0;
        }
        if (is_python) {
            uint64_t tag = layout->minor >= 14 ? 7 : 0; // a tagged reference from 3.14
            target->raw[(*count)++] = (struct target_raw){
                    .frame = at,
                    .code = u64_at(bytes, layout->frame_code) & ~tag,
                    .instruction = instruction_at(layout, bytes),
            };
        }
        at = u64_at(bytes, layout->frame_back);
    }
    return 0;
}

// Where in its code the frame is, in bytes; negative: before the first instruction.
static bool code_offset(const struct layout *layout, const struct target_raw *raw, int64_t *ret)
{
    int64_t offset = (int64_t)raw->instruction;
    if (layout->minor >= 11)
        offset = (int64_t)(raw->instruction - raw->code - (uint64_t)layout->code_start);
    else if (layout->minor == 10 && offset > 0 && offset < CODE_BYTES_MAX)
        offset *= 2; // counted in instructions there
    if (offset < -2 || offset > CODE_BYTES_MAX)
        return false;
    *ret = offset;
    return true;
}

// Read the head of each code object of the walk once, and after them the leaf again.
static int read_heads(struct target *target, const struct target_thread *thread, uint64_t leaf,
        size_t count, struct memory_span *spans, size_t *ret_heads, bool *ret_same)
{
    const struct layout *layout = &target->layout;
    uint64_t leaf_now = leaf;
    uint8_t frame[LAYOUT_FRAME_MAX] = {0};
    size_t heads = 0;
    for (size_t i = 0; i < count; i++) {
        size_t h = 0;
        while (h < heads && spans[h].address != target->raw[i].code)
            h++;
        target->raw[i].head = h;
        if (h == heads)
            spans[heads++] = (struct memory_span){.address = target->raw[i].code,
                    .buf = target->heads[h],
                    .len = code_head_size(layout)};
    }
    size_t all = heads;
    spans[all++] = (struct memory_span){thread->leaf_at, &leaf_now, sizeof(leaf_now), false};
    if (count > 0)
        spans[all++] = (struct memory_span){
                target->raw[0].frame, frame, (size_t)layout->frame_size, false};
    int code = memory_read_now(&target->memory, spans, all);
    if (code < 0)
        return code;
    *ret_heads = heads;
    *ret_same = spans[heads].ok && leaf_now == leaf &&
            (count == 0 ||
                    (spans[heads + 1].ok &&
                            instruction_at(layout, frame) == target->raw[0].instruction));
    return 0;
}

static void name_frame(const struct layout *layout, const struct pystack_place *place,
        const struct code *code, struct pystack_frame *frame)
{
    *frame = (struct pystack_frame){.function = "?", .file = "?", .code = place->code};
    if (!code)
        return;
    frame->function = code->function;
    frame->file = code->file;
    frame->first_line = code->first_line;
    if (place->offset != INT64_MAX)
        frame->line = code_line(layout, code, place->offset);
}

int target_walk(struct target *target, const struct target_thread *thread,
        struct pystack_frame *frames, size_t max, size_t *ret_count, unsigned *flags)
{
    struct memory_span spans[PYSTACK_FRAMES_MAX + 2];
    const struct code *codes[PYSTACK_FRAMES_MAX];
    uint64_t leaf = 0;
    size_t count = 0, heads = 0;
    bool is_same = true;
    if (max > PYSTACK_FRAMES_MAX)
        max = PYSTACK_FRAMES_MAX;
    code_cache_trim(&target->codes);
    int code = memory_u64(&target->memory, thread->leaf_at, &leaf);
    if (code == 0)
        code = follow(target, leaf, max, &count, flags);
    if (code == 0)
        code = read_heads(target, thread, leaf, count, spans, &heads, &is_same);
    if (code == -EFAULT) { // the thread state was freed under the walk
        *flags |= PYSTACK_TORN;
        *ret_count = 0;
        return 0;
    }
    if (code < 0)
        return code;
    if (!is_same)
        *flags |= PYSTACK_UNSURE;
    for (size_t h = 0; h < heads; h++)
        codes[h] = spans[h].ok ? code_cache_get(&target->codes, spans[h].address, target->heads[h])
                               : NULL;
    for (size_t i = 0; i < count; i++) {
        struct pystack_place place = {target->raw[i].code, INT64_MAX};
        const struct code *one = codes[target->raw[i].head];
        if (!code_offset(&target->layout, &target->raw[i], &place.offset) || !one)
            *flags |= PYSTACK_TORN;
        name_frame(&target->layout, &place, one, &frames[i]);
    }
    *ret_count = count;
    return 0;
}

static bool is_known(const struct target *target, uint64_t address)
{
    const struct code *code = code_cache_known(&target->codes, address);
    return code && code->round == target->codes.round;
}

// Heads of those of the places that are not known, each once: in one call. False: there is no
// process to read any more.
static bool read_unknown(struct target *target, const struct pystack_place *places, size_t count)
{
    struct memory_span spans[PYSTACK_FRAMES_MAX];
    size_t heads = 0;
    for (size_t i = 0; i < count; i++) {
        size_t h = 0;
        while (h < heads && spans[h].address != places[i].code)
            h++;
        if (h == heads && !is_known(target, places[i].code))
            spans[heads++] = (struct memory_span){
                    places[i].code, target->heads[h], code_head_size(&target->layout), false};
    }
    if (heads && memory_read_now(&target->memory, spans, heads) < 0)
        return false;
    memory_refresh(&target->memory);
    for (size_t h = 0; h < heads; h++)
        if (spans[h].ok)
            code_cache_get(&target->codes, spans[h].address, target->heads[h]);
    return true;
}

void target_name(struct target *target, const struct pystack_place *places, size_t count, bool read,
        struct pystack_frame *frames)
{
    if (read) {
        code_cache_trim(&target->codes);
        read = read_unknown(target, places, count);
    }
    for (size_t i = 0; i < count; i++) {
        bool known = !read || is_known(target, places[i].code);
        const struct code *code = known ? code_cache_known(&target->codes, places[i].code) : NULL;
        name_frame(&target->layout, &places[i], code, &frames[i]);
        if (!code)
            frames[i].first_line = -1;
    }
}
