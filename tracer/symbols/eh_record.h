// SPDX-License-Identifier: Apache-2.0
// Records of .eh_frame, once they are read: the numbers that they are made of, what a CIE says of
// its FDEs, which code an FDE describes. What stands behind that, call frame instructions, is
// tracer/unwind's. Pure; little endian, as x86-64 and arm64 are.
#ifndef UPGATE_TRACER_SYMBOLS_EH_RECORD_H
#define UPGATE_TRACER_SYMBOLS_EH_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Bytes of the file; nothing is read behind the end, and then `bad` says so.
struct eh_bytes {
    const uint8_t *at, *end;
    bool bad;
};

uint64_t eh_bytes_fixed(struct eh_bytes *bytes, size_t size); // at most 8
uint64_t eh_bytes_uleb(struct eh_bytes *bytes);
int64_t eh_bytes_sleb(struct eh_bytes *bytes);
struct eh_bytes eh_bytes_block(struct eh_bytes *bytes); // with its length before it

struct eh_cie {
    bool has_augmentation, signal;
    uint8_t pointer; // how FDEs write addresses
    uint64_t code_unit, return_register;
    int64_t data_unit;
};

// A record without its length. False: no CIE, damaged, or its FDEs cannot be read by what is known
// of augmentations. *bytes is left at the initial instructions.
bool eh_cie_read(struct eh_bytes *bytes, struct eh_cie *ret);
// Where the CIE is of the FDE at `frame`, whose record without its length this is; 0: it is none.
// Then the rest of it: the code it is of. False: damaged. *bytes is left at the instructions.
uint64_t eh_fde_cie(struct eh_bytes *bytes, uint64_t frame);
bool eh_fde_read(struct eh_bytes *bytes, uint64_t frame, const struct eh_cie *cie,
        uint64_t *ret_begin, uint64_t *ret_end);

#endif
