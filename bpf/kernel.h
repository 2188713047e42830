/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What the BPF programs need of the kernel: excerpts of its types, which libbpf relocates to the
 * running kernel through BTF (CO-RE), and the few constants of its interface. No vmlinux.h: the
 * build depends on no kernel, and the list shows what a change of the kernel can break. A field
 * that only some kernels have is asked for with bpf_core_field_exists before it is read.
 */
#ifndef UPGATE_BPF_KERNEL_H
#define UPGATE_BPF_KERNEL_H

typedef unsigned char __u8;
typedef signed char __s8;
typedef unsigned short __u16;
typedef short __s16;
typedef unsigned int __u32;
typedef int __s32;
typedef unsigned long long __u64;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef _Bool bool;
enum { false, true };
#define NULL ((void *)0)

enum {
    BPF_MAP_TYPE_HASH = 1,
    BPF_MAP_TYPE_ARRAY = 2,
    BPF_MAP_TYPE_PERCPU_ARRAY = 6,
    BPF_MAP_TYPE_RINGBUF = 27,
    BPF_MAP_TYPE_TASK_STORAGE = 29,
    BPF_ANY = 0,
    BPF_NOEXIST = 1,
    BPF_F_NO_PREALLOC = 1,
    BPF_LOCAL_STORAGE_GET_F_CREATE = 1,
    BPF_F_USER_STACK = 1 << 8,
    BPF_RB_NO_WAKEUP = 1,
    BPF_RB_FORCE_WAKEUP = 2,
    BPF_RB_AVAIL_DATA = 0,
    BPF_RB_RING_SIZE = 1,
};

enum {
    PF_EXITING = 0x00000004,
    PF_KTHREAD = 0x00200000,
    TASK_UNINTERRUPTIBLE = 2,
    TASK_KILLABLE = 0x102,
    LCB_F_SPIN = 1,
    LCB_F_READ = 2,
    LCB_F_WRITE = 4,
    LCB_F_RT = 8,
    LCB_F_PERCPU = 16,
    LCB_F_MUTEX = 32,
    RT_READER_BIAS = -2147483647 - 1, /* rwbase_rt.readers of a lock that nobody holds */
    /* preempt_count: bits of the contexts */
    SOFTIRQ_SERVING = 0x00000100,
    HARDIRQ_ONE = 0x00010000,
    HARDIRQ_MASK = 0x000f0000,
    NMI_MASK = 0x00f00000,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

typedef struct {
    __s64 counter;
} atomic_long_t;

typedef struct {
    int counter;
} atomic_t;

struct rw_semaphore {
    atomic_long_t count;
    atomic_long_t owner;
};

struct mutex {
    atomic_long_t owner;
};

struct task_struct;

struct rt_mutex_base {
    struct task_struct *owner;
};

/* PREEMPT_RT has other insides under the same names: libbpf leaves out what follows ___. A writer
 * has the rtmutex while it waits for readers; readers are counted and not known. */
struct rwbase_rt {
    atomic_t readers;
    struct rt_mutex_base rtmutex;
};

struct mutex___rt {
    struct rt_mutex_base rtmutex;
};

struct rw_semaphore___rt {
    struct rwbase_rt rwbase;
};

struct mm_struct___rt {
    struct rw_semaphore___rt mmap_lock;
};

struct mm_struct {
    struct rw_semaphore mmap_lock;
    struct task_struct *owner;
};

struct rq {
    int cpu;
    __u64 clock;
};

struct cfs_rq {
    struct rq *rq;
    int throttle_count; /* of its group and of those above it, how many are throttled */
};

struct sched_entity {
    __u64 sum_exec_runtime;
    struct cfs_rq *cfs_rq;
};

struct sched_info {
    unsigned long long run_delay;    /* waited for a CPU, of the waits that are over */
    unsigned long long last_arrival; /* when it came to one, by rq.clock */
    unsigned long long last_queued;  /* since when it waits for one, by rq.clock; 0: it does not */
};

struct pid {
    unsigned int level;
};

struct css_set;

#if defined(__TARGET_ARCH_x86)
struct thread_struct {
    unsigned long fsbase;
};
#endif

#if defined(__TARGET_ARCH_arm64)
struct thread_info {
    __u64 preempt_count; /* the lower half; in the upper one, whether to reschedule */
};
#endif

struct task_struct {
#if defined(__TARGET_ARCH_arm64)
    struct thread_info thread_info;
#endif
    unsigned int __state;
    unsigned int flags;
    unsigned int ptrace;
    unsigned int on_cpu; /* a byte in 7.3: only loads of unsigned numbers are made to fit */
    int prio;
    int wake_cpu;
    struct sched_entity se;
    struct sched_info sched_info;
    bool throttled;
    struct mm_struct *mm;
    int exit_code;
    unsigned in_iowait : 1;
    unsigned frozen : 1;
    unsigned in_memstall : 1;
    int pid;
    int tgid;
    struct task_struct *real_parent;
    struct task_struct *group_leader;
    struct pid *thread_pid;
    unsigned long nvcsw;
    unsigned long nivcsw;
    __u64 start_boottime;
    char comm[16];
    struct css_set *cgroups;
    unsigned long blocker;
    unsigned int memcg_nr_pages_over_high;
#if defined(__TARGET_ARCH_x86)
    struct thread_struct thread;
#endif
};

/* Registers of a task that is in the kernel. */
struct pt_regs {
#if defined(__TARGET_ARCH_x86)
    unsigned long bp, di, si, dx, r10, r8, r9, orig_ax, ip, cs, sp;
#else
    unsigned long regs[31];
    unsigned long orig_x0;
    __s32 syscallno;
#endif
};

struct seq_file;

struct bpf_iter_meta {
    struct seq_file *seq;
    __u64 session_id;
    __u64 seq_num;
};

struct bpf_iter__task {
    struct bpf_iter_meta *meta;
    struct task_struct *task;
};

struct kernfs_node {
    __u64 id;
};

struct cgroup_subsys_state {
    struct cgroup_subsys_state *parent;
};

struct cgroup {
    struct cgroup_subsys_state self;
    struct kernfs_node *kn;
};

struct css_set {
    struct cgroup *dfl_cgrp;
};

struct transaction_run_stats_s {
    unsigned long rs_locked;
    unsigned long rs_flushing;
    unsigned long rs_logging;
};

struct linux_binprm;
struct kernel_siginfo;

#pragma clang attribute pop

/* Context of a perf_event program: interface to user space, not relocated. */
struct sample_context {
#if defined(__TARGET_ARCH_x86)
    unsigned long r15_to_orig_rax[16];
    unsigned long ip;
    unsigned long cs;
    unsigned long flags, sp, ss;
#else
    __u64 regs[31];
    __u64 sp;
    __u64 ip;
    __u64 pstate;
#endif
    __u64 sample_period;
    __u64 addr;
};

#endif
