// SPDX-License-Identifier: Apache-2.0
// Marks: what a stack says, as bits. Each function name is looked up once, each distinct stack is
// the union of its functions, so that millions of gaps and samples only test bits. Works for stacks
// with the frames of .sched.text (schedule, down_write) and without them. Pure; one owner thread.
#ifndef UPGATE_TRACE_MARKS_H
#define UPGATE_TRACE_MARKS_H

#include <stdbool.h>
#include <stdint.h>

enum mark {
    MARK_MMAP_SITE, // a caller that takes mmap_lock
    MARK_RWSEM_WAIT,
    MARK_MUTEX_WAIT,
    MARK_SPIN,
    MARK_FUTEX,
    MARK_PIPE_READ,
    MARK_PIPE_WRITE,
    MARK_EPOLL,
    MARK_POLL,
    MARK_SOCKET_RECV,
    MARK_SOCKET_SEND,
    MARK_ACCEPT,
    MARK_SLEEP,
    MARK_CHILD,
    MARK_SIGWAIT,
    MARK_PTRACE,
    MARK_STOP,
    MARK_FREEZE,
    MARK_GET_SIGNAL, // asleep below it and neither stopped nor traced: the freezer of cgroup v2,
                     // inlined
    MARK_SIGNAL_END, // below get_signal as well: exits, core dumps, work left to do. No freezer
    MARK_RECLAIM,
    MARK_MEMCG,
    MARK_MEMCG_HIGH,
    MARK_SWAP,
    MARK_FAULT,
    MARK_FILE_FAULT,
    MARK_FOLIO_WAIT,
    MARK_FILE_READ,
    MARK_DIRTY,
    MARK_JOURNAL,
    MARK_FSYNC,
    MARK_BLOCK_WAIT, // queue of the block layer
    MARK_FUSE,
    MARK_RPC,
    MARK_INODE,
    MARK_GPU_DRIVER,
    MARK_COMPACT,
    MARK_MIGRATE,
    MARK_MIGRATION_WAIT,
    MARK_NUMA,
    MARK_KHUGEPAGED,
    MARK_SMAPS,
    MARK_FORK,
    MARK_UNMAP,
    MARK_MADVISE,
    MARK_EXIT_MM,
    MARK_POPULATE,
    MARK_TLB,
    MARK_MPROTECT,
    MARK_SOFTIRQ,
    MARK_IRQ,
    MARK_TIMER,
    MARK_BLOCK_DONE,
    MARK_NET_RX,
    MARK_BH_ENABLE, // softirqs run at the end of a section of process context
    MARK_RSTAT,
    MARK_MEMCG_STAT,
    MARK_UNLOCK,
    MARK_THAW,
    MARK_WORKER_IDLE,
    MARK_TAKE_GIL, // from here on: user and Python frames
    MARK_GC,
    MARK_MUTEX_USER,
    MARK_COND,
    MARK_OMP,
    MARK_CUDA_SYNC,
    MARK_CUDA_ALLOC,
    MARK_CUDA_LOAD,
    MARK_NCCL,
    MARK_LOADER,
    MARK_QUEUE_GET,
    MARK_WORKER_LOOP,
    MARK_COLLECTIVE, // of a job's ranks: waits in it are for the others
    MARK_MPI,        // spins in them
    MARK_STORE,      // where ranks meet: no collective
    MARK_READ,       // the system call, of whatever file
    MARK_MESSAGE,    // of those what is, or may be, between two ranks only: sends and receives
    MARK_COUNT
};

struct marks {
    uint64_t word[2];
};
_Static_assert(MARK_COUNT <= 128, "two words");

static inline bool marks_has(struct marks marks, enum mark mark)
{
    return marks.word[mark / 64] >> (mark % 64) & 1;
}
static inline struct marks marks_join(struct marks a, struct marks b)
{
    return (struct marks){{a.word[0] | b.word[0], a.word[1] | b.word[1]}};
}

// kind: 'k' kernel, 'u' user, 'p' Python. module may be NULL.
struct marks marks_of_function(char kind, const char *name, const char *module);
// Of a system call's number, for a gap without a kernel stack: the numbers are another list on each
// machine.
enum marks_machine { MARKS_MACHINE_X86_64, MARKS_MACHINE_ARM64, MARKS_MACHINE_COUNT };
struct marks marks_of_syscall(enum marks_machine machine, int number);
// as uname -m says it; NULL and others: x86-64
enum marks_machine marks_machine_of(const char *name);

#endif
