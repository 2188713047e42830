// SPDX-License-Identifier: Apache-2.0
// Where an interpreter keeps its static data: the writable segment, bss included, of its program
// file (python3.11) and of libpython. The GIL lies there; the locks of Python objects are on the
// heap.
#ifndef UPGATE_TRACER_RECORD_PYTHON_DATA_H
#define UPGATE_TRACER_RECORD_PYTHON_DATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PYTHON_DATA_MAX = 4 };

struct python_data {
    size_t count;
    struct {
        uint64_t begin, end;
    } ranges[PYTHON_DATA_MAX];
};

// count 0: it has none. 0, or -errno: what it maps cannot be read; -EAGAIN, -EIO: not now, as
// somebody holds its mmap lock.
int python_data_find(uint32_t tgid, struct python_data *ret);
bool python_data_holds(const struct python_data *data, uint64_t address);

#endif
