// SPDX-License-Identifier: Apache-2.0
// Ranks that join the recorder of another one, are refused, and leave it.
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/target/file.h"
#include "tests/unit/record_world.h"
#include "tests/unit/runner.h"
#include "tracer/record/task_proc.h"
#include "tracer/record/tasks.h"

static pid_t start_rank(const char *rank)
{
    struct task_stat stat = {0};
    pid_t pid = fork();
    if (pid == 0) { // by exec: a rank is told by the environment that a program was started with
        char *const words[] = {"sleep", "1000", NULL};
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        setenv("RANK", rank, 1);
        setenv("WORLD_SIZE", "2", 1);
        execvp(words[0], words);
        _exit(127);
    }
    while (task_stat_read((uint32_t)pid, &stat) && stat.state != 'Z' &&
            (stat.state != 'S' || strcmp(stat.comm, "sleep")))
        // until it sleeps: in the middle of an exec there is no environment
        clock_sleep_until_ns(clock_monotonic_ns() + 2000000);
    CHECK_STR(stat.comm, "sleep");
    return pid;
}

static void end_rank(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static int64_t number_of(const char *sql, pid_t pid)
{
    int64_t value = -1;
    CHECK_INT(store_get_int(world.store, &value, NULL, sql, "i", (int64_t)pid), 0);
    return value;
}

// The target ends, and with it the recording, whatever ranks go on.
static void stop_without_target(void)
{
    struct error err = {0};
    bool alive = true;
    world_end_target();
    for (int i = 0; i < 200 && alive; i++)
        CHECK_INT(recorder_poll(world.recorder, 20, &alive, NULL), 0);
    CHECK(!alive);
    CHECK_INT(recorder_stop(world.recorder, NULL, &err), 0);
    recorder_free(world.recorder);
}

// One that is taken, and one for which there is no room: that one is another recorder's, and this
// one's in nothing.
TEST(a_rank_that_is_refused)
{
    static const char members[] = "SELECT count(*) FROM process WHERE tgid = ?";
    struct error err = {0};
    bool alive = true;
    world_begin();
    pid_t pid = start_rank("1");
    fake_capture.add_error = -ENOMEM;
    CHECK_INT(recorder_join(world.recorder, pid, 1, &err), -ENOMEM);
    CHECK_CONTAINS(err.text, "no room for it");
    CHECK_INT(recorder_join(world.recorder, 4100000, 1, &err), -ESRCH);
    recorder_leave(world.recorder, 1); // it is not there
    stop_without_target();
    CHECK_INT(number_of(members, pid), 0);
    CHECK_INT(world_number("SELECT count(*) FROM recording WHERE target LIKE '%joined%'"), 0);
    CHECK_INT(world_number("SELECT count(*) FROM recording WHERE target LIKE '%\"rank\":1%'"), 0);

    // it goes on to be taken
    struct recorder_opts opts = {.pids = &pid, .pid_count = 1, .no_python = true};
    pid_t other = start_rank("0");
    fake_capture.add_error = 0;
    CHECK_INT(recorder_start(world.store, &opts, &world.recorder, &err), 0);
    CHECK_INT(recorder_join(world.recorder, other, 0, &err), 0);
    CHECK_INT(recorder_join(world.recorder, other, 0, &err), -EEXIST);
    CHECK_INT(recorder_poll(world.recorder, 0, &alive, &err), 0);
    CHECK_INT(recorder_stop(world.recorder, NULL, &err), 0);
    recorder_free(world.recorder);
    world_check_text("SELECT target FROM recording WHERE id = 2", "\"joined\":[{\"rank\":0");
    world_check_text("SELECT target FROM recording WHERE id = 2", "\"rank\":1,\"ranks\":2");
    CHECK_INT(number_of(members, other), 1);
    end_rank(other);
    end_rank(pid);
}

static void stop_reader(void)
{
    int fd = target_file_open_here("/proc/self/exe", 0); // there is one then
    CHECK(fd >= 0);
    close(fd);
    pid_t reader = world_reader();
    CHECK(reader > 0 && kill(reader, SIGSTOP) == 0);
}

// A rank whose command line has not come, as while the mmap lock of a process is held, and whose
// environment will not.
static pid_t begin_locked(
        struct writer **ret_writer, struct tasks **ret_tasks, struct task_process **ret_process)
{
    struct error err = {0};
    if (!runner_directory(world.dir))
        runner_fail(__FILE__, __LINE__, "no directory");
    snprintf(world.path, sizeof world.path, "%s/run.db", world.dir);
    CHECK_INT(store_open(world.path, STORE_CREATE, &world.store, &err), 0);
    CHECK_INT(writer_new(world.store, ret_writer, &err), 0);
    *ret_tasks = tasks_new(*ret_writer, 1);
    pid_t pid = start_rank("1");
    stop_reader();
    *ret_process = tasks_target(*ret_tasks, (uint32_t)pid);
    CHECK(*ret_process != NULL);
    stop_reader();
    return pid;
}

// How many ranks are known then.
static size_t flush(struct tasks *tasks)
{
    size_t count = SIZE_MAX;
    tasks_flush(tasks, clock_monotonic_ns(), false, NULL, NULL);
    tasks_ranks(tasks, &count);
    return count;
}

// The only one is known by now, and its command line.
static void end_locked(struct writer *writer, struct tasks *tasks, pid_t pid)
{
    struct error err = {0};
    size_t count = 0;
    const struct task_rank *ranks = tasks_ranks(tasks, &count);
    CHECK(count == 1 && ranks[0].rank == 1 && ranks[0].ranks == 2);
    CHECK_INT(writer_commit(writer, true, &err), 0);
    world_check_text("SELECT cmdline FROM process", "sleep 1000");
    tasks_free(tasks, NULL, NULL);
    writer_free(writer);
    end_rank(pid);
}

// a process is asked again 2 s later
static const struct timespec pause_of_silence = {.tv_sec = 2, .tv_nsec = 500000000};

// Both are asked for again.
TEST(a_rank_whose_memory_map_is_locked_for_a_while)
{
    struct writer *writer = NULL;
    struct tasks *tasks = NULL;
    struct task_process *process = NULL;
    pid_t pid = begin_locked(&writer, &tasks, &process);
    CHECK_INT(flush(tasks), 0);
    nanosleep(&pause_of_silence, NULL);
    CHECK_INT(flush(tasks), 1);
    end_locked(writer, tasks, pid);
}

// Of a job that hangs many may be so for hours, and the recorder has other things to do; but at the
// end all are asked.
TEST(a_rank_whose_memory_map_is_locked_for_long)
{
    struct writer *writer = NULL;
    struct tasks *tasks = NULL;
    struct task_process *process = NULL;
    pid_t pid = begin_locked(&writer, &tasks, &process);
    process->asked_late = 10;
    CHECK_INT(flush(tasks), 0);
    CHECK_INT(process->asked_late, 11);
    // 32 s less what a busy machine takes
    CHECK(process->ask_next_ns > clock_monotonic_ns() + INT64_C(10000000000));
    process->ask_next_ns += INT64_C(1000000000000);
    nanosleep(&pause_of_silence, NULL);
    CHECK_INT(flush(tasks), 0);
    tasks_ask_again(tasks);
    CHECK_INT(flush(tasks), 1);
    CHECK(process->ask_next_ns == 0 && process->asked_late == 0);
    end_locked(writer, tasks, pid);
}

// One that gave up meanwhile: it has a recorder of its own, which descends from it, and counts here
// no more, although the programs still tell of both.
TEST(a_rank_that_leaves)
{
    static const char gaps[] =
            "SELECT count(*) FROM gap g JOIN thread t ON t.id = g.thread_id JOIN process p ON p.id = t.process_id WHERE p.tgid = ?";
    struct error err = {0};
    bool alive = true;
    world_begin();
    pid_t pid = start_rank("1");
    struct ug_gap gap = world_gap((__u32)pid, 1000000000);
    gap.task.tgid = (__u32)pid;
    CHECK_INT(recorder_join(world.recorder, pid, 1, &err), 0);
    world_push(&gap, sizeof gap, NULL, 0);
    CHECK_INT(recorder_poll(world.recorder, 0, &alive, &err), 0);
    world_check_text("SELECT target FROM recording", "\"rank\":1,\"ranks\":2");
    recorder_leave(world.recorder, 1);
    CHECK_INT(world_number("SELECT count(*) FROM recording WHERE target LIKE '%\"rank\":1%'"), 0);

    struct ug_task_event birth = {.head = {.kind = UG_EVENT_TASK},
            .at_ns = 2000000000,
            .task = {.tid = 4000002, .tgid = 4000002, .comm = "recorder"},
            .what = UG_TASK_FORK,
            .ppid = (__u32)pid,
            .target = 1};
    struct ug_sample sample = {.head = {.kind = UG_EVENT_SAMPLE},
            .at_ns = 2003000000,
            .task = gap.task,
            .why = UG_SAMPLE_TARGET};
    gap.out_ns = 2001000000;
    gap.in_ns = 2004000000;
    gap.waking_ns = 0;
    world_push(&birth, sizeof birth, NULL, 0);
    world_push(&gap, sizeof gap, NULL, 0);
    world_push(&sample, sizeof sample, NULL, 0);
    gap.task.tid = gap.task.tgid = 4000002;
    world_push(&gap, sizeof gap, NULL, 0);
    gap.task.tid = gap.task.tgid = (__u32)world.target;
    world_push(&gap, sizeof gap, NULL, 0);
    CHECK_INT(recorder_poll(world.recorder, 0, &alive, &err), 0);

    CHECK_INT(recorder_join(world.recorder, pid, 1, &err), 0); // it comes again
    gap.task.tid = gap.task.tgid = (__u32)pid;
    world_push(&gap, sizeof gap, NULL, 0);
    CHECK_INT(recorder_poll(world.recorder, 0, &alive, &err), 0);
    recorder_leave(world.recorder, 1);
    stop_without_target();              // nothing waits for who has left
    CHECK_INT(number_of(gaps, pid), 2); // while it was here
    CHECK_INT(world_number("SELECT count(*) FROM gap"), 3);
    CHECK_INT(world_number("SELECT count(*) FROM sample"), 0);
    CHECK_INT(world_number("SELECT count(*) FROM process WHERE kind = 'target'"), 1);
    CHECK_INT(world_number("SELECT count(*) FROM recording WHERE target LIKE '%\"rank\":1%'"), 0);
    world_check_text("SELECT target FROM recording", "\"joined\":[]");
    end_rank(pid);
}
