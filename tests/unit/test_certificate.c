// SPDX-License-Identifier: Apache-2.0
// Certificates: from an A/A run into the host's file and into other runs; damaged files, many
// writers.
#include "harness/gate/certificate/certificate.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness/gate/gate.h"
#include "tests/unit/gate_world.h"
#include "tests/unit/runner.h"

static char path[128], test_dir[64];

static void path_remove(void)
{
    char command[96];
    snprintf(command, sizeof command, "rm -rf '%s'", test_dir);
    if (system(command))
        puts("    could not remove the test's directory");
}

static void path_make(void)
{
    snprintf(test_dir, sizeof test_dir, "/tmp/upgate-test-XXXXXX");
    if (!mkdtemp(test_dir))
        exit(1);
    atexit(path_remove); // each case is a process of its own
    snprintf(path, sizeof path, "%s/a/b/calibration.db", test_dir);
}

static const struct certificate sample = {.scope = "workload:1",
        .kind = "train model",
        .interleave = PLAN_INTERLEAVE_STEPS,
        .metric = METRIC_STEP_TIME,
        .margin = 0.02,
        .made_wall_ns = 123,
        .aa_pairs = 14,
        .aa_lower = -0.001,
        .aa_upper = 0.002,
        .mde = 0.004,
        .pair_sd = 0.003,
        .held = 0.02,
        .planted = 0.0198,
        .held_pairs = 10,
        .held_lower = 0.018,
        .held_upper = 0.021,
        .source_run = "uuid"};

static struct certificate_gate gate_of(const char *run, const char *scope, bool failed)
{
    return (struct certificate_gate){scope, "train model", run, PLAN_INTERLEAVE_STEPS, 123, failed};
}

static int64_t gates, false_fails;

static int save(const char *run, const char *host, const struct certificate *one, bool failed,
        struct error *err)
{
    struct certificate_gate gate = gate_of(run, one->scope, failed);
    return certificate_save(path, host, &gate, one, 1, &gates, &false_fails, err);
}

// Number of certificates of this host, the first in *ret_first; or -errno.
static int load(const char *host, struct certificate *ret_first, struct error *err)
{
    struct certificate *all = NULL;
    int count = 0, rc = certificate_load(path, host, &all, &count, err);
    if (rc)
        return rc;
    if (ret_first)
        *ret_first = all[0];
    certificates_free(all, count);
    return count;
}

TEST(saved_and_found)
{
    struct certificate found = {0};
    struct error err = {0};
    path_make();
    CHECK_INT(load("h", &found, &err), -ENOENT);
    CHECK_INT(save("one", "h", &sample, false, &err), 0);
    CHECK_INT(load("h", &found, &err), 1);
    CHECK_STR(found.scope, "workload:1");
    CHECK_STR(found.kind, "train model");
    CHECK_INT(found.interleave, PLAN_INTERLEAVE_STEPS);
    CHECK_INT(found.metric, METRIC_STEP_TIME);
    CHECK_INT(found.made_wall_ns, 123);
    CHECK_DBL(found.margin, 0.02, 0);
    CHECK_DBL(found.aa_lower, -0.001, 0);
    CHECK_DBL(found.aa_upper, 0.002, 0);
    CHECK_DBL(found.mde, 0.004, 0);
    CHECK_DBL(found.pair_sd, 0.003, 0);
    CHECK_DBL(found.held, 0.02, 0);
    CHECK_DBL(found.planted, 0.0198, 0);
    CHECK_INT(found.held_pairs, 10);
    CHECK_DBL(found.held_lower, 0.018, 0);
    CHECK_DBL(found.held_upper, 0.021, 0);
    CHECK_INT(found.gates, 1);
    CHECK_DBL(found.upper_bound, 0.95, 1e-12); // one gate says next to nothing
    CHECK_STR(found.source_run, "uuid");
    CHECK_INT(load("other", &found, &err), -ENOENT);
    struct certificate newer = sample;
    newer.made_wall_ns = 124;
    newer.held = NAN;
    CHECK_INT(save("two", "h", &newer, false, &err), 0);
    CHECK_INT(load("h", &found, &err), 1);
    CHECK_INT(found.made_wall_ns, 124);
    CHECK(isnan(found.held));
    CHECK_INT(found.gates, 2);
}

// An age of such a time would overflow: the row is none.
TEST(a_time_out_of_range_is_no_certificate)
{
    struct certificate odd = sample;
    struct error err = {0};
    path_make();
    odd.made_wall_ns = INT64_MIN;
    CHECK_INT(save("one", "h", &odd, false, &err), 0);
    CHECK_INT(load("h", NULL, &err), -ENOENT);
    odd.made_wall_ns = 123;
    odd.metric = METRIC_TOTAL_TIME;
    CHECK_INT(save("two", "h", &odd, false, &err), 0);
    CHECK_INT(load("h", NULL, &err), 1);
}

TEST(gates_are_counted_one_by_one)
{
    struct certificate found, other = sample, refused = sample;
    struct error err = {0};
    path_make();
    snprintf(other.scope, sizeof other.scope, "workload:2");
    refused.objection = "not found";
    CHECK_INT(save("one", "h", &sample, false, &err), 0);
    CHECK_INT(save("one", "h", &sample, false, &err), 0); // the same gate again
    CHECK_INT(gates, 1);
    CHECK_INT(save("one", "h", &other, false, &err), 0); // another workload of that run
    CHECK_INT(gates, 2);
    CHECK_INT(load("h", NULL, &err), 2);
    CHECK_INT(save("two", "h", &refused, true, &err), 0); // it fails: what it had is gone
    CHECK_INT(gates, 3);
    CHECK_INT(false_fails, 1);
    CHECK_INT(load("h", &found, &err), 1);
    CHECK_STR(found.scope, "workload:2");
    CHECK_INT(found.gates, 3);
    CHECK_INT(found.false_fails, 1);
    CHECK_DBL(found.upper_bound, 0.8646497, 1e-6);         // scipy.stats.beta.ppf(.95, 2, 2)
    CHECK_INT(save("one", "h2", &sample, false, &err), 0); // another machine with this home
    CHECK_INT(gates, 1);
}

static void sql_on_file(const char *sql)
{
    char command[400];
    snprintf(command, sizeof command, "sqlite3 '%s' '%s'", path, sql);
    if (system(command))
        runner_skip("no sqlite3 program");
}

TEST(a_damaged_file_is_put_aside)
{
    struct error err = {0};
    path_make();
    CHECK_INT(save("one", "h", &sample, false, &err), 0);
    FILE *file = fopen(path, "w");
    for (int i = 0; i < 1000; i++)
        fputs("this is not a database\n", file);
    fclose(file);
    CHECK_INT(load("h", NULL, &err), -EBADMSG);
    CHECK_CONTAINS(err.text, "damaged");
    CHECK_INT(save("one", "h", &sample, false, &err), 0);
    CHECK_INT(load("h", NULL, &err), 1);
    char aside[160];
    snprintf(aside, sizeof aside, "%s.damaged", path);
    CHECK_INT(access(aside, F_OK), 0);
}

TEST(certificates_that_could_not_fail_are_put_aside)
{
    struct error err = {0};
    path_make();
    CHECK_INT(save("one", "h", &sample, false, &err), 0);
    sql_on_file("PRAGMA user_version = 1; DROP TABLE aa_gate");
    CHECK_INT(load("h", NULL, &err), -ESTALE);
    CHECK_CONTAINS(err.text, "could not fail (version 1): they prove nothing");
    CHECK_INT(save("one", "h", &sample, false, &err), 0);
    CHECK_INT(load("h", NULL, &err), 1);
    char aside[160];
    snprintf(aside, sizeof aside, "%s.old", path);
    CHECK_INT(access(aside, F_OK), 0);
}

TEST(a_file_of_something_else_and_of_a_newer_upgate)
{
    struct error err = {0};
    path_make();
    CHECK_INT(save("one", "h", &sample, false, &err), 0);
    sql_on_file("PRAGMA user_version = 9");
    CHECK_INT(load("h", NULL, &err), -EPROTO);
    CHECK_CONTAINS(err.text, "newer upgate");
    CHECK_INT(save("one", "h", &sample, false, &err), -EPROTO); // not put aside: it is somebody's
    sql_on_file("PRAGMA user_version = 2; PRAGMA application_id = 5");
    CHECK_INT(load("h", NULL, &err), -EBADMSG);
}

TEST(a_directory_that_cannot_be_made)
{
    struct error err = {0};
    snprintf(path, sizeof path, "/proc/nothing/calibration.db");
    CHECK(save("one", "h", &sample, false, &err) < 0);
    CHECK_CONTAINS(err.text, "/proc/nothing");
}

TEST(many_writers_at_once)
{
    struct error err = {0};
    struct certificate mine = sample;
    enum { WRITERS = 6, ROUNDS = 10 };
    path_make();
    fflush(NULL);
    for (int i = 0; i < WRITERS; i++) {
        if (fork() == 0) {
            int failed = 0;
            snprintf(mine.scope, sizeof mine.scope, "workload:%d", i);
            for (int round = 0; round < ROUNDS; round++) {
                char run[16];
                snprintf(run, sizeof run, "run-%d", round);
                failed += save(run, "h", &mine, false, &err) != 0;
            }
            _exit(failed);
        }
    }
    for (int i = 0; i < WRITERS; i++) {
        int status = -1;
        wait(&status);
        CHECK_INT(status, 0);
    }
    struct certificate found;
    CHECK_INT(load("h", &found, &err), WRITERS);
    CHECK_INT(found.gates, WRITERS * ROUNDS);
}

TEST(places)
{
    setenv("HOME", "/h", 1);
    unsetenv("XDG_STATE_HOME");
    unsetenv("UPGATE_STATE_DIR");
    char *place = certificate_path();
    CHECK_STR(place, "/h/.local/state/upgate/calibration.db");
    free(place);
    setenv("XDG_STATE_HOME", "/x", 1);
    place = certificate_path();
    CHECK_STR(place, "/x/upgate/calibration.db");
    free(place);
    setenv("UPGATE_STATE_DIR", "/u", 1);
    place = certificate_path();
    CHECK_STR(place, "/u/calibration.db");
    free(place);
    unsetenv("XDG_STATE_HOME");
    unsetenv("UPGATE_STATE_DIR");
    unsetenv("HOME");
    CHECK(certificate_path() == NULL);
}

// --- from run to run -----------------------------------------------------------------------------

static struct world aa, ab;

// A second world in the same state directory.
static void open_beside(void)
{
    char *dir = strdup(getenv("UPGATE_STATE_DIR"));
    world_open(&ab, NULL, NULL);
    setenv("UPGATE_STATE_DIR", dir, 1);
    free(dir);
}

// Phase control: side b held longer by 2 %, and so measured as slower by 2 %.
static const struct world_pair held = {.phase = "control", .held = 0.02};

static struct gate_control need_of(struct world *world)
{
    struct gate_control control = {0};
    struct error err = {0};
    CHECK_INT(gate_control_need(world->store, 1, &control, &err), 0);
    return control;
}

static int certificates_of(struct world *world)
{
    return (int)world_number(world, "SELECT count(*) FROM control WHERE objection IS NULL");
}

static const char *objection_to(struct world *world, const char *metric)
{
    char sql[120];
    snprintf(sql, sizeof sql, "SELECT objection FROM control WHERE metric = '%s'", metric);
    return world_text(world, sql);
}

TEST(an_aa_run_with_a_control_covers_later_runs)
{
    struct error err = {0};
    world_open_aa(&aa, NULL, NULL);
    world_pairs(&aa, 10, (struct world_pair){0});
    struct gate_control control = need_of(&aa);
    CHECK_STR(control.need.phase, "control");
    CHECK_INT(control.need.pairs_wanted, 10);
    CHECK_DBL(control.share, 0.02, 0);
    CHECK(!control.frozen);
    world_pairs(&aa, 10, held);
    CHECK_INT(need_of(&aa).need.pairs_wanted, 0);
    CHECK_INT(gate_certify(aa.store, &err), 0);
    CHECK_INT(gate_certify(aa.store, &err), 0); // once more changes nothing
    CHECK_STR(objection_to(&aa, "step_time"), "");
    CHECK_INT(certificates_of(&aa), world_number(&aa, "SELECT count(*) FROM control"));
    CHECK_INT(world_number(&aa, "SELECT max(gates) FROM control"), 1);
    CHECK_DBL(world_number(&aa, "SELECT planted FROM control WHERE metric = 'step_time'"),
            log1p(0.02), 1e-4);
    CHECK(isnan(world_number(&aa, "SELECT held FROM control WHERE metric = 'peak_memory'")));
    open_beside();
    world_pairs(&ab, 10, (struct world_pair){0});
    CHECK_INT(world_judge(&ab), EXIT_CODE_INCONCLUSIVE);
    CHECK_INT(need_of(&ab).need.pairs_wanted, 0); // copied, and covers
    CHECK_INT(world_judge(&ab), EXIT_CODE_PASS);
    CHECK_CONTAINS(world_text(&ab, "SELECT calibration_note FROM verdict"),
            "w: a side held 2 % longer was found");
    CHECK_CONTAINS(world_text(&ab, "SELECT calibration_note FROM verdict"),
            "peak_memory, slow_steps by equal sides alone; 0 false fails in 1 A/A gate here");
    world_sql(&ab, "DELETE FROM control");
    world_sql(&ab, "UPDATE run SET host_key = 'host-2'"); // another machine with the same home
    CHECK_INT(need_of(&ab).need.pairs_wanted, 10);
    CHECK_INT(world_judge(&ab), EXIT_CODE_INCONCLUSIVE);
    world_close(&ab);
    world_close(&aa);
}

TEST(a_biased_aa_run_gives_none)
{
    struct error err = {0};
    world_open_aa(&aa, NULL, NULL);
    world_pairs(&aa, 10, (struct world_pair){.ratio = 1.5});
    CHECK_INT(need_of(&aa).need.pairs_wanted, 0); // no control can mend that
    world_pairs(&aa, 10, held);
    CHECK_INT(gate_certify(aa.store, &err), 0);
    CHECK_INT(certificates_of(&aa), 0);
    CHECK_CONTAINS(objection_to(&aa, "step_time"), "equal sides are not seen as equal: +49.96 %");
    CHECK_CONTAINS(objection_to(&aa, "peak_memory"), "the gate failed on equal sides");
    CHECK_INT(world_number(&aa, "SELECT false_fails FROM control"), 1);
    CHECK_CONTAINS(world_text(&aa, "SELECT text FROM note"), "gives no certificate for step_time");
    open_beside();
    world_pairs(&ab, 10, (struct world_pair){0});
    CHECK_INT(need_of(&ab).need.pairs_wanted, 10);
    CHECK_INT(world_judge(&ab), EXIT_CODE_INCONCLUSIVE);
    world_close(&ab);
    world_close(&aa);
}

TEST(three_pairs_give_none)
{
    struct error err = {0};
    world_open_aa(&aa, NULL, NULL);
    world_pairs(&aa, 3, (struct world_pair){0});
    world_pairs(&aa, 10, held);
    CHECK_INT(gate_certify(aa.store, &err), 0);
    CHECK_INT(certificates_of(&aa), 0);
    CHECK_CONTAINS(objection_to(&aa, "step_time"),
            "3 pairs of equal sides have it, the first look is at 10");
    world_close(&aa);
}

TEST(launches_without_steps_give_none_for_step_time)
{
    struct error err = {0};
    world_open_aa(&aa, NULL, "gate: {metrics: {step_time: {margin: 2%}}}");
    world_pairs(&aa, 10, (struct world_pair){.no_steps_a = 1, .no_steps_b = 1});
    world_pairs(&aa, 10,
            (struct world_pair){
                    .phase = "control", .no_steps_a = 1, .no_steps_b = 1, .held = 0.02});
    CHECK_INT(gate_certify(aa.store, &err), 0);
    CHECK_INT(certificates_of(&aa), 0);
    world_close(&aa);
}

TEST(a_control_that_is_not_found_gives_none)
{
    struct error err = {0};
    world_open_aa(&aa, NULL, NULL);
    world_pairs(&aa, 10, (struct world_pair){0});
    world_pairs(&aa, 10, (struct world_pair){.phase = "control"});
    // The launches say that they were held longer; nobody saw it (a step file that was not read).
    world_sql(&aa,
            "UPDATE launch SET covariates = '{\"control_ppm\":20000}' WHERE side = 1 AND "
            "pair_id > 10");
    CHECK(need_of(&aa).need.pairs_wanted > 10); // more pairs might show it
    CHECK_INT(gate_certify(aa.store, &err), 0);
    CHECK_CONTAINS(objection_to(&aa, "step_time"), "a side that was held 2 % longer was not found");
    CHECK_INT(world_number(&aa,
                      "SELECT count(*) FROM control WHERE metric IN ('step_time', "
                      "'throughput') AND objection IS NULL"),
            0);
    world_close(&aa);
}

TEST(a_wide_aa_run_goes_on)
{
    world_open_aa(&aa, NULL, NULL);
    world_pairs(&aa, 10, (struct world_pair){.pair_sd = 0.011});
    struct gate_control control = need_of(&aa); // within the margin, not within half of it
    CHECK_STR(control.need.phase, "main");
    CHECK_INT(control.need.pairs_wanted, 14);
    world_close(&aa);
}

TEST(a_run_that_would_pass_makes_its_own)
{
    struct error err = {0};
    world_open(&ab, NULL, NULL);
    world_pairs(&ab, 10, (struct world_pair){0});
    CHECK_INT(need_of(&ab).need.pairs_wanted, 10);
    CHECK_INT(gate_certify(ab.store, &err), 0); // an A/B run certifies nothing by itself
    CHECK_INT(certificates_of(&ab), 0);
    world_pairs(&ab, 10, held);
    CHECK_INT(need_of(&ab).need.pairs_wanted, 0);
    CHECK_INT(gate_certify(ab.store, &err), 0);
    CHECK_INT(world_judge(&ab), EXIT_CODE_PASS);
    CHECK_CONTAINS(
            world_text(&ab, "SELECT calibration_note FROM verdict"), "at 10 pairs of this run");
    CHECK_INT(world_number(&ab, "SELECT pairs FROM cell WHERE metric = 'step_time'"), 10);
    world_close(&ab);
}

// Names have up to 200 bytes: a control is found by the whole of it.
TEST(a_long_name_finds_its_own)
{
    struct error err = {0};
    char workloads[320];
    snprintf(workloads, sizeof workloads,
            "workloads: [{name: w%0199d, mode: train, command: [x, \"{steps}\"]}]", 7);
    world_open(&ab, workloads, NULL);
    world_pairs(&ab, 10, (struct world_pair){0});
    world_pairs(&ab, 10, held);
    CHECK_INT(gate_certify(ab.store, &err), 0);
    CHECK_INT(world_judge(&ab), EXIT_CODE_PASS);
    CHECK_CONTAINS(
            world_text(&ab, "SELECT calibration_note FROM verdict"), "at 10 pairs of this run");
    world_close(&ab);
}

TEST(a_run_that_would_not_pass_makes_none)
{
    world_open(&ab, NULL, NULL);
    world_pairs(&ab, 10, (struct world_pair){.ratio = 1.05});
    CHECK_INT(need_of(&ab).need.pairs_wanted, 0);
    world_close(&ab);
    world_open(&ab, NULL, "gate: {calibrate: require}");
    world_pairs(&ab, 10, (struct world_pair){0});
    CHECK_INT(need_of(&ab).need.pairs_wanted, 0);
    CHECK_INT(world_judge(&ab), EXIT_CODE_INCONCLUSIVE);
    world_close(&ab);
}

TEST(commands_in_slices_are_held_by_standing_still)
{
    struct error err = {0};
    const struct world_pair plain = {.interleave = "slices", .no_steps_a = 1, .no_steps_b = 1};
    struct world_pair still = plain;
    world_open(&ab, "workloads: [{name: w, command: [x]}]", NULL);
    world_sql(&ab, "UPDATE workload SET interleave = 'slices'");
    world_pairs(&ab, 10, plain);
    struct gate_control control = need_of(&ab);
    CHECK_INT(control.need.pairs_wanted, 10);
    CHECK(control.frozen);
    still.phase = "control";
    still.held = control.share;
    world_pairs(&ab, 10, still);
    CHECK_INT(gate_certify(ab.store, &err), 0);
    CHECK_STR(objection_to(&ab, "total_time"), "");
    CHECK_DBL(world_number(&ab, "SELECT planted FROM control WHERE metric = 'total_time'"),
            log1p(control.share), 1e-6);
    CHECK(isnan(world_number(&ab, "SELECT held FROM control WHERE metric = 'cpu_time'")));
    CHECK_INT(world_judge(&ab), EXIT_CODE_PASS);
    world_close(&ab);
}

TEST(a_state_directory_that_cannot_be_written)
{
    struct error err = {0};
    world_open_aa(&aa, NULL, NULL);
    world_pairs(&aa, 10, (struct world_pair){0});
    world_pairs(&aa, 10, held);
    setenv("UPGATE_STATE_DIR", "/proc/nothing", 1);
    CHECK_INT(gate_certify(aa.store, &err), 0); // the run still has it
    CHECK(certificates_of(&aa) > 0);
    CHECK_CONTAINS(world_text(&aa, "SELECT text FROM note"), "kept in this run only");
    world_close(&aa);
}
