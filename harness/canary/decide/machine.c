// SPDX-License-Identifier: Apache-2.0
// The state machine of a rollout. Pure: no clock, no store, no traffic. What is dangerous is looked
// at first, whatever the state.
#include "harness/canary/decide/machine.h"

#include <math.h>
#include <string.h>

#include "contracts/exit_code.h"

static const char *const state_names[] = {
        "waiting", "running", "paused", "promoted", "rolled_back", "aborted", "failed"};
static const char *const rule_names[] = {"evidence", "tripwire-errors", "tripwire-unreachable",
        "tripwire-wrong", "soak", "patience", "window", "freeze", "stale", "clock", "person",
        "signal", "preflight", "traffic", "store", "restart", "proxy"};
static const char *const verb_names[] = {"none", "pause", "promote", "abort", "resume"};
_Static_assert(sizeof state_names / sizeof *state_names == ROLLOUT_STATES, "a name each");
_Static_assert(sizeof rule_names / sizeof *rule_names == RULE_COUNT, "a name each");
_Static_assert(sizeof verb_names / sizeof *verb_names == REQUEST_COUNT, "a name each");

static int machine_name_find(const char *name, const char *const *names, int count)
{
    for (int i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    return -1;
}

const char *rollout_state_name(enum rollout_state state)
{
    return state_names[state];
}

const char *rollout_rule_name(enum rollout_rule rule)
{
    return rule_names[rule];
}

const char *rollout_verb_name(enum rollout_verb verb)
{
    return verb_names[verb];
}

int rollout_state_by_name(const char *name)
{
    return machine_name_find(name, state_names, ROLLOUT_STATES);
}

int rollout_rule_by_name(const char *name)
{
    return machine_name_find(name, rule_names, RULE_COUNT);
}

int rollout_verb_by_name(const char *name)
{
    return machine_name_find(name, verb_names, REQUEST_COUNT);
}

bool rollout_state_ended(enum rollout_state state)
{
    return state >= ROLLOUT_PROMOTED;
}

struct machine_plan machine_plan_of(const struct rollout *rollout)
{
    struct machine_plan plan = {.count = rollout->stage_count < MACHINE_STAGES_MAX
                    ? rollout->stage_count
                    : MACHINE_STAGES_MAX};
    for (int i = 0; i < plan.count; i++) {
        const struct rollout_stage *stage = &rollout->stages[i];
        plan.stages[i] =
                (struct machine_stage){.percent = stage->aa ? 0 : stage->percent, .aa = stage->aa};
    }
    return plan;
}

struct machine machine_fresh(void)
{
    return (struct machine){.state = ROLLOUT_WAITING, .rule = RULE_PERSON, .stage = -1};
}

static int machine_exit(enum rollout_state state)
{
    switch (state) {
    case ROLLOUT_PROMOTED:
        return EXIT_CODE_PASS;
    case ROLLOUT_ROLLED_BACK:
        return EXIT_CODE_FAIL;
    case ROLLOUT_FAILED:
        return EXIT_CODE_OPERATIONAL;
    default:
        return EXIT_CODE_INCONCLUSIVE;
    }
}

// --- what a step can be

static struct machine_step machine_none(const struct machine *machine)
{
    return (struct machine_step){.next = *machine, .rule = machine->rule};
}

static struct machine_step machine_end(const struct machine *machine, int exit_code)
{
    return (struct machine_step){
            .next = *machine, .action = ACTION_END, .rule = machine->rule, .exit_code = exit_code};
}

static struct machine_step machine_record(
        const struct machine *machine, enum rollout_state state, enum rollout_rule rule)
{
    struct machine_step step = {
            .next = *machine, .action = ACTION_RECORD, .decided = true, .rule = rule};
    step.next.state = state;
    step.next.rule = rule;
    return step;
}

static struct machine_step machine_move(
        const struct machine *machine, struct machine_target to, enum rollout_rule rule)
{
    struct machine_step step = {
            .next = *machine, .action = ACTION_MOVE, .decided = true, .rule = rule};
    step.next.moving = true;
    step.next.to = to;
    step.next.rule = rule;
    return step;
}

static struct machine_step machine_down(
        const struct machine *machine, enum rollout_state state, enum rollout_rule rule)
{
    return machine_move(
            machine, (struct machine_target){.state = state, .stage = machine->stage}, rule);
}

// To a stage's traffic, or, where the window is shut and it is a move up, to `otherwise`: a wait
// that ends by itself.
static struct machine_step machine_enter(const struct machine_plan *plan,
        const struct machine *machine, int stage, enum rollout_state otherwise,
        enum window_answer window, enum rollout_rule rule)
{
    const struct machine_stage *to = &plan->stages[stage];
    bool up = to->percent > machine->percent + MACHINE_TOLERANCE || stage > machine->stage;
    if (up && window != WINDOW_OPEN && !machine->free_window) {
        enum rollout_rule shut = window == WINDOW_FROZEN ? RULE_FREEZE : RULE_WINDOW;
        bool told = machine->state == otherwise && machine->rule == shut;
        return told ? machine_none(machine) : machine_record(machine, otherwise, shut);
    }
    return machine_move(
            machine, (struct machine_target){ROLLOUT_RUNNING, stage, to->percent, to->aa}, rule);
}

// --- steps

static struct machine_step machine_moved(
        const struct machine *machine, const struct machine_input *input)
{
    struct machine_step step = {.next = *machine, .rule = machine->rule};
    struct machine *next = &step.next;
    bool forward = machine->to.state == ROLLOUT_RUNNING;
    switch (input->moved) {
    case MOVED_OK:
        next->moving = false;
        next->draining = !forward && machine->stage >= 0;
        next->ending = machine->to.state == ROLLOUT_PAUSED;
        next->free_window = false;
        next->state = machine->to.state;
        next->stage = machine->to.stage;
        next->percent = input->percent;
        step.action = ACTION_CONFIRM;
        return step;
    case MOVED_FAILED:
        if (forward) {
            struct machine_step down = machine_down(machine, ROLLOUT_FAILED, RULE_TRAFFIC);
            return down;
        }
        step.action = ACTION_MOVE; // the way back is tried until it works
        return step;
    case MOVED_GAVE_UP:
        next->moving = false;
        next->state = ROLLOUT_FAILED;
        next->rule = RULE_TRAFFIC;
        step.rule = RULE_TRAFFIC;
        step.action = ACTION_END;
        step.exit_code = EXIT_CODE_OPERATIONAL;
        return step;
    default:
        step.action = ACTION_MOVE; // it is still to be carried out
        return step;
    }
}

// What ends or stops a rollout in any state that goes on. False: nothing.
static bool machine_danger(const struct machine_plan *plan, const struct machine *machine,
        const struct machine_input *input, struct machine_step *ret)
{
    bool aa = machine->stage >= 0 && plan->stages[machine->stage].aa;
    if (input->store_failed)
        *ret = machine_down(machine, ROLLOUT_FAILED, RULE_STORE);
    else if (input->traffic_wrong)
        *ret = machine_down(machine, ROLLOUT_FAILED, RULE_TRAFFIC);
    else if (machine->stage >= 0 && input->tripped)
        *ret = machine_down(machine, ROLLOUT_ROLLED_BACK, input->tripwire);
    else if (machine->stage >= 0 && input->cell_failed && !aa)
        *ret = machine_down(machine, ROLLOUT_ROLLED_BACK, RULE_EVIDENCE);
    else if (input->request == REQUEST_ABORT)
        *ret = machine_down(machine, ROLLOUT_ABORTED, RULE_PERSON);
    else if (input->signals > 1)
        *ret = machine_down(machine, ROLLOUT_PAUSED, RULE_SIGNAL);
    else if (input->signals == 1 && machine->state == ROLLOUT_PAUSED &&
            machine->rule == RULE_SIGNAL)
        *ret = input->lingered ? machine_end(machine, EXIT_CODE_INCONCLUSIVE)
                               : machine_none(machine);
    else if (input->signals == 1 && machine->state == ROLLOUT_PAUSED &&
            machine->rule == RULE_PERSON)
        // stays the person's pause
        *ret = input->lingered ? machine_end(machine, EXIT_CODE_INCONCLUSIVE)
                               : machine_none(machine);
    else if (input->signals == 1)
        *ret = machine_record(machine, ROLLOUT_PAUSED, RULE_SIGNAL);
    else
        return false;
    return true;
}

static struct machine_step machine_waiting(const struct machine_plan *plan,
        const struct machine *machine, const struct machine_input *input)
{
    if (input->request == REQUEST_PAUSE)
        return machine_record(machine, ROLLOUT_PAUSED, RULE_PERSON);
    if (input->preflight_failed)
        return machine->rule == RULE_PREFLIGHT
                ? machine_end(machine, input->preflight_exit)
                : machine_record(machine, ROLLOUT_WAITING, RULE_PREFLIGHT);
    struct machine ready = *machine;
    ready.free_window |= input->request == REQUEST_PROMOTE;
    return machine_enter(plan, &ready, 0, ROLLOUT_WAITING, input->window, RULE_PERSON);
}

static struct machine_step machine_running(const struct machine_plan *plan,
        const struct machine *machine, const struct machine_input *input)
{
    if (input->request == REQUEST_PAUSE)
        return machine_record(machine, ROLLOUT_PAUSED, RULE_PERSON);
    if (input->cell_failed) // of an A/A stage: two equal arms differ, so nothing that is measured
                            // can be trusted
        return machine_record(machine, ROLLOUT_PAUSED, RULE_EVIDENCE);
    if (!input->fresh)
        return machine_record(machine, ROLLOUT_PAUSED, RULE_STALE);
    if (input->request == REQUEST_PROMOTE) {
        struct machine_step step = machine_record(machine, ROLLOUT_RUNNING, RULE_PERSON);
        step.next.free_window = true;
        return step;
    }
    bool passed = input->soaked && input->requests_enough && input->cells_passed;
    if (passed && machine->stage == plan->count - 1)
        return machine_record(machine, ROLLOUT_PROMOTED, RULE_SOAK);
    if (passed)
        return machine_enter(
                plan, machine, machine->stage + 1, ROLLOUT_RUNNING, input->window, RULE_SOAK);
    if (input->impatient)
        return machine_record(machine, ROLLOUT_PAUSED, RULE_PATIENCE);
    return machine_none(machine);
}

static struct machine_step machine_paused(const struct machine_plan *plan,
        const struct machine *machine, const struct machine_input *input)
{
    if (machine->ending)
        return machine_end(machine, EXIT_CODE_INCONCLUSIVE);
    bool by_person = input->request == REQUEST_RESUME || input->request == REQUEST_PROMOTE;
    bool shut = machine->rule == RULE_WINDOW || machine->rule == RULE_FREEZE;
    bool by_itself = (machine->rule == RULE_STALE && input->fresh) || shut;
    if (input->request == REQUEST_PAUSE && machine->rule != RULE_PERSON)
        return machine_record(machine, ROLLOUT_PAUSED, RULE_PERSON);
    if (by_person && machine->stage < 0)
        return machine_record(machine, ROLLOUT_WAITING, RULE_PERSON);
    if (by_person || by_itself) {
        struct machine ready = *machine;
        ready.free_window |= input->request == REQUEST_PROMOTE;
        enum rollout_rule rule = by_person ? RULE_PERSON : shut ? RULE_WINDOW : RULE_STALE;
        bool there = machine->percent >= plan->stages[machine->stage].percent - MACHINE_TOLERANCE &&
                !shut;
        return there
                ? machine_record(&ready, ROLLOUT_RUNNING, rule)
                : machine_enter(plan, &ready, machine->stage, ROLLOUT_PAUSED, input->window, rule);
    }
    if (input->waited && machine->rule != RULE_PERSON && !shut)
        return machine_down(machine, ROLLOUT_PAUSED, machine->rule);
    return machine_none(machine);
}

struct machine_step machine_step(const struct machine_plan *plan, const struct machine *machine,
        const struct machine_input *input)
{
    struct machine_step step = machine_none(machine);
    if (machine->moving)
        return machine_moved(machine, input);
    bool ended = rollout_state_ended(machine->state),
         danger = !ended && !machine->ending && machine_danger(plan, machine, input, &step);
    if (danger && step.action == ACTION_MOVE)
        return step;
    if (input->proxy_anew) { // no move up, whatever the windows say: the stage has earned it. The
                             // baseline's, after the end
        step = machine_none(machine);
        step.action = ACTION_RESTORE;
        return step;
    }
    if (danger)
        return step;
    if (ended)
        return machine->draining && !input->drained
                ? machine_none(machine)
                : machine_end(machine, machine_exit(machine->state));
    step = machine->state == ROLLOUT_WAITING    ? machine_waiting(plan, machine, input)
            : machine->state == ROLLOUT_RUNNING ? machine_running(plan, machine, input)
                                                : machine_paused(plan, machine, input);
    bool up = step.action == ACTION_MOVE && step.next.to.state == ROLLOUT_RUNNING;
    return up && input->proxy_silent ? machine_none(machine) : step;
}

// --- a start

// A decision was stored and not carried out. Down: carried out now. Up: the traffic of the last
// stage that was read back.
static struct machine_step machine_start_moving(
        const struct machine_plan *plan, const struct machine *machine, enum window_answer window)
{
    struct machine again = *machine;
    if (machine->to.state != ROLLOUT_RUNNING) {
        struct machine_step step = {.next = *machine, .action = ACTION_MOVE, .rule = machine->rule};
        return step;
    }
    again.moving = false;
    if (machine->stage < 0)
        return machine_move(&again, (struct machine_target){.state = ROLLOUT_WAITING, .stage = -1},
                RULE_RESTART);
    return machine_enter(plan, &again, machine->stage, ROLLOUT_PAUSED, window, RULE_RESTART);
}

struct machine_step machine_start(const struct machine_plan *plan, const struct machine *machine,
        double percent, bool forgot, enum window_answer window)
{
    struct machine seen = *machine;
    seen.ending = seen.draining = false;
    // It ended while a move was under way, and what ended that could not be stored: the end counts,
    // and nothing is resumed.
    seen.moving &= !rollout_state_ended(machine->state) || rollout_state_ended(machine->to.state);
    bool back = seen.moving && machine->to.state != ROLLOUT_RUNNING;
    if (isnan(percent) && !back) // whatever it is: try to bring it to the baseline
        return machine->state == ROLLOUT_PROMOTED
                ? machine_end(&seen, EXIT_CODE_PASS)
                : machine_down(&seen, rollout_state_ended(seen.state) ? seen.state : ROLLOUT_FAILED,
                          RULE_TRAFFIC);
    double expected = machine->percent;
    seen.percent = isnan(percent) ? expected : percent;
    if (seen.moving)
        return machine_start_moving(plan, &seen, window);
    if (machine->state == ROLLOUT_PROMOTED)
        return machine_end(&seen, EXIT_CODE_PASS);
    bool higher = percent > expected + MACHINE_TOLERANCE,
         lower = percent < expected - MACHINE_TOLERANCE;
    if (rollout_state_ended(machine->state))
        return percent > MACHINE_TOLERANCE ? machine_down(&seen, machine->state, RULE_RESTART)
                                           : machine_end(&seen, machine_exit(machine->state));
    bool held = machine->state == ROLLOUT_PAUSED &&
            (machine->rule == RULE_PERSON || machine->rule == RULE_TRAFFIC);
    // the candidate's traffic begins with the first stage
    if (machine->stage < 0 && percent > MACHINE_TOLERANCE)
        return machine_move(&seen, (struct machine_target){.state = ROLLOUT_WAITING, .stage = -1},
                RULE_RESTART);
    if (machine->stage < 0)
        return held || machine->state == ROLLOUT_WAITING
                ? machine_none(&seen)
                : machine_record(&seen, ROLLOUT_WAITING, RULE_RESTART);
    if (higher)
        return machine_down(&seen, ROLLOUT_FAILED, RULE_TRAFFIC);
    if (held)
        return machine_none(&seen);
    // Whoever took traffic from the candidate had a reason: a person gives it back. All of it is
    // what a controller takes that cannot go on and can store nothing.
    if (lower && !forgot && percent > MACHINE_TOLERANCE)
        return machine_record(&seen, ROLLOUT_PAUSED, RULE_TRAFFIC);
    if (lower || machine->state == ROLLOUT_PAUSED || plan->stages[machine->stage].aa)
        return machine_enter(plan, &seen, machine->stage, ROLLOUT_PAUSED, window, RULE_RESTART);
    return machine_record(&seen, ROLLOUT_RUNNING, RULE_RESTART);
}
