// SPDX-License-Identifier: Apache-2.0
// Certificates: from an A/A run into the host's file and into other runs; damaged files, many
// writers.
#include "harness/gate/certificate.h"

#include <errno.h>
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

static const struct certificate sample = {.scope = "host",
                                          .interleave = PLAN_INTERLEAVE_STEPS,
                                          .made_wall_ns = 123,
                                          .aa_pairs = 14,
                                          .gates = 300,
                                          .false_fails = 1,
                                          .upper_bound = 0.0157,
                                          .method = "re-split",
                                          .pair_sd = 0.004,
                                          .seed = 7,
                                          .source_run = "uuid"};

TEST(saved_and_found)
{
    struct certificate found = {0};
    struct error err = {0};
    path_make();
    CHECK_INT(certificate_find(path, "h", "host", PLAN_INTERLEAVE_STEPS, &found, &err), -ENOENT);
    CHECK_INT(certificate_save(path, "h", &sample, &err), 0);
    CHECK_INT(certificate_find(path, "h", "host", PLAN_INTERLEAVE_STEPS, &found, &err), 0);
    CHECK_INT(found.gates, 300);
    CHECK_INT(found.false_fails, 1);
    CHECK_DBL(found.upper_bound, 0.0157, 0);
    CHECK_DBL(found.pair_sd, 0.004, 0);
    CHECK_STR(found.source_run, "uuid");
    CHECK_INT(certificate_find(path, "other", "host", PLAN_INTERLEAVE_STEPS, &found, &err),
              -ENOENT);
    CHECK_INT(certificate_find(path, "h", "host", PLAN_INTERLEAVE_SLICES, &found, &err), -ENOENT);
    CHECK_CONTAINS(err.text, "turns of slices");
    struct certificate newer = sample;
    newer.gates = 301;
    newer.pair_sd = NAN;
    CHECK_INT(certificate_save(path, "h", &newer, &err), 0);
    CHECK_INT(certificate_find(path, "h", "host", PLAN_INTERLEAVE_STEPS, &found, &err), 0);
    CHECK_INT(found.gates, 301);
    CHECK(isnan(found.pair_sd));
}

TEST(a_damaged_file_is_put_aside)
{
    struct certificate found;
    struct error err = {0};
    path_make();
    CHECK_INT(certificate_save(path, "h", &sample, &err), 0);
    FILE *file = fopen(path, "w");
    for (int i = 0; i < 1000; i++)
        fputs("this is not a database\n", file);
    fclose(file);
    CHECK_INT(certificate_find(path, "h", "host", PLAN_INTERLEAVE_STEPS, &found, &err), -EBADMSG);
    CHECK_CONTAINS(err.text, "damaged");
    CHECK_INT(certificate_save(path, "h", &sample, &err), 0);
    CHECK_INT(certificate_find(path, "h", "host", PLAN_INTERLEAVE_STEPS, &found, &err), 0);
    char aside[160];
    snprintf(aside, sizeof aside, "%s.damaged", path);
    CHECK_INT(access(aside, F_OK), 0);
}

TEST(a_file_of_something_else_and_of_a_newer_upgate)
{
    struct certificate found;
    struct error err = {0};
    char command[400];
    path_make();
    CHECK_INT(certificate_save(path, "h", &sample, &err), 0);
    snprintf(command, sizeof command, "sqlite3 '%s' 'PRAGMA user_version = 9'", path);
    if (system(command))
        runner_skip("no sqlite3 program");
    CHECK_INT(certificate_find(path, "h", "host", PLAN_INTERLEAVE_STEPS, &found, &err), -EPROTO);
    CHECK_CONTAINS(err.text, "newer upgate");
    CHECK_INT(certificate_save(path, "h", &sample, &err),
              -EPROTO); // not put aside: it is somebody's
    snprintf(command, sizeof command,
             "sqlite3 '%s' 'PRAGMA user_version = 1; PRAGMA application_id = 5'", path);
    CHECK_INT(system(command), 0);
    CHECK_INT(certificate_find(path, "h", "host", PLAN_INTERLEAVE_STEPS, &found, &err), -EBADMSG);
}

TEST(a_directory_that_cannot_be_made)
{
    struct error err = {0};
    CHECK(certificate_save("/proc/nothing/calibration.db", "h", &sample, &err) < 0);
    CHECK_CONTAINS(err.text, "/proc/nothing");
}

TEST(many_writers_at_once)
{
    struct error err = {0};
    struct certificate found, mine = sample;
    enum { WRITERS = 6, ROUNDS = 10 };
    path_make();
    fflush(NULL);
    for (int i = 0; i < WRITERS; i++) {
        if (fork() == 0) {
            int failed = 0;
            snprintf(mine.scope, sizeof mine.scope, "workload:%d", i);
            for (int round = 1; round <= ROUNDS; round++) {
                mine.gates = round;
                failed += certificate_save(path, "h", &mine, &err) != 0;
            }
            _exit(failed);
        }
    }
    for (int i = 0; i < WRITERS; i++) {
        int status = -1;
        wait(&status);
        CHECK_INT(status, 0);
    }
    for (int i = 0; i < WRITERS; i++) {
        char scope[32];
        snprintf(scope, sizeof scope, "workload:%d", i);
        CHECK_INT(certificate_find(path, "h", scope, PLAN_INTERLEAVE_STEPS, &found, &err), 0);
        CHECK_INT(found.gates, ROUNDS);
    }
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

// --- from run to run -------------------------------------------------------------------------

static struct world aa, ab;

// A second world in the same state directory.
static void open_beside(void)
{
    char *dir = strdup(getenv("UPGATE_STATE_DIR"));
    world_open(&ab, NULL, NULL);
    setenv("UPGATE_STATE_DIR", dir, 1);
    free(dir);
}

TEST(an_aa_run_calibrates_the_host)
{
    struct error err = {0};
    bool covered = false;
    char *why = NULL;
    world_open_aa(&aa, NULL, NULL);
    world_pairs(&aa, 10, (struct world_pair){0});
    CHECK_INT(gate_certify(aa.store, &err), 0);
    CHECK_INT(gate_certify(aa.store, &err), 0); // once more changes nothing
    CHECK_INT(world_number(&aa, "SELECT count(*) FROM calibration"), 2);
    CHECK_INT(world_number(&aa, "SELECT gates FROM calibration WHERE scope = 'host'"), 300);
    CHECK_INT(world_number(&aa, "SELECT false_fails FROM calibration WHERE scope = 'w'"), 0);
    CHECK_DBL(world_number(&aa, "SELECT upper_bound FROM calibration WHERE scope = 'w'"),
              0.009936081944523173, 1e-12);
    CHECK_STR(world_text(&aa, "SELECT method FROM calibration"), "re-split");
    CHECK(world_number(&aa, "SELECT pair_sd FROM calibration WHERE scope = 'w'") < 0.01);
    open_beside();
    world_pairs(&ab, 10, (struct world_pair){0});
    CHECK_INT(world_judge(&ab), EXIT_CODE_INCONCLUSIVE);
    CHECK_INT(gate_load_certificate(ab.store, 1, PLAN_INTERLEAVE_LAUNCHES, &covered, &why, &err),
              0);
    CHECK(!covered && why);
    free(why);
    CHECK_INT(gate_load_certificate(ab.store, 1, PLAN_INTERLEAVE_STEPS, &covered, &why, &err), 0);
    CHECK(covered && !why);
    CHECK_INT(world_judge(&ab), EXIT_CODE_PASS);
    CHECK_CONTAINS(world_text(&ab, "SELECT calibration_note FROM verdict"),
                   "0 false fails in 300 A/A gates (re-split)");
    world_sql(&ab, "DELETE FROM calibration");
    world_sql(&ab, "UPDATE run SET host_key = 'host-2'"); // another machine with the same home
    CHECK_INT(gate_load_certificate(ab.store, 1, PLAN_INTERLEAVE_STEPS, &covered, &why, &err), 0);
    CHECK(!covered && why);
    free(why);
    CHECK_INT(world_judge(&ab), EXIT_CODE_INCONCLUSIVE);
    world_close(&ab);
    world_close(&aa);
}

TEST(an_aa_run_that_fails_says_how_often)
{
    struct error err = {0};
    world_open_aa(&aa, NULL, NULL);
    world_pairs(&aa, 10,
                (struct world_pair){.ratio = 1.05}); // no A/A run at all, as seen by the gate
    CHECK_INT(gate_certify(aa.store, &err), 0);
    CHECK(world_number(&aa, "SELECT false_fails FROM calibration WHERE scope = 'host'") >= 1);
    CHECK(world_number(&aa, "SELECT upper_bound FROM calibration WHERE scope = 'host'") > 0.015);
    world_close(&aa);
}

TEST(too_few_pairs_give_no_certificate)
{
    struct error err = {0};
    world_open_aa(&aa, NULL, NULL);
    world_pairs(&aa, 9, (struct world_pair){0});
    CHECK_INT(gate_certify(aa.store, &err), 0);
    CHECK_INT(world_number(&aa, "SELECT count(*) FROM calibration"), 0);
    CHECK_CONTAINS(world_text(&aa, "SELECT text FROM note"),
                   "9 valid pairs, the first look is at 10");
    world_close(&aa);
}

TEST(an_ab_run_gives_no_certificate)
{
    struct error err = {0};
    world_open(&ab, NULL, NULL);
    CHECK_INT(gate_certify(ab.store, &err), -EINVAL);
    CHECK_CONTAINS(err.text, "upgate ab --aa");
    world_close(&ab);
}

TEST(a_state_directory_that_cannot_be_written)
{
    struct error err = {0};
    world_open_aa(&aa, NULL, NULL);
    world_pairs(&aa, 10, (struct world_pair){0});
    setenv("UPGATE_STATE_DIR", "/proc/nothing", 1);
    CHECK_INT(gate_certify(aa.store, &err), 0); // the run still has it
    CHECK_INT(world_number(&aa, "SELECT count(*) FROM calibration"), 2);
    CHECK_CONTAINS(world_text(&aa, "SELECT text FROM note"), "kept in this run only");
    world_close(&aa);
}
