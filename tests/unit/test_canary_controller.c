// SPDX-License-Identifier: Apache-2.0
// The controller: whole rollouts, good and bad, and each fault of the arms, the proxy and the
// evidence alone. What people, signals, clocks, stores and kills do to it: test_canary_restart.c.
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/strings.h"
#include "tests/unit/canary_rig.h"
#include "tests/unit/runner.h"

static int64_t began_ns; // of a script's fault

TEST(a_good_candidate_gets_everything)
{
    rig_begin(
            "stages: [{percent: 20, name: aa, soak: 3s, warm_up: 0s}, {percent: 10, soak: 3s, warm_up: 1s}, {percent: 50, soak: 3s}, {percent: 100, soak: 3s}]\n");
    CHECK_INT(rig_run(), 0);
    CHECK_DBL(canary_world->percent, 100, 0);
    static const double sets[] = {0, 10, 50, 100};
    CHECK_INT(canary_world->set_count, 4);
    for (int i = 0; i < 4; i++)
        CHECK_DBL(canary_world->sets[i], sets[i], 0);
    for (int i = 1; i < 4; i++)
        CHECK((canary_world->set_ns[i] - canary_world->set_ns[i - 1]) / NS >= 3);
    CHECK_STR(rig_text("SELECT state FROM rollout"), "promoted");
    CHECK_INT(
            rig_int("SELECT count(*) FROM rollout_stage WHERE result = 'passed' AND begin_s < judged_from_s + 1 AND end_s > begin_s"),
            4);
    CHECK_INT(rig_int("SELECT count(*) FROM rollout_decision WHERE effect_ns IS NULL"), 0);
    CHECK_INT(rig_int("SELECT count(*) FROM rollout WHERE pid IS NULL"), 1);
    CHECK_STR(rig_text("SELECT state FROM run"), "done");
    // Every judged second is there, of both arms; the A/A stage has the second baseline as its
    // candidate.
    CHECK(rig_int("SELECT count(*) FROM rollout_second WHERE stage = 0 AND arm = 1 AND requests = 4000") >=
            3);
    CHECK(rig_int("SELECT count(*) FROM rollout_second WHERE stage = 2 AND arm = 1 AND requests = 10000") >=
            3);
    CHECK(rig_int("SELECT count(*) FROM rollout_cell WHERE stage = 3") > 0);
    // What has ended is not begun again, and says how it ended.
    int sets_before = canary_world->set_count;
    CHECK_INT(rig_run(), 0);
    CHECK_INT(canary_world->set_count, sets_before);
    rig_end();
}

TEST(a_bad_candidate_goes_back)
{
    rig_begin(STAGES);
    canary_world->errors[CANARY_CANDIDATE] = 0.1; // below the tripwire
    canary_world->rate = 6000;
    CHECK_INT(rig_run(), 1);
    CHECK_DBL(canary_world->percent, 0, 0);
    CHECK_STR(rig_text(LAST_RULE), "evidence");
    CHECK_STR(rig_text("SELECT state FROM rollout"), "rolled_back");
    CHECK_STR(rig_text("SELECT result FROM rollout_stage WHERE number = 0"), "failed");
    CHECK_CONTAINS(rig_text("SELECT evidence FROM rollout_decision ORDER BY id DESC LIMIT 1"),
            "\"verdict\":\"fail\"");
    CHECK_INT(canary_world->set_count, 2);
    // Again without a person's word: nothing. With it: a new store, the old one beside it.
    canary_world->errors[CANARY_CANDIDATE] = 0;
    CHECK_INT(rig_run(), 1);
    CHECK_INT(canary_world->set_count, 2);
    CHECK_INT(rig_run_with(-1, true), 0);
    char *aside = xasprintf("%s.1", rig_store);
    CHECK(access(aside, F_OK) == 0);
    free(aside);
    CHECK_STR(rig_text("SELECT state FROM rollout"), "promoted");
    rig_end();
}

static void turn_bad(struct canary_world *world)
{
    if (world->set_count == 1 && world->now_ns > world->set_ns[0] + 300 * (int64_t)NS)
        world->errors[CANARY_CANDIDATE] = 0.005;
}

TEST(a_candidate_that_turns_bad_late)
{
    rig_begin("stages: [{percent: 10, soak: 20min, warm_up: 1s}, {percent: 100, soak: 3s}]\n");
    canary_world->errors[CANARY_BASELINE] = canary_world->errors[CANARY_CANDIDATE] = 0.001;
    canary_world->script = turn_bad;
    CHECK_INT(rig_run(), 1);
    CHECK_STR(rig_text(LAST_RULE), "evidence");
    CHECK(canary_world->set_ns[1] - canary_world->set_ns[0] < 330 * (int64_t)NS);
    CHECK_CONTAINS(rig_text("SELECT reason FROM rollout"), "error_rate: for the last ");
    CHECK_CONTAINS(
            rig_text("SELECT reason FROM rollout"), "beyond its margin; over the whole stage");
    CHECK_CONTAINS(rig_text("SELECT evidence FROM rollout_decision ORDER BY id DESC LIMIT 1"),
            "\"since_s\":");
    rig_end();
}

static void slow_hits(struct canary_world *world)
{
    // 1.6 times as slow, once the candidate has traffic
    world->slower_bins = world->set_count >= 2 ? 24 : 0;
}

// A cache answers 95 %, and the candidate takes longer for those: the tail is that of the others,
// as long on both arms.
TEST(a_candidate_whose_typical_request_is_slower)
{
    static const char stages[] =
            "stages: [{percent: 20, name: aa, soak: 3s, warm_up: 0s}, {percent: 10, soak: 3s, warm_up: 1s}, {percent: 50, soak: 3s}, {percent: 100, soak: 3s}]\n";
    rig_begin(stages);
    canary_world->misses = 0.05;
    canary_world->script = slow_hits;
    CHECK_INT(rig_run(), 1);
    CHECK_STR(rig_text(LAST_RULE), "evidence");
    CHECK_CONTAINS(rig_text("SELECT reason FROM rollout"), "latency_p50");
    CHECK_INT(canary_world->set_count, 3);
    rig_end();
    rig_begin(stages); // as fast
    canary_world->misses = 0.05;
    CHECK_INT(rig_run(), 0);
    rig_end();
}

static void refuse_connections(struct canary_world *world)
{
    if (world->set_count == 1 && world->now_ns > world->set_ns[0] + 2 * NS + NS / 2)
        world->refused = 3;
}

static void turn_bad_at_the_whole_traffic(struct canary_world *world)
{
    bool bad = world->set_count == 3 && world->now_ns > world->set_ns[2] + 5 * (int64_t)NS;
    world->slower_bins = bad && began_ns == 1 ? 60 : 0; // 3.3 times as slow
    world->errors[CANARY_CANDIDATE] = bad && began_ns == 2 ? 0.005 : 0;
    world->rejected[CANARY_CANDIDATE] = bad && began_ns == 3 ? 0.05 : 0;
}

TEST(a_candidate_that_turns_bad_at_the_whole_traffic)
{
    // of both latencies the first is told
    static const char *const metrics[] = {NULL, "latency_p50", "error_rate", "rejected_rate"};
    for (began_ns = 0; began_ns < 4; began_ns++) {
        rig_begin(
                "stages: [{percent: 10, soak: 20s}, {percent: 50, soak: 20s}, {percent: 100, soak: 60s}]\n");
        canary_world->script = turn_bad_at_the_whole_traffic;
        CHECK_INT(rig_run(), metrics[began_ns] ? 1 : 0);
        CHECK_DBL(canary_world->percent, metrics[began_ns] ? 0 : 100, 0);
        if (metrics[began_ns]) {
            CHECK_STR(rig_text(LAST_RULE), "evidence");
            CHECK_CONTAINS(rig_text("SELECT reason FROM rollout"), metrics[began_ns]);
            CHECK_CONTAINS(rig_text("SELECT reason FROM rollout"), "with no baseline left");
            CHECK(canary_world->set_ns[3] - canary_world->set_ns[2] < 50 * (int64_t)NS);
        }
        rig_end();
    }
    began_ns = 0;
}

TEST(refused_connections_act_at_once)
{
    rig_begin(STAGES);
    canary_world->script = refuse_connections;
    CHECK_INT(rig_run(), 1);
    CHECK_STR(rig_text(LAST_RULE), "tripwire-unreachable");
    CHECK_INT(canary_world->set_count, 2);
    int64_t took = canary_world->set_ns[1] - (canary_world->set_ns[0] + 2 * NS + NS / 2);
    CHECK(took <= 300000000); // up to 100 ms until the world refuses, then 200 ms at most
    rig_end();
}

static void go_down(struct canary_world *world)
{
    if (world->set_count == 2 && world->up[CANARY_CANDIDATE] &&
            world->now_ns > world->set_ns[1] + NS)
        world->up[CANARY_CANDIDATE] = false;
}

TEST(a_candidate_that_is_down)
{
    rig_begin(STAGES);
    canary_world->script = go_down;
    CHECK_INT(rig_run(), 1);
    CHECK_STR(rig_text(LAST_RULE), "tripwire-unreachable");
    CHECK(canary_world->set_ns[2] - canary_world->set_ns[1] - NS <= 500000000); // three looks
    CHECK_INT(rig_int("SELECT up_candidate FROM rollout"), 0);
    rig_end();
    rig_begin(STAGES);
    canary_world->up[CANARY_CANDIDATE] = false; // from the start: it gets nothing at all
    CHECK_INT(rig_run(), 4);
    CHECK_INT(canary_world->set_count, 0);
    CHECK_STR(rig_text(LAST_RULE), "preflight");
    rig_end();
}

static void both_fail(struct canary_world *world)
{
    bool out = world->set_count == 1 && world->now_ns > world->set_ns[0] + NS / 2;
    world->errors[CANARY_BASELINE] = world->errors[CANARY_CANDIDATE] = out ? 0.5 : 0;
}

static void both_go_down(struct canary_world *world)
{
    int64_t since = world->set_count ? world->now_ns - world->set_ns[0] : 0;
    world->up[CANARY_BASELINE] = since < 2 * (int64_t)NS || since > 7 * (int64_t)NS;
    world->up[CANARY_CANDIDATE] = since < 2 * (int64_t)NS || (since > 9 * (int64_t)NS && !began_ns);
}

TEST(an_outage_of_both_is_no_fault_of_the_candidate)
{
    rig_begin("stages: [{percent: 10, soak: 60s}, {percent: 100, soak: 3s}]\n");
    canary_world->script = both_fail;
    canary_world->kill_at_poll = 150;
    CHECK_INT(rig_run(), KILLED);
    CHECK_DBL(canary_world->percent, 10, 0);
    CHECK_INT(rig_int("SELECT count(*) FROM rollout_decision WHERE state_to = 'rolled_back'"), 0);
    rig_end();
    for (began_ns = 0; began_ns < 2; began_ns++) { // 1: the candidate does not come back
        rig_begin("stages: [{percent: 10, soak: 60s}, {percent: 100, soak: 3s}]\n");
        canary_world->script = both_go_down;
        canary_world->kill_at_poll = began_ns ? 0 : 250;
        CHECK_INT(rig_run(), began_ns ? 1 : KILLED);
        CHECK_DBL(canary_world->percent, began_ns ? 0 : 10, 0);
        CHECK_INT(
                rig_int("SELECT count(*) FROM rollout_decision WHERE rule = 'tripwire-unreachable'"),
                began_ns);
        CHECK(!began_ns ||
                (canary_world->set_ns[1] - canary_world->set_ns[0] > 16 * (int64_t)NS &&
                        canary_world->set_ns[1] - canary_world->set_ns[0] < 19 * (int64_t)NS));
        rig_end();
    }
    began_ns = 0;
}

static void both_fail_at_first(struct canary_world *world)
{
    both_fail(world);
    if (world->set_count == 1 && world->now_ns > world->set_ns[0] + 5 * (int64_t)NS)
        world->errors[CANARY_BASELINE] = world->errors[CANARY_CANDIDATE] = 0;
}

static void both_stay_down(struct canary_world *world)
{
    world->up[CANARY_BASELINE] = world->up[CANARY_CANDIDATE] =
            world->set_count != 1 || world->now_ns < world->set_ns[0] + 2 * (int64_t)NS;
}

// The candidate may have brought it about.
TEST(an_outage_of_both_is_spared_for_a_while_and_passes_nothing)
{
    static const char *const rules[] = {"tripwire-errors", "tripwire-unreachable"};
    for (int i = 0; i < 2; i++) {
        rig_begin("stages: [{percent: 10, soak: 60s}, {percent: 100, soak: 3s}]\n");
        canary_world->script = i ? both_stay_down : both_fail;
        CHECK_INT(rig_run(), 1);
        CHECK_STR(rig_text(LAST_RULE), rules[i]);
        CHECK_DBL(canary_world->percent, 0, 0);
        CHECK(canary_world->set_ns[1] - canary_world->set_ns[0] > 29 * (int64_t)NS);
        CHECK(canary_world->set_ns[1] - canary_world->set_ns[0] < 35 * (int64_t)NS);
        rig_end();
    }
    rig_begin(
            "stages: [{percent: 10, soak: 20s, warm_up: 1s, patience: 40s}, {percent: 100, soak: 3s}]\n");
    canary_world->script = both_fail_at_first;
    CHECK_INT(rig_run_with(5 * (int64_t)NS, false), 3);
    CHECK_INT(canary_world->set_count, 2);
    CHECK_DBL(canary_world->percent, 0, 0);
    CHECK_INT(rig_int("SELECT count(*) FROM rollout_decision WHERE state_to = 'rolled_back'"), 0);
    rig_end();
}

static void lose_baseline(struct canary_world *world)
{
    world->up[CANARY_BASELINE] =
            world->set_count != 1 || world->now_ns > world->set_ns[0] + 60 * (int64_t)NS;
}

TEST(no_move_up_without_a_way_back)
{
    rig_begin(STAGES);
    canary_world->script = lose_baseline; // in the first stage, for a minute
    CHECK_INT(rig_run(), 0);
    CHECK(canary_world->set_ns[1] - canary_world->set_ns[0] > 60 * (int64_t)NS);
    rig_end();
}

TEST(no_pause_ends_at_a_baseline_that_is_down)
{
    rig_begin(
            "stages: [{percent: 10, soak: 3s, warm_up: 0s, patience: 10s}, {percent: 100, soak: 3s}]\n");
    canary_world->rate = 10; // no verdict, and nobody comes
    canary_world->script = lose_baseline;
    CHECK_INT(rig_run_with(5 * (int64_t)NS, false), 3);
    CHECK_DBL(canary_world->percent, 0, 0);
    CHECK(canary_world->set_ns[1] - canary_world->set_ns[0] > 60 * (int64_t)NS);
    rig_end();
}

static void lose_baseline_and_ask(struct canary_world *world)
{
    lose_baseline(world);
    if (world->set_count == 1 && !began_ns && world->now_ns > world->set_ns[0] + 10 * (int64_t)NS) {
        began_ns = world->now_ns;
        rig_ask(REQUEST_ABORT);
    }
}

static void lose_baseline_and_end(struct canary_world *world)
{
    lose_baseline(world);
    if (world->set_count == 1 && !began_ns && world->now_ns > world->set_ns[0] + 10 * (int64_t)NS) {
        began_ns = world->now_ns;
        raise(SIGTERM);
    }
}

static void lose_baseline_and_reload(struct canary_world *world)
{
    lose_baseline(world);
    if (world->set_count == 1 && !began_ns && world->now_ns > world->set_ns[0] + 10 * (int64_t)NS) {
        began_ns = world->now_ns;
        world->anew = true;
        world->percent = 0; // the file's: all to the baseline that is down
    }
}

// A candidate that answers half of the requests is better than a baseline that answers none.
TEST(a_rollback_waits_for_a_baseline_that_is_down)
{
    rig_begin(STAGES);
    canary_world->script = lose_baseline;
    canary_world->errors[CANARY_CANDIDATE] = 0.5;
    CHECK_INT(rig_run(), 1);
    CHECK_DBL(canary_world->percent, 0, 0);
    CHECK_INT(canary_world->set_count, 2);
    CHECK(canary_world->set_ns[1] - canary_world->set_ns[0] > 60 * (int64_t)NS);
    // as soon as it is up
    CHECK(canary_world->set_ns[1] - canary_world->set_ns[0] < 61 * (int64_t)NS);
    // decided and stored at once, and once
    CHECK_INT(
            rig_int("SELECT count(*) FROM rollout_decision WHERE state_to = 'rolled_back' AND rule = 'tripwire-errors' AND "
                    "effect_ns - at_ns > 58000000000"),
            1);
    CHECK_CONTAINS(rig_text("SELECT reason FROM rollout_decision WHERE state_to = 'rolled_back'"),
            "would answer nobody");
    CHECK_CONTAINS(
            rig_text("SELECT reason FROM rollout"), "had waited for a baseline that was down");
    rig_end();
    rig_begin(STAGES); // a person's word does not wait
    canary_world->script = lose_baseline_and_ask;
    canary_world->errors[CANARY_CANDIDATE] = 0.5;
    CHECK_INT(rig_run(), 1);
    CHECK_DBL(canary_world->percent, 0, 0);
    CHECK(canary_world->set_ns[1] - canary_world->set_ns[0] < 13 * (int64_t)NS);
    CHECK_INT(rig_int("SELECT count(*) FROM rollout_request WHERE taken_ns IS NOT NULL"), 1);
    rig_end();
}

static void lose_baseline_for_ever(struct canary_world *world)
{
    world->up[CANARY_BASELINE] = world->set_count != 1;
}

static void lose_candidate_later(struct canary_world *world)
{
    lose_baseline(world);
    world->up[CANARY_CANDIDATE] =
            world->set_count != 1 || world->now_ns < world->set_ns[0] + 10 * (int64_t)NS;
}

TEST(no_rollback_waits_for_ever)
{
    static void (*const scripts[])(struct canary_world *) = {
            lose_baseline_for_ever, lose_baseline_and_end, lose_candidate_later, lose_baseline};
    static const int64_t from_s[] = {20, 10, 10, 0}, to_s[] = {22, 12, 12, 1};
    for (int i = 0; i < 4; i++) {
        rig_begin(STAGES);
        canary_world->script = scripts[i];
        canary_world->errors[CANARY_CANDIDATE] = i < 3 ? 0.5 : 0;
        canary_world->wrong = i == 3; // is worse than no answer
        if (i == 3)
            rig_plan(STAGES "gate: {metrics: {wrong_answers: {limit: 0}}}\n");
        CHECK_INT(rig_run_with(20 * (int64_t)NS, false), 1);
        CHECK_INT(canary_world->set_count, 2);
        CHECK_DBL(canary_world->percent, 0, 0);
        int64_t took = canary_world->set_ns[1] - canary_world->set_ns[0];
        CHECK(took >= from_s[i] * (int64_t)NS && took < (to_s[i] + 5 * (i == 3)) * (int64_t)NS);
        CHECK_INT(
                rig_int("SELECT count(*) FROM rollout WHERE reason LIKE '%though the baseline was down%'"),
                i < 3);
        rig_end();
    }
    rig_begin(STAGES); // for CI
    canary_world->script = lose_baseline;
    canary_world->errors[CANARY_CANDIDATE] = 0.5;
    CHECK_INT(rig_run_with(0, false), 1);
    CHECK(canary_world->set_ns[1] - canary_world->set_ns[0] < NS);
    rig_end();
    rig_begin(STAGES); // the time before a restart counts
    canary_world->script = lose_baseline_for_ever;
    canary_world->errors[CANARY_CANDIDATE] = 0.5;
    canary_world->kill_at_poll = 100;
    CHECK_INT(rig_run_with(20 * (int64_t)NS, false), KILLED);
    CHECK_DBL(canary_world->percent, 10, 0);
    canary_world->kill_at_poll = 0;
    CHECK_INT(rig_run_with(20 * (int64_t)NS, false), 1);
    CHECK(canary_world->set_ns[1] - canary_world->set_ns[0] < 22 * (int64_t)NS);
    rig_end();
}

TEST(a_rollback_that_waits_outlasts_the_controller_and_the_proxy)
{
    rig_begin(STAGES);
    canary_world->script = lose_baseline;
    canary_world->errors[CANARY_CANDIDATE] = 0.5;
    canary_world->kill_at_poll = 100;
    CHECK_INT(rig_run(), KILLED);
    CHECK_DBL(canary_world->percent, 10, 0);
    CHECK_CONTAINS(rig_text("SELECT reason FROM rollout"), "would answer nobody");
    canary_world->kill_at_poll = 0;
    canary_world->errors[CANARY_CANDIDATE] = 0; // what is decided stays so
    CHECK_INT(rig_run(), 1);
    CHECK_INT(canary_world->set_count, 2);
    CHECK(canary_world->set_ns[1] - canary_world->set_ns[0] > 60 * (int64_t)NS);
    CHECK_INT(rig_int("SELECT count(*) FROM rollout_decision WHERE state_to = 'rolled_back'"), 1);
    rig_end();
    rig_begin("stages: [{percent: 10, soak: 3s}, {percent: 100, soak: 3s}]\n");
    canary_world->script = lose_baseline_and_reload;
    canary_world->errors[CANARY_CANDIDATE] = 0.5;
    CHECK_INT(rig_run(), 1);
    CHECK_DBL(canary_world->sets[1], 10, 0); // again, at once
    CHECK(canary_world->set_ns[1] - canary_world->set_ns[0] < 12 * (int64_t)NS);
    CHECK_DBL(canary_world->percent, 0, 0);
    CHECK_STR(rig_text("SELECT state FROM rollout"), "rolled_back");
    rig_end();
}

TEST(a_rollout_does_not_begin_at_a_baseline_that_is_down)
{
    rig_begin(STAGES);
    canary_world->percent = 100; // promoted last time, and the old stack is off
    canary_world->up[CANARY_BASELINE] = false;
    CHECK_INT(rig_run(), REFUSED + EHOSTDOWN);
    CHECK_INT(canary_world->set_count, 0);
    CHECK_DBL(canary_world->percent, 100, 0);
    canary_world->up[CANARY_BASELINE] = true;
    CHECK_INT(rig_run(), 0);
    CHECK_DBL(canary_world->sets[0], 0, 0);
    rig_end();
}

TEST(tripwires_of_errors_and_wrong_answers)
{
    rig_begin(STAGES);
    canary_world->errors[CANARY_CANDIDATE] = 0.5;
    CHECK_INT(rig_run(), 1);
    CHECK_STR(rig_text(LAST_RULE), "tripwire-errors");
    CHECK(canary_world->set_ns[1] - canary_world->set_ns[0] <= 500000000); // not after the warm-up
    rig_end();
    rig_begin(STAGES);
    canary_world->wrong = 1;
    CHECK_INT(rig_run(), 1);
    CHECK_STR(rig_text(LAST_RULE), "tripwire-wrong");
    rig_end();
}

static void fail_in_bursts(struct canary_world *world)
{
    for (int arm = 0; arm < CANARY_ARMS; arm++)
        world->errors[arm] = world->now_ns / NS % 40 < 4;
}

// 15 requests in ten seconds, of which six fail together, of both arms alike: two fifths, and no
// crash.
TEST(bursts_are_no_crash)
{
    rig_begin(
            "stages: [{percent: 50, soak: 100s, warm_up: 1s, patience: 110s}, {percent: 100, soak: 3s}]\n"
            "gate: {metrics: {wrong_answers: {limit: 0}}}\n");
    canary_world->rate = 3;
    canary_world->script = fail_in_bursts;
    CHECK_INT(rig_run(), 0);
    CHECK_INT(rig_int("SELECT count(*) FROM rollout_decision WHERE rule = 'tripwire-errors'"), 0);
    rig_end();
}

// An upgrade whose server answers 404 or 422, quickly and at the usual rate of errors.
TEST(a_candidate_that_rejects_goes_back)
{
    for (int few = 0; few < 2; few++) {
        rig_begin(STAGES);
        canary_world->rejected[CANARY_BASELINE] = few ? 0.01 : 0;
        canary_world->rejected[CANARY_CANDIDATE] = few ? 0.04 : 1;
        CHECK_INT(rig_run(), 1);
        CHECK_STR(rig_text(LAST_RULE), "evidence");
        CHECK_INT(rig_int("SELECT max(stage_to) FROM rollout_decision"), 0);
        CHECK(rig_int("SELECT sum(rejected) FROM v_rollout_second WHERE arm = 'candidate'") > 0);
        rig_end();
    }
}

static void hang_at_the_end(struct canary_world *world)
{
    if (world->set_count == 3 && world->now_ns > world->set_ns[2] + 2 * NS)
        world->rejected[CANARY_CANDIDATE] = world->given_up[CANARY_CANDIDATE] = 1;
}

// Clients give up before the proxy does: no request fails by its log, and at 100 % nothing is left
// to compare with.
TEST(a_hang_that_only_clients_see)
{
    rig_begin(STAGES);
    for (int arm = 0; arm < CANARY_ARMS; arm++)
        canary_world->rejected[arm] = canary_world->given_up[arm] = 0.01;
    canary_world->script = hang_at_the_end;
    CHECK_INT(rig_run(), 1);
    CHECK_STR(rig_text(LAST_RULE), "tripwire-errors");
    CHECK(canary_world->set_ns[3] - canary_world->set_ns[2] - 2 * NS <= 600000000);
    rig_end();
    rig_begin(STAGES); // where it is usual, it is no fault
    for (int arm = 0; arm < CANARY_ARMS; arm++)
        canary_world->rejected[arm] = canary_world->given_up[arm] = 0.6;
    CHECK_INT(rig_run(), 0);
    rig_end();
}

static void move_weights(struct canary_world *world)
{
    if (world->set_count == 2)
        world->percent = 80;
}

TEST(traffic_that_others_move)
{
    rig_begin(STAGES);
    canary_world->script = move_weights;
    CHECK_INT(rig_run(), 4);
    CHECK_DBL(canary_world->percent, 0, 0);
    CHECK_STR(rig_text(LAST_RULE), "traffic");
    CHECK_STR(rig_text("SELECT state FROM rollout"), "failed");
    rig_end();
    rig_begin(STAGES);
    canary_world->percent = 50; // weights of the proxy's file, before anything has begun
    CHECK_INT(rig_run(), 0);
    CHECK_DBL(canary_world->sets[0], 0, 0);
    rig_end();
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
    rig_begin(STAGES);
    canary_world->script = lose_socket;
    CHECK_INT(rig_run(), 4);
    CHECK_DBL(canary_world->percent, 0, 0);
    rig_end();
    rig_begin(STAGES);
    canary_world->script = lose_socket_for_good;
    CHECK_INT(rig_run(), 4);
    CHECK_DBL(canary_world->percent, 50, 0); // nothing could be done, and that is said
    CHECK_CONTAINS(rig_text("SELECT reason FROM rollout"), "look at it now");
    // When it is back, whoever starts it again brings the traffic to the baseline, and nothing
    // else.
    canary_world->script = NULL;
    canary_world->get_fails = false;
    canary_world->fail_sets = 0;
    CHECK_INT(rig_run(), 4);
    CHECK_DBL(canary_world->percent, 0, 0);
    rig_end();
    rig_begin(STAGES);
    canary_world->fail_sets = 1; // the first move up
    CHECK_INT(rig_run(), 4);
    CHECK_DBL(canary_world->percent, 0, 0);
    CHECK_INT(canary_world->set_count, 1);
    rig_end();
}

// --- log lines that are lost

static void lose(struct canary_world *world)
{
    if (world->set_count == 1 && !world->lost && world->now_ns > world->set_ns[0] + NS)
        world->lost = 3;
}

TEST(lost_lines_withhold_a_pass)
{
    rig_begin(
            "stages: [{percent: 10, soak: 3s, warm_up: 1s, patience: 20s}, {percent: 50, soak: 3s}, {percent: 100, soak: 3s}]\n");
    canary_world->script = lose;
    // each may have been a wrong answer, and the limit is 0
    CHECK_INT(rig_run_with(5 * (int64_t)NS, false), 3);
    CHECK_DBL(canary_world->percent, 0, 0);
    CHECK_CONTAINS(rig_text("SELECT reason FROM rollout_decision WHERE rule = 'patience' LIMIT 1"),
            "wrong_answers would pass, but 3 log lines of this stage were lost");
    CHECK_INT(rig_int("SELECT lost FROM rollout_stage WHERE number = 0"), 3);
    // who reads the store hears the same
    CHECK_INT(
            rig_int("SELECT count(*) FROM rollout_cell WHERE metric = 'wrong_answers' AND verdict = 'pass' AND at_s > "
                    "(SELECT begin_s FROM rollout_stage WHERE number = 0) + 3"),
            0);
    rig_end();
}

TEST(lost_lines_that_change_nothing)
{
    rig_begin(STAGES "gate: {metrics: {error_rate: {margin: 50%}}}\n");
    canary_world->script = lose;
    CHECK_INT(rig_run(), 0);
    CHECK_INT(rig_int("SELECT lost FROM rollout_stage WHERE number = 0"), 3);
    CHECK_INT(rig_int("SELECT sum(lost) FROM rollout_stage WHERE number > 0"), 0);
    rig_end();
}

static void lose_many(struct canary_world *world)
{
    if (world->set_count == 3 && world->now_ns > world->set_ns[2] + NS)
        world->lost = 8000; // beside 20,000 requests a second of this stage
}

TEST(lost_lines_at_the_whole_traffic)
{
    rig_begin(
            "stages: [{percent: 10, soak: 3s}, {percent: 50, soak: 3s}, {percent: 100, soak: 3s, patience: 30s}]\n"
            "gate: {metrics: {error_rate: {margin: 900%}}, tripwires: {error_rate: 2%}}\n");
    canary_world->script = lose_many;
    CHECK_INT(rig_run_with(5 * (int64_t)NS, false), 3);
    CHECK_CONTAINS(rig_text("SELECT reason FROM rollout_decision WHERE rule = 'patience' LIMIT 1"),
            "the tripwire would have fired");
    rig_end();
}

static void lose_and_resume(struct canary_world *world)
{
    lose(world);
    if (world->set_count == 1 && !began_ns && world->now_ns > world->set_ns[0] + 60 * (int64_t)NS) {
        began_ns = world->now_ns;
        rig_ask(REQUEST_RESUME);
    }
}

TEST(a_person_has_the_stage_judged_anew)
{
    rig_begin(
            "stages: [{percent: 10, soak: 3s, warm_up: 1s, patience: 40s}, {percent: 100, soak: 3s}]\n");
    canary_world->script = lose_and_resume;
    CHECK_INT(rig_run_with(600 * (int64_t)NS, false), 0);
    CHECK(canary_world->set_ns[1] >= began_ns + 3 * (int64_t)NS); // the soak again
    CHECK_CONTAINS(
            rig_text(
                    "SELECT reason FROM rollout_decision WHERE rule = 'person' AND state_from = 'paused'"),
            "the stage is judged anew, for 3 of its log lines were lost");
    CHECK_INT(rig_int("SELECT lost FROM rollout_stage WHERE number = 0"), 0);
    rig_end();
}

// --- a proxy that is started again, with the weights of its file

static void reload(struct canary_world *world)
{
    if (world->set_count == 2 && !began_ns && world->now_ns > world->set_ns[1] + NS) {
        began_ns = world->now_ns;
        world->percent = 80;
        world->anew = true;
    }
}

TEST(a_proxy_that_forgets_is_told_again)
{
    rig_begin(STAGES);
    canary_world->script = reload;
    CHECK_INT(rig_run(), 0);
    static const double sets[] = {10, 50, 50, 100};
    CHECK_INT(canary_world->set_count, 4);
    for (int i = 0; i < 4; i++)
        CHECK_DBL(canary_world->sets[i], sets[i], 0);
    CHECK(canary_world->set_ns[2] - canary_world->set_ns[1] - NS <= 300000000);
    CHECK_INT(
            rig_int("SELECT count(*) FROM rollout_decision WHERE rule = 'proxy' AND state_from = state_to AND percent_to = 50"),
            1);
    CHECK_CONTAINS(rig_text("SELECT reason FROM rollout_decision WHERE rule = 'proxy'"),
            "the candidate had 80 % of the traffic instead of 50 %, for ");
    CHECK_INT(rig_int("SELECT count(*) FROM rollout_decision WHERE rule = 'traffic'"), 0);
    rig_end();
}

static void reload_and_refuse(struct canary_world *world)
{
    reload(world);
    if (began_ns)
        world->fail_sets = world->now_ns < began_ns + 15 * (int64_t)NS ? -1 : 0;
}

TEST(a_proxy_that_cannot_be_told_again)
{
    rig_begin(STAGES);
    canary_world->script = reload_and_refuse;
    CHECK_INT(rig_run(), 4);
    CHECK_DBL(canary_world->percent, 0, 0);
    CHECK_INT(canary_world->set_count, 3);
    CHECK_STR(rig_text(LAST_RULE), "traffic");
    CHECK_CONTAINS(rig_text("SELECT reason FROM rollout_decision ORDER BY id DESC LIMIT 1"),
            "could not be set again: the socket is gone");
    // It was given up after the time of one command (10 s), and the way back was tried until it
    // worked.
    CHECK_INT(
            rig_int("SELECT (effect_ns - at_ns) / 1000000000 FROM rollout_decision ORDER BY id DESC LIMIT 1"),
            4);
    rig_end();
}

static void restart(struct canary_world *world)
{
    if (world->set_count == 2 && !began_ns && world->now_ns > world->set_ns[1] + NS)
        began_ns = world->now_ns;
    bool was = world->get_fails;
    world->get_fails = began_ns && world->now_ns < began_ns + 8 * (int64_t)NS;
    world->fail_sets = world->get_fails ? -1 : 0;
    if (was && !world->get_fails) {
        world->percent = 0;
        world->anew = true;
    }
}

TEST(a_proxy_that_is_away_for_a_while)
{
    rig_begin(STAGES);
    canary_world->script = restart;
    CHECK_INT(rig_run(), 0); // what passed meanwhile waited
    static const double sets[] = {10, 50, 50, 100};
    CHECK_INT(canary_world->set_count, 4);
    for (int i = 0; i < 4; i++)
        CHECK_DBL(canary_world->sets[i], sets[i], 0);
    CHECK_CONTAINS(rig_text("SELECT reason FROM rollout_decision WHERE rule = 'proxy'"),
            "had 0 % of the traffic instead of 50 %");
    rig_end();
}

static void reload_after_the_way_back(struct canary_world *world)
{
    reload(world);
    if (world->set_count == 3)
        world->in_flight = 0;
}

TEST(a_proxy_that_forgets_what_was_rolled_back)
{
    rig_begin(STAGES "rollback: {drain: 30s}\n");
    canary_world->errors[CANARY_CANDIDATE] = 0.5;
    canary_world->in_flight = 3;
    canary_world->script = reload_after_the_way_back;
    CHECK_INT(rig_run(), 1);
    CHECK_INT(canary_world->set_count, 3);
    CHECK_DBL(canary_world->percent, 0, 0);
    CHECK_INT(
            rig_int("SELECT count(*) FROM rollout_decision WHERE rule = 'proxy' AND state_to = 'rolled_back'"),
            1);
    rig_end();
}

static void fall_silent(struct canary_world *world)
{
    if (world->set_count == 1)
        world->silent = world->now_ns > world->set_ns[0] + 2 * NS &&
                world->now_ns < world->set_ns[0] + 90 * (int64_t)NS;
}

TEST(stale_evidence_pauses)
{
    rig_begin(STAGES);
    canary_world->script = fall_silent;
    CHECK_INT(rig_run(), 0);
    // and goes on by itself
    CHECK_INT(rig_int("SELECT count(*) FROM rollout_decision WHERE rule = 'stale'"), 2);
    CHECK_CONTAINS(
            rig_text("SELECT reason FROM rollout_decision WHERE rule = 'stale'"), "nobody writes");
    rig_end();
    rig_begin(STAGES);
    canary_world->silent = true;
    CHECK_INT(rig_run_with(20 * (int64_t)NS, false), 3);
    CHECK_DBL(canary_world->percent, 0, 0);
    CHECK_STR(rig_text("SELECT state FROM rollout"), "paused");
    // Started again: the same stage, with its traffic.
    canary_world->silent = false;
    CHECK_INT(rig_run(), 0);
    rig_end();
}

static void candidate_falls_silent(struct canary_world *world)
{
    bool began = world->set_count == 1 && world->now_ns > world->set_ns[0] + 10 * (int64_t)NS;
    world->mute[CANARY_CANDIDATE] =
            began && (!began_ns || world->now_ns < world->set_ns[0] + began_ns);
}

#define SILENCE \
    "stages: [{percent: 10, soak: 30s, warm_up: 1s}, {percent: 50, soak: 3s}, {percent: 100, soak: 3s}]\nstale: 5s\n"

// It hangs, or its series are gone: nothing of it fails, and what it showed before would do for the
// stage.
TEST(a_candidate_that_is_heard_no_more)
{
    rig_begin(SILENCE);
    canary_world->script = candidate_falls_silent;
    CHECK_INT(rig_run_with(5 * (int64_t)NS, false), 3);
    CHECK_DBL(canary_world->percent, 0, 0);
    CHECK_STR(rig_text("SELECT rule FROM rollout_decision WHERE state_from = 'running'"), "stale");
    CHECK_CONTAINS(
            rig_text("SELECT reason FROM rollout"), "no request of the candidate has ended for");
    CHECK_INT(rig_int("SELECT max(stage_to) FROM rollout_decision"), 0);
    // 10 s, twice `stale`, the pause
    CHECK(canary_world->set_ns[1] - canary_world->set_ns[0] < 30 * (int64_t)NS);
    rig_end();
    rig_begin(SILENCE);
    canary_world->script = candidate_falls_silent;
    began_ns = 30 * (int64_t)NS; // it comes back, and the rollout goes on by itself
    CHECK_INT(rig_run(), 0);
    CHECK_INT(rig_int("SELECT count(*) FROM rollout_decision WHERE rule = 'stale'"), 2);
    // its silence is no soak
    CHECK(canary_world->set_ns[1] - canary_world->set_ns[0] > 50 * (int64_t)NS);
    began_ns = 0;
    rig_end();
}

static void baseline_falls_silent(struct canary_world *world)
{
    // from the second stage on: by its health check it is up
    world->mute[CANARY_BASELINE] = world->set_count == 2;
}

TEST(a_baseline_that_is_heard_no_more)
{
    rig_begin(
            "stages: [{percent: 10, soak: 3s, warm_up: 1s}, {percent: 50, soak: 3s, patience: 40s}, {percent: 100, soak: 3s}]\n");
    canary_world->script = baseline_falls_silent;
    CHECK_INT(rig_run_with(5 * (int64_t)NS, false), 3);
    CHECK_DBL(canary_world->percent, 0, 0);
    CHECK_INT(rig_int("SELECT max(stage_to) FROM rollout_decision"), 1);
    CHECK_CONTAINS(rig_text("SELECT reason FROM rollout_decision WHERE rule = 'patience' LIMIT 1"),
            "no request of the baseline has ended");
    CHECK_STR(
            rig_text(
                    "SELECT verdict FROM rollout_cell WHERE stage = 1 AND metric = 'error_rate' AND at_s <= (SELECT min(at_ns) / 1000000000 "
                    "FROM rollout_decision WHERE rule = 'patience') ORDER BY at_s DESC LIMIT 1"),
            "undecided");
    rig_end();
}

static void candidate_pauses(struct canary_world *world)
{
    int64_t since = world->set_count == 1 ? world->now_ns - world->set_ns[0] : 0;
    // told later: as if the candidate had all of the traffic
    world->mute[CANARY_BASELINE] = since > 0 && since <= 10 * (int64_t)NS;
    world->mute[CANARY_CANDIDATE] = since > 10 * (int64_t)NS && since < 27 * (int64_t)NS;
}

// A request a second: 17 that do not come may be chance, however long `stale` is.
TEST(a_candidate_with_little_traffic_is_not_silent)
{
    rig_begin(
            "stages: [{percent: 1, soak: 100s, warm_up: 1s, patience: 110s}, {percent: 100, soak: 3s}]\n"
            "stale: 3s\ngate: {metrics: {wrong_answers: {limit: 0}}}\n");
    canary_world->rate = 100;
    canary_world->script = candidate_pauses;
    CHECK_INT(rig_run(), 0);
    CHECK_INT(rig_int("SELECT count(*) FROM rollout_decision WHERE rule = 'stale'"), 0);
    rig_end();
}

TEST(thin_traffic_never_passes)
{
    rig_begin(
            "stages: [{percent: 10, soak: 3s, warm_up: 0s, patience: 20s}, {percent: 100, soak: 3s}]\n");
    canary_world->rate = 10;
    CHECK_INT(rig_run_with(5 * (int64_t)NS, false), 3);
    CHECK_DBL(canary_world->percent, 0, 0);
    CHECK_STR(
            rig_text("SELECT rule FROM rollout_decision WHERE state_from = 'running'"), "patience");
    CHECK_CONTAINS(rig_text("SELECT reason FROM rollout"), "nobody answered for");
    CHECK_INT(canary_world->set_count, 2);
    rig_end();
}
