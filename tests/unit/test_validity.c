// SPDX-License-Identifier: Apache-2.0
// Which pairs do not count. Pairs are made by hand here: covariates as the store has them, and
// counters of a step file that nobody has written to.
#include "harness/run/validity.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/unit/runner.h"

static bool last_note; // did the check say something about a pair that counts?

struct made {
    struct pair pair;
    struct launch launches[2];
};

static json_t *made_covariates(int64_t window_ns, int64_t foreign_ns)
{
    return json_pack("{s:I, s:I, s:i, s:i}", "window_ns", (json_int_t)window_ns, "foreign_cpu_ns",
            (json_int_t)foreign_ns, "suspended_ns", 0, "throttle_events", 0);
}

static struct made *made_new(int64_t window_ns)
{
    struct made *made = calloc(1, sizeof *made);
    for (int side = 0; side < 2; side++) {
        char path[64];
        snprintf(path, sizeof path, "/dev/shm/upgate-test-validity-%d-%d", getpid(), side);
        CHECK_INT(reader_create(&made->launches[side].reader, path,
                          &(struct reader_opts){.slot_count = 1}, NULL),
                0);
        made->launches[side].cpu_ns = window_ns;
        made->pair.launches[side] = &made->launches[side];
        made->pair.covariates[side] = made_covariates(window_ns, 0);
    }
    return made;
}

static void made_set(struct made *made, int side, const char *name, int64_t value)
{
    json_object_set_new(made->pair.covariates[side], name, json_integer((json_int_t)value));
}

// The reason begins with the text ("" = valid), and points at this side.
static void check_validity(
        struct made *made, enum plan_interleave interleave, const char *text, int side)
{
    struct validity validity = validity_check(&made->pair, interleave);
    if (*text)
        CHECK_CONTAINS(validity.reason ? validity.reason : "valid", text);
    else
        CHECK_STR(validity.reason ? validity.reason : "", "");
    CHECK_INT(validity.side, side);
    last_note = validity.note != NULL;
    free(validity.reason);
    free(validity.note);
    for (int i = 0; i < 2; i++) {
        json_decref(made->pair.covariates[i]);
        reader_free(made->launches[i].reader);
    }
    free(made);
}

TEST(quiet_pairs_count)
{
    check_validity(made_new(1000000000), PLAN_INTERLEAVE_STEPS, "", -1);
    check_validity(made_new(1000000000), PLAN_INTERLEAVE_LAUNCHES, "", -1);
}

TEST(a_side_that_was_never_started)
{
    struct made *made = made_new(1000000000);
    made->pair.launches[0] = NULL;
    check_validity(made, PLAN_INTERLEAVE_LAUNCHES, "", -1);
}

TEST(a_suspend_voids)
{
    struct made *made = made_new(1000000000);
    made_set(made, 0, "suspended_ns", 9000000); // slewing of a clock
    check_validity(made, PLAN_INTERLEAVE_STEPS, "", -1);
    made = made_new(1000000000);
    made_set(made, 1, "suspended_ns", 2000000000);
    check_validity(made, PLAN_INTERLEAVE_STEPS, "suspended", -1);
}

TEST(work_in_the_turns_of_the_other_voids)
{
    struct made *made = made_new(1000000000);
    made->launches[1].overlap_ns = 9000000; // under a hundredth of its CPU time
    check_validity(made, PLAN_INTERLEAVE_STEPS, "", -1);
    made = made_new(1000000000);
    made->launches[1].overlap_ns = 11000000;
    check_validity(made, PLAN_INTERLEAVE_STEPS, "in the turns of the other", 1);
}

// Synthetic readings of a VM from which the hypervisor takes 37 %: CPU time of the turns in which
// the side had not stopped, and what was stolen in them.
TEST(what_was_stolen_is_no_work)
{
    struct made *made = made_new(1600000000);
    made->launches[1].overlap_ns = 600000000;
    made->launches[1].overlap_steal_ns = 590000000;
    check_validity(made, PLAN_INTERLEAVE_STEPS, "", -1);
    CHECK(last_note);
    made = made_new(1600000000); // the ticks of steal are coarse: more than was counted
    made->launches[0].overlap_ns = 20000000;
    made->launches[0].overlap_steal_ns = 30000000;
    check_validity(made, PLAN_INTERLEAVE_SLICES, "", -1);
    CHECK(last_note);
    made = made_new(1600000000); // stolen, and yet it worked
    made->launches[1].overlap_ns = 600000000;
    made->launches[1].overlap_steal_ns = 400000000;
    check_validity(made, PLAN_INTERLEAVE_STEPS,
            "a side went on working in the turns of the other: 200 ms of 1600 ms of CPU time, without what",
            1);
    made = made_new(1600000000); // little of either: nothing to say
    made->launches[1].overlap_ns = 15000000;
    made->launches[1].overlap_steal_ns = 10000000;
    check_validity(made, PLAN_INTERLEAVE_STEPS, "", -1);
    CHECK(!last_note);
}

TEST(steal_beside_one_launch_voids)
{
    struct made *made = made_new(1000000000);
    made_set(made, 0, "steal_ns", 370000000);
    made_set(made, 1, "steal_ns", 20000000);
    check_validity(made, PLAN_INTERLEAVE_LAUNCHES,
            "the hypervisor took 37 % of a CPU beside one side and 2 %", 0);
    made = made_new(1000000000);
    made_set(made, 0, "steal_ns", 370000000);
    made_set(made, 1, "steal_ns", 350000000);
    check_validity(made, PLAN_INTERLEAVE_LAUNCHES, "", -1); // alike
    made = made_new(1000000000);
    made_set(made, 0, "steal_ns", 370000000);
    made_set(made, 1, "steal_ns", 20000000);
    check_validity(made, PLAN_INTERLEAVE_STEPS, "", -1); // in turns it meets both
}

TEST(throttling_of_one_side_voids)
{
    struct made *made = made_new(1000000000);
    made_set(made, 1, "throttle_events", 3);
    check_validity(made, PLAN_INTERLEAVE_LAUNCHES, "throttled", 1);
    made = made_new(1000000000);
    made_set(made, 0, "throttle_events", 2);
    made_set(made, 1, "throttle_events", 3);
    check_validity(made, PLAN_INTERLEAVE_LAUNCHES, "", -1); // both
    made = made_new(1000000000);
    made_set(made, 1, "throttle_events", 3);
    json_object_set_new(made->pair.covariates[0], "throttle_events", json_null()); // not told
    check_validity(made, PLAN_INTERLEAVE_LAUNCHES, "", -1);
}

TEST(foreign_use_beside_one_launch_voids)
{
    struct made *made = made_new(1000000000);
    made_set(made, 1, "foreign_cpu_ns", 300000000);
    check_validity(made, PLAN_INTERLEAVE_LAUNCHES,
            "other processes used 0 % of a CPU beside one side and 30 %", 1);
    made = made_new(1000000000);
    made_set(made, 0, "foreign_cpu_ns", 300000000);
    check_validity(made, PLAN_INTERLEAVE_LAUNCHES,
            "other processes used 30 % of a CPU beside one side and 0 %", 0);
    made = made_new(1000000000);
    made_set(made, 0, "foreign_cpu_ns", 300000000);
    made_set(made, 1, "foreign_cpu_ns", 290000000);
    check_validity(made, PLAN_INTERLEAVE_LAUNCHES, "", -1); // alike
    made = made_new(1000000000);
    made_set(made, 1, "foreign_cpu_ns", 300000000);
    check_validity(made, PLAN_INTERLEAVE_STEPS, "", -1); // in turns it meets both
}

TEST(a_tick_is_no_foreign_process)
{
    struct made *made = made_new(50000000); // 10 ms of 50 ms: the resolution of /proc/stat
    made_set(made, 1, "foreign_cpu_ns", 20000000);
    check_validity(made, PLAN_INTERLEAVE_LAUNCHES, "", -1);
    made = made_new(50000000);
    made_set(made, 1, "foreign_cpu_ns", 50000000);
    check_validity(made, PLAN_INTERLEAVE_LAUNCHES, "other processes", 1);
}
