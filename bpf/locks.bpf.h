/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Waits of targets for kernel locks: which lock, of which kind, and who holds it. An owner that
 * sleeps is asked for its stack at once; that of an owner that runs on another CPU cannot be read
 * (0 bytes), so it is watched: the sampler sends its stacks until the waiter has the lock.
 */
#ifndef UPGATE_BPF_LOCKS_BPF_H
#define UPGATE_BPF_LOCKS_BPF_H

#include "bpf/common.bpf.h"

enum { RWSEM_READER_OWNED = 1, OWNER_FLAGS = 7 };

/* On PREEMPT_RT all locks that sleep are made of rt_mutex. */
static __always_inline bool is_realtime(void)
{
    return bpf_core_field_exists(struct rw_semaphore___rt, rwbase);
}

static __always_inline __u16 lock_kind(__u32 flags)
{
    if (flags & LCB_F_PERCPU)
        return UG_LOCK_PERCPU_RWSEM;
    if (flags & LCB_F_RT)
        return flags & (LCB_F_READ | LCB_F_WRITE) ? UG_LOCK_RWSEM : UG_LOCK_RTMUTEX;
    if (flags & LCB_F_MUTEX)
        return UG_LOCK_MUTEX;
    if (flags & LCB_F_SPIN)
        return UG_LOCK_SPIN;
    return flags & (LCB_F_READ | LCB_F_WRITE) ? UG_LOCK_RWSEM : UG_LOCK_SEMAPHORE;
}

/* Its lowest bit says that there are waiters. */
static __always_inline __u64 read_rt_owner(__u64 lock, __u16 kind)
{
    __u64 owner = 0;

    if (kind == UG_LOCK_RWSEM || kind == UG_LOCK_MMAP)
        owner = (__u64)BPF_CORE_READ((struct rw_semaphore___rt *)lock, rwbase.rtmutex.owner);
    else if (kind == UG_LOCK_MUTEX)
        owner = (__u64)BPF_CORE_READ((struct mutex___rt *)lock, rtmutex.owner);
    else if (kind == UG_LOCK_RTMUTEX)
        owner = (__u64)BPF_CORE_READ((struct rt_mutex_base *)lock, owner);
    return owner & ~1ULL;
}

/* The owner word of a lock with its flags; 0: none or not known. */
static __always_inline __u64 read_owner(__u64 lock, __u16 kind)
{
    __u64 owner = 0;

    if (is_realtime())
        return read_rt_owner(lock, kind);
    if (kind == UG_LOCK_RWSEM || kind == UG_LOCK_MMAP)
        owner = BPF_CORE_READ((struct rw_semaphore *)lock, owner.counter);
    else if (kind == UG_LOCK_MUTEX)
        owner = BPF_CORE_READ((struct mutex *)lock, owner.counter);
    else if (kind == UG_LOCK_RTMUTEX)
        owner = (__u64)BPF_CORE_READ((struct rt_mutex_base *)lock, owner) & ~1ULL;
    return owner;
}

static __always_inline bool is_mmap_lock(struct task_struct *task, __u64 lock)
{
    struct mm_struct *mm = task->mm;

    return mm && (__u64)mm + bpf_core_field_offset(struct mm_struct, mmap_lock) == lock;
}

static __always_inline bool is_mmap_lock_held(struct mm_struct *mm)
{
    if (is_realtime())
        return ((struct mm_struct___rt *)mm)->mmap_lock.rwbase.readers.counter != RT_READER_BIAS;
    return mm->mmap_lock.count.counter;
}

/* On PREEMPT_RT who waits for a semaphore waits for the rtmutex in it, and the kernel tells of
 * both, one inside the other: the semaphore's address for both. */
static __always_inline __u64 outer_lock(struct task_struct *task, struct wait *wait, __u64 lock)
{
    __u64 outer;

    if (!is_realtime())
        return lock;
    outer = lock - bpf_core_field_offset(struct rwbase_rt, rtmutex);
    return (wait->begin_ns && wait->lock == outer) || is_mmap_lock(task, outer) ? outer : lock;
}

static __always_inline void activate(struct wait *wait, __u32 waiter)
{
    __u32 place = index_of(waiter, ACTIVE_MAX);
    struct active *active = &actives[place];

    if (active->lock)
        return; /* another thread has the place: its owner is watched, this one's is not */
    active->waiter = waiter;
    active->owner = wait->owner.tid;
    active->kind = wait->kind;
    active->lock = wait->lock;
    __sync_fetch_and_add(&active_count, 1);
    wait->active = place + 1;
}

static __always_inline void deactivate(struct wait *wait)
{
    struct active *active = &actives[index_of(wait->active - 1, ACTIVE_MAX)];

    if (!wait->active)
        return;
    wait->active = 0;
    active->lock = 0;
    __sync_fetch_and_add(&active_count, -1);
}

/* Does the task own a lock that a target waits for? */
static __always_inline bool owns_awaited(struct task_struct *task)
{
    for (int i = 0; i < ACTIVE_MAX; i++) {
        struct active *active = &actives[i];
        __u64 lock = active->lock;

        if (!lock)
            continue;
        if (active->owner == (__u32)task->pid ||
                (read_owner(lock, active->kind) & ~(__u64)OWNER_FLAGS) == (__u64)task)
            return true;
    }
    return false;
}

/* Without the kfunc: what the pointer shows. Reads are safe, the name of a reader may be that of
 * one who is gone. */
static __always_inline void guess_owner(struct ug_task *owner, __u64 pointer)
{
    struct task_struct *task = (struct task_struct *)pointer;

    owner->tid = BPF_CORE_READ(task, pid);
    owner->tgid = BPF_CORE_READ(task, tgid);
    bpf_core_read(owner->comm, sizeof(owner->comm), &task->comm);
    if (!owner->tid || owner->tid >= TID_MAX || owner->tgid == self_tgid)
        __builtin_memset(owner, 0, sizeof(*owner));
}

/* The pointer in a lock may be stale (a reader's is never taken back): it counts only if it is
 * still a task's. */
static __always_inline void find_owner(struct thread *thread, __u64 word)
{
    struct wait *wait = &thread->wait;
    struct task_struct *owner = NULL;
    __u64 pointer = word & ~(__u64)OWNER_FLAGS;
    long bytes = 0;

    if (!pointer)
        return;
    if (!ask_owners || !bpf_task_from_pid) {
        guess_owner(&wait->owner, pointer);
        return;
    }
    owner = bpf_task_from_pid(BPF_CORE_READ((struct task_struct *)pointer, pid));
    if (!owner)
        return;
    if ((__u64)owner == pointer && (__u32)owner->tgid != self_tgid) {
        copy_task(&wait->owner, owner);
        if (owner->on_cpu)
            wait->owner_flags |= UG_GAP_OWNER_RUNNING;
        if (thread->budget) {
            thread->budget--;
            bytes = bpf_get_task_stack(owner, thread->owners, sizeof(thread->owners), 0);
        }
        wait->owner_count = bytes > 0 ? bytes / 8 : 0;
    }
    bpf_task_release(owner);
}

SEC("tp_btf/contention_begin")
int BPF_PROG(lock_begin, void *lock_pointer, unsigned int flags)
{
    struct task_struct *task = bpf_get_current_task_btf();
    __u64 lock = (__u64)lock_pointer, now, word;
    struct thread *thread;
    struct wait *wait;
    __u16 kind;

    if (!is_target(task->pid))
        return 0;
    thread = thread_of(task);
    if (!thread)
        return 0;
    now = bpf_ktime_get_ns();
    kind = lock_kind(flags);
    if (kind == UG_LOCK_SPIN) {
        thread->spin_lock = lock;
        thread->spin_begin_ns = now;
        return 0;
    }
    wait = &thread->wait;
    lock = outer_lock(task, wait, lock);
    if (wait->begin_ns && wait->lock == lock) { /* a mutex that span goes to sleep */
        wait->flags = flags;
        return 0;
    }
    if (now - thread->budget_ns > BUDGET_NS) {
        thread->budget_ns = now;
        thread->budget = BUDGET;
    }
    deactivate(wait);
    __builtin_memset(wait, 0, sizeof(*wait));
    wait->lock = lock;
    wait->flags = flags;
    wait->begin_ns = now;
    wait->kind = is_mmap_lock(task, lock) ? UG_LOCK_MMAP : kind;
    word = read_owner(lock, wait->kind);
    if ((wait->kind == UG_LOCK_RWSEM || wait->kind == UG_LOCK_MMAP) && word & RWSEM_READER_OWNED)
        wait->owner_flags = UG_GAP_OWNER_READER;
    if (is_realtime() && word == (__u64)task) { /* a writer that waits for readers to end */
        wait->owner_flags = UG_GAP_OWNER_READER;
        word = 0;
    }
    find_owner(thread, word);
    activate(wait, task->pid);
    return 0;
}

static __always_inline void send_lock(
        void *ctx, struct thread *thread, struct task_struct *task, struct wait *wait, __u64 now)
{
    struct scratch *scratch = scratch_of(SCRATCH_LOCK);
    struct ug_lock *lock;
    __u32 at = sizeof(*lock);
    long bytes;

    if (!scratch)
        return;
    lock = (struct ug_lock *)scratch->bytes;
    __builtin_memset(lock, 0, sizeof(*lock));
    lock->head.kind = UG_EVENT_LOCK;
    lock->begin_ns = wait->begin_ns;
    lock->end_ns = now;
    lock->lock = wait->lock;
    copy_task(&lock->task, task);
    lock->owner = wait->owner;
    lock->lock_flags = wait->flags;
    lock->lock_kind = wait->kind;
    lock->owner_flags = wait->owner_flags >> 12;
    bytes = bpf_get_stack(ctx, scratch->bytes + sizeof(*lock), UG_KSTACK_MAX * 8, SKIP_OWN_FRAMES);
    if (bytes > 0) {
        lock->kernel_count = bytes / 8;
        at += bytes;
    }
    if (wait->owner_count) {
        lock->owner_count = wait->owner_count;
        at = append(scratch, at, thread->owners, lock->owner_count * 8);
    }
    lock->head.size = at;
    emit_flood(UG_COUNTER_LOCK, lock, at, lock->kernel_count == UG_KSTACK_MAX);
}

SEC("tp_btf/contention_end")
int BPF_PROG(lock_end, void *lock_pointer, int result)
{
    struct task_struct *task = bpf_get_current_task_btf();
    __u64 lock = (__u64)lock_pointer, now;
    struct thread *thread;

    if (!is_target(task->pid))
        return 0;
    thread = thread_of(task);
    if (!thread)
        return 0;
    now = bpf_ktime_get_ns();
    lock = outer_lock(task, &thread->wait, lock);
    if (thread->wait.begin_ns && thread->wait.lock == lock) {
        if (now - thread->wait.begin_ns >= threshold_ns)
            send_lock(ctx, thread, task, &thread->wait, now);
        deactivate(&thread->wait);
        thread->wait.begin_ns = 0;
    } else if (thread->spin_begin_ns && thread->spin_lock == lock) {
        if (now - thread->spin_begin_ns >= threshold_ns) {
            struct wait spin = {.begin_ns = thread->spin_begin_ns,
                    .lock = lock,
                    .flags = LCB_F_SPIN,
                    .kind = UG_LOCK_SPIN};

            send_lock(ctx, thread, task, &spin, now);
        }
        thread->spin_begin_ns = 0;
    }
    return 0;
}

#endif
