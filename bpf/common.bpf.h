/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What all programs share: settings, the bitmap of target threads, task storage, the rings,
 * counters. A target is known by one bit at its thread id: the test costs a load, where looking up
 * task storage costs 20 to 40 ns, and the scheduler's programs run for every task of the machine.
 */
#ifndef UPGATE_BPF_COMMON_BPF_H
#define UPGATE_BPF_COMMON_BPF_H

#include "bpf/kernel.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#include "bpf/events.h"

enum {
    TID_MAX = 1 << 22,  /* PID_MAX_LIMIT of 64-bit kernels */
    CPU_MAX = 4096,     /* a power of two */
    ACTIVE_MAX = 64,    /* waits for locks whose owners are watched at one time; a power of two */
    LEADERS_MAX = 1024, /* a power of two */
    BUDGET = 20,        /* stacks taken at switch-out per thread and 10 ms: 2,000/s at 1 us each */
    BUDGET_NS = 10000000,
    SKIP_OWN_FRAMES = 2, /* of a stack: the program itself and the kernel function that calls it */
    LONG_NS = 1000000,   /* softirqs and interrupts worth a record */
};

/* Settings: written by the loader before loading. */
const volatile __u64 threshold_ns = 1000000;
const volatile __u32 self_tgid = 0;
const volatile bool follow_children = true;
/* of a cgroup, which we may be in: those that read files for us are no targets */
const volatile bool skip_own_children = false;
const volatile bool ask_owners =
        true; /* by kfuncs, which not every kernel gives to tracing programs */
const volatile bool keep_threads = false; /* in threads_kept: on PREEMPT_RT */
const volatile bool have_loop = false;    /* bpf_loop: from Linux 5.17 */
const volatile bool have_preempt_count = false;
const volatile __s64 preempt_count_delta = 0; /* from the CPU's run queue to its __preempt_count */
/* tests: one of so many switches to a target is taken as not told */
const volatile __u32 miss_switch_in = 0;
const volatile __u64 sample_period_ns = 0;
const volatile __u64 spin_begin[4]; /* code of the functions that spin for a sleeping lock */
const volatile __u64 spin_end[4];
const volatile __u32 wake_bytes = 1 << 21;    /* half of the big ring; 0: at every record */
const volatile __u64 wake_pause_ns = 1000000; /* between two wake-ups of a reader that sleeps */
const volatile __u32 wake_rare_bytes = 1 << 19;

enum iterator_mode {
    MODE_MARK,
    MODE_MARK_AGAIN,
    MODE_LOOK,
    MODE_WAITING,
    MODE_UNFINISHED,
    MODE_TOTALS
};
__u32 iterator_mode = MODE_MARK;

static __u64 target_bits[TID_MAX / 64];

/* How many target threads wait runnable for a CPU, and since when the last of them. */
struct queue {
    __s32 waiting;
    __u32 padding;
    __u64 since_ns;
};
static struct queue queues[CPU_MAX];

/* Waits for sleeping locks that go on: the sampler looks whether it hit an owner. */
struct active {
    __u64 lock;   /* 0: free */
    __u32 waiter; /* thread ids */
    __u32 owner;  /* when the wait began; the lock itself tells the present one */
    __u32 kind;
    __u32 padding;
};
static struct active actives[ACTIVE_MAX];
static __s32 active_count;

/* Processes of the target, each at its id: whose cgroup is whose. */
static __u32 leaders[LEADERS_MAX];

static __u64 preempt_counts[CPU_MAX]; /* where they are */

static __u64 spin_until_ns;
static __u64 woken_ns;

struct wait {
    __u64 begin_ns;
    __u64 lock;
    __u32 flags;       /* LCB_F_* */
    __u32 owner_flags; /* UG_GAP_OWNER_* */
    struct ug_task owner;
    __u32 active; /* its place in actives, and 1: the thread may have another id by its end; 0: none
                   */
    __u16 kind;
    __u16 owner_count;
};

/* Per target thread. */
struct thread {
    __u64 out_ns;
    __u64 waking_ns;
    __u64 budget_ns;
    __u64 attach_ns; /* out_ns is when we attached */
    __u64 short_gaps;
    __u64 short_gap_ns;
    __u64 short_due_ns; /* of them since one was sent */
    __u64 base_switches;
    __u64 base_run_ns;
    __u64 out_arrival_ns; /* the scheduler's account (task_struct.sched_info) when it was switched
                             out */
    __u64 out_delay_ns;
    __u64 out_clock_ns; /* the clock of the run queue, of that switch */
    __u64 futex_value;
    __u64 blocker;
    __u32 prev_state;
    __u32 flags;
    __u32 budget;
    __u32 cpu_out;
    __u32 next_prio;
    __u32 queued; /* CPU + 1 in queues */
    __u32 ppid_of_waker;
    __u16 kernel_count;
    __u16 user_count;
    __u16 waker_count;
    __u16 python_count;
    __u32 futex_owner;
    __u32 futex_private;
    __u32 marked;
    __u32 python_holder;
    __u64 python;     /* its state in the interpreter, where it was last; 0: not known */
    __s64 syscall_nr; /* that it blocked in */
    __u64 syscall_args[6];
    struct ug_task waker;
    struct ug_task next;
    struct wait wait; /* for a sleeping lock; begin_ns 0: none */
    __u64 spin_lock, spin_begin_ns;
    __u64 fact_begin_ns; /* of facts.bpf.h: direct reclaim */
    __u64 memcg_begin_ns;
    __u64 fact_order;
    __u64 kernel[UG_KSTACK_MAX];
    __u64 user[UG_USTACK_MAX];
    __u64 wakers[UG_WSTACK_MAX];
    __u64 owners[UG_WSTACK_MAX];
    __u64 frames[UG_PSTACK_MAX + 1]; /* Python's */
};

struct {
    __uint(type, BPF_MAP_TYPE_TASK_STORAGE);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, int);
    __type(value, struct thread);
} threads SEC(".maps");

/* The same by thread id, made beforehand: task storage is allocated when a thread is born, inside a
 * tracepoint, and on PREEMPT_RT the allocator's locks sleep. */
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 1); /* set by the loader */
    __type(key, __u32);
    __type(value, struct thread);
} threads_kept SEC(".maps");
static struct thread new_thread; /* zeros */

/* Process ids asked for; only the iterator reads it. */
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, UG_TARGETS_MAX);
    __type(key, __u32);
    __type(value, __u32);
} wanted SEC(".maps");

/* Records that may come in floods, and those that must survive a flood. */
struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 4 << 20);
} ring_flood SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, 1 << 20);
} ring_rare SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, UG_COUNTER_COUNT);
    __type(key, __u32);
    __type(value, struct ug_counts);
} counters SEC(".maps");

/* A record is put together here: one a program, because an interrupt can put one in the middle
 * of another. */
enum scratch_of {
    SCRATCH_SWITCH,
    SCRATCH_SAMPLE,
    SCRATCH_FAULT,
    SCRATCH_LOCK,
    SCRATCH_ITERATOR,
    SCRATCH_RECLAIM,
    SCRATCH_MEMCG,
    SCRATCH_THROTTLED,
    SCRATCH_COMPACTION,
    SCRATCH_COUNT
};
struct scratch {
    char bytes[8192]; /* a record has at most 3,400: append() wants room behind 4,095 */
};
struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, SCRATCH_COUNT);
    __type(key, __u32);
    __type(value, struct scratch);
} scratches SEC(".maps");

extern struct task_struct *bpf_task_from_pid(__s32 pid) __ksym __weak;
extern struct task_struct *bpf_task_from_vpid(__s32 vpid) __ksym __weak;
extern void bpf_task_release(struct task_struct *task) __ksym __weak;

#define KEEP_VALUE(x) asm volatile("" : "+r"(x))

/* Argument of a tracepoint that not every kernel has: one instruction, which the compiler cannot
 * merge with another branch's into an address that the verifier does not follow. */
#define ARGUMENT(ctx, index) \
    ({ \
        __u64 argument; \
        asm volatile("%0 = *(u64 *)(%1 + %2)" : "=r"(argument) : "r"(ctx), "i"(8 * (index))); \
        argument; \
    })

/* An index as old verifiers like it: masked by an instruction that the compiler cannot take away.
 */
static __always_inline __u32 index_of(__u32 value, __u32 size)
{
    KEEP_VALUE(value);
    return value & (size - 1);
}

static __always_inline bool is_target(__u32 tid)
{
    return target_bits[(tid & (TID_MAX - 1)) >> 6] >> (tid & 63) & 1;
}

static __always_inline void set_target(__u32 tid)
{
    __sync_fetch_and_or(&target_bits[(tid & (TID_MAX - 1)) >> 6], 1ULL << (tid & 63));
}

static __always_inline void clear_target(__u32 tid)
{
    __sync_fetch_and_and(&target_bits[(tid & (TID_MAX - 1)) >> 6], ~(1ULL << (tid & 63)));
}

static __always_inline struct thread *thread_of(struct task_struct *task)
{
    __u32 tid = task->pid;

    if (keep_threads)
        return bpf_map_lookup_elem(&threads_kept, &tid);
    return bpf_task_storage_get(&threads, task, NULL, 0);
}

static __always_inline struct thread *make_thread(struct task_struct *task)
{
    __u32 tid = task->pid;

    if (!keep_threads)
        return bpf_task_storage_get(&threads, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
    bpf_map_update_elem(&threads_kept, &tid, &new_thread, BPF_NOEXIST);
    return bpf_map_lookup_elem(&threads_kept, &tid);
}

static __always_inline void forget_thread(__u32 tid)
{
    if (keep_threads)
        bpf_map_delete_elem(&threads_kept, &tid);
}

static __always_inline void copy_task(struct ug_task *to, struct task_struct *task)
{
    to->tid = task->pid;
    to->tgid = task->tgid;
    bpf_probe_read_kernel(to->comm, sizeof(to->comm), task->comm);
}

/* Somebody else than the target; never we: tid 0 without the idle flag means not known. */
static __always_inline void copy_other(struct ug_task *to, struct task_struct *task)
{
    if ((__u32)task->tgid == self_tgid)
        __builtin_memset(to, 0, sizeof(*to));
    else
        copy_task(to, task);
}

static __always_inline struct scratch *scratch_of(__u32 which)
{
    return bpf_map_lookup_elem(&scratches, &which);
}

/* Stacks of a record behind each other: bytes of src to at, which both stay in the scratch. */
static __always_inline __u32 append(struct scratch *scratch, __u32 at, const void *src, __u32 bytes)
{
    KEEP_VALUE(at);
    KEEP_VALUE(bytes);
    at &= 4095;
    bytes &= 1023;
    bpf_probe_read_kernel(scratch->bytes + at, bytes, src);
    return at + bytes;
}

static __always_inline void emit(
        void *ring, __u32 wake, __u32 counter, void *record, __u32 size, bool cut)
{
    struct ug_counts *counts = bpf_map_lookup_elem(&counters, &counter);
    __u64 flags = BPF_RB_NO_WAKEUP;

    if (!counts)
        return;
    __sync_fetch_and_add(&counts->seen, 1);
    if (!wake || bpf_ringbuf_query(ring, BPF_RB_AVAIL_DATA) > wake) {
        __u64 now = bpf_ktime_get_ns();

        if (now - woken_ns > wake_pause_ns) {
            woken_ns = now;
            flags = BPF_RB_FORCE_WAKEUP;
        }
    }
    KEEP_VALUE(size);
    size &= 4095;
    if (bpf_ringbuf_output(ring, record, size, flags)) {
        __sync_fetch_and_add(&counts->dropped, 1);
        return;
    }
    __sync_fetch_and_add(&counts->kept, 1);
    if (cut)
        __sync_fetch_and_add(&counts->truncated, 1);
}

static __always_inline void emit_flood(__u32 counter, void *record, __u32 size, bool cut)
{
    emit(&ring_flood, wake_bytes, counter, record, size, cut);
}

static __always_inline void emit_rare(__u32 counter, void *record, __u32 size, bool cut)
{
    emit(&ring_rare, wake_rare_bytes, counter, record, size, cut);
}

/* A record that could not even be made. */
static __always_inline void count_lost(__u32 counter)
{
    struct ug_counts *counts = bpf_map_lookup_elem(&counters, &counter);

    if (counts) {
        __sync_fetch_and_add(&counts->seen, 1);
        __sync_fetch_and_add(&counts->dropped, 1);
    }
}

/* The CPU's preempt_count: in which context the code runs. On arm64 the running task has it. On x86
 * it is no symbol that a program may name on kernels without KALLSYMS_ALL; but it lies at a known
 * distance from the CPU's run queue, and current knows that. */
#if defined(__TARGET_ARCH_arm64)
static __always_inline __u32 preempt_count(void)
{
    struct task_struct *current = bpf_get_current_task_btf();

    return have_preempt_count ? (__u32)current->thread_info.preempt_count : 0;
}
#else
static __always_inline __u64 find_preempt_count(__u32 cpu)
{
    struct task_struct *current = bpf_get_current_task_btf();
    struct rq *rq = BPF_CORE_READ(current, se.cfs_rq, rq);
    int of_cpu = -1;

    bpf_core_read(&of_cpu, sizeof(of_cpu), &rq->cpu);
    return of_cpu == (int)cpu ? (__u64)rq + preempt_count_delta : 0;
}

static __always_inline __u32 preempt_count(void)
{
    __u32 cpu = bpf_get_smp_processor_id(), count = 0;
    __u64 *address = &preempt_counts[index_of(cpu, CPU_MAX)];

    if (!have_preempt_count || cpu >= CPU_MAX)
        return 0;
    if (!*address)
        *address = find_preempt_count(cpu);
    if (*address)
        bpf_probe_read_kernel(&count, sizeof(count), (void *)*address);
    return count;
}
#endif

static __always_inline __u32 context_flags(__u32 count)
{
    if (count & NMI_MASK)
        return UG_GAP_WAKER_NMI;
    if (count & HARDIRQ_MASK)
        return UG_GAP_WAKER_IRQ;
    return count & SOFTIRQ_SERVING ? UG_GAP_WAKER_SOFTIRQ : 0;
}

/* System call of a task that is in the kernel: its number, or -1, and its arguments. */
static __always_inline __s64 read_syscall(struct task_struct *task, __u64 *args)
{
    struct pt_regs *regs;
    __s64 nr;

    if (task->flags & PF_KTHREAD)
        return -1;
    regs = (struct pt_regs *)bpf_task_pt_regs(task);
    if (!regs)
        return -1;
#if defined(__TARGET_ARCH_x86)
    nr = (__s64)regs->orig_ax;
    if (nr < 0)
        return -1;
    args[0] = regs->di;
    args[1] = regs->si;
    args[2] = regs->dx;
    args[3] = regs->r10;
    args[4] = regs->r8;
    args[5] = regs->r9;
#else
    nr = regs->syscallno;
    if (nr < 0)
        return -1;
    args[0] = regs->orig_x0;
    for (int i = 1; i < 6; i++)
        args[i] = regs->regs[i];
#endif
    return nr;
}

#endif
