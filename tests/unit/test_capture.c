// SPDX-License-Identifier: Apache-2.0
// What the loader does without a kernel: the frames of a tracepoint are taken off stacks, every
// program has its source, and the table of sources is whole.
#include "bpf/capture_inside.h"

#include <stdlib.h>
#include <string.h>

#include <bpf/btf.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bpf/descendants.h"
#include "bpf/tally.h"
#include "tests/unit/runner.h"

static struct capture capture;

static void add_ranges(void)
{
    capture_add_tracing(&capture, 100, 110);
    capture_add_tracing(&capture, 50, 60);
    capture_sort_tracing(&capture);
}

TEST(gap_loses_leading_frames_only)
{
    static const uint64_t frames[9] = {105, 55, 1, 105, /* user */ 105, 3, /* waker */ 50, 59, 60};
    struct {
        struct ug_gap gap;
        uint64_t frames[9];
    } record = {.gap = {.head = {UG_EVENT_GAP, sizeof(record)},
                        .kernel_count = 4,
                        .user_count = 2,
                        .waker_count = 3,
                        .lock = 7}};
    const struct ug_gap *gap;
    const uint64_t *left;

    add_ranges();
    memcpy(record.frames, frames, sizeof(frames));
    gap = (const struct ug_gap *)capture_strip(&capture, &record.gap.head);
    left = (const uint64_t *)(gap + 1);
    CHECK_INT(gap->kernel_count, 2);
    CHECK_INT(gap->user_count, 2);
    CHECK_INT(gap->waker_count, 1);
    CHECK_INT(gap->head.size, sizeof(*gap) + 5 * 8);
    CHECK_INT(gap->lock, 7);
    CHECK(left[0] == 1 && left[1] == 105 && left[2] == 105 && left[3] == 3 && left[4] == 60);
    CHECK_INT(record.gap.kernel_count, 4); // the ring is not ours to write
}

TEST(lock_keeps_its_owner)
{
    struct {
        struct ug_lock lock;
        uint64_t frames[4];
    } record = {
            .lock = {.head = {UG_EVENT_LOCK, sizeof(record)}, .kernel_count = 2, .owner_count = 2},
            .frames = {101, 1, 102, 2}};
    const struct ug_lock *lock;
    const uint64_t *left;

    add_ranges();
    lock = (const struct ug_lock *)capture_strip(&capture, &record.lock.head);
    left = (const uint64_t *)(lock + 1);
    CHECK_INT(lock->kernel_count, 1);
    CHECK_INT(lock->owner_count, 2);
    CHECK(left[0] == 1 && left[1] == 102 && left[2] == 2);
}

static uint32_t count_at(struct ug_tally *tallies, uint64_t tid, uint64_t now)
{
    uint64_t key = tid << 32 | UG_FACT_MIGRATE;
    uint32_t place = ug_tally_place(tallies, key, now);

    if (place < UG_TALLIES)
        tallies[place] = (struct ug_tally){.key = key, .last_ns = now};
    return place;
}

// All threads of a large machine migrate pages at once.
TEST(series_of_facts_keep_their_places)
{
    struct ug_tally *tallies = calloc(UG_TALLIES, sizeof(*tallies));
    const uint64_t first = 5000000000;
    uint32_t places[600];

    for (uint64_t i = 0; i < 600; i++)
        places[i] = count_at(tallies, 1000 + i, first);
    for (uint64_t i = 0; i < 600; i++)
        CHECK(places[i] < UG_TALLIES && count_at(tallies, 1000 + i, first + 1) == places[i]);
    free(tallies);
}

TEST(a_series_that_goes_on_is_not_cut_by_another)
{
    struct ug_tally *tallies = calloc(UG_TALLIES, sizeof(*tallies));
    const uint64_t first = 5000000000;
    uint32_t place;

    for (uint64_t i = 0; i < UG_TALLY_WAYS; i++) // of these each may have the same places
        CHECK(count_at(tallies, 7 + i * UG_TALLIES, first) < UG_TALLIES);
    CHECK_INT(
            count_at(tallies, 7 + UG_TALLY_WAYS * UG_TALLIES, first + UG_TALLY_NS - 1), UG_TALLIES);
    for (uint64_t i = 0; i < UG_TALLY_WAYS; i++)
        if (i != 3) // that one has ended
            count_at(tallies, 7 + i * UG_TALLIES, first + UG_TALLY_NS - 1);
    place = ug_tally_place(tallies, (uint64_t)(7 + 3 * UG_TALLIES) << 32 | UG_FACT_MIGRATE, first);
    CHECK_INT(count_at(tallies, 7 + UG_TALLY_WAYS * UG_TALLIES, first + UG_TALLY_NS), place);
    free(tallies);
}

static void put_cpus(const char *path, const char *list)
{
    FILE *file = fopen(path, "w");

    CHECK(file && fputs(list, file) >= 0 && fclose(file) == 0);
}

TEST(cpus_that_come_later_are_told)
{
    static char dir[] = "/tmp/upgate-capture-XXXXXX";
    char path[64];
    size_t count;

    CHECK(runner_directory(dir) != NULL);
    snprintf(path, sizeof(path), "%s/online", dir);
    capture_watch_cpus(&capture, path); // a system without
    put_cpus(path, "0-3\n");
    capture_watch_cpus(&capture, path);
    capture_watch_cpus(&capture, path);
    capture_missing(&capture, &count);
    CHECK_INT(count, 0);
    put_cpus(path, "0-4\n");
    capture_watch_cpus(&capture, path);
    put_cpus(path, "0-3\n");
    capture_watch_cpus(&capture, path);
    CHECK_CONTAINS(capture_missing(&capture, &count)[0], "CPUs of this machine came or went");
    CHECK_INT(count, 1); // once
    capture_forget_missing(&capture);
    free(capture.cpus);
    capture.cpus = NULL;
}

TEST(nothing_to_take_off)
{
    struct {
        struct ug_fact fact;
        uint64_t frames[1];
    } record = {
            .fact = {.head = {UG_EVENT_FACT, sizeof(record)}, .kernel_count = 1}, .frames = {1}};

    CHECK(capture_strip(&capture, &record.fact.head) == &record.fact.head); // no ranges known
    add_ranges();
    CHECK(capture_strip(&capture, &record.fact.head) == &record.fact.head);
}

TEST(sources_are_whole)
{
    for (int id = 0; id < SOURCE_COUNT; id++) {
        CHECK(sources[id].name && sources[id].gives && sources[id].lost);
        for (size_t i = 0; i < 8 && sources[id].programs[i]; i++)
            CHECK_INT(source_of_program(sources[id].programs[i]), id);
    }
    CHECK_INT(source_of_program("no such program"), SOURCE_COUNT);
}

TEST(what_is_missing_is_a_sentence)
{
    const char *const *missing;
    size_t count;

    capture_lack(&capture, SOURCE_SIGNALS, "no tracepoint %s on this kernel", "signal_generate");
    missing = capture_missing(&capture, &count);
    CHECK_INT(count, 1);
    CHECK_STR(missing[0],
            "signals: no tracepoint signal_generate on this kernel; "
            "who sent SIGSTOP is told from wakers only");
    CHECK(capture.lost[SOURCE_SIGNALS] && !capture.lost[SOURCE_LOCKS]);
    for (int i = 0; i < 2 * CAPTURE_MISSING_MAX; i++)
        capture_lack(&capture, SOURCE_LOCKS, "again");
    capture_missing(&capture, &count);
    CHECK_INT(count, CAPTURE_MISSING_MAX);
    capture_forget_missing(&capture);
    CHECK(!capture.lost[SOURCE_SIGNALS]);
}

// A type with one member, or one value, as a kernel's BTF would have it.
static void add_struct(struct btf *btf, const char *name, const char *member, int type)
{
    CHECK(btf__add_struct(btf, name, 8) > 0);
    CHECK_INT(btf__add_field(btf, member, type, 0, 0), 0);
}

static void add_enum(struct btf *btf, const char *name, const char *value)
{
    CHECK(btf__add_enum(btf, name, 4) > 0);
    CHECK_INT(btf__add_enum_value(btf, value, 1), 0);
}

// `lock` is the type of the ring buffer's lock.
static struct btf *kernel_new(const char *lock)
{
    struct btf *btf = btf__new_empty();
    int number = btf__add_int(btf, "int", 4, 0), spinlock = btf__add_typedef(btf, lock, number);

    add_enum(btf, "bpf_map_type", "BPF_MAP_TYPE_TASK_STORAGE");
    add_struct(btf, "rt_mutex_base", "owner", number);
    add_struct(btf, "bpf_ringbuf", "spinlock", spinlock);
    return btf;
}

TEST(a_kernel_that_is_too_old_is_told_what_it_lacks)
{
    struct btf *btf = kernel_new("spinlock_t");
    struct error err = {0};

    add_enum(btf, "bpf_func_id", "BPF_FUNC_get_stack");
    add_struct(btf, "task_struct", "state", 1);
    CHECK_INT(capture_fits(btf, &err), -ENOTSUP);
    CHECK_CONTAINS(err.text,
            "lacks task_struct.__state (Linux 5.14), bpf_task_pt_regs (Linux 5.15); "
            "boot Linux 5.15 or later");
    btf__free(btf);
}

TEST(only_on_realtime_a_ring_that_sleeps_is_refused)
{
    static const char *const locks[] = {"spinlock_t", "raw_spinlock_t"};

    for (int realtime = 0; realtime < 2; realtime++)
        for (int i = 0; i < 2; i++) {
            struct btf *btf = kernel_new(locks[i]);
            struct error err = {0};

            add_enum(btf, "bpf_func_id", "BPF_FUNC_task_pt_regs");
            add_struct(btf, "task_struct", "__state", 1);
            add_struct(btf, "rw_semaphore", realtime ? "rwbase" : "count", 1);
            CHECK_INT(capture_is_realtime(btf), realtime);
            CHECK_INT(capture_fits(btf, &err), realtime && i == 0 ? -ENOTSUP : 0);
            if (realtime && i == 0)
                CHECK_CONTAINS(err.text, "PREEMPT_RT");
            btf__free(btf);
        }
}

TEST(descendants_in_any_order)
{
    // 10 is the root; 90 is upgate, started by it; 70 and 71 are each other's parent: their ids
    // came again while the list was read.
    struct descendant all[] = {{40, 30, false}, {30, 20, false}, {91, 90, false}, {20, 10, false},
            {90, 10, false}, {10, 1, false}, {50, 1, false}, {60, -1, false}, {70, 71, false},
            {71, 70, false}, {80, 99, false}, {1, 0, false}, {21, 20, false}};
    static const bool below[] = {
            true, true, false, true, false, true, false, false, false, false, false, false, true};

    descendants_mark(all, sizeof all / sizeof *all, 10, 90);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        CHECK_INT(all[i].below, below[i]);
    descendants_mark(all, 0, 10, 90);
    descendants_mark(all, sizeof all / sizeof *all, 12345, 90);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        CHECK(!all[i].below);
}

static double cpu_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

// Each is the parent of the one before: to go through the list until nothing is new takes as many
// rounds as there are processes.
TEST(descendants_of_a_long_chain_are_found_in_no_time)
{
    enum { COUNT = 200000 }; // a machine may have 4 million
    struct descendant *all = calloc(COUNT, sizeof *all);
    double before_s = cpu_s();

    for (int i = 0; i < COUNT; i++)
        all[i] = (struct descendant){.pid = 1000 + i, .parent = 1001 + i};
    descendants_mark(all, COUNT, 1000 + COUNT - 1, 1);
    for (int i = 0; i < COUNT; i++)
        CHECK(all[i].below);
    // 0.02 s; going through the list until nothing is new would not end
    CHECK(cpu_s() - before_s < 5);
    free(all);
}

static void write_members(const char *dir, const char *members)
{
    char path[100];
    FILE *file;

    snprintf(path, sizeof path, "%s/cgroup.procs", dir);
    file = fopen(path, "w");
    CHECK(file && fputs(members, file) >= 0 && fclose(file) == 0);
}

TEST(targets_are_counted_before_there_is_a_capture)
{
    static char dir[] = "/tmp/upgate-capture-XXXXXX";
    char below[sizeof dir + 8], own[40];
    struct capture_opts opts = {.cgroup = dir};
    pid_t parent;
    int ends[2], status;
    char byte;

    CHECK(runner_directory(dir) != NULL);
    snprintf(below, sizeof below, "%s/below", dir);
    CHECK_INT(capture_count_targets(&opts), 0); // no cgroup
    CHECK_INT(mkdir(below, 0700), 0);
    // it is no target of its own
    snprintf(own, sizeof own, "4100000\n%d\n4100001\n", (int)getpid());
    write_members(dir, own);
    write_members(below, "4100002\n");
    CHECK_INT(capture_count_targets(&opts), 3);

    CHECK_INT(pipe(ends), 0);
    parent = fork();
    if (!parent) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(ends[0]);
        for (int i = 0; i < 2; i++)
            if (!fork()) {
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                (void)!write(ends[1], "+", 1);
                pause();
                _exit(0);
            }
        close(ends[1]);
        while (wait(NULL) > 0)
            ;
        _exit(0);
    }
    close(ends[1]);
    for (int i = 0; i < 2; i++)
        CHECK_INT(read(ends[0], &byte, 1), 1);
    opts = (struct capture_opts){.pids = &parent, .pid_count = 1};
    CHECK_INT(capture_count_targets(&opts), 3);
    opts.no_children = true;
    CHECK_INT(capture_count_targets(&opts), 1);
    opts = (struct capture_opts){0};
    CHECK_INT(capture_count_targets(&opts), 0);
    close(ends[0]);
    kill(parent, SIGKILL); // its children go with it
    CHECK_INT(waitpid(parent, &status, 0), parent);
}
