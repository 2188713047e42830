// SPDX-License-Identifier: Apache-2.0
// The controller and what comes from outside: people, signals, windows, clocks that jump, stores
// that fail, kills at every moment.
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <unistd.h>

#include "common/strings.h"
#include "tests/unit/canary_rig.h"
#include "tests/unit/runner.h"
#include "tracer/store/store.h"

static int64_t script_ns;

// --- people --------------------------------------------------------------------------------------

static void abort_it(struct canary_world *world)
{
    if (world->set_count == 2 && world->kill_at_poll == 0) {
        world->kill_at_poll = -1; // once
        rig_ask(REQUEST_PROMOTE);
        rig_ask(REQUEST_ABORT);
    }
}

TEST(abort_while_promoting)
{
    rig_begin(STAGES);
    canary_world->script = abort_it;
    CHECK_INT(rig_run(), 3);
    CHECK_DBL(canary_world->percent, 0, 0);
    CHECK_STR(rig_text("SELECT state FROM rollout"), "aborted");
    CHECK_STR(rig_text("SELECT who FROM rollout_decision ORDER BY id DESC LIMIT 1"), "ann");
    rig_end();
}

static void pause_and_resume(struct canary_world *world)
{
    if (world->set_count == 1 && !script_ns) {
        rig_ask(REQUEST_PAUSE);
        script_ns = world->now_ns;
    } else if (script_ns > 0 && world->now_ns > script_ns + 100 * (int64_t)NS) {
        rig_ask(REQUEST_RESUME);
        script_ns = -1;
    }
}

TEST(a_pause_waits_for_its_person)
{
    rig_begin(STAGES);
    canary_world->script = pause_and_resume;
    // a pause that was asked for is no pause that waits in vain
    CHECK_INT(rig_run_with(1, false), 0);
    CHECK(canary_world->set_ns[1] - canary_world->set_ns[0] > 100 * (int64_t)NS);
    CHECK_INT(rig_int("SELECT count(*) FROM rollout_request WHERE taken_ns IS NOT NULL"), 2);
    rig_end();
}

static void pause_reload_kill(struct canary_world *world)
{
    if (world->set_count == 1 && !script_ns) {
        rig_ask(REQUEST_PAUSE);
        script_ns = world->now_ns;
    } else if (script_ns > 0 && world->now_ns > script_ns + 5 * (int64_t)NS) {
        world->anew = true;
        world->percent = 0;
        world->kill_at_poll = world->polls + 30;
        script_ns = -1;
    }
}

static void resume_later(struct canary_world *world)
{
    if (!script_ns)
        script_ns = world->now_ns;
    if (script_ns > 0 && world->now_ns > script_ns + 100 * (int64_t)NS) {
        rig_ask(REQUEST_RESUME);
        script_ns = -1;
    }
}

TEST(a_pause_outlasts_the_proxy_and_the_controller)
{
    rig_begin(STAGES);
    canary_world->script = pause_reload_kill;
    CHECK_INT(rig_run(), KILLED);
    CHECK_DBL(canary_world->percent, 10, 0); // what the stage had, though it is paused
    CHECK_STR(rig_text(LAST_RULE), "proxy");
    CHECK_STR(rig_text("SELECT state FROM rollout"), "paused");
    canary_world->kill_at_poll = 0;
    canary_world->script = resume_later;
    int64_t began = canary_world->now_ns;
    CHECK_INT(rig_run_with(1, false), 0); // still the person's
    CHECK(canary_world->set_ns[2] - began > 100 * (int64_t)NS);
    rig_end();
}

static void one_signal(struct canary_world *world)
{
    if (world->set_count == 2 && !script_ns) {
        script_ns = 1;
        raise(SIGTERM);
    }
}

static void two_signals(struct canary_world *world)
{
    if (world->set_count == 2 && script_ns < 2) {
        script_ns++;
        raise(SIGINT);
    }
}

static void hang_up(struct canary_world *world)
{
    if (world->set_count == 2 && script_ns < 2) { // as a shell and the kernel do
        script_ns++;
        raise(SIGHUP);
    }
}

TEST(a_terminal_that_goes_ends_nothing)
{
    rig_begin(STAGES);
    canary_world->script = hang_up;
    CHECK_INT(rig_run(), 0);
    CHECK_DBL(canary_world->percent, 100, 0);
    rig_end();
}

TEST(signals)
{
    rig_begin(STAGES);
    canary_world->script = one_signal;
    CHECK_INT(rig_run(), 3);
    CHECK_DBL(canary_world->percent, 50, 0);
    CHECK_STR(rig_text("SELECT state FROM rollout"), "paused");
    canary_world->script = NULL;
    CHECK_INT(rig_run(), 0);
    rig_end();
    rig_begin(STAGES);
    canary_world->script = two_signals;
    CHECK_INT(rig_run(), 3);
    CHECK_DBL(canary_world->percent, 0, 0);
    rig_end();
}

static void promote_later(struct canary_world *world)
{
    if (!script_ns)
        script_ns = world->now_ns;
    if (script_ns > 0 && world->now_ns > script_ns + 60 * (int64_t)NS) {
        script_ns = -1;
        rig_ask(REQUEST_PROMOTE);
    }
}

TEST(a_freeze_and_a_person)
{
    // the world is in there
    rig_begin("stages: [{percent: 100, soak: 3s}]\nfreeze: [2026-11-01/2027-11-01]\n");
    canary_world->script = promote_later;
    CHECK_INT(rig_run(), 0);
    // said once
    CHECK_INT(rig_int("SELECT count(*) FROM rollout_decision WHERE rule = 'freeze'"), 1);
    CHECK_CONTAINS(rig_text("SELECT reason FROM rollout_decision WHERE rule = 'freeze'"),
            "not before 2027-11-02 00:00 UTC");
    CHECK(canary_world->set_ns[0] > 1000000000000 + 60 * (int64_t)NS);
    rig_end();
}

// --- clocks and stores ---------------------------------------------------------------------------

static void jump(struct canary_world *world)
{
    if (world->set_count == 1 && !script_ns && world->now_ns > world->set_ns[0] + 2 * NS) {
        script_ns = 1;
        world->wall_offset_ns += 3600 * (int64_t)NS;
    }
}

static void jump_back(struct canary_world *world)
{
    if (world->set_count == 1 && !script_ns && world->now_ns > world->set_ns[0] + 2 * NS) {
        script_ns = 1;
        world->wall_offset_ns -= 3600 * (int64_t)NS;
    }
}

TEST(a_clock_that_jumps_is_no_soak)
{
    for (int back = 0; back < 2; back++) {
        rig_begin(STAGES);
        canary_world->script = back ? jump_back : jump;
        CHECK_INT(rig_run(), 0);
        CHECK_INT(
                rig_int("SELECT count(*) FROM rollout_decision WHERE rule = 'clock' AND state_to = 'running'"),
                1);
        // 2 s, and the whole soak again
        CHECK((canary_world->set_ns[1] - canary_world->set_ns[0]) >= 5 * (int64_t)NS);
        CHECK((canary_world->set_ns[1] - canary_world->set_ns[0]) < 15 * (int64_t)NS);
        CHECK_INT(canary_world->opens, 2);
        rig_end();
    }
}

static void fill_disk(struct canary_world *world)
{
    if (world->set_count == 2 && !script_ns) {
        script_ns = 1;
        char *command = xasprintf("dd if=/dev/zero of=%s/fill bs=4096 >/dev/null 2>&1", rig_dir);
        (void)!system(command);
        free(command);
    }
}

TEST(a_full_disk_leads_to_the_baseline)
{
    rig_begin(STAGES);
    if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
            mount("tmpfs", rig_dir, "tmpfs", 0, "size=1m"))
        runner_skip("cannot mount a small tmpfs (needs root)");
    rig_plan(STAGES);
    canary_world->script = fill_disk;
    CHECK_INT(rig_run(), 4);
    CHECK_DBL(canary_world->percent, 0, 0);
    umount(rig_dir);
    rig_end();
}

static void make_read_only(struct canary_world *world)
{
    if (world->set_count == 2 && !script_ns) {
        script_ns = 1;
        // Another mount over it: the one with our open files cannot be changed.
        if (mount(rig_dir, rig_dir, NULL, MS_BIND, NULL) ||
                mount("none", rig_dir, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL))
            _exit(97);
    }
}

TEST(a_store_that_turns_read_only)
{
    rig_begin(STAGES);
    if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
            mount(rig_dir, rig_dir, NULL, MS_BIND, NULL))
        runner_skip("cannot mount (needs root)");
    canary_world->script = make_read_only;
    CHECK_INT(rig_run(), 4);
    CHECK_DBL(canary_world->percent, 0, 0);
    // Started on a read-only store of a rollout that has traffic: to the baseline, too.
    canary_world->percent = 50;
    canary_world->script = NULL;
    CHECK_INT(rig_run(), REFUSED + EROFS);
    CHECK_DBL(canary_world->percent, 0, 0);
    umount2(rig_dir, MNT_DETACH);
    umount2(rig_dir, MNT_DETACH);
    rig_end();
}

// --- killed --------------------------------------------------------------------------------------

TEST(a_changed_plan_is_refused)
{
    rig_begin(STAGES);
    canary_world->kill_at_poll = 60;
    CHECK_INT(rig_run(), KILLED);
    canary_world->kill_at_poll = 0;
    rig_plan(
            "stages: [{percent: 10, soak: 1s, warm_up: 1s}, {percent: 50, soak: 3s, warm_up: 1s}, {percent: 100, soak: 3s, warm_up: 1s}]\n");
    double before = canary_world->percent;
    CHECK_INT(rig_run(), REFUSED + EINVAL);
    CHECK_DBL(canary_world->percent, before, 0);
    rig_plan(STAGES);
    CHECK_INT(rig_run(), 0);
    rig_end();
}

// As an older version stored it, which did not know the key: its default is no change.
TEST(a_key_that_is_new_is_no_change)
{
    rig_begin(STAGES);
    canary_world->kill_at_poll = 60;
    CHECK_INT(rig_run(), KILLED);
    canary_world->kill_at_poll = 0;
    struct store *store = NULL;
    struct error err = {0};
    CHECK_INT(store_open(rig_store, STORE_WRITE, &store, &err), 0);
    CHECK_INT(store_exec(store, &err,
                      "UPDATE rollout SET plan = json_remove(plan, '$.gate.tripwires.alone')", ""),
            0);
    store_close(store);
    CHECK_INT(rig_int("SELECT instr(plan, '\"alone\"') FROM rollout"), 0);
    CHECK_INT(rig_run(), 0);
    rig_end();
}

// Killed before and after each weight that is set, and now and then between: each time a start goes
// on, and at the end all have it.
TEST(killed_at_every_move)
{
    for (int moment = 1; moment <= 6; moment++) {
        rig_begin(STAGES);
        canary_world->kill_at_set = moment;
        CHECK_INT(rig_run(), KILLED);
        canary_world->kill_at_set = 0;
        double at_kill = canary_world->percent;
        CHECK_INT(rig_run(), 0);
        CHECK_DBL(canary_world->percent, 100, 0);
        // No stage was entered before the one below it had passed.
        CHECK_INT(rig_int("SELECT count(*) FROM rollout_stage WHERE result = 'passed'"), 3);
        for (int i = 1; i < canary_world->set_count; i++)
            CHECK(canary_world->sets[i] <= canary_world->sets[i - 1] ||
                    canary_world->sets[i] == 10 ||
                    (canary_world->sets[i] == 50 && canary_world->sets[i - 1] == 10) ||
                    (canary_world->sets[i] == 100 && canary_world->sets[i - 1] == 50));
        CHECK(at_kill <= 100);
        rig_end();
    }
}

// Killed, and the proxy is now one that no rollout may have: nobody watches the candidate, so it
// gets nothing more.
TEST(killed_and_cannot_go_on)
{
    // the first weight set, not yet confirmed; the second to be set, and set
    for (int moment = 2; moment <= 4; moment++) {
        rig_begin(STAGES);
        canary_world->kill_at_set = moment;
        CHECK_INT(rig_run(), KILLED);
        canary_world->kill_at_set = 0;
        CHECK(canary_world->percent > 0);
        canary_world->open_fails = true;
        CHECK_INT(rig_run(), REFUSED + EINVAL);
        CHECK_DBL(canary_world->percent, 0, 0);
        canary_world->open_fails = false;
        CHECK_INT(rig_run(), 0);
        rig_end();
    }
    rig_begin(STAGES); // the same within a stage: the next start goes on
    canary_world->kill_at_poll = 20;
    CHECK_INT(rig_run(), KILLED);
    canary_world->kill_at_poll = 0;
    CHECK_DBL(canary_world->percent, 10, 0);
    canary_world->open_fails = true;
    CHECK_INT(rig_run(), REFUSED + EINVAL);
    CHECK_DBL(canary_world->percent, 0, 0);
    canary_world->open_fails = false;
    CHECK_INT(rig_run(), 0);
    CHECK_DBL(canary_world->percent, 100, 0);
    CHECK_INT(rig_int("SELECT count(*) FROM rollout_decision WHERE state_to = 'paused'"), 0);
    rig_end();
}

static void refuse_sets(struct canary_world *world)
{
    if (world->set_count == 1)
        world->fail_sets = -1;
}

// The second move up failed, the way back too, and the store was locked for that decision: the last
// one stored leads up.
TEST(a_rollout_that_failed_on_a_move_up_does_not_go_on_with_it)
{
    rig_begin(STAGES);
    canary_world->script = refuse_sets;
    CHECK_INT(rig_run(), 4);
    CHECK_DBL(canary_world->percent, 10, 0);
    struct store *store = NULL;
    struct error err = {0};
    CHECK_INT(store_open(rig_store, STORE_WRITE, &store, &err), 0);
    CHECK_INT(
            store_exec(store, &err,
                    "DELETE FROM rollout_decision WHERE id = (SELECT max(id) FROM rollout_decision)",
                    ""),
            0);
    store_close(store);
    CHECK_STR(rig_text(LAST_RULE), "soak");
    canary_world->script = NULL;
    canary_world->fail_sets = 0;
    CHECK_INT(rig_run(), 4);
    CHECK_INT(canary_world->set_count, 2);
    CHECK_DBL(canary_world->percent, 0, 0);
    CHECK_STR(rig_text("SELECT state FROM rollout"), "failed");
    rig_end();
}

TEST(killed_at_any_time_the_evidence_is_kept)
{
    for (int poll = 3; poll < 150; poll += 13) {
        rig_begin(STAGES);
        canary_world->kill_at_poll = poll;
        int first = rig_run();
        CHECK(first == KILLED || first == 0);
        canary_world->kill_at_poll = 0;
        if (first == KILLED) {
            int64_t stage = rig_int("SELECT coalesce(stage, -1) FROM rollout"),
                    sets = canary_world->set_count;
            int64_t began = stage < 0
                    ? 0
                    : rig_int("SELECT begin_s FROM rollout_stage WHERE number = (SELECT stage FROM rollout)");
            CHECK_INT(rig_run(), 0);
            if (stage >= 0) {
                char *sql = xasprintf(
                        "SELECT begin_s FROM rollout_stage WHERE number = %d", (int)stage);
                CHECK_INT(rig_int(sql), began); // the same stage goes on, it does not begin anew
                free(sql);
                // no weight was set that stood already
                CHECK_INT(canary_world->set_count, sets + (2 - stage));
            }
        }
        CHECK_DBL(canary_world->percent, 100, 0);
        rig_end();
    }
}

TEST(time_without_a_controller_is_no_soak)
{
    rig_begin("stages: [{percent: 10, soak: 60s, warm_up: 1s}, {percent: 100, soak: 3s}]\n");
    canary_world->kill_at_poll = 200; // after 20 s
    CHECK_INT(rig_run(), KILLED);
    canary_world->kill_at_poll = 0;
    CHECK_INT(canary_world->set_count, 1);
    canary_world->now_ns += 300 * (int64_t)NS;
    int64_t began = canary_world->now_ns;
    CHECK_INT(rig_run(), 0);
    CHECK(canary_world->set_ns[1] - began > 35 * (int64_t)NS); // what was missing
    CHECK(canary_world->set_ns[1] - began < 60 * (int64_t)NS); // and no more: the evidence is kept
    rig_end();
}

static void resume_after_a_while(struct canary_world *world)
{
    if (!script_ns)
        script_ns = world->now_ns;
    if (script_ns > 0 && world->now_ns > script_ns + 20 * (int64_t)NS) {
        rig_ask(REQUEST_RESUME);
        script_ns = -1;
    }
}

TEST(a_share_that_somebody_lowered_meanwhile_stays)
{
    rig_begin("stages: [{percent: 10, soak: 60s, warm_up: 1s}, {percent: 100, soak: 3s}]\n");
    canary_world->kill_at_poll = 100;
    CHECK_INT(rig_run(), KILLED);
    canary_world->percent = 2;
    canary_world->kill_at_poll = canary_world->polls + 50;
    CHECK_INT(rig_run(), KILLED);
    CHECK_INT(canary_world->set_count, 1);
    CHECK_STR(rig_text("SELECT state FROM rollout"), "paused");
    CHECK_STR(rig_text(LAST_RULE), "traffic");
    CHECK_CONTAINS(rig_text("SELECT reason FROM rollout"),
            "the candidate's share was lowered to 2 % from 10 %");
    canary_world->kill_at_poll = 0;
    canary_world->script = resume_after_a_while;
    int64_t began = canary_world->now_ns;
    CHECK_INT(rig_run(), 0);
    CHECK_DBL(canary_world->sets[1], 10, 0);
    CHECK(canary_world->set_ns[1] - began > 20 * (int64_t)NS);
    rig_end();
    // the proxy began anew meanwhile
    rig_begin("stages: [{percent: 10, soak: 60s, warm_up: 1s}, {percent: 100, soak: 3s}]\n");
    canary_world->kill_at_poll = 100;
    CHECK_INT(rig_run(), KILLED);
    canary_world->kill_at_poll = 0;
    canary_world->now_ns += 2 * (int64_t)NS;
    canary_world->proxy_ns = canary_world->now_ns;
    canary_world->percent = 3; // its file's
    canary_world->now_ns += 2 * (int64_t)NS;
    began = canary_world->now_ns;
    CHECK_INT(rig_run(), 0);
    CHECK_DBL(canary_world->sets[1], 10, 0);
    CHECK(canary_world->set_ns[1] - began < NS);
    rig_end();
}

TEST(killed_on_the_way_back)
{
    for (int moment = 3; moment <= 4; moment++) {
        rig_begin(STAGES);
        canary_world->errors[CANARY_CANDIDATE] = 0.5;
        canary_world->kill_at_set = moment;
        CHECK_INT(rig_run(), KILLED);
        canary_world->kill_at_set = 0;
        // nothing speaks against it any more: it goes back nevertheless
        canary_world->errors[CANARY_CANDIDATE] = 0;
        CHECK_INT(rig_run(), 1);
        CHECK_DBL(canary_world->percent, 0, 0);
        CHECK_STR(rig_text("SELECT state FROM rollout"), "rolled_back");
        rig_end();
    }
}

static void second_controller(struct canary_world *world)
{
    if (world->set_count == 1 && !script_ns) {
        script_ns = 1;
        world->kill_at_set = -rig_run(); // its exit code, out of this process
    }
}

TEST(a_second_controller_is_kept_out)
{
    rig_begin(STAGES);
    canary_world->script = second_controller;
    CHECK_INT(rig_run(), 0);
    CHECK_INT(-canary_world->kill_at_set, REFUSED + EBUSY);
    CHECK_INT(canary_world->set_count, 3);
    rig_end();
}

TEST(requests_that_outlast_the_drain)
{
    rig_begin(STAGES "rollback: {drain: 7s}\n");
    canary_world->errors[CANARY_CANDIDATE] = 0.5;
    canary_world->in_flight = 3;
    CHECK_INT(rig_run(), 1);
    CHECK(canary_world->now_ns - canary_world->set_ns[1] >= 7 * (int64_t)NS);
    CHECK(canary_world->now_ns - canary_world->set_ns[1] < 9 * (int64_t)NS);
    // Evidence is logged meanwhile.
    CHECK(rig_int("SELECT max(at_s) FROM rollout_second") * NS >
            canary_world->set_ns[1] + canary_world->wall_offset_ns + 2 * (int64_t)NS);
    rig_end();
}

TEST(two_baselines_that_differ)
{
    rig_begin(
            "stages: [{percent: 20, name: aa, soak: 3s, warm_up: 0s}, {percent: 100, soak: 3s}]\n");
    canary_world->errors[CANARY_CANDIDATE] = 0.1; // of the second baseline
    CHECK_INT(rig_run_with(5 * (int64_t)NS, false), 3);
    CHECK_DBL(canary_world->aa_percent, 0, 0);
    CHECK_CONTAINS(rig_text("SELECT reason FROM rollout"), "the two baselines differ");
    for (int i = 0; i < canary_world->set_count; i++)
        CHECK_DBL(canary_world->sets[i], 0, 0);
    rig_end();
    rig_begin(
            "stages: [{percent: 20, name: aa, soak: 3s, warm_up: 0s}, {percent: 100, soak: 3s}]\n");
    // the proxy lacks it: the baseline alone, and its requests count
    canary_world->no_baseline2 = true;
    canary_world->rate = 1000;
    CHECK_INT(rig_run_with(5 * (int64_t)NS, false), 3);
    rig_end();
}
