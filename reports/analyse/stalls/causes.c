// SPDX-License-Identifier: Apache-2.0
// The table of causes: what each looks like and which knob ends it. The order is that of enum
// cause. `advice` is a sentence in which %s stands for the culprit, "`COMMAND` (pid N)" or
// "somebody".
#include "reports/analyse/stalls/causes.h"

#include <string.h>

#include "reports/analyse/stalls/stalls.h"

static const struct stall_cause causes_table[CAUSE_COUNT] = {
        [CAUSE_SMAPS_READ] = {"smaps_read", "A monitor reads the smaps of the process",
                "Threads wait for mmap_lock in mmap, munmap, mprotect or a page fault, while another "
                "process walks the page tables "
                "(show_smaps_rollup, smaps_pte_range). Often periodic; every rank in turn.",
                "stop %s from calling memory_full_info() or reading /proc/PID/smaps, smaps_rollup or "
                "numa_maps of this process: read "
                "memory_info() (statm) instead, or ask far less often"},
        [CAUSE_FORK_LARGE] = {"fork_large", "A fork copies the page tables of a large process",
                "Every thread stalls together for 10 to 50 ms a GiB, while one is in copy_page_range "
                "under dup_mmap.",
                "keep %s from forking out of the large process: start children with posix_spawn or vfork "
                "(subprocess with close_fds=False), "
                "from a fork server, or before memory grows; use huge pages for the big mappings"},
        [CAUSE_MUNMAP_LARGE] = {"munmap_large", "A large mapping is given back",
                "One thread is in unmap_vmas or zap_pte_range for tens to hundreds of ms; the others wait "
                "for mmap_lock.",
                "keep %s from unmapping large memory in the step: keep buffers and use them again "
                "(MALLOC_MMAP_THRESHOLD_, "
                "MALLOC_TRIM_THRESHOLD_, a caching allocator), or back them with huge pages"},
        [CAUSE_PAGE_POPULATE] = {"page_populate", "Memory is pinned or populated",
                "populate_vma_page_range, pin_user_pages or mlock holds mmap_lock "
                "while it makes pages one by one.",
                "have %s pin or populate its buffers once, before the first step "
                "(cudaHostAlloc, pin_memory, mlock, MAP_POPULATE), in smaller "
                "pieces, or with huge pages"},
        [CAUSE_NUMA_BALANCING] = {"numa_balancing", "NUMA balancing scans and moves pages",
                "Jitter of 1 to 30 ms on the way back to user space: task_numa_work, "
                "change_prot_numa, do_numa_page.",
                "bind the process to a node (numactl --cpunodebind --membind) and "
                "set sysctl kernel.numa_balancing=0%.0s"},
        [CAUSE_COMPACTION] = {"compaction", "Memory is compacted in the way of the program",
                "A huge page fault or a large allocation runs compact_zone itself, or another process "
                "compacts the zone.",
                "set /sys/kernel/mm/transparent_hugepage/defrag to madvise or defer, keep free memory "
                "(vm.min_free_kbytes), and stop %s from "
                "compacting (vm.compaction_proactiveness=0, no writes to vm.compact_memory)"},
        [CAUSE_PAGE_MIGRATION] = {"page_migration", "Somebody else moves pages of the process",
                "Threads wait in migration_entry_wait while pages are migrated by another task.",
                "stop %s from moving these pages: no writes to vm.compact_memory, "
                "vm.compaction_proactiveness=0, no migratepages or cpuset "
                "memory_migrate while the job runs"},
        [CAUSE_KHUGEPAGED] = {"khugepaged", "khugepaged collapses pages of the process",
                "Threads wait for mmap_lock while khugepaged holds it in collapse_huge_page.",
                "slow khugepaged down "
                "(/sys/kernel/mm/transparent_hugepage/khugepaged/scan_sleep_millisecs, pages_to_scan), or "
                "ask for huge "
                "pages when the memory is mapped (MADV_HUGEPAGE before the first touch)%.0s"},
        [CAUSE_RWSEM_INODE] = {"rwsem_inode", "A file is locked by another writer",
                "Threads wait for the lock of an inode (down_write under a file "
                "system's write, open or unlink) that a long write holds.",
                "keep %s from writing to the same file or directory: a log of its own, "
                "checkpoints to a temporary file in another directory and "
                "renamed, or smaller writes"},
        [CAUSE_MMAP_LOCK] = {"mmap_lock", "The memory map is locked by another task",
                "Threads wait for mmap_lock; what its holder was doing was not seen.",
                "look at what %s does with the memory of this process (mmap, munmap, "
                "/proc/PID files, ptrace), and do it less often"},
        [CAUSE_KERNEL_MUTEX] = {"kernel_mutex", "A lock of the kernel is held by another task",
                "Threads wait in mutex_lock, down_read or down_write for a lock that "
                "is none of the known ones.",
                "look at the kernel function of the wait and at what %s does there"},
        [CAUSE_TLB_SHOOTDOWN] = {"tlb_shootdown", "TLB flushes interrupt the other CPUs",
                "Time in smp_call_function_many_cond and flush_tlb: mappings change "
                "(mprotect, munmap) while other threads run.",
                "keep %s from changing mappings in a loop (mprotect, munmap, mremap): "
                "keep buffers, change larger pieces at once, or use huge "
                "pages"},
        [CAUSE_MADVISE_STORM] = {"madvise_storm", "The allocator gives memory back all the time",
                "Much time in madvise and zap_page_range, and page faults afterwards: "
                "jemalloc or tcmalloc purging.",
                "let the allocator of %s keep memory: "
                "MALLOC_CONF=dirty_decay_ms:-1,muzzy_decay_ms:-1 (jemalloc), "
                "TCMALLOC_RELEASE_RATE=0 (tcmalloc), fewer MADV_DONTNEED"},
        [CAUSE_CPU_QUOTA] = {"cpu_quota", "The CPU quota of the cgroup is used up",
                "Runnable threads stay off the CPU for tens of ms while it idles; "
                "nr_throttled in cpu.stat grows.",
                "raise or remove the CPU limit of the cgroup (cpu.max, "
                "resources.limits.cpu), or start fewer threads (OMP_NUM_THREADS)%.0s"},
        [CAUSE_CPU_CONTENTION] = {"cpu_contention", "Other programs take the CPU",
                "Threads are runnable and wait while others run on their CPU.",
                "keep %s off these CPUs: pin the job (taskset, cpuset), lower the "
                "other's weight (nice, cpu.weight), or start fewer threads "
                "(OMP_NUM_THREADS)"},
        [CAUSE_RT_HOG] = {"rt_hog", "A real-time task takes the CPU",
                "Runnable threads wait for tens to hundreds of ms while a task of real-time "
                "priority runs.",
                "take the real-time priority from %s (chrt -o -p 0 PID), bound it (sysctl "
                "kernel.sched_rt_runtime_us), or give it a CPU of its own"},
        [CAUSE_SOFTIRQ_STORM] = {"softirq_storm", "Interrupts take the CPU",
                "Much of the time of a CPU goes into soft interrupts "
                "(handle_softirqs, net_rx_action) while the program should run.",
                "move the interrupts elsewhere: /proc/irq/*/smp_affinity, irqbalance "
                "with banned CPUs, RPS (rps_cpus), or pin the job to other "
                "CPUs%.0s"},
        [CAUSE_ZOMBIE_MEMCG] = {"zombie_memcg", "Thousands of dead cgroups slow the kernel down",
                "/proc/cgroups counts many more memory cgroups than there are directories; CPU time in "
                "mem_cgroup_nr_lru_pages and memcg statistics.",
                "find what makes and removes cgroups (a service that crashes and restarts), stop it, and "
                "drop what pins them (vm.drop_caches, tmpfs "
                "files) or reboot; the reader of the statistics is %s"},
        [CAUSE_RSTAT_LOCK] = {"rstat_lock",
                "Readers of cgroup statistics hold the lock of the statistics",
                "Threads wait for or spin on the lock of cgroup_rstat_flush.",
                "have %s read memory.stat and cpu.stat less often, and remove cgroups that nobody needs"},
        [CAUSE_SIGSTOP] = {"sigstop", "The process was stopped by a signal",
                "All threads stand in do_signal_stop until SIGCONT comes.",
                "stop %s from sending SIGSTOP or SIGTSTP to this process (job control, a "
                "job scheduler's suspend, kill -STOP)"},
        [CAUSE_CGROUP_FREEZER] = {"cgroup_freezer", "The cgroup was frozen",
                "All threads stand in the refrigerator: docker pause, a checkpoint, "
                "a scheduler that freezes.",
                "stop %s from freezing the cgroup (docker pause, cgroup.freeze, "
                "freezer.state) while the job runs"},
        [CAUSE_PTRACE] = {"ptrace", "A debugger or profiler stops the threads",
                "Threads stand in ptrace_stop: py-spy, gdb, strace.",
                "end %s, or let it not stop the target (py-spy --nonblocking, a lower rate)"},
        [CAUSE_STEAL] = {"steal", "The hypervisor takes the CPU",
                "The steal time of the CPUs grows; threads lose time without being switched out.",
                "move the machine or buy dedicated cores: another guest of the host takes the CPU%.0s"},
        [CAUSE_MEMCG_RECLAIM] = {"memcg_reclaim",
                "The memory limit of the cgroup makes threads reclaim",
                "Threads reclaim pages themselves (try_charge_memcg, shrink_lruvec) or wait in "
                "reclaim_throttle.",
                "raise the memory limit of the cgroup (memory.max, resources.limits.memory), or use less "
                "page cache (O_DIRECT, fadvise DONTNEED)%.0s"},
        [CAUSE_MEMORY_HIGH] = {"memory_high", "memory.high slows the process down",
                "Threads sleep in mem_cgroup_handle_over_high on the way back to user space.",
                "raise memory.high of the cgroup, or use less memory%.0s"},
        [CAUSE_DIRECT_RECLAIM] = {"direct_reclaim", "The machine is short of memory",
                "Threads reclaim pages themselves (try_to_free_pages, shrink_node) "
                "without a limit of their cgroup.",
                "free memory on the machine (look at %s), raise vm.min_free_kbytes "
                "and vm.watermark_scale_factor"},
        [CAUSE_SWAP_IN] = {"swap_in", "Memory comes back from swap",
                "Page faults wait in do_swap_page for the swap device.",
                "keep the process out of swap: more memory, memory.swap.max=0, "
                "vm.swappiness=0, mlock%.0s"},
        [CAUSE_DIRTY_THROTTLE] = {"dirty_throttle",
                "Writers are slowed down because too many pages are dirty",
                "Threads sleep in balance_dirty_pages.",
                "write less at once or elsewhere: O_DIRECT or sync_file_range for "
                "checkpoints, raise vm.dirty_bytes, a faster disk; look at %s"},
        [CAUSE_FSYNC_JOURNAL] = {"fsync_journal", "A file system commit holds the program up",
                "Threads wait in jbd2_log_wait_commit, wait_transaction_locked or "
                "fsync for the journal and the disk.",
                "fsync less often and not in the step, write logs and checkpoints to "
                "another file system, or keep %s from writing there"},
        [CAUSE_DISK_READ] = {"disk_read", "Reads wait for the disk",
                "Threads wait in folio_wait_bit_common or io_schedule under a read of a "
                "file that is not in the page cache.",
                "read ahead (more loader workers, prefetch, posix_fadvise), keep the "
                "files on a faster disk or in the page cache, and raise the "
                "I/O limit of the cgroup (io.max)%.0s"},
        [CAUSE_FUSE_HANG] = {"fuse_hang", "A FUSE or network file system does not answer",
                "Threads wait in request_wait_answer or rpc_wait_bit_killable for a daemon or a server.",
                "look at %s, the daemon behind the file system: is it stopped, short of CPU or of memory? "
                "Keep the data on a local disk"},
        [CAUSE_MAJOR_FAULT] = {"major_fault", "Page faults wait for the disk",
                "Page faults of mapped files (libraries, weights) wait in filemap_fault "
                "for pages that were evicted.",
                "keep the mapped files in memory: MAP_POPULATE, mlock or vmtouch before "
                "the first step, and more memory for the cgroup%.0s"},
        [CAUSE_OOM_KILL] = {"oom_kill", "A process of the job was killed for lack of memory",
                "The kernel chose a process of the target as victim of an OOM kill; the "
                "others wait for it.",
                "raise the memory limit (memory.max) or use less: fewer loader workers, "
                "smaller prefetch_factor; killed was %s"},
        [CAUSE_GIL_WAIT] = {"gil_wait", "Threads wait for Python's global interpreter lock",
                "Rows of 5 ms futex waits, woken by the timer, at one place (take_gil), "
                "while another thread of the process runs.",
                "move the work of %s out of the process (multiprocessing), or into code "
                "that releases the GIL (NumPy, Py_BEGIN_ALLOW_THREADS)"},
        [CAUSE_PYTHON_GC] = {"python_gc", "Python's garbage collector runs",
                "On-CPU pauses in gc_collect_main, deduce_unreachable: generation 2 over "
                "millions of objects.",
                "gc.freeze() after start-up, gc.disable() in the training loop with "
                "gc.collect() at a chosen step on all ranks alike, or a higher "
                "gc.set_threshold()%.0s"},
        [CAUSE_DATA_LOADER] = {"data_loader", "The data loader is too slow",
                "The main thread waits for a queue or pipe that its workers fill; the "
                "workers are busy or blocked themselves.",
                "give the loader more (num_workers, prefetch_factor, "
                "persistent_workers), or make its work cheaper; the slow one is %s"},
        [CAUSE_COMPILE_CHILD] = {"compile_child", "A compiler runs in a child process",
                "Threads wait while ptxas, gcc, triton or the like run as children: recompilation.",
                "stop recompiling: a warm cache (TORCHINDUCTOR_CACHE_DIR, TRITON_CACHE_DIR, "
                "CUDA_CACHE_MAXSIZE), fixed shapes "
                "(torch.compile dynamic, mark_dynamic); running was %s"},
        [CAUSE_PIPE_WRITE] = {"pipe_write", "Output waits for a slow reader",
                "Threads wait in pipe_write or n_tty_write because the pipe, terminal or socket is full.",
                "let %s read faster, write to a file, or log from another thread and less"},
        [CAUSE_PTHREAD_MUTEX] = {"pthread_mutex", "A mutex is held by another thread",
                "Threads wait in futex for a mutex whose owner is another thread of the program.",
                "shorten what %s does while it holds the mutex"},
        [CAUSE_FUTEX_WAIT] = {"futex_wait", "A thread waits for another one that does not run",
                "A busy thread waits on a condition or semaphore, and the thread that "
                "ends the wait was off the CPU.",
                "look at why %s comes late"},
        [CAUSE_NETWORK_PEER] = {"network_peer", "The other end of a connection is slow",
                "A busy thread waits in recv, send or poll for a socket.",
                "look at %s, the other end of the connection: is it stopped, slow, or "
                "the network losing packets (tcp retransmits)?"},
        [CAUSE_DRIVER_LOCK] = {"driver_lock", "A lock of the GPU driver is held",
                "Threads wait inside the driver's ioctl (rmapiLockAcquire, "
                "os_acquire_rwlock, uvm) for somebody else's call.",
                "stop %s from polling the driver (nvidia-smi, DCGM), and register or "
                "load less at a time (CUDA_MODULE_LOADING=EAGER)"},
        [CAUSE_GPU_SYNC] = {"gpu_sync", "The program waits for the GPU",
                "Threads wait or spin in cudaStreamSynchronize and the like.",
                "make fewer synchronisations in the step (.item(), .cpu(), print), or launch more before "
                "each: behind it the GPU has nothing to do until the host has launched again; where another "
                "process uses that GPU, some of it is that one's turn; where the GPU was not recorded, look at "
                "its kernels: this wait ends when they do%.0s"},
        [CAUSE_ALLOC_RETRY] = {"alloc_retry", "GPU memory calls wait for the GPU",
                "Threads wait in cudaFree, cudaMalloc or cudaHostAlloc, which wait for all kernels.",
                "allocate once: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, smaller peaks, no "
                "empty_cache() in the step%.0s"},
        [CAUSE_STRAGGLER] = {"straggler",
                "One rank of the job comes late, and the others wait for it",
                "In collectives (NCCL, gloo, MPI) the same rank comes last, more often and later than chance explains; what it does "
                "meanwhile and the others do not is named.",
                "look at what %s does more than the other ranks, and take it out of the step or spread it over all"},
        [CAUSE_UNKNOWN] = {"unknown", "Not recognised",
                "A wait that fits none of the causes; its stack is shown.",
                "look at the stack of the wait%.0s"},
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
