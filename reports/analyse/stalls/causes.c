// SPDX-License-Identifier: Apache-2.0
// The table of causes: what each is called and looks like. The order is that of enum cause. What
// ends it is said in reports/render/causes.
#include "reports/analyse/stalls/causes.h"

#include <string.h>

#include "reports/analyse/stalls/stalls.h"

static const struct stall_cause causes_table[CAUSE_COUNT] = {
        [CAUSE_SMAPS_READ] = {"smaps_read", "A monitor reads the smaps of the process",
                "Threads wait for mmap_lock in mmap, munmap, mprotect or a page fault, while another "
                "process walks the page tables "
                "(show_smaps_rollup, smaps_pte_range). Often periodic; every rank in turn."},
        [CAUSE_FORK_LARGE] = {"fork_large", "A fork copies the page tables of a large process",
                "Every thread stalls together for 10 to 50 ms a GiB, while one is in copy_page_range "
                "under dup_mmap."},
        [CAUSE_MUNMAP_LARGE] = {"munmap_large", "A large mapping is given back",
                "One thread is in unmap_vmas or zap_pte_range for tens to hundreds of ms; the others wait "
                "for mmap_lock."},
        [CAUSE_PAGE_POPULATE] = {"page_populate", "Memory is pinned or populated",
                "populate_vma_page_range, pin_user_pages or mlock holds mmap_lock "
                "while it makes pages one by one."},
        [CAUSE_NUMA_BALANCING] = {"numa_balancing", "NUMA balancing scans and moves pages",
                "Jitter of 1 to 30 ms on the way back to user space: task_numa_work, "
                "change_prot_numa, do_numa_page."},
        [CAUSE_COMPACTION] = {"compaction", "Memory is compacted in the way of the program",
                "A huge page fault or a large allocation runs compact_zone itself, or another process "
                "compacts the zone."},
        [CAUSE_PAGE_MIGRATION] = {"page_migration", "Somebody else moves pages of the process",
                "Threads wait in migration_entry_wait while pages are migrated by another task."},
        [CAUSE_KHUGEPAGED] = {"khugepaged", "khugepaged collapses pages of the process",
                "Threads wait for mmap_lock while khugepaged holds it in collapse_huge_page."},
        [CAUSE_RWSEM_INODE] = {"rwsem_inode", "A file is locked by another writer",
                "Threads wait for the lock of an inode (down_write under a file "
                "system's write, open or unlink) that a long write holds."},
        [CAUSE_MMAP_LOCK] = {"mmap_lock", "The memory map is locked by another task",
                "Threads wait for mmap_lock; what its holder was doing was not seen."},
        [CAUSE_KERNEL_MUTEX] = {"kernel_mutex", "A lock of the kernel is held by another task",
                "Threads wait in mutex_lock, down_read or down_write for a lock that "
                "is none of the known ones."},
        [CAUSE_TLB_SHOOTDOWN] = {"tlb_shootdown", "TLB flushes interrupt the other CPUs",
                "Time in smp_call_function_many_cond and flush_tlb: mappings change "
                "(mprotect, munmap) while other threads run."},
        [CAUSE_MADVISE_STORM] = {"madvise_storm", "The allocator gives memory back all the time",
                "Much time in madvise and zap_page_range, and page faults afterwards: "
                "jemalloc or tcmalloc purging."},
        [CAUSE_CPU_QUOTA] = {"cpu_quota", "The CPU quota of the cgroup is used up",
                "Runnable threads stay off the CPU for tens of ms while it idles; "
                "nr_throttled in cpu.stat grows."},
        [CAUSE_CPU_CONTENTION] = {"cpu_contention", "Other programs take the CPU",
                "Threads are runnable and wait while others run on their CPU."},
        [CAUSE_RT_HOG] = {"rt_hog", "A real-time task takes the CPU",
                "Runnable threads wait for tens to hundreds of ms while a task of real-time "
                "priority runs."},
        [CAUSE_SOFTIRQ_STORM] = {"softirq_storm", "Interrupts take the CPU",
                "Much of the time of a CPU goes into soft interrupts "
                "(handle_softirqs, net_rx_action) while the program should run."},
        [CAUSE_ZOMBIE_MEMCG] = {"zombie_memcg", "Thousands of dead cgroups slow the kernel down",
                "/proc/cgroups counts many more memory cgroups than there are directories; CPU time in "
                "mem_cgroup_nr_lru_pages and memcg statistics."},
        [CAUSE_RSTAT_LOCK] = {"rstat_lock",
                "Readers of cgroup statistics hold the lock of the statistics",
                "Threads wait for or spin on the lock of cgroup_rstat_flush."},
        [CAUSE_SIGSTOP] = {"sigstop", "The process was stopped by a signal",
                "All threads stand in do_signal_stop until SIGCONT comes."},
        [CAUSE_CGROUP_FREEZER] = {"cgroup_freezer", "The cgroup was frozen",
                "All threads stand in the refrigerator: docker pause, a checkpoint, "
                "a scheduler that freezes."},
        [CAUSE_PTRACE] = {"ptrace", "A debugger or profiler stops the threads",
                "Threads stand in ptrace_stop: py-spy, gdb, strace."},
        [CAUSE_STEAL] = {"steal", "The hypervisor takes the CPU",
                "The steal time of the CPUs grows; threads lose time without being switched out."},
        [CAUSE_MEMCG_RECLAIM] = {"memcg_reclaim",
                "The memory limit of the cgroup makes threads reclaim",
                "Threads reclaim pages themselves (try_charge_memcg, shrink_lruvec) or wait in "
                "reclaim_throttle."},
        [CAUSE_MEMORY_HIGH] = {"memory_high", "memory.high slows the process down",
                "Threads sleep in mem_cgroup_handle_over_high on the way back to user space."},
        [CAUSE_DIRECT_RECLAIM] = {"direct_reclaim", "The machine is short of memory",
                "Threads reclaim pages themselves (try_to_free_pages, shrink_node) "
                "without a limit of their cgroup."},
        [CAUSE_SWAP_IN] = {"swap_in", "Memory comes back from swap",
                "Page faults wait in do_swap_page for the swap device."},
        [CAUSE_DIRTY_THROTTLE] = {"dirty_throttle",
                "Writers are slowed down because too many pages are dirty",
                "Threads sleep in balance_dirty_pages."},
        [CAUSE_FSYNC_JOURNAL] = {"fsync_journal", "A file system commit holds the program up",
                "Threads wait in jbd2_log_wait_commit, wait_transaction_locked or "
                "fsync for the journal and the disk."},
        [CAUSE_DISK_READ] = {"disk_read", "Reads wait for the disk",
                "Threads wait in folio_wait_bit_common or io_schedule under a read of a "
                "file that is not in the page cache."},
        [CAUSE_FUSE_HANG] = {"fuse_hang", "A FUSE or network file system does not answer",
                "Threads wait in request_wait_answer or rpc_wait_bit_killable for a daemon or a server."},
        [CAUSE_MAJOR_FAULT] = {"major_fault", "Page faults wait for the disk",
                "Page faults of mapped files (libraries, weights) wait in filemap_fault "
                "for pages that were evicted."},
        [CAUSE_OOM_KILL] = {"oom_kill", "A process of the job was killed for lack of memory",
                "The kernel chose a process of the target as victim of an OOM kill; the "
                "others wait for it."},
        [CAUSE_GIL_WAIT] = {"gil_wait", "Threads wait for Python's global interpreter lock",
                "Rows of 5 ms futex waits, woken by the timer, at one place (take_gil), "
                "while another thread of the process runs."},
        [CAUSE_PYTHON_GC] = {"python_gc", "Python's garbage collector runs",
                "On-CPU pauses in gc_collect_main, deduce_unreachable: generation 2 over "
                "millions of objects."},
        [CAUSE_DATA_LOADER] = {"data_loader", "The data loader is too slow",
                "The main thread waits for a queue or pipe that its workers fill; the "
                "workers are busy or blocked themselves."},
        [CAUSE_COMPILE_CHILD] = {"compile_child", "A compiler runs in a child process",
                "Threads wait while ptxas, gcc, triton or the like run as children: recompilation."},
        [CAUSE_PIPE_WRITE] = {"pipe_write", "Output waits for a slow reader",
                "Threads wait in pipe_write or n_tty_write because the pipe, terminal or socket is full."},
        [CAUSE_PTHREAD_MUTEX] = {"pthread_mutex", "A mutex is held by another thread",
                "Threads wait in futex for a mutex whose owner is another thread of the program."},
        [CAUSE_FUTEX_WAIT] = {"futex_wait", "A thread waits for another one that does not run",
                "A busy thread waits on a condition or semaphore, and the thread that "
                "ends the wait was off the CPU."},
        [CAUSE_NETWORK_PEER] = {"network_peer", "The other end of a connection is slow",
                "A busy thread waits in recv, send or poll for a socket."},
        [CAUSE_DRIVER_LOCK] = {"driver_lock", "A lock of the GPU driver is held",
                "Threads wait inside the driver's ioctl (rmapiLockAcquire, "
                "os_acquire_rwlock, uvm) for somebody else's call."},
        [CAUSE_GPU_SYNC] = {"gpu_sync", "The program waits for the GPU",
                "Threads wait or spin in cudaStreamSynchronize and the like."},
        [CAUSE_ALLOC_RETRY] = {"alloc_retry", "GPU memory calls wait for the GPU",
                "Threads wait in cudaFree, cudaMalloc or cudaHostAlloc, which wait for all kernels."},
        [CAUSE_STRAGGLER] = {"straggler",
                "One rank of the job comes late, and the others wait for it",
                "In collectives (NCCL, gloo, MPI) the same rank comes last, more often and later than chance explains; what it does "
                "meanwhile and the others do not is named."},
        [CAUSE_UNKNOWN] = {"unknown", "Not recognised",
                "A wait that fits none of the causes; its stack is shown."},
};

const struct stall_cause *stall_causes(size_t *ret_count)
{
    *ret_count = CAUSE_COUNT;
    return causes_table;
}

const struct stall_cause *causes_row(enum cause cause)
{
    return &causes_table[cause];
}

const struct stall_cause *stall_cause_of(const char *id)
{
    for (size_t i = 0; i < CAUSE_COUNT; i++)
        if (!strcmp(causes_table[i].id, id))
            return &causes_table[i];
    return NULL;
}
