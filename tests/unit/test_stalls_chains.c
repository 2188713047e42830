// SPDX-License-Identifier: Apache-2.0
// Chains from thread to thread and process to process, and stories in which nobody is to blame.
#include <sys/syscall.h>

#include "reports/analyse/stalls/parts.h"
#include "tests/unit/stall_story.h"

TEST(chain_of_three_ends_at_the_disk)
{
    struct story story;
    story_open(&story);
    int64_t pin = story_thread(&story, story.process, 1002, "pt_data_pin");
    int64_t loader = story_leader(&story,
            story_process(&story, "target", 1100, 1000, "pt_data_worker", "python3 train.py"));
    for (int i = 0; i < 10; i++) {
        double at = 300 + 900 * i;
        story_gap(&story,
                (struct story_gap){.out = at,
                        .waking = at + 200,
                        .in = at + 200,
                        .state = 1,
                        .kernel = STORY_FUTEX_WAIT,
                        .waker = pin,
                        .waker_stack = STORY_FUTEX_WAKE});
        story_gap(&story,
                (struct story_gap){.thread = pin,
                        .out = at - 2,
                        .waking = at + 199,
                        .in = at + 199.2,
                        .state = 1,
                        .kernel = "anon_pipe_read;vfs_read" STORY_SYSCALL,
                        .waker = loader,
                        .waker_stack = "anon_pipe_write;vfs_write" STORY_SYSCALL,
                        .target = "pipe:[5]"});
        story_gap(&story,
                (struct story_gap){.thread = loader,
                        .out = at + 1,
                        .waking = at + 197,
                        .in = at + 197.2,
                        .state = 0x102,
                        .flags = UG_GAP_IOWAIT | UG_GAP_WAKER_IRQ,
                        .kernel = "io_schedule;folio_wait_bit_common;filemap_get_"
                                  "pages;filemap_read;vfs_read" STORY_SYSCALL,
                        .waker = story.idle_task,
                        .waker_stack = STORY_DISK_DONE,
                        .target = "/data/a.rec"});
    }
    const struct stall *top = story_top(&story);
    CHECK_STR(top->cause, "disk_read");
    CHECK(!top->culprit.known);
    CHECK_INT(top->chain_count, 2);
    CHECK_INT(top->chain[0].from.tid, 1000);
    CHECK_INT(top->chain[0].to.tid, 1002);
    CHECK_INT(top->chain[1].to.tid, 1100);
    CHECK_INT(top->chain[1].via, VIA_PIPE);
    CHECK_STR(top->chain[1].name, "pipe:[5]");
    CHECK_INT(top->victim_threads, 2);
    CHECK_INT(story.stalls->count, 1);
    story_close(&story);
}

TEST(chain_through_a_mutex_to_the_monitor)
{
    // main waits for a mutex of the worker, which waits for mmap_lock, which the monitor holds.
    struct story story;
    story_open(&story);
    int64_t monitor = story_other(&story, 2000, "python3", "python3 monitor.py");
    for (int i = 0; i < 12; i++) {
        double at = 100 + 700 * i;
        story_gap(&story,
                (struct story_gap){.out = at + 2,
                        .waking = at + 90,
                        .in = at + 90,
                        .state = 1,
                        .kernel = STORY_FUTEX_WAIT,
                        .owner = story.worker,
                        .flags = UG_GAP_OWNER_FUTEX,
                        .waker = story.worker,
                        .waker_stack = STORY_FUTEX_WAKE,
                        .syscall = SYS_futex});
        story_gap(&story,
                (struct story_gap){.thread = story.worker,
                        .out = at,
                        .waking = at + 88,
                        .in = at + 88.2,
                        .state = 0x102,
                        .kernel = STORY_MMAP_WAIT,
                        .lock_kind = UG_LOCK_MMAP,
                        .owner = monitor,
                        .flags = UG_GAP_OWNER_READER,
                        .waker = monitor,
                        .waker_stack = STORY_SMAPS_UNLOCK});
        story_samples(&story,
                (struct story_samples){.thread = monitor,
                        .from = at,
                        .to = at + 88,
                        .why = UG_SAMPLE_OWNER,
                        .kernel = STORY_SMAPS});
    }
    const struct stall *top = story_top(&story);
    CHECK_STR(top->cause, "smaps_read");
    CHECK_INT(top->culprit.pid, 2000);
    CHECK_INT(story.stalls->count, 1);
    CHECK_INT(top->victim_threads, 2);
    CHECK_DBL((double)top->period_ns, 700e6, 7e6);
    story_close(&story);
}

TEST(chain_cycle_ends)
{
    struct story story;
    story_open(&story);
    for (int i = 0; i < 10; i++) {
        double at = 100 + 900 * i;
        story_gap(&story,
                (struct story_gap){.out = at,
                        .waking = at + 100,
                        .in = at + 100,
                        .state = 1,
                        .kernel = STORY_FUTEX_WAIT,
                        .waker = story.worker,
                        .waker_stack = STORY_FUTEX_WAKE});
        story_gap(&story,
                (struct story_gap){.thread = story.worker,
                        .out = at,
                        .waking = at + 99,
                        .in = at + 99,
                        .state = 1,
                        .kernel = STORY_FUTEX_WAIT,
                        .waker = story.main,
                        .waker_stack = STORY_FUTEX_WAKE});
    }
    CHECK_STR(story_top(&story)->cause, "(none)");
    story_close(&story);
}

TEST(gil_held_by_one_that_collects)
{
    struct story story;
    story_open(&story);
    for (int i = 0; i < 6; i++) {
        double at = 200 + 1500 * i;
        for (int k = 0; k < 40; k++)
            story_gap(&story,
                    (struct story_gap){.out = at + 5.1 * k,
                            .waking = at + 5.1 * k + 5,
                            .in = at + 5.1 * k + 5.05,
                            .state = 1,
                            .kernel = STORY_FUTEX_WAIT,
                            .waker = story.idle_task,
                            .waker_stack = STORY_TIMER,
                            .flags = UG_GAP_WAKER_IRQ,
                            .python = "[gil];step@/t.py:3",
                            .owner = story.worker});
        story_samples(&story,
                (struct story_samples){.thread = story.worker,
                        .from = at,
                        .to = at + 204,
                        .python = "[gc];callback@/t.py:9"});
    }
    const struct stall *top = story_top(&story);
    CHECK_STR(top->cause, "python_gc");
    CHECK_INT(top->victim_threads, 2);
    story_close(&story);
}

// ---- nobody is to blame ----

TEST(idle_pools_and_event_loops)
{
    struct story story;
    story_open(&story);
    int64_t loop = story_thread(&story, story.process, 1003, "asyncio"),
            timer = story_thread(&story, story.process, 1004, "timer");
    for (int i = 0; i < 90; i++) {
        double at = 100 * i;
        story_gap(&story,
                (struct story_gap){.thread = story.worker,
                        .out = at,
                        .waking = at + 98,
                        .in = at + 98.1,
                        .state = 1,
                        .kernel = STORY_FUTEX_WAIT,
                        .user = "pthread_cond_wait@@GLIBC_2.3.2;worker_main",
                        .waker = story.main,
                        .waker_stack = STORY_FUTEX_WAKE});
        story_gap(&story,
                (struct story_gap){.thread = loop,
                        .out = at,
                        .waking = at + 99,
                        .in = at + 99,
                        .state = 1,
                        .kernel = "ep_poll;do_epoll_wait" STORY_SYSCALL,
                        .waker = story.main,
                        .waker_stack = STORY_TIMER,
                        .flags = UG_GAP_WAKER_IRQ});
        story_gap(&story,
                (struct story_gap){.thread = timer,
                        .out = at,
                        .waking = at + 97,
                        .in = at + 97,
                        .state = 1,
                        .kernel = "do_nanosleep;hrtimer_nanosleep" STORY_SYSCALL,
                        .waker = story.main,
                        .waker_stack = STORY_TIMER,
                        .flags = UG_GAP_WAKER_IRQ});
    }
    story_check_innocent(&story);
    CHECK_INT(story.stalls->count, 0);
    CHECK(story.stalls->idle_ns > (int64_t)20e9);
    CHECK_INT(story.stalls->target_threads, 4);
    story_close(&story);
}

TEST(main_thread_that_sleeps_of_its_own_will)
{
    struct story story;
    story_open(&story);
    for (int i = 0; i < 90; i++)
        story_gap(&story,
                (struct story_gap){.out = 100 * i,
                        .waking = 100 * i + 50,
                        .in = 100 * i + 50.1,
                        .state = 1,
                        .kernel = "do_nanosleep;hrtimer_nanosleep" STORY_SYSCALL});
    story_check_innocent(&story);
    CHECK_INT(story.stalls->count, 0);
    story_close(&story);
}

TEST(barrier_of_a_team_that_works)
{
    struct story story; // main waits 8 ms in each step for a worker that computes
    story_open(&story);
    story_total(&story, story.worker, 9000);
    story_samples(&story,
            (struct story_samples){.thread = story.worker,
                    .from = 0,
                    .to = 9900,
                    .why = UG_SAMPLE_TARGET | UG_SAMPLE_USER});
    for (int i = 0; i < 200; i++)
        story_gap(&story,
                (struct story_gap){.out = 48 * i,
                        .waking = 48 * i + 12,
                        .in = 48 * i + 12,
                        .state = 1,
                        .kernel = STORY_FUTEX_WAIT,
                        .user = "gomp_team_barrier_wait_end",
                        .waker = story.worker,
                        .waker_stack = STORY_FUTEX_WAKE});
    story_check_innocent(&story);
    CHECK_INT(story.stalls->count, 0);
    story_close(&story);
}

TEST(healthy_loader)
{
    struct story story; // the worker waits for the queue most of the time, main hardly for it
    story_open(&story);
    int64_t loader = story_leader(&story,
            story_process(&story, "target", 1100, 1000, "pt_data_worker", "python3 train.py"));
    story_total(&story, loader, 2000);
    for (int i = 0; i < 90; i++) {
        double at = 100 * i;
        story_gap(&story,
                (struct story_gap){.thread = loader,
                        .out = at,
                        .waking = at + 80,
                        .in = at + 80,
                        .state = 1,
                        .kernel = "anon_pipe_read;vfs_read" STORY_SYSCALL,
                        .waker = story.main,
                        .waker_stack = "anon_pipe_write;vfs_write" STORY_SYSCALL,
                        .target = "pipe:[6]",
                        .python =
                                "get@/usr/lib/python3.11/multiprocessing/queues.py:103;_worker_loop@/x/"
                                "torch/utils/data/_utils/worker.py:275"});
        if (i % 10 == 0)
            story_gap(&story,
                    (struct story_gap){.out = at + 85,
                            .waking = at + 88,
                            .in = at + 88,
                            .state = 1,
                            .kernel = STORY_FUTEX_WAIT,
                            .waker = loader,
                            .waker_stack = STORY_FUTEX_WAKE,
                            .python = "_try_get_data@/x/torch/utils/data/dataloader.py:1132"});
    }
    story_check_innocent(&story);
    CHECK_INT(story.stalls->count, 0);
    story_close(&story);
}

TEST(ordinary_neighbours)
{
    struct story story; // time slices of 3 ms, 4 % of the window
    story_open(&story);
    int64_t other = story_other(&story, 3000, "browser", "browser");
    for (int i = 0; i < 130; i++)
        story_gap(&story,
                (struct story_gap){.out = 75 * i,
                        .in = 75 * i + 3,
                        .flags = UG_GAP_PREEMPTED,
                        .next = other,
                        .before = other});
    story_check_innocent(&story);
    CHECK_INT(story.stalls->count, 1); // it is told, but nobody is accused
    const struct stall *busy = &story.stalls->stalls[0];
    CHECK_STR(busy->cause, "cpu_contention");
    CHECK(!busy->culprit.known);
    CHECK_INT(busy->resource.kind, STALL_RESOURCE_CPU_TIME);
    CHECK_STR(busy->resource.name, "browser");
    CHECK_INT(busy->resource.pid, 3000);
    story_close(&story);
}

TEST(short_things_are_no_stalls)
{
    struct story story;
    story_open(&story);
    for (int i = 0; i < 2; i++)
        story_gap(&story,
                (struct story_gap){.out = 900 * i,
                        .waking = 900 * i + 3,
                        .in = 900 * i + 3,
                        .state = 2,
                        .kernel = "jbd2_log_wait_commit;ext4_sync_file" STORY_SYSCALL});
    for (int i = 0; i < 40; i++) // single ticks of everyday work in the kernel
        story_samples(&story,
                (struct story_samples){.from = 240 * i,
                        .to = 240 * i + 1,
                        .kernel =
                                "zap_pte_range;unmap_vmas;do_vmi_align_munmap;__vm_munmap" STORY_SYSCALL});
    for (int i = 0; i < 10; i++)
        story_samples(&story,
                (struct story_samples){
                        .from = 900 * i + 50, .to = 900 * i + 51, .python = "[gc];step@/t.py:1"});
    story_check_innocent(&story);
    CHECK_INT(story.stalls->count, 0);
    story_close(&story);
}

TEST(upgate_itself_is_never_to_blame)
{
    struct story story;
    story_open(&story);
    int64_t own = story_other(&story, 9000, "upgate", "upgate record --pid 1000");
    for (int i = 0; i < 50; i++)
        story_gap(&story,
                (struct story_gap){.out = 190 * i,
                        .in = 190 * i + 20,
                        .flags = UG_GAP_PREEMPTED,
                        .next = own,
                        .before = own});
    story_gap(&story,
            (struct story_gap){.out = 9500,
                    .waking = 9900,
                    .in = 9900,
                    .state = 0x104,
                    .kernel = "do_signal_stop;get_signal",
                    .waker = own,
                    .waker_stack = "prepare_signal;__x64_sys_kill"});
    story_check_innocent(&story);
    for (size_t i = 0; i < story.stalls->count; i++)
        CHECK(!story.stalls->stalls[i].culprit.known);
    story_close(&story);
}

// What a chain asks most often. Parts of a thread hardly overlap, but some are long.
TEST(parts_that_overlap_a_span)
{
    struct trace trace = {.thread_count = 2};
    struct work work;
    uint32_t dice = 12345;
    work_init(&work, &trace);
    for (int i = 0; i < 1000; i++) {
        dice = dice * 1664525 + 1013904223;
        int64_t begin = i * 10 + (dice >> 16) % 7;
        parts_add(&work, i % 2, begin, begin + (i % 37 ? 5 : 400), CAUSE_IDLE, SPLIT_BLOCKED);
    }
    parts_sort(&work);
    for (int i = 0; i < 500; i++) {
        dice = dice * 1664525 + 1013904223;
        int64_t begin = (dice >> 8) % 10500, end = begin + 1 + (dice >> 24) % 60;
        uint32_t thread = dice >> 7 & 1, last,
                 first = parts_range(&work, thread, begin, end, &last);
        for (uint32_t k = work.part_first[thread]; k < work.part_first[thread + 1]; k++)
            CHECK((k >= first && k < last) ||
                    !parts_overlap(begin, end, work.parts[k].begin, work.parts[k].end));
        // and none before them
        CHECK(first == last ||
                parts_overlap(begin, end, work.parts[first].begin, work.parts[first].end));
    }
    work_free(&work);
}
