// SPDX-License-Identifier: Apache-2.0
// What a launch recorded, in its rows: requests of its servers, counted by how they were answered.
#include "tests/unit/test_step_rig.h"

#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#include "harness/gate/measure/pair_rows.h"
#include "harness/run/samples.h"
#include "tests/unit/gate_world.h"

static struct world world;

static void serve(void *arg)
{
    static const uint32_t statuses[] = {200, 404, 499, 500, 503, 99, 0};
    (void)arg;
    ug_step_begin(); // the process claims its slot
    ug_step_end(1);
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++)
        ug_request_done(1, statuses[i], false);
    ug_request_done(1, 200, true);
    ug_request_done(1, 500, true);
}

static void idle(void *arg)
{
    (void)arg;
    ug_step_begin();
    ug_step_end(1);
}

// The rows of the first launch of a pair that the child recorded, as the gate reads them.
static struct pair_rows recorded(void (*work)(void *), int times)
{
    struct rig rig = rig_make(&(struct reader_opts){.open = true});
    struct samples samples = {0};
    struct launch launch = {.reader = rig.reader, .started_ns = 1};
    struct pair_head *heads = NULL;
    struct pair_rows rows;
    struct error err = {0};
    int count = 0;
    world_open(&world, NULL, NULL);
    world_pair(&world,
            (struct world_pair){.interleave = "launches", .no_steps_a = 1, .no_steps_b = 1});
    for (int i = 0; i < times; i++)
        CHECK_INT(rig_join(rig_fork(work, NULL)), 0);
    samples_drain(&samples, rig.reader);
    CHECK_INT(store_begin(world.store, &err), 0);
    CHECK_INT(samples_store(&samples, &launch, 1, world.store, &err), 0);
    CHECK_INT(store_commit(world.store, &err), 0);
    CHECK_INT(pair_heads_load(world.store, 1, &heads, &count, &err), 0);
    CHECK_INT(count, 1);
    CHECK_INT(pair_rows_load(world.store, &heads[0], true, &rows, &err), 0);
    free(heads);
    samples_free(&samples);
    rig_free(&rig);
    return rows;
}

TEST(requests_are_counted_by_how_they_were_answered)
{
    struct pair_rows rows = recorded(serve, 2);
    CHECK_DBL(rows.sides[0].requests, 18, 0);
    CHECK_DBL(rows.sides[0].requests_failed, 10, 0); // 500, 503, 99, 0, and 500 that was wrong, too
    CHECK_DBL(rows.sides[0].requests_wrong, 4, 0);
    CHECK(isnan(rows.sides[1].requests)); // of the other launch nobody told any
    CHECK_INT(world_number(&world,
                      "SELECT count(*) FROM launch_value WHERE name LIKE 'upgate.requests%'"),
            3);
    pair_rows_clear(&rows);
    world_close(&world);
}

static void idle_as_rank_3(void *arg)
{
    setenv("RANK", "3", 1);
    idle(arg);
}

TEST(processes_of_one_rank_are_kept_apart)
{
    static const char *const names[] = {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
    setenv("SLURM_PROCID", "0", 1); // of the batch script around them
    struct pair_rows rows = recorded(idle, 3);
    CHECK_INT(world_number(&world, "SELECT count(*) FROM step WHERE launch_id = 1"), 3);
    CHECK_INT(
            world_number(&world,
                    "SELECT count(DISTINCT rank) FROM step WHERE launch_id = 1 AND rank BETWEEN 0 AND 2"),
            3);
    CHECK_INT(
            world_number(&world,
                    "SELECT count(DISTINCT pid) FROM launch_rank WHERE launch_id = 1 AND rank BETWEEN 0 AND 2"),
            3);
    pair_rows_clear(&rows);
    world_close(&world);
}

TEST(a_rank_that_comes_twice_is_counted_on)
{
    struct pair_rows rows = recorded(idle_as_rank_3, 2);
    CHECK_INT(world_number(
                      &world, "SELECT count(*) FROM step WHERE launch_id = 1 AND rank IN (3, 7)"),
            2);
    pair_rows_clear(&rows);
    world_close(&world);
}

// The header of the file of steps. pid: it is written into the slot, as a process does at the begin
// of its claim; NULL: nothing is.
static struct ug_step_header claims(uint32_t slot, const uint32_t *pid)
{
    struct ug_step_header header;
    int fd = open(getenv("UPGATE_STEPS"), O_RDWR | O_CLOEXEC);
    if (fd < 0 || pread(fd, &header, sizeof header, 0) != (ssize_t)sizeof header ||
            (pid &&
                    pwrite(fd, pid, sizeof *pid,
                            (off_t)(header.slots_offset + slot * sizeof(struct ug_step_slot))) !=
                            (ssize_t)sizeof *pid))
        exit(1);
    close(fd);
    return header;
}

static void idle_behind_one_that_was_killed(void *arg)
{
    const uint32_t nobody = 4100000; // in the middle of its claim
    claims(0, &nobody);
    setenv("RANK", "0", 1);
    idle(arg);
}

TEST(a_slot_of_nobody_takes_no_rank)
{
    _Static_assert(offsetof(struct ug_step_slot, pid) == 0, "is written first");
    struct pair_rows rows = recorded(idle_behind_one_that_was_killed, 1);
    CHECK_INT(world_number(&world, "SELECT rank FROM step WHERE launch_id = 1"), 0);
    CHECK_INT(world_number(&world, "SELECT rank FROM launch_rank WHERE launch_id = 1"), 0);
    pair_rows_clear(&rows);
    world_close(&world);
}

// The first one makes its step before the job that has ranks begins.
static void second_is_told_rank_0(void *arg)
{
    static const char *const names[] = {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"};
    bool first = claims(0, NULL).claims_count == 0;
    (void)arg;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
    if (!first)
        setenv("RANK", "0", 1);
    ug_step_begin();
    ug_step_end(first ? 1 : 2);
}

TEST(who_was_told_a_rank_keeps_it)
{
    struct pair_rows rows = recorded(second_is_told_rank_0, 2);
    CHECK_INT(world_number(&world, "SELECT count(*) FROM step WHERE launch_id = 1"), 2);
    CHECK_INT(world_number(&world, "SELECT samples FROM step WHERE launch_id = 1 AND rank = 0"), 2);
    CHECK_INT(world_number(&world, "SELECT samples FROM step WHERE launch_id = 1 AND rank = 1"), 1);
    pair_rows_clear(&rows);
    world_close(&world);
}

TEST(without_requests_there_is_no_row)
{
    struct pair_rows rows = recorded(idle, 1);
    CHECK(isnan(rows.sides[0].requests) && isnan(rows.sides[0].requests_failed) &&
            isnan(rows.sides[0].requests_wrong));
    CHECK_INT(world_number(&world, "SELECT count(*) FROM launch_value WHERE name LIKE 'upgate.%'"),
            0);
    pair_rows_clear(&rows);
    world_close(&world);
}

enum { OUTPUTS = 64000 };

static void record_outputs(void *arg)
{
    double value = 3;
    (void)arg;
    for (int i = 0; i < OUTPUTS; i++) {
        ug_step_begin();
        ug_step_tensor("o", UG_DTYPE_FLOAT64, &value, 1);
        ug_step_end(1);
    }
}

TEST(outputs_beyond_the_room_of_a_launch_are_kept_by_digest)
{
    enum { KEPT = SAMPLES_TENSOR_BYTES_MAX / (SAMPLES_TENSOR_BYTES_MIN + 8) };
    struct pair_rows rows = recorded(record_outputs, 1);
    CHECK_INT(world_number(&world, "SELECT count(*) FROM tensor"), OUTPUTS);
    CHECK_INT(world_number(&world, "SELECT count(*) FROM tensor WHERE length(data) = 8"), KEPT);
    CHECK_INT(world_number(&world, "SELECT count(*) FROM tensor WHERE length(data) = 0"),
            OUTPUTS - KEPT);
    CHECK_INT(world_number(&world, "SELECT count(DISTINCT digest) FROM tensor"), 1);
    CHECK_INT(world_number(&world,
                      "SELECT dropped FROM ledger WHERE kind = 'values of outputs beyond 16 MiB'"),
            OUTPUTS - KEPT);
    CHECK_INT(world_number(
                      &world, "SELECT count(*) FROM ledger WHERE kind = 'tensors beyond 16 MiB'"),
            0);
    pair_rows_clear(&rows);
    world_close(&world);
}

static void record_late_names(void *arg)
{
    double value = 3;
    (void)arg;
    for (int i = 0; i < OUTPUTS; i++) {
        char name[16];
        if (i < OUTPUTS - 200)
            snprintf(name, sizeof name, "o");
        else
            snprintf(name, sizeof name, "late %d", i % 100);
        ug_step_begin();
        ug_step_tensor(name, UG_DTYPE_FLOAT64, &value, 1);
        ug_step_end(1);
    }
}

TEST(the_first_outputs_of_late_names_keep_their_values)
{
    struct pair_rows rows = recorded(record_late_names, 1);
    CHECK_INT(world_number(&world, "SELECT count(*) FROM tensor WHERE name LIKE 'late%'"), 200);
    CHECK_INT(world_number(&world,
                      "SELECT count(*) FROM tensor WHERE name LIKE 'late%' AND length(data) = 8"),
            SAMPLES_TENSOR_LATE_MAX);
    CHECK_INT(
            world_number(&world,
                    "SELECT min(step) FILTER (WHERE length(data) = 0) - max(step) FILTER (WHERE length(data) = 8) FROM tensor "
                    "WHERE name LIKE 'late%'"),
            1);
    pair_rows_clear(&rows);
    world_close(&world);
}
