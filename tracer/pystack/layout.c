// SPDX-License-Identifier: Apache-2.0
#include "tracer/pystack/layout.h"

#include <errno.h>
#include <string.h>

// _Py_DebugOffsets of 3.13 and of 3.14 as CPython declares them (pycore_debug_offsets.h), up to the
// last field that is read here. CPython keeps the order within a minor version, not between two.
struct published_thread {
    uint64_t size, prev, next, interp, current_frame, thread_id, native_thread_id, datastack_chunk;
    uint64_t status;
};
struct published_object_sizes { // of object, type, tuple and list: the same in both
    uint64_t object[2], type[4], tuple[3], list[3];
};
struct published_strings {
    uint64_t bytes_size, bytes_ob_size, bytes_ob_sval;
    uint64_t unicode_size, unicode_state, unicode_length, unicode_ascii_size;
    uint64_t gc_size, gc_collecting;
};
struct published_head {
    char cookie[8];
    uint64_t version, free_threaded;
    uint64_t runtime_size, runtime_finalizing, runtime_interpreters_head;
};
struct published_13 {
    struct published_head head;
    uint64_t interp_size, id, interp_next, threads_head, gc, modules, sysdict, builtins;
    uint64_t ceval_gil, gil, gil_enabled, gil_locked, gil_holder;
    struct published_thread thread;
    uint64_t frame_size, previous, executable, instr_ptr, localsplus, owner;
    uint64_t code_size, filename, name, qualname, linetable, firstlineno, argcount, names, kinds,
            code;
    struct published_object_sizes sizes;
    uint64_t dict[3], float_[2], long_[3];
    struct published_strings strings;
};
struct published_14 {
    struct published_head head;
    uint64_t interp_size, id, interp_next, threads_head, threads_main, gc, modules, sysdict,
            builtins;
    uint64_t ceval_gil, gil, gil_enabled, gil_locked, gil_holder, code_generation, tlbc_generation;
    struct published_thread thread;
    uint64_t frame_size, previous, executable, instr_ptr, localsplus, owner, stackpointer,
            tlbc_index;
    uint64_t code_size, filename, name, qualname, linetable, firstlineno, argcount, names, kinds,
            code;
    uint64_t code_tlbc;
    struct published_object_sizes sizes;
    uint64_t set[4], dict[3], float_[2], long_[3];
    struct published_strings strings;
};
_Static_assert(sizeof(struct published_13) == 73 * 8, "the 73 words of 3.13");
_Static_assert(sizeof(struct published_14) == 83 * 8, "83 words of 3.14");
_Static_assert(sizeof(struct published_14) <= LAYOUT_PUBLISHED_SIZE, "all of it is read");

enum layout_lines layout_lines_of(int minor)
{
    if (minor < 10)
        return LAYOUT_LINES_LNOTAB;
    return minor == 10 ? LAYOUT_LINES_TABLE : LAYOUT_LINES_LOCATIONS;
}

const struct layout *layout_of(int minor)
{
    for (size_t i = 0; i < layout_table_count; i++)
        if (layout_table[i].minor == minor)
            return &layout_table[i];
    return NULL;
}

// What the two versions have in common once the differing blocks are taken apart.
static void take_thread(const struct published_thread *thread, struct layout *ret)
{
    ret->thread_size = (int)thread->size;
    ret->thread_prev = (int)thread->prev;
    ret->thread_next = (int)thread->next;
    ret->thread_interpreter = (int)thread->interp;
    ret->thread_frame = (int)thread->current_frame;
    ret->thread_id = (int)thread->thread_id;
    ret->thread_native = (int)thread->native_thread_id;
}

static void take_strings(const struct published_strings *strings, struct layout *ret)
{
    ret->unicode_length = (int)strings->unicode_length;
    ret->unicode_state = (int)strings->unicode_state;
    ret->ascii_size = (int)strings->unicode_ascii_size;
    // PyCompactUnicodeObject is PyASCIIObject, a length and a pointer.
    ret->compact_size = (int)strings->unicode_ascii_size + 16;
    ret->bytes_length = (int)strings->bytes_ob_size;
    ret->bytes_data = (int)strings->bytes_ob_sval;
    ret->gc_collecting = (int)strings->gc_collecting;
}

// The field names are the same in both structs, so one list serves both. The offsets of the GIL's
// fields are published from the interpreter's start; the GIL itself is reached by ceval.gil.
#define TAKE_COMMON(p, ret) \
    do { \
        (ret)->runtime_interpreters = (int)(p)->head.runtime_interpreters_head; \
        (ret)->interpreter_next = (int)(p)->interp_next; \
        (ret)->interpreter_threads = (int)(p)->threads_head; \
        (ret)->interpreter_gil = (int)(p)->ceval_gil; \
        (ret)->interpreter_gc = (int)(p)->gc; \
        (ret)->gil_locked = (int)((p)->gil_locked - (p)->gil); \
        (ret)->gil_holder = (int)((p)->gil_holder - (p)->gil); \
        (ret)->frame_size = (int)(p)->localsplus; \
        (ret)->frame_back = (int)(p)->previous; \
        (ret)->frame_code = (int)(p)->executable; \
        (ret)->frame_instruction = (int)(p)->instr_ptr; \
        (ret)->frame_owner = (int)(p)->owner; \
        (ret)->code_file = (int)(p)->filename; \
        (ret)->code_name = (int)(p)->name; \
        (ret)->code_qualname = (int)(p)->qualname; \
        (ret)->code_lines = (int)(p)->linetable; \
        (ret)->code_first_line = (int)(p)->firstlineno; \
        (ret)->code_start = (int)(p)->code; \
        take_thread(&(p)->thread, ret); \
        take_strings(&(p)->strings, ret); \
    } while (0)

// An interpreter state is some 100 KiB and _PyRuntime some 170 KiB in 3.13; nothing else nears 64
// KiB.
static int layout_check(const struct layout *layout, struct error *err)
{
    const struct {
        const char *name;
        int value, max;
    } fields[] = {
            {"interpreters.head", layout->runtime_interpreters, 1 << 24},
            {"interp.next", layout->interpreter_next, 1 << 24},
            {"interp.threads.head", layout->interpreter_threads, 1 << 24},
            {"interp.ceval.gil", layout->interpreter_gil, 1 << 24},
            {"interp.gc", layout->interpreter_gc, 1 << 24},
            {"gil.locked", layout->gil_locked, 4096},
            {"gil.last_holder", layout->gil_holder, 4096},
            {"gc.collecting", layout->gc_collecting, 4096},
            {"tstate.prev", layout->thread_prev, 4088},
            {"tstate.next", layout->thread_next, 4088},
            {"tstate.interp", layout->thread_interpreter, 4088},
            {"tstate.current_frame", layout->thread_frame, 4088},
            {"tstate.thread_id", layout->thread_id, 4088},
            {"tstate.native_thread_id", layout->thread_native, 4088},
            {"frame.localsplus", layout->frame_size, LAYOUT_FRAME_MAX},
            {"frame.previous", layout->frame_back, layout->frame_size - 8},
            {"frame.f_executable", layout->frame_code, layout->frame_size - 8},
            {"frame.instr_ptr", layout->frame_instruction, layout->frame_size - 8},
            {"frame.owner", layout->frame_owner, layout->frame_size - 1},
            {"code.co_code_adaptive", layout->code_start, LAYOUT_CODE_MAX},
            {"code.co_filename", layout->code_file, layout->code_start - 8},
            {"code.co_name", layout->code_name, layout->code_start - 8},
            {"code.co_qualname", layout->code_qualname, layout->code_start - 8},
            {"code.co_linetable", layout->code_lines, layout->code_start - 8},
            {"code.co_firstlineno", layout->code_first_line, layout->code_start - 4},
            {"str.length", layout->unicode_length, 120},
            {"str.state", layout->unicode_state, 120},
            {"str.data", layout->ascii_size, 120},
            {"bytes.ob_size", layout->bytes_length, 120},
            {"bytes.ob_sval", layout->bytes_data, 120},
    };
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++)
        if (fields[i].value < 0 || fields[i].value > fields[i].max)
            return error_set(err, -ENOTSUP,
                    "the Python 3.%d publishes %d as the offset of %s, which cannot be",
                    layout->minor, fields[i].value, fields[i].name);
    return 0;
}

int layout_from_published(
        const void *bytes, size_t len, int minor, struct layout *ret, struct error *err)
{
    struct published_head head;
    struct published_13 old;
    struct published_14 new;
    struct layout layout;
    memset(&layout, 0xff, sizeof(layout)); // every field absent: -1
    layout.minor = minor;
    if (minor < 13 || minor > LAYOUT_MINOR_MAX || len < sizeof(new))
        return error_set(
                err, -ENOTSUP, "Python 3.%d publishes no offsets that are known here", minor);
    memcpy(&head, bytes, sizeof(head));
    if (memcmp(head.cookie, "xdebugpy", sizeof(head.cookie)))
        return error_set(
                err, -ENOTSUP, "the Python 3.%d publishes no offsets at its _PyRuntime", minor);
    if (head.version >> 24 != 3 || (int)(head.version >> 16 & 0xff) != minor)
        return error_set(err, -ENOTSUP, "the Python 3.%d publishes offsets of version %#llx", minor,
                (unsigned long long)head.version);
    if (head.free_threaded)
        return error_set(err, -ENOTSUP,
                "the Python 3.%d is free-threaded; only builds with a GIL are "
                "supported",
                minor);
    if (minor == 13) {
        memcpy(&old, bytes, sizeof(old));
        TAKE_COMMON(&old, &layout);
    } else {
        memcpy(&new, bytes, sizeof(new));
        TAKE_COMMON(&new, &layout);
    }
    int code = layout_check(&layout, err);
    if (code == 0)
        *ret = layout;
    return code;
}
