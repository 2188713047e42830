// SPDX-License-Identifier: Apache-2.0
// The few facts that are wanted of an interpreter's ELF file: where symbols stand, how its
// addresses map to a process's, and which version it is. The file is another user's: every number
// in it is bounded, and it is read, never mapped (a file cut short under a mapping kills the
// reader).
#ifndef UPGATE_TRACER_PYSTACK_IMAGE_H
#define UPGATE_TRACER_PYSTACK_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

struct image_symbol {
    const char *name; // wanted
    uint64_t value;   // as in the file; 0: not defined there
};

// Fill the wanted symbols that the file defines, from .dynsym and then .symtab. -ENOEXEC: not a
// 64-bit ELF file, or damaged; -ENOTSUP: of another machine than this; -EIO: could not be read.
int image_symbols(int fd, struct image_symbol *wanted, size_t count, struct error *err);

// Address of a section in the file's own terms; -ENOENT: no such section.
int image_section(int fd, const char *name, uint64_t *ret);

// What to add to an address of the file for a process that has mapped its byte `offset` at `start`.
int image_bias(int fd, uint64_t start, uint64_t offset, uint64_t *ret, struct error *err);

// The version that an interpreter until 3.10 carries as a constant string, "3.8.18". minor: which
// to look for, or -1: any that is supported. -ENOENT: none.
int image_version(int fd, int minor, char *ret, size_t ret_size);

#endif
