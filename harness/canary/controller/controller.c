// SPDX-License-Identifier: Apache-2.0
// The controller's loop: wakes ten times a second, looks, asks the state machine, does what it
// says. Opens and closes everything. Main thread; the only writer of the store but for rows of
// rollout_request.
#include "harness/canary/controller/controller.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/strings.h"
#include "common/units.h"
#include "harness/canary/controller/controller_internal.h"
#include "harness/canary/preflight/preflight.h"

#define LOOP_NS 100000000 // looks at the health of the arms: a crash is to be seen within a second
#define LOOP_GET_HOOKS_NS \
    5000000000 // a hook is a process: its answer is asked for less often than a proxy's
#define LOOP_CELLS_NS 5000000000
#define LOOP_JUMP_NS \
    1000000000 // between the clocks, from one look to the next: NTP slews by 0.5 ms a second
#define LOOP_LINGER_NS 1000000000  // after a signal, for a second one
#define LOOP_SHARED_NS 10000000000 // between servers that come back from one outage
#define LOOP_DRAIN_NS 100000000
#define LOOP_PREFLIGHT_NS \
    600000000000 // an answer older than this is asked for again before the first stage

static volatile sig_atomic_t controller_signals;

static void controller_on_signal(int number)
{
    (void)number;
    controller_signals++;
}

// --- looks ---------------------------------------------------------------------------------------

static void loop_clock(struct controller *ctl)
{
    int64_t offset = clock_wall_ns() - clock_monotonic_ns(), jump = offset - ctl->wall_offset_ns;
    ctl->wall_offset_ns = offset;
    if (llabs(jump) < LOOP_JUMP_NS)
        return;
    char text[CONTROLLER_TEXT], span[32];
    struct error err = {0};
    snprintf(text, sizeof text, "the wall clock jumped %s by %s: the stage's soak begins anew",
            jump > 0 ? "ahead" : "back", unit_format_ns(span, sizeof span, (double)llabs(jump)));
    // What the sources hold is of seconds that were or come again.
    struct sources *anew = NULL;
    if (ctl->options->aborts)
        return;
    sources_close(ctl->sources);
    ctl->sources = NULL;
    if (sources_open(ctl->rollout, &anew, &err))
        log_error("%s", err.text); // no evidence: paused, and said
    ctl->sources = anew;
    if (ctl->machine.stage < 0 || rollout_state_ended(ctl->machine.state))
        return;
    controller_judge_anew(ctl);
    log_warn("%s", text);
    controller_note(ctl, RULE_CLOCK, text);
}

// What the proxy said. One that is another process now has its weights set again (ACTION_RESTORE),
// and one that does not answer may be starting again: that has the time of one command.
static void loop_proxy(struct controller *ctl, const struct error *err)
{
    int64_t now = clock_monotonic_ns();
    // Somebody sets weights, or a third server has some; a hook that hangs has had its time.
    bool final = err->code == -EPROTO || err->code == -EINVAL ||
            (ctl->rollout->traffic.kind == ROLLOUT_HOOKS && err->code == -ETIMEDOUT);
    if (traffic_began_anew(ctl->traffic)) {
        if (!ctl->proxy_anew_ns)
            ctl->proxy_anew_ns = now;
        ctl->proxy_silent_ns = 0;
        return;
    }
    ctl->proxy_anew_ns = 0;
    if (!err->code) {
        ctl->proxy_seen_ns = now;
        ctl->proxy_silent_ns = 0;
        return;
    }
    if (!ctl->proxy_silent_ns) {
        ctl->proxy_silent_ns = now;
        if (!final)
            log_warn("%s", err->text);
    }
    if (!final && now - ctl->proxy_silent_ns <= ctl->rollout->traffic.timeout_ns)
        return;
    ctl->traffic_wrong = true;
    snprintf(ctl->traffic_text, sizeof ctl->traffic_text, "%s", err->text);
}

// Looks in a row at which the candidate is down and the baseline is not: where both are, it may be
// no fault of the candidate. They do not come back at one moment; until then the baseline has the
// requests, if it has a share of them.
static void loop_down(struct controller *ctl, bool candidate_up, bool baseline_up)
{
    int64_t now = clock_monotonic_ns();
    bool shares = ctl->machine.percent < 100 - MACHINE_TOLERANCE;
    if (!candidate_up && !baseline_up)
        ctl->both_down_ns = now;
    bool both = ctl->both_down_ns &&
            (!baseline_up || (shares && now - ctl->both_down_ns <= LOOP_SHARED_NS));
    if (candidate_up) {
        ctl->facts.down = 0;
    } else if (both && ctl->shared_ns < CONTROLLER_SHARED_NS) {
        ctl->facts.down = 0;
        ctl->shared = true;
    } else {
        ctl->facts.down++;
    }
}

// How long the candidate was spared in this stage. What spares it withholds a pass, too.
static void loop_shared(struct controller *ctl, int64_t now)
{
    if (ctl->shared) {
        ctl->shared_ns += now - ctl->looked_ns;
        ctl->facts.shared = true;
    }
    ctl->shared = false;
    ctl->looked_ns = now;
}

static void loop_look(struct controller *ctl)
{
    struct traffic_arm arms[CANARY_ARMS] = {0};
    struct error err = {0};
    int rc = traffic_look(ctl->traffic, arms, &err);
    if (ctl->rollout->traffic.kind != ROLLOUT_HOOKS) // a look at hooks asks nobody
        loop_proxy(ctl, &err);
    const struct traffic_arm *base = &arms[CANARY_BASELINE], *candidate = &arms[CANARY_CANDIDATE];
    // wrong weights alone leave the arms told
    if (rc && !base->up && !candidate->up && !base->requests && !candidate->requests)
        return;
    if (ctl->up[CANARY_BASELINE] != 0 && !arms[CANARY_BASELINE].up)
        log_warn(
                "the baseline is down by the proxy's health check: no move up, and no pause ends at the baseline, until it is up");
    for (int arm = 0; arm < CANARY_ARMS; arm++)
        ctl->up[arm] = arms[arm].up;
    ctl->health_ns = clock_monotonic_ns();
    if (rc)
        return;
    loop_down(ctl, candidate->up, base->up);
}

static void loop_get(struct controller *ctl)
{
    double percent = 0;
    struct error err = {0};
    if (traffic_get(ctl->traffic, &percent, &err) == 0 &&
            fabs(percent - ctl->machine.percent) > MACHINE_TOLERANCE)
        error_set(&err, -EPROTO,
                "the candidate has %.3g %% of the traffic and was set to %.3g %%: somebody else moves it",
                percent, ctl->machine.percent);
    // what is well is told by the looks
    if (err.code || ctl->rollout->traffic.kind == ROLLOUT_HOOKS)
        loop_proxy(ctl, &err);
}

static void loop_requests(struct controller *ctl)
{
    struct error err = {0};
    if (ctl->request.verb != REQUEST_NONE || ctl->store_failed)
        return;
    int rc = rollout_store_next_request(ctl->store, &ctl->request, &err);
    if (rc && rc != -EBUSY)
        controller_store_error(ctl, &err);
}

// A request that changes nothing has been heard, too.
static void loop_request_done(struct controller *ctl)
{
    struct error err = {0};
    if (ctl->request.verb == REQUEST_NONE || ctl->store_failed)
        return;
    log_info("%s asked for %s: nothing to do now", ctl->request.who,
            rollout_verb_name(ctl->request.verb));
    int rc = rollout_store_take_request(ctl->store, ctl->request.id, clock_wall_ns(), &err);
    if (rc && rc != -EBUSY)
        controller_store_error(ctl, &err);
    ctl->request.verb = REQUEST_NONE;
}

static void loop_preflight(struct controller *ctl)
{
    struct preflight result;
    int64_t now = clock_monotonic_ns();
    if (ctl->machine.state != ROLLOUT_WAITING || ctl->machine.stage >= 0 || ctl->machine.moving ||
            (ctl->preflighted && now - ctl->preflight_ns < LOOP_PREFLIGHT_NS))
        return;
    preflight_run(ctl->rollout, &controller_signals, &result);
    if (result.notes && *result.notes)
        log_info("preflight: %s", result.notes);
    if (!result.exit_code && ctl->up[CANARY_CANDIDATE] == 0) {
        result.exit_code = EXIT_CODE_OPERATIONAL;
        snprintf(result.reason, sizeof result.reason,
                "the candidate is down by the proxy's health check");
    }
    ctl->preflighted = true;
    ctl->preflight_ns = now;
    ctl->preflight_failed = result.exit_code != 0;
    ctl->preflight_exit = result.exit_code;
    snprintf(ctl->preflight_text, sizeof ctl->preflight_text, "%s", result.reason);
    preflight_clear(&result);
}

// Requests in flight on the candidate, after the way back. Nothing waits here: evidence goes on
// meanwhile.
static void loop_drain(struct controller *ctl)
{
    struct error err = {0};
    uint64_t left = 0;
    int64_t now = clock_monotonic_ns(), slice = now + LOOP_DRAIN_NS;
    if (!ctl->machine.draining || ctl->drained)
        return;
    if (now >= ctl->drain_end_ns) {
        ctl->drained = true;
        return;
    }
    int rc = traffic_drain(ctl->traffic, CANARY_CANDIDATE,
            slice < ctl->drain_end_ns ? slice : ctl->drain_end_ns, &left, &err);
    if (rc == 0 && left == 0)
        ctl->drained = true;
    else if (rc == 0 && clock_monotonic_ns() >= ctl->drain_end_ns)
        log_warn("%" PRIu64
                 " requests were still in flight on the candidate when the drain's time was over",
                left);
    else if (rc)
        clock_sleep_until_ns(slice);
}

// Half of the evidence that ends it: a candidate that will be rolled back is recorded while it
// still has its traffic.
static bool loop_suspects(const struct controller *ctl)
{
    for (int i = 0; i < ctl->facts.cell_count && ctl->machine.state == ROLLOUT_RUNNING; i++) {
        const struct canary_cell *cell = &ctl->cells[i];
        if (ctl->rollout->rules.metrics[cell->metric].gated && cell->evidence > cell->needed / 2)
            return true;
    }
    return false;
}

static void loop_why(struct controller *ctl)
{
    const struct controller_why *why = ctl->options->why;
    bool wanted = why && ctl->rollout->why.record && !ctl->store_failed,
         over = ctl->machine.state == ROLLOUT_ROLLED_BACK;
    if (ctl->why_done || ctl->machine.stage < 0)
        return;
    if (!ctl->why_begun && !over &&
            !(wanted && !ctl->plan.stages[ctl->machine.stage].aa && loop_suspects(ctl)))
        return;
    if (wanted && !ctl->why_begun)
        why->begin(why->arg, ctl->rollout, ctl->store);
    ctl->why_begun = true;
    ctl->why_done = !wanted || why->done(why->arg, ctl->store);
}

// --- the loop ------------------------------------------------------------------------------------

static struct machine_input loop_input(struct controller *ctl)
{
    const struct machine *machine = &ctl->machine;
    int64_t now = clock_monotonic_ns();
    struct machine_input input = {.store_failed = ctl->store_failed,
            .traffic_wrong = ctl->traffic_wrong,
            .proxy_silent = ctl->proxy_silent_ns != 0,
            .proxy_anew = ctl->proxy_anew_ns && !ctl->traffic_wrong,
            .tripped = ctl->answer.tripped,
            .tripwire = ctl->answer.tripwire,
            .cell_failed = ctl->answer.failed >= 0,
            .soaked = ctl->answer.soaked,
            .requests_enough = ctl->answer.requests_enough,
            .cells_passed = ctl->answer.cells_passed,
            .fresh = now - ctl->evidence_ns < ctl->rollout->stale_ns &&
                    !controller_candidate_silent(ctl),
            .preflight_failed = ctl->preflight_failed,
            .preflight_exit = ctl->preflight_exit,
            .window = window_at(ctl->rollout, clock_wall_ns() / CONTROLLER_SECOND_NS),
            .request = ctl->request.verb,
            .drained = ctl->drained && (ctl->why_done || machine->state != ROLLOUT_ROLLED_BACK)};
    if (machine->stage >= 0)
        input.impatient = now - ctl->patience_ns > ctl->rollout->stages[machine->stage].patience_ns;
    input.waited = now - ctl->paused_ns > controller_wait_ns(ctl);
    // A move up without a living baseline would have no way back, and of a pause that nobody came
    // to look at all users would get the errors of a server that is down.
    if (ctl->up[CANARY_BASELINE] == 0)
        input.cells_passed = input.waited = false;
    input.signals = ctl->signals = controller_signals;
    if (input.signals && !ctl->signalled_ns)
        ctl->signalled_ns = now;
    input.lingered = ctl->signalled_ns && now - ctl->signalled_ns > LOOP_LINGER_NS;
    return input;
}

static void loop_wait(struct controller *ctl)
{
    int64_t left = ctl->look_ns - clock_monotonic_ns();
    struct error err = {0};
    int milliseconds = left > 0 ? (int)(left / 1000000) + 1 : 0;
    if (!ctl->sources)
        clock_sleep_until_ns(ctl->look_ns);
    else if (sources_poll(ctl->sources, milliseconds, &err)) {
        log_debug("%s", err.text);
        clock_sleep_until_ns(ctl->look_ns);
    }
}

// A wake-up. False: it has ended.
static bool loop_once(struct controller *ctl, enum exit_code *ret_exit)
{
    loop_wait(ctl);
    int64_t now = clock_monotonic_ns();
    loop_clock(ctl);
    controller_take(ctl);
    bool looks = now >= ctl->look_ns, second = now >= ctl->second_ns, cells = now >= ctl->cells_ns;
    if (looks) {
        ctl->look_ns = now + LOOP_NS;
        loop_look(ctl);
        controller_recent_look(ctl);
        loop_shared(ctl, now);
    }
    if (now >= ctl->get_ns && !rollout_state_ended(ctl->machine.state)) {
        ctl->get_ns = now +
                (ctl->rollout->traffic.kind == ROLLOUT_HOOKS ? LOOP_GET_HOOKS_NS
                                                             : CONTROLLER_SECOND_NS);
        loop_get(ctl);
    }
    if (second)
        loop_requests(ctl);
    controller_judge(ctl);
    loop_preflight(ctl);
    loop_drain(ctl);
    loop_why(ctl);
    struct machine_input input = loop_input(ctl);
    struct machine_step step = machine_step(&ctl->plan, &ctl->machine, &input);
    bool idle = step.action == ACTION_NONE, waited = ctl->waits;
    if (!controller_apply(ctl, &step, ret_exit))
        return false;
    if (idle || waited)
        loop_request_done(ctl);
    if (ctl->event[0] && (ctl->store_failed || controller_note(ctl, RULE_PROXY, ctl->event)))
        ctl->event[0] = 0;
    if (second) {
        ctl->second_ns = now + CONTROLLER_SECOND_NS;
        if (cells)
            ctl->cells_ns = now + LOOP_CELLS_NS;
        if (idle && !rollout_state_ended(ctl->machine.state) &&
                ctl->machine.state == ROLLOUT_RUNNING && ctl->machine.rule != RULE_WINDOW &&
                ctl->machine.rule != RULE_FREEZE)
            snprintf(ctl->reason, sizeof ctl->reason, "%s", ctl->answer.text); // what it waits for
        controller_persist(ctl, cells);
    }
    return true;
}

// --- all of it -----------------------------------------------------------------------------------

static int controller_loop(struct controller *ctl, enum exit_code *ret_exit, struct error *err)
{
    double percent = NAN;
    bool forgot = false;
    int rc = controller_begin(ctl, &percent, &forgot, err);
    if (rc)
        return rc;
    struct machine_step step = machine_start(&ctl->plan, &ctl->machine, percent, forgot,
            window_at(ctl->rollout, clock_wall_ns() / CONTROLLER_SECOND_NS));
    loop_requests(ctl);
    if (ctl->request.verb == REQUEST_ABORT && !rollout_state_ended(ctl->machine.state)) {
        // Asked for while no controller lived: nothing else is done first, no move up above all.
        struct machine_input input = {.request = REQUEST_ABORT};
        ctl->machine.moving &= ctl->machine.to.state != ROLLOUT_RUNNING;
        step = machine_step(&ctl->plan, &ctl->machine, &input);
    }
    controller_judge(ctl);
    bool goes_on = controller_apply(ctl, &step, ret_exit);
    if (!ctl->traffic_wrong)
        ctl->traffic_text[0] = 0; // of what was found; told
    if (goes_on && ctl->machine.stage >= 0 && ctl->rollout->stages[ctl->machine.stage].mirror > 0 &&
            !ctl->shadowing && ctl->machine.state == ROLLOUT_RUNNING)
        // what it was asking has ended with the process
        controller_begin_stage(ctl, ctl->machine.stage);
    while (goes_on)
        goes_on = loop_once(ctl, ret_exit);
    return 0;
}

// What a plan may say and a run needs: a plan is looked at (`upgate canary plan`) where the arms
// are not yet there.
static int controller_check(const struct controller_options *options, struct error *err)
{
    const struct rollout *rollout = options->rollout;
    for (int i = 0; i < rollout->stage_count; i++) {
        if (rollout->stages[i].mirror == 0)
            continue;
        if (options->aborts)
            continue;
        if (!rollout->shadow_urls[CANARY_BASELINE] || !rollout->shadow.requests)
            return error_set(err, -EINVAL,
                    "the stage '%s' sends recorded requests to both arms directly: say which and where, "
                    "shadow: {baseline: URL, candidate: URL, requests: FILE}",
                    rollout->stages[i].name);
        if (!options->shadow)
            return error_set(err, -EINVAL,
                    "the plan has a shadow stage, and this upgate was built without it");
    }
    return 0;
}

int controller_run(
        const struct controller_options *options, enum exit_code *ret_exit, struct error *err)
{
    // The terminal of whoever began it may go: the candidate's traffic stays, and so must who
    // watches it.
    struct sigaction action = {.sa_handler = controller_on_signal},
                     ignore = {.sa_handler = SIG_IGN}, term, interrupt, hangup;
    struct controller ctl = {.options = options,
            .rollout = options->rollout,
            .plan = machine_plan_of(options->rollout),
            .lock_fd = -1,
            .folded_stage = -1,
            .since_ns = clock_wall_ns(),
            .up = {-1, -1},
            .facts = {.recent_errors = NAN},
            .answer = {.failed = -1}};
    int rc = controller_check(options, err);
    if (rc)
        return rc;
    controller_signals = 0;
    // neither comes between the other's reading of the count and its writing
    sigaddset(&action.sa_mask, SIGTERM);
    sigaddset(&action.sa_mask, SIGINT);
    sigaction(SIGTERM, &action, &term);
    sigaction(SIGINT, &action, &interrupt);
    sigaction(SIGHUP, &ignore, &hangup);
    ctl.evidence = canary_evidence_new(&options->rollout->rules);
    *ret_exit = EXIT_CODE_OPERATIONAL;
    rc = controller_open(&ctl, err);
    if (rc == 0)
        rc = controller_loop(&ctl, ret_exit, err);
    if (rc == 0)
        log_info("'%s' is %s, the candidate has %.3g %% of the traffic: %s", options->rollout->name,
                rollout_state_name(ctl.machine.state), ctl.machine.percent, ctl.reason);
    controller_close(&ctl);
    sigaction(SIGTERM, &term, NULL);
    sigaction(SIGINT, &interrupt, NULL);
    sigaction(SIGHUP, &hangup, NULL);
    return rc;
}
