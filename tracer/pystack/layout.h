// SPDX-License-Identifier: Apache-2.0
// Where the fields of CPython's structures stand, by version. 3.8 to 3.12 from layout_table.c,
// which make_layout.py generates from the interpreters' own headers (3.13 too: the counts of
// collections, which it does not publish); 3.13 and later from the _Py_DebugOffsets that stand at
// the start of _PyRuntime in the process itself. All offsets in bytes; -1 where a version has no
// such field.
#ifndef UPGATE_TRACER_PYSTACK_LAYOUT_H
#define UPGATE_TRACER_PYSTACK_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

#define LAYOUT_MINOR_MIN 8
#define LAYOUT_MINOR_MAX 14
#define LAYOUT_FRAME_MAX 512 // of frame_size: 360 in 3.8, some 80 from 3.11
#define LAYOUT_CODE_MAX 512  // of code_start: some 200

// X(field): one list for the struct, the generated table and the tests.
#define LAYOUT_FIELDS(X) \
    X(runtime_interpreters) /* _PyRuntime.interpreters.head */ \
    X(runtime_gil)          /* _PyRuntime.ceval.gil, until 3.11 */ \
    X(runtime_gc)           /* _PyRuntime.gc, in 3.8 */ \
    X(interpreter_next) \
    X(interpreter_threads) /* the first thread state */ \
    X(interpreter_gil)     /* ceval.gil, a pointer, from 3.12 */ \
    X(interpreter_gc)      /* from 3.9 */ \
    X(gil_holder) \
    X(gil_locked) \
    X(gc_collecting) \
    X(thread_size) \
    X(thread_prev) \
    X(thread_next) \
    X(thread_interpreter) \
    X(thread_frame)  /* the leaf frame; -1 in 3.11 and 3.12 */ \
    X(thread_cframe) /* a pointer to what holds the leaf frame: 3.11, 3.12 */ \
    X(thread_id)     /* pthread_self() */ \
    X(thread_native) /* gettid() in the process's own namespace, from 3.11 */ \
    X(cframe_frame) \
    X(frame_size) /* of what is read of a frame */ \
    X(frame_back) \
    X(frame_code) \
    X(frame_instruction) /* f_lasti until 3.10, then a pointer into the code */ \
    X(frame_owner)       /* from 3.11 */ \
    X(code_file) \
    X(code_name) \
    X(code_qualname) /* from 3.11 */ \
    X(code_lines)    /* co_lnotab or co_linetable */ \
    X(code_first_line) \
    X(code_start) /* of the instructions inside the code object, from 3.11; its end until then */ \
    X(unicode_length) \
    X(unicode_state) \
    X(ascii_size)   /* where the characters of an ASCII string begin */ \
    X(compact_size) /* and of any other compact one */ \
    X(bytes_length) \
    X(bytes_data)

struct layout {
    int minor; // of 3.minor
#define LAYOUT_MEMBER(field) int field;
    LAYOUT_FIELDS(LAYOUT_MEMBER)
#undef LAYOUT_MEMBER
};

// How an instruction becomes a line: see line_table.h.
enum layout_lines { LAYOUT_LINES_LNOTAB, LAYOUT_LINES_TABLE, LAYOUT_LINES_LOCATIONS };
enum layout_lines layout_lines_of(int minor);

extern const struct layout layout_table[]; // generated
extern const size_t layout_table_count;
const struct layout *layout_of(int minor); // of the table; NULL: it has none

// Bytes to read at the start of _PyRuntime for the published offsets.
#define LAYOUT_PUBLISHED_SIZE 1024

// From the first `len` bytes of _PyRuntime of a 3.13 or later. -ENOTSUP: free-threaded, no cookie,
// not this version, or offsets that cannot be.
int layout_from_published(
        const void *bytes, size_t len, int minor, struct layout *ret, struct error *err);

#endif
