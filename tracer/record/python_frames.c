// SPDX-License-Identifier: Apache-2.0
// Python frames of the BPF programs as rows.
#include "tracer/record/python_frames.h"

#include <stdlib.h>
#include <string.h>

#include "common/containers/hash.h"
#include "common/containers/vector.h"
#include "common/strings.h"
#include "tracer/pystack/layout.h"
#include "tracer/pystack/machine.h"

enum {
    FRAMES_WAITING_MAX = 4096, // stacks: an import makes that many new ones in a second
};

struct frames_waiting {
    struct pystack *ps;
    const char *leaf;
    uint32_t id, count;
    size_t words; // where they begin
    bool told;    // it has a row
};

struct python_frames {
    struct stacks *stacks;
    struct frames_waiting *waiting;
    size_t count;
    __u64 *words;
    size_t word_count, word_capacity;
    uint64_t unnamed;
};

struct python_frames *python_frames_new(struct stacks *stacks)
{
    struct python_frames *frames = xcalloc(1, sizeof *frames);
    frames->stacks = stacks;
    frames->waiting = xcalloc(FRAMES_WAITING_MAX, sizeof *frames->waiting);
    return frames;
}

void python_frames_free(struct python_frames *frames)
{
    if (!frames)
        return;
    free(frames->waiting);
    free(frames->words);
    free(frames);
}

bool python_frames_shape(const struct pystack *ps, struct ug_python_process *ret)
{
    uint64_t runtime;
    const struct layout *layout = pystack_layout(ps, &runtime);
#define OFFSET(field) (layout->field < 0 ? UG_PYTHON_NONE : (uint32_t)layout->field)
    *ret = (struct ug_python_process){
            .interpreters = runtime + OFFSET(runtime_interpreters),
            .gil = layout->runtime_gil < 0 ? 0 : runtime + OFFSET(runtime_gil),
            .gc = layout->runtime_gc < 0 ? 0 : runtime + OFFSET(runtime_gc),
            .minor = (uint32_t)layout->minor,
            .interpreter_next = OFFSET(interpreter_next),
            .interpreter_threads = OFFSET(interpreter_threads),
            .interpreter_gil = OFFSET(interpreter_gil),
            .interpreter_gc = OFFSET(interpreter_gc),
            .gil_holder = OFFSET(gil_holder),
            .gil_locked = OFFSET(gil_locked),
            .gc_collecting = OFFSET(gc_collecting),
            .thread_next = OFFSET(thread_next),
            .thread_interpreter = OFFSET(thread_interpreter),
            .thread_id = OFFSET(thread_id),
            .thread_native = OFFSET(thread_native),
            .thread_frame = layout->thread_frame < 0 ? OFFSET(thread_cframe) : OFFSET(thread_frame),
            .cframe_frame = layout->thread_frame < 0 ? OFFSET(cframe_frame) : UG_PYTHON_NONE,
            .control_tid = MACHINE_TID_GLIBC,
            .frame_bytes = OFFSET(frame_size),
            .frame_back = OFFSET(frame_back),
            .frame_code = OFFSET(frame_code),
            .frame_instruction = OFFSET(frame_instruction),
            .frame_owner = OFFSET(frame_owner),
            .code_start = OFFSET(code_start),
    };
#undef OFFSET
    return ret->frame_bytes < UG_PYTHON_FRAME_BYTES;
}

static struct pystack_place frames_place(__u64 word)
{
    int64_t place = (int64_t)(word & (UG_PYTHON_PLACES - 1));
    return (struct pystack_place){.code = word >> UG_PYTHON_PLACE_BITS << UG_PYTHON_CODE_ALIGN_BITS,
            .offset = place == UG_PYTHON_PLACES - 1 ? INT64_MAX : (place - 1) * 2};
}

// How many have a name. One that has none stands in its place among the others: without it, its
// caller would be told to have done what it did.
static size_t frames_named(
        struct pystack *ps, const __u64 *words, size_t count, bool read, struct pystack_frame *ret)
{
    struct pystack_place places[UG_PSTACK_MAX] = {0};
    size_t named = 0;
    for (size_t i = 0; i < count; i++)
        places[i] = frames_place(words[i]);
    pystack_name(ps, places, count, read, ret);
    for (size_t i = 0; i < count; i++) {
        if (ret[i].first_line >= 0)
            named++;
        else
            ret[i] = (struct pystack_frame){.function = "[unknown]"};
    }
    return named;
}

uint32_t python_frames_row(struct python_frames *frames, struct pystack *ps, uint64_t key,
        const char *leaf, const __u64 *words, size_t count)
{
    if (!count || count > UG_PSTACK_MAX)
        return 0;
    key = hash_bytes(
            leaf ? hash_bytes(key, leaf, strlen(leaf)) : key, words, count * sizeof *words);
    uint32_t id = stacks_python_known(frames->stacks, key);
    if (id)
        return id;
    if (frames->count == FRAMES_WAITING_MAX) {
        frames->unnamed++;
        return 0;
    }
    id = stacks_python_reserve(frames->stacks, key);
    frames->words = vector_reserve(
            frames->words, &frames->word_capacity, frames->word_count + count, sizeof *words);
    memcpy(frames->words + frames->word_count, words, count * sizeof *words);
    frames->waiting[frames->count++] =
            (struct frames_waiting){ps, leaf, id, (uint32_t)count, frames->word_count, false};
    frames->word_count += count;
    return id;
}

bool python_frames_wait(const struct python_frames *frames, const struct pystack *ps)
{
    for (size_t i = 0; i < frames->count; i++)
        if (!ps || frames->waiting[i].ps == ps)
            return true;
    return false;
}

// They stand in the order of what waits.
static void frames_close_up(struct python_frames *frames)
{
    size_t at = 0;
    for (size_t i = 0; i < frames->count; i++) {
        struct frames_waiting *one = &frames->waiting[i];
        memmove(frames->words + at, frames->words + one->words, one->count * sizeof *frames->words);
        one->words = at;
        at += one->count;
    }
    frames->word_count = at;
}

void python_frames_name(struct python_frames *frames, struct pystack *ps, bool read)
{
    struct pystack_frame names[UG_PSTACK_MAX];
    size_t kept = 0, words = 0;
    for (size_t i = 0; i < frames->count; i++) {
        struct frames_waiting *one = &frames->waiting[i];
        if (one->ps != ps) {
            words += one->count;
            frames->waiting[kept++] = *one;
            continue;
        }
        size_t named = frames_named(ps, frames->words + one->words, one->count, read, names);
        frames->unnamed += named < one->count;
        stacks_python_store(frames->stacks, one->id, one->leaf, names, named ? one->count : 0);
    }
    frames->count = kept;
    if (frames->word_count > 2 * words) // one process may wait for hours, while others come and go
        frames_close_up(frames);
}

size_t python_frames_bytes(const struct python_frames *frames)
{
    return frames->word_capacity * sizeof *frames->words;
}

void python_frames_tell(struct python_frames *frames)
{
    for (size_t i = 0; i < frames->count; i++) {
        if (!frames->waiting[i].told)
            stacks_python_store(frames->stacks, frames->waiting[i].id, NULL, NULL, 0);
        frames->waiting[i].told = true;
    }
}

uint64_t python_frames_unnamed(const struct python_frames *frames)
{
    return frames->unnamed;
}
