/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * User stacks without frame pointers: by the tables of bpf/unwind.h, which the recorder loads for
 * the code that stacks have led into. Where there is none yet the record says so (missed), and the
 * next stack gets further. Code without .eh_frame is passed by its frame pointer (JITs, Go), or by
 * the first word on its stack that is behind a call (MKL's and other libraries' assembly); and
 * where all fails there is the kernel's own walk along frame pointers.
 *
 * Functions of their own, so that the verifier looks at each once.
 */
#ifndef UPGATE_BPF_UNWIND_BPF_H
#define UPGATE_BPF_UNWIND_BPF_H

#include "bpf/common.bpf.h"
#include "bpf/unwind.h"

const volatile bool have_unwind = false;

enum {
    UNWIND_SPAN_STEPS = 8,      /* halvings of UG_UNWIND_SPANS */
    UNWIND_ROW_STEPS = 16,      /* and of the rows of 64 KiB */
    UNWIND_FRAME_MAX = 1 << 20, /* bytes of a frame that a frame pointer tells of */
    UNWIND_USER_BITS = 47,
    UNWIND_USER_MIN = 1 << 16, /* no code below */
    /* of a stack are looked at for who called; MKL's kernels have 16 to 60 */
    UNWIND_SCAN_WORDS = 128,
    UNWIND_CS_64 = 0x33, /* code segment of 64-bit programs */
};

enum unwind_how { UNWIND_ON, UNWIND_END, UNWIND_LOST, UNWIND_MISSED, UNWIND_CUT };
enum unwind_for { UNWIND_SWITCH, UNWIND_SAMPLE, UNWIND_FAULT, UNWIND_FOR_COUNT };

struct unwind_slab {
    __u32 words[UG_UNWIND_SLAB_WORDS];
};
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1); /* set by the loader where they are wanted */
    __type(key, __u32);
    __type(value, struct unwind_slab);
} unwind_slabs SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, UG_UNWIND_RULES);
    __type(key, __u32);
    __type(value, struct ug_unwind_rule);
} unwind_rules SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 1); /* set by the loader */
    __type(key, __u32);
    __type(value, struct ug_unwind_process);
} unwind_processes SEC(".maps");

struct unwind_state {
    __u64 pc, sp, bp;
    __u32 tgid;
    __u32 count;
    __u32 exact; /* pc is where it runs, not where a call returns to */
    __u32 span;  /* of the last frame: most often that of the next one */
    __u64 frames[UG_USTACK_MAX + 1];
    __u64 words[UNWIND_SCAN_WORDS];
};
struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, UNWIND_FOR_COUNT);
    __type(key, __u32);
    __type(value, struct unwind_state);
} unwind_states SEC(".maps");

static __always_inline __u32 unwind_word(__u32 first_slab, __u32 at)
{
    __u32 number = first_slab + at / UG_UNWIND_SLAB_WORDS;
    struct unwind_slab *slab = bpf_map_lookup_elem(&unwind_slabs, &number);

    return slab ? slab->words[index_of(at, UG_UNWIND_SLAB_WORDS)] : 0;
}

/* The number of the rule that holds there. A table may be replaced just now: what is read then
 * leads nowhere, but never out of the maps. */
__attribute__((noinline)) int unwind_find_rule(__u32 table, __u32 offset)
{
    __u32 region = offset >> UG_UNWIND_REGION_BITS, address = offset & 0xffff, low, high, middle;

    if (!have_unwind)
        return 0;
    region = index_of(region, UG_UNWIND_REGIONS);
    low = unwind_word(table, region);
    high = unwind_word(table, region + 1);
    for (int i = 0; i < UNWIND_ROW_STEPS; i++) {
        if (low + 1 >= high)
            break;
        middle = low + (high - low) / 2;
        if ((unwind_word(table, middle) & 0xffff) <= address)
            low = middle;
        else
            high = middle;
    }
    return unwind_word(table, low) >> 16;
}

/* The number of the last span that begins there or before. Inlined, in three places, it made
 * 75,282 steps of the verifier of task_switch, which has 29,761 with one. */
__attribute__((noinline)) int unwind_find_span(struct ug_unwind_process *process, __u64 address)
{
    __u32 low = 0, high, middle;

    if (!process)
        return 0;
    high = process->count;
    for (int i = 0; i < UNWIND_SPAN_STEPS; i++) {
        if (low + 1 >= high)
            break;
        middle = (low + high) / 2;
        if (process->spans[index_of(middle, UG_UNWIND_SPANS)].begin <= address)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static __always_inline struct ug_unwind_span *unwind_span(
        struct ug_unwind_process *process, struct unwind_state *state, __u64 address)
{
    struct ug_unwind_span *span = &process->spans[index_of(state->span, UG_UNWIND_SPANS)];

    if (address - span->begin < span->bytes)
        return span;
    state->span = unwind_find_span(process, address);
    span = &process->spans[index_of(state->span, UG_UNWIND_SPANS)];
    return address - span->begin < span->bytes ? span : NULL;
}

static __always_inline struct ug_unwind_rule *unwind_rule_at(
        struct unwind_state *state, struct ug_unwind_process *process, __u64 address)
{
    struct ug_unwind_span *span = unwind_span(process, state, address);
    __u32 number;

    if (!span || span->table == UG_UNWIND_NO_TABLE)
        return NULL;
    number = unwind_find_rule(span->table, address - span->begin + span->skip);
    return bpf_map_lookup_elem(&unwind_rules, &number);
}

static __always_inline int unwind_to(struct unwind_state *state, __u64 pc, __u64 sp, __u64 bp)
{
    state->pc = pc;
    state->sp = sp;
    state->bp = bp;
    state->exact = 0;
    if (!pc)
        return UNWIND_END;
    return pc >> UNWIND_USER_BITS ? UNWIND_LOST : UNWIND_ON;
}

/* Whether a call can return there: it is behind one. */
static __always_inline bool unwind_after_call(__u64 address)
{
    __u8 code[8];

    if (address >> UNWIND_USER_BITS || address < UNWIND_USER_MIN ||
            bpf_probe_read_user(code, sizeof(code), (void *)(address - sizeof(code))))
        return false;
    if (code[3] == 0xe8) /* of an address in the instruction */
        return true;
    for (int i = 1; i < 7; i++) /* of one in a register or in memory: 2 to 7 bytes long */
        if (code[i] == 0xff && (code[i + 1] >> 3 & 7) == 2)
            return true;
    return false;
}

/* Whether a frame pointer can have this value where the stack pointer has that one: it then is
 * before a return address. */
static __always_inline bool unwind_is_pointer(__u64 bp, __u64 sp, __u64 pair[2])
{
    return bp >= sp && bp - sp <= UNWIND_FRAME_MAX && !(bp & 7) &&
            !bpf_probe_read_user(pair, 16, (void *)bp) && unwind_after_call(pair[1]);
}

/* The kernel has put the registers on the stack before it called the handler: struct ucontext. */
static __always_inline int unwind_signal(struct unwind_state *state)
{
    __u64 pair[2], bp;

    if (bpf_probe_read_user(&bp, sizeof(bp), (void *)(state->sp + 120)) ||
            bpf_probe_read_user(pair, sizeof(pair), (void *)(state->sp + 160)))
        return UNWIND_LOST;
    if (unwind_to(state, pair[1], pair[0], bp) != UNWIND_ON)
        return UNWIND_LOST;
    state->exact = 1;
    return UNWIND_ON;
}

static __always_inline int unwind_by_rule(struct unwind_state *state, struct ug_unwind_rule *rule)
{
    __u64 cfa, pair[2], bp = state->bp;

    if (rule->cfa == UG_UNWIND_END)
        return UNWIND_END;
    if (rule->cfa == UG_UNWIND_SIGNAL)
        return unwind_signal(state);
    if (rule->cfa == UG_UNWIND_RSP)
        cfa = state->sp + (__s64)rule->cfa_at;
    else if (rule->cfa == UG_UNWIND_RBP)
        cfa = state->bp + (__s64)rule->cfa_at;
    else if (rule->cfa == UG_UNWIND_PLT)
        cfa = state->sp + 8 + ((state->pc & 15) >= (__u32)rule->cfa_at ? 8 : 0);
    else if (bpf_probe_read_user(&cfa, sizeof(cfa), (void *)(state->bp + (__s64)rule->cfa_at)))
        return UNWIND_LOST;
    if (cfa <= state->sp)
        return UNWIND_LOST;
    if (bpf_probe_read_user(pair, sizeof(pair), (void *)(cfa - sizeof(pair))))
        return UNWIND_LOST;
    if (rule->rbp == UG_UNWIND_RBP_FROM_CFA && rule->rbp_at == -(int)sizeof(pair))
        bp = pair[0];
    else if (rule->rbp == UG_UNWIND_RBP_FROM_CFA)
        bpf_probe_read_user(&bp, sizeof(bp), (void *)(cfa + (__s64)rule->rbp_at));
    else if (rule->rbp == UG_UNWIND_RBP_FROM_RBP)
        bpf_probe_read_user(&bp, sizeof(bp), (void *)(state->bp + (__s64)rule->rbp_at));
    return unwind_to(state, pair[1], cfa, bp);
}

struct unwind_scan {
    struct unwind_state *state;
    struct ug_unwind_process *process;
    __u64 sp; /* behind the return address; 0: not found */
    __u32 count;
    __u32 reserved;
};

static long unwind_scan_each(__u64 i, struct unwind_scan *scan)
{
    struct unwind_state *state = scan->state;
    __u64 word = state->words[index_of(i, UNWIND_SCAN_WORDS)];
    struct ug_unwind_rule *rule;

    if (!unwind_after_call(word))
        return 0;
    /* else the recorder looks whether it is code */
    if (unwind_span(scan->process, state, word - 1)) {
        rule = unwind_rule_at(state, scan->process, word - 1);
        if (!rule || !rule->cfa)
            return 0;
    }
    scan->count = i;
    scan->sp = state->sp + (i + 1) * sizeof(word);
    state->pc = word;
    return 1;
}

/* The caller's frame pointer, if it has one and its place was needed: it was saved before the
 * return address. */
static long unwind_scan_pointer(__u64 i, struct unwind_scan *scan)
{
    __u64 pair[2], word = scan->state->words[index_of(i, UNWIND_SCAN_WORDS)];

    if (i >= scan->count)
        return 1;
    if (!unwind_is_pointer(word, scan->sp, pair))
        return 0;
    scan->state->bp = word;
    return 1;
}

__attribute__((noinline)) int unwind_by_scan(__u32 which)
{
    struct unwind_state *state = bpf_map_lookup_elem(&unwind_states, &which);
    struct unwind_scan scan = {.state = state};
    __u64 pair[2];

    if (!have_unwind || !state)
        return UNWIND_LOST;
    scan.process = bpf_map_lookup_elem(&unwind_processes, &state->tgid);
    if (!scan.process || bpf_probe_read_user(state->words, sizeof(state->words), (void *)state->sp))
        return UNWIND_LOST;
    bpf_loop(UNWIND_SCAN_WORDS, unwind_scan_each, &scan, 0);
    if (!scan.sp)
        return UNWIND_LOST;
    if (!unwind_is_pointer(state->bp, scan.sp, pair))
        bpf_loop(UNWIND_SCAN_WORDS, unwind_scan_pointer, &scan, 0);
    return unwind_to(state, state->pc, scan.sp, state->bp);
}

/* What was interrupted may be assembly whose .eh_frame lies: MKL's describes kernels as if they had
 * no frame. */
static __always_inline int unwind_first(struct unwind_state *state,
        struct ug_unwind_process *process, struct ug_unwind_rule *rule, __u32 which)
{
    __u64 sp = state->sp, bp = state->bp;
    int how = unwind_by_rule(state, rule);
    struct ug_unwind_rule *next;

    if (rule->cfa == UG_UNWIND_END || state->exact ||
            (how == UNWIND_ON && unwind_after_call(state->pc)))
        return how;
    next = how == UNWIND_ON ? unwind_rule_at(state, process, state->pc - 1) : NULL;
    if (next && next->cfa == UG_UNWIND_SIGNAL) /* a handler returns to where nothing called it */
        return how;
    state->sp = sp;
    state->bp = bp;
    return unwind_by_scan(which);
}

static __always_inline int unwind_step(
        struct unwind_state *state, struct ug_unwind_process *process, __u32 which)
{
    __u64 address = state->pc - !state->exact;
    struct ug_unwind_rule *rule;
    __u64 pair[2];

    if (!unwind_span(process, state, address))
        return process->full ? UNWIND_LOST : UNWIND_MISSED;
    rule = unwind_rule_at(state, process, address);
    if (rule && rule->cfa)
        return state->exact ? unwind_first(state, process, rule, which)
                            : unwind_by_rule(state, rule);
    if (unwind_is_pointer(state->bp, state->sp, pair))
        return unwind_to(state, pair[1], state->bp + sizeof(pair), pair[0]);
    return unwind_by_scan(which);
}

struct unwind_walk {
    struct unwind_state *state;
    struct ug_unwind_process *process;
    int how;
    __u32 which;
};

static long unwind_each(__u64 i, struct unwind_walk *walk)
{
    struct unwind_state *state = walk->state;

    if (i >= UG_USTACK_MAX)
        return 1;
    state->frames[index_of(i, UG_USTACK_MAX + 1)] = state->pc;
    state->count = i + 1;
    walk->how = unwind_step(state, walk->process, walk->which);
    return walk->how != UNWIND_ON;
}

__attribute__((noinline)) int unwind_run(__u32 which)
{
    struct unwind_state *state = bpf_map_lookup_elem(&unwind_states, &which);
    struct unwind_walk walk = {.state = state, .which = which};

    if (!have_unwind || !state)
        return UNWIND_LOST;
    walk.process = bpf_map_lookup_elem(&unwind_processes, &state->tgid);
    if (!walk.process)
        return UNWIND_MISSED;
    bpf_loop(UG_USTACK_MAX, unwind_each, &walk, 0);
    return walk.how == UNWIND_ON ? UNWIND_CUT : walk.how;
}

/* The state of a task that is in the kernel, at its last instruction outside. NULL: not to be
 * unwound by tables. */
static __always_inline struct unwind_state *unwind_begin(struct task_struct *task, __u32 which)
{
#if defined(__TARGET_ARCH_x86)
    struct unwind_state *state;
    struct pt_regs *regs;

    if (!have_unwind)
        return NULL;
    state = bpf_map_lookup_elem(&unwind_states, &which);
    regs = (struct pt_regs *)bpf_task_pt_regs(task);
    if (!state || !regs || (regs->cs & 0xffff) != UNWIND_CS_64)
        return NULL;
    state->pc = regs->ip;
    state->sp = regs->sp;
    state->bp = regs->bp;
    state->tgid = task->tgid;
    state->count = 0;
    state->exact = 1;
    return state;
#else
    return NULL;
#endif
}

/* The user stack of current into UG_USTACK_MAX addresses at `to`; their number. */
static __always_inline __u32 take_user_stack(
        void *ctx, struct task_struct *task, __u32 which, void *to, bool *ret_missed)
{
    struct unwind_state *state = unwind_begin(task, which);
    __u32 count = 0;
    int how = UNWIND_LOST;
    long bytes;

    if (state) {
        how = unwind_run(which);
        count = state->count;
    }
    *ret_missed = how == UNWIND_MISSED;
    if (!state || (how != UNWIND_END && count < 2)) {
        bytes = bpf_get_stack(ctx, to, UG_USTACK_MAX * 8, BPF_F_USER_STACK);
        return bytes > 0 ? (__u32)bytes / 8 : 0;
    }
    KEEP_VALUE(count);
    count &= UG_USTACK_MAX; /* a power of two, less 1 */
    bpf_probe_read_kernel(to, count * 8, state->frames);
    return count;
}

#endif
