// SPDX-License-Identifier: Apache-2.0
// upgate canary status, report, pause, promote, abort, resume: what is asked of a rollout's store
// from outside. Reads it; writes rows of rollout_request, which the controller takes. An abort with
// no controller at work is carried out here.
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/strings.h"
#include "common/units.h"
#include "contracts/exit_code.h"
#include "harness/canary/controller/controller.h"
#include "harness/canary/store/rollout_store.h"
#include "harness/verbs/canary_verbs.h"
#ifdef UPGATE_HAVE_ROLLOUT_VIEW
#include "harness/verbs/program.h"
#include "reports/render/rollout/rollout_view.h"
#endif

#define ASK_POLL_NS 100000000
#define ASK_WATCH_NS 1000000000

// A controller that begins makes the file, locks it, and then fills it.
static bool ask_there(const char *store)
{
    struct stat status;
    return stat(store, &status) == 0 && status.st_size > 0;
}

static int ask_missing(const char *store, struct error *err)
{
    char here[PATH_MAX] = ".";
    if (ask_there(store))
        return 0;
    if (store[0] == '/' || !getcwd(here, sizeof here))
        return error_set(err, -EINVAL,
                "'%s' is not there: the rollout has not begun; `upgate canary run` begins it",
                store);
    return error_set(err, -EINVAL,
            "'%s' is not in '%s': the rollout was begun in another directory (go there, or name its store instead of "
            "the plan), or not at all",
            store, here);
}

static int ask_row(const char *path, struct rollout_row *ret_row, struct error *err)
{
    struct store *store = NULL;
    int rc = store_open(path, STORE_READ, &store, err);
    if (rc == 0)
        rc = rollout_store_read(store, ret_row, err);
    store_close(store);
    return rc == -ENOENT ? error_set(err, -EINVAL, "'%s' has no rollout in it", path) : rc;
}

// --- status and report ---------------------------------------------------------------------------

#ifdef UPGATE_HAVE_ROLLOUT_VIEW
static int ask_show(
        const char *store, const struct canary_values *values, bool *ret_ended, struct error *err)
{
    struct rollout_view *view = NULL;
    int rc = rollout_view_load(store, &view, err);
    if (rc)
        return rc;
    bool json = strcmp(values->common.format, "json") == 0;
    bool colour = isatty(STDOUT_FILENO) && !values->common.no_color && !getenv("NO_COLOR");
    json_t *document = rollout_view_json(view);
    const char *state = json_string_value(json_object_get(document, "state"));
    int known = state ? rollout_state_by_name(state) : -1;
    *ret_ended = known >= 0 && rollout_state_ended((enum rollout_state)known);
    if (json) {
        json_dumpf(document, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
        putchar('\n');
    } else {
        rollout_view_status(view, stdout, colour);
    }
    json_decref(document);
    rollout_view_free(view);
    return 0;
}

int canary_verb_report(const char *path, const struct canary_values *values)
{
    char *store = NULL;
    struct error err = {0};
    struct rollout_view *view = NULL;
    int rc = canary_store_of(path, &store, NULL, &err);
    if (rc == 0)
        rc = ask_missing(store, &err);
    if (rc == 0)
        rc = rollout_view_load(store, &view, &err);
    if (rc == 0 && !values->common.output && !values->common.dry_run) {
        bool ended = false;
        rc = ask_show(store, values, &ended, &err);
    } else if (rc == 0 && values->common.output && !values->common.dry_run) {
        rc = rollout_view_write(view, values->common.output, &err);
    } else if (rc == 0) {
        log_info("would report '%s' to %s", store,
                values->common.output ? values->common.output : "stdout");
    }
    rollout_view_free(view);
    free(store);
    return program_judge(rc, EXIT_CODE_PASS, &err);
}
#else
// Without the room of reports: the row itself.
static int ask_show(
        const char *store, const struct canary_values *values, bool *ret_ended, struct error *err)
{
    struct rollout_row row;
    int rc = ask_row(store, &row, err);
    if (rc)
        return rc;
    if (strcmp(values->common.format, "json") == 0) {
        rollout_row_clear(&row);
        return error_set(
                err, -ENOTSUP, "this upgate was built without reports of rollouts: JSON is theirs");
    }
    printf("%s: %s, %.3g %% of the traffic, %s\n", row.name, rollout_state_name(row.state),
            isnan(row.percent) ? 0 : row.percent, row.reason);
    *ret_ended = rollout_state_ended(row.state);
    rollout_row_clear(&row);
    return 0;
}

int canary_verb_report(const char *path, const struct canary_values *values)
{
    struct error err = {0};
    (void)path;
    (void)values;
    return program_judge(
            error_set(&err, -ENOTSUP, "this upgate was built without reports of rollouts"),
            EXIT_CODE_PASS, &err);
}
#endif

int canary_verb_status(const char *path, const struct canary_values *values)
{
    char *store = NULL;
    struct error err = {0};
    bool ended = false;
    int rc = canary_store_of(path, &store, NULL, &err);
    bool watches = rc == 0 && values->watch && !values->common.dry_run;
    if (watches && !ask_there(store))
        log_info("'%s' is not there yet: waiting for `upgate canary run`", store);
    while (watches && !ask_there(store))
        clock_sleep_until_ns(clock_monotonic_ns() + ASK_POLL_NS);
    if (rc == 0)
        rc = ask_missing(store, &err);
    if (rc == 0 && values->common.dry_run)
        log_info("would show '%s'", store);
    bool screen =
            values->watch && isatty(STDOUT_FILENO) && strcmp(values->common.format, "json") != 0;
    while (rc == 0 && !values->common.dry_run) {
        if (screen)
            fputs("\x1b[H\x1b[J", stdout);
        int64_t begin = clock_monotonic_ns();
        rc = ask_show(store, values, &ended, &err);
        fflush(stdout);
        if (!values->watch || ended || ferror(stdout))
            break;
        // A rollout of two days takes 0.6 s to read: a tenth of a core at most is spent on looking.
        int64_t now = clock_monotonic_ns(), rest = 10 * (now - begin);
        clock_sleep_until_ns(now + (rest > ASK_WATCH_NS ? rest : ASK_WATCH_NS));
    }
    free(store);
    return program_judge(rc, EXIT_CODE_PASS, &err);
}

// --- requests ------------------------------------------------------------------------------------

enum ask_state { ASK_UNHEARD, ASK_MOVES, ASK_DONE };

// Heard is a request when its decision is stored, which is before the traffic moves. Of a rollout
// that has ended nothing moves any more, also where it could not be moved, and an abort that came
// too late for it is heard by nobody.
static int ask_state(
        struct store *store, enum rollout_verb asked, enum ask_state *ret, struct error *err)
{
    struct rollout_row row = {0};
    int64_t unheard = 0, moves = 0;
    int rc = store_get_int(store, &unheard, err,
            "SELECT count(*) FROM rollout_request WHERE taken_ns IS NULL", "");
    if (rc == 0)
        rc = store_get_int(store, &moves, err,
                "SELECT count(*) FROM rollout_decision WHERE id = (SELECT max(id) FROM rollout_decision) AND effect_ns IS NULL",
                "");
    if (rc == 0)
        rc = rollout_store_read(store, &row, err);
    bool ended = rc == 0 && rollout_state_ended(row.state);
    if (rc == 0)
        *ret = unheard && !(ended && asked == REQUEST_ABORT) ? ASK_UNHEARD
                : moves && !ended                            ? ASK_MOVES
                                                             : ASK_DONE;
    rollout_row_clear(&row);
    return rc;
}

// Until the controller has done all that it was asked for; `limit_ns` at most.
static int ask_wait(const char *path, enum rollout_verb asked, int64_t limit_ns, struct error *err)
{
    int64_t end = clock_monotonic_ns() + limit_ns;
    enum ask_state state = ASK_UNHEARD;
    for (;;) {
        struct store *store = NULL;
        int rc = store_open(path, STORE_READ, &store, err);
        if (rc == 0)
            rc = ask_state(store, asked, &state, err);
        store_close(store);
        if (rc || state == ASK_DONE)
            return rc;
        if (clock_monotonic_ns() > end)
            break;
        clock_sleep_until_ns(clock_monotonic_ns() + ASK_POLL_NS);
    }
    char span[32];
    unit_format_ns(span, sizeof span, (double)limit_ns);
    if (state == ASK_MOVES)
        return error_set(err, -ETIMEDOUT,
                "the controller of '%s' has heard of it, and has not moved the traffic within %s; it goes on trying: see "
                "`upgate canary status`",
                path, span);
    return error_set(err, -ETIMEDOUT,
            "the controller of '%s' has not heard of it within %s; is it stuck? it is asked nevertheless",
            path, span);
}

// With the plan as it was stored: whatever became of the file, there is a way back.
static int ask_abort_here(const char *path, enum exit_code *ret_exit, struct error *err)
{
    struct rollout_row row;
    struct rollout *rollout = NULL;
    int rc = ask_row(path, &row, err);
    if (rc)
        return rc;
    json_t *json = json_loads(row.plan, 0, NULL),
           *command = json_pack("[s,s,s]", "upgate", "canary", "abort");
    rc = rollout_from_json(json, &rollout, err);
    if (rc == 0) {
        free(rollout->store); // the plan's may be relative to another directory
        rollout->store = xstrdup(path);
        char *who = canary_who();
        struct controller_options options = {.rollout = rollout,
                .who = who,
                .command_line = command,
                .aborts = true,
                .wait_ns = 0};
        log_info("no controller is at work: the abort is carried out here");
        rc = controller_run(&options, ret_exit, err);
        free(who);
    }
    rollout_free(rollout);
    json_decref(json);
    json_decref(command);
    rollout_row_clear(&row);
    return rc;
}

// It has failed, and the traffic is not back: nobody else will bring it.
static bool ask_left(const char *path)
{
    struct rollout_row row = {0};
    // false for NaN
    bool left = ask_row(path, &row, NULL) == 0 && row.state == ROLLOUT_FAILED &&
            row.percent > MACHINE_TOLERANCE;
    rollout_row_clear(&row);
    return left;
}

// What has come of it. An abort is done where the candidate has nothing any more, whatever the
// rollout has ended as.
static int ask_end(const char *path, bool aborts, struct error *err)
{
    struct rollout_row row;
    int rc = ask_row(path, &row, err);
    if (rc)
        return rc;
    double percent = isnan(row.percent) ? 0 : row.percent;
    if (aborts && percent > MACHINE_TOLERANCE)
        rc = error_set(err, -EIO,
                "'%s' is %s and the candidate has %.3g %% of the traffic, look at it now: %s",
                row.name, rollout_state_name(row.state), percent, row.reason);
    else
        log_info("'%s' is %s, the candidate has %.3g %% of the traffic", row.name,
                rollout_state_name(row.state), percent);
    rollout_row_clear(&row);
    return rc;
}

int canary_verb_ask(const char *path, const char *verb, const struct canary_values *values)
{
    char *store = NULL, *who = canary_who();
    struct error err = {0};
    enum exit_code code = EXIT_CODE_INCONCLUSIVE;
    enum rollout_verb asked = (enum rollout_verb)rollout_verb_by_name(verb);
    int rc = canary_store_of(path, &store, NULL, &err);
    if (rc == 0)
        rc = ask_missing(store, &err);
    bool held = rc == 0 && rollout_store_is_held(store);
    if (rc == 0 && values->common.dry_run) {
        log_info("would ask the rollout in '%s' for %s; %s", store, verb,
                held ? "its controller is at work" : "no controller is at work");
        free(store);
        free(who);
        return EXIT_CODE_PASS;
    }
    bool left = rc == 0 && !held && asked == REQUEST_ABORT && ask_left(store);
    if (rc == 0 && !left)
        rc = rollout_store_request(store, asked, who, values->reason, &err);
    if (rc == 0 && held)
        rc = ask_wait(store, asked, values->taken_ns, &err);
    else if (rc == 0 && asked == REQUEST_ABORT)
        rc = ask_abort_here(store, &code, &err);
    else if (rc == 0)
        log_warn(
                "no controller is at work: '%s' is heard when `upgate canary run` is started again",
                verb);
    if (rc == 0 && code == EXIT_CODE_OPERATIONAL && !left) // one that had failed stays so
        rc = error_set(&err, -EIO, "the traffic could not be brought to the baseline");
    if (rc == 0)
        rc = ask_end(store, asked == REQUEST_ABORT, &err);
    free(store);
    free(who);
    return program_judge(rc, EXIT_CODE_PASS, &err);
}
