// SPDX-License-Identifier: Apache-2.0
// Which function means what. Kernel names are those of 5.10 to 6.18, without compiler suffixes; a
// name may have several marks. Sorted on first use; lookups are binary searches.
#include "reports/analyse/trace/marks.h"

#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/containers/search.h"

struct marks_row {
    enum mark mark;
    const char *names; // blanks between; a name that ends in * is a prefix
};

static const struct marks_row marks_kernel[] = {
        {MARK_MMAP_SITE,
                "vm_mmap_pgoff vm_munmap __vm_munmap __do_sys_brk do_brk_flags vm_brk_flags "
                "do_mprotect_pkey do_madvise madvise_lock "
                "lock_mm_and_find_vma __mm_populate do_mlock dup_mmap __do_sys_mremap "
                "do_mremap get_mmap_lock_carefully "
                "mmap_read_lock* mmap_write_lock* __mmap_lock* exit_mmap access_remote_vm "
                "__access_remote_vm process_vm_rw* "
                "ksys_mmap_pgoff __do_sys_munmap do_pkey_mprotect apply_vma_lock_flags "
                "__do_sys_mlockall vm_lock_mm vma_start_read* "
                "pin_user_pages* get_user_pages_unlocked __gup_longterm_locked userfaultfd_* "
                "do_user_addr_fault do_page_fault bad_area_nosemaphore "
                "m_start proc_get_vma show_smaps_rollup"},
        {MARK_RWSEM_WAIT,
                "rwsem_down_read_slowpath rwsem_down_write_slowpath down_read down_write "
                "down_read_killable down_write_killable "
                "down_read_interruptible __down_read_common __down_write_common "
                "percpu_rwsem_wait __percpu_down_read percpu_down_write "
                "rwbase_write_lock rwbase_read_lock __rwbase_read_lock"}, // PREEMPT_RT
        {MARK_MUTEX_WAIT,
                "__mutex_lock mutex_lock mutex_lock_killable mutex_lock_interruptible "
                "mutex_lock_io __mutex_lock_slowpath "
                "__mutex_lock_killable_slowpath __mutex_lock_interruptible_slowpath "
                "__ww_mutex_lock rt_mutex_lock rt_mutex_slowlock "
                "__rt_mutex_slowlock* __down_common down __down down_interruptible "
                "down_killable down_timeout schedule_preempt_disabled"},
        {MARK_SPIN,
                "rwsem_spin_on_owner rwsem_optimistic_spin osq_lock mutex_spin_on_owner "
                "native_queued_spin_lock_slowpath "
                "queued_spin_lock_slowpath __pv_queued_spin_lock_slowpath "
                "queued_write_lock_slowpath queued_read_lock_slowpath"},
        {MARK_FUTEX,
                "futex_wait futex_do_wait futex_wait_queue futex_wait_queue_me __futex_wait "
                "do_futex futex_wait_restart"},
        {MARK_PIPE_READ, "pipe_read anon_pipe_read fifo_pipe_read pipe_wait_readable"},
        {MARK_PIPE_WRITE,
                "pipe_write anon_pipe_write fifo_pipe_write pipe_wait_writable n_tty_write "
                "tty_write_room pty_write iterate_tty_write"},
        {MARK_EPOLL, "ep_poll do_epoll_wait"},
        {MARK_POLL,
                "do_sys_poll do_poll poll_schedule_timeout do_select core_sys_select do_pselect "
                "io_cqring_wait read_events eventfd_read timerfd_read timerfd_read_iter "
                "inotify_read n_tty_read do_semtimedop __do_semtimedop do_msgrcv fuse_dev_do_read"},
        {MARK_SOCKET_RECV,
                "tcp_recvmsg tcp_recvmsg_locked sk_wait_data inet_recvmsg inet6_recvmsg "
                "unix_stream_read_generic unix_stream_recvmsg "
                "unix_stream_data_wait __skb_wait_for_more_packets __skb_recv_datagram __skb_recv_udp "
                "udp_recvmsg unix_dgram_recvmsg "
                "__unix_dgram_recvmsg inet_wait_for_connect inet_stream_connect __inet_stream_connect"},
        {MARK_SOCKET_SEND,
                "tcp_sendmsg tcp_sendmsg_locked sk_stream_wait_memory inet_sendmsg "
                "inet6_sendmsg unix_stream_sendmsg sock_alloc_send_pskb "
                "sock_wait_for_wmem unix_wait_for_peer unix_dgram_sendmsg udp_sendmsg "
                "tcp_close inet_shutdown"},
        {MARK_ACCEPT, "inet_csk_accept inet_accept unix_accept do_accept"},
        {MARK_SLEEP, "hrtimer_nanosleep do_nanosleep common_nsleep common_nsleep_timens"},
        {MARK_CHILD, "do_wait kernel_wait4 kernel_waitid __do_wait pidfd_poll"},
        {MARK_SIGWAIT, "do_sigtimedwait sigsuspend __do_sys_pause __x64_sys_pause signalfd_read"},
        {MARK_PTRACE, "ptrace_stop ptrace_notify ptrace_do_notify"},
        {MARK_STOP, "do_signal_stop do_jobctl_trap"},
        {MARK_FREEZE, "__refrigerator do_freezer_trap cgroup_enter_frozen"},
        {MARK_GET_SIGNAL, "get_signal"},
        {MARK_SIGNAL_END,
                "do_group_exit do_exit vfs_coredump do_coredump coredump_wait task_work_run "
                "exit_mm exit_notify"},
        {MARK_RECLAIM,
                "try_to_free_pages do_try_to_free_pages shrink_node shrink_lruvec "
                "shrink_node_memcgs __alloc_pages_direct_reclaim "
                "reclaim_throttle throttle_direct_reclaim shrink_inactive_list "
                "shrink_folio_list shrink_slab shrink_one evict_folios "
                "try_to_shrink_lruvec __alloc_pages_slowpath shrink_many shrink_active_list"},
        {MARK_MEMCG,
                "try_charge_memcg try_charge try_to_free_mem_cgroup_pages charge_memcg "
                "mem_cgroup_oom_synchronize mem_cgroup_out_of_memory"},
        {MARK_MEMCG_HIGH, "mem_cgroup_handle_over_high __mem_cgroup_handle_over_high"},
        {MARK_SWAP,
                "do_swap_page swapin_readahead swap_cluster_readahead swap_read_folio "
                "read_swap_cache_async swap_readpage shmem_swapin* "
                "__read_swap_cache_async swap_vma_readahead"},
        {MARK_FAULT,
                "handle_mm_fault do_user_addr_fault exc_page_fault asm_exc_page_fault do_page_fault do_mem_abort "
                "__handle_mm_fault do_fault __do_fault do_read_fault "
                "do_anonymous_page do_shared_fault do_cow_fault"},
        {MARK_FILE_FAULT,
                "filemap_fault ext4_filemap_fault xfs_filemap_fault __xfs_filemap_fault "
                "shmem_fault __folio_lock_or_retry"},
        {MARK_FOLIO_WAIT,
                "folio_wait_bit_common folio_wait_bit folio_wait_bit_killable __folio_lock "
                "__folio_lock_killable folio_put_wait_locked "
                "wait_on_page_bit_common __wait_on_page_locked wait_on_page_bit __lock_page "
                "__lock_page_killable io_schedule blk_io_schedule "
                "__wait_on_buffer bit_wait_io submit_bio_wait folio_wait_locked"},
        {MARK_FILE_READ,
                "filemap_read filemap_get_pages filemap_update_page generic_file_read_iter "
                "ext4_file_read_iter xfs_file_read_iter "
                "btrfs_file_read_iter blkdev_read_iter vfs_read page_cache_ra_order "
                "page_cache_ra_unbounded page_cache_sync_ra "
                "page_cache_async_ra force_page_cache_ra ondemand_readahead iomap_dio_rw "
                "__iomap_dio_rw blkdev_direct_IO __blkdev_direct_IO* "
                "generic_file_buffered_read ext4_bread* ext4_find_entry ext4_readdir "
                "ext4_get_inode* __ext4_get_inode* filemap_splice_read"},
        {MARK_DIRTY,
                "balance_dirty_pages balance_dirty_pages_ratelimited balance_dirty_pages_ratelimited_flags"},
        {MARK_JOURNAL,
                "jbd2_* wait_transaction_locked start_this_handle add_transaction_credits "
                "__jbd2_* do_get_write_access xlog_* xfs_log_force* "
                "btrfs_commit_transaction wait_for_commit"},
        {MARK_FSYNC,
                "ext4_sync_file vfs_fsync_range vfs_fsync do_fsync __do_sys_fsync "
                "file_write_and_wait_range filemap_fdatawait_range "
                "__filemap_fdatawait_range folio_wait_writeback xfs_file_fsync btrfs_sync_file "
                "blkdev_issue_flush blkdev_fsync ksys_sync "
                "__do_sys_msync sync_filesystem ext4_sync_fs wait_sb_inodes"},
        {MARK_BLOCK_WAIT,
                "wbt_wait rq_qos_wait blk_mq_get_tag __blk_mq_alloc_requests blk_throtl* ioc_rqos_throttle"},
        {MARK_FUSE,
                "request_wait_answer fuse_simple_request __fuse_request_send fuse_send_one "
                "fuse_wait_* __fuse_simple_request"},
        {MARK_RPC,
                "rpc_wait_bit_killable __rpc_execute nfs_* nfs3_* nfs4_* ceph_* ll_file_* ptlrpc_* "
                "cifs_* smb2_* wait_for_response"},
        {MARK_INODE,
                "ext4_buffered_write_iter ext4_file_write_iter ext4_dio_write_iter inode_lock "
                "generic_file_write_iter xfs_ilock "
                "xfs_file_write_iter xfs_file_buffered_write btrfs_inode_lock open_last_lookups "
                "do_unlinkat lookup_slow iterate_dir "
                "ext4_da_get_block_prep ext4_da_map_blocks ext4_map_blocks ext4_file_read_iter "
                "xfs_file_read_iter vfs_rename "
                "do_renameat2 lock_rename filename_create notify_change do_truncate ext4_setattr "
                "chmod_common walk_component vfs_fallocate "
                "ext4_fallocate ext4_llseek xfs_file_iomap_begin ext4_zero_range ext4_punch_hole "
                "do_rmdir lookup_one_* blkdev_write_iter "
                "shmem_file_write_iter path_openat"},
        {MARK_GPU_DRIVER,
                "rmapi* os_acquire_* portSync* nvidia_* nvkms* uvm_* _nv0* nv_drm* amdgpu_* "
                "svm_range_* kfd_* i915_* nouveau_*"},
        {MARK_COMPACT,
                "compact_zone compact_zone_order try_to_compact_pages "
                "__alloc_pages_direct_compact isolate_migratepages "
                "isolate_migratepages_block isolate_freepages isolate_freepages_block "
                "pageblock_pfn_to_page __pageblock_pfn_to_page "
                "compaction_alloc compact_node compact_nodes fast_isolate_freepages "
                "compact_unlock_should_abort"},
        {MARK_MIGRATE,
                "migrate_pages migrate_pages_batch migrate_pages_sync migrate_folio* "
                "try_to_migrate try_to_migrate_one move_to_new_folio unmap_and_move"},
        {MARK_MIGRATION_WAIT,
                "migration_entry_wait migration_entry_wait_on_locked "
                "pmd_migration_entry_wait __migration_entry_wait"},
        {MARK_NUMA,
                "task_numa_work change_prot_numa do_numa_page migrate_misplaced_folio "
                "migrate_misplaced_page do_huge_pmd_numa_page task_numa_fault"},
        {MARK_KHUGEPAGED,
                "collapse_huge_page khugepaged hpage_collapse_scan_pmd hpage_collapse_scan_file collapse_file "
                "khugepaged_scan_mm_slot madvise_collapse retract_page_tables collapse_pte_mapped_thp"},
        {MARK_SMAPS,
                "smaps_pte_range smaps_account smaps_pte_entry show_smaps_rollup show_smap "
                "smap_gather_stats smaps_hugetlb_range "
                "show_numa_map gather_pte_stats pagemap_read pagemap_pmd_range clear_refs_write "
                "clear_refs_pte_range smaps_page_accumulate "
                "smaps_rollup_open"},
        {MARK_FORK,
                "copy_page_range dup_mmap dup_mm copy_p4d_range copy_pmd_range copy_pte_range "
                "copy_present_ptes copy_nonpresent_pte anon_vma_fork"},
        {MARK_UNMAP,
                "unmap_vmas zap_pte_range unmap_page_range unmap_single_vma zap_page_range "
                "zap_page_range_single zap_page_range_single_batched "
                "free_pgtables unmap_region do_vmi_align_munmap do_vmi_munmap "
                "vms_complete_munmap_vmas vms_clear_ptes __do_munmap "
                "zap_present_ptes tlb_finish_mmu tlb_flush_mmu free_pages_and_swap_cache "
                "__tlb_batch_free_encoded_pages zap_huge_pmd"},
        {MARK_MADVISE,
                "do_madvise madvise_vma_behavior madvise_dontneed_free "
                "madvise_dontneed_single_vma madvise_free_single_vma madvise_walk_vmas "
                "madvise_do_behavior __x64_sys_madvise madvise_pageout madvise_cold"},
        {MARK_EXIT_MM, "exit_mmap exit_mm mmput __mmput do_exit"},
        {MARK_POPULATE,
                "populate_vma_page_range __mm_populate do_mlock mlock_fixup "
                "apply_vma_lock_flags pin_user_pages* __gup_longterm_locked "
                "faultin_page faultin_page_range madvise_populate os_lock_user_pages nv_pin* "
                "ib_umem_get mlock_vma_pages_range"},
        {MARK_TLB,
                "smp_call_function_many_cond flush_tlb_mm_range on_each_cpu_cond_mask native_flush_tlb_multi "
                "flush_tlb_multi arch_tlbbatch_flush flush_tlb_func kvm_flush_tlb_multi"},
        {MARK_MPROTECT,
                "change_protection change_protection_range change_pte_range mprotect_fixup "
                "do_mprotect_pkey change_p4d_range"},
        {MARK_SOFTIRQ,
                "handle_softirqs __do_softirq irq_exit_rcu __irq_exit_rcu net_rx_action run_ksoftirqd"},
        {MARK_IRQ,
                "asm_common_interrupt common_interrupt asm_sysvec_* sysvec_* asm_exc_nmi "
                "el0_interrupt el1_interrupt el0t_64_irq* el1h_64_irq* gic_handle_irq "
                "__handle_irq_event_percpu"},
        {MARK_TIMER,
                "hrtimer_wakeup hrtimer_interrupt __hrtimer_run_queues process_timeout call_timer_fn "
                "asm_sysvec_apic_timer_interrupt sysvec_apic_timer_interrupt hrtimer_run_queues"},
        {MARK_BLOCK_DONE,
                "blk_done_softirq blk_complete_reqs blk_mq_complete* bio_endio end_bio* "
                "__read_end_io mpage_end_io mpage_read_end_io virtblk_done nvme_irq "
                "blk_update_request blk_mq_end_request end_buffer_async_read"},
        {MARK_NET_RX,
                "net_rx_action tcp_v4_rcv tcp_v6_rcv sock_def_readable __netif_receive_skb* "
                "tcp_rcv_established process_backlog tcp_data_ready"},
        {MARK_BH_ENABLE, "__local_bh_enable_ip do_softirq __dev_queue_xmit"},
        {MARK_RSTAT,
                "cgroup_rstat_flush cgroup_rstat_flush_locked css_rstat_flush __cgroup_rstat_lock "
                "cgroup_rstat_lock __css_rstat_lock mem_cgroup_flush_stats do_flush_stats "
                "css_rstat_updated_list"},
        {MARK_MEMCG_STAT,
                "mem_cgroup_nr_lru_pages memcg_page_state memcg_page_state_output memcg_stat_format "
                "memory_stat_show memory_stat_format memcg_stat_show mem_cgroup_iter shrink_slab_memcg "
                "memcg1_stat_format mem_cgroup_css_rstat_flush memcg_numa_stat_show"},
        {MARK_UNLOCK,
                "up_read up_write rwsem_wake mutex_unlock __mutex_unlock_slowpath futex_wake "
                "percpu_up_write up"},
        {MARK_THAW,
                "__thaw_task unfreeze_cgroup freezer_write cgroup_freeze_task cgroup_freeze_write "
                "cgroup_do_freeze cgroup_freeze"},
        {MARK_WORKER_IDLE, "worker_thread smpboot_thread_fn kswapd kcompactd rcu_gp_kthread"},
};

static const struct marks_row marks_user[] = {
        {MARK_TAKE_GIL,
                "take_gil PyEval_RestoreThread PyEval_AcquireThread PyEval_AcquireLock "
                "PyGILState_Ensure _PyThreadState_Attach _PyEval_RestoreThread"},
        {MARK_GC,
                "[gc]* gc_collect_main gc_collect_generations gc_collect_region gc_collect_full "
                "gc_collect_young collect_with_callback deduce_unreachable visit_decref "
                "visit_reachable subtract_refs update_refs move_unreachable gc_collect _PyGC_Collect "
                "PyGC_Collect _Py_RunGC gc_collect_with_callback"},
        {MARK_MUTEX_USER,
                "__lll_lock_wait __lll_lock_wait_private lll_mutex_lock_optimized "
                "pthread_mutex_lock ___pthread_mutex_lock __pthread_mutex_lock "
                "__pthread_mutex_lock_full pthread_rwlock_rdlock* pthread_rwlock_wrlock* "
                "__pthread_rwlock_* ___pthread_rwlock_* pthread_mutex_timedlock* "
                "futex_lock_pi std::mutex::lock* _PyMutex_LockTimed __gthread_mutex_lock"},
        {MARK_COND,
                "pthread_cond_wait* ___pthread_cond_wait __pthread_cond_wait* pthread_cond_timedwait* "
                "___pthread_cond_timedwait* pthread_cond_clockwait* sem_wait* __new_sem_wait* "
                "sem_timedwait* sem_clockwait* do_futex_wait* __pthread_clockjoin_ex pthread_join "
                "std::condition_variable::* PyThread_acquire_lock*"},
        {MARK_OMP, "gomp_* __kmp_* kmp_* GOMP_*"},
        {MARK_CUDA_SYNC,
                "cudaStreamSynchronize* cudaDeviceSynchronize* cudaEventSynchronize* cuStreamSynchronize* "
                "cuCtxSynchronize* cuEventSynchronize* hipDeviceSynchronize hipStreamSynchronize "
                "hipEventSynchronize cudaStreamWaitEvent*"},
        {MARK_CUDA_ALLOC,
                "cudaFree* cudaMalloc* cuMemFree* cuMemAlloc* cudaHostAlloc* cudaHostRegister* "
                "cuMemHostAlloc* cuMemHostRegister* hipFree hipMalloc cuMemUnmap cuMemMap cuMemCreate"},
        {MARK_CUDA_LOAD,
                "cuLibraryLoadData* cuModuleLoad* cuLibraryLoadFromFile* cuModuleGetFunction"},
        {MARK_NCCL, "nccl* ncclAllReduce* c10d::*"},
        {MARK_COLLECTIVE,
                "c10d::ProcessGroup* c10d::Reducer* c10d::Work* c10d::verify_params* c10d::sync* c10d::broadcast* c10d::ops* "
                "gloo::* MPI_* PMPI_* ompi_* opal_progress* MPIR_* MPIDI_* horovod::*"},
        {MARK_MPI, "MPI_* PMPI_* opal_progress* MPIR_* MPIDI_*"},
        {MARK_MESSAGE,
                "c10d::ProcessGroupGloo::SendWork* c10d::ProcessGroupGloo::RecvWork* MPI_Send* MPI_Ssend* MPI_Rsend* MPI_Recv* "
                "MPI_Probe* MPI_Mprobe* MPI_Mrecv* MPI_Wait* PMPI_Send* PMPI_Ssend* PMPI_Rsend* PMPI_Recv* PMPI_Probe* PMPI_Mprobe* PMPI_Mrecv* PMPI_Wait*"},
        {MARK_STORE,
                "c10d::TCPStore* c10d::PrefixStore* c10d::FileStore* c10d::HashStore* c10d::Store*"},
};

static const struct marks_row marks_python[] = {
        {MARK_GC, "[gc]*"},
        {MARK_TAKE_GIL, "[gil]*"},
        {MARK_LOADER,
                "_try_get_data _get_data _next_data _BaseDataLoaderIter.__next__ "
                "_MultiProcessingDataLoaderIter.* _SingleProcessDataLoaderIter.*"},
        {MARK_WORKER_LOOP, "_worker_loop _pin_memory_loop worker_loop"},
        {MARK_QUEUE_GET, "Queue.get SimpleQueue.get JoinableQueue.get"},
        {MARK_STORE, "_store_based_barrier rendezvous"},
};

enum { MARKS_NAMES_MAX = 1024 };

struct marks_name {
    const char *text; // not terminated
    size_t len;
    enum mark mark;
};
struct marks_index {
    struct marks_name exact[MARKS_NAMES_MAX], prefix[MARKS_NAMES_MAX];
    int exact_count, prefix_count;
};

static struct marks_index marks_indexes[3]; // kernel, user, Python
static pthread_once_t marks_once = PTHREAD_ONCE_INIT;

static int marks_compare_text(const char *a, size_t a_len, const char *b, size_t b_len)
{
    int order = memcmp(a, b, a_len < b_len ? a_len : b_len);
    return order ? order : (a_len > b_len) - (a_len < b_len);
}

static int marks_compare(const void *left, const void *right)
{
    const struct marks_name *a = left, *b = right;
    return marks_compare_text(a->text, a->len, b->text, b->len);
}

static void marks_build(struct marks_index *index, const struct marks_row *rows, size_t count)
{
    for (size_t i = 0; i < count; i++)
        for (const char *at = rows[i].names; *at;) {
            size_t len = strcspn(at, " ");
            bool prefix = at[len - 1] == '*';
            struct marks_name name = {at, len - prefix, rows[i].mark};
            int *used = prefix ? &index->prefix_count : &index->exact_count;
            if (*used == MARKS_NAMES_MAX)
                abort(); // the tables are ours
            (prefix ? index->prefix : index->exact)[(*used)++] = name;
            at += len;
            while (*at == ' ')
                at++;
        }
    qsort(index->exact, (size_t)index->exact_count, sizeof index->exact[0], marks_compare);
}

static void marks_build_all(void)
{
    marks_build(&marks_indexes[0], marks_kernel, sizeof marks_kernel / sizeof marks_kernel[0]);
    marks_build(&marks_indexes[1], marks_user, sizeof marks_user / sizeof marks_user[0]);
    marks_build(&marks_indexes[2], marks_python, sizeof marks_python / sizeof marks_python[0]);
}

// A system call's own function has another name on each machine; the tables have x86-64's.
static const char *marks_plain(const char *name, char *buf, size_t size)
{
    static const char arm64[] = "__arm64_sys_";
    if (strncmp(name, arm64, sizeof arm64 - 1))
        return name;
    snprintf(buf, size, "__x64_sys_%s", name + sizeof arm64 - 1);
    return buf;
}

static void marks_set(struct marks *marks, enum mark mark)
{
    marks->word[mark / 64] |= UINT64_C(1) << (mark % 64);
}

static struct marks marks_look_up(const struct marks_index *index, const char *name)
{
    struct marks marks = {{0, 0}};
    size_t len = strlen(name);
    const struct marks_name *exact = index->exact;
    size_t count = (size_t)index->exact_count;
    for (size_t i = search_first(middle, count,
                 marks_compare_text(exact[middle].text, exact[middle].len, name, len) >= 0);
            i < count; i++) {
        const struct marks_name *row = &exact[i];
        if (row->len != len || memcmp(row->text, name, len))
            break;
        marks_set(&marks, row->mark);
    }
    for (int i = 0; i < index->prefix_count; i++)
        if (len >= index->prefix[i].len &&
                !memcmp(name, index->prefix[i].text, index->prefix[i].len))
            marks_set(&marks, index->prefix[i].mark);
    return marks;
}

struct marks marks_of_function(char kind, const char *name, const char *module)
{
    pthread_once(&marks_once, marks_build_all);
    char buf[64];
    if (kind == 'k')
        name = marks_plain(name, buf, sizeof buf);
    struct marks marks = marks_look_up(&marks_indexes[kind == 'k' ? 0 : kind == 'u' ? 1 : 2], name);
    if (!module)
        return marks;
    if (kind == 'k' && (!strncmp(module, "[nvidia", 7) || !strncmp(module, "[amdgpu", 7)))
        marks_set(&marks, MARK_GPU_DRIVER);
    if (kind == 'p') {
        if (strstr(module, "torch/utils/data/_utils/worker") || strstr(module, "_utils/pin_memory"))
            marks_set(&marks, MARK_WORKER_LOOP);
        else if (strstr(module, "torch/utils/data/dataloader"))
            marks_set(&marks, MARK_LOADER);
        if (!strcmp(name, "get") && (strstr(module, "queue.py") || strstr(module, "queues.py")))
            marks_set(&marks, MARK_QUEUE_GET);
        if (strstr(module, "torch/distributed/distributed_c10d") && strncmp(name, "init_", 5) &&
                strncmp(name, "_new_", 5) && strncmp(name, "new_", 4))
            marks_set(&marks, MARK_COLLECTIVE);
        if (strstr(module, "torch/distributed/distributed_c10d") &&
                (!strcmp(name, "send") || !strcmp(name, "recv")))
            marks_set(&marks, MARK_MESSAGE);
    }
    return marks;
}

// The numbers are those of the machine that was recorded, which need not be the one that reads the
// store.
struct marks marks_of_syscall(enum marks_machine machine, int number)
{
    enum { NONE = -1 };
    static const struct {
        int numbers[MARKS_MACHINE_COUNT]; // x86-64, arm64: <asm/unistd.h> of each
        enum mark mark;
    } rows[] = {
            {{202, 98}, MARK_FUTEX},       // futex
            {{35, 101}, MARK_SLEEP},       // nanosleep
            {{230, 115}, MARK_SLEEP},      // clock_nanosleep
            {{61, 260}, MARK_CHILD},       // wait4
            {{247, 95}, MARK_CHILD},       // waitid
            {{281, 22}, MARK_EPOLL},       // epoll_pwait
            {{441, 441}, MARK_EPOLL},      // epoll_pwait2
            {{232, NONE}, MARK_EPOLL},     // epoll_wait
            {{271, 73}, MARK_POLL},        // ppoll
            {{270, 72}, MARK_POLL},        // pselect6
            {{7, NONE}, MARK_POLL},        // poll
            {{23, NONE}, MARK_POLL},       // select
            {{43, 202}, MARK_ACCEPT},      // accept
            {{288, 242}, MARK_ACCEPT},     // accept4
            {{74, 82}, MARK_FSYNC},        // fsync
            {{75, 83}, MARK_FSYNC},        // fdatasync
            {{45, 207}, MARK_SOCKET_RECV}, // recvfrom
            {{47, 212}, MARK_SOCKET_RECV}, // recvmsg
            {{44, 206}, MARK_SOCKET_SEND}, // sendto
            {{46, 211}, MARK_SOCKET_SEND}, // sendmsg
            {{128, 137}, MARK_SIGWAIT},    // rt_sigtimedwait
            {{130, 133}, MARK_SIGWAIT},    // rt_sigsuspend
            {{34, NONE}, MARK_SIGWAIT},    // pause
            {{0, 63}, MARK_READ},          // read
    };
    struct marks marks = {{0, 0}};
    for (size_t i = 0; number >= 0 && i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].numbers[machine] == number)
            marks_set(&marks, rows[i].mark);
    return marks;
}

enum marks_machine marks_machine_of(const char *name)
{
    return name && !strcmp(name, "aarch64") ? MARKS_MACHINE_ARM64 : MARKS_MACHINE_X86_64;
}
