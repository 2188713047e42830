// SPDX-License-Identifier: Apache-2.0
// Step protocol: processes whose clock is another than the reader's, as they are in a time
// namespace.
#include "tests/unit/test_step_rig.h"

#include "tests/unit/test_time_rig.h"

#define AHEAD_NS 7200123456789ll // two hours, and no multiple of a tick

static void run_steps(void *arg)
{
    for (uint32_t i = 0; i < *(const uint32_t *)arg; i++) {
        ug_step_begin();
        ug_step_end(1);
    }
}

static void run_steps_and_stay(void *arg)
{
    run_steps(arg);
    for (;;) {
        pause();
    }
}

static void run_unsaid(void *arg)
{
    ug_step_begin();
    ug_step_state_v2.slot->time_namespace = *(const uint64_t *)arg;
    ug_step_end(1);
    for (;;) {
        pause();
    }
}

static struct reader_slot slot_of(const struct rig *rig, uint32_t slot_idx)
{
    struct reader_slot slot = {0};

    CHECK_INT(reader_slot(rig->reader, slot_idx, &slot), 0);
    return slot;
}

static uint64_t unplaced_of(const struct rig *rig, uint32_t slot_idx)
{
    struct reader_counters counters = {0};

    CHECK_INT(reader_counters(rig->reader, slot_idx, &counters), 0);
    return counters.records_unplaced;
}

// Until it has made so many steps.
static void wait_steps(const struct rig *rig, uint32_t slot_idx, uint32_t steps)
{
    int64_t deadline_ns = rig_deadline(60);

    rig_wait_claimed(rig, slot_idx + 1);
    while (slot_of(rig, slot_idx).steps < steps && clock_monotonic_ns() < deadline_ns) {
        clock_sleep_until_ns(clock_monotonic_ns() + 1000000);
    }
    CHECK_INT(slot_of(rig, slot_idx).steps, steps);
}

static void end(pid_t pid)
{
    kill(pid, SIGKILL);
    rig_join(pid);
}

// All that was received lies between.
static void check_log(const struct rig *rig, uint64_t steps, int64_t from_ns, int64_t until_ns)
{
    CHECK_INT(rig_count(rig, UG_RECORD_STEP), steps);
    for (uint64_t i = 0; i < rig->log_count; i++) {
        CHECK(rig->log[i].begin_ns >= (uint64_t)from_ns &&
                rig->log[i].begin_ns <= rig->log[i].end_ns &&
                rig->log[i].end_ns <= (uint64_t)until_ns);
        CHECK_INT(rig->log[i].sched_ns, 0);
    }
}

TEST(held_let_go_and_read_by_our_clock)
{
    uint32_t steps = 4;
    struct rig rig = rig_make(NULL);
    int64_t begin_ns = clock_monotonic_ns();
    pid_t pid;

    time_rig_enter(AHEAD_NS, AHEAD_NS + 3456789);
    pid = rig_fork(run_steps, &steps);
    for (uint32_t done = 0; done < steps; done += 2) {
        CHECK_INT(reader_wait_held(rig.reader, 1, rig_deadline(60)), 0);
        CHECK(reader_slot_alive(rig.reader, 0)); // by the moment of its start, which it says itself
        CHECK_INT(slot_of(&rig, 0).clock_code, 0);
        CHECK_INT(slot_of(&rig, 0).clock_ahead_ns, AHEAD_NS);
        CHECK(slot_of(&rig, 0).hold_begin_ns >= (uint64_t)begin_ns &&
                slot_of(&rig, 0).hold_begin_ns <= (uint64_t)clock_monotonic_ns());
        CHECK(slot_of(&rig, 0).claim_ns >= (uint64_t)begin_ns &&
                slot_of(&rig, 0).claim_ns <= slot_of(&rig, 0).hold_begin_ns);
        reader_grant(rig.reader, 2);
    }
    CHECK_INT(reader_wait_held(rig.reader, 1, rig_deadline(60)), -ESRCH);
    CHECK_INT(rig_join(pid), 0);
    CHECK(!reader_slot_alive(rig.reader, 0));
    rig_drain(&rig, 0);
    check_log(&rig, steps, begin_ns, clock_monotonic_ns());
    CHECK_INT(rig_count(&rig, UG_RECORD_HOLD), 2);
    CHECK_INT(unplaced_of(&rig, 0), 0);
    rig_free(&rig);
}

TEST(one_that_has_ended_is_placed_by_another_of_its_namespace)
{
    uint32_t steps = 5;
    struct rig rig = rig_make(&(struct reader_opts){.open = true});
    int64_t begin_ns = clock_monotonic_ns();
    pid_t stays;

    time_rig_enter(AHEAD_NS, AHEAD_NS);
    stays = rig_fork(run_steps_and_stay, &steps);
    wait_steps(&rig, 0, steps);
    CHECK_INT(rig_join(rig_fork(run_steps, &steps)), 0);
    CHECK_INT(slot_of(&rig, 1).clock_ahead_ns, AHEAD_NS);
    rig_drain(&rig, 0);
    rig_drain(&rig, 1);
    check_log(&rig, 2 * (uint64_t)steps, begin_ns, clock_monotonic_ns());
    end(stays);
    rig_free(&rig);
}

TEST(one_that_nobody_can_place_any_more_says_nothing)
{
    uint32_t steps = 5;
    struct rig rig = rig_make(&(struct reader_opts){.open = true});

    time_rig_enter(AHEAD_NS, AHEAD_NS);
    CHECK_INT(rig_join(rig_fork(run_steps, &steps)), 0);
    CHECK_INT(slot_of(&rig, 0).clock_code, -ESRCH);
    CHECK_INT(slot_of(&rig, 0).claim_ns, 0);
    CHECK_INT(slot_of(&rig, 0).steps, steps);
    rig_drain(&rig, 0);
    CHECK_INT(rig.log_count, 0);
    CHECK_INT(unplaced_of(&rig, 0), steps);
    rig_free(&rig);
}

TEST(one_that_does_not_say_is_asked)
{
    uint64_t inode = 0; // a writer before there were such
    struct rig rig = rig_make(&(struct reader_opts){.open = true});
    int64_t begin_ns = clock_monotonic_ns();
    pid_t pid;

    time_rig_enter(AHEAD_NS, AHEAD_NS);
    pid = rig_fork(run_unsaid, &inode);
    wait_steps(&rig, 0, 1);
    CHECK_INT(slot_of(&rig, 0).clock_code, 0);
    CHECK_INT(slot_of(&rig, 0).clock_ahead_ns, AHEAD_NS);
    CHECK(reader_slot_alive(rig.reader, 0));
    rig_drain(&rig, 0);
    check_log(&rig, 1, begin_ns, clock_monotonic_ns());
    end(pid);
    rig_free(&rig);
}

TEST(one_that_lies_is_not_believed)
{
    uint64_t inode = 12345;
    struct rig rig = rig_make(&(struct reader_opts){.open = true});
    pid_t pid = rig_fork(run_unsaid, &inode);

    wait_steps(&rig, 0, 1);
    CHECK(slot_of(&rig, 0).clock_code < 0);
    CHECK(reader_slot_alive(rig.reader, 0));
    rig_drain(&rig, 0);
    CHECK_INT(rig.log_count, 0);
    CHECK_INT(unplaced_of(&rig, 0), 1);
    end(pid);
    rig_free(&rig);
}

TEST(one_before_us_is_asked_by_its_number_and_ended_is_taken_for_ours)
{
    uint64_t inode = 0;
    struct rig rig = rig_make(&(struct reader_opts){.open = true});
    int64_t begin_ns = clock_monotonic_ns();
    pid_t pid = rig_fork(run_unsaid, &inode);

    rig_wait_claimed(&rig, 1);
    end(pid);
    CHECK_INT(slot_of(&rig, 0).clock_code, 0);
    CHECK_INT(slot_of(&rig, 0).clock_ahead_ns, 0);
    rig_drain(&rig, 0);
    check_log(&rig, rig_count(&rig, UG_RECORD_STEP), begin_ns, clock_monotonic_ns());
    rig_free(&rig);
}
