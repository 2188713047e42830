// SPDX-License-Identifier: Apache-2.0
// Call frame information of one function (an FDE of .eh_frame, with its CIE) as rules from address
// to address. x86-64 only: arm64's compilers keep frame pointers. What a rule cannot say becomes
// UG_UNWIND_NONE.
#ifndef UPGATE_TRACER_UNWIND_CFI_H
#define UPGATE_TRACER_UNWIND_CFI_H

#include "bpf/unwind.h"
#include "tracer/symbols/eh_file.h"
#include "tracer/symbols/eh_record.h"

enum {
    CFI_CIES = 8,          // remembered; a linked library has one to four
    CFI_CIE_BYTES = 256,   // of the initial instructions
    CFI_STATES_MAX = 16,   // remember_state within another
    CFI_STEPS_MAX = 16384, // instructions of one function
};

struct cfi_cie {
    uint64_t address; // 0: free
    bool usable;
    struct eh_cie head;
    size_t bytes;
    uint8_t code[CFI_CIE_BYTES];
};

struct cfi { // = {0} knows none
    struct cfi_cie cies[CFI_CIES];
    uint32_t next;
};

typedef void (*cfi_emit)(void *context, uint64_t address, struct ug_unwind_rule rule);

// The rules of the function that the record at `frame` describes: each with the address from which
// it holds, in ascending order. *ret_begin, *ret_end: its code. False: damaged, or not understood;
// nothing, or not all, has been emitted then.
bool cfi_function(struct cfi *cfi, struct eh_file *file, uint64_t frame, uint64_t *ret_begin,
        uint64_t *ret_end, cfi_emit emit, void *context);

#endif
