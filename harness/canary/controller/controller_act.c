// SPDX-License-Identifier: Apache-2.0
// What the state machine decided, carried out: the decision is stored, then the weight is set and
// read back, then the state is stored. Where the store is slow or gone, a way back does not wait
// for it. Main thread.
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/units.h"
#include "harness/canary/controller/controller_internal.h"

// A rollback takes 200 ms at most from detection (the target of the measurements). A commit that
// took longer than this is not waited for before the weight is set.
#define ACT_SLOW_COMMIT_NS 50000000
// A way back that fails is tried again so often, for as long as requests may drain, and half a
// minute at least.
#define ACT_RETRY_NS 100000000
#define ACT_GIVE_UP_MIN_NS 30000000000

// What a locked store may cost: little while the weight is still to be set, much once it is set,
// for what happened must be found by whoever starts again. With traffic on the candidate in
// between.
enum { ACT_LOCKED_BEFORE_MS = 100, ACT_LOCKED_FORWARD_MS = 2000, ACT_LOCKED_BACK_MS = 30000 };

// Behind the reason of a way back.
#define ACT_WAITS \
    "; not carried out yet: the baseline is down by the proxy's health check and would answer nobody. It gets the traffic as soon " \
    "as it is up, or by `upgate canary abort`, and after "

struct rollout_row controller_row(const struct controller *ctl)
{
    return (struct rollout_row){.state = ctl->machine.state,
            .stage = ctl->machine.stage,
            .percent = ctl->machine.percent,
            .since_ns = ctl->since_ns,
            .stage_since_ns = ctl->stage_since_ns,
            .heartbeat_ns = clock_wall_ns(),
            .reason = (char *)ctl->reason,
            .up = {ctl->up[0], ctl->up[1]}};
}

void controller_store_error(struct controller *ctl, const struct error *err)
{
    if (ctl->store_failed)
        return;
    ctl->store_failed = true;
    snprintf(ctl->store_text, sizeof ctl->store_text, "%s", err->text);
    log_error("%s", err->text);
}

// --- words ---------------------------------------------------------------------------------------

static void act_when(const struct controller *ctl, char *buf, size_t size)
{
    int64_t next = window_next(ctl->rollout, clock_wall_ns() / CONTROLLER_SECOND_NS);
    time_t at = (time_t)next;
    struct tm tm;
    if (next < 0)
        snprintf(buf, size, "not within 400 days");
    else
        strftime(buf, size, "not before %Y-%m-%d %H:%M UTC", gmtime_r(&at, &tm));
}

// Appends what is wrong with the sources: why evidence is missing.
static void act_problems(const struct controller *ctl, char *buf, size_t size)
{
    for (int i = 0; ctl->sources && i < ctl->rollout->source_count; i++) {
        struct source_state state = {0};
        sources_state(ctl->sources, i, &state);
        size_t len = strlen(buf);
        if (state.problem[0])
            snprintf(buf + len, size - len, "; source %d: %.200s", i + 1, state.problem);
    }
}

static const char *act_stage_name(const struct controller *ctl, int stage)
{
    return stage < 0 ? "none" : ctl->rollout->stages[stage].name;
}

// A person goes on with a stage that lacks log lines, of which nothing can be known any more, or
// that both arms failed in.
static bool act_judges_anew(
        const struct controller *ctl, enum rollout_rule rule, enum rollout_state to)
{
    return rule == RULE_PERSON && to == ROLLOUT_RUNNING && ctl->machine.state == ROLLOUT_PAUSED &&
            ctl->machine.stage >= 0 &&
            (ctl->stages[ctl->machine.stage].lost > 0 || ctl->facts.shared);
}

// ctl->reason, from the rule and what is known. to: the state that follows.
static void act_reason(struct controller *ctl, enum rollout_rule rule, enum rollout_state to)
{
    char *text = ctl->reason, span[32];
    size_t size = sizeof ctl->reason;
    bool person = ctl->request.verb != REQUEST_NONE;
    switch (rule) {
    case RULE_SOAK:
        snprintf(text, size, "stage '%s' passed: %s", act_stage_name(ctl, ctl->machine.stage),
                ctl->answer.text);
        break;
    case RULE_PATIENCE:
    case RULE_EVIDENCE:
        snprintf(text, size, "%s%s", rule == RULE_PATIENCE ? "no verdict in time: " : "",
                ctl->answer.text);
        if (rule == RULE_PATIENCE)
            act_problems(ctl, text, size);
        break;
    case RULE_WINDOW:
    case RULE_FREEZE:
        if (to == ROLLOUT_RUNNING && ctl->machine.state == ROLLOUT_PAUSED) {
            snprintf(text, size, "a move up is allowed again");
            break;
        }
        snprintf(text, size,
                "%s; a move up: ", rule == RULE_FREEZE ? "a freeze" : "outside the windows");
        act_when(ctl, text + strlen(text), size - strlen(text));
        break;
    case RULE_STALE:
        if (to == ROLLOUT_RUNNING)
            snprintf(text, size, "evidence comes in again");
        else if (controller_candidate_silent(ctl))
            snprintf(text, size, "%s for %s, and %" PRIu64 " of the baseline's have%s",
                    ctl->shadowing ? "no answer of the candidate could be compared"
                                   : "no request of the candidate has ended",
                    unit_format_ns(
                            span, sizeof span, 1e9 * (double)(ctl->judged_s - ctl->heard.at_s)),
                    ctl->heard.baseline,
                    ctl->shadowing ? " ended: the baseline fails, or answers are too long"
                                   : ": it hangs, or its evidence is lost");
        else
            snprintf(text, size, "no evidence for %s",
                    unit_format_ns(span, sizeof span, (double)ctl->rollout->stale_ns));
        if (to != ROLLOUT_RUNNING)
            act_problems(ctl, text, size);
        break;
    case RULE_PERSON:
        snprintf(text, size, "%s%s%s", person ? rollout_verb_name(ctl->request.verb) : "started",
                person && ctl->request.reason[0] ? ": " : "", person ? ctl->request.reason : "");
        if (act_judges_anew(ctl, rule, to) && ctl->facts.shared)
            snprintf(text + strlen(text), size - strlen(text),
                    "; the stage is judged anew, for both arms failed together in it");
        else if (act_judges_anew(ctl, rule, to))
            snprintf(text + strlen(text), size - strlen(text),
                    "; the stage is judged anew, for %" PRId64 " of its log lines were lost",
                    ctl->stages[ctl->machine.stage].lost);
        break;
    case RULE_SIGNAL:
        snprintf(text, size,
                to == ROLLOUT_PAUSED && ctl->machine.moving
                        ? "a second signal: the traffic to the baseline"
                        : "ended by a signal; the traffic stays where it is");
        break;
    case RULE_PREFLIGHT:
        snprintf(text, size, "%s", ctl->preflight_text);
        break;
    case RULE_TRAFFIC:
        snprintf(text, size, "%s",
                ctl->traffic_text[0] ? ctl->traffic_text : "the traffic is not as it was set");
        break;
    case RULE_STORE:
        snprintf(text, size, "%s", ctl->store_text);
        break;
    case RULE_RESTART:
        snprintf(text, size, "%s",
                ctl->traffic_text[0] ? ctl->traffic_text : "the controller was started again");
        break;
    default: // the tripwires
        snprintf(text, size, "%s", ctl->answer.text);
    }
    // The pause ends what nobody came to look at: the rule stays.
    bool nobody = ctl->machine.moving && to == ROLLOUT_PAUSED &&
            ctl->machine.state == ROLLOUT_PAUSED && rule != RULE_SIGNAL && rule != RULE_PERSON;
    if (nobody && rule != RULE_WINDOW && rule != RULE_FREEZE && rule != RULE_RESTART) {
        int64_t waited = clock_monotonic_ns() - ctl->paused_ns;
        snprintf(text + strlen(text), size - strlen(text),
                "; nobody answered for %s: the traffic to the baseline",
                unit_format_ns(span, sizeof span, (double)waited));
    }
}

// --- rows ----------------------------------------------------------------------------------------

// The decision from the machine as it was to `next`, in a transaction. effect: nothing has to be
// carried out.
static int act_decide(
        struct controller *ctl, const struct machine_step *step, bool effect, struct error *err)
{
    const struct machine *next = &step->next;
    bool moves = step->action == ACTION_MOVE;
    json_t *cells =
            rollout_cells_to_json(ctl->cells, ctl->machine.stage < 0 ? 0 : ctl->facts.cell_count);
    char *evidence = json_dumps(cells, JSON_COMPACT);
    int64_t now = clock_wall_ns();
    struct rollout_decision decision = {.at_ns = now,
            .effect_ns = effect ? now : 0,
            .state_from = ctl->machine.state,
            .state_to = moves ? next->to.state : next->state,
            .stage_from = ctl->machine.stage,
            .stage_to = moves ? next->to.stage : next->stage,
            .percent_from = ctl->machine.percent,
            .percent_to = moves ? next->to.percent : next->percent,
            .rule = step->rule,
            .reason = ctl->reason,
            .who = ctl->request.verb != REQUEST_NONE ? ctl->request.who
                    : step->rule == RULE_PERSON      ? ctl->options->who
                                                     : "controller",
            .evidence = evidence};
    int rc = store_begin(ctl->store, err);
    if (rc == 0)
        rc = rollout_store_decide(ctl->store, &decision, err);
    if (rc == 0 && ctl->machine.stage >= 0)
        rc = rollout_store_cells(
                ctl->store, now / CONTROLLER_SECOND_NS, ctl->cells, ctl->facts.cell_count, err);
    if (rc == 0 && ctl->request.verb != REQUEST_NONE)
        rc = rollout_store_take_request(ctl->store, ctl->request.id, now, err);
    if (rc == 0 && effect) {
        struct controller after = *ctl;
        after.machine = *next;
        struct rollout_row row = controller_row(&after);
        row.reason = ctl->reason;
        rc = rollout_store_write(ctl->store, &row, err);
    }
    rc = rc ? rc : store_commit(ctl->store, err);
    if (rc)
        store_rollback(ctl->store);
    json_decref(cells);
    free(evidence);
    ctl->decision = decision.id;
    return rc;
}

// A write of a decision. False: it could not be stored.
static bool act_store(struct controller *ctl, const struct machine_step *step, bool effect)
{
    struct error err = {0};
    if (ctl->store_failed)
        return false;
    int64_t begin = clock_monotonic_ns();
    int rc = act_decide(ctl, step, effect, &err);
    ctl->commit_ns = clock_monotonic_ns() - begin;
    if (rc && rc != -EBUSY)
        controller_store_error(ctl, &err);
    return rc == 0;
}

bool controller_note(struct controller *ctl, enum rollout_rule rule, const char *reason)
{
    if (ctl->waits) // its decision and its reason are what is carried out; the log has told this
        return true;
    struct machine_step step = {.next = ctl->machine, .action = ACTION_RECORD, .rule = rule};
    snprintf(ctl->reason, sizeof ctl->reason, "%s", reason);
    return act_store(ctl, &step, true);
}

static const char *act_result(enum rollout_state state)
{
    return state == ROLLOUT_RUNNING || state == ROLLOUT_PROMOTED ? "passed"
            : state == ROLLOUT_ROLLED_BACK                       ? "failed"
                                                                 : "aborted";
}

// The stages' rows after a move, and the state, in a transaction. before: the machine that decided.
static int act_confirm(struct controller *ctl, const struct machine *before, struct error *err)
{
    int stage = ctl->machine.stage;
    bool forward = ctl->machine.state == ROLLOUT_RUNNING,
         ends = before->stage >= 0 && (before->stage != stage || !forward);
    int64_t now = clock_wall_ns();
    struct rollout_row row = controller_row(ctl);
    int rc = store_begin(ctl->store, err);
    if (rc == 0 && ends && ctl->machine.state != ROLLOUT_PAUSED) {
        ctl->stages[before->stage].end_s = now / CONTROLLER_SECOND_NS;
        rc = rollout_store_stage(ctl->store, before->stage, &ctl->stages[before->stage],
                act_result(ctl->machine.state), err);
    }
    if (rc == 0 && forward)
        rc = rollout_store_stage(ctl->store, stage, &ctl->stages[stage], NULL, err);
    if (rc == 0 && ctl->decision)
        rc = rollout_store_effect(ctl->store, ctl->decision, now, ctl->machine.percent, err);
    if (rc == 0)
        rc = rollout_store_write(ctl->store, &row, err);
    rc = rc ? rc : store_commit(ctl->store, err);
    if (rc)
        store_rollback(ctl->store);
    return rc;
}

// --- actions -------------------------------------------------------------------------------------

static void act_log(const struct controller *ctl, const struct machine_step *step)
{
    const struct machine *next = &step->next;
    bool moves = step->action == ACTION_MOVE;
    enum rollout_state state = moves ? next->to.state : next->state;
    int stage = moves ? next->to.stage : next->stage;
    bool bad = state == ROLLOUT_ROLLED_BACK || state == ROLLOUT_FAILED || state == ROLLOUT_PAUSED;
    (bad ? log_warn : log_info)("%s, stage %s, %.3g %%: %s (%s)", rollout_state_name(state),
            act_stage_name(ctl, stage), moves ? next->to.percent : next->percent, ctl->reason,
            rollout_rule_name(step->rule));
}

static int act_set(struct controller *ctl, const struct machine_target *to, double *ret_percent,
        struct error *err)
{
    if (to->aa && to->state == ROLLOUT_RUNNING) {
        double second = 0;
        int rc =
                traffic_set_aa(ctl->traffic, ctl->rollout->stages[to->stage].percent, &second, err);
        *ret_percent = 0; // of the candidate
        if (rc != -ENOTSUP)
            return rc;
    }
    return traffic_set(ctl->traffic, to->percent, ret_percent, err);
}

static void act_moved(struct controller *ctl, const struct machine *before)
{
    int64_t now = clock_wall_ns();
    bool back = ctl->machine.state != ROLLOUT_RUNNING;
    struct error err = {0};
    ctl->since_ns = now;
    ctl->paused_ns = clock_monotonic_ns();
    ctl->traffic_wrong = false;
    ctl->proxy_anew_ns = ctl->proxy_silent_ns = 0; // it was told, and has answered
    ctl->traffic_text[0] = 0;
    ctl->get_ns = 0;
    if (!back) {
        ctl->stage_since_ns = now;
        controller_begin_stage(ctl, ctl->machine.stage);
    } else if (ctl->shadowing) {
        ctl->options->shadow->end(ctl->options->shadow->arg);
        ctl->shadowing = false;
    }
    if (ctl->machine.draining)
        ctl->drain_end_ns = clock_monotonic_ns() + ctl->rollout->drain_ns;
    if (ctl->store_failed)
        return;
    sqlite3_busy_timeout(store_db(ctl->store), back ? ACT_LOCKED_BACK_MS : ACT_LOCKED_FORWARD_MS);
    if (act_confirm(ctl, before, &err))
        controller_store_error(ctl, &err);
    sqlite3_busy_timeout(store_db(ctl->store), ACT_LOCKED_BEFORE_MS);
}

// Sets the weight until it is read back. A way back is tried again; a way up is not.
static bool act_move(struct controller *ctl, const struct machine *before,
        const struct machine_step *first, enum exit_code *ret_exit)
{
    struct machine_step step = *first;
    int64_t begin = clock_monotonic_ns(), patience = ctl->rollout->drain_ns;
    if (patience < ACT_GIVE_UP_MIN_NS)
        patience = ACT_GIVE_UP_MIN_NS;
    for (;;) {
        struct error err = {0};
        struct machine_input input = {.moved = MOVED_OK};
        ctl->machine = step.next;
        if (act_set(ctl, &ctl->machine.to, &input.percent, &err)) {
            if (!ctl->traffic_text[0])
                log_error("%s", err.text);
            snprintf(ctl->traffic_text, sizeof ctl->traffic_text, "%s", err.text);
            input.moved = clock_monotonic_ns() - begin > patience ? MOVED_GAVE_UP : MOVED_FAILED;
        }
        step = machine_step(&ctl->plan, &ctl->machine, &input);
        if (step.action == ACTION_CONFIRM) {
            ctl->machine = step.next;
            act_moved(ctl, before);
            return true;
        }
        if (step.action == ACTION_END) {
            ctl->machine = step.next;
            snprintf(ctl->reason, sizeof ctl->reason,
                    "the traffic could not be brought to the baseline, look at it now: %s",
                    ctl->traffic_text);
            log_error("%s", ctl->reason);
            *ret_exit = (enum exit_code)step.exit_code;
            controller_persist(ctl, false);
            return false;
        }
        if (step.decided) { // up failed: down
            struct machine was = ctl->machine;
            ctl->machine = *before;
            act_reason(ctl, step.rule, step.next.to.state);
            act_log(ctl, &step);
            act_store(ctl, &step, false);
            ctl->machine = was;
            begin = clock_monotonic_ns();
            continue;
        }
        if (ctl->sources && sources_poll(ctl->sources, 0, NULL) == 0) // evidence goes on
            controller_take(ctl);
        clock_sleep_until_ns(clock_monotonic_ns() + ACT_RETRY_NS);
    }
}

// The proxy has the weights of its file: those of the machine again. What cannot be set in time is
// told the machine, which goes back.
static void act_restore(struct controller *ctl)
{
    const struct machine *machine = &ctl->machine;
    bool baseline = rollout_state_ended(machine->state) || machine->ending;
    struct machine_target same = {.state = ROLLOUT_RUNNING,
            .stage = machine->stage,
            .percent = machine->percent,
            .aa = machine->stage >= 0 && ctl->plan.stages[machine->stage].aa && !baseline};
    struct error err = {0};
    char what[128], found_text[96] = "", span[32];
    double found = NAN, percent;
    snprintf(what, sizeof what, "%s", traffic_began_anew(ctl->traffic));
    if (traffic_get(ctl->traffic, &found, &err) || act_set(ctl, &same, &percent, &err)) {
        int64_t now = clock_monotonic_ns();
        if (now - ctl->proxy_anew_ns > ctl->rollout->traffic.timeout_ns) {
            ctl->traffic_wrong = true;
            snprintf(ctl->traffic_text, sizeof ctl->traffic_text,
                    "%s, and its weights could not be set again: %s", what, err.text);
        }
        return;
    }
    if (fabs(found - machine->percent) > MACHINE_TOLERANCE)
        snprintf(found_text, sizeof found_text,
                "the candidate had %.3g %% of the traffic instead of %.3g %%, for %s at most; ",
                found, machine->percent,
                unit_format_ns(
                        span, sizeof span, (double)(clock_monotonic_ns() - ctl->proxy_seen_ns)));
    snprintf(ctl->event, sizeof ctl->event, "%s: %sits weights were set again", what, found_text);
    log_warn("%s", ctl->event);
    ctl->proxy_anew_ns = 0;
    ctl->proxy_seen_ns = clock_monotonic_ns();
}

int64_t controller_wait_ns(const struct controller *ctl)
{
    int64_t wait_ns = ctl->options->wait_ns,
            patience_ns = ctl->machine.stage >= 0
            ? ctl->rollout->stages[ctl->machine.stage].patience_ns
            : 0;
    return wait_ns >= 0 ? wait_ns : patience_ns;
}

// A candidate that fails some requests is better than a baseline that answers nobody, for as long
// as a pause would wait. Not one that is down itself or gives wrong answers; and not where nobody
// watches any more, nothing can be stored, or the health is not known.
static bool act_must_wait(struct controller *ctl, const struct machine_step *step)
{
    struct traffic_arm arms[CANARY_ARMS] = {0};
    bool asked = ctl->request.verb == REQUEST_ABORT || ctl->signals > 0 || ctl->options->aborts;
    bool wrong = step->rule == RULE_TRIPWIRE_WRONG || ctl->answer.wrong;
    if (asked || wrong || ctl->store_failed || step->next.to.state != ROLLOUT_ROLLED_BACK ||
            !(step->next.percent > 0))
        return false;
    int64_t now = clock_monotonic_ns();
    if (!ctl->health_ns && traffic_look(ctl->traffic, arms, NULL) == 0) { // just started
        for (int arm = 0; arm < CANARY_ARMS; arm++)
            ctl->up[arm] = arms[arm].up;
        ctl->health_ns = now;
    }
    bool known = ctl->health_ns &&
            now - ctl->health_ns <= ctl->rollout->traffic.timeout_ns + CONTROLLER_SECOND_NS;
    return known && ctl->up[CANARY_BASELINE] == 0 && ctl->up[CANARY_CANDIDATE] == 1 &&
            now - ctl->back_ns < controller_wait_ns(ctl);
}

// Says so, loudly once, and in the reason as long as it lasts.
static void act_wait(struct controller *ctl, bool waits, double percent)
{
    char *told = strstr(ctl->reason, ACT_WAITS), span[32];
    size_t len = told ? (size_t)(told - ctl->reason) : strlen(ctl->reason);
    if (waits && !ctl->waits)
        log_error(
                "the way back has to wait: the baseline is down by the proxy's health check; the candidate keeps its %.3g %% until it is "
                "up, for %s at most",
                percent, unit_format_ns(span, sizeof span, (double)controller_wait_ns(ctl)));
    if (waits && !told)
        snprintf(ctl->reason + len, sizeof ctl->reason - len, ACT_WAITS "%s in any case",
                unit_format_ns(span, sizeof span, (double)controller_wait_ns(ctl)));
    if (!waits && told) {
        snprintf(told, sizeof ctl->reason - len, "%s",
                ctl->up[CANARY_BASELINE] == 1
                        ? "; carried out after it had waited for a baseline that was down"
                        : "; carried out, though the baseline was down: it must not wait any more");
        log_warn("the way back that waited is carried out now");
    }
    ctl->waits = waits;
}

// A way back that waits is looked at again at each wake-up. A proxy that began anew meanwhile has
// the weights of its file.
static bool act_waited(struct controller *ctl, const struct machine_step *step)
{
    ctl->machine = step->next;
    if (ctl->proxy_anew_ns && !ctl->traffic_wrong)
        act_restore(ctl);
    return true;
}

static bool act_begin_move(
        struct controller *ctl, const struct machine_step *step, enum exit_code *ret_exit)
{
    struct machine before = ctl->machine;
    bool forward = step->next.to.state == ROLLOUT_RUNNING, waits = false;
    if (!step->decided) { // stored by the controller before us, or by this one, and it had to wait
        waits = act_must_wait(ctl, step);
        act_wait(ctl, waits, step->next.percent);
        return waits ? act_waited(ctl, step) : act_move(ctl, &before, step, ret_exit);
    }
    ctl->machine.moving = true; // for the words of the reason
    act_reason(ctl, step->rule, step->next.to.state);
    ctl->machine.moving = false;
    ctl->back_ns = clock_monotonic_ns();
    waits = act_must_wait(ctl, step);
    act_wait(ctl, waits, step->next.percent);
    act_log(ctl, step);
    bool late = !forward && !waits && ctl->commit_ns > ACT_SLOW_COMMIT_NS, stored = false;
    ctl->decision = 0;
    if (!late)
        stored = act_store(ctl, step, false);
    if (waits && ctl->store_failed) {
        waits = false;
        act_wait(ctl, waits, step->next.percent);
    }
    if ((forward || waits) && !stored) { // never what nobody could find again; it is decided anew
        ctl->waits = false;
        return true;
    }
    if (waits) {
        ctl->request.verb = REQUEST_NONE;
        return act_waited(ctl, step);
    }
    bool goes_on = act_move(ctl, &before, step, ret_exit);
    if (!stored && !ctl->store_failed) { // the row that had to wait
        struct machine after = ctl->machine;
        ctl->machine = before;
        struct machine_step done = {.next = after, .action = ACTION_RECORD, .rule = step->rule};
        sqlite3_busy_timeout(store_db(ctl->store), ACT_LOCKED_BACK_MS);
        act_store(ctl, goes_on ? &done : step, goes_on); // without effect, where it was given up
        sqlite3_busy_timeout(store_db(ctl->store), ACT_LOCKED_BEFORE_MS);
        ctl->machine = after;
    }
    ctl->request.verb = REQUEST_NONE;
    return goes_on;
}

bool controller_apply(
        struct controller *ctl, const struct machine_step *step, enum exit_code *ret_exit)
{
    enum rollout_state was = ctl->machine.state;
    bool anew = step->action == ACTION_RECORD && act_judges_anew(ctl, step->rule, step->next.state);
    switch (step->action) {
    case ACTION_NONE:
        ctl->machine = step->next;
        return true;
    case ACTION_RECORD:
        act_reason(ctl, step->rule, step->next.state);
        act_log(ctl, step);
        if (step->next.state != was)
            ctl->since_ns = clock_wall_ns();
        if (!act_store(ctl, step, true) && !ctl->store_failed)
            return true; // the store is locked: decided anew in a moment
        ctl->machine = step->next;
        ctl->request.verb = REQUEST_NONE;
        if (was != ctl->machine.state) {
            ctl->paused_ns = clock_monotonic_ns();
            if (was == ROLLOUT_PAUSED)
                ctl->patience_ns = ctl->evidence_ns = clock_monotonic_ns();
        }
        if (anew)
            controller_judge_anew(ctl);
        if (ctl->machine.state == ROLLOUT_PROMOTED && !ctl->store_failed) {
            struct error err = {0};
            ctl->stages[ctl->machine.stage].end_s = clock_wall_ns() / CONTROLLER_SECOND_NS;
            if (rollout_store_stage(ctl->store, ctl->machine.stage,
                        &ctl->stages[ctl->machine.stage], "passed", &err))
                controller_store_error(ctl, &err);
        }
        return true;
    case ACTION_MOVE:
        return act_begin_move(ctl, step, ret_exit);
    case ACTION_RESTORE:
        act_restore(ctl);
        return true;
    case ACTION_CONFIRM: // only an answer to a move
        ctl->machine = step->next;
        return true;
    default:
        ctl->machine = step->next;
        *ret_exit = (enum exit_code)step->exit_code;
        return false;
    }
}
