/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * How native stacks are unwound without frame pointers: tables made from .eh_frame by
 * tracer/unwind, read by the BPF programs. A table is of 4 MiB of code of one file. Its words:
 * where the rows of each 64 KiB begin (and, one more, where the last end), from the table's first
 * word; then the rows in order: the lower half of the address, and the rule from there on in the
 * upper half. The first row of each 64 KiB that has rows is that of its first byte.
 *
 * A rule tells where the caller's registers are. x86-64: the return address is below the canonical
 * frame address (CFA), which is the caller's stack pointer; of the others only rbp is of use.
 */
#ifndef UPGATE_BPF_UNWIND_H
#define UPGATE_BPF_UNWIND_H

#ifndef __bpf__
#include <linux/types.h>
#endif

enum {
    UG_UNWIND_REGION_BITS = 16,
    UG_UNWIND_REGIONS = 64,                                             /* of a table */
    UG_UNWIND_TABLE_BYTES = UG_UNWIND_REGIONS << UG_UNWIND_REGION_BITS, /* of code */
    UG_UNWIND_HEAD_WORDS = UG_UNWIND_REGIONS + 1,
    UG_UNWIND_SLAB_WORDS = 1024, /* tables begin at slabs */
    UG_UNWIND_SLABS = 4096,      /* 16 MB of kernel memory */
    UG_UNWIND_RULES = 16384,     /* different ones; PyTorch's libraries have 5,000 */
    UG_UNWIND_SPANS = 256,       /* of a process: parts of its code that a stack has led into */
};

enum ug_unwind_cfa {
    UG_UNWIND_NONE = 0, /* nothing is known: the frame pointer may help */
    UG_UNWIND_RSP,      /* rsp + cfa_at */
    UG_UNWIND_RBP,      /* rbp + cfa_at */
    UG_UNWIND_PLT,      /* rsp + 8, and 8 more where the address ends in cfa_at or more (of 16) */
    UG_UNWIND_RBP_AT,   /* what is at rbp + cfa_at */
    UG_UNWIND_SIGNAL,   /* the kernel's frame of a signal handler */
    UG_UNWIND_END,      /* nobody called it */
};

enum ug_unwind_rbp {
    UG_UNWIND_RBP_SAME = 0,
    UG_UNWIND_RBP_FROM_CFA, /* at CFA + rbp_at */
    UG_UNWIND_RBP_FROM_RBP, /* at rbp + rbp_at */
};

struct ug_unwind_rule {
    __u8 cfa; /* enum ug_unwind_cfa */
    __u8 rbp; /* enum ug_unwind_rbp */
    __s16 rbp_at;
    __s32 cfa_at;
};

#define UG_UNWIND_NO_TABLE 0xffffffffu

struct ug_unwind_span {
    __u64 begin;
    __u32 bytes;
    __u32 table; /* its first slab; UG_UNWIND_NO_TABLE: code without .eh_frame */
    __u32 skip;  /* where in the table's code it begins */
    __u32 reserved;
};

struct ug_unwind_process {
    __u32 count;
    __u32 full; /* what lies in no span is not asked for any more */
    struct ug_unwind_span spans[UG_UNWIND_SPANS]; /* in order */
};

_Static_assert(sizeof(struct ug_unwind_rule) == 8, "struct ug_unwind_rule");
_Static_assert(sizeof(struct ug_unwind_span) == 24, "struct ug_unwind_span");

#endif
