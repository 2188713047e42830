// SPDX-License-Identifier: Apache-2.0
// How the controller begins and ends: the store and its lock, the machine as it was stored, the
// first look at the traffic, and what becomes of the traffic where the store cannot be written.
// Main thread.
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/strings.h"
#include "harness/canary/controller/controller_internal.h"

// A rollout begins with all of the traffic at the baseline. Where the candidate has some (it is the
// last rollout's, or the proxy's file says so) and the baseline is down, that would be an outage.
static int begin_way_back(struct controller *ctl, double percent, struct error *err)
{
    struct traffic_arm arms[CANARY_ARMS] = {0};
    bool fresh = ctl->machine.stage < 0 && !ctl->machine.moving && !ctl->options->aborts;
    if (!fresh || !(percent > MACHINE_TOLERANCE) || traffic_look(ctl->traffic, arms, NULL) ||
            arms[CANARY_BASELINE].up)
        return 0;
    return error_set(err, -EHOSTDOWN,
            "the candidate has %.3g %% of the traffic, a rollout begins with all of it at the baseline, and the "
            "baseline is down by the proxy's health check; start it first. Nothing was moved",
            percent);
}

// What is lower was forgotten by a proxy that has begun since the last controller lived, or taken
// away by somebody.
static bool begin_forgot(const struct controller *ctl)
{
    int64_t age_ns = traffic_age_ns(ctl->traffic);
    return age_ns >= 0 && ctl->before_ns > 0 && age_ns <= clock_wall_ns() - ctl->before_ns;
}

int controller_begin(
        struct controller *ctl, double *ret_percent, bool *ret_forgot, struct error *err)
{
    double percent = NAN;
    struct error why = {0};
    if (traffic_get(ctl->traffic, &percent, &why)) {
        percent = NAN;
        ctl->traffic_wrong = true;
        snprintf(ctl->traffic_text, sizeof ctl->traffic_text, "%s", why.text);
        if (ctl->machine.stage < 0)
            return error_set(err, why.code, "%s", why.text);
    }
    int rc = begin_way_back(ctl, percent, err);
    rc = rc ? rc : controller_fold(ctl, err);
    if (rc)
        return rc;
    ctl->wall_offset_ns = clock_wall_ns() - clock_monotonic_ns();
    ctl->patience_ns = ctl->paused_ns = ctl->evidence_ns = ctl->proxy_seen_ns = ctl->looked_ns =
            clock_monotonic_ns();
    if (percent > ctl->machine.percent + MACHINE_TOLERANCE)
        snprintf(ctl->traffic_text, sizeof ctl->traffic_text,
                "the candidate had %.3g %% of the traffic instead of %.3g %%", percent,
                ctl->machine.percent);
    *ret_percent = percent;
    *ret_forgot = begin_forgot(ctl);
    bool goes_on = !ctl->machine.moving && !rollout_state_ended(ctl->machine.state) &&
            percent > MACHINE_TOLERANCE;
    if (goes_on && !*ret_forgot && percent < ctl->machine.percent - MACHINE_TOLERANCE)
        snprintf(ctl->traffic_text, sizeof ctl->traffic_text,
                "while no controller ran, the candidate's share was lowered to %.3g %% "
                "from %.3g %%: it stays; `upgate canary resume` sets the stage's again",
                percent, ctl->machine.percent);
    rc = store_begin(ctl->store, err);
    if (rc == 0)
        rc = rollout_store_alive(ctl->store, true, err);
    return rc ? rc : store_commit(ctl->store, err);
}

void controller_close(struct controller *ctl)
{
    struct error err = {0};
    bool began = ctl->store && !ctl->store_failed;
    if (ctl->shadowing)
        ctl->options->shadow->end(ctl->options->shadow->arg);
    if (began) {
        controller_persist(ctl, true);
        int rc = store_begin(ctl->store, &err);
        rc = rc ? rc : rollout_store_alive(ctl->store, false, &err);
        rc = rc ? rc : store_commit(ctl->store, &err);
        if (rc)
            log_warn("%s", err.text);
    }
    sources_close(ctl->sources);
    traffic_close(ctl->traffic);
    canary_evidence_free(ctl->evidence);
    store_close(ctl->store);
    if (ctl->lock_fd >= 0)
        close(ctl->lock_fd);
    free(ctl->pending);
}

// The store of a rollout that has begun cannot be written: nobody could follow what happens, so the
// candidate gets nothing.
static void controller_fall_back(const struct rollout *rollout, const struct error *why)
{
    struct store *store = NULL;
    struct rollout_row row = {.state = ROLLOUT_RUNNING, .stage = 0};
    struct traffic *traffic = NULL;
    struct error err = {0};
    double percent = 0;
    int rc = store_open(rollout->store, STORE_READ, &store, &err);
    if (rc == 0)
        rc = rollout_store_read(store, &row, &err);
    bool begun = rc == 0 && row.stage >= 0 && row.state != ROLLOUT_PROMOTED;
    if (rc == 0)
        rollout_row_clear(&row);
    store_close(store);
    if (!begun)
        return;
    if (traffic_open(rollout, true, &traffic, &err) || traffic_set(traffic, 0, &percent, &err))
        log_error("%s, and the traffic could not be brought to the baseline, look at it now: %s",
                why->text, err.text);
    else
        log_warn("the store cannot be written: the traffic is at the baseline");
    traffic_close(traffic);
}

// The old store keeps its name with a number behind it.
static int controller_put_aside(const char *path, struct error *err)
{
    for (int i = 1; i < 1000; i++) {
        char *aside = xasprintf("%s.%d", path, i);
        int rc = access(aside, F_OK) == 0 ? -EEXIST : rename(path, aside) ? -errno : 0;
        if (rc == 0)
            log_info("the store of the rollout before is kept as '%s'", aside);
        free(aside);
        if (rc != -EEXIST)
            return rc ? error_set(err, rc, "failed to put '%s' aside: %s", path, strerror(-rc)) : 0;
    }
    return error_set(err, -EEXIST, "'%s.1' to '%s.999' are all there; remove some", path, path);
}

static int controller_open_store(struct controller *ctl, struct error *err)
{
    const char *path = ctl->rollout->store;
    int rc = rollout_store_lock(path, &ctl->lock_fd, err);
    if (rc == 0 && ctl->options->anew && lseek(ctl->lock_fd, 0, SEEK_END) > 0) {
        rc = controller_put_aside(path, err);
        close(ctl->lock_fd);
        ctl->lock_fd = -1;
        if (rc == 0)
            rc = rollout_store_lock(path, &ctl->lock_fd, err);
    }
    if (rc == 0)
        rc = rollout_store_open(path, &ctl->store, err);
    if (rc && rc != -EBUSY && rc != -EINVAL)
        controller_fall_back(ctl->rollout, err);
    return rc;
}

// As this version reads it: a key that an older one did not know has its default in it. New
// reference, NULL: it cannot be read.
static json_t *controller_stored_plan(const char *text)
{
    json_t *stored = json_loads(text, 0, NULL), *plan = NULL;
    struct rollout *rollout;
    if (stored && rollout_from_json(stored, &rollout, NULL) == 0) {
        plan = rollout_to_json(rollout);
        rollout_free(rollout);
    }
    json_decref(stored);
    return plan;
}

static int controller_compare(
        const struct controller *ctl, const struct rollout_row *row, struct error *err)
{
    json_t *old = controller_stored_plan(row->plan), *new = rollout_to_json(ctl->rollout);
    char *changes =
            old ? rollout_changes(old, new) : xstrdup("all of it: what is stored cannot be read");
    int rc = 0;
    char *exposed = row->percent > 0 && !rollout_state_ended(row->state)
            ? xasprintf(
                      ": the candidate has %.3g %% and nobody watches it, `upgate canary abort` brings it back",
                      row->percent)
            : xstrdup("");
    if (*changes)
        rc = error_set(err, -EINVAL,
                "the plan of the rollout '%s' has changed since it began: %.1200s; put it back, or begin anew with --anew (state "
                "now: %s%s)",
                row->name, changes, rollout_state_name(row->state), exposed);
    free(exposed);
    json_decref(old);
    json_decref(new);
    free(changes);
    return rc;
}

// The machine as it was stored: the state, and a decision that was not carried out.
static int controller_restore(struct controller *ctl, struct error *err)
{
    struct rollout_row row;
    struct rollout_decision last;
    int rc = rollout_store_read(ctl->store, &row, err);
    if (rc == -ENOENT) {
        ctl->machine = machine_fresh();
        return rollout_store_new(ctl->store, ctl->rollout, ctl->options->command_line, err);
    }
    if (rc)
        return rc;
    rc = ctl->options->aborts ? 0 : controller_compare(ctl, &row, err);
    if (rc == 0 && row.stage >= ctl->plan.count)
        rc = error_set(err, -EBADMSG, "'%s' is damaged: it is at stage %d of %d",
                ctl->rollout->store, row.stage, ctl->plan.count);
    ctl->machine = (struct machine){.state = row.state,
            .stage = row.stage,
            .percent = isnan(row.percent) ? 0 : row.percent,
            .rule = RULE_RESTART};
    ctl->since_ns = row.since_ns;
    ctl->stage_since_ns = row.stage_since_ns;
    ctl->before_ns = row.heartbeat_ns;
    snprintf(ctl->reason, sizeof ctl->reason, "%s", row.reason);
    rollout_row_clear(&row);
    int found = rc ? rc : rollout_store_last_decision(ctl->store, &last, err);
    if (found)
        return found == -ENOENT ? 0 : found;
    if (last.stage_to >= ctl->plan.count)
        return error_set(err, -EBADMSG, "'%s' is damaged: a decision leads to stage %d of %d",
                ctl->rollout->store, last.stage_to, ctl->plan.count);
    ctl->machine.rule = last.rule;
    ctl->decision = last.id;
    if (last.effect_ns)
        return 0;
    int64_t ago_ns = clock_wall_ns() - last.at_ns;
    ctl->back_ns = clock_monotonic_ns() - (ago_ns > 0 ? ago_ns : 0);
    ctl->machine.moving = true;
    ctl->machine.to = (struct machine_target){.state = last.state_to,
            .stage = last.stage_to,
            .percent = isnan(last.percent_to) ? 0 : last.percent_to,
            .aa = last.stage_to >= 0 && ctl->plan.stages[last.stage_to].aa};
    return 0;
}

// It cannot go on: a candidate that has traffic of a rollout would keep it, with nobody watching.
static int controller_give_up(struct controller *ctl, const struct error *why, struct error *err)
{
    double percent = 0;
    struct error failed = {0};
    bool begun = ctl->machine.stage >= 0 || ctl->machine.moving;
    // that one watches
    if (!begun || rollout_state_ended(ctl->machine.state) || why->code == -EBUSY)
        return error_set(err, why->code, "%s", why->text);
    if ((ctl->traffic || traffic_open(ctl->rollout, true, &ctl->traffic, &failed) == 0) &&
            traffic_set(ctl->traffic, 0, &percent, &failed) == 0)
        return error_set(err, why->code,
                "%s; the traffic is brought to the baseline, for nobody would watch it", why->text);
    return error_set(err, why->code,
            "%s; and the traffic could not be brought to the baseline, look at it now: %s",
            why->text, failed.text);
}

int controller_open(struct controller *ctl, struct error *err)
{
    int rc = controller_open_store(ctl, err);
    if (rc == 0)
        rc = controller_restore(ctl, err);
    if (rc)
        return rc;
    struct error why = {0};
    rc = traffic_open(ctl->rollout, ctl->options->aborts, &ctl->traffic, &why);
    if (rc == 0 && !ctl->options->aborts)
        rc = sources_open(ctl->rollout, &ctl->sources, &why);
    return rc ? controller_give_up(ctl, &why, err) : 0;
}
