// SPDX-License-Identifier: Apache-2.0
// The state machine of a rollout walked at random: a controller that is killed and started again, a
// proxy that refuses, is silent, is started again with the weights of its file or is moved by
// others, a store that fails, people who ask for anything at any time. What must hold is checked at
// each step.
#include "tests/unit/runner.h"

#include <stdio.h>
#include <stdlib.h>

#include "contracts/exit_code.h"
#include "harness/canary/decide/machine.h"

enum { WALK_STEPS = 1000000, WALK_STAGES = 5, WALK_EXPOSED_MAX = 40 };

static uint64_t walk_state = 88172645463325252u;

static uint64_t walk_next(void)
{
    walk_state ^= walk_state << 13;
    walk_state ^= walk_state >> 7;
    walk_state ^= walk_state << 17;
    return walk_state;
}

static bool chance(unsigned in)
{
    return walk_next() % in == 0;
}

static const struct machine_plan plan = {.count = WALK_STAGES,
        .stages = {{0, true}, {1, false}, {25, false}, {50, false}, {100, false}}};

struct walk {
    struct machine machine; // of the controller that lives
    struct machine stored;  // what a restart finds
    double percent;         // of the proxy, now
    double allowed;         // the highest share that evidence has earned so far
    int passed;             // stages that have passed with evidence; -1: none
    bool alive, ended, people_moved;
    long ups, downs, promotions, rollbacks, restarts, outside, moves_shut, reloads, restored;
    bool shut, free_window;
    bool anew, silent; // the proxy
    int exposed;       // looks in a row at more than was set
    enum rollout_state last;
};

static void walk_fail(const struct walk *walk, const char *what)
{
    runner_fail(__FILE__, __LINE__,
            "%s: state %s stage %d, machine %.3g %%, proxy %.3g %%, allowed %.3g %%", what,
            rollout_state_name(walk->machine.state), walk->machine.stage, walk->machine.percent,
            walk->percent, walk->allowed);
    exit(1);
}

static void walk_begin(struct walk *walk)
{
    long counts[] = {walk->ups, walk->downs, walk->promotions, walk->rollbacks, walk->restarts,
            walk->outside, walk->moves_shut, walk->reloads, walk->restored};
    *walk = (struct walk){
            .machine = machine_fresh(), .stored = machine_fresh(), .passed = -1, .alive = true};
    walk->ups = counts[0];
    walk->downs = counts[1];
    walk->promotions = counts[2];
    walk->rollbacks = counts[3];
    walk->restarts = counts[4];
    walk->outside = counts[5];
    walk->moves_shut = counts[6];
    walk->reloads = counts[7];
    walk->restored = counts[8];
}

// The proxy is set: only to what the evidence has earned.
static void walk_set(struct walk *walk, const struct machine_target *to)
{
    double before = walk->percent;
    walk->percent = to->percent;
    walk->anew = false;
    if (walk->percent > before)
        walk->ups++;
    else
        walk->downs++;
    if (to->state != ROLLOUT_RUNNING && to->percent != 0)
        walk_fail(walk, "a way back that does not lead to the baseline");
    if (to->state == ROLLOUT_RUNNING && to->stage > walk->passed + 1)
        walk_fail(walk, "a stage was left out");
    if (walk->percent > walk->allowed)
        walk_fail(walk, "more traffic than was earned");
    if (walk->percent > before && walk->shut && !walk->free_window)
        walk->moves_shut++;
}

// A decision is carried out until it is confirmed, or the controller dies on the way.
static struct machine_step walk_move(struct walk *walk, struct machine_step step)
{
    bool up = step.next.to.percent > walk->percent + MACHINE_TOLERANCE;
    for (int tries = 0; step.action == ACTION_MOVE; tries++) {
        struct machine_input result = {.moved = MOVED_OK};
        walk->machine = step.next;
        walk->stored = step.next; // the intent
        if (step.next.to.state == ROLLOUT_RUNNING && up && walk->shut && !walk->free_window)
            walk_fail(walk, "a move up outside the windows");
        if (chance(40)) { // killed before the weight is set
            walk->alive = false;
            return step;
        }
        if (chance(8)) {
            result.moved = tries > 20 ? MOVED_GAVE_UP : MOVED_FAILED;
        } else {
            walk_set(walk, &step.next.to);
            result.percent = walk->percent;
        }
        if (chance(40)) { // killed before anybody knows that it was
            walk->alive = false;
            return step;
        }
        step = machine_step(&plan, &walk->machine, &result);
        up = false;
    }
    return step;
}

// The weights that a proxy has forgotten: never more than was earned, nothing after the end. True:
// it worked.
static void walk_restore(struct walk *walk)
{
    if (walk->machine.moving ||
            (rollout_state_ended(walk->machine.state) && walk->machine.state != ROLLOUT_PROMOTED &&
                    walk->machine.percent != 0))
        walk_fail(walk, "a candidate that gets back what was taken from it");
    if (walk->machine.percent > walk->allowed + MACHINE_TOLERANCE)
        walk_fail(walk, "more given back than was earned");
    if (chance(8))
        return;
    walk->percent = walk->machine.percent;
    walk->anew = false;
    walk->restored++;
}

static void walk_apply(struct walk *walk, struct machine_step step)
{
    if (step.action == ACTION_RESTORE) {
        walk_restore(walk);
        return;
    }
    if (step.action == ACTION_MOVE)
        step = walk_move(walk, step);
    if (!walk->alive)
        return;
    walk->machine = step.next;
    if (step.action != ACTION_NONE && !chance(200)) // a state whose row is lost with the process
        walk->stored = step.next;
    if (step.action != ACTION_END)
        return;
    walk->stored = step.next;
    walk->alive = false;
    walk->ended = rollout_state_ended(walk->machine.state);
    if (walk->ended) {
        walk->promotions += walk->machine.state == ROLLOUT_PROMOTED;
        walk->rollbacks += walk->machine.state == ROLLOUT_ROLLED_BACK;
        if (walk->machine.state == ROLLOUT_PROMOTED && step.exit_code != EXIT_CODE_PASS)
            walk_fail(walk, "a wrong exit code");
        if (walk->machine.state == ROLLOUT_ROLLED_BACK && step.exit_code != EXIT_CODE_FAIL)
            walk_fail(walk, "a wrong exit code");
    }
}

static struct machine_input walk_input(struct walk *walk)
{
    struct machine_input input = {.fresh = !chance(30),
            .soaked = chance(3),
            .requests_enough = !chance(5),
            .cells_passed = !chance(3),
            .cell_failed = chance(150),
            .tripped = chance(200),
            .tripwire = RULE_TRIPWIRE_ERRORS,
            .store_failed = chance(800),
            .traffic_wrong = walk->anew
                    ? chance(20)
                    : fabs(walk->percent - walk->machine.percent) > MACHINE_TOLERANCE,
            .proxy_silent = walk->silent,
            .impatient = chance(20),
            .waited = chance(10),
            .preflight_failed = chance(20),
            .preflight_exit = EXIT_CODE_INCONCLUSIVE,
            .window = walk->shut ? (chance(2) ? WINDOW_CLOSED : WINDOW_FROZEN) : WINDOW_OPEN,
            .signals = chance(100) ? 1 + (int)(walk_next() % 2) : 0,
            .lingered = chance(2),
            .drained = chance(3)};
    input.request = chance(20) ? (enum rollout_verb)(1 + walk_next() % 4) : REQUEST_NONE;
    return input;
}

static void walk_step(struct walk *walk)
{
    if (chance(10))
        walk->shut = !walk->shut;
    if (chance(400)) { // somebody else
        walk->percent = (double)(walk_next() % 101);
        walk->people_moved = true;
        walk->outside++;
    }
    if (chance(200)) { // a proxy that was started again
        walk->percent = (double)(walk_next() % 101);
        walk->anew = true;
        walk->reloads++;
    }
    if (chance(20))
        walk->silent = !walk->silent && chance(3);
    if (!walk->alive) {
        walk->restarts++;
        bool forgot = walk->anew;
        walk->anew = false; // this one has never seen another
        walk->exposed = 0;
        walk->alive = true;
        walk->machine = walk->stored;
        if (walk->stored.state == ROLLOUT_PROMOTED && walk->passed < WALK_STAGES - 1)
            walk_fail(walk, "promoted without evidence");
        walk->free_window = walk->stored.free_window;
        walk_apply(walk,
                machine_start(&plan, &walk->stored, chance(50) ? NAN : walk->percent, forgot,
                        walk->shut ? WINDOW_CLOSED : WINDOW_OPEN));
        return;
    }
    struct machine_input input = walk_input(walk);
    input.proxy_anew = walk->anew && !input.traffic_wrong;
    bool evidence = input.soaked && input.requests_enough && input.cells_passed &&
            !input.cell_failed && !input.tripped && input.fresh;
    if (walk->machine.state == ROLLOUT_RUNNING && !walk->machine.moving && evidence &&
            walk->machine.stage > walk->passed) {
        walk->passed = walk->machine.stage;
        walk->allowed =
                walk->passed + 1 < WALK_STAGES ? plan.stages[walk->passed + 1].percent : 100;
    }
    walk->free_window = walk->machine.free_window || input.request == REQUEST_PROMOTE;
    struct machine_step step = machine_step(&plan, &walk->machine, &input);
    bool danger = !walk->machine.moving && !walk->machine.ending && walk->machine.stage >= 0 &&
            !rollout_state_ended(walk->machine.state);
    if (walk->silent && step.action == ACTION_MOVE && !walk->machine.moving &&
            step.next.to.state == ROLLOUT_RUNNING)
        walk_fail(walk, "a move up through a proxy that does not answer");
    walk->exposed =
            walk->percent > walk->machine.percent + MACHINE_TOLERANCE ? walk->exposed + 1 : 0;
    if (walk->exposed > WALK_EXPOSED_MAX)
        walk_fail(walk, "exposure that nobody corrects");
    if (danger &&
            (input.tripped || input.store_failed || input.traffic_wrong ||
                    input.request == REQUEST_ABORT) &&
            (step.action != ACTION_MOVE || step.next.to.percent != 0 ||
                    step.next.to.state == ROLLOUT_RUNNING))
        walk_fail(walk, "danger, and no way back");
    if (step.next.state == ROLLOUT_PROMOTED && walk->passed < WALK_STAGES - 1)
        walk_fail(walk, "promoted without evidence");
    if (rollout_state_ended(walk->machine.state) && step.next.state != walk->machine.state)
        walk_fail(walk, "what has ended goes on");
    walk_apply(walk, step);
}

TEST(a_million_steps_with_faults)
{
    struct walk walk = {0};
    walk_begin(&walk);
    for (long i = 0; i < WALK_STEPS; i++) {
        walk_step(&walk);
        // What has ended stays so however often a controller is started; only a person begins anew.
        for (int again = 0; again < 3 && walk.ended; again++) {
            enum rollout_state ended = walk.stored.state;
            struct machine_step step =
                    machine_start(&plan, &walk.stored, walk.percent, false, WINDOW_OPEN);
            if (step.next.state != ended ||
                    (step.action == ACTION_MOVE &&
                            (step.next.to.state != ended || step.next.to.percent != 0)))
                walk_fail(&walk, "an ended rollout was begun again");
        }
        if (walk.ended)
            walk_begin(&walk);
    }
    printf("%ld moves up, %ld down, %ld promoted, %ld rolled back, %ld restarts, %ld moved by others, %ld reloads, %ld restored\n",
            walk.ups, walk.downs, walk.promotions, walk.rollbacks, walk.restarts, walk.outside,
            walk.reloads, walk.restored);
    // The walk has been everywhere.
    CHECK(walk.ups > 1000 && walk.downs > 1000 && walk.promotions > 100 && walk.rollbacks > 100 &&
            walk.restarts > 1000 && walk.restored > 1000);
    CHECK_INT(walk.moves_shut, 0);
}

// --- single cases --------------------------------------------------------------------------------

static struct machine at(
        enum rollout_state state, enum rollout_rule rule, int stage, double percent)
{
    return (struct machine){.state = state, .rule = rule, .stage = stage, .percent = percent};
}

static const struct machine_input calm = {.fresh = true};

TEST(a_stage_needs_soak_requests_and_cells)
{
    struct machine machine = at(ROLLOUT_RUNNING, RULE_SOAK, 1, 1);
    for (int have = 0; have < 8; have++) {
        struct machine_input input = calm;
        input.soaked = have & 1;
        input.requests_enough = have & 2;
        input.cells_passed = have & 4;
        struct machine_step step = machine_step(&plan, &machine, &input);
        CHECK_INT(step.action, have == 7 ? ACTION_MOVE : ACTION_NONE);
        if (have == 7)
            CHECK_DBL(step.next.to.percent, 25, 0);
    }
}

TEST(a_person_passes_no_stage_without_evidence)
{
    struct machine machine = at(ROLLOUT_PAUSED, RULE_PATIENCE, 2, 25);
    struct machine_input input = calm;
    input.request = REQUEST_PROMOTE;
    struct machine_step step = machine_step(&plan, &machine, &input);
    CHECK_INT(step.action, ACTION_RECORD);
    CHECK_INT(step.next.state, ROLLOUT_RUNNING);
    CHECK_INT(step.next.stage, 2);
    CHECK(step.next.free_window);
}

TEST(windows_hold_up_and_never_back)
{
    struct machine machine = at(ROLLOUT_RUNNING, RULE_SOAK, 1, 1);
    struct machine_input input = calm;
    input.soaked = input.requests_enough = input.cells_passed = true;
    input.window = WINDOW_FROZEN;
    struct machine_step step = machine_step(&plan, &machine, &input);
    CHECK_INT(step.action, ACTION_RECORD);
    CHECK_INT(step.rule, RULE_FREEZE);
    machine = step.next;
    CHECK_INT(machine_step(&plan, &machine, &input).action, ACTION_NONE); // said once
    input.request = REQUEST_PROMOTE;
    machine = machine_step(&plan, &machine, &input).next;
    input.request = REQUEST_NONE;
    CHECK_INT(machine_step(&plan, &machine, &input).action, ACTION_MOVE);
    input.tripped = true;
    input.tripwire = RULE_TRIPWIRE_ERRORS;
    step = machine_step(&plan, &machine, &input);
    CHECK_INT(step.action, ACTION_MOVE);
    CHECK_INT(step.next.to.state, ROLLOUT_ROLLED_BACK);
}

TEST(a_paused_rollout_is_watched)
{
    struct machine machine = at(ROLLOUT_PAUSED, RULE_PERSON, 2, 25);
    struct machine_input input = calm;
    input.cell_failed = true;
    CHECK_INT(machine_step(&plan, &machine, &input).next.to.state, ROLLOUT_ROLLED_BACK);
    input = calm;
    input.waited = true; // a person's pause waits for that person
    CHECK_INT(machine_step(&plan, &machine, &input).action, ACTION_NONE);
    machine.rule = RULE_PATIENCE;
    struct machine_step step = machine_step(&plan, &machine, &input);
    CHECK_INT(step.action, ACTION_MOVE);
    CHECK_INT(step.next.to.state, ROLLOUT_PAUSED);
    CHECK_DBL(step.next.to.percent, 0, 0);
    struct machine_input moved = {.moved = MOVED_OK};
    machine = machine_step(&plan, &step.next, &moved).next;
    step = machine_step(&plan, &machine, &calm);
    CHECK_INT(step.action, ACTION_END);
    CHECK_INT(step.exit_code, EXIT_CODE_INCONCLUSIVE);
}

TEST(signals)
{
    struct machine machine = at(ROLLOUT_RUNNING, RULE_SOAK, 2, 25);
    struct machine_input input = calm;
    input.signals = 1;
    struct machine_step step = machine_step(&plan, &machine, &input);
    CHECK_INT(step.action, ACTION_RECORD);
    CHECK_INT(step.next.state, ROLLOUT_PAUSED);
    CHECK_DBL(step.next.percent, 25, 0);
    machine = step.next;
    CHECK_INT(machine_step(&plan, &machine, &input).action, ACTION_NONE); // a second one may come
    input.lingered = true;
    CHECK_INT(machine_step(&plan, &machine, &input).action, ACTION_END);
    CHECK_INT(machine_step(&plan, &machine, &input).exit_code, EXIT_CODE_INCONCLUSIVE);
    input.signals = 2;
    step = machine_step(&plan, &machine, &input);
    CHECK_INT(step.action, ACTION_MOVE);
    CHECK_DBL(step.next.to.percent, 0, 0);
}

TEST(a_restart_carries_out_what_leads_back_only)
{
    struct machine machine = at(ROLLOUT_RUNNING, RULE_SOAK, 1, 1);
    machine.moving = true;
    machine.to = (struct machine_target){ROLLOUT_RUNNING, 2, 25, false};
    // set, and nobody knew
    struct machine_step step = machine_start(&plan, &machine, 25, false, WINDOW_OPEN);
    CHECK_INT(step.action, ACTION_MOVE);
    CHECK_INT(step.next.to.stage, 1);
    CHECK_DBL(step.next.to.percent, 1, 0);
    machine.to = (struct machine_target){ROLLOUT_ROLLED_BACK, 1, 0, false};
    step = machine_start(&plan, &machine, NAN, false, WINDOW_CLOSED);
    CHECK_INT(step.action, ACTION_MOVE);
    CHECK_INT(step.next.to.state, ROLLOUT_ROLLED_BACK);
    machine = machine_fresh(); // a proxy whose weights are even when nothing has begun
    step = machine_start(&plan, &machine, 50, false, WINDOW_OPEN);
    CHECK_INT(step.action, ACTION_MOVE);
    CHECK_DBL(step.next.to.percent, 0, 0);
    CHECK_INT(step.next.to.state, ROLLOUT_WAITING);
}

TEST(a_share_that_somebody_lowered_stays)
{
    struct machine machine = at(ROLLOUT_RUNNING, RULE_SOAK, 2, 25);
    // the proxy's file says so
    struct machine_step step = machine_start(&plan, &machine, 10, true, WINDOW_OPEN);
    CHECK_INT(step.action, ACTION_MOVE);
    CHECK_DBL(step.next.to.percent, 25, 0);
    for (int paused = 0; paused < 2; paused++) {
        machine.state = paused ? ROLLOUT_PAUSED : ROLLOUT_RUNNING;
        step = machine_start(&plan, &machine, 10, false, WINDOW_OPEN);
        CHECK_INT(step.action, ACTION_RECORD);
        CHECK_INT(step.rule, RULE_TRAFFIC);
        CHECK_INT(step.next.state, ROLLOUT_PAUSED);
        CHECK_DBL(step.next.percent, 10, 0);
    }
    machine.state = ROLLOUT_RUNNING; // a controller that could not go on took all of it, and could
                                     // not say so
    struct machine_step again = machine_start(&plan, &machine, 0, false, WINDOW_OPEN);
    CHECK_INT(again.action, ACTION_MOVE);
    CHECK_DBL(again.next.to.percent, 25, 0);
    machine = step.next;
    // however often it is started
    CHECK_INT(machine_start(&plan, &machine, 10, false, WINDOW_OPEN).action, ACTION_NONE);
    CHECK_INT(machine_step(&plan, &machine, &calm).action, ACTION_NONE);
    struct machine_input input = calm;
    input.request = REQUEST_RESUME;
    step = machine_step(&plan, &machine, &input);
    CHECK_INT(step.action, ACTION_MOVE);
    CHECK_DBL(step.next.to.percent, 25, 0);
}

// It was given up, and the store did not take what came after the move up.
TEST(what_ended_on_a_move_up_does_not_resume_it)
{
    struct machine machine = at(ROLLOUT_FAILED, RULE_SOAK, 1, 1);
    machine.moving = true;
    for (int i = 0; i < 3; i++) {
        static const enum rollout_state to[] = {ROLLOUT_RUNNING, ROLLOUT_WAITING, ROLLOUT_PAUSED};
        machine.to = (struct machine_target){to[i], 2, i ? 0 : 25, false};
        for (int unknown = 0; unknown < 2; unknown++) {
            struct machine_step step =
                    machine_start(&plan, &machine, unknown ? NAN : 25, false, WINDOW_OPEN);
            CHECK_INT(step.action, ACTION_MOVE); // the candidate has traffic, and is to have none
            CHECK_INT(step.next.to.state, ROLLOUT_FAILED);
            CHECK_DBL(step.next.to.percent, 0, 0);
        }
        struct machine_step step = machine_start(&plan, &machine, 0, false, WINDOW_OPEN);
        CHECK_INT(step.action, ACTION_END);
        CHECK_INT(step.exit_code, EXIT_CODE_OPERATIONAL);
    }
    // which way back it was is known
    machine.to = (struct machine_target){ROLLOUT_ROLLED_BACK, 1, 0, false};
    CHECK_INT(machine_start(&plan, &machine, 25, false, WINDOW_OPEN).next.to.state,
            ROLLOUT_ROLLED_BACK);
}

TEST(a_proxy_that_forgets_is_told_again_and_danger_comes_first)
{
    struct machine machine = at(ROLLOUT_PAUSED, RULE_PERSON, 2, 25);
    struct machine_input input = calm;
    input.proxy_anew = true;
    input.window = WINDOW_CLOSED;
    struct machine_step step = machine_step(&plan, &machine, &input);
    CHECK_INT(step.action, ACTION_RESTORE);
    CHECK_INT(step.next.rule, RULE_PERSON); // still that person's pause
    input.signals = 1;
    CHECK_INT(machine_step(&plan, &machine, &input).action, ACTION_RESTORE);
    input.tripped = true;
    input.tripwire = RULE_TRIPWIRE_ERRORS;
    step = machine_step(&plan, &machine, &input);
    CHECK_INT(step.action, ACTION_MOVE);
    CHECK_DBL(step.next.to.percent, 0, 0);
    machine = at(ROLLOUT_ROLLED_BACK, RULE_EVIDENCE, 2, 0); // and after the end
    CHECK_INT(machine_step(&plan, &machine, &input).action, ACTION_RESTORE);
    input.proxy_anew = false;
    CHECK_INT(machine_step(&plan, &machine, &input).action, ACTION_END);
}

TEST(names_both_ways)
{
    for (int i = 0; i < ROLLOUT_STATES; i++)
        CHECK_INT(rollout_state_by_name(rollout_state_name((enum rollout_state)i)), i);
    for (int i = 0; i < RULE_COUNT; i++)
        CHECK_INT(rollout_rule_by_name(rollout_rule_name((enum rollout_rule)i)), i);
    for (int i = 0; i < REQUEST_COUNT; i++)
        CHECK_INT(rollout_verb_by_name(rollout_verb_name((enum rollout_verb)i)), i);
    CHECK_INT(rollout_state_by_name("lost"), -1);
}
