// SPDX-License-Identifier: Apache-2.0
// Whole rollouts in bad weather: the proxy is started again, is silent, refuses or is moved by
// others; log lines are lost; the evidence stops, the clock jumps, people ask for anything, a
// second controller is started, the first is killed. Whatever comes together: never two writers,
// never a stage without evidence, no exposure that stays, always a way back.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "common/strings.h"
#include "tests/unit/canary_rig.h"
#include "tests/unit/runner.h"

enum { STORM_ROLLOUTS = 40, STORM_STARTS = 25 };
#define STORM_EXPOSED_NS 1500000000 // a look, a set, and a look that came too early

// In shared memory with the world: it outlives the controllers.
static struct {
    uint64_t random;
    // since when the candidate has more than it was given; 0: it has not
    int64_t exposed_ns, silent_until_ns, still_until_ns;
    int64_t longest_ns;
    long reloads, kills, asked, losses, seconds, refused, others;
    bool calm, inside;
} * storm;

static uint64_t storm_next(void)
{
    storm->random ^= storm->random << 13;
    storm->random ^= storm->random >> 7;
    storm->random ^= storm->random << 17;
    return storm->random;
}

static bool chance(unsigned in)
{
    return storm_next() % in == 0;
}

static void storm_expose(const struct canary_world *world)
{
    double given = world->set_count ? world->sets[(world->set_count - 1) % CANARY_WORLD_SETS] : 0;
    bool can_be_told = !world->get_fails && !world->fail_sets;
    if (!can_be_told || world->percent <= given + MACHINE_TOLERANCE)
        storm->exposed_ns = 0;
    else if (!storm->exposed_ns)
        storm->exposed_ns = world->now_ns;
    int64_t exposed = storm->exposed_ns ? world->now_ns - storm->exposed_ns : 0;
    storm->longest_ns = exposed > storm->longest_ns ? exposed : storm->longest_ns;
}

static void storm_proxy(struct canary_world *world)
{
    if (chance(60)) {
        world->percent = (double)(storm_next() % 101);
        world->aa_percent = 0;
        world->anew = true;
        world->proxy_ns = world->now_ns;
        storm->reloads++;
    }
    if (chance(3000)) {
        world->percent = (double)(storm_next() % 101);
        storm->others++;
    }
    if (chance(200)) {
        // its time is 10 s
        storm->silent_until_ns =
                world->now_ns + (int64_t)(storm_next() % (chance(6) ? 14 : 9)) * NS;
        world->get_fails = true;
        world->fail_sets = -1;
    }
    if (world->get_fails && world->now_ns >= storm->silent_until_ns) {
        world->get_fails = false;
        world->fail_sets = 0;
    }
    if (!world->get_fails && chance(2000))
        world->fail_sets = 1 + (int)(storm_next() % 4);
}

// At each poll of a controller.
static void storm_script(struct canary_world *world)
{
    storm_expose(world);
    if (storm->calm || storm->inside)
        return;
    storm_proxy(world);
    if (chance(500)) {
        world->lost += 1 + storm_next() % 9;
        storm->losses++;
    }
    if (chance(400))
        storm->still_until_ns = world->now_ns + (int64_t)(storm_next() % 50) * NS;
    world->silent = world->now_ns < storm->still_until_ns;
    if (chance(600))
        world->wall_offset_ns += ((int64_t)(storm_next() % 7200) - 3600) * NS;
    if (chance(300))
        world->errors[1] = chance(2) ? 0.5 : 0.02;
    if (chance(200)) {
        rig_ask((enum rollout_verb)(chance(20) ? REQUEST_ABORT
                        : chance(3)            ? REQUEST_PAUSE
                        : chance(2)            ? REQUEST_PROMOTE
                                               : REQUEST_RESUME));
        storm->asked++;
    }
    if (chance(250)) {
        storm->inside = true;
        int code = rig_run();
        storm->inside = false;
        storm->seconds++;
        storm->refused += code == REFUSED + EBUSY;
    }
    if (chance(100)) {
        world->kill_at_poll = world->polls + 1;
        storm->kills++;
    }
    if (chance(200))
        world->kill_at_set = world->moments + 1 + (int)(storm_next() % 2);
}

static void storm_over(void)
{
    canary_world->get_fails = canary_world->silent = false;
    canary_world->fail_sets = 0;
}

static bool is_ended(void)
{
    return rig_int("SELECT state IN ('promoted', 'rolled_back', 'aborted', 'failed') FROM rollout") ==
            1;
}

// A stage's share, or less of it: what a controller finds that is started in a person's pause, or
// that somebody lowered, is left as it is, and set again.
static bool was_given(double percent)
{
    char sql[256];
    snprintf(sql, sizeof sql,
            "SELECT count(*) FROM rollout_decision WHERE state_to = 'paused' AND "
            "abs(percent_to - %g) < 0.001 AND percent_to < CASE stage_to WHEN 0 THEN 10 WHEN 1 THEN 50 ELSE 100 END",
            percent);
    return percent == 0 || percent == 10 || percent == 50 || percent == 100 || rig_int(sql) > 0;
}

static void storm_check(uint64_t seed)
{
    // A stage was entered by the pass of the one before: with its evidence, and with no line of it
    // lost that could have been a wrong answer.
    CHECK_INT(
            rig_int("SELECT count(*) FROM rollout_decision WHERE rule = 'soak' AND state_to = 'running' AND stage_to != stage_from + 1"),
            0);
    CHECK_INT(
            rig_int("SELECT count(*) FROM rollout_decision d WHERE rule = 'soak' AND stage_from < 2 AND (SELECT count(*) FROM json_each(d.evidence) "
                    "WHERE json_extract(value, '$.metric') IN ('error_rate', 'latency_p99', 'wrong_answers') AND json_extract(value, '$.verdict') = 'pass') < 3"),
            0);
    CHECK_INT(
            rig_int("SELECT count(*) FROM rollout_stage WHERE result = 'passed' AND number < 2 AND lost > 0"),
            0);
    CHECK_INT(
            rig_int("SELECT count(*) FROM rollout_stage s WHERE begin_s IS NOT NULL AND number > 0 AND NOT EXISTS "
                    "(SELECT 1 FROM rollout_decision WHERE rule = 'soak' AND stage_from = s.number - 1 AND stage_to = s.number)"),
            0);
    CHECK_INT(rig_int("SELECT count(*) FROM rollout WHERE state = 'promoted'") == 1,
            canary_world->percent == 100 && is_ended());
    CHECK_INT(
            rig_int("SELECT count(*) FROM rollout_decision WHERE rule = 'proxy' AND reason NOT LIKE 'the proxy was started again: %'"),
            0);
    for (int i = 0; i < canary_world->set_count && i < CANARY_WORLD_SETS; i++)
        if (!was_given(canary_world->sets[i]))
            runner_fail(__FILE__, __LINE__, "rollout %d: the candidate was given %g %%", (int)seed,
                    canary_world->sets[i]);
    if (storm->longest_ns > STORM_EXPOSED_NS)
        runner_fail(__FILE__, __LINE__,
                "rollout %d: the candidate had more than it was given for %.1f s", (int)seed,
                (double)storm->longest_ns / NS);
}

TEST(bad_weather)
{
    long promoted = 0, back = 0, ended = 0;
    storm = mmap(NULL, sizeof *storm, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(storm != MAP_FAILED);
    for (uint64_t seed = 1; seed <= STORM_ROLLOUTS; seed++) {
        rig_begin(
                "stages: [{percent: 10, soak: 3s, warm_up: 1s, patience: 20s}, {percent: 50, soak: 3s, warm_up: 1s, patience: 20s}, "
                "{percent: 100, soak: 3s, warm_up: 1s, patience: 20s}]\n");
        storm->random = seed * 0x9e3779b97f4a7c15u;
        storm->exposed_ns = storm->silent_until_ns = storm->still_until_ns = storm->longest_ns = 0;
        storm->calm = false;
        canary_world->script = storm_script;
        for (int start = 0; start < STORM_STARTS; start++) {
            storm->calm = start > STORM_STARTS - 5; // the storm is over, sooner or later
            canary_world->kill_at_poll = canary_world->kill_at_set = 0;
            if (storm->calm)
                storm_over();
            int code = rig_run_with(5 * (int64_t)NS, false);
            // nothing has begun, and the proxy does not answer: it passes
            if (code >= REFUSED && canary_world->get_fails) {
                storm_over();
                continue;
            }
            CHECK(code == KILLED || (code >= 0 && code <= 4));
            storm->exposed_ns = 0; // while none lives nobody corrects
            // What a controller left by itself is at the baseline, or it says that it could not.
            bool told =
                    code != KILLED && rig_int("SELECT reason LIKE '%look at it now%' FROM rollout");
            if ((code == 1 || code == 4) && !told)
                CHECK_DBL(canary_world->percent, 0, 0);
            if (code != KILLED && is_ended() && !told)
                break;
        }
        storm_check(seed);
        // A person's abort ends what is left, whatever it is.
        storm->calm = true;
        if (!is_ended()) {
            rig_ask(REQUEST_ABORT);
            storm_over();
            rig_run_with(5 * (int64_t)NS, false);
            CHECK(is_ended());
            CHECK_DBL(canary_world->percent, 0, 0);
        }
        char *state = rig_text("SELECT state FROM rollout");
        promoted += strcmp(state, "promoted") == 0;
        back += strcmp(state, "rolled_back") == 0;
        ended++;
        rig_end();
    }
    printf("%ld rollouts: %ld promoted, %ld rolled back; %ld reloads, %ld moved by others, %ld kills, %ld losses, %ld requests, %ld second controllers\n",
            ended, promoted, back, storm->reloads, storm->others, storm->kills, storm->losses,
            storm->asked, storm->seconds);
    CHECK(storm->refused == storm->seconds && storm->seconds > 0);
    CHECK(promoted > 0 && back > 0 && storm->reloads > 50 && storm->kills > 20 &&
            storm->losses > 5);
}
