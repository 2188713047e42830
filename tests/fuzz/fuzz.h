// SPDX-License-Identifier: Apache-2.0
// What the targets share. A target is one file fuzz_NAME.c with LLVMFuzzerTestOneInput: libFuzzer
// calls it (preset fuzz, ci/fuzz), and replay.c does with the inputs of tests/fuzz/corpus/NAME
// (unit test fuzz_NAME).
#ifndef UPGATE_TESTS_FUZZ_FUZZ_H
#define UPGATE_TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
// Only where plain bytes would not get through; replay.c does not need them.
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t size_max, unsigned int seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t size_max); // libFuzzer's own

// The rest of an input, taken from its front; what it no longer has is 0.
struct fuzz_input {
    const uint8_t *data;
    size_t size;
};
uint64_t fuzz_take(struct fuzz_input *input, size_t bytes); // at most 8, little endian
// how many there were; the others are 0
size_t fuzz_take_bytes(struct fuzz_input *input, void *ret, size_t bytes);

// A file of this process in memory (/dev/shm): "PREFIX/NAME". All of them are removed at the exit.
// Static; at most 8 names.
const char *fuzz_path(const char *name);
void fuzz_write(const char *path, const void *data, size_t size);
void fuzz_remove(const char *name);            // and what SQLite leaves beside it
void fuzz_sweep(int pid);                      // the files of a process that crashed
int fuzz_memfd(const void *data, size_t size); // the caller closes it
// The whole file, NUL-terminated; the caller frees it.
uint8_t *fuzz_read(const char *path, size_t *ret_size);
// The store of template.py, likewise: where it was built, or what FUZZ_TEMPLATE of the environment
// names.
uint8_t *fuzz_template(size_t *ret_size);

// Whatever the input: an error is a negative errno and says something. Returns rc.
int fuzz_check(int rc, const struct error *err);
// Ends the process where `what` does not hold.
void fuzz_require(int holds, const char *what);

#endif
