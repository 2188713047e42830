// SPDX-License-Identifier: Apache-2.0
// Causes around memory: who holds mmap_lock and why, page tables, reclaim, compaction.
#include "tests/unit/stall_story.h"

// psutil visits every 300 ms and holds mmap_lock for 60 ms; the trainer maps memory at random
// moments of it.
static int64_t smaps_story(struct story *story, bool samples, bool owner)
{
    int64_t monitor = story_other(story, 2000, "python3", "python3 monitor.py");
    for (int i = 0; i < 30; i++) {
        double held = 100 + i * 300, out = held + (i * 7) % 20;
        story_gap(story,
                (struct story_gap){.out = out,
                        .waking = held + 60,
                        .in = held + 60.1,
                        .state = 0x102,
                        .kernel = STORY_MMAP_WAIT,
                        .lock_kind = UG_LOCK_MMAP,
                        .owner = owner ? monitor : 0,
                        .flags = owner ? UG_GAP_OWNER_READER : 0,
                        .waker = monitor,
                        .waker_stack = STORY_SMAPS_UNLOCK,
                        .python = "step@/src/train.py:12;main@/src/train.py:40"});
        if (samples)
            story_samples(story,
                    (struct story_samples){.thread = monitor,
                            .from = out + 2,
                            .to = held + 60,
                            .why = UG_SAMPLE_OWNER,
                            .kernel = STORY_SMAPS,
                            .cpu = 1});
    }
    return monitor;
}

TEST(smaps_read_names_the_monitor_and_its_period)
{
    struct story story;
    story_open(&story);
    smaps_story(&story, true, true);
    for (int i = 0; i < 100; i++)
        story_step(&story, i, i * 100, 100);
    const struct stall *top = story_top(&story);
    CHECK_STR(top->cause, "smaps_read");
    CHECK_INT(top->culprit.pid, 2000);
    CHECK_STR(top->culprit.cmdline, "python3 monitor.py");
    CHECK_STR(top->culprit.kind, "other");
    CHECK_STR(top->culprit_function, "show_smaps_rollup");
    CHECK_INT(top->victim.tid, 1000);
    CHECK_INT(top->count, 30);
    CHECK(top->has_period);
    CHECK_DBL((double)top->period_ns, 300e6, 30e6);
    CHECK_DBL((double)top->max_ns, 60e6, 1e6);
    CHECK_INT(top->blocked_ns, top->total_ns);
    CHECK(top->confidence > 0.85);
    CHECK_INT(top->resource.kind, STALL_RESOURCE_MMAP_LOCK);
    CHECK_INT(top->resource.pid, 1000);
    CHECK(!top->culprit_own);
    CHECK_INT(top->chain_count, 1);
    CHECK_INT(top->chain[0].via, VIA_MMAP_LOCK);
    CHECK_INT(top->chain[0].to.pid, 2000);
    CHECK_STR(top->victim_python.frames[0], "step (train.py:12)");
    CHECK(top->has_steps);
    CHECK_INT(top->steps_total, 100);
    CHECK_INT(top->steps_hit, 30);
    CHECK_INT(story.stalls->count, 1);
    story_close(&story);
}

TEST(smaps_read_without_samples_or_owner)
{
    struct story story;
    story_open(&story);
    smaps_story(&story, false, true);
    CHECK_STR(story_top(&story)->cause, "smaps_read"); // the waker's stack says it
    CHECK_INT(story_top(&story)->culprit.pid, 2000);
    double both = story_top(&story)->confidence;
    story_close(&story);
    story_open(&story);
    smaps_story(&story, false, false);
    CHECK_STR(story_top(&story)->cause, "smaps_read");
    CHECK_INT(story_top(&story)->culprit.pid, 2000);
    CHECK(story_top(&story)->confidence < both);
    story_close(&story);
}

TEST(smaps_read_among_siblings)
{
    // A sibling thread that waits as well and is handed the lock first must not be blamed.
    struct story story;
    story_open(&story);
    int64_t monitor = story_other(&story, 2000, "python3", "python3 monitor.py");
    for (int i = 0; i < 10; i++) {
        double at = 500 * i;
        story_gap(&story,
                (struct story_gap){.thread = story.worker,
                        .out = at,
                        .waking = at + 80,
                        .in = at + 80,
                        .state = 0x102,
                        .kernel = STORY_MMAP_WAIT,
                        .lock_kind = UG_LOCK_MMAP,
                        .owner = monitor,
                        .flags = UG_GAP_OWNER_READER,
                        .waker = monitor,
                        .waker_stack = STORY_SMAPS_UNLOCK});
        story_gap(&story,
                (struct story_gap){.out = at + 1,
                        .waking = at + 80.2,
                        .in = at + 80.3,
                        .state = 0x102,
                        .kernel = STORY_MMAP_WAIT,
                        .lock_kind = UG_LOCK_MMAP,
                        .owner = monitor,
                        .flags = UG_GAP_OWNER_READER,
                        .waker = story.worker,
                        .waker_stack =
                                "wake_up_q;rwsem_wake;up_write;vm_mmap_pgoff" STORY_SYSCALL});
        story_samples(&story,
                (struct story_samples){.thread = monitor,
                        .from = at + 1,
                        .to = at + 80,
                        .why = UG_SAMPLE_OWNER,
                        .kernel = STORY_SMAPS});
    }
    const struct stall *top = story_top(&story);
    CHECK_STR(top->cause, "smaps_read");
    CHECK_INT(top->culprit.pid, 2000);
    CHECK_INT(top->victim_threads, 2);
    CHECK_INT(top->count, 10);
    CHECK_INT(story.stalls->count, 1);
    story_close(&story);
}

TEST(fork_large)
{
    struct story story;
    story_open(&story);
    for (int i = 0; i < 3; i++) {
        double at = 1000 + 2500 * i;
        story_samples(&story,
                (struct story_samples){.thread = story.worker,
                        .from = at,
                        .to = at + 120,
                        .kernel = "copy_present_ptes;copy_pte_range;copy_page_range;dup_"
                                  "mmap;dup_mm;copy_process;kernel_clone" STORY_SYSCALL});
        story_gap(&story,
                (struct story_gap){.out = at + 2,
                        .waking = at + 120,
                        .in = at + 120,
                        .state = 0x102,
                        .kernel = "down_read_killable;lock_mm_and_find_vma;do_user_addr_"
                                  "fault;exc_page_fault;asm_exc_page_fault;__put_user_8",
                        .lock_kind = UG_LOCK_MMAP,
                        .owner = story.worker,
                        .waker = story.worker,
                        .waker_stack = "wake_up_q;rwsem_wake;up_write;dup_mmap;dup_mm;copy_"
                                       "process;kernel_clone" STORY_SYSCALL});
    }
    const struct stall *top = story_top(&story);
    CHECK_STR(top->cause, "fork_large");
    CHECK_INT(top->culprit.tid, 1001);
    CHECK_INT(top->culprit.pid, 1000);
    CHECK_STR(top->culprit_function, "dup_mmap");
    CHECK(top->culprit_own);
    CHECK_STR(top->culprit.comm, "worker");
    CHECK_INT(top->victim_threads, 2);
    story_close(&story);
}

// A sibling holds mmap_lock while it is seen in `kernel`.
static const struct stall *sibling(struct story *story, const char *kernel)
{
    story_open(story);
    for (int i = 0; i < 5; i++) {
        double at = 500 + 1500 * i;
        story_samples(story,
                (struct story_samples){.thread = story->worker,
                        .from = at,
                        .to = at + 200,
                        .kernel = kernel,
                        .cpu = 1});
        story_gap(story,
                (struct story_gap){.out = at + 20,
                        .waking = at + 200,
                        .in = at + 200.5,
                        .state = 0x102,
                        .kernel = STORY_MMAP_WAIT,
                        .lock_kind = UG_LOCK_MMAP,
                        .owner = story->worker});
    }
    return story_top(story);
}

TEST(sibling_holds_mmap_lock)
{
    static const struct {
        const char *kernel, *cause, *function;
    } rows[] = {
            {"zap_present_ptes;zap_pte_range;unmap_page_range;unmap_vmas;vms_clear_ptes;do_vmi_align_"
             "munmap;__vm_munmap" STORY_SYSCALL,
                    "munmap_large", "__vm_munmap"},
            {"clear_page_erms;folio_zero_user;do_anonymous_page;handle_mm_fault;faultin_page;__get_"
             "user_pages;populate_vma_page_range;"
             "__mm_populate;do_mlock" STORY_SYSCALL,
                    "page_populate", "do_mlock"},
            {"zap_pte_range;unmap_page_range;zap_page_range_single;madvise_vma_behavior;do_"
             "madvise" STORY_SYSCALL,
                    "madvise_storm", "do_madvise"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct story story;
        const struct stall *top = sibling(&story, rows[i].kernel);
        CHECK_STR(top->cause, rows[i].cause);
        CHECK_STR(top->culprit_function, rows[i].function);
        CHECK_INT(top->culprit.tid, 1001);
        CHECK_INT(top->victim_threads, 2); // the one that does it loses its time as well
        story_close(&story);
    }
}

TEST(a_neighbour_in_its_own_memory_holds_nothing)
{
    struct story story;
    story_open(&story);
    int64_t neighbour = story_other(&story, 2400, "java", "java -jar app.jar");
    for (int i = 0; i < 20; i++) {
        story_gap(&story,
                (struct story_gap){.out = 100 + 400 * i,
                        .waking = 150 + 400 * i,
                        .in = 150 + 400 * i,
                        .state = 2,
                        .kernel = STORY_MMAP_WAIT,
                        .lock_kind = UG_LOCK_MMAP});
        story_samples(&story,
                (struct story_samples){.thread = neighbour,
                        .from = 100 + 400 * i,
                        .to = 150 + 400 * i,
                        .why = UG_SAMPLE_SPIN,
                        .kernel = "zap_pte_range;unmap_page_range;"
                                  "unmap_vmas;__x64_sys_munmap",
                        .cpu = 1});
    }
    CHECK_STR(story_top(&story)->cause, "mmap_lock");
    CHECK(!story_top(&story)->culprit.known);
    story_close(&story);
}

TEST(mmap_lock_of_an_unknown_holder)
{
    struct story story;
    story_open(&story);
    int64_t other = story_other(&story, 2100, "tool", "tool --all");
    for (int i = 0; i < 5; i++)
        story_gap(&story,
                (struct story_gap){.out = 100 + 1000 * i,
                        .waking = 150 + 1000 * i,
                        .in = 150 + 1000 * i,
                        .state = 0x102,
                        .kernel = "vm_mmap_pgoff" STORY_SYSCALL,
                        .owner = other}); // without .sched.text
    const struct stall *top = story_top(&story);
    CHECK_STR(top->cause, "mmap_lock");
    CHECK_INT(top->culprit.pid, 2100);
    CHECK(top->doubts & STALL_DOUBT_NO_ACTIVITY);
    CHECK(top->confidence < 0.8);
    story_close(&story);
}

TEST(khugepaged)
{
    struct story story;
    story_open(&story);
    int64_t kernel = story_other(&story, 40, "khugepaged", NULL);
    for (int i = 0; i < 6; i++) {
        double at = 300 + 1000 * i;
        story_gap(&story,
                (struct story_gap){.out = at,
                        .waking = at + 25,
                        .in = at + 25,
                        .state = 0x102,
                        .kernel = STORY_MMAP_WAIT,
                        .lock_kind = UG_LOCK_MMAP,
                        .owner = kernel});
        story_samples(&story,
                (struct story_samples){.thread = kernel,
                        .from = at + 1,
                        .to = at + 25,
                        .why = UG_SAMPLE_OWNER,
                        .kernel = "__collapse_huge_page_copy;collapse_huge_page;"
                                  "hpage_collapse_scan_pmd;khugepaged;kthread"});
    }
    const struct stall *top = story_top(&story);
    CHECK_STR(top->cause, "khugepaged");
    CHECK_STR(top->culprit.kind, "kernel");
    story_close(&story);

    story_open(&story); // no owner, but the kernel said what it did
    kernel = story_other(&story, 40, "khugepaged", NULL);
    for (int i = 0; i < 6; i++) {
        double at = 300 + 1000 * i;
        story_gap(&story,
                (struct story_gap){.out = at,
                        .waking = at + 25,
                        .in = at + 25,
                        .state = 0x102,
                        .kernel = STORY_MMAP_WAIT});
        story_fact(&story, UG_FACT_COLLAPSE, at + 24, at + 24, story.main, kernel, 0);
    }
    CHECK_STR(story_top(&story)->cause, "khugepaged");
    CHECK_INT(story_top(&story)->culprit.pid, 40);
    story_close(&story);
}

TEST(page_migration_and_compaction)
{
    struct story story;
    story_open(&story);
    int64_t shell = story_other(&story, 2200, "bash", "bash -c compact");
    for (int i = 0; i < 6; i++) {
        story_fact(&story, UG_FACT_MIGRATE, 995 + 800 * i, 1030 + 800 * i, 0, shell, 300);
        story_gap(&story,
                (struct story_gap){.out = 1000 + 800 * i,
                        .waking = 1030 + 800 * i,
                        .in = 1030 + 800 * i,
                        .state = 2,
                        .kernel =
                                "io_schedule;migration_entry_wait_on_locked;do_swap_page;handle_mm_fault;"
                                "exc_page_fault",
                        .waker = shell,
                        .waker_stack =
                                "folio_unlock;migrate_pages_batch;migrate_pages;compact_zone;compact_node"});
    }
    const struct stall *top = story_top(&story);
    CHECK_STR(top->cause, "page_migration");
    CHECK_INT(top->culprit.pid, 2200);
    CHECK_DBL((double)top->period_ns, 800e6, 10e6);
    story_close(&story);

    story_open(&story); // a tally's time is no time: two faults far apart within it are nothing
    shell = story_other(&story, 2200, "bash", "bash -c compact");
    for (int i = 0; i < 80; i++) {
        story_fact(&story, UG_FACT_MIGRATE, 120 * i, 120 * i + 100, 0, shell, 300);
        for (int k = 0; k < 2; k++)
            story_samples(&story,
                    (struct story_samples){.from = 120 * i + 10 + 80 * k,
                            .to = 120 * i + 14 + 80 * k,
                            .kernel = "do_anonymous_page;handle_mm_fault"});
        story_fact(&story, UG_FACT_RSTAT_LOCK, 120 * i, 120 * i + 100, story.main, story.main, 1);
    }
    CHECK_STR(story_top(&story)->cause, "(none)");
    story_close(&story);

    story_open(&story); // no wait long enough to be stored: the faults while it moves pages say it
    shell = story_other(&story, 2200, "bash", "bash -c compact");
    for (int i = 0; i < 6; i++) {
        story_fact(&story, UG_FACT_COMPACTION, 1000 + 800 * i, 1060 + 800 * i, 0, shell, 0);
        story_samples(&story,
                (struct story_samples){.from = 1000 + 800 * i,
                        .to = 1060 + 800 * i,
                        .kernel = "do_swap_page;handle_mm_fault;exc_page_fault"});
    }
    CHECK_STR(story_top(&story)->cause, "page_migration");
    CHECK_INT(story_top(&story)->culprit.pid, 2200);
    CHECK(story_top(&story)->doubts & STALL_DOUBT_INFERRED);
    story_close(&story);

    story_open(&story);
    story_samples(&story,
            (struct story_samples){.from = 2000,
                    .to = 2600,
                    .kernel = "pageblock_pfn_to_page;isolate_migratepages_block;"
                              "compact_zone;try_to_compact_pages;"
                              "__alloc_pages_direct_compact;do_huge_pmd_"
                              "anonymous_page;handle_mm_fault;exc_page_fault"});
    top = story_top(&story);
    CHECK_STR(top->cause, "compaction");
    CHECK_DBL((double)top->total_ns, 600e6, 15e6);
    CHECK_INT(top->on_cpu_ns, top->total_ns);
    CHECK(!top->culprit.known);
    story_close(&story);
}

// The trainer's main thread is seen in this kernel stack for 900 ms in pieces of 45 ms.
static const struct stall *on_cpu(struct story *story, const char *kernel)
{
    story_open(story);
    for (int i = 0; i < 20; i++)
        story_samples(story,
                (struct story_samples){
                        .from = 100 + 450 * i, .to = 145 + 450 * i, .kernel = kernel});
    return story_top(story);
}

TEST(on_cpu_in_the_kernel)
{
    static const struct {
        const char *kernel, *cause;
    } rows[] = {
            {"change_pte_range;change_protection_range;change_prot_numa;task_numa_work;task_work_run;"
             "irqentry_exit_to_user_mode",
                    "numa_balancing"},
            {"shrink_folio_list;shrink_inactive_list;shrink_lruvec;shrink_node;do_try_to_free_pages;"
             "try_to_free_pages;__alloc_pages_slowpath",
                    "direct_reclaim"},
            {"shrink_lruvec;shrink_node;try_to_free_mem_cgroup_pages;try_charge_memcg;charge_memcg;"
             "handle_mm_fault",
                    "memcg_reclaim"},
            {"clear_page_erms;handle_mm_fault;faultin_page;populate_vma_page_range;__mm_populate;vm_"
             "mmap_pgoff" STORY_SYSCALL,
                    "page_populate"},
            {"unmap_page_range;unmap_vmas;exit_mmap", "(none)"}, // its own end is no stall
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct story story;
        const struct stall *top = on_cpu(&story, rows[i].kernel);
        CHECK_STR(top->cause, rows[i].cause);
        story_close(&story);
    }
}

TEST(tlb_and_madvise_storms)
{
    struct story story;
    story_open(&story);
    int64_t busy = story_thread(&story, story.process, 1002, "mapper");
    story_samples(&story,
            (struct story_samples){.thread = busy,
                    .from = 0,
                    .to = 9000,
                    .every = 10,
                    .kernel =
                            "smp_call_function_many_cond;on_each_cpu_cond_mask;flush_tlb_mm_range;change_"
                            "protection;mprotect_fixup;do_mprotect_pkey" STORY_SYSCALL});
    const struct stall *top = story_top(&story);
    CHECK_STR(top->cause, "tlb_shootdown");
    CHECK_INT(top->culprit.tid, 1002);
    story_close(&story);

    story_open(&story);
    story_samples(&story,
            (struct story_samples){.from = 0,
                    .to = 9000,
                    .every = 15,
                    .kernel = "zap_pte_range;zap_page_range_single;madvise_dontneed_free;"
                              "do_madvise;__x64_sys_madvise" STORY_SYSCALL});
    CHECK_STR(story_top(&story)->cause, "madvise_storm");
    story_close(&story);
}

// Sleeps of 50 ms, ten of them, with this kernel stack.
static const struct stall *sleeps(struct story *story, const char *kernel, unsigned flags)
{
    story_open(story);
    for (int i = 0; i < 10; i++)
        story_gap(story,
                (struct story_gap){.out = 200 + 777 * i,
                        .waking = 250 + 777 * i,
                        .in = 250 + 777 * i,
                        .state = 2,
                        .flags = flags,
                        .kernel = kernel});
    return story_top(story);
}

TEST(sleeps_for_memory)
{
    static const struct {
        const char *kernel;
        unsigned flags;
        const char *cause;
    } rows[] = {
            {"io_schedule_timeout;reclaim_throttle;shrink_lruvec;shrink_node;try_to_free_mem_cgroup_"
             "pages;try_charge_memcg;charge_memcg",
                    0, "memcg_reclaim"},
            {"schedule_timeout_killable;__mem_cgroup_handle_over_high;irqentry_exit_to_user_mode",
                    0, "memory_high"},
            {"irqentry_exit_to_user_mode;asm_exc_page_fault", UG_GAP_MEMCG_HIGH, "memory_high"},
            // Over memory.high it may be, but that is not what it waits for.
            {"io_schedule;folio_wait_bit_common;filemap_get_pages;filemap_read",
                    UG_GAP_MEMCG_HIGH | UG_GAP_IOWAIT, "disk_read"},
            {"schedule;anon_pipe_write;vfs_write" STORY_SYSCALL, UG_GAP_MEMCG_HIGH, "pipe_write"},
            {"reclaim_throttle;shrink_node;do_try_to_free_pages;try_to_free_pages;__alloc_pages_"
             "slowpath;handle_mm_fault",
                    UG_GAP_MEMSTALL, "direct_reclaim"},
            {"io_schedule;folio_wait_bit_common;do_swap_page;__handle_mm_fault;handle_mm_fault;exc_"
             "page_fault",
                    UG_GAP_IOWAIT, "swap_in"},
            {"io_schedule;folio_wait_bit_common;filemap_fault;__do_fault;do_read_fault;handle_mm_fault;"
             "exc_page_fault",
                    UG_GAP_IOWAIT, "major_fault"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct story story;
        const struct stall *top = sleeps(&story, rows[i].kernel, rows[i].flags);
        CHECK_STR(top->cause, rows[i].cause);
        CHECK_DBL((double)top->total_ns, 500e6, 1e6);
        CHECK_INT(top->count, 10);
        CHECK(top->has_period);
        story_close(&story);
    }
}
