// SPDX-License-Identifier: Apache-2.0
// Names of kernels, functions and Python places made comparable between versions: without template
// arguments that are types of one version only, hashes, addresses, architectures (sm80, avx2,
// avx512), version suffixes (cudnn_v8), lambda numbers, ABI tags. Pure functions.
#ifndef UPGATE_ANALYSE_NAMES_H
#define UPGATE_ANALYSE_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    NAMES_LENGTH_MAX = 512, // of what is written, longer input is cut; input may be 64 KB and more
    NAMES_INSIDE_MAX = 100,
};

// What two versions of one function have in common. Returns the length.
size_t names_normalise(const char *name, char *buf, size_t buf_size);
// For people: namespaces and template arguments cut to what tells functions apart, at most `max`
// bytes, whole UTF-8.
size_t names_short(const char *name, char *buf, size_t buf_size, size_t max);
// The same for a kernel or function alone on its line: what a template of a general name
// ("cutlass::Kernel2") is of.
size_t names_label(const char *name, char *buf, size_t buf_size, size_t max);
// "layers.3.attn.q" and "layers.17.attn.q" give "layers.*.attn.q"; paths lose site-packages and the
// like.
size_t names_place(const char *place, char *buf, size_t buf_size);
// Of a library's file: "libtorch_cpu.so.1.13.0" -> "libtorch_cpu.so", "libc-2.31.so" -> "libc.so",
// "libgomp-a34b3233.so.1" -> "libgomp.so",
// "_C.cpython-311-x86_64-linux-gnu.so" -> "_C.so", "python3.11" -> "python". Returns the length.
size_t names_library(const char *name, char *buf, size_t buf_size);
// 0 to 1: how much of their words two normalised names share (Dice over words, order ignored).
double names_similarity(const char *a, const char *b);
// The same in two steps, for many comparisons: hashes of the words, sorted; the number of them, at
// most max.
size_t names_words(const char *name, uint32_t *ret, size_t max);
double names_words_similarity(const uint32_t *a, size_t count_a, const uint32_t *b, size_t count_b);

// Is one of them generated code that has an operator in its name which the other one's name holds
// too ("gelu", "layer", "cat")?
bool names_operator_shared(const char *a, const char *b);
// Of a kernel whose template does many operators' work: "GeluBackward elementwise", "sum reduce";
// false: it is no such one.
bool names_operator_of(const char *name, char *buf, size_t buf_size);

// A native function of Python's interpreter.
bool names_is_interpreter(const char *name, const char *module);
// Has a native function no name, but "libfoo.so+0x1234"? NULL: no.
bool names_is_nameless(const char *name);
// Is that number where the function begins? Else it is the address itself, which is its offset too:
// of code without unwind information, and of stores from before it was read. offset: as the store
// has it; negative: none.
bool names_has_start(const char *name, int64_t offset);

// What a function without a name is inside of: the nearest operator of a framework around it
// ("at::_ops::index_add"), else the nearest function with a name of its own library or the
// framework. For all who show frames.
struct names_inside {
    const char *module; // its own
    const char *found, *nearest;
};
// The next frame further out. False: none beyond it is wanted. name, module: NULL ok; they must
// live until the text is made.
bool names_inside_next(struct names_inside *inside, const char *name, const char *module);
// 0: not known
size_t names_inside_text(const struct names_inside *inside, char *buf, size_t buf_size);

#endif
