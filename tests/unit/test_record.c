// SPDX-License-Identifier: Apache-2.0
// The recorder: records made by hand go in, rows of a real store come out
// (tests/unit/record_world.h).
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/strings.h"
#include "tests/unit/record_world.h"
#include "tests/unit/runner.h"

static const __u64 stack[] = {0xffffffff81000000u, 0xffffffff81000100u, 0x7f0000001000u,
        0x7f0000002000u, 0xffffffff81000200u};

TEST(a_gap_is_a_row)
{
    world_begin();
    struct ug_gap gap = world_gap((__u32)world.target, 1000000000);
    gap.kernel_count = 2;
    gap.user_count = 2;
    gap.waker_count = 1;
    gap.flags = UG_GAP_WAKER_IRQ | UG_GAP_IDLE_CPU;
    gap.owner = (struct ug_task){.tid = 1, .tgid = 1, .comm = "init"};
    gap.before = (struct ug_task){.tid = 2, .tgid = 2, .comm = "kthreadd"};
    gap.syscall_nr = SYS_read;
    gap.syscall_args[0] = 0;
    gap.lock_kind = UG_LOCK_MMAP;
    gap.lock = 0xffff888000000000u;
    world_push(&gap, sizeof gap, stack, 5);
    gap.out_ns += 10000000;
    gap.in_ns += 10000000;
    gap.waking_ns = 0;
    world_push(&gap, sizeof gap, stack, 5);
    world_end();
    CHECK_INT(world_number("SELECT count(*) FROM v_off_cpu WHERE comm = 'worker'"), 2);
    CHECK_INT(world_number("SELECT blocked_ns FROM v_off_cpu WHERE gap = 1"), 2000000);
    CHECK_INT(world_number("SELECT run_queue_ns FROM v_off_cpu WHERE gap = 1"), 1000000);
    CHECK_INT(world_number("SELECT run_queue_ns FROM v_off_cpu WHERE gap = 2"), 3000000);
    CHECK_INT(world_number("SELECT count(*) FROM v_off_cpu WHERE waking_ns IS NULL"), 1);
    CHECK_INT(
            world_number(
                    "SELECT count(*) FROM v_off_cpu WHERE owner_pid = 1 AND waker_pid = 0 AND next_pid = 0"),
            2);
    CHECK_INT(world_number("SELECT count(*) FROM stack"), 3); // the same contents once
    CHECK_INT(world_number("SELECT count(*) FROM v_stack WHERE kind = 'user'"), 2);
    CHECK_INT(world_number("SELECT lock_kind FROM gap WHERE id = 1"), UG_LOCK_MMAP);
    char *second = string_read_file("/proc/2/comm", 64, NULL); // in a container it is somebody else
    if (second && strcmp(second, "kthreadd\n") == 0)
        world_check_text("SELECT kind FROM process WHERE tgid = 2", "kernel");
    free(second);
    world_check_text("SELECT kind FROM process WHERE tgid = 0", "idle");
    world_check_text("SELECT kind || cmdline FROM process WHERE kind = 'target'", "test_record");
    world_check_text("SELECT missing FROM recording", "\\\"quoted\\\"");
    world_check_text("SELECT 'is ' || syscall_target FROM gap", "is ");
}

TEST(a_store_that_goes_with_its_recorder)
{
    world_begin_as(true);
    CHECK_INT(world_number("SELECT count(*) FROM sqlite_master WHERE name = 'gap_thread'"), 0);
    CHECK_INT(world_number("PRAGMA synchronous"), 0);
    struct ug_gap gap = world_gap((__u32)world.target, 1000000000);
    world_push(&gap, sizeof gap, NULL, 0);
    world_end();
    CHECK_INT(world_number("SELECT count(*) FROM v_off_cpu WHERE comm = 'worker'"), 1);
}

// Who reads for the recorder is stopped: so it waits where the mmap lock of the target is held.
TEST(a_memory_map_that_is_locked_holds_no_record_up)
{
    struct error err = {0};
    bool alive = false;
    world_begin();
    pid_t reader = world_reader();
    CHECK(reader > 0 && kill(reader, SIGSTOP) == 0);
    struct ug_gap gap = world_gap((__u32)world.target, 1000000000);
    gap.user_count = 2;
    world_push(&gap, sizeof gap, stack + 2, 2);
    int64_t begin_ns = clock_monotonic_ns();
    CHECK_INT(recorder_poll(world.recorder, 0, &alive, &err), 0);
    // 0.1 s, and what a busy machine adds
    CHECK(clock_monotonic_ns() - begin_ns < INT64_C(60000000000));
    world_end();
    CHECK_INT(world_number("SELECT count(*) FROM gap"), 1);
    CHECK_INT(world_number("SELECT count(*) FROM v_stack WHERE kind = 'user' AND name = '[anon]'"),
            2);
    world_check_text("SELECT missing FROM recording",
            "/maps' could not be read in time, as somebody held the lock of that process's memory map");
    world_check_text(
            "SELECT detail FROM ledger WHERE producer = 'symbols' AND detail LIKE '%without a name%'",
            "did not come in time");
}

// Nobody waits for the lock, so that no look tells of it. Without a word of the process that reads,
// its memory is left alone.
TEST(a_python_whose_memory_map_is_locked_is_not_walked)
{
    static const char sleeps[] = "import time\nprint(flush=True)\ntime.sleep(1000)";
    struct error err = {0};
    struct recorder_totals totals = {0};
    bool alive = false;
    int ends[2];
    char byte;
    CHECK_INT(pipe(ends), 0);
    world.target = fork();
    if (world.target == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(ends[1], STDOUT_FILENO);
        close(ends[0]);
        close(ends[1]);
        execlp("python3", "python3", "-c", sleeps, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    if (read(ends[0], &byte, 1) != 1) {
        world_end_target();
        runner_skip("no python3 here");
    }
    struct recorder_opts opts = {.pids = &world.target, .pid_count = 1};
    CHECK(runner_directory(world.dir) != NULL);
    snprintf(world.path, sizeof world.path, "%s/run.db", world.dir);
    CHECK_INT(store_open(world.path, STORE_CREATE, &world.store, &err), 0);
    CHECK_INT(recorder_start(world.store, &opts, &world.recorder, &err), 0);
    for (int i = 0; i < 500 && !totals.pythons; i++) { // ten seconds at most: it has begun
        CHECK_INT(recorder_poll(world.recorder, 20, &alive, &err), 0);
        recorder_totals(world.recorder, &totals);
    }
    if (!totals.pythons) {
        world_end_target();
        runner_skip("python3 is none whose frames can be walked, or may not be read");
    }
    usleep(10000); // what was asked a moment ago is not asked again
    pid_t reader = world_reader();
    CHECK(reader > 0 && kill(reader, SIGSTOP) == 0);
    struct ug_sample sample = {.head = {.kind = UG_EVENT_SAMPLE},
            .at_ns = (__u64)clock_monotonic_ns(),
            .task = {.tid = (__u32)world.target, .tgid = (__u32)world.target, .comm = "python3"},
            .why = UG_SAMPLE_TARGET};
    world_push(&sample, sizeof sample, NULL, 0);
    world_end();
    close(ends[0]);
    CHECK_INT(world_number("SELECT count(*) FROM sample WHERE python_stack IS NULL"), 1);
    CHECK_INT(world_number("SELECT seen FROM ledger WHERE producer = 'pystack'"), 1);
    CHECK_INT(world_number("SELECT kept FROM ledger WHERE producer = 'pystack'"), 0);
}

// What somebody else can read is what stays if the recorder is killed now.
TEST(a_stack_that_waits_for_its_names_has_a_row)
{
    struct error err = {0};
    struct store *reader;
    bool alive = false;
    int64_t gaps = 0, rowless = -1, unresolved = 0;
    world_begin();
    for (__u64 i = 0; i < 2000; i++) { // so many that names have to wait for the next round
        struct ug_gap gap = world_gap((__u32)world.target, 1000000000 + i * 10000000);
        __u64 addresses[] = {0x7f0000001000u, 0x7f0000002000u + i % 3};
        gap.user_count = 2;
        world_push(&gap, sizeof gap, addresses, 2);
    }
    CHECK_INT(recorder_poll(world.recorder, 0, &alive, &err), 0); // the first round commits
    CHECK_INT(store_open(world.path, STORE_READ, &reader, &err), 0);
    store_get_int(reader, &gaps, NULL, "SELECT count(*) FROM gap WHERE user_stack > 0", "");
    store_get_int(reader, &rowless, NULL,
            "SELECT count(*) FROM gap WHERE user_stack NOT IN (SELECT id FROM stack)", "");
    store_get_int(reader, &unresolved, NULL,
            "SELECT count(*) FROM v_stack WHERE name = '[not resolved]'", "");
    store_close(reader);
    CHECK_INT(gaps, 2000);
    CHECK_INT(rowless, 0);
    CHECK_INT(unresolved, 3);
    world_end();
    CHECK_INT(world_number("SELECT count(*) FROM stack WHERE depth = 2"), 3);
    CHECK_INT(world_number("SELECT count(*) FROM v_stack WHERE name = '[not resolved]'"), 0);
}

// A waker sets its name after it was first seen; records of before come after records of later.
TEST(the_newest_name_is_kept)
{
    world_begin();
    struct ug_gap gap = world_gap((__u32)world.target, 1000000000);
    gap.waker = (struct ug_task){.tid = 1, .tgid = 1, .comm = "as-it-began"};
    world_push(&gap, sizeof gap, NULL, 0);
    gap = world_gap((__u32)world.target, 3000000000);
    gap.waker = (struct ug_task){.tid = 1, .tgid = 1, .comm = "renamed"};
    world_push(&gap, sizeof gap, NULL, 0);
    // who got the CPU two seconds before it came back
    gap = world_gap((__u32)world.target, 2000000000);
    gap.in_ns = 4000000000;
    gap.next = (struct ug_task){.tid = 1, .tgid = 1, .comm = "in-between"};
    world_push(&gap, sizeof gap, NULL, 0);
    world_end();
    CHECK_INT(world_number("SELECT count(*) FROM v_off_cpu WHERE waker_comm = 'renamed'"), 2);
    CHECK_INT(world_number("SELECT count(*) FROM v_off_cpu WHERE next_comm = 'renamed'"), 1);
}

// The next wait may be for another lock of the same holder, and whoever waited before us for this
// one waits for it no more.
TEST(a_look_is_of_one_wait)
{
    world_begin();
    struct ug_gap gap = world_gap((__u32)world.target, 1000000);
    struct ug_state state = {.head = {.kind = UG_EVENT_STATE},
            .at_ns = 1500000,
            .task = gap.task,
            .owner = {.tid = 1, .tgid = 1, .comm = "init"},
            .blocker = 77,
            .lock_kind = UG_LOCK_RWSEM,
            .switch_count = 5,
            .syscall_nr = -1};
    world_push(&state, sizeof state, NULL, 0);
    gap.flags = UG_GAP_NO_OUT;
    world_push(&gap, sizeof gap, NULL, 0); // the look's
    gap = world_gap((__u32)world.target, 5000000);
    gap.owner = state.owner;
    gap.flags = UG_GAP_OWNER_FUTEX;
    gap.syscall_nr = SYS_futex;
    gap.syscall_args[0] = 4096;
    world_push(&gap, sizeof gap, NULL, 0);
    gap = world_gap((__u32)world.target, 9000000);
    gap.flags = UG_GAP_UNFINISHED;
    world_push(&gap, sizeof gap, NULL, 0);
    world_end();
    CHECK_INT(world_number("SELECT count(*) FROM gap WHERE owner_thread IS NOT NULL"), 2);
    CHECK_INT(world_number("SELECT lock_address * 100 + lock_kind FROM gap WHERE out_ns = 1000000"),
            7700 + UG_LOCK_RWSEM);
    CHECK_INT(world_number(
                      "SELECT lock_address FROM gap WHERE out_ns = 5000000 AND lock_kind IS NULL"),
            4096);
    CHECK_INT(world_number(
                      "SELECT count(*) FROM gap WHERE out_ns = 9000000 AND owner_thread IS NULL"),
            1);
}

TEST(samples_locks_and_facts)
{
    world_begin();
    struct ug_sample sample = {.head = {.kind = UG_EVENT_SAMPLE},
            .at_ns = 5,
            .task = {.tid = (__u32)world.target, .tgid = (__u32)world.target, .comm = "t"},
            .why = UG_SAMPLE_TARGET,
            .kernel_count = 1,
            .user_count = 1};
    world_push(&sample, sizeof sample, stack + 1, 2);
    struct ug_lock lock = {.head = {.kind = UG_EVENT_LOCK},
            .begin_ns = 5,
            .end_ns = 9,
            .lock = 77,
            .task = sample.task,
            .owner = {.tid = 1, .tgid = 1, .comm = "init"},
            .lock_flags = 3,
            .owner_flags = 1,
            .kernel_count = 1,
            .owner_count = 1};
    world_push(&lock, sizeof lock, stack, 2);
    struct ug_fault touched = {.head = {.kind = UG_EVENT_FAULT},
            .at_ns = 6,
            .address = 0x7f0000001234,
            .task = sample.task,
            .level = 7,
            .user_count = 1};
    world_push(&touched, sizeof touched, stack + 1, 1);
    struct ug_fact fact = {.head = {.kind = UG_EVENT_FACT},
            .begin_ns = 1,
            .end_ns = 2,
            .what = UG_FACT_SIGNAL,
            .task = sample.task,
            .actor = lock.owner,
            .value = {19, 0, 0, 4}};
    world_push(&fact, sizeof fact, NULL, 0);
    struct recorder_totals totals;
    bool alive;
    CHECK_INT(recorder_poll(world.recorder, 0, &alive, NULL), 0);
    recorder_totals(world.recorder, &totals);
    CHECK_INT(totals.samples + totals.locks * 10 + totals.facts * 100, 111);
    world_end();
    CHECK_INT(
            world_number(
                    "SELECT count(*) FROM v_sample WHERE why = 1 AND kernel_stack AND user_stack"),
            1);
    CHECK_INT(
            world_number(
                    "SELECT count(*) FROM v_page_fault WHERE at_ns = 6 AND address = 139637976732212 AND level = 7 AND user_stack AND NOT resident"),
            1);
    CHECK_INT(world_number("SELECT flags FROM lock_wait WHERE owner_stack IS NOT NULL"),
            3 + ((int64_t)1 << 32));
    CHECK_INT(
            world_number(
                    "SELECT value0 * 10 + value3 FROM host_fact WHERE target_thread != actor_thread"),
            194);
}

// A pid that was given to another process is another row, and what came before belongs to the old
// one.
TEST(a_pid_used_again)
{
    world_begin();
    const uint32_t pid = 4000000; // beyond what /proc has
    struct ug_task_event birth = {.head = {.kind = UG_EVENT_TASK},
            .at_ns = 1000,
            .start_ns = 50000000,
            .task = {.tid = pid, .tgid = pid, .comm = "first"},
            .what = UG_TASK_FORK,
            .ppid = (__u32)world.target,
            .target = 1};
    struct ug_gap gap = world_gap(pid, 2000);
    gap.task = birth.task;
    world_push(&birth, sizeof birth, NULL, 0);
    world_push(&gap, sizeof gap, NULL, 0);
    struct ug_task_event death = birth;
    death.what = UG_TASK_EXIT;
    death.at_ns = 5000000;
    death.exit_code = 9;
    world_push(&death, sizeof death, NULL, 0);
    birth.at_ns = 6000000;
    birth.start_ns = 90000000;
    memcpy(birth.task.comm, "second", 7);
    world_push(&birth, sizeof birth, NULL, 0);
    gap.out_ns = 7000000;
    gap.in_ns = 9000000;
    gap.task = birth.task;
    world_push(&gap, sizeof gap, NULL, 0);
    world_push(&gap, sizeof gap, NULL, 0);
    world_end();
    CHECK_INT(world_number("SELECT count(*) FROM process WHERE tgid = 4000000 AND kind = 'target'"),
            2);
    CHECK_INT(world_number("SELECT count(*) FROM v_off_cpu WHERE comm = 'first'"), 1);
    CHECK_INT(world_number("SELECT count(*) FROM v_off_cpu WHERE comm = 'second'"), 2);
    CHECK_INT(world_number("SELECT exit_code FROM process WHERE comm = 'first'"), 9);
    CHECK_INT(world_number("SELECT ended_ns FROM process WHERE comm = 'first'"), 5000000);
    CHECK_INT(world_number("SELECT started_ns FROM thread WHERE comm = 'second'"), 6000000);
}

// It is the thread that goes on, by another id: what the main thread did is not its, and the end of
// that one not the process's.
TEST(a_thread_that_calls_exec_takes_the_id_of_its_process)
{
    world_begin();
    const uint32_t pid = 4000000, tid = 4000001; // beyond what /proc has
    struct ug_task_event event = {.head = {.kind = UG_EVENT_TASK},
            .at_ns = 1000,
            .start_ns = 50000000,
            .task = {.tid = pid, .tgid = pid, .comm = "main"},
            .what = UG_TASK_FORK,
            .ppid = (__u32)world.target,
            .target = 1};
    struct ug_gap gap = world_gap(pid, 2000);
    gap.task = event.task;
    world_push(&event, sizeof event, NULL, 0);
    world_push(&gap, sizeof gap, NULL, 0);
    event.at_ns = 3000;
    event.task = (struct ug_task){.tid = tid, .tgid = pid, .comm = "worker"};
    world_push(&event, sizeof event, NULL, 0);
    gap = world_gap(tid, 4000000);
    gap.task = event.task;
    world_push(&gap, sizeof gap, NULL, 0);
    event.at_ns = 7500000;
    event.task = (struct ug_task){.tid = pid, .tgid = pid, .comm = "main"};
    event.what = UG_TASK_EXIT;
    event.exit_code = 9;
    world_push(&event, sizeof event, NULL, 0);
    event.at_ns = 8000000;
    memcpy(event.task.comm, "other", 6);
    event.what = UG_TASK_EXEC;
    event.old_tid = tid;
    world_push(&event, sizeof event, NULL, 0);
    struct ug_gap late = world_gap(pid, 4000000); // of the main thread, read behind the exec
    late.task = (struct ug_task){.tid = pid, .tgid = pid, .comm = "main"};
    world_push(&late, sizeof late, NULL, 0);
    gap = world_gap(pid, 9000000);
    gap.task = event.task;
    world_push(&gap, sizeof gap, NULL, 0);
    world_end();
    CHECK_INT(
            world_number(
                    "SELECT count(*) FROM thread t JOIN process p ON p.id = t.process_id WHERE p.tgid = 4000000"),
            3);
    CHECK_INT(world_number("SELECT ended_ns FROM thread WHERE tid = 4000000 AND started_ns = 1000"),
            7500000);
    CHECK_INT(world_number("SELECT ended_ns FROM thread WHERE tid = 4000001"), 8000000);
    CHECK_INT(
            world_number(
                    "SELECT count(*) FROM gap g JOIN thread t ON t.id = g.thread_id WHERE tid = 4000000 AND started_ns = 1000"),
            2);
    CHECK_INT(
            world_number(
                    "SELECT out_ns FROM gap g JOIN thread t ON t.id = g.thread_id WHERE tid = 4000000 AND started_ns = 8000000"),
            9000000);
    CHECK_INT(
            world_number(
                    "SELECT count(*) FROM process WHERE tgid = 4000000 AND comm = 'other' AND exit_code IS NULL"),
            1);
}

// Most recordings of a command end with it: nobody is left to be asked what its threads did in all.
TEST(what_a_thread_did_that_has_ended)
{
    world_begin();
    const uint32_t pid = 4000000;
    struct ug_task_event event = {.head = {.kind = UG_EVENT_TASK},
            .at_ns = 1000,
            .start_ns = 50000000,
            .task = {.tid = pid, .tgid = pid, .comm = "main"},
            .what = UG_TASK_FORK,
            .ppid = (__u32)world.target,
            .target = 1};
    struct ug_total total = {.head = {.kind = UG_EVENT_TOTAL}, .tid = pid, .tgid = pid};
    total.switches = 5;
    total.short_gaps = 4;
    total.short_gap_ns = 3000000;
    total.run_ns = 2000000;
    world_push(&event, sizeof event, NULL, 0);
    world_push(&total, sizeof total, NULL, 0);
    event.at_ns = 7500000;
    event.what = UG_TASK_EXIT;
    world_push(&event, sizeof event, NULL, 0);
    total.tgid = pid + 1; // of another one by then
    total.switches = 9;
    world_push(&total, sizeof total, NULL, 0);
    total.tid = pid + 7; // of whom nobody has heard
    world_push(&total, sizeof total, NULL, 0);
    world_end();
    CHECK_INT(world_number("SELECT count(*) FROM thread_total"), 1);
    CHECK_INT(
            world_number(
                    "SELECT switches * 1000 + short_gaps * 100 + short_gap_ns / 1000000 * 10 + run_ns / 1000000 FROM thread_total n JOIN thread t ON "
                    "t.id = n.thread_id WHERE t.tid = 4000000 AND t.ended_ns = 7500000"),
            5432);
}

// A birth that the kernel side could not follow: its exec tells, and it is asked for.
TEST(a_child_that_was_missed)
{
    world_begin();
    struct ug_task_event event = {.head = {.kind = UG_EVENT_TASK},
            .task = {.tid = 4000001, .tgid = 4000001, .comm = "stranger"},
            .what = UG_TASK_EXEC,
            .ppid = 1};
    bool alive;
    world_push(&event, sizeof event, NULL, 0);
    CHECK_INT(recorder_poll(world.recorder, 0, &alive, NULL), 0);
    CHECK_INT(fake_capture.added, 0);
    event.ppid = (__u32)world.target;
    world_push(&event, sizeof event, NULL, 0);
    CHECK_INT(recorder_poll(world.recorder, 0, &alive, NULL), 0);
    CHECK_INT(fake_capture.added, 4000001);
    world_end();
}

TEST(that_no_page_fault_was_sampled_is_known)
{
    world_begin();
    world_end();
    for (int asked = 0; asked < 2; asked++) {
        struct recorder_opts opts = {.cgroup = world.dir, .faults = asked, .no_python = true};
        CHECK_INT(recorder_start(world.store, &opts, &world.recorder, NULL), 0);
        CHECK_INT(recorder_stop(world.recorder, NULL, NULL), 0);
        recorder_free(world.recorder);
        CHECK_INT(
                world_number(
                        "SELECT count(*) FROM ledger WHERE producer = 'bpf.page_fault' AND seen = 0"),
                asked);
    }
}

// Names and unwind tables are kept of twice as many processes as are there, in bounds, or of more
// where more were asked for.
TEST(how_many_processes_are_named)
{
    static const struct {
        size_t there;
        uint32_t asked, known;
    } cases[] = {{1, 0, 256}, {300, 0, 600}, {5000, 0, 2048}, {1, 1000, 1000}, {600, 1000, 1200},
            {1, 1 << 20, 2048}};
    world_begin();
    world_end();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct recorder_opts opts = {
                .cgroup = world.dir, .processes_max = cases[i].asked, .no_python = true};
        fake_capture.targets = cases[i].there;
        CHECK_INT(recorder_start(world.store, &opts, &world.recorder, NULL), 0);
        CHECK_INT(fake_capture.processes_max, cases[i].known);
        CHECK_INT(recorder_stop(world.recorder, NULL, NULL), 0);
        recorder_free(world.recorder);
    }
    // nobody was without
    CHECK_INT(
            world_number("SELECT count(*) FROM recording WHERE missing LIKE '%lived at one time%'"),
            0);
}

// Those that came later, and for whom there is no room.
TEST(more_processes_than_are_named)
{
    enum { MORE = 256 }; // and the target itself
    pid_t children[MORE];
    bool alive;
    world_begin();
    for (int i = 0; i < MORE; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            pause();
            _exit(0);
        }
        struct ug_task_event event = {.head = {.kind = UG_EVENT_TASK},
                .at_ns = (__u64)clock_monotonic_ns(),
                .task = {.tid = (__u32)children[i], .tgid = (__u32)children[i], .comm = "member"},
                .what = UG_TASK_SEEN,
                .target = 1};
        world_push(&event, sizeof event, NULL, 0);
    }
    CHECK_INT(recorder_poll(world.recorder, 0, &alive, NULL), 0);
    for (int i = 0; i < MORE; i++) {
        kill(children[i], SIGKILL);
        waitpid(children[i], NULL, 0);
    }
    world_end();
    world_check_text("SELECT missing FROM recording",
            "names: up to 257 processes of the target lived at one time, and functions are named in 256 of them");
}

TEST(five_thousand_threads)
{
    world_begin();
    for (uint32_t round = 0; round < 3; round++) {
        bool alive;
        for (uint32_t i = 0; i < 5000; i++) {
            struct ug_gap gap = world_gap(3000000 + i, 1000000000 + round * 10000000);
            world_push(&gap, sizeof gap, NULL, 0);
        }
        CHECK_INT(recorder_poll(world.recorder, 0, &alive, NULL), 0);
    }
    world_end();
    CHECK_INT(world_number("SELECT count(*) FROM gap"), 15000);
    CHECK_INT(world_number("SELECT count(*) FROM thread"), 5000);
    CHECK_INT(world_number("SELECT count(*) FROM process"), 1);
}

TEST(drops_are_a_breach)
{
    world_begin();
    fake_capture.counts[UG_COUNTER_GAP] =
            (struct ug_counts){.seen = 10, .kept = 7, .dropped = 3, .truncated = 2};
    fake_capture.counts[UG_COUNTER_SAMPLE] = (struct ug_counts){.seen = 5, .kept = 4, .dropped = 1};
    fake_capture.counts[UG_COUNTER_TASK] = (struct ug_counts){.seen = 5, .kept = 3, .dropped = 2};
    world_end();
    CHECK_INT(
            world_number(
                    "SELECT breach FROM ledger WHERE producer = 'bpf.gap' AND seen = kept + dropped"),
            1);
    CHECK_INT(world_number("SELECT breach FROM ledger WHERE producer = 'bpf.sample'"), 0);
    world_check_text("SELECT detail FROM ledger WHERE producer = 'bpf.task' AND dropped = 2",
            "not followed");
    CHECK_INT(
            world_number("SELECT max(value) FROM counter WHERE source = 'drops' AND name = 'gap'"),
            3);
    CHECK(world_number("SELECT count(*) FROM counter WHERE source = 'vmstat'") > 0);
}

TEST(waits_that_could_not_be_read_at_the_end_are_a_breach)
{
    world_begin();
    fake_capture.counts[UG_COUNTER_GAP] = (struct ug_counts){.seen = 10, .kept = 10};
    fake_capture.detach_error = -EMFILE;
    world_end();
    CHECK_INT(world_number("SELECT breach FROM ledger WHERE producer = 'bpf.gap' AND dropped = 0"),
            1);
    world_check_text("SELECT detail FROM ledger WHERE producer = 'bpf.gap'",
            "could not be read: Too many open files");
}

TEST(what_could_not_be_asked_at_the_end_is_told)
{
    world_begin();
    fake_capture.counts[UG_COUNTER_GAP] = (struct ug_counts){.seen = 10, .kept = 10};
    fake_capture.look_error = -EMFILE;
    fake_capture.totals_error = -ENOMEM;
    world_end();
    CHECK_INT(world_number("SELECT breach FROM ledger WHERE producer = 'bpf.gap' AND dropped = 0"),
            1);
    world_check_text("SELECT detail FROM ledger WHERE producer = 'bpf.gap'",
            "short ones could not be counted: Cannot allocate memory");
    CHECK_INT(world_number("SELECT breach FROM ledger WHERE producer = 'bpf.state'"), 0);
    world_check_text("SELECT detail FROM ledger WHERE producer = 'bpf.state'",
            "at the end could not be asked: Too many open files");
}

static const struct ug_unwind_span *span_of(uint64_t address)
{
    for (uint32_t i = 0; i < fake_capture.process.count; i++)
        if (address - fake_capture.process.spans[i].begin < fake_capture.process.spans[i].bytes)
            return &fake_capture.process.spans[i];
    return NULL;
}

// The target is a fork: what is code here is code there.
TEST(a_stack_that_missed_tables_gets_them)
{
#ifndef __x86_64__
    runner_skip("tables are of x86-64 only");
#endif
    void *page = mmap(NULL, 8192, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    __u64 ours = (uintptr_t)world_begin, libc = (uintptr_t)strlen, jit = (uintptr_t)page + 4096;
    world_begin();
    struct ug_gap gap = world_gap((__u32)world.target, (uint64_t)clock_monotonic_ns());
    gap.user_count = 4;
    // the last is no code: a frame pointer that was none
    world_push(&gap, sizeof gap, (__u64[]){ours, libc, jit, 8}, 4);
    struct error err = {0};
    bool alive;
    CHECK_INT(recorder_poll(world.recorder, 0, &alive, &err), 0);
    CHECK_INT(fake_capture.process.count, 0); // nothing was missed
    gap.flags = UG_GAP_USER_MISSED;
    // a stack gets what can be built in 10 ms, the next one the rest
    for (int i = 0; i < 1000 && fake_capture.process.count < 3; i++) {
        world_push(&gap, sizeof gap, (__u64[]){ours, libc, jit, 8}, 4);
        CHECK_INT(recorder_poll(world.recorder, 0, &alive, &err), 0);
        usleep(fake_capture.process.count < 3 ? 1000 : 0);
    }
    CHECK_INT(fake_capture.unwound, world.target);
    CHECK_INT(fake_capture.process.count, 3);
    CHECK(span_of(ours) && span_of(ours)->table < fake_capture.slabs);
    CHECK(span_of(libc) && span_of(libc)->table < fake_capture.slabs &&
            span_of(libc)->table != span_of(ours)->table);
    CHECK(span_of(jit) && span_of(jit)->table == UG_UNWIND_NO_TABLE && !span_of(8));
    CHECK(fake_capture.rules > 10);
    for (uint32_t i = 1; i < fake_capture.process.count; i++)
        CHECK(fake_capture.process.spans[i - 1].begin + fake_capture.process.spans[i - 1].bytes <=
                fake_capture.process.spans[i].begin);
    uint32_t slabs = fake_capture.slabs;
    fake_capture.process.count = 0;
    world_push(&gap, sizeof gap, (__u64[]){ours, libc, jit, 8}, 4); // taken before they were loaded
    struct ug_task_event gone = {
            .head = {.kind = UG_EVENT_TASK}, .task = gap.task, .what = UG_TASK_EXEC, .target = 1};
    world_push(&gone, sizeof gone, NULL, 0);
    CHECK_INT(recorder_poll(world.recorder, 0, &alive, &err), 0);
    CHECK_INT(fake_capture.process.count, 0);
    CHECK_INT(fake_capture.unwound, 0); // another program
    gap.user_count = 3;                 // whole, however slow the machine is
    world_push(&gap, sizeof gap, (__u64[]){ours, libc, jit}, 3);
    CHECK_INT(recorder_poll(world.recorder, 0, &alive, &err), 0);
    CHECK(fake_capture.slabs == slabs); // the tables are known
    world_end();
    CHECK_INT(world_number("SELECT max(flags) FROM gap"), 0);
    // of the first gap, as it was
    CHECK_INT(world_number("SELECT count(*) FROM v_stack WHERE kind = 'user' AND depth >= 3"), 1);
    CHECK_INT(world_number("SELECT kept FROM ledger WHERE producer = 'unwind'"), 2);
}

// The disk is full in the middle of a transaction: what it held is not in the store, and the ledger
// says so.
TEST(rows_that_were_rolled_back_are_lost)
{
    enum { GAPS = 4000 };
    world_begin();
    struct error err = {0};
    bool alive;
    struct ug_gap gap = world_gap((__u32)world.target, 1000);
    char limit[64];
    snprintf(limit, sizeof limit, "PRAGMA max_page_count = %lld",
            (long long)world_number("PRAGMA page_count") + 2);
    CHECK_INT(sqlite3_exec(store_db(world.store), limit, NULL, NULL, NULL), SQLITE_OK);
    for (int i = 0; i < GAPS; i++) {
        gap.out_ns += 1000;
        gap.in_ns += 1000;
        world_push(&gap, sizeof gap, NULL, 0);
    }
    CHECK_INT(recorder_poll(world.recorder, 0, &alive, &err), -ENOSPC);
    CHECK_INT(
            sqlite3_exec(store_db(world.store), "PRAGMA max_page_count = 100000", NULL, NULL, NULL),
            SQLITE_OK);
    fake_capture.counts[UG_COUNTER_GAP] =
            (struct ug_counts){.seen = GAPS + 5, .kept = GAPS, .dropped = 5};
    CHECK_INT(recorder_stop(world.recorder, NULL, &err), -ENOSPC);
    int64_t stored = world_number("SELECT count(*) FROM gap");
    CHECK(stored < GAPS);
    CHECK_INT(
            world_number(
                    "SELECT kept FROM ledger WHERE producer = 'bpf.gap' AND seen = kept + dropped AND breach"),
            stored);
    CHECK(world_number(
                  "SELECT dropped FROM ledger WHERE producer = 'recorder' AND kind = 'rows'") >=
            GAPS - stored);
    recorder_free(world.recorder);
    world_end_target();
}

// Somebody reads for longer than a moment: the commit waits for another second, nothing is lost.
TEST(a_reader_in_the_way)
{
    world_begin();
    sqlite3 *reader = NULL;
    bool alive;
    struct ug_gap gap = world_gap((__u32)world.target, 1000);
    CHECK_INT(sqlite3_open(world.path, &reader), SQLITE_OK);
    CHECK_INT(sqlite3_exec(reader, "BEGIN; SELECT count(*) FROM gap", NULL, NULL, NULL), SQLITE_OK);
    world_push(&gap, sizeof gap, NULL, 0);
    CHECK_INT(recorder_poll(world.recorder, 0, &alive, NULL), 0); // wants to commit, and cannot
    CHECK_INT(sqlite3_get_autocommit(store_db(world.store)), 0);
    CHECK_INT(sqlite3_exec(reader, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(reader);
    world_push(&gap, sizeof gap, NULL, 0);
    world_end();
    CHECK_INT(world_number("SELECT count(*) FROM gap"), 2);
}

// Somebody has it alone for a moment, as who opens it while a commit removes its journal: the next
// transaction waits.
TEST(a_store_that_another_one_has_alone)
{
    int has[2];
    bool alive;
    char byte;
    world_begin();
    CHECK_INT(recorder_poll(world.recorder, 0, &alive, NULL), 0);
    CHECK_INT(sqlite3_get_autocommit(store_db(world.store)), 1);
    CHECK_INT(pipe(has), 0);
    pid_t other = fork();
    if (other == 0) {
        sqlite3 *db = NULL;
        sqlite3_open(world.path, &db);
        if (sqlite3_exec(db, "BEGIN EXCLUSIVE", NULL, NULL, NULL) == SQLITE_OK &&
                write(has[1], "x", 1) == 1)
            clock_sleep_until_ns(clock_monotonic_ns() + 300000000);
        sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
        _exit(0);
    }
    close(has[1]);
    CHECK_INT(read(has[0], &byte, 1), 1);
    close(has[0]);
    struct ug_gap gap = world_gap((__u32)world.target, 1000);
    world_push(&gap, sizeof gap, NULL, 0);
    CHECK_INT(recorder_poll(world.recorder, 0, &alive, NULL), 0);
    waitpid(other, NULL, 0);
    world_end();
    CHECK_INT(world_number("SELECT count(*) FROM gap"), 1);
}

TEST(what_cannot_be_recorded)
{
    struct error err = {0};
    world_begin();
    CHECK_INT(recorder_stop(world.recorder, NULL, &err), 0);
    recorder_free(world.recorder);
    int64_t before = world_number("SELECT count(*) FROM recording");
    pid_t none = 4100000, own = getpid();
    struct recorder_opts opts = {.pids = &none, .pid_count = 1};
    CHECK_INT(recorder_start(world.store, &opts, &world.recorder, &err), -EINVAL);
    CHECK_CONTAINS(err.text, "there is no process 4100000");
    opts.pids = &own;
    CHECK_INT(recorder_start(world.store, &opts, &world.recorder, &err), -EINVAL);
    opts = (struct recorder_opts){.cgroup = "/none"};
    CHECK_INT(recorder_start(world.store, &opts, &world.recorder, &err), -EINVAL);
    fake_capture.open_error = -EPERM;
    opts = (struct recorder_opts){.pids = &world.target, .pid_count = 1};
    CHECK_INT(recorder_start(world.store, &opts, &world.recorder, &err), -EPERM);
    CHECK_CONTAINS(err.text, "not permitted");
    CHECK_INT(world_number("SELECT count(*) FROM recording"), before);
    CHECK_INT(world_number("SELECT count(*) FROM pragma_foreign_key_check"), 0);
    world_end_target();
}

// The GPU side alone: nothing is read from rings that are not there, and children are found without
// them.
TEST(the_host_side_is_not_permitted)
{
    struct error err = {0};
    bool alive = true;
    world_begin();
    CHECK_INT(recorder_stop(world.recorder, NULL, &err), 0);
    recorder_free(world.recorder);
    fake_capture.open_error = -EPERM;
    struct recorder_opts opts = {.pids = &world.target, .pid_count = 1, .gpu_kinds = 1};
    // nobody is prepared
    CHECK_INT(recorder_start(world.store, &opts, &world.recorder, &err), -EPERM);
    opts.host_optional = true;
    CHECK_INT(recorder_start(world.store, &opts, &world.recorder, &err), 0);
    CHECK_INT(recorder_poll(world.recorder, 50, &alive, &err), 0);
    CHECK(alive);
    struct recorder_totals totals;
    recorder_totals(world.recorder, &totals);
    CHECK(!totals.host);
    world_end_target();
    for (int i = 0; i < 200 && alive; i++)
        CHECK_INT(recorder_poll(world.recorder, 20, &alive, NULL), 0);
    CHECK(!alive);
    CHECK_INT(recorder_stop(world.recorder, NULL, &err), 0);
    world_check_text(
            "SELECT missing FROM recording WHERE id = 2", "host: only the GPU side is recorded");
    // of the recording before
    CHECK_INT(world_number("SELECT count(*) FROM ledger WHERE producer = 'bpf.gap'"), 1);
    recorder_free(world.recorder);
    struct recorder_opts cgroup = {.cgroup = world.dir, .gpu_kinds = 1, .host_optional = true};
    // whom it holds cannot be told
    CHECK_INT(recorder_start(world.store, &cgroup, &world.recorder, &err), -EPERM);
}

TEST(the_target_ends)
{
    bool alive = true;
    world_begin();
    world_end_target();
    for (int i = 0; i < 200 && alive; i++) {
        CHECK_INT(recorder_poll(world.recorder, 1, &alive, NULL), 0);
        clock_sleep_until_ns(clock_monotonic_ns() + 20000000);
    }
    CHECK(!alive);
    CHECK_INT(recorder_stop(world.recorder, NULL, NULL), 0);
    CHECK_INT(
            world_number(
                    "SELECT count(*) FROM process WHERE kind = 'target' AND ended_ns IS NOT NULL"),
            1);
    recorder_free(world.recorder);
}

// A cgroup lives on without its processes: theirs is an end all the same.
TEST(a_process_of_a_cgroup_ends)
{
    bool alive = true;
    world_begin();
    CHECK_INT(recorder_stop(world.recorder, NULL, NULL), 0);
    recorder_free(world.recorder);
    struct recorder_opts opts = {.cgroup = world.dir, .no_python = true};
    CHECK_INT(recorder_start(world.store, &opts, &world.recorder, NULL), 0);
    struct ug_task_event event = {.head = {.kind = UG_EVENT_TASK},
            .at_ns = (__u64)clock_monotonic_ns(),
            .task = {.tid = (__u32)world.target, .tgid = (__u32)world.target, .comm = "member"},
            .what = UG_TASK_SEEN,
            .target = 1};
    world_push(&event, sizeof event, NULL, 0);
    CHECK_INT(recorder_poll(world.recorder, 0, &alive, NULL), 0);
    world_end_target();
    static const char ended[] =
            "SELECT count(*) FROM process WHERE kind = 'target' AND ended_ns IS NOT NULL";
    // processes are asked, and rows written, once a second
    for (int i = 0; i < 1000 && world_number(ended) < 1; i++) {
        CHECK_INT(recorder_poll(world.recorder, 1, &alive, NULL), 0);
        clock_sleep_until_ns(clock_monotonic_ns() + 20000000);
    }
    CHECK_INT(world_number(ended), 1);
    CHECK(alive);
    CHECK_INT(recorder_stop(world.recorder, NULL, NULL), 0);
    recorder_free(world.recorder);
}

TEST(a_full_disk_keeps_what_was_committed)
{
    struct error err = {0};
    bool alive = true;
    int rc = 0;
    if (!runner_directory(world.dir) || mount("none", world.dir, "tmpfs", 0, "size=600k"))
        runner_skip("cannot mount a small tmpfs (needs root)");
    world_begin();
    struct ug_gap gap = world_gap((__u32)world.target, 1000);
    world_push(&gap, sizeof gap, NULL, 0);
    CHECK_INT(recorder_poll(world.recorder, 0, &alive, &err), 0); // the first round commits
    for (int i = 0; i < 100 && rc == 0; i++) {
        for (int k = 0; k < 1000; k++)
            world_push(&gap, sizeof gap, NULL, 0);
        rc = recorder_poll(world.recorder, 0, &alive, &err);
    }
    CHECK_INT(rc, -ENOSPC);
    CHECK_CONTAINS(err.text, "the disk is full");
    CHECK_CONTAINS(err.text, "is readable");
    CHECK(recorder_stop(world.recorder, NULL, NULL) != 0);
    recorder_free(world.recorder);
    store_close(world.store);
    CHECK_INT(store_open(world.path, STORE_READ, &world.store, &err), 0);
    // a commit a second: one more here and there on a slow machine
    int64_t kept = world_number("SELECT count(*) FROM gap");
    CHECK(kept >= 1 && kept % 1000 == 1);
    world_check_text("PRAGMA integrity_check", "ok");
    store_close(world.store);
    umount(world.dir);
    world_end_target();
}
