// SPDX-License-Identifier: Apache-2.0
// .eh_frame compiled into the tables of bpf/unwind.h: 4 MiB of code at a time, so that of a library
// only what runs costs anything. One thread.
//
// All of PyTorch 2.13's libtorch_cpu.so, 335,198 functions: 2,253,177 words (9 MB), 1,398 rules,
// 104 ms on an EPYC (UPGATE_UNWIND_TIMES=1 UPGATE_UNWIND_LIBRARY=… test_unwind cost
// another_library_as_elfutils_reads_it; the latter finds no rule that elfutils has and this has
// not, or has otherwise). elfutils has no interface to what changes where.
#ifndef UPGATE_TRACER_UNWIND_UNWIND_TABLE_H
#define UPGATE_TRACER_UNWIND_UNWIND_TABLE_H

#include "bpf/unwind.h"
#include "common/containers/map.h"
#include "tracer/symbols/eh_file.h"

// The rules of all tables, each once. Number 0 is UG_UNWIND_NONE.
struct unwind_rules { // unwind_rules_init
    struct ug_unwind_rule *all;
    uint32_t count;
    uint64_t dropped; // did not fit
    struct map numbers;
};

struct unwind_table {
    uint32_t *words; // as bpf/unwind.h describes them, up to a whole slab; the rest are 0
    uint32_t count, slabs;
    uint32_t functions, damaged; // of the latter nothing is known
};

void unwind_rules_init(struct unwind_rules *rules);
void unwind_rules_free(struct unwind_rules *rules);

// The table of the code from `begin` on (a virtual address in the file), UG_UNWIND_TABLE_BYTES or
// less, until `end`. 0; -ENODATA: no function there, or not of x86-64. On failure *ret is empty.
int unwind_table_build(struct eh_file *file, uint64_t begin, uint64_t end,
        struct unwind_rules *rules, struct unwind_table *ret);
void unwind_table_free(struct unwind_table *table);

#endif
