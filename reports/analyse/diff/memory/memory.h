// SPDX-License-Identifier: Apache-2.0
// Where the memory is: of a workload whose peak differs, by kind and file, and by who touched or
// allocated it. Internal to this room and its unit tests.
#ifndef UPGATE_DIFF_MEMORY_H
#define UPGATE_DIFF_MEMORY_H

#include "reports/analyse/diff/diff_input.h"

// Where the memory is (memory.c): fills ret where peak_memory differs beyond its margin, and
// ret_gpu where peak_gpu_memory does; else leaves them as they are.
int diff_memory(const struct diff_input *input, struct diff_memory *ret,
        struct diff_memory *ret_gpu, struct error *err);
// gpu_memory.c: the traced launches that told of their GPU memory, by id; the caller frees. Fills
// memory->touches with who allocated what was held at the peak, from so many bytes on, where every
// launch has recorded allocations.
struct diff_gpu_launch {
    int64_t id, step_ns; // step_ns: when its first step began; INT64_MAX: it has none
    int side;
    // tensors, held: NAN: not told. held: most that a process had allocated at once
    double reserved, tensors, held;
};
int diff_gpu_memory(const struct diff_input *input, struct diff_memory *memory, double least,
        struct diff_gpu_launch **ret_launches, size_t *ret_count, struct error *err);
// And who touched it (touched.c): touches of the memory that is told, from so many bytes on.
int diff_touched(const struct diff_input *input, struct diff_memory *memory, double least,
        struct error *err);
// The same of bytes whose code is known: the side of each launch, and what each one's code has.
// Groups, judges, fills touches.
struct diff_touch_given {
    size_t launch;           // its number
    struct diff_touch touch; // its names; a caller decides which code is the same
    double bytes;
    bool start; // before the first step
};
void diff_touched_given(const struct diff_input *input, struct diff_memory *memory,
        const int *sides, size_t launch_count, const struct diff_touch_given *given, size_t count,
        double least);
// Who allocates on a GPU, of the two stacks of a thread (0: none): "Adam.step",
// "torch/optim/adam.py", else "fill", "libplant.so". NULL: they do not say.
int diff_touched_code(const struct diff_input *input, int64_t user_stack, int64_t python_stack,
        const char **ret_function, const char **ret_module, struct error *err);
// Of two things that hold memory, for qsort: those told first, losses then gains, each by size. 0:
// as much.
int diff_memory_order(bool told_a, double delta_a, bool told_b, double delta_b);
// "libtorch_cpu.so.1.13.0" -> "libtorch_cpu.so": a file as both sides have it.
const char *diff_memory_key(struct arena *arena, const char *name);

#endif
