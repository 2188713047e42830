/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Calls of one function as steps. Breakpoints (uprobes) stand at its first instruction and at the
 * places it returns to, which calls.c learns from the first call of each. No uretprobe: it puts an
 * address of its own on the stack, and an exception that unwinds through the frame ends the program
 * there.
 *
 * A process is held by SIGSTOP, which it takes before its next instruction. The signal is sent
 * before the event that tells of it: whoever reads the event and lets it go must not come first.
 */
#include "bpf/kernel.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#include "bpf/calls_events.h"

enum {
    STOP = 19,            /* SIGSTOP on x86 and arm64 */
    WAKE_EVERY = 256,     /* steps: 14 KiB of the ring */
    STRETCH_LOOKS = 4096, /* at the clock, 25 to 40 ns each */
    STRETCH_ROUNDS = 64,  /* of them, 6 to 10 ms: longer ones are left to the reader, which comes up
                             to 0.3 ms late */
};

struct signal_struct {
    atomic_t live;
    int group_exit_code;
} __attribute__((preserve_access_index));

struct task_struct___calls {
    struct signal_struct *signal;
} __attribute__((preserve_access_index));

/* Context of a uprobe: interface to user space, not relocated. */
struct call_context {
#if defined(__TARGET_ARCH_x86)
    __u64 r15_to_orig_rax[16];
    __u64 ip, cs, flags, sp, ss;
#else
    __u64 regs[31];
    __u64 sp, ip, pstate;
#endif
};

/* processes are stopped: at the gate, and until we have looked at what they map */
const volatile bool holds = false;
const volatile bool follow_children = true;
const volatile __u32 control_ppm = 0;

__u32 granted = (__u32)UG_CALLS_FREE; /* steps with a lower index may run; of all processes */
__u32 seeking = 1;                    /* the function has not been found */
__u32 process_count = 0;
struct ug_call_state states[UG_CALLS_PROCESSES];

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 65536);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, __u32);   /* tgid */
    __type(value, __u32); /* index of its state + 1; 0: it has not called */
} followed SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 4 << 20); /* 70,000 steps */
} events SEC(".maps");

static __always_inline bool stop_process(struct ug_call_state *state)
{
    if (!bpf_send_signal(STOP))
        return true;
    if (state)
        __sync_fetch_and_add(&state->unheld, 1);
    return false;
}

static __always_inline bool gate_closed(__u32 step)
{
    __u32 until = granted;

    return until != (__u32)UG_CALLS_FREE && (__s32)(step - until) >= 0;
}

static __always_inline struct ug_call_event *make_event(__u32 kind)
{
    struct ug_call_event *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
    __u64 id = bpf_get_current_pid_tgid();

    if (!event)
        return NULL;
    __builtin_memset(event, 0, sizeof(*event));
    event->kind = kind;
    event->tgid = id >> 32;
    event->tid = (__u32)id;
    return event;
}

static __always_inline void tell(__u32 kind, __u32 flags, __u64 value)
{
    struct ug_call_event *event = make_event(kind);

    if (!event)
        return;
    event->flags = flags;
    event->value = value;
    bpf_ringbuf_submit(event, BPF_RB_FORCE_WAKEUP);
}

static __always_inline struct ug_call_state *state_of(__u32 tgid, bool make)
{
    __u32 *place = bpf_map_lookup_elem(&followed, &tgid);
    __u32 number;

    if (!place)
        return NULL;
    number = *place;
    if (!number) {
        if (!make || process_count >= UG_CALLS_PROCESSES)
            return NULL;
        number = __sync_fetch_and_add(&process_count, 1) + 1;
        if (number > UG_CALLS_PROCESSES)
            return NULL;
        /* Of two threads that come at once, the second one's state stays empty. */
        if (__sync_val_compare_and_swap(place, 0, number))
            number = *place;
        else
            states[(number - 1) & (UG_CALLS_PROCESSES - 1)].tgid = tgid;
    }
    return &states[(number - 1) & (UG_CALLS_PROCESSES - 1)];
}

static __always_inline __u32 index_of(const struct ug_call_state *state)
{
    return ((__u64)state - (__u64)states) / sizeof(*state);
}

/* Not static: the verifier goes through it once, and not in each round. */
__attribute__((noinline)) __u64 spin_until(__u64 until_ns)
{
    __u64 now_ns = bpf_ktime_get_ns();

    for (int i = 0; i < STRETCH_LOOKS && now_ns < until_ns; i++)
        now_ns = bpf_ktime_get_ns();
    return now_ns;
}

/* The positive control: busy, as a slower step would be. Returns what is left to do. */
static __always_inline __u64 stretch(struct ug_call_state *state, __u64 *end_ns)
{
    __u64 more_ns = (*end_ns - state->begin_ns) / 1000 * control_ppm / 1000,
          until_ns = *end_ns + more_ns;
    __u64 now_ns = *end_ns;

    for (int i = 0; i < STRETCH_ROUNDS && now_ns < until_ns; i++)
        now_ns = spin_until(until_ns);
    state->control_ns += now_ns - *end_ns;
    *end_ns = now_ns;
    return now_ns < until_ns ? until_ns - now_ns : 0;
}

static __always_inline void end_step(struct ug_call_state *state, __u32 flags)
{
    struct ug_call_event *event;
    __u64 end_ns = bpf_ktime_get_ns(), begin_ns = state->begin_ns, left_ns = 0;
    __u32 step = state->steps;

    if (control_ppm)
        left_ns = stretch(state, &end_ns);
    state->steps = step + 1;
    state->owner = 0;
    if (left_ns && stop_process(state))
        flags |= UG_CALL_STRETCH;
    if (gate_closed(step + 1) && stop_process(state))
        flags |= UG_CALL_HELD;
    event = make_event(UG_CALL_STEP);
    if (!event) {
        state->dropped++;
        return;
    }
    event->flags = flags;
    event->process = index_of(state);
    event->step = step;
    event->begin_ns = begin_ns;
    event->end_ns = end_ns;
    event->value = left_ns;
    bpf_ringbuf_submit(event,
            flags & (UG_CALL_HELD | UG_CALL_STRETCH) || step % WAKE_EVERY == WAKE_EVERY - 1
                    ? BPF_RB_FORCE_WAKEUP
                    : BPF_RB_NO_WAKEUP);
}

static __always_inline bool is_known(const struct ug_call_state *state, __u64 site)
{
    for (int i = 0; i < UG_CALLS_SITES; i++)
        if (state->sites[i] == site)
            return true;
    return false;
}

/* From a place that is not known, or at a closed gate. */
static __always_inline void tell_entry(struct ug_call_state *state, __u64 site, bool closed)
{
    __u32 flags = closed ? UG_CALL_HELD : UG_CALL_STOPPED;
    struct ug_call_event *event;

    if (!holds || !stop_process(state))
        flags = 0;
    event = make_event(UG_CALL_ENTER);
    if (!event) {
        state->dropped++;
        return;
    }
    event->flags = flags;
    event->process = index_of(state);
    event->step = state->steps;
    event->begin_ns = state->begin_ns;
    event->site = site;
    bpf_ringbuf_submit(event, BPF_RB_FORCE_WAKEUP);
}

SEC("uprobe")
int call_enter(struct call_context *ctx)
{
    __u64 id = bpf_get_current_pid_tgid(), sp = ctx->sp, site = 0;
    __u32 tid = (__u32)id, owner;
    struct ug_call_state *state = state_of(id >> 32, true);
    bool closed;

    if (!state)
        return 0;
    owner = state->owner;
    if (owner == tid && sp >= state->sp) {
        end_step(state, UG_CALL_UNRETURNED);
        owner = 0;
    }
    if (owner || __sync_val_compare_and_swap(&state->owner, 0, tid)) {
        __sync_fetch_and_add(&state->misplaced, 1);
        return 0;
    }
#if defined(__TARGET_ARCH_x86)
    bpf_probe_read_user(&site, sizeof(site), (void *)sp);
#else
    site = ctx->regs[30];
#endif
    state->sp = sp;
    state->begin_ns = bpf_ktime_get_ns();
    closed = gate_closed(state->steps);
    if (closed || !is_known(state, site))
        tell_entry(state, site, closed);
    return 0;
}

SEC("uprobe")
int call_return(struct call_context *ctx)
{
    __u64 id = bpf_get_current_pid_tgid();
    struct ug_call_state *state = state_of(id >> 32, false);

    if (!state)
        return 0;
    if (state->owner != (__u32)id) {
        __sync_fetch_and_add(&state->idle, 1);
        return 0;
    }
    /* Still inside: a call of its own from the same place, deeper on the stack. */
#if defined(__TARGET_ARCH_x86)
    if (ctx->sp <= state->sp)
        return 0;
#else
    if (ctx->sp < state->sp)
        return 0;
#endif
    end_step(state, 0);
    return 0;
}

/* _dl_debug_state of the dynamic loader, which debuggers stop at: libraries are mapped, and nothing
 * of them has run. */
SEC("uprobe")
int loader_changed(struct call_context *ctx)
{
    __u32 tgid = bpf_get_current_pid_tgid() >> 32, flags = 0;

    if (!seeking || !bpf_map_lookup_elem(&followed, &tgid))
        return 0;
    if (holds && stop_process(NULL))
        flags = UG_CALL_STOPPED;
    tell(UG_CALL_LOADED, flags, 0);
    return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(call_exec, struct task_struct *task, int old_tid, struct linux_binprm *binprm)
{
    __u32 tgid = task->tgid, flags = 0;
    __u32 *place = bpf_map_lookup_elem(&followed, &tgid);
    struct ug_call_state *state;

    if (!place)
        return 0;
    state = state_of(tgid, false);
    if (state) {
        state->owner = 0;
        for (int i = 0; i < UG_CALLS_SITES; i++)
            state->sites[i] = 0;
        state->site_count = 0;
    }
    if (!seeking)
        return 0;
    if (holds && stop_process(NULL))
        flags = UG_CALL_STOPPED;
    tell(UG_CALL_EXEC, flags, 0);
    return 0;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(call_fork, struct task_struct *parent, struct task_struct *child)
{
    __u32 tgid = parent->tgid, child_tgid = child->tgid, none = 0;

    if (tgid != child_tgid && follow_children && bpf_map_lookup_elem(&followed, &tgid))
        bpf_map_update_elem(&followed, &child_tgid, &none, BPF_NOEXIST);
    return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(call_exit, struct task_struct *task)
{
    struct task_struct___calls *signals = (void *)task;
    __u32 tgid = task->tgid;
    struct ug_call_state *state;
    int code;

    if (!bpf_map_lookup_elem(&followed, &tgid))
        return 0;
    state = state_of(tgid, false);
    if (state && state->owner == (__u32)task->pid)
        state->owner = 0; /* it died in the call: that is no step */
    if (BPF_CORE_READ(signals, signal, live.counter))
        return 0;
    code = BPF_CORE_READ(signals, signal, group_exit_code);
    tell(UG_CALL_EXIT, 0, code ? code : task->exit_code);
    bpf_map_delete_elem(&followed, &tgid);
    return 0;
}

const char bpf_license[] SEC("license") = "Dual BSD/GPL";
