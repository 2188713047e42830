// SPDX-License-Identifier: Apache-2.0
// What ends each cause of stalls, a sentence each. In it %s stands for the culprit; one that is the
// same whoever it is has none. Pure.
#include <string.h>

#include "common/strings.h"
#include "reports/analyse/stalls/causes.h"
#include "reports/analyse/stalls/stalls.h"
#include "reports/render/causes/cause_text.h"

static const char *advice_of(enum cause cause)
{
    switch (cause) {
    case CAUSE_SMAPS_READ:
        return "stop %s from calling memory_full_info() or reading /proc/PID/smaps, smaps_rollup or numa_maps of this process: read memory_info() (statm) instead, or ask far less often";
    case CAUSE_FORK_LARGE:
        return "keep %s from forking out of the large process: start children with posix_spawn or vfork (subprocess with close_fds=False), from a fork server, or before memory grows; use huge pages for the big mappings";
    case CAUSE_MUNMAP_LARGE:
        return "keep %s from unmapping large memory in the step: keep buffers and use them again (MALLOC_MMAP_THRESHOLD_, MALLOC_TRIM_THRESHOLD_, a caching allocator), or back them with huge pages";
    case CAUSE_PAGE_POPULATE:
        return "have %s pin or populate its buffers once, before the first step (cudaHostAlloc, pin_memory, mlock, MAP_POPULATE), in smaller pieces, or with huge pages";
    case CAUSE_NUMA_BALANCING:
        return "bind the process to a node (numactl --cpunodebind --membind) and set sysctl kernel.numa_balancing=0";
    case CAUSE_COMPACTION:
        return "set /sys/kernel/mm/transparent_hugepage/defrag to madvise or defer, keep free memory (vm.min_free_kbytes), and stop %s from compacting (vm.compaction_proactiveness=0, no writes to vm.compact_memory)";
    case CAUSE_PAGE_MIGRATION:
        return "stop %s from moving these pages: no writes to vm.compact_memory, vm.compaction_proactiveness=0, no migratepages or cpuset memory_migrate while the job runs";
    case CAUSE_KHUGEPAGED:
        return "slow khugepaged down (/sys/kernel/mm/transparent_hugepage/khugepaged/scan_sleep_millisecs, pages_to_scan), or ask for huge pages when the memory is mapped (MADV_HUGEPAGE before the first touch)";
    case CAUSE_RWSEM_INODE:
        return "keep %s from writing to the same file or directory: a log of its own, checkpoints to a temporary file in another directory and renamed, or smaller writes";
    case CAUSE_MMAP_LOCK:
        return "look at what %s does with the memory of this process (mmap, munmap, /proc/PID files, ptrace), and do it less often";
    case CAUSE_KERNEL_MUTEX:
        return "look at the kernel function of the wait and at what %s does there";
    case CAUSE_TLB_SHOOTDOWN:
        return "keep %s from changing mappings in a loop (mprotect, munmap, mremap): keep buffers, change larger pieces at once, or use huge pages";
    case CAUSE_MADVISE_STORM:
        return "let the allocator of %s keep memory: MALLOC_CONF=dirty_decay_ms:-1,muzzy_decay_ms:-1 (jemalloc), TCMALLOC_RELEASE_RATE=0 (tcmalloc), fewer MADV_DONTNEED";
    case CAUSE_CPU_QUOTA:
        return "raise or remove the CPU limit of the cgroup (cpu.max, resources.limits.cpu), or start fewer threads (OMP_NUM_THREADS)";
    case CAUSE_CPU_CONTENTION:
        return "keep %s off these CPUs: pin the job (taskset, cpuset), lower the other's weight (nice, cpu.weight), or start fewer threads (OMP_NUM_THREADS)";
    case CAUSE_RT_HOG:
        return "take the real-time priority from %s (chrt -o -p 0 PID), bound it (sysctl kernel.sched_rt_runtime_us), or give it a CPU of its own";
    case CAUSE_SOFTIRQ_STORM:
        return "move the interrupts elsewhere: /proc/irq/*/smp_affinity, irqbalance with banned CPUs, RPS (rps_cpus), or pin the job to other CPUs";
    case CAUSE_ZOMBIE_MEMCG:
        return "find what makes and removes cgroups (a service that crashes and restarts), stop it, and drop what pins them (vm.drop_caches, tmpfs files) or reboot; the reader of the statistics is %s";
    case CAUSE_RSTAT_LOCK:
        return "have %s read memory.stat and cpu.stat less often, and remove cgroups that nobody needs";
    case CAUSE_SIGSTOP:
        return "stop %s from sending SIGSTOP or SIGTSTP to this process (job control, a job scheduler's suspend, kill -STOP)";
    case CAUSE_CGROUP_FREEZER:
        return "stop %s from freezing the cgroup (docker pause, cgroup.freeze, freezer.state) while the job runs";
    case CAUSE_PTRACE:
        return "end %s, or let it not stop the target (py-spy --nonblocking, a lower rate)";
    case CAUSE_STEAL:
        return "move the machine or buy dedicated cores: another guest of the host takes the CPU";
    case CAUSE_MEMCG_RECLAIM:
        return "raise the memory limit of the cgroup (memory.max, resources.limits.memory), or use less page cache (O_DIRECT, fadvise DONTNEED)";
    case CAUSE_MEMORY_HIGH:
        return "raise memory.high of the cgroup, or use less memory";
    case CAUSE_DIRECT_RECLAIM:
        return "free memory on the machine (look at %s), raise vm.min_free_kbytes and vm.watermark_scale_factor";
    case CAUSE_SWAP_IN:
        return "keep the process out of swap: more memory, memory.swap.max=0, vm.swappiness=0, mlock";
    case CAUSE_DIRTY_THROTTLE:
        return "write less at once or elsewhere: O_DIRECT or sync_file_range for checkpoints, raise vm.dirty_bytes, a faster disk; look at %s";
    case CAUSE_FSYNC_JOURNAL:
        return "fsync less often and not in the step, write logs and checkpoints to another file system, or keep %s from writing there";
    case CAUSE_DISK_READ:
        return "read ahead (more loader workers, prefetch, posix_fadvise), keep the files on a faster disk or in the page cache, and raise the I/O limit of the cgroup (io.max)";
    case CAUSE_FUSE_HANG:
        return "look at %s, the daemon behind the file system: is it stopped, short of CPU or of memory? Keep the data on a local disk";
    case CAUSE_MAJOR_FAULT:
        return "keep the mapped files in memory: MAP_POPULATE, mlock or vmtouch before the first step, and more memory for the cgroup";
    case CAUSE_OOM_KILL:
        return "raise the memory limit (memory.max) or use less: fewer loader workers, smaller prefetch_factor; killed was %s";
    case CAUSE_GIL_WAIT:
        return "move the work of %s out of the process (multiprocessing), or into code that releases the GIL (NumPy, Py_BEGIN_ALLOW_THREADS)";
    case CAUSE_PYTHON_GC:
        return "gc.freeze() after start-up, gc.disable() in the training loop with gc.collect() at a chosen step on all ranks alike, or a higher gc.set_threshold()";
    case CAUSE_DATA_LOADER:
        return "give the loader more (num_workers, prefetch_factor, persistent_workers), or make its work cheaper; the slow one is %s";
    case CAUSE_COMPILE_CHILD:
        return "stop recompiling: a warm cache (TORCHINDUCTOR_CACHE_DIR, TRITON_CACHE_DIR, CUDA_CACHE_MAXSIZE), fixed shapes (torch.compile dynamic, mark_dynamic); running was %s";
    case CAUSE_PIPE_WRITE:
        return "let %s read faster, write to a file, or log from another thread and less";
    case CAUSE_PTHREAD_MUTEX:
        return "shorten what %s does while it holds the mutex";
    case CAUSE_FUTEX_WAIT:
        return "look at why %s comes late";
    case CAUSE_NETWORK_PEER:
        return "look at %s, the other end of the connection: is it stopped, slow, or the network losing packets (tcp retransmits)?";
    case CAUSE_DRIVER_LOCK:
        return "stop %s from polling the driver (nvidia-smi, DCGM), and register or load less at a time (CUDA_MODULE_LOADING=EAGER)";
    case CAUSE_GPU_SYNC:
        return "make fewer synchronisations in the step (.item(), .cpu(), print), or launch more before each: behind it the GPU has nothing to do until the host has launched again; where another process uses that GPU, some of it is that one's turn; where the GPU was not recorded, look at its kernels: this wait ends when they do";
    case CAUSE_ALLOC_RETRY:
        return "allocate once: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, smaller peaks, no empty_cache() in the step";
    case CAUSE_STRAGGLER:
        return "look at what %s does more than the other ranks, and take it out of the step or spread it over all";
    case CAUSE_UNKNOWN:
        return "look at the stack of the wait";
    case CAUSE_COUNT: // no default: what a new cause lacks here the compiler says
        break;
    }
    return NULL;
}

char *cause_text_advice(const char *id, const char *who)
{
    size_t count = 0;
    const struct stall_cause *cause = stall_cause_of(id), *first = stall_causes(&count);
    const char *text = cause ? advice_of((enum cause)(cause - first)) : NULL;
    const char *mark = text ? strstr(text, "%s") : NULL;
    if (mark)
        return xasprintf("%.*s%s%s", (int)(mark - text), text, who, mark + strlen("%s"));
    return text ? xstrdup(text) : NULL;
}
