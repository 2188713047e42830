// SPDX-License-Identifier: Apache-2.0
// Causes among threads and processes: the GIL, garbage collection, loaders, compilers, mutexes,
// pipes, sockets, the GPU's library; and those of files and disks.
#include <stdio.h>
#include <sys/syscall.h>

#include "tests/unit/stall_story.h"

// A wait for the GIL: slices of 5 ms from `at`, each ended by the timer in somebody else's context.
// python: what the recorder read meanwhile; NULL: it could not.
static void slices_of(struct story *story, double at, int slices, int64_t owner, const char *user,
        const char *python)
{
    int64_t bystander = story->idle_task;
    for (int i = 0; i < slices; i++)
        story_gap(story,
                (struct story_gap){.out = at + 5.1 * i,
                        .waking = at + 5.1 * i + 5.02,
                        .in = at + 5.1 * i + 5.06,
                        .state = 1,
                        .kernel = STORY_FUTEX_WAIT,
                        .user = user,
                        .waker = bystander,
                        .waker_stack = STORY_TIMER,
                        .flags = UG_GAP_WAKER_IRQ,
                        .owner = owner,
                        .syscall = SYS_futex,
                        .arg0 = 0x7f0000001000 + (i % 2) * 4,
                        .python = python});
}

static void gil_wait(struct story *story, double at, int slices, int64_t owner, const char *user)
{
    slices_of(story, at, slices, owner, user, owner ? "[gil];step@/src/train.py:20" : NULL);
}

TEST(gil_wait_is_one_episode)
{
    struct story story;
    story_open(&story);
    for (int i = 0; i < 20; i++) {
        gil_wait(&story, 100 + 400 * i, 14, 0, NULL);
        story_samples(&story,
                (struct story_samples){.thread = story.worker,
                        .from = 100 + 400 * i,
                        .to = 171 + 400 * i,
                        .why = UG_SAMPLE_TARGET | UG_SAMPLE_USER});
    }
    const struct stall *top = story_top(&story);
    CHECK_STR(top->cause, "gil_wait");
    CHECK_INT(top->count, 20);
    CHECK_DBL((double)top->max_ns, 71e6, 2e6);
    CHECK_INT(top->culprit.tid, 1001); // who ran meanwhile
    CHECK_INT(top->resource.kind, STALL_RESOURCE_GIL);
    CHECK_INT(top->chain[0].via, VIA_GIL);
    CHECK_DBL((double)top->period_ns, 400e6, 4e6);
    CHECK_INT(story.stalls->count, 1);
    story_close(&story);
}

TEST(gil_wait_with_the_holder_recorded)
{
    struct story story;
    story_open(&story);
    int64_t holder = story_thread(&story, story.process, 1005, "pin_memory");
    for (int i = 0; i < 20; i++)
        gil_wait(&story, 100 + 400 * i, 1 + i % 3, holder,
                "__futex_abstimed_wait_common;pthread_cond_timedwait@@GLIBC_2.3.2;take_gil;PyEval_"
                "RestoreThread");
    const struct stall *top = story_top(&story);
    CHECK_STR(top->cause, "gil_wait");
    CHECK_INT(top->culprit.tid, 1005);
    CHECK(top->confidence > 0.8);
    story_close(&story);
}

TEST(timed_waits_elsewhere_are_no_gil)
{
    struct story story; // a poller that sleeps 5 ms in a futex and works for 5 ms: not back to back
    story_open(&story);
    for (int i = 0; i < 500; i++)
        gil_wait(&story, 20 * i, 1, 0, "pthread_cond_timedwait;poller");
    CHECK_STR(story_top(&story)->cause, "(none)");
    CHECK(story.stalls->idle_ns > 2000000000);
    story_close(&story);
}

TEST(a_queue_polled_every_5_ms_is_no_gil)
{
    struct story story; // back to back, as slices of the GIL are; the second half without a look
    story_open(&story);
    for (int i = 0; i < 20; i++)
        slices_of(&story, 100 + 400 * i, 14, 0, NULL,
                i < 10 ? "Condition.wait@/x/threading.py:324;Queue.get@/x/queue.py:180" : NULL);
    story_samples(&story,
            (struct story_samples){.thread = story.worker,
                    .from = 0,
                    .to = 9000,
                    .why = UG_SAMPLE_TARGET | UG_SAMPLE_USER});
    story_check_innocent(&story);
    CHECK(!story_find(&story, "gil_wait"));
    story_close(&story);
}

TEST(gil_wait_by_the_mark_alone)
{
    struct story story; // no look told the holder, and one slice is enough
    story_open(&story);
    for (int i = 0; i < 80; i++)
        slices_of(&story, 100 + 100 * i, 1, 0, NULL, "[gil]");
    CHECK_STR(story_top(&story)->cause, "gil_wait");
    CHECK_INT(story_top(&story)->count, 80);
    story_close(&story);
}

TEST(waits_for_a_queue_without_the_gil_are_no_gil)
{
    struct story story; // the recorder saw that the thread had no GIL, but it waits for a semaphore
    story_open(&story);
    int64_t feeder = story_thread(&story, story.process, 1006, "feeder");
    for (int i = 0; i < 30; i++)
        story_gap(&story,
                (struct story_gap){.thread = feeder,
                        .out = 300 * i,
                        .waking = 300 * i + 270,
                        .in = 300 * i + 270,
                        .state = 0x2001,
                        .kernel = STORY_FUTEX_WAIT,
                        .python =
                                "[gil];Condition.wait@/x/threading.py:320;Queue._feed@/x/queues.py:251",
                        .owner = story.main,
                        .waker = story.main,
                        .waker_stack = STORY_FUTEX_WAKE,
                        .syscall = SYS_futex,
                        .arg0 = 0x1000});
    story_check_innocent(&story);
    CHECK_INT(story.stalls->count, 0);
    story_close(&story);
}

TEST(python_gc)
{
    struct story story;
    story_open(&story);
    for (int i = 0; i < 8; i++)
        story_samples(&story,
                (struct story_samples){.from = 300 + 1200 * i,
                        .to = 600 + 1200 * i,
                        .why = UG_SAMPLE_TARGET | UG_SAMPLE_USER,
                        .python = i % 2 ? "[gc];step@/src/train.py:30" : NULL,
                        .user = i % 2 ? NULL
                                      : "visit_reachable;deduce_unreachable;gc_collect_main"});
    story_samples(&story,
            (struct story_samples){.from = 0,
                    .to = 250,
                    .why = UG_SAMPLE_TARGET | UG_SAMPLE_USER,
                    .python = "step@/src/train.py:31"});
    const struct stall *top = story_top(&story);
    CHECK_STR(top->cause, "python_gc");
    CHECK_INT(top->count, 8);
    CHECK_DBL((double)top->period_ns, 1200e6, 20e6);
    CHECK_DBL((double)top->max_ns, 300e6, 15e6);
    story_close(&story);
}

TEST(pthread_mutex_by_owner_word)
{
    struct story story;
    story_open(&story);
    for (int i = 0; i < 10; i++)
        story_gap(&story,
                (struct story_gap){.out = 300 + 900 * i,
                        .waking = 380 + 900 * i,
                        .in = 380 + 900 * i,
                        .state = 1,
                        .kernel = STORY_FUTEX_WAIT,
                        .owner = story.worker,
                        .flags = UG_GAP_OWNER_FUTEX,
                        .waker = story.worker,
                        .waker_stack = STORY_FUTEX_WAKE,
                        .lock = 0x7f00,
                        .syscall = SYS_futex});
    const struct stall *top = story_top(&story);
    CHECK_STR(top->cause, "pthread_mutex");
    CHECK_INT(top->culprit.tid, 1001);
    CHECK_INT(top->resource.kind, STALL_RESOURCE_MUTEX);
    CHECK_INT(top->resource.address, 0x7f00);
    story_close(&story);
}

// A wait for a mutex that `owner` holds.
static void mutex_wait(
        struct story *story, int64_t thread, int64_t owner, double out, double in, bool goes_on)
{
    story_gap(story,
            (struct story_gap){.thread = thread,
                    .out = out,
                    .waking = goes_on ? 0 : in,
                    .in = in,
                    .state = 1,
                    .kernel = STORY_FUTEX_WAIT,
                    .owner = owner,
                    .flags = UG_GAP_OWNER_FUTEX | (goes_on ? UG_GAP_UNFINISHED : 0),
                    .lock = 0x7f00,
                    .syscall = SYS_futex});
}

static void check_main_waits_for_worker(struct story *story)
{
    const struct stall *top = story_top(story);
    CHECK_STR(top->cause, "pthread_mutex");
    CHECK_INT(top->victim.tid, 1000);
    CHECK_INT(top->culprit.tid, 1001);
}

TEST(who_loses_most_to_a_mutex_does_not_lose_to_itself)
{
    // It holds the mutex longer than anybody, too: two others wait for it.
    struct story story;
    story_open(&story);
    int64_t third = story_thread(&story, story.process, 1002, "pool");
    for (int i = 0; i < 5; i++) {
        mutex_wait(&story, story.main, story.worker, 100 + 1000 * i, 300 + 1000 * i, false);
        mutex_wait(&story, story.worker, story.main, 500 + 1000 * i, 650 + 1000 * i, false);
        mutex_wait(&story, third, story.main, 500 + 1000 * i, 640 + 1000 * i, false);
    }
    check_main_waits_for_worker(&story);
    story_close(&story);
}

TEST(a_deadlock_names_the_other_thread)
{
    struct story story;
    story_open(&story);
    mutex_wait(&story, story.main, story.worker, 1500, 10000, true);
    mutex_wait(&story, story.worker, story.main, 2000, 10000, true);
    check_main_waits_for_worker(&story);
    story_close(&story);
}

TEST(futex_wait_for_one_that_sleeps)
{
    struct story story;
    story_open(&story);
    for (int i = 0; i < 10; i++) {
        story_gap(&story,
                (struct story_gap){.out = 300 + 900 * i,
                        .waking = 420 + 900 * i,
                        .in = 420 + 900 * i,
                        .state = 1,
                        .kernel = STORY_FUTEX_WAIT,
                        .user = "sem_wait;consume",
                        .waker = story.worker,
                        .waker_stack = STORY_FUTEX_WAKE});
        story_gap(&story,
                (struct story_gap){.thread = story.worker,
                        .out = 310 + 900 * i,
                        .waking = 419 + 900 * i,
                        .in = 419.5 + 900 * i,
                        .state = 1,
                        .kernel = "schedule;do_nanosleep;hrtimer_nanosleep" STORY_SYSCALL,
                        .waker = story.main,
                        .waker_stack = STORY_TIMER,
                        .flags = UG_GAP_WAKER_IRQ});
    }
    const struct stall *top = story_top(&story);
    CHECK_STR(top->cause, "futex_wait");
    CHECK_INT(top->culprit.tid, 1001);
    story_close(&story);
}

TEST(data_loader_with_slow_workers)
{
    struct story story;
    story_open(&story);
    int64_t pin = story_thread(&story, story.process, 1002, "pt_data_pin");
    int64_t worker = story_leader(&story,
            story_process(&story, "target", 1100, 1000, "pt_data_worker", "python3 train.py"));
    for (int i = 0; i < 30; i++) {
        double at = 50 + 300 * i;
        story_gap(&story,
                (struct story_gap){.out = at,
                        .waking = at + 100,
                        .in = at + 100.1,
                        .state = 1,
                        .kernel = STORY_FUTEX_WAIT,
                        .waker = pin,
                        .waker_stack = STORY_FUTEX_WAKE,
                        .python = "get@/usr/lib/python3.11/queue.py:171;_try_get_data@/x/"
                                  "torch/utils/data/dataloader.py:1132"});
        story_gap(&story,
                (struct story_gap){.thread = pin,
                        .out = at - 100,
                        .waking = at + 99,
                        .in = at + 99.2,
                        .state = 1,
                        .kernel = "pipe_read;anon_pipe_read;vfs_read" STORY_SYSCALL,
                        .waker = worker,
                        .waker_stack = "__wake_up_common;anon_pipe_write;vfs_write" STORY_SYSCALL,
                        .target = "pipe:[77]"});
        story_samples(&story,
                (struct story_samples){.thread = worker,
                        .from = at - 90,
                        .to = at + 98,
                        .why = UG_SAMPLE_TARGET | UG_SAMPLE_USER});
    }
    const struct stall *top = story_top(&story);
    CHECK_STR(top->cause, "data_loader");
    CHECK_INT(top->culprit.pid, 1100);
    CHECK_INT(top->chain_count, 2);
    CHECK_INT(top->chain[1].via, VIA_PIPE);
    CHECK_STR(top->chain[1].name, "pipe:[77]");
    story_close(&story);
}

TEST(compile_child)
{
    struct story story;
    story_open(&story);
    int64_t child = story_process(&story, "target", 1200, 1000, "ptxas", "ptxas -arch sm_90 k.ptx");
    story_sql(&story,
            "UPDATE process SET started_ns = 5002000000000, ended_ns = 5004500000000 "
            "WHERE tgid = 1200");
    story_gap(&story,
            (struct story_gap){.out = 2010,
                    .waking = 4500,
                    .in = 4501,
                    .state = 1,
                    .kernel = "schedule;do_wait;kernel_wait4" STORY_SYSCALL,
                    .waker = story_leader(&story, child),
                    .waker_stack =
                            "child_wait_callback;__wake_up_sync_key;do_notify_parent;do_exit",
                    .syscall = SYS_wait4});
    const struct stall *top = story_top(&story);
    CHECK_STR(top->cause, "compile_child");
    CHECK_INT(top->culprit.pid, 1200);
    CHECK_STR(top->culprit.comm, "ptxas");
    story_close(&story);

    story_open(&story); // a new process each time is one cause all the same
    for (int i = 0; i < 5; i++) {
        child = story_process(&story, "target", 1200 + i, 1000, "x-linux-gnu-gcc", "gcc -c k.c");
        char sql[160];
        snprintf(sql, sizeof sql,
                "UPDATE process SET started_ns = %lld, ended_ns = %lld WHERE tgid = %d",
                (long long)story_ns(1000 * i), (long long)story_ns(1000 * i + 300 + i), 1200 + i);
        story_sql(&story, sql);
        story_gap(&story,
                (struct story_gap){.out = 1000 * i,
                        .waking = 1000 * i + 300 + i,
                        .in = 1000 * i + 300 + i,
                        .state = 1,
                        .kernel = "schedule;do_wait;kernel_wait4" STORY_SYSCALL});
    }
    top = story_top(&story);
    CHECK_STR(top->cause, "compile_child");
    CHECK_INT(top->count, 5);
    CHECK_INT(top->culprit.pid, 1204);
    CHECK_DBL((double)top->period_ns, 1000e6, 1e6);
    CHECK_INT(story.stalls->count, 1);
    story_close(&story);
}

TEST(pipe_write_to_a_slow_reader)
{
    struct story story;
    story_open(&story);
    int64_t reader = story_other(&story, 5000, "tee", "tee log.txt");
    for (int i = 0; i < 12; i++)
        story_gap(&story,
                (struct story_gap){.out = 700 * i,
                        .waking = 700 * i + 250,
                        .in = 700 * i + 250,
                        .state = 1,
                        .kernel = "schedule;anon_pipe_write;vfs_write;ksys_write" STORY_SYSCALL,
                        .waker = reader,
                        .waker_stack = "__wake_up_sync_key;anon_pipe_read;vfs_read" STORY_SYSCALL,
                        .target = "pipe:[4711]"});
    const struct stall *top = story_top(&story);
    CHECK_STR(top->cause, "pipe_write");
    CHECK_INT(top->culprit.pid, 5000);
    CHECK_STR(top->culprit_function, "anon_pipe_read");
    CHECK_INT(top->resource.kind, STALL_RESOURCE_NAMED);
    CHECK_STR(top->resource.name, "pipe:[4711]");
    story_close(&story);
}

TEST(network_peer)
{
    struct story story;
    story_open(&story);
    int64_t peer = story_other(&story, 5100, "rank1", "python3 rank1.py");
    for (int i = 0; i < 10; i++)
        story_gap(&story,
                (struct story_gap){.out = 900 * i,
                        .waking = 900 * i + 120,
                        .in = 900 * i + 120,
                        .state = 1,
                        .flags = UG_GAP_WAKER_SOFTIRQ,
                        .kernel = "schedule;schedule_timeout;wait_woken;sk_wait_data;tcp_"
                                  "recvmsg_locked;tcp_recvmsg;inet_recvmsg" STORY_SYSCALL,
                        .waker = peer,
                        .waker_stack =
                                "sock_def_readable;tcp_rcv_established;tcp_v4_rcv;net_rx_action;"
                                "handle_softirqs;do_softirq;__local_bh_enable_ip;tcp_sendmsg;"
                                "__x64_sys_sendto" STORY_SYSCALL,
                        .target = "socket:[9] 127.0.0.1:29500"});
    const struct stall *top = story_top(&story);
    CHECK_STR(top->cause, "network_peer");
    CHECK_INT(top->culprit.pid, 5100);
    CHECK_CONTAINS(top->resource.name, "127.0.0.1:29500");
    story_close(&story);

    story_open(&story); // from another machine: woken by an interrupt that hit a bystander
    int64_t bystander = story_other(&story, 5101, "sh", "sh");
    for (int i = 0; i < 10; i++)
        story_gap(&story,
                (struct story_gap){.out = 900 * i,
                        .waking = 900 * i + 120,
                        .in = 900 * i + 120,
                        .state = 1,
                        .flags = UG_GAP_WAKER_SOFTIRQ,
                        .kernel = "sk_wait_data;tcp_recvmsg" STORY_SYSCALL,
                        .waker = bystander,
                        .waker_stack = "sock_def_readable;tcp_v4_rcv;net_rx_action;handle_"
                                       "softirqs;irq_exit_rcu;asm_common_interrupt",
                        .target = "socket:[9] 10.0.0.2:29500"});
    CHECK_STR(story_top(&story)->cause, "network_peer");
    CHECK(!story_top(&story)->culprit.known);
    CHECK_CONTAINS(story_top(&story)->resource.name, "10.0.0.2:29500");
    story_close(&story);

    story_open(&story); // of this machine, but another CPU delivered the packets
    int64_t sender = story_other(&story, 5102, "rank1", "python3 rank1.py");
    for (int i = 0; i < 10; i++)
        story_gap(&story,
                (struct story_gap){.out = 900 * i,
                        .waking = 900 * i + 120,
                        .in = 900 * i + 120,
                        .state = 1,
                        .flags = UG_GAP_WAKER_SOFTIRQ,
                        .kernel = "sk_wait_data;tcp_recvmsg" STORY_SYSCALL,
                        .owner = sender,
                        .waker_stack = "sock_def_readable;tcp_v4_rcv;net_rx_action;handle_"
                                       "softirqs;irq_exit_rcu;sysvec_call_function_single",
                        .target = "socket:[9] 127.0.0.1:29500"});
    CHECK_STR(story_top(&story)->cause, "network_peer");
    CHECK_INT(story_top(&story)->culprit.pid, 5102);
    story_close(&story);
}

// Ten waits of 60 ms of the main thread with these stacks.
static const struct stall *waits(struct story *story, struct story_gap gap)
{
    story_open(story);
    if (gap.waker)
        gap.waker = story_other(story, 6000, "other", "other --now");
    for (int i = 0; i < 10; i++) {
        gap.out = 200 + 830 * i;
        gap.waking = gap.in = gap.out + 60;
        story_gap(story, gap);
    }
    return story_top(story);
}

TEST(gpu_library)
{
    static const struct {
        const char *kernel, *user, *cause;
    } rows[] = {
            {STORY_FUTEX_WAIT,
                    "__lll_lock_wait;libcuda.so.1+0x1234;cudaFree;c10::cuda::CUDACachingAllocator::free",
                    "alloc_retry"},
            {"do_poll;do_sys_poll" STORY_SYSCALL,
                    "libcuda.so.1+0x99;cuStreamSynchronize;cudaStreamSynchronize", "gpu_sync"},
            {STORY_FUTEX_WAIT, "pthread_rwlock_wrlock;cuLibraryLoadData;cudaLaunchKernel",
                    "driver_lock"},
            {"schedule;rwsem_down_write_slowpath;down_write;os_acquire_rwlock_write;"
             "portSyncRwLockAcquireWrite;rmapiLockAcquire;nvidia_ioctl" STORY_SYSCALL,
                    NULL, "driver_lock"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct story story;
        const struct stall *top = waits(&story,
                (struct story_gap){
                        .state = i == 3 ? 2 : 1, .kernel = rows[i].kernel, .user = rows[i].user});
        CHECK_STR(top->cause, rows[i].cause);
        story_close(&story);
    }
}

TEST(files_and_disks)
{
    static const struct {
        const char *kernel;
        unsigned flags;
        const char *cause;
    } rows[] = {
            {"io_schedule;folio_wait_bit_common;filemap_get_pages;filemap_read;ext4_file_read_iter;vfs_"
             "read" STORY_SYSCALL,
                    UG_GAP_IOWAIT, "disk_read"},
            {"folio_wait_bit_common;filemap_get_pages;filemap_read;vfs_read" STORY_SYSCALL, 0,
                    "disk_read"},
            {"jbd2_log_wait_commit;ext4_sync_file;do_fsync" STORY_SYSCALL, 0, "fsync_journal"},
            {"wait_transaction_locked;start_this_handle;jbd2__journal_start;ext4_dirty_"
             "inode" STORY_SYSCALL,
                    0, "fsync_journal"},
            {"io_schedule_timeout;balance_dirty_pages;balance_dirty_pages_ratelimited_flags;generic_"
             "perform_write;ext4_buffered_write_iter" STORY_SYSCALL,
                    0, "dirty_throttle"},
            {"schedule;request_wait_answer;__fuse_simple_request;fuse_read_folio;filemap_read;vfs_"
             "read" STORY_SYSCALL,
                    0, "fuse_hang"},
            {"rpc_wait_bit_killable;__rpc_execute;nfs_file_read;vfs_read" STORY_SYSCALL, 0,
                    "fuse_hang"},
            {"some_unknown_function;another_one" STORY_SYSCALL, 0, "unknown"},
            {NULL, 0, "unknown"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct story story;
        const struct stall *top = waits(&story,
                (struct story_gap){.state = 2,
                        .kernel = rows[i].kernel,
                        .flags = rows[i].flags | UG_GAP_WAKER_IRQ,
                        .waker = 1,
                        .waker_stack = STORY_DISK_DONE,
                        .target = "/data/shard-7.bin"});
        CHECK_STR(top->cause, rows[i].cause);
        CHECK(!top->culprit.known); // an interrupt in somebody's context blames nobody
        if (i < 7)
            CHECK_STR(top->resource.name, "/data/shard-7.bin");
        story_close(&story);
    }
}

TEST(fuse_daemon_is_named)
{
    struct story story;
    const struct stall *top = waits(&story,
            (struct story_gap){.state = 0x102,
                    .kernel =
                            "schedule;request_wait_answer;__fuse_simple_request;fuse_lookup" STORY_SYSCALL,
                    .waker = 1,
                    .waker_stack = "wake_up;fuse_request_end;fuse_dev_do_write;fuse_dev_write;vfs_"
                                   "writev" STORY_SYSCALL});
    CHECK_STR(top->cause, "fuse_hang");
    CHECK_INT(top->culprit.pid, 6000);
    CHECK_STR(top->culprit_function, "fuse_dev_do_write");
    story_close(&story);
}

TEST(a_thread_of_the_kernel_that_delivers_an_answer_is_not_accused)
{
    struct story story;
    story_open(&story);
    int64_t rpciod = story_other(&story, 70, "kworker/u8:2", NULL),
            napi = story_other(&story, 71, "napi/eth0-8193", NULL);
    for (int i = 0; i < 5; i++) {
        story_gap(&story,
                (struct story_gap){.out = 100 + 1800 * i,
                        .waking = 700 + 1800 * i,
                        .in = 700 + 1800 * i,
                        .state = 0x102,
                        .kernel =
                                "rpc_wait_bit_killable;__rpc_execute;nfs_file_read;vfs_read" STORY_SYSCALL,
                        .waker = rpciod,
                        .waker_stack =
                                "wake_up_bit;rpc_make_runnable;process_one_work;worker_thread;kthread"});
        story_gap(&story,
                (struct story_gap){.out = 900 + 1800 * i,
                        .waking = 1200 + 1800 * i,
                        .in = 1200 + 1800 * i,
                        .state = 1,
                        .kernel = "sk_wait_data;tcp_recvmsg" STORY_SYSCALL,
                        .waker = napi,
                        .waker_stack =
                                "sock_def_readable;tcp_v4_rcv;process_backlog;napi_threaded_poll;kthread",
                        .target = "socket:[9] 10.0.0.2:29500"});
    }
    story_analyse(&story);
    const struct stall *file = story_find(&story, "fuse_hang"),
                       *peer = story_find(&story, "network_peer");
    CHECK(file && !file->culprit.known);
    CHECK(peer && !peer->culprit.known);
    story_close(&story);
}

TEST(rwsem_inode)
{
    struct story story;
    story_open(&story);
    int64_t writer = story_other(&story, 6100, "ckpt_writer", "ckpt_writer /data/log");
    for (int i = 0; i < 6; i++) {
        double at = 500 + 1500 * i;
        story_gap(&story,
                (struct story_gap){.out = at,
                        .waking = at + 300,
                        .in = at + 300,
                        .state = 2,
                        .lock_kind = UG_LOCK_RWSEM,
                        .owner = writer,
                        .target = "/data/log",
                        .kernel = "schedule_preempt_disabled;rwsem_down_write_slowpath;down_"
                                  "write;ext4_buffered_write_iter;vfs_write" STORY_SYSCALL,
                        .waker = writer,
                        .waker_stack = "wake_up_q;rwsem_wake;up_write;ext4_buffered_write_"
                                       "iter;vfs_write" STORY_SYSCALL});
        story_samples(&story,
                (struct story_samples){.thread = writer,
                        .from = at,
                        .to = at + 300,
                        .why = UG_SAMPLE_OWNER,
                        .kernel = "copy_page_from_iter_atomic;generic_perform_write;ext4_"
                                  "buffered_write_iter;vfs_write" STORY_SYSCALL});
    }
    const struct stall *top = story_top(&story);
    CHECK_STR(top->cause, "rwsem_inode");
    CHECK_INT(top->culprit.pid, 6100);
    CHECK_STR(top->culprit_function, "ext4_buffered_write_iter");
    CHECK_STR(top->resource.name, "/data/log");
    story_close(&story);
}
