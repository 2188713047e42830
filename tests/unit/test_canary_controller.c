// SPDX-License-Identifier: Apache-2.0
// The controller in a world that goes as fast as it is waited for (canary_world.h): whole rollouts, good and bad, each fault alone, a
// controller that is killed at every moment. It runs in a process of its own; the store is a real one.
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/log.h"
#include "common/strings.h"
#include "harness/canary/controller.h"
#include "harness/canary/rollout_store.h"
#include "tests/unit/canary_world.h"
#include "tests/unit/runner.h"

#define NS 1000000000
#define STAGES "stages: [{percent: 10, soak: 3s, warm_up: 1s}, {percent: 50, soak: 3s, warm_up: 1s}, {percent: 100, soak: 3s, warm_up: 1s}]\n"

static char dir[64], store_path_[96], plan_path[96];

static void write_plan(const char *more)
{
    FILE *file = fopen(plan_path, "w");
    fprintf(file, "name: r\nstore: %s\ntraffic: {haproxy: {socket: s, backend: b, baseline: old, candidate: new, baseline2: old2}}\n"
                  "sources: [{jsonl: {baseline: a, candidate: b}}]\n%s", store_path_, more);
    fclose(file);
}

static void begin(const char *more)
{
    canary_world_reset();
    strcpy(dir, "/tmp/test_controller_XXXXXX");
    CHECK(mkdtemp(dir) != NULL);
    snprintf(store_path_, sizeof store_path_, "%s/r.db", dir);
    snprintf(plan_path, sizeof plan_path, "%s/r.yaml", dir);
    canary_world->path = store_path_;
    write_plan(more);
}

static void end(void)
{
    char *command = xasprintf("rm -rf '%s'", dir);
    CHECK_INT(system(command), 0);
    free(command);
}

enum { KILLED = -9, REFUSED = 100 };

// The exit code; KILLED; REFUSED + errno where it was not begun.
static int run_with(int64_t wait_ns, bool anew)
{
    int status = 0;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        struct rollout *rollout = NULL;
        struct error err = {0};
        enum exit_code code = EXIT_CODE_USAGE;
        log_set_level(getenv("CANARY_TEST_LOG") ? LOG_LEVEL_INFO : LOG_LEVEL_ERROR);
        if (!getenv("CANARY_TEST_LOG") && !freopen("/dev/null", "w", stderr))
            _exit(99);
        json_t *command = json_pack("[s]", "upgate");
        int rc = rollout_load(plan_path, &rollout, &err);
        struct controller_options options = {.rollout = rollout, .who = "tester", .command_line = command, .anew = anew, .wait_ns = wait_ns};
        if (rc == 0)
            rc = controller_run(&options, &code, &err);
        if (rc)
            fprintf(stderr, "%s\n", err.text);
        rollout_free(rollout);
        json_decref(command);
        fflush(NULL);
        _exit(rc ? REFUSED - rc : (int)code);
    }
    waitpid(pid, &status, 0);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

static int run(void)
{
    return run_with(-1, false);
}

static int64_t ask_int(const char *sql)
{
    struct store *store = NULL;
    struct error err = {0};
    int64_t value = -999;
    if (store_open(store_path_, STORE_READ, &store, &err) || store_get_int(store, &value, &err, sql, ""))
        runner_fail(__FILE__, __LINE__, "%s: %s", sql, err.text);
    store_close(store);
    return value;
}

static char *ask_text(const char *sql)
{
    static char text[1000];
    struct store *store = NULL;
    struct error err = {0};
    if (store_open(store_path_, STORE_READ, &store, &err))
        runner_fail(__FILE__, __LINE__, "%s", err.text);
    char *found = store ? store_get_text(store, sql, "") : NULL;
    snprintf(text, sizeof text, "%s", found ? found : "(none)");
    free(found);
    store_close(store);
    return text;
}

#define LAST_RULE "SELECT rule FROM rollout_decision ORDER BY id DESC LIMIT 1"

TEST(a_good_candidate_gets_everything)
{
    begin("stages: [{percent: 20, name: aa, soak: 3s, warm_up: 0s}, {percent: 10, soak: 3s, warm_up: 1s}, {percent: 50, soak: 3s}, {percent: 100, soak: 3s}]\n");
    CHECK_INT(run(), 0);
    CHECK_DBL(canary_world->percent, 100, 0);
    static const double sets[] = {0, 10, 50, 100};
    CHECK_INT(canary_world->set_count, 4);
    for (int i = 0; i < 4; i++)
        CHECK_DBL(canary_world->sets[i], sets[i], 0);
    for (int i = 1; i < 4; i++)
        CHECK((canary_world->set_ns[i] - canary_world->set_ns[i - 1]) / NS >= 3);
    CHECK_STR(ask_text("SELECT state FROM rollout"), "promoted");
    CHECK_INT(ask_int("SELECT count(*) FROM rollout_stage WHERE result = 'passed' AND begin_s < judged_from_s + 1 AND end_s > begin_s"), 4);
    CHECK_INT(ask_int("SELECT count(*) FROM rollout_decision WHERE effect_ns IS NULL"), 0);
    CHECK_INT(ask_int("SELECT count(*) FROM rollout WHERE pid IS NULL"), 1);
    CHECK_STR(ask_text("SELECT state FROM run"), "done");
    // Every judged second is there, of both arms; the A/A stage has the second baseline as its candidate.
    CHECK(ask_int("SELECT count(*) FROM rollout_second WHERE stage = 0 AND arm = 1 AND requests = 200") >= 3);
    CHECK(ask_int("SELECT count(*) FROM rollout_second WHERE stage = 2 AND arm = 1 AND requests = 500") >= 3);
    CHECK(ask_int("SELECT count(*) FROM rollout_cell WHERE stage = 3") > 0);
    // What has ended is not begun again, and says how it ended.
    int sets_before = canary_world->set_count;
    CHECK_INT(run(), 0);
    CHECK_INT(canary_world->set_count, sets_before);
    end();
}

static int64_t script_ns;

TEST(a_bad_candidate_goes_back)
{
    begin(STAGES);
    canary_world->errors[CANARY_CANDIDATE] = 0.1; // below the tripwire
    canary_world->rate = 6000;
    CHECK_INT(run(), 1);
    CHECK_DBL(canary_world->percent, 0, 0);
    CHECK_STR(ask_text(LAST_RULE), "evidence");
    CHECK_STR(ask_text("SELECT state FROM rollout"), "rolled_back");
    CHECK_STR(ask_text("SELECT result FROM rollout_stage WHERE number = 0"), "failed");
    CHECK_CONTAINS(ask_text("SELECT evidence FROM rollout_decision ORDER BY id DESC LIMIT 1"), "\"verdict\":\"fail\"");
    CHECK_INT(canary_world->set_count, 2);
    // Again without a person's word: nothing. With it: a new store, the old one beside it.
    canary_world->errors[CANARY_CANDIDATE] = 0;
    CHECK_INT(run(), 1);
    CHECK_INT(canary_world->set_count, 2);
    CHECK_INT(run_with(-1, true), 0);
    char *aside = xasprintf("%s.1", store_path_);
    CHECK(access(aside, F_OK) == 0);
    free(aside);
    CHECK_STR(ask_text("SELECT state FROM rollout"), "promoted");
    end();
}

static void refuse_connections(struct canary_world *world)
{
    if (world->set_count == 1 && world->now_ns > world->set_ns[0] + 2 * NS + NS / 2 && !world->refused)
        world->refused = 3;
    if (world->refused && !world->in_flight) // when the first poll tells of it
        world->in_flight = (uint64_t)world->now_ns;
    if (world->set_count > 1)
        world->in_flight = 0;
    if (world->refused && world->set_count == 1)
        world->next_s = world->next_s; // evidence of whole seconds goes on
}

TEST(refused_connections_act_at_once)
{
    begin(STAGES);
    canary_world->script = refuse_connections;
    CHECK_INT(run(), 1);
    CHECK_STR(ask_text(LAST_RULE), "tripwire-unreachable");
    CHECK_INT(canary_world->set_count, 2);
    int64_t took = canary_world->set_ns[1] - (canary_world->set_ns[0] + 2 * NS + NS / 2);
    CHECK(took <= 300000000); // up to 100 ms until the world refuses, then 200 ms at most
    end();
}

static void go_down(struct canary_world *world)
{
    if (world->set_count == 2 && world->up[CANARY_CANDIDATE] && world->now_ns > world->set_ns[1] + NS)
        world->up[CANARY_CANDIDATE] = false;
}

TEST(a_candidate_that_is_down)
{
    begin(STAGES);
    canary_world->script = go_down;
    CHECK_INT(run(), 1);
    CHECK_STR(ask_text(LAST_RULE), "tripwire-unreachable");
    CHECK(canary_world->set_ns[2] - canary_world->set_ns[1] - NS <= 500000000); // three looks
    CHECK_INT(ask_int("SELECT up_candidate FROM rollout"), 0);
    end();
    begin(STAGES);
    canary_world->up[CANARY_CANDIDATE] = false; // from the start: it gets nothing at all
    CHECK_INT(run(), 4);
    CHECK_INT(canary_world->set_count, 0);
    CHECK_STR(ask_text(LAST_RULE), "preflight");
    end();
}

TEST(tripwires_of_errors_and_wrong_answers)
{
    begin(STAGES);
    canary_world->errors[CANARY_CANDIDATE] = 0.5;
    CHECK_INT(run(), 1);
    CHECK_STR(ask_text(LAST_RULE), "tripwire-errors");
    CHECK(canary_world->set_ns[1] - canary_world->set_ns[0] <= 500000000); // not after the warm-up
    end();
    begin(STAGES);
    canary_world->wrong = 1;
    CHECK_INT(run(), 1);
    CHECK_STR(ask_text(LAST_RULE), "tripwire-wrong");
    end();
}

static void move_weights(struct canary_world *world)
{
    if (world->set_count == 2)
        world->percent = 80;
}

TEST(traffic_that_others_move)
{
    begin(STAGES);
    canary_world->script = move_weights;
    CHECK_INT(run(), 4);
    CHECK_DBL(canary_world->percent, 0, 0);
    CHECK_STR(ask_text(LAST_RULE), "traffic");
    CHECK_STR(ask_text("SELECT state FROM rollout"), "failed");
    end();
    begin(STAGES);
    canary_world->percent = 50; // weights of the proxy's file, before anything has begun
    CHECK_INT(run(), 0);
    CHECK_DBL(canary_world->sets[0], 0, 0);
    end();
}

static void lose_socket(struct canary_world *world)
{
    if (world->set_count == 2 && !world->get_fails) {
        world->get_fails = true;
        world->fail_sets = 7; // it comes back
    }
}

static void lose_socket_for_good(struct canary_world *world)
{
    if (world->set_count == 2) {
        world->get_fails = true;
        world->fail_sets = -1;
    }
}

TEST(a_socket_that_is_gone)
{
    begin(STAGES);
    canary_world->script = lose_socket;
    CHECK_INT(run(), 4);
    CHECK_DBL(canary_world->percent, 0, 0);
    end();
    begin(STAGES);
    canary_world->script = lose_socket_for_good;
    CHECK_INT(run(), 4);
    CHECK_DBL(canary_world->percent, 50, 0); // nothing could be done, and that is said
    CHECK_CONTAINS(ask_text("SELECT reason FROM rollout"), "look at it now");
    // When it is back, whoever starts it again brings the traffic to the baseline, and nothing else.
    canary_world->script = NULL;
    canary_world->get_fails = false;
    canary_world->fail_sets = 0;
    CHECK_INT(run(), 4);
    CHECK_DBL(canary_world->percent, 0, 0);
    end();
    begin(STAGES);
    canary_world->fail_sets = 1; // the first move up
    CHECK_INT(run(), 4);
    CHECK_DBL(canary_world->percent, 0, 0);
    CHECK_INT(canary_world->set_count, 1);
    end();
}

static void fall_silent(struct canary_world *world)
{
    if (world->set_count == 1)
        world->silent = world->now_ns > world->set_ns[0] + 2 * NS && world->now_ns < world->set_ns[0] + 90 * (int64_t)NS;
}

TEST(stale_evidence_pauses)
{
    begin(STAGES);
    canary_world->script = fall_silent;
    CHECK_INT(run(), 0);
    CHECK_INT(ask_int("SELECT count(*) FROM rollout_decision WHERE rule = 'stale'"), 2); // and goes on by itself
    CHECK_CONTAINS(ask_text("SELECT reason FROM rollout_decision WHERE rule = 'stale'"), "nobody writes");
    end();
    begin(STAGES);
    canary_world->silent = true;
    CHECK_INT(run_with(20 * (int64_t)NS, false), 3);
    CHECK_DBL(canary_world->percent, 0, 0);
    CHECK_STR(ask_text("SELECT state FROM rollout"), "paused");
    // Started again: the same stage, with its traffic.
    canary_world->silent = false;
    CHECK_INT(run(), 0);
    end();
}

TEST(thin_traffic_never_passes)
{
    begin("stages: [{percent: 10, soak: 3s, warm_up: 0s, patience: 20s}, {percent: 100, soak: 3s}]\n");
    canary_world->rate = 10;
    CHECK_INT(run_with(5 * (int64_t)NS, false), 3);
    CHECK_DBL(canary_world->percent, 0, 0);
    CHECK_STR(ask_text("SELECT rule FROM rollout_decision WHERE state_from = 'running'"), "patience");
    CHECK_CONTAINS(ask_text("SELECT reason FROM rollout"), "nobody answered for");
    CHECK_INT(canary_world->set_count, 2);
    end();
}

// --- people ----------------------------------------------------------------------------------------------

static void ask_for(enum rollout_verb verb)
{
    struct error err = {0};
    if (rollout_store_request(store_path_, verb, "ann", "as told", &err))
        _exit(98);
}

static void abort_it(struct canary_world *world)
{
    if (world->set_count == 2 && world->kill_at_poll == 0) {
        world->kill_at_poll = -1; // once
        ask_for(REQUEST_PROMOTE);
        ask_for(REQUEST_ABORT);
    }
}

TEST(abort_while_promoting)
{
    begin(STAGES);
    canary_world->script = abort_it;
    CHECK_INT(run(), 3);
    CHECK_DBL(canary_world->percent, 0, 0);
    CHECK_STR(ask_text("SELECT state FROM rollout"), "aborted");
    CHECK_STR(ask_text("SELECT who FROM rollout_decision ORDER BY id DESC LIMIT 1"), "ann");
    end();
}

static void pause_and_resume(struct canary_world *world)
{
    if (world->set_count == 1 && !script_ns) {
        ask_for(REQUEST_PAUSE);
        script_ns = world->now_ns;
    } else if (script_ns > 0 && world->now_ns > script_ns + 100 * (int64_t)NS) {
        ask_for(REQUEST_RESUME);
        script_ns = -1;
    }
}

TEST(a_pause_waits_for_its_person)
{
    begin(STAGES);
    canary_world->script = pause_and_resume;
    CHECK_INT(run_with(1, false), 0); // a pause that was asked for is no pause that waits in vain
    CHECK(canary_world->set_ns[1] - canary_world->set_ns[0] > 100 * (int64_t)NS);
    CHECK_INT(ask_int("SELECT count(*) FROM rollout_request WHERE taken_ns IS NOT NULL"), 2);
    end();
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

TEST(signals)
{
    begin(STAGES);
    canary_world->script = one_signal;
    CHECK_INT(run(), 3);
    CHECK_DBL(canary_world->percent, 50, 0);
    CHECK_STR(ask_text("SELECT state FROM rollout"), "paused");
    canary_world->script = NULL;
    CHECK_INT(run(), 0);
    end();
    begin(STAGES);
    canary_world->script = two_signals;
    CHECK_INT(run(), 3);
    CHECK_DBL(canary_world->percent, 0, 0);
    end();
}

static void promote_later(struct canary_world *world)
{
    if (!script_ns)
        script_ns = world->now_ns;
    if (script_ns > 0 && world->now_ns > script_ns + 60 * (int64_t)NS) {
        script_ns = -1;
        ask_for(REQUEST_PROMOTE);
    }
}

TEST(a_freeze_and_a_person)
{
    begin("stages: [{percent: 100, soak: 3s}]\nfreeze: [2026-11-01/2027-11-01]\n"); // the world is in there
    canary_world->script = promote_later;
    CHECK_INT(run(), 0);
    CHECK_INT(ask_int("SELECT count(*) FROM rollout_decision WHERE rule = 'freeze'"), 1); // said once
    CHECK_CONTAINS(ask_text("SELECT reason FROM rollout_decision WHERE rule = 'freeze'"), "not before 2027-11-02 00:00 UTC");
    CHECK(canary_world->set_ns[0] > 1000000000000 + 60 * (int64_t)NS);
    end();
}

// --- clocks and stores -----------------------------------------------------------------------------------

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
        begin(STAGES);
        canary_world->script = back ? jump_back : jump;
        CHECK_INT(run(), 0);
        CHECK_INT(ask_int("SELECT count(*) FROM rollout_decision WHERE rule = 'clock' AND state_to = 'running'"), 1);
        CHECK((canary_world->set_ns[1] - canary_world->set_ns[0]) >= 5 * (int64_t)NS); // 2 s, and the whole soak again
        CHECK((canary_world->set_ns[1] - canary_world->set_ns[0]) < 15 * (int64_t)NS);
        CHECK_INT(canary_world->opens, 2);
        end();
    }
}

static void fill_disk(struct canary_world *world)
{
    if (world->set_count == 2 && !script_ns) {
        script_ns = 1;
        char *command = xasprintf("dd if=/dev/zero of=%s/fill bs=4096 >/dev/null 2>&1", dir);
        (void)!system(command);
        free(command);
    }
}

TEST(a_full_disk_leads_to_the_baseline)
{
    begin(STAGES);
    if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) || mount("tmpfs", dir, "tmpfs", 0, "size=1m"))
        runner_skip("cannot mount a small tmpfs (needs root)");
    write_plan(STAGES);
    canary_world->script = fill_disk;
    CHECK_INT(run(), 4);
    CHECK_DBL(canary_world->percent, 0, 0);
    umount(dir);
    end();
}

static void make_read_only(struct canary_world *world)
{
    if (world->set_count == 2 && !script_ns) {
        script_ns = 1;
        // Another mount over it: the one with our open files cannot be changed.
        if (mount(dir, dir, NULL, MS_BIND, NULL) || mount("none", dir, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL))
            _exit(97);
    }
}

TEST(a_store_that_turns_read_only)
{
    begin(STAGES);
    if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) || mount(dir, dir, NULL, MS_BIND, NULL))
        runner_skip("cannot mount (needs root)");
    canary_world->script = make_read_only;
    CHECK_INT(run(), 4);
    CHECK_DBL(canary_world->percent, 0, 0);
    // Started on a read-only store of a rollout that has traffic: to the baseline, too.
    canary_world->percent = 50;
    canary_world->script = NULL;
    CHECK_INT(run(), REFUSED + EROFS);
    CHECK_DBL(canary_world->percent, 0, 0);
    umount2(dir, MNT_DETACH);
    umount2(dir, MNT_DETACH);
    end();
}

// --- killed ----------------------------------------------------------------------------------------------

TEST(a_changed_plan_is_refused)
{
    begin(STAGES);
    canary_world->kill_at_poll = 60;
    CHECK_INT(run(), KILLED);
    canary_world->kill_at_poll = 0;
    write_plan("stages: [{percent: 10, soak: 1s, warm_up: 1s}, {percent: 50, soak: 3s, warm_up: 1s}, {percent: 100, soak: 3s, warm_up: 1s}]\n");
    double before = canary_world->percent;
    CHECK_INT(run(), REFUSED + EINVAL);
    CHECK_DBL(canary_world->percent, before, 0);
    write_plan(STAGES);
    CHECK_INT(run(), 0);
    end();
}

// Killed before and after each weight that is set, and now and then between: each time a start goes on, and at the end all have it.
TEST(killed_at_every_move)
{
    for (int moment = 1; moment <= 6; moment++) {
        begin(STAGES);
        canary_world->kill_at_set = moment;
        CHECK_INT(run(), KILLED);
        canary_world->kill_at_set = 0;
        double at_kill = canary_world->percent;
        CHECK_INT(run(), 0);
        CHECK_DBL(canary_world->percent, 100, 0);
        // No stage was entered before the one below it had passed.
        CHECK_INT(ask_int("SELECT count(*) FROM rollout_stage WHERE result = 'passed'"), 3);
        for (int i = 1; i < canary_world->set_count; i++)
            CHECK(canary_world->sets[i] <= canary_world->sets[i - 1] || canary_world->sets[i] == 10 ||
                  (canary_world->sets[i] == 50 && canary_world->sets[i - 1] == 10) ||
                  (canary_world->sets[i] == 100 && canary_world->sets[i - 1] == 50));
        CHECK(at_kill <= 100);
        end();
    }
}

TEST(killed_at_any_time_the_evidence_is_kept)
{
    for (int poll = 3; poll < 150; poll += 13) {
        begin(STAGES);
        canary_world->kill_at_poll = poll;
        int first = run();
        CHECK(first == KILLED || first == 0);
        canary_world->kill_at_poll = 0;
        if (first == KILLED) {
            int64_t stage = ask_int("SELECT coalesce(stage, -1) FROM rollout"), sets = canary_world->set_count;
            int64_t began = stage < 0 ? 0 : ask_int("SELECT begin_s FROM rollout_stage WHERE number = (SELECT stage FROM rollout)");
            CHECK_INT(run(), 0);
            if (stage >= 0) {
                char *sql = xasprintf("SELECT begin_s FROM rollout_stage WHERE number = %d", (int)stage);
                CHECK_INT(ask_int(sql), began); // the same stage goes on, it does not begin anew
                free(sql);
                CHECK_INT(canary_world->set_count, sets + (2 - stage)); // no weight was set that stood already
            }
        }
        CHECK_DBL(canary_world->percent, 100, 0);
        end();
    }
}

TEST(killed_on_the_way_back)
{
    for (int moment = 3; moment <= 4; moment++) {
        begin(STAGES);
        canary_world->errors[CANARY_CANDIDATE] = 0.5;
        canary_world->kill_at_set = moment;
        CHECK_INT(run(), KILLED);
        canary_world->kill_at_set = 0;
        canary_world->errors[CANARY_CANDIDATE] = 0; // nothing speaks against it any more: it goes back nevertheless
        CHECK_INT(run(), 1);
        CHECK_DBL(canary_world->percent, 0, 0);
        CHECK_STR(ask_text("SELECT state FROM rollout"), "rolled_back");
        end();
    }
}

static void second_controller(struct canary_world *world)
{
    if (world->set_count == 1 && !script_ns) {
        script_ns = 1;
        world->kill_at_set = -run(); // its exit code, out of this process
    }
}

TEST(a_second_controller_is_kept_out)
{
    begin(STAGES);
    canary_world->script = second_controller;
    CHECK_INT(run(), 0);
    CHECK_INT(-canary_world->kill_at_set, REFUSED + EBUSY);
    CHECK_INT(canary_world->set_count, 3);
    end();
}

TEST(requests_that_outlast_the_drain)
{
    begin(STAGES "rollback: {drain: 7s}\n");
    canary_world->errors[CANARY_CANDIDATE] = 0.5;
    canary_world->in_flight = 3;
    CHECK_INT(run(), 1);
    CHECK(canary_world->now_ns - canary_world->set_ns[1] >= 7 * (int64_t)NS);
    CHECK(canary_world->now_ns - canary_world->set_ns[1] < 9 * (int64_t)NS);
    // Evidence is logged meanwhile.
    CHECK(ask_int("SELECT max(at_s) FROM rollout_second") * NS > canary_world->set_ns[1] + canary_world->wall_offset_ns + 2 * (int64_t)NS);
    end();
}

TEST(two_baselines_that_differ)
{
    begin("stages: [{percent: 20, name: aa, soak: 3s, warm_up: 0s}, {percent: 100, soak: 3s}]\n");
    canary_world->errors[CANARY_CANDIDATE] = 0.1; // of the second baseline
    CHECK_INT(run_with(5 * (int64_t)NS, false), 3);
    CHECK_DBL(canary_world->aa_percent, 0, 0);
    CHECK_CONTAINS(ask_text("SELECT reason FROM rollout"), "the two baselines differ");
    for (int i = 0; i < canary_world->set_count; i++)
        CHECK_DBL(canary_world->sets[i], 0, 0);
    end();
    begin("stages: [{percent: 20, name: aa, soak: 3s, warm_up: 0s}, {percent: 100, soak: 3s}]\n");
    canary_world->no_baseline2 = true; // the proxy lacks it: the baseline alone, and its requests count
    canary_world->rate = 1000;
    CHECK_INT(run_with(5 * (int64_t)NS, false), 3);
    end();
}
