// SPDX-License-Identifier: Apache-2.0
// Causes around the CPU and cgroups, and tasks that are held or killed from outside.
#include <signal.h>
#include <stdio.h>

#include "tests/unit/stall_story.h"

TEST(cpu_quota_by_flag)
{
    struct story story;
    story_open(&story);
    for (int i = 0; i < 90; i++)
        story_gap(&story,
                (struct story_gap){.out = 30 + 100 * i,
                        .in = 100 + 100 * i,
                        .flags = UG_GAP_THROTTLED | UG_GAP_PREEMPTED | UG_GAP_IDLE_CPU,
                        .kernel =
                                "schedule;__cond_resched;task_work_run;irqentry_exit_to_user_mode",
                        .next = story.idle_task});
    const struct stall *top = story_top(&story);
    CHECK_STR(top->cause, "cpu_quota");
    CHECK(!top->culprit.known);
    CHECK_DBL((double)top->period_ns, 100e6, 1e6);
    CHECK_INT(top->preempted_ns, top->total_ns);
    story_close(&story);
}

TEST(a_sleep_that_begins_as_the_quota_ends_is_no_wait_for_it)
{
    // Before Linux 6.18 the flag is the run queue's, which may be throttled by the very thread that
    // goes to sleep.
    struct story story;
    story_open(&story);
    for (int i = 0; i < 9; i++) {
        story_counter(&story, "cpu.stat", "nr_throttled", 1000 * i, i);
        story_gap(&story,
                (struct story_gap){.out = 100 + 1000 * i,
                        .waking = 500 + 1000 * i,
                        .in = 500.1 + 1000 * i,
                        .state = 2,
                        .flags = UG_GAP_THROTTLED | UG_GAP_IOWAIT,
                        .kernel =
                                "io_schedule;folio_wait_bit_common;filemap_get_pages;filemap_read"});
    }
    CHECK_STR(story_top(&story)->cause, "disk_read");
    CHECK(!story_find(&story, "cpu_quota"));
    story_close(&story);
}

// 50 waits of 70 ms in 5 s, each on a CPU that went idle.
static void waits_beside_an_idle_cpu(struct story *story)
{
    for (int i = 0; i < 50; i++)
        story_gap(story,
                (struct story_gap){.out = 30 + 100 * i,
                        .in = 100 + 100 * i,
                        .flags = UG_GAP_PREEMPTED | UG_GAP_IDLE_CPU,
                        .next = story->idle_task});
}

TEST(cpu_quota_by_counter)
{
    // An older kernel: the CPU went idle while the thread was runnable, and cpu.stat counted it.
    struct story story;
    story_open(&story);
    waits_beside_an_idle_cpu(&story);
    for (int i = 0; i < 10; i++)
        story_counter(&story, "cpu.stat", "nr_throttled", 1000 * i, 10 * i);
    const struct stall *top = story_top(&story);
    CHECK_STR(top->cause, "cpu_quota");
    CHECK(top->confidence < 0.9);
    story_close(&story);
}

TEST(cpu_quota_of_a_cgroup_above)
{
    struct story story;
    story_open(&story);
    waits_beside_an_idle_cpu(&story);
    for (int i = 0; i < 10; i++) {
        story_counter(&story, "cpu.stat", "nr_throttled", 1000 * i, 0);
        story_counter(&story, "cpu.stat", "nr_throttled.above", 1000 * i, 10 * i);
        story_counter(&story, "cpu.stat", "nr_throttled.elsewhere", 1000 * i, 10 * i); // of nobody
    }
    CHECK_STR(story_top(&story)->cause, "cpu_quota");
    story_close(&story);

    story_open(&story);
    waits_beside_an_idle_cpu(&story);
    for (int i = 0; i < 10; i++)
        story_counter(&story, "cpu.stat", "nr_throttled.elsewhere", 1000 * i, 10 * i);
    story_top(&story);
    CHECK(!story_find(&story, "cpu_quota"));
    story_close(&story);
}

TEST(cpu_contention_names_the_largest_neighbour)
{
    struct story story;
    story_open(&story);
    int64_t big = story_other(&story, 3000, "hog", "hog -n 1"),
            small = story_other(&story, 3001, "cron", "cron");
    for (int i = 0; i < 60; i++) {
        double at = 100 + 150 * i;
        story_gap(&story,
                (struct story_gap){.out = at,
                        .in = at + 35,
                        .flags = UG_GAP_PREEMPTED,
                        .next = i % 5 ? big : small,
                        .before = big,
                        .cpu = 1});
        story_samples(&story,
                (struct story_samples){.thread = big,
                        .from = at + 3,
                        .to = at + 33,
                        .why = UG_SAMPLE_NEIGHBOUR | UG_SAMPLE_USER,
                        .cpu = 1});
    }
    const struct stall *top = story_top(&story);
    CHECK_STR(top->cause, "cpu_contention");
    CHECK_INT(top->culprit.pid, 3000);
    CHECK_INT(top->resource.kind, STALL_RESOURCE_CPU);
    CHECK_INT(top->resource.cpu, 1);
    CHECK_DBL((double)top->total_ns, 60 * 35e6, 1e6);
    CHECK_INT(story.stalls->count, 1);
    story_close(&story);
}

TEST(cpu_contention_of_many_is_one_cause)
{
    struct story story;
    story_open(&story);
    int64_t hogs[8];
    for (int i = 0; i < 8; i++)
        hogs[i] = story_other(&story, 3000 + i, "hog", "hog");
    for (int i = 0; i < 200; i++)
        story_gap(&story,
                (struct story_gap){.out = 40 * i,
                        .in = 40 * i + 32,
                        .flags = UG_GAP_PREEMPTED,
                        .next = hogs[i % 8],
                        .before = hogs[(i + 3) % 8]});
    const struct stall *top = story_top(&story);
    CHECK_STR(top->cause, "cpu_contention");
    CHECK_STR(top->culprit.comm, "hog");
    CHECK_INT(story.stalls->count, 1);
    CHECK(top->doubts & STALL_DOUBT_SHARED);
    story_close(&story);
}

TEST(oversubscription_is_named_as_the_program_itself)
{
    struct story story;
    story_open(&story);
    int64_t pool[6];
    for (int i = 0; i < 6; i++)
        pool[i] = story_thread(&story, story.process, 1010 + i, "omp");
    for (int i = 0; i < 200; i++)
        story_gap(&story,
                (struct story_gap){.out = 40 * i,
                        .in = 40 * i + 20,
                        .flags = UG_GAP_PREEMPTED,
                        .next = pool[i % 6],
                        .before = pool[(i + 1) % 6]});
    const struct stall *top = story_top(&story);
    CHECK_STR(top->cause, "cpu_contention");
    CHECK_INT(top->culprit.pid, 1000);
    CHECK(top->culprit_own);
    story_close(&story);
}

TEST(rt_hog)
{
    struct story story;
    story_open(&story);
    int64_t hog = story_other(&story, 3100, "rt_hog", "chrt -f 50 rt_hog");
    for (int i = 0; i < 4; i++) {
        double at = 1000 + 2000 * i;
        story_gap(&story,
                (struct story_gap){.out = at,
                        .waking = at + 5,
                        .in = at + 400,
                        .state = 1,
                        .kernel = STORY_FUTEX_WAIT,
                        .before = hog,
                        .before_prio = 49});
    }
    const struct stall *top = story_top(&story);
    CHECK_STR(top->cause, "rt_hog");
    CHECK_INT(top->culprit.pid, 3100);
    CHECK_DBL((double)top->run_queue_ns, 4 * 395e6, 1e6);
    CHECK_STR(top->culprit.cmdline, "chrt -f 50 rt_hog");
    CHECK(!top->culprit_own);
    story_close(&story);

    story_open(&story); // samples have no priority: it is known from the moments at which it took
                        // the CPU
    hog = story_other(&story, 3100, "rt_hog", "rt_hog");
    int64_t other = story_other(&story, 3101, "other", "other");
    for (int i = 0; i < 40; i++) {
        double at = 200 * i;
        story_gap(&story,
                (struct story_gap){.out = at,
                        .in = at + 60,
                        .flags = UG_GAP_PREEMPTED,
                        .next = i ? other : hog,
                        .next_prio = i ? 120 : 49,
                        .before = other});
        story_samples(&story,
                (struct story_samples){.thread = hog,
                        .from = at + 5,
                        .to = at + 45,
                        .why = UG_SAMPLE_NEIGHBOUR | UG_SAMPLE_USER});
    }
    CHECK_STR(story_top(&story)->cause, "rt_hog");
    CHECK_INT(story_top(&story)->culprit.pid, 3100);
    story_close(&story);
}

TEST(softirq_storm)
{
    struct story story;
    story_open(&story);
    story_samples(&story,
            (struct story_samples){.from = 0,
                    .to = 9000,
                    .every = 20,
                    .why = UG_SAMPLE_TARGET | UG_SAMPLE_IRQ,
                    .kernel = "udp_queue_rcv_one_skb;__netif_receive_skb_one_core;net_rx_action;"
                              "handle_softirqs;irq_exit_rcu;asm_common_interrupt"});
    CHECK_STR(story_top(&story)->cause, "softirq_storm");
    CHECK(!story_top(&story)->culprit.known); // the one who was interrupted did nothing
    story_close(&story);

    story_open(&story);
    for (int i = 0; i < 100; i++)
        story_fact(&story, UG_FACT_SOFTIRQ, 50 * i, 50 * i + 8, story.main, story.main, 3);
    CHECK_STR(story_top(&story)->cause, "softirq_storm");
    story_close(&story);
}

TEST(a_wait_after_a_sleep_is_no_quota)
{
    struct story story;
    story_open(&story);
    int64_t hog = story_other(&story, 2500, "burn", "burn");
    for (int i = 0; i < 10; i++) {
        story_counter(&story, "cpu.stat", "nr_throttled", 1000 * i, i);
        story_gap(&story,
                (struct story_gap){.out = 100 + 900 * i,
                        .waking = 150 + 900 * i,
                        .in = 250 + 900 * i,
                        .state = 1,
                        .flags = UG_GAP_IDLE_CPU,
                        .before = hog,
                        .kernel = "do_nanosleep;hrtimer_nanosleep"});
    }
    CHECK_STR(story_top(&story)->cause, "cpu_contention");
    CHECK(!story_find(&story, "cpu_quota"));
    story_close(&story);
}

TEST(a_wait_for_the_quota_after_a_sleep_accuses_nobody)
{
    struct story story;
    story_open(&story);
    // ran there last, of a group that has a quota left
    int64_t other = story_other(&story, 2500, "burn", "burn");
    for (int i = 0; i < 10; i++) {
        story_counter(&story, "cpu.stat", "nr_throttled", 1000 * i, i);
        story_gap(&story,
                (struct story_gap){.out = 100 + 900 * i,
                        .waking = 150 + 900 * i,
                        .in = 250 + 900 * i,
                        .state = 1,
                        .flags = UG_GAP_THROTTLED,
                        .before = other,
                        .kernel = "do_nanosleep;hrtimer_nanosleep"});
    }
    const struct stall *top = story_top(&story);
    CHECK_STR(top->cause, "cpu_quota");
    CHECK_DBL((double)top->total_ns, 10 * 100e6, 1e6); // not the sleep
    CHECK(!top->culprit.known);
    CHECK(!story_find(&story, "cpu_contention"));
    story_close(&story);
}

TEST(steal_of_another_cpu)
{
    struct story story;
    story_open(&story); // it runs on the first one
    story_samples(&story, (struct story_samples){.from = 0, .to = 8000});
    for (int i = 0; i <= 10; i++)
        story_counter(&story, "stat", "cpu1.steal_ns", 1000 * i - 1, (int64_t)i * 300000000);
    CHECK_STR(story_top(&story)->cause, "(none)");
    story_close(&story);
}

TEST(steal)
{
    struct story story;
    story_open(&story);
    for (int i = 0; i <= 10; i++)
        story_counter(&story, "stat", "cpu0.steal_ns", 1000 * i - 1,
                i < 4 ? 0 : (int64_t)(i - 3) * 300000000);
    const struct stall *top = story_top(&story);
    CHECK_STR(top->cause, "steal");
    CHECK_DBL((double)top->total_ns, 0.8 * 7 * 300e6, 30e6); // it ran for 80 % of the time
    story_close(&story);
}

// Both threads are off the CPU from 3,000 to 3,800 ms in this state.
static void held(struct story *story, unsigned state, const char *kernel, int64_t waker,
        const char *waker_stack)
{
    int64_t threads[] = {story->main, story->worker};
    for (int i = 0; i < 2; i++)
        story_gap(story,
                (struct story_gap){.thread = threads[i],
                        .out = 3000 + i,
                        .waking = 3800,
                        .in = 3800.2,
                        .state = state,
                        .kernel = kernel,
                        .waker = waker,
                        .waker_stack = waker_stack});
}

TEST(sigstop_names_who_stopped)
{
    struct story story;
    story_open(&story);
    int64_t stopper = story_other(&story, 4000, "bash", "bash"),
            other = story_other(&story, 4001, "sh", "sh -c cont");
    story_fact(&story, UG_FACT_SIGNAL, 2000, 2000, story.main, other, SIGCHLD);
    story_fact(&story, UG_FACT_SIGNAL, 2999, 2999, story.main, stopper, SIGSTOP);
    held(&story, 0x104, "schedule;do_signal_stop;get_signal;arch_do_signal_or_restart", other,
            "prepare_signal;send_signal_locked;do_send_sig_info;kill_pid_info;__x64_sys_"
            "kill" STORY_SYSCALL);
    const struct stall *top = story_top(&story);
    CHECK_STR(top->cause, "sigstop");
    CHECK_INT(top->culprit.pid, 4000);
    CHECK_INT(top->victim_threads, 2);
    CHECK_DBL((double)top->total_ns, 800e6, 1e6);
    CHECK_INT(top->count, 1);
    CHECK(!top->has_period);
    CHECK_INT(top->chain[0].via, VIA_SIGNAL);
    story_close(&story);
}

TEST(sigstop_without_the_signal)
{
    struct story story;
    story_open(&story);
    int64_t sender = story_other(&story, 4001, "bash", "bash");
    held(&story, 0x104, NULL, sender,
            "prepare_signal;do_send_sig_info;kill_pid_info;__x64_sys_kill" STORY_SYSCALL);
    const struct stall *top = story_top(&story);
    CHECK_STR(top->cause, "sigstop");
    CHECK_INT(top->culprit.pid, 4001); // who let it go on
    CHECK_STR(top->culprit_function, "__x64_sys_kill");
    story_close(&story);
}

TEST(who_lets_it_go_on_has_not_stopped_it)
{
    // Attached to a process that stood: somebody who looks after it sends SIGCONT, or thaws its
    // cgroup.
    static const struct {
        unsigned state;
        const char *kernel, *waker_stack, *cause;
    } rows[] = {
            {0x104, "do_signal_stop;get_signal",
                    "prepare_signal;do_send_sig_info;kill_pid_info;__x64_sys_kill" STORY_SYSCALL,
                    "sigstop"},
            {0x8000, "__refrigerator;get_signal",
                    "__thaw_task;unfreeze_cgroup;freezer_write" STORY_SYSCALL, "cgroup_freezer"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct story story;
        story_open(&story);
        int64_t helper = story_other(&story, 4001, "bash", "bash");
        story_gap(&story,
                (struct story_gap){.out = 0,
                        .waking = 4000,
                        .in = 4000,
                        .state = rows[i].state,
                        .flags = UG_GAP_NO_OUT,
                        .kernel = rows[i].kernel,
                        .waker = helper,
                        .waker_stack = rows[i].waker_stack});
        const struct stall *top = story_top(&story);
        CHECK_STR(top->cause, rows[i].cause);
        CHECK(!top->culprit.known);
        story_close(&story);
    }
}

static void made_on(struct story *story, const char *architecture)
{
    char sql[400];
    snprintf(sql, sizeof sql,
            "INSERT INTO run (id, uuid, kind, state, upgate_version, started_wall_ns, seed, plan, command_line, host, "
            "host_key) VALUES (1, 'u', 'record', 'done', '0', 0, 0, '{}', '[]', '{\"architecture\": \"%s\"}', '')",
            architecture);
    story_sql(story, sql);
}

TEST(a_recording_of_arm64_is_read_with_its_own_names_and_numbers)
{
    static const char *const machines[] = {"x86_64", "aarch64"};
    for (int arm64 = 0; arm64 < 2; arm64++) {
        struct story story;
        story_open(&story);
        made_on(&story, machines[arm64]);
        int64_t sender = story_other(&story, 4001, "bash", "bash");
        held(&story, 0x104, NULL, sender,
                "prepare_signal;do_send_sig_info;kill_pid_info;__arm64_sys_kill;invoke_syscall;do_el0_svc;el0_svc");
        // No stack, only the number: fsync of arm64, rename of x86-64.
        for (int i = 0; i < 5; i++)
            story_gap(&story,
                    (struct story_gap){.out = 5000 + 500 * i,
                            .waking = 5100 + 500 * i,
                            .in = 5100 + 500 * i,
                            .state = 2,
                            .syscall = 82});
        const struct stall *top = story_top(&story);
        CHECK_STR(top->cause, "sigstop");
        CHECK_STR(top->culprit_function, "__arm64_sys_kill");
        int fsyncs = 0;
        for (size_t i = 0; i < story.stalls->count; i++)
            fsyncs += !strncmp(story.stalls->stalls[i].cause, "fsync", 5);
        CHECK_INT(fsyncs, arm64);
        story_close(&story);
    }
}

TEST(cgroup_freezer)
{
    struct story story;
    story_open(&story);
    int64_t docker = story_other(&story, 4100, "dockerd", "dockerd");
    held(&story, 0x8000, "__refrigerator;get_signal;arch_do_signal_or_restart", docker,
            "wake_up_process;__thaw_task;unfreeze_cgroup;freezer_write;cgroup_file_"
            "write" STORY_SYSCALL);
    const struct stall *top = story_top(&story);
    CHECK_STR(top->cause, "cgroup_freezer");
    CHECK_INT(top->culprit.pid, 4100);
    CHECK_STR(top->culprit_function, "freezer_write");
    story_close(&story);

    story_open(&story); // version 2, its trap inlined
    docker = story_other(&story, 4100, "dockerd", "dockerd");
    held(&story, 0x2001,
            "__schedule;schedule;get_signal;arch_do_signal_or_restart;exit_to_user_mode_loop",
            docker,
            "try_to_wake_up;cgroup_freeze_task;cgroup_do_freeze;cgroup_freeze;cgroup_freeze_write;"
            "kernfs_fop_write_iter;vfs_write" STORY_SYSCALL);
    CHECK_STR(story_top(&story)->cause, "cgroup_freezer");
    CHECK_INT(story_top(&story)->culprit.pid, 4100);
    CHECK_STR(story_top(&story)->culprit_function, "cgroup_freeze_write");
    story_close(&story);

    static const char *const ends[] = {"coredump_wait;vfs_coredump;get_signal;arch_do_signal",
            "do_exit;do_group_exit;get_signal;arch_do_signal"};
    for (int i = 0; i < 2; i++) { // it dies of a signal
        story_open(&story);
        held(&story, 0x2, ends[i], 0, NULL);
        story_analyse(&story);
        CHECK(!story_find(&story, "cgroup_freezer"));
        story_close(&story);
    }
}

TEST(ptrace)
{
    struct story story;
    story_open(&story);
    int64_t spy = story_other(&story, 4200, "py-spy", "py-spy record --pid 1000");
    for (int i = 0; i < 100; i++)
        story_gap(&story,
                (struct story_gap){.out = 90 * i,
                        .waking = 90 * i + 12,
                        .in = 90 * i + 12,
                        .state = 8,
                        .kernel = "schedule;ptrace_stop;do_jobctl_trap;get_signal",
                        .waker = spy,
                        .waker_stack =
                                "wake_up_state;__ptrace_detach;ptrace_detach;__x64_sys_ptrace" STORY_SYSCALL});
    const struct stall *top = story_top(&story);
    CHECK_STR(top->cause, "ptrace");
    CHECK_INT(top->culprit.pid, 4200);
    CHECK_INT(top->count, 100);
    CHECK_DBL((double)top->period_ns, 90e6, 1e6);
    CHECK_CONTAINS(top->culprit.cmdline, "py-spy record");
    story_close(&story);
}

TEST(rstat_lock_and_kernel_mutex)
{
    struct story story;
    story_open(&story);
    int64_t reader = story_other(&story, 4300, "kubelet", "kubelet");
    for (int i = 0; i < 10; i++)
        story_gap(&story,
                (struct story_gap){.out = 900 * i,
                        .waking = 900 * i + 30,
                        .in = 900 * i + 30,
                        .state = 2,
                        .lock_kind = UG_LOCK_MUTEX,
                        .owner = reader,
                        .kernel = "schedule_preempt_disabled;__mutex_lock;cgroup_rstat_flush;"
                                  "mem_cgroup_flush_stats;memory_stat_show"});
    CHECK_STR(story_top(&story)->cause, "rstat_lock");
    CHECK_INT(story_top(&story)->culprit.pid, 4300);
    story_close(&story);
    story_open(&story);
    reader = story_other(&story, 4301, "tool", "tool");
    for (int i = 0; i < 10; i++)
        story_gap(&story,
                (struct story_gap){.out = 900 * i,
                        .waking = 900 * i + 30,
                        .in = 900 * i + 30,
                        .state = 2,
                        .lock_kind = UG_LOCK_MUTEX,
                        .owner = reader,
                        .lock = 0xabc0,
                        .kernel =
                                "schedule_preempt_disabled;__mutex_lock;some_driver_ioctl" STORY_SYSCALL,
                        .waker = reader,
                        .waker_stack =
                                "wake_up_q;__mutex_unlock_slowpath;some_driver_ioctl" STORY_SYSCALL});
    CHECK_STR(story_top(&story)->cause, "kernel_mutex");
    CHECK_INT(story_top(&story)->culprit.pid, 4301);
    CHECK_STR(story_top(&story)->culprit_function, "__mutex_unlock_slowpath");
    CHECK_INT(story_top(&story)->resource.kind, STALL_RESOURCE_KERNEL_LOCK);
    CHECK_INT(story_top(&story)->resource.address, 0xabc0);
    story_close(&story);
}

TEST(spinning_for_a_lock_has_no_gap)
{
    struct story story;
    story_open(&story);
    int64_t monitor = story_other(&story, 2000, "python3", "python3 monitor.py");
    for (int i = 0; i < 20; i++) {
        double at = 450 * i;
        story_lock(&story,
                (struct story_lock){.begin = at,
                        .end = at + 40,
                        .kind = UG_LOCK_MMAP,
                        .owner = monitor,
                        .kernel =
                                "rwsem_spin_on_owner;rwsem_down_write_slowpath;vm_mmap_pgoff" STORY_SYSCALL});
        story_samples(&story,
                (struct story_samples){.thread = monitor,
                        .from = at + 1,
                        .to = at + 40,
                        .why = UG_SAMPLE_OWNER,
                        .kernel = STORY_SMAPS,
                        .cpu = 1});
        story_samples(&story,
                (struct story_samples){.from = at + 1,
                        .to = at + 40,
                        .kernel =
                                "rwsem_spin_on_owner;rwsem_down_write_slowpath;vm_mmap_pgoff" STORY_SYSCALL});
    }
    const struct stall *top = story_top(&story);
    CHECK_STR(top->cause, "smaps_read");
    CHECK_INT(top->culprit.pid, 2000);
    CHECK(top->on_cpu_ns > top->total_ns * 9 / 10);
    story_close(&story);
}

TEST(zombie_memcg)
{
    struct story story;
    story_open(&story);
    for (int i = 0; i < 10; i++) {
        story_counter(&story, "cgroups", "num_cgroups", i * 1000, 3045);
        story_counter(&story, "cgroups", "directories", i * 1000, 45);
    }
    const struct stall *top = story_top(&story);
    CHECK_STR(top->cause, "zombie_memcg");
    CHECK_INT(top->resource.kind, STALL_RESOURCE_CGROUPS);
    CHECK_INT(top->resource.cgroups, 3045);
    CHECK_INT(top->resource.directories, 45);
    CHECK(!top->culprit.known);
    story_close(&story);

    story_open(&story); // many, but all of them live
    story_counter(&story, "cgroups", "num_cgroups", 500, 3045);
    story_counter(&story, "cgroups", "directories", 500, 3000);
    CHECK_STR(story_top(&story)->cause, "(none)");
    story_close(&story);
}

TEST(oom_kill)
{
    struct story story;
    story_open(&story);
    int64_t child =
            story_process(&story, "target", 1100, 1000, "pt_data_worker", "python3 train.py");
    int64_t hog = story_other(&story, 2300, "hog", "hog");
    story_fact(&story, UG_FACT_OOM_VICTIM, 4000, 4000, story_leader(&story, child), hog, 0);
    story_sql(
            &story, "UPDATE process SET ended_ns = 5004010000000, exit_code = 9 WHERE tgid = 1100");
    const struct stall *top = story_top(&story);
    CHECK_STR(top->cause, "oom_kill");
    CHECK_DBL((double)top->total_ns, 6e9, 1e6); // to the end: nobody took its place
    CHECK_INT(top->culprit.pid, 1100);
    CHECK_INT(top->victim.tid, 1000);
    CHECK_INT(top->count, 1);
    story_samples(&story, (struct story_samples){.from = 4000, .to = 9900});
    CHECK_STR(story_top(&story)->cause, "oom_kill"); // the main thread ran on
    CHECK_INT(story_top(&story)->total_ns, 1);
    story_close(&story);
}
