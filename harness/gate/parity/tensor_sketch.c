// SPDX-License-Identifier: Apache-2.0
// Raw bytes of a tensor to its sketch, a piece at a time. Reads nothing of the store.
#include "harness/gate/parity/tensor_sketch.h"

#include <stdlib.h>

#include "common/strings.h"
#include "reports/analyse/dtype.h"
#include "reports/analyse/sketch.h"

enum { SKETCH_PIECE = 1024 };
_Static_assert(TENSOR_SKETCH_BYTES == SKETCH_SUMS * sizeof(double), "one sketch, one size");

double *tensor_sketch(const char *dtype, const void *bytes, size_t len, size_t count)
{
    enum dtype type = dtype_from_name(dtype);
    size_t width = dtype_bytes(type);
    if (!width || len / width != count || count <= SKETCH_SUMS)
        return NULL;
    struct sketch *sketch = xcalloc(1, sizeof *sketch);
    double *sums = xcalloc(SKETCH_SUMS, sizeof *sums), piece[SKETCH_PIECE];
    const char *at = bytes;
    sketch_begin(sketch, count);
    for (size_t from = 0, some; from < count; from += some) {
        some = count - from < SKETCH_PIECE ? count - from : SKETCH_PIECE;
        dtype_decode(type, at + from * width, some, piece);
        sketch_add(sketch, piece, some);
    }
    sketch_end(sketch, sums);
    free(sketch);
    return sums;
}
