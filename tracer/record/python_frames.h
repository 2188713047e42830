// SPDX-License-Identifier: Apache-2.0
// Python frames that the BPF programs took at the moment of a record (bpf/python.h): rows of stacks
// for them, and what the programs must know of an interpreter. A stack that was not seen before
// gets its row now and its names at the next look, some 5 ms later, which knows whether the memory
// of the process can be read without waiting. One thread.
#ifndef UPGATE_TRACER_RECORD_PYTHON_FRAMES_H
#define UPGATE_TRACER_RECORD_PYTHON_FRAMES_H

#include <stdbool.h>

#include "bpf/events.h"
#include "bpf/python.h"
#include "tracer/pystack/pystack.h"
#include "tracer/record/stacks.h"

struct python_frames;

struct python_frames *python_frames_new(struct stacks *stacks);
void python_frames_free(struct python_frames *frames); // NULL ok

// False: this interpreter cannot be walked so.
bool python_frames_shape(const struct pystack *ps, struct ug_python_process *ret);

// The row of a stack; 0: none. key: of the process and all that has changed in it. leaf: as of
// stacks_python.
uint32_t python_frames_row(struct python_frames *frames, struct pystack *ps, uint64_t key,
        const char *leaf, const __u64 *words, size_t count);
// are there stacks without names? NULL: of any process
bool python_frames_wait(const struct python_frames *frames, const struct pystack *ps);
// Names of the stacks of a process that wait. read: its memory may be read; false: as far as they
// are known.
void python_frames_name(struct python_frames *frames, struct pystack *ps, bool read);
size_t python_frames_bytes(const struct python_frames *frames); // memory of the stacks that wait
// before a commit: what waits has a row, without frames
void python_frames_tell(struct python_frames *frames);

// Stacks that lack the name of a frame ("[unknown]", of no file) or all frames for good: a function
// was gone before its name was read, its process was, or there were too many at once.
uint64_t python_frames_unnamed(const struct python_frames *frames);

#endif
