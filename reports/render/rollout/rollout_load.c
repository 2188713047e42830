// SPDX-License-Identifier: Apache-2.0
// Reads a rollout's store into struct rollout_view, in one read transaction; counts and evidence:
// rollout_series.c. A value that no controller writes is an error: a status or report made of it
// would be believed.
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/containers/vector.h"
#include "common/strings.h"
#include "reports/render/rollout/rollout_data.h"
#include "reports/render/rollout/rollout_words.h"

static const int64_t load_stage_max = 1000, load_at_max_s = INT64_C(1) << 33; // the year 2242

char *rollout_keep(struct rollout_view *view, char *text)
{
    vector_push(view->texts, view->text_count, text);
    return text;
}

int rollout_refuse(const struct rollout_view *view, struct error *err, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    char *what = xvasprintf(fmt, args);
    va_end(args);
    string_make_plain(what, strlen(what)); // it quotes what is wrong
    int rc = error_set(err, -EBADMSG,
            "failed to read the rollout in '%s': %s; the store is damaged, or was not written by upgate",
            view->path, what);
    free(what);
    return rc;
}

double rollout_column_double(sqlite3_stmt *stmt, int column)
{
    double value = store_double(stmt, column);
    return isfinite(value) ? value : NAN;
}

static char *load_text(struct rollout_view *view, sqlite3_stmt *stmt, int column) // NULL: NULL
{
    const char *text = (const char *)sqlite3_column_text(stmt, column);
    return text ? rollout_keep(view, xstrdup(text)) : NULL;
}

static char *load_need(struct rollout_view *view, sqlite3_stmt *stmt, int column)
{
    return rollout_keep(view, xstrdup(store_text(view->store, stmt, column)));
}

static bool load_percent_bad(double percent)
{
    return percent < 0 || percent > 100; // NAN is not known, and fine
}

typedef int (*load_row_fn)(struct rollout_view *view, sqlite3_stmt *stmt, struct error *err);

static int load_rows(struct rollout_view *view, const char *sql, load_row_fn row, struct error *err)
{
    sqlite3_stmt *stmt = store_query(view->store, err, sql, "");
    int rc = stmt ? 1 : err->code;
    while (rc > 0 && (rc = store_step(view->store, stmt, err)) > 0) {
        int refused = row(view, stmt, err);
        if (refused) {
            sqlite3_reset(stmt);
            return refused;
        }
    }
    return rc;
}

static int load_head(struct rollout_view *view, sqlite3_stmt *stmt, struct error *err)
{
    const char *state = store_text(view->store, stmt, 2);
    int known = rollout_state_by_word(state);
    if (known < 0)
        return rollout_refuse(view, err, "its state is '%.60s'", state);
    view->name = load_need(view, stmt, 0);
    json_error_t at;
    view->plan = json_loads(store_text(view->store, stmt, 1), 0, &at);
    if (!json_is_object(view->plan))
        return rollout_refuse(
                view, err, "its plan is no JSON object: %s", view->plan ? "another type" : at.text);
    view->state = (enum rollout_state)known;
    view->stage = store_int64(stmt, 3, -1);
    view->percent = rollout_column_double(stmt, 4);
    view->since_ns = store_int64(stmt, 5, -1);
    view->stage_since_ns = store_int64(stmt, 6, -1);
    view->reason = load_need(view, stmt, 7);
    view->heartbeat_ns = store_int64(stmt, 8, -1);
    view->pid = store_int64(stmt, 9, -1);
    for (int arm = 0; arm < CANARY_ARMS; arm++)
        view->up[arm] = sqlite3_column_type(stmt, 10 + arm) == SQLITE_NULL
                ? -1
                : sqlite3_column_int64(stmt, 10 + arm) != 0;
    if (view->stage < -1 || view->stage > load_stage_max)
        return rollout_refuse(view, err, "its stage is %lld", (long long)view->stage);
    if (load_percent_bad(view->percent))
        return rollout_refuse(view, err, "its share of the traffic is %g %%", view->percent);
    if (view->since_ns < 0 || view->heartbeat_ns < 0)
        return rollout_refuse(view, err,
                "its state began at %lld ns, and its controller wrote at %lld ns",
                (long long)view->since_ns, (long long)view->heartbeat_ns);
    return 0;
}

// What the plan says of a stage beside what the row says.
static void load_stage_plan(const struct rollout_view *view, struct rollout_view_stage *stage)
{
    const json_t *plan =
            json_array_get(json_object_get(view->plan, "stages"), (size_t)stage->number);
    const json_t *soak = json_object_get(plan, "soak_ns"),
                 *requests = json_object_get(plan, "requests");
    stage->aa = json_is_true(json_object_get(plan, "aa"));
    stage->shadow = json_number_value(json_object_get(plan, "mirror")) > 0;
    stage->soak_ns = json_is_integer(soak) ? json_integer_value(soak) : -1;
    stage->requests = json_is_integer(requests) ? json_integer_value(requests) : -1;
}

static int load_stage(struct rollout_view *view, sqlite3_stmt *stmt, struct error *err)
{
    struct rollout_view_stage stage = {.number = store_int64(stmt, 0, -1),
            .percent = rollout_column_double(stmt, 2),
            .begin_s = store_int64(stmt, 3, -1),
            .judged_from_s = store_int64(stmt, 4, -1),
            .end_s = store_int64(stmt, 5, -1)};
    if (stage.number < 0 || stage.number > load_stage_max)
        return rollout_refuse(view, err, "a stage has number %lld", (long long)stage.number);
    if (load_percent_bad(stage.percent) || isnan(stage.percent))
        return rollout_refuse(view, err, "stage %lld has %g %% of the traffic",
                (long long)stage.number, stage.percent);
    if (stage.begin_s > load_at_max_s || stage.judged_from_s > load_at_max_s ||
            stage.end_s > load_at_max_s)
        return rollout_refuse(view, err, "stage %lld begins at %lld s and ends at %lld s",
                (long long)stage.number, (long long)stage.begin_s, (long long)stage.end_s);
    stage.name = load_need(view, stmt, 1);
    stage.result = load_text(view, stmt, 6);
    load_stage_plan(view, &stage);
    vector_push(view->stages, view->stage_count, stage);
    return 0;
}

static int load_decision(struct rollout_view *view, sqlite3_stmt *stmt, struct error *err)
{
    struct rollout_decision decision = {.at_ns = store_int64(stmt, 0, -1),
            .state_from = load_need(view, stmt, 1),
            .state_to = load_need(view, stmt, 2),
            .stage_from = store_int64(stmt, 3, -1),
            .stage_to = store_int64(stmt, 4, -1),
            .percent_from = rollout_column_double(stmt, 5),
            .percent_to = rollout_column_double(stmt, 6)};
    if (rollout_state_by_word(decision.state_to) < 0)
        return rollout_refuse(
                view, err, "a decision leads to the state '%.60s'", decision.state_to);
    if (load_percent_bad(decision.percent_from) || load_percent_bad(decision.percent_to) ||
            decision.at_ns < 0)
        return rollout_refuse(view, err,
                "a decision at %lld ns moves the traffic from %g %% to %g %%",
                (long long)decision.at_ns, decision.percent_from, decision.percent_to);
    decision.rule = load_need(view, stmt, 7);
    decision.reason = load_need(view, stmt, 8);
    decision.who = load_need(view, stmt, 9);
    decision.evidence = load_text(view, stmt, 10);
    decision.effect_ns = store_int64(stmt, 11, -1);
    vector_push(view->decisions, view->decision_count, decision);
    return 0;
}

static int load_source(struct rollout_view *view, sqlite3_stmt *stmt, struct error *err)
{
    (void)err;
    vector_push(view->sources, view->source_count,
            (struct rollout_view_source){.kind = load_need(view, stmt, 0),
                    .seen = store_int64(stmt, 1, -1),
                    .kept = store_int64(stmt, 2, -1),
                    .dropped = store_int64(stmt, 3, -1),
                    .lost = store_int64(stmt, 4, -1),
                    .late = store_int64(stmt, 5, -1),
                    .last_ns = store_int64(stmt, 6, -1),
                    .problem = load_text(view, stmt, 7)});
    return 0;
}

static int load_recording(struct rollout_view *view, sqlite3_stmt *stmt, struct error *err)
{
    struct rollout_recording_row row = {.arm = store_int64(stmt, 0, -1),
            .path = load_text(view, stmt, 1),
            .begin_ns = store_int64(stmt, 2, -1),
            .end_ns = store_int64(stmt, 3, -1),
            .problem = load_text(view, stmt, 4)};
    if (row.arm < 0 || row.arm >= CANARY_ARMS)
        return rollout_refuse(view, err, "a recording is of arm %lld", (long long)row.arm);
    vector_push(view->recordings, view->recording_count, row);
    return 0;
}

static int load_recording_requests(struct rollout_view *view, struct error *err)
{
    int rc = 0;
    for (size_t i = 0; i < view->recording_count && (rc == 0 || rc == -ENOENT); i++) {
        struct rollout_recording_row *row = &view->recordings[i];
        row->requests = -1;
        if (row->begin_ns >= 0 && row->end_ns > row->begin_ns)
            rc = store_get_int(view->store, &row->requests, err,
                    "SELECT sum(requests) FROM rollout_second WHERE arm = ? AND at_s >= ? AND at_s < ?",
                    "iii", row->arm, row->begin_ns / 1000000000, row->end_ns / 1000000000);
    }
    return rc == -ENOENT ? 0 : rc;
}

static int load_example(struct rollout_view *view, sqlite3_stmt *stmt, struct error *err)
{
    (void)err;
    vector_push(view->examples, view->example_count,
            (struct rollout_example){.at_ns = store_int64(stmt, 0, -1),
                    .request = load_text(view, stmt, 1),
                    .equal = sqlite3_column_int64(stmt, 2) != 0,
                    .distance = rollout_column_double(stmt, 3),
                    .baseline = load_text(view, stmt, 4),
                    .candidate = load_text(view, stmt, 5)});
    return 0;
}

static int load_left(struct rollout_view *view, const char *sql, int64_t shown, int64_t *ret_left,
        struct error *err)
{
    int64_t count = 0;
    int rc = store_get_int(view->store, &count, err, sql, "");
    *ret_left = count - shown;
    return rc;
}

static int load_all(struct rollout_view *view, struct error *err)
{
    int rc = load_rows(view,
            "SELECT name, plan, state, stage, percent, since_ns, stage_since_ns, reason, heartbeat_ns, pid, up_baseline, up_candidate"
            " FROM rollout WHERE id = 1",
            load_head, err);
    if (rc == 0 && !view->name)
        return error_set(err, -EINVAL,
                "'%s' holds no rollout: `upgate canary run ROLLOUT.yaml` makes one", view->path);
    if (rc == 0)
        rc = load_rows(view,
                "SELECT number, name, percent, begin_s, judged_from_s, end_s, result FROM rollout_stage ORDER BY number",
                load_stage, err);
    if (rc == 0)
        rc = rollout_load_seconds(view, err);
    if (rc == 0)
        rc = rollout_load_cells(view, err);
    // The newest 1000, oldest of them first.
    if (rc == 0)
        rc = load_rows(view,
                "SELECT at_ns, state_from, state_to, stage_from, stage_to, percent_from, percent_to, rule, reason, who, evidence, effect_ns FROM"
                " (SELECT * FROM rollout_decision ORDER BY id DESC LIMIT 1000) ORDER BY id",
                load_decision, err);
    if (rc == 0)
        rc = load_left(view, "SELECT count(*) FROM rollout_decision", (int64_t)view->decision_count,
                &view->decisions_left, err);
    if (rc == 0)
        rc = load_rows(view,
                "SELECT kind, seen, kept, dropped, lost, late, last_ns, problem FROM rollout_source ORDER BY number",
                load_source, err);
    if (rc == 0)
        rc = load_rows(view,
                "SELECT arm, path, begin_ns, end_ns, problem FROM rollout_recording ORDER BY arm",
                load_recording, err);
    if (rc == 0)
        rc = load_recording_requests(view, err);
    // The worst 20 answers that differ; no distance (another status, not JSON) is worse than any.
    if (rc == 0)
        rc = load_rows(view,
                "SELECT at_ns, request, equal, distance, baseline, candidate FROM rollout_shadow WHERE NOT equal"
                " ORDER BY distance IS NULL DESC, distance DESC, id LIMIT 20",
                load_example, err);
    if (rc == 0)
        rc = load_left(view, "SELECT count(*) FROM rollout_shadow WHERE NOT equal",
                (int64_t)view->example_count, &view->examples_left, err);
    return rc ? rc : store_failed(view->store, err);
}

int rollout_view_load(const char *store_path, struct rollout_view **ret_view, struct error *err)
{
    struct rollout_view *view = xcalloc(1, sizeof *view);
    struct error local = {0};
    view->path = rollout_keep(view, xstrdup(store_path));
    view->stage = -1;
    view->read_ns = clock_wall_ns();
    int rc = store_open(store_path, STORE_READ, &view->store, &local);
    if (rc == 0)
        rc = store_exec(view->store, &local, "BEGIN DEFERRED", "");
    if (rc == 0) {
        rc = load_all(view, &local);
        store_rollback(view->store);
    }
    store_close(view->store);
    view->store = NULL;
    if (rc) {
        rollout_view_free(view);
        return error_set(err, rc, "%s", local.text);
    }
    *ret_view = view;
    return 0;
}

void rollout_view_free(struct rollout_view *view)
{
    if (!view)
        return;
    for (size_t i = 0; i < view->series_count; i++)
        free(view->series[i].points);
    for (size_t i = 0; i < view->text_count; i++)
        free(view->texts[i]);
    json_decref(view->plan);
    free(view->series);
    free(view->stages);
    free(view->buckets);
    free(view->decisions);
    free(view->sources);
    free(view->recordings);
    free(view->examples);
    free(view->texts);
    free(view);
}

const struct rollout_view_stage *rollout_view_stage(const struct rollout_view *view, int64_t number)
{
    for (size_t i = 0; i < view->stage_count; i++)
        if (view->stages[i].number == number)
            return &view->stages[i];
    return NULL;
}
