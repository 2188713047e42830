// SPDX-License-Identifier: Apache-2.0
// Names and sizes of the types of kernels.h.
#include "kernels/kernels.h"

const char *kernel_type_name(enum kernel_type type)
{
    return type == KERNEL_FLOAT32     ? "float32"
            : type == KERNEL_FLOAT16  ? "float16"
            : type == KERNEL_BFLOAT16 ? "bfloat16"
                                      : "unknown";
}

size_t kernel_type_bytes(enum kernel_type type)
{
    return type == KERNEL_FLOAT32 ? 4 : 2;
}
