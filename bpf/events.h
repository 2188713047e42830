/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What crosses the border between the BPF programs and the loader, and nothing else: the records of
 * the ring buffers, the counters, the limits. Both compilations assert sizes and offsets. Times are
 * CLOCK_MONOTONIC nanoseconds; 0 means "not known" for times, addresses, pids (pid 0 is the idle
 * task: flags say where it is meant) and lengths of stacks. Stacks follow their record as __u64
 * addresses, leaf first: first the kernel's, then the user's, then the waker's kernel stack; last
 * come Python frames, as bpf/python.h describes them.
 */
#ifndef UPGATE_BPF_EVENTS_H
#define UPGATE_BPF_EVENTS_H

#ifndef __bpf__
#include <linux/types.h>
#endif

enum {
    UG_COMM_LEN = 16,
    UG_KSTACK_MAX = 48,  /* frames kept of a kernel stack: the deepest seen here, ext4 under
                            writeback, has 41 */
    UG_USTACK_MAX = 127, /* a power of two, less 1 */
    UG_WSTACK_MAX = 32,
    UG_PSTACK_MAX = 127, /* a power of two, less 1 */
    /* process ids asked for at one time; their threads are not limited by it */
    UG_TARGETS_MAX = 4096,
};

enum ug_event_kind {
    UG_EVENT_GAP = 1,    /* a thread of the target was off the CPU for at least the threshold */
    UG_EVENT_SAMPLE = 2, /* cpu-clock tick */
    UG_EVENT_LOCK = 3,   /* a target waited for a kernel lock for at least the threshold */
    UG_EVENT_TASK = 4,   /* birth, exec, death, name of a task */
    UG_EVENT_FACT = 5, /* the kernel did something to a target, or a target asked it to: an interval
                          or an instant */
    UG_EVENT_STATE = 6, /* iterator: what a thread of the target is doing now (attach in the middle
                           of a stall) */
    UG_EVENT_FAULT = 7, /* a target touched a page that it had not, or no longer had */
    /* what a thread of the target did in all: it is ending, or the iterator was asked */
    UG_EVENT_TOTAL = 8,
};

/* Every record begins with this. */
struct ug_head {
    __u32 kind; /* enum ug_event_kind */
    __u32 size; /* bytes with the stacks */
};

/* A task as an event saw it. */
struct ug_task {
    __u32 tid; /* in the first pid namespace: what /proc of the host shows */
    __u32 tgid;
    char comm[UG_COMM_LEN];
};

enum ug_gap_flag {
    UG_GAP_IOWAIT = 1 << 0,
    /* at the switch-out: task_struct.throttled, or its run queue's throttle_count */
    UG_GAP_THROTTLED = 1 << 1,
    UG_GAP_PREEMPTED = 1 << 2,  /* switched out while runnable */
    UG_GAP_IDLE_CPU = 1 << 3,   /* the CPU went idle when it was switched out */
    UG_GAP_MEMSTALL = 1 << 4,   /* task_struct.in_memstall */
    UG_GAP_UNFINISHED = 1 << 5, /* still going on when it was sent; in_ns is the time of sending */
    /* the switch-out was before we attached: out_ns is when we attached, no stack */
    UG_GAP_NO_OUT = 1 << 6,
    UG_GAP_WAKER_IRQ = 1 << 7, /* woken from hard interrupt context: the waker is a bystander */
    UG_GAP_WAKER_SOFTIRQ = 1 << 8,
    UG_GAP_WAKER_NMI = 1 << 9,
    UG_GAP_WAKER_KTHREAD = 1 << 10,
    UG_GAP_MEMCG_HIGH = 1 << 11,    /* task_struct.memcg_nr_pages_over_high was set */
    UG_GAP_OWNER_READER = 1 << 12,  /* owner is one of possibly many readers */
    UG_GAP_OWNER_FUTEX = 1 << 13,   /* owner was read from the futex word or from glibc's mutex */
    UG_GAP_OWNER_RUNNING = 1 << 14, /* owner was on a CPU when asked */
    UG_GAP_KTHREAD = 1 << 15,       /* the thread itself is a kernel thread */
    UG_GAP_FROZEN = 1 << 16,        /* task_struct.frozen: in the freezer of cgroups, version 2 */
    /* not stored: the user stack led into code whose unwind table is not loaded */
    UG_GAP_USER_MISSED = 1 << 17,
    UG_GAP_PYTHON = 1 << 18,    /* not stored: the Python frames are all that there were */
    UG_GAP_PYTHON_GC = 1 << 19, /* not stored: and the thread was collecting garbage */
    /* below the threshold: one for each UG_SHORT_TICKS of the sampler that such gaps of the thread
       last together */
    UG_GAP_SHORT = 1 << 20,
    /* the switch-in was not told: in_ns is the scheduler's own account of it */
    UG_GAP_NO_IN = 1 << 21,
    UG_GAP_NOT_STORED = UG_GAP_USER_MISSED | UG_GAP_PYTHON | UG_GAP_PYTHON_GC,
};

/* Beside 8 processes of 50,000 switches/s one for each tick made 3,500 gaps a second of 900, and
 * cost 2.3 % of a core (ci/bench/record_cost.py --live). */
enum { UG_SHORT_TICKS = 8 };

/* One stay off the CPU: out_ns <= waking_ns <= in_ns. blocked = waking - out, run queue = in -
 * waking; preempted (state 0): all of it. */
struct ug_gap {
    struct ug_head head;
    __u64 out_ns;
    __u64 waking_ns; /* first wake-up after the switch-out; 0: none (preempted) */
    __u64 in_ns;
    struct ug_task task;
    struct ug_task waker;  /* who made it runnable; tid 0 with waking_ns set: the idle task */
    struct ug_task next;   /* who got the CPU at switch-out */
    struct ug_task before; /* who left the CPU at switch-in: the last antagonist */
    struct ug_task owner;  /* of the lock or futex waited for; tid 0: not known */
    __u64 lock;            /* address of the kernel lock waited for, or task_struct.blocker */
    __u64 syscall_args[6];
    __s64 syscall_nr;  /* -1: not in a system call */
    __u64 futex_value; /* u32 at the futex address, u32 owner word of glibc's mutex << 32 */
    __u32 prev_state;  /* argument of sched_switch: TASK_* bits */
    __u32 flags;       /* enum ug_gap_flag */
    __u32 cpu_out;
    __u32 cpu_in;
    __u32 next_prio; /* kernel's: < 100 is real time */
    __u32 before_prio;
    __u32 lock_flags;   /* LCB_F_* of contention_begin */
    __u16 lock_kind;    /* enum ug_lock_kind */
    __u16 kernel_count; /* frames that follow: the thread's kernel stack at switch-out */
    __u16 user_count;
    __u16 waker_count;
    __u32 ppid_of_waker;
    __u16 python_count;
    __u16 reserved;
    __u32 python_holder; /* who had the GIL that it waits for: a tid of its own namespace; 0: not
                            known */
};

enum ug_lock_kind {
    UG_LOCK_NONE = 0,
    UG_LOCK_OTHER = 1,
    UG_LOCK_MMAP = 2, /* mmap_lock of the waiter's own mm */
    UG_LOCK_MUTEX = 3,
    UG_LOCK_RWSEM = 4,
    UG_LOCK_SPIN = 5,
    UG_LOCK_PERCPU_RWSEM = 6,
    UG_LOCK_RTMUTEX = 7,
    UG_LOCK_SEMAPHORE = 8,
};

enum ug_sample_why {
    UG_SAMPLE_TARGET = 1 << 0,    /* a thread of the target */
    UG_SAMPLE_OWNER = 1 << 1,     /* owner of a lock that a target waits for */
    UG_SAMPLE_NEIGHBOUR = 1 << 2, /* ran while a target waited for this CPU */
    UG_SAMPLE_SPIN = 1 << 3,      /* in kernel mode while a target spins for a lock elsewhere */
    UG_SAMPLE_USER = 1 << 4,      /* the tick hit user mode */
    UG_SAMPLE_IRQ = 1 << 5,       /* the tick hit hard or soft interrupt context */
    /* set by the recorder: its Python stack is of more than 1 ms after the tick */
    UG_SAMPLE_LATE = 1 << 6,
    UG_SAMPLE_USER_MISSED = 1 << 7, /* as UG_GAP_USER_MISSED */
    UG_SAMPLE_PYTHON = 1 << 8,      /* as UG_GAP_PYTHON */
    UG_SAMPLE_PYTHON_GC = 1 << 9,
    UG_SAMPLE_NOT_STORED = UG_SAMPLE_USER_MISSED | UG_SAMPLE_PYTHON | UG_SAMPLE_PYTHON_GC,
};

struct ug_sample {
    struct ug_head head;
    __u64 at_ns;
    struct ug_task task;
    __u32 cpu;
    __u32 why; /* enum ug_sample_why */
    __u32 prio;
    __u16 kernel_count;
    __u16 user_count;
    __u16 python_count;
    __u16 reserved[3];
};

enum {
    UG_FAULT_LEVEL_MAX = 12,
    UG_FAULT_PAGE_BITS = 12, /* counted in such pages, also where they are larger */
    UG_FAULT_HUGE_BITS = 9,  /* of a huge page, in pages */
};

/* Is the page of this address one of those, one in 2^level, whose faults are told? Those of a level
 * are of all lower ones, too. The first page of a huge one is of all up to UG_FAULT_HUGE_BITS. */
static inline __u32 ug_fault_is_of(__u64 address, __u32 level)
{
    __u64 page = address >> UG_FAULT_PAGE_BITS;

    if (!(page & ((1 << UG_FAULT_HUGE_BITS) - 1))) {
        page >>= UG_FAULT_HUGE_BITS;
        level = level > UG_FAULT_HUGE_BITS ? level - UG_FAULT_HUGE_BITS : 0;
    }
    return !(page * 0x9e3779b97f4a7c15ull >> 32 & ((1u << level) - 1));
}

/* One of the page faults of a target. A file's neighbouring pages, and the others of a huge page,
 * come without faults. */
struct ug_fault {
    struct ug_head head;
    __u64 at_ns;
    __u64 address;
    struct ug_task task;
    __u32 level; /* ug_fault_is_of: of the CPU, when it happened */
    __u32 why;   /* UG_SAMPLE_USER_MISSED, UG_SAMPLE_PYTHON, UG_SAMPLE_PYTHON_GC */
    __u16 user_count;
    __u16 python_count;
    __u32 reserved;
};

/* A wait for a kernel lock, from contention_begin to contention_end; it may lie over several gaps,
 * or over none when the waiter span. */
struct ug_lock {
    struct ug_head head;
    __u64 begin_ns;
    __u64 end_ns;
    __u64 lock;
    struct ug_task task;
    struct ug_task owner; /* at the begin; tid 0: not known */
    __u32 lock_flags;
    __u16 lock_kind;
    __u16 owner_flags;  /* UG_GAP_OWNER_* >> 12 */
    __u16 kernel_count; /* the waiter's */
    __u16 owner_count;  /* the owner's kernel stack, when it slept; follows the waiter's */
    __u32 reserved;
};

enum ug_task_what {
    UG_TASK_SEEN = 1, /* existed when we attached */
    UG_TASK_FORK = 2,
    UG_TASK_EXEC = 3,
    UG_TASK_EXIT = 4,
    UG_TASK_RENAME = 5,
};

struct ug_task_event {
    struct ug_head head;
    __u64 at_ns;
    __u64 start_ns; /* task_struct.start_boottime: tells a reused pid; CLOCK_BOOTTIME */
    struct ug_task task;
    __u32 what;   /* enum ug_task_what */
    __u32 ppid;   /* tgid of the parent */
    __u32 target; /* 1: it belongs to the target */
    union {
        __s32 exit_code; /* of UG_TASK_EXIT: wait status */
        __u32 old_tid;   /* of UG_TASK_EXEC: of the thread that called it, which has the id of its
                            process from here on */
    };
};

/* Since it is a target, or called exec as another thread than the main one. Of a thread that ends
 * it comes before its UG_TASK_EXIT, and only where it ran for the threshold or longer, or waited so
 * long in gaps below it: thousands may come and go in a second. Those count as UG_COUNTER_TASK. */
struct ug_total {
    struct ug_head head;
    __u32 tid, tgid;
    __u64 switches, short_gaps, short_gap_ns, run_ns;
};

/* Instants have begin_ns == end_ns. Every source is optional: the ledger names those that are
 * missing. */
enum ug_fact_what {
    UG_FACT_SIGNAL = 1,  /* value[0] signal; actor sent it to task */
    UG_FACT_RECLAIM = 2, /* direct reclaim by task; value[0] order, value[1] pages reclaimed */
    UG_FACT_MEMCG_RECLAIM = 3,    /* the same under a cgroup's limit */
    UG_FACT_RECLAIM_THROTTLE = 4, /* value[0] us waited, value[1] reason */
    /* mm_compaction_begin/end in actor's context; task.tid 0: somebody else's */
    UG_FACT_COMPACTION = 5,
    UG_FACT_MIGRATE = 6,     /* value[0] succeeded, value[1] failed, value[2] reason */
    UG_FACT_COLLAPSE = 7,    /* khugepaged: mm_collapse_huge_page of the target's mm; value[0]
                                isolated, value[1] status */
    UG_FACT_DIRTY_PAUSE = 8, /* value[0] pause in ms */
    /* a softirq of 1 ms or more on a CPU while task was current; value[0] vector */
    UG_FACT_SOFTIRQ = 9,
    UG_FACT_HARDIRQ = 10, /* value[0] irq */
    UG_FACT_OOM_VICTIM = 12,
    UG_FACT_NUMA = 13, /* sched_move_numa, sched_swap_numa, sched_skip_vma_numa; value[0] which */
    UG_FACT_CGROUP_FREEZE = 15, /* value[0] 1 freeze, 0 unfreeze */
    UG_FACT_TCP_RETRANSMIT = 17,
    UG_FACT_RSTAT_LOCK = 18, /* cgroup_rstat_lock_contended */
    UG_FACT_JOURNAL = 19,    /* jbd2 commit or lock stall; value[0] ms */
};

struct ug_fact {
    struct ug_head head;
    __u64 begin_ns;
    __u64 end_ns;
    struct ug_task task;  /* the target it was done to, or in */
    struct ug_task actor; /* who did it */
    __u64 value[4];
    __u32 what; /* enum ug_fact_what */
    __u32 cpu;
    __u16 kernel_count; /* the actor's */
    __u16 flags; /* UG_GAP_WAKER_* >> 7 of the actor: in interrupt context the actor is a bystander
                  */
    __u32 reserved;
};

/* What a thread of the target was doing when it was looked at. */
struct ug_state {
    struct ug_head head;
    __u64 at_ns;
    struct ug_task task;
    struct ug_task owner; /* of blocker, or of mmap_lock when the stack waits for it */
    __u64 blocker;        /* task_struct.blocker with its type in the low bits, 0 without it */
    __u64 last_switch_ns; /* when it left the CPU, from our storage; 0: before we attached */
    __u64 switch_count;   /* nvcsw + nivcsw: unchanged between two looks = the same stall */
    __s64 syscall_nr;
    __u64 syscall_args[6];
    __u32 state;
    __u32 flags; /* enum ug_gap_flag */
    __u16 lock_kind;
    __u16 kernel_count;
    __u32 on_cpu; /* 1: running */
};

/* Per producer; index: enum ug_counter. kept + dropped == seen holds for each. */
enum ug_counter {
    UG_COUNTER_GAP,
    UG_COUNTER_SAMPLE,
    UG_COUNTER_LOCK,
    UG_COUNTER_TASK,
    UG_COUNTER_FACT,
    UG_COUNTER_STATE,
    UG_COUNTER_FAULT,
    UG_COUNTER_COUNT,
};

struct ug_counts {
    __u64 seen;      /* passed the filters */
    __u64 kept;      /* in the ring */
    __u64 dropped;   /* ring full */
    __u64 truncated; /* kept, with a stack cut short */
};

#define UG_ASSERT(what) _Static_assert(what, #what)
UG_ASSERT(sizeof(struct ug_task) == 24);
UG_ASSERT(sizeof(struct ug_gap) == 272);
UG_ASSERT(__builtin_offsetof(struct ug_gap, syscall_nr) == 208);
UG_ASSERT(sizeof(struct ug_sample) == 64);
UG_ASSERT(sizeof(struct ug_fault) == 64);
UG_ASSERT(sizeof(struct ug_lock) == 96);
UG_ASSERT(sizeof(struct ug_task_event) == 64);
UG_ASSERT(sizeof(struct ug_total) == 48);
UG_ASSERT(sizeof(struct ug_fact) == 120);
UG_ASSERT(sizeof(struct ug_state) == 160);

#endif
