// SPDX-License-Identifier: Apache-2.0
// Rows of a rollout: the store's file and its lock, state, stages, decisions. Evidence:
// rollout_evidence.c; requests of other processes: rollout_request.c. One owner thread.
#include "harness/canary/store/rollout_store.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/proc.h"
#include "common/strings.h"

enum { ROLLOUT_STORE_BUSY_MS = 100, ROLLOUT_LOCK_TRIES = 8, ROLLOUT_NO_STAGE = -2 };

// --- the file ------------------------------------------------------------------------------------

static int rollout_store_held(const char *path, struct error *err)
{
    struct store *store = NULL;
    int64_t pid = 0;
    if (store_open(path, STORE_READ, &store, NULL) == 0)
        (void)store_get_int(store, &pid, NULL, "SELECT pid FROM rollout", "");
    store_close(store);
    if (pid > 0)
        return error_set(err, -EBUSY,
                "'%s' is held by another controller, process %" PRId64
                "; end it first, or use `upgate canary status`",
                path, pid);
    return error_set(err, -EBUSY,
            "'%s' is held by another controller; end it first, or use `upgate canary status`",
            path);
}

int rollout_store_lock(const char *path, int *ret_fd, struct error *err)
{
    for (int i = 0; i < ROLLOUT_LOCK_TRIES; i++) {
        struct stat held, named;
        int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (fd < 0)
            return error_set(err, -errno, "failed to open the rollout's store '%s': %s", path,
                    strerror(errno));
        if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
            int code = errno;
            // The descriptor goes first: closing it later would drop SQLite's locks.
            close(fd);
            return code == EWOULDBLOCK
                    ? rollout_store_held(path, err)
                    : error_set(err, -code, "failed to lock '%s': %s", path, strerror(code));
        }
        // Somebody may have put another file there while we waited: what is locked must be what is
        // opened.
        if (fstat(fd, &held) == 0 && stat(path, &named) == 0 && held.st_ino == named.st_ino &&
                held.st_dev == named.st_dev) {
            *ret_fd = fd;
            return 0;
        }
        close(fd);
    }
    return error_set(err, -EBUSY, "'%s' is being replaced again and again; who does that?", path);
}

bool rollout_store_is_held(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool held = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK;
    if (fd >= 0)
        close(fd);
    return held;
}

int rollout_store_open(const char *path, struct store **ret_store, struct error *err)
{
    struct stat info;
    bool empty = stat(path, &info) == 0 && info.st_size == 0;
    int rc = store_open(path, empty ? STORE_CREATE : STORE_WRITE, ret_store, err);
    if (rc == 0)
        sqlite3_busy_timeout(store_db(*ret_store), ROLLOUT_STORE_BUSY_MS);
    return rc;
}

// --- rows ----------------------------------------------------------------------------------------

static int64_t rollout_ticks(void)
{
    struct proc_stat stat;
    return proc_stat_of(getpid(), &stat) == 0 ? (int64_t)stat.start_ticks : 0;
}

static int rollout_store_new_run(struct store *store, const struct rollout *rollout,
        const char *plan, const json_t *command_line, struct error *err)
{
    struct utsname machine = {0};
    uname(&machine);
    char *uuid = string_read_file("/proc/sys/kernel/random/uuid", 36, NULL),
         *command = json_dumps(command_line, JSON_COMPACT);
    json_t *host = json_pack("{s:s,s:s}", "kernel", machine.release, "machine", machine.machine);
    char *text = json_dumps(host, JSON_COMPACT);
    int rc = store_exec(store, err,
            "INSERT INTO run (id, uuid, kind, state, upgate_version, started_wall_ns, seed, plan, plan_path, command_line, "
            "host, host_key, writer_pid, writer_start) VALUES (1, ?, 'rollout', 'running', ?, ?, 0, ?, ?, ?, ?, '', ?, ?)",
            "ssissssii", uuid ? uuid : "", UPGATE_VERSION, clock_wall_ns(), plan, rollout->path,
            command ? command : "[]", text ? text : "{}", (int64_t)getpid(), rollout_ticks());
    json_decref(host);
    free(text);
    free(uuid);
    free(command);
    return rc;
}

int rollout_store_new(struct store *store, const struct rollout *rollout,
        const json_t *command_line, struct error *err)
{
    json_t *json = rollout_to_json(rollout);
    char *plan = json_dumps(json, JSON_COMPACT);
    int64_t now = clock_wall_ns();
    json_decref(json);
    if (!plan)
        return error_set(err, -EINVAL, "the rollout plan has text that is no UTF-8");
    int64_t runs = 0;
    int rc = store_begin(store, err);
    if (rc == 0)
        rc = store_get_int(store, &runs, err, "SELECT count(*) FROM run", "");
    if (rc == 0 && runs)
        rc = error_set(err, -EINVAL,
                "'%s' is the store of another run of upgate; name another one with `store:`",
                store_path(store));
    if (rc == 0)
        rc = rollout_store_new_run(store, rollout, plan, command_line, err);
    if (rc == 0)
        rc = store_exec(store, err,
                "INSERT INTO rollout (id, name, plan, state, percent, since_ns, reason, heartbeat_ns, pid) "
                "VALUES (1, ?, ?, 'waiting', NULL, ?, 'not begun', ?, ?)",
                "ssiii", rollout->name, plan, now, now, (int64_t)getpid());
    for (int i = 0; i < rollout->stage_count && rc == 0; i++)
        rc = store_exec(store, err,
                "INSERT INTO rollout_stage (number, name, percent) VALUES (?, ?, ?)", "isd",
                (int64_t)i, rollout->stages[i].name, rollout->stages[i].percent);
    for (int i = 0; i < rollout->source_count && rc == 0; i++)
        rc = store_exec(store, err, "INSERT INTO rollout_source (number, kind) VALUES (?, ?)", "is",
                (int64_t)i, rollout_source_kind_name(rollout->sources[i].kind));
    rc = rc ? rc : store_commit(store, err);
    if (rc)
        store_rollback(store);
    free(plan);
    return rc;
}

static double rollout_column_real(sqlite3_stmt *stmt, int column)
{
    return sqlite3_column_type(stmt, column) == SQLITE_NULL ? NAN
                                                            : sqlite3_column_double(stmt, column);
}

// -1: none. ROLLOUT_NO_STAGE: what no plan has.
static int rollout_column_stage(sqlite3_stmt *stmt, int column)
{
    int64_t stage = sqlite3_column_int64(stmt, column);
    if (sqlite3_column_type(stmt, column) == SQLITE_NULL)
        return -1;
    return stage >= 0 && stage < MACHINE_STAGES_MAX ? (int)stage : ROLLOUT_NO_STAGE;
}

int rollout_store_read(struct store *store, struct rollout_row *ret_row, struct error *err)
{
    sqlite3_stmt *stmt = store_query(store, err,
            "SELECT name, plan, state, stage, percent, since_ns, stage_since_ns, reason, heartbeat_ns, pid, "
            "up_baseline, up_candidate FROM rollout",
            "");
    int rc = stmt ? store_step(store, stmt, err) : -EIO;
    if (rc == 0)
        return error_set(err, -ENOENT, "'%s' has no rollout in it", store_path(store));
    if (rc < 0)
        return rc;
    struct rollout_row row = {.name = xstrdup(store_text(store, stmt, 0)),
            .plan = xstrdup(store_text(store, stmt, 1)),
            .reason = xstrdup(store_text(store, stmt, 7)),
            .stage = rollout_column_stage(stmt, 3),
            .percent = rollout_column_real(stmt, 4),
            .since_ns = sqlite3_column_int64(stmt, 5),
            .stage_since_ns = sqlite3_column_int64(stmt, 6),
            .heartbeat_ns = sqlite3_column_int64(stmt, 8),
            .pid = sqlite3_column_int64(stmt, 9),
            .up = {(int)store_int64(stmt, 10, -1), (int)store_int64(stmt, 11, -1)}};
    int state = rollout_state_by_name(store_text(store, stmt, 2));
    rc = store_step(store, stmt, err);
    if (rc == 0 && state < 0)
        rc = error_set(err, -EBADMSG,
                "'%s': the state of its rollout is none that this upgate knows", store_path(store));
    if (rc == 0 && (row.stage == ROLLOUT_NO_STAGE || isinf(row.percent)))
        rc = error_set(err, -EBADMSG, "'%s' is damaged: its rollout is at no stage, or at no share",
                store_path(store));
    if (rc) {
        rollout_row_clear(&row);
        return rc < 0 ? rc
                      : error_set(err, -EBADMSG, "'%s' has two rollouts in it", store_path(store));
    }
    row.state = (enum rollout_state)state;
    *ret_row = row;
    return 0;
}

void rollout_row_clear(struct rollout_row *row)
{
    free(row->name);
    free(row->plan);
    free(row->reason);
    *row = (struct rollout_row){0};
}

int rollout_store_write(struct store *store, const struct rollout_row *row, struct error *err)
{
    int64_t stage = row->stage, up[CANARY_ARMS] = {row->up[0], row->up[1]},
            stage_since = row->stage_since_ns;
    return store_exec(store, err,
            "UPDATE rollout SET state = ?, stage = ?, percent = ?, since_ns = ?, stage_since_ns = ?, reason = ?, "
            "heartbeat_ns = ?, up_baseline = ?, up_candidate = ?",
            "sIdiIsiII", rollout_state_name(row->state), stage < 0 ? NULL : &stage, row->percent,
            row->since_ns, stage_since ? &stage_since : NULL, row->reason ? row->reason : "",
            row->heartbeat_ns, up[0] < 0 ? NULL : &up[0], up[1] < 0 ? NULL : &up[1]);
}

int rollout_store_alive(struct store *store, bool alive, struct error *err)
{
    int64_t pid = getpid(), start = rollout_ticks(), now = clock_wall_ns();
    int rc = store_exec(store, err, "UPDATE rollout SET pid = ?, heartbeat_ns = ?", "Ii",
            alive ? &pid : NULL, now);
    if (rc)
        return rc;
    return store_exec(store, err,
            "UPDATE run SET state = CASE WHEN ? THEN 'running' WHEN (SELECT state FROM rollout) IN ('waiting', 'running', "
            "'paused') THEN 'interrupted' ELSE 'done' END, ended_wall_ns = ?, writer_pid = ?, writer_start = ?",
            "iIII", (int64_t)alive, alive ? NULL : &now, alive ? &pid : NULL,
            alive ? &start : NULL);
}

int rollout_store_stage(struct store *store, int stage, const struct rollout_stage_row *row,
        const char *result, struct error *err)
{
    return store_exec(store, err,
            "UPDATE rollout_stage SET begin_s = ?, judged_from_s = ?, end_s = ?, result = ?, lost = ? WHERE number = ?",
            "IIIsii", row->begin_s ? &row->begin_s : NULL,
            row->judged_from_s ? &row->judged_from_s : NULL, row->end_s ? &row->end_s : NULL,
            result, row->lost, (int64_t)stage);
}

int rollout_store_read_stage(
        struct store *store, int stage, struct rollout_stage_row *ret_row, struct error *err)
{
    sqlite3_stmt *stmt = store_query(store, err,
            "SELECT begin_s, judged_from_s, end_s, lost FROM rollout_stage WHERE number = ?", "i",
            (int64_t)stage);
    int rc = stmt ? store_step(store, stmt, err) : -EIO;
    if (rc == 0)
        return error_set(err, -EBADMSG, "'%s' lacks the row of stage %d", store_path(store), stage);
    if (rc < 0)
        return rc;
    *ret_row = (struct rollout_stage_row){.begin_s = sqlite3_column_int64(stmt, 0),
            .judged_from_s = sqlite3_column_int64(stmt, 1),
            .end_s = sqlite3_column_int64(stmt, 2),
            .lost = sqlite3_column_int64(stmt, 3)};
    return store_step_end(store, stmt, err);
}

// --- decisions -----------------------------------------------------------------------------------

int rollout_store_decide(struct store *store, struct rollout_decision *decision, struct error *err)
{
    int64_t from = decision->stage_from, to = decision->stage_to;
    return store_insert(store, &decision->id, err,
            "INSERT INTO rollout_decision (at_ns, state_from, state_to, stage_from, stage_to, percent_from, percent_to, "
            "rule, reason, who, evidence, effect_ns) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            "issIIddssssI", decision->at_ns, rollout_state_name(decision->state_from),
            rollout_state_name(decision->state_to), from < 0 ? NULL : &from, to < 0 ? NULL : &to,
            decision->percent_from, decision->percent_to, rollout_rule_name(decision->rule),
            decision->reason, decision->who, decision->evidence,
            decision->effect_ns ? &decision->effect_ns : NULL);
}

int rollout_store_effect(
        struct store *store, int64_t decision, int64_t at_ns, double percent, struct error *err)
{
    return store_exec(store, err,
            "UPDATE rollout_decision SET effect_ns = ?, percent_to = ? WHERE id = ?", "idi", at_ns,
            percent, decision);
}

int rollout_store_last_decision(
        struct store *store, struct rollout_decision *ret_decision, struct error *err)
{
    sqlite3_stmt *stmt = store_query(store, err,
            "SELECT id, at_ns, state_from, state_to, stage_from, stage_to, percent_from, percent_to, rule, "
            "effect_ns FROM rollout_decision WHERE rule NOT IN ('clock', 'proxy') ORDER BY id DESC LIMIT 1",
            "");
    int rc = stmt ? store_step(store, stmt, err) : -EIO;
    if (rc == 0)
        return error_set(err, -ENOENT, "'%s': no decision yet", store_path(store));
    if (rc < 0)
        return rc;
    int from = rollout_state_by_name(store_text(store, stmt, 2)),
        to = rollout_state_by_name(store_text(store, stmt, 3));
    int rule = rollout_rule_by_name(store_text(store, stmt, 8));
    struct rollout_decision decision = {.id = sqlite3_column_int64(stmt, 0),
            .at_ns = sqlite3_column_int64(stmt, 1),
            .effect_ns = sqlite3_column_int64(stmt, 9),
            .stage_from = rollout_column_stage(stmt, 4),
            .stage_to = rollout_column_stage(stmt, 5),
            .percent_from = rollout_column_real(stmt, 6),
            .percent_to = rollout_column_real(stmt, 7)};
    rc = store_step(store, stmt, err);
    if (rc == 0 && (from < 0 || to < 0 || rule < 0))
        rc = error_set(err, -EBADMSG, "'%s': its last decision is none that this upgate knows",
                store_path(store));
    if (rc == 0 &&
            (decision.stage_from == ROLLOUT_NO_STAGE || decision.stage_to == ROLLOUT_NO_STAGE))
        rc = error_set(err, -EBADMSG, "'%s' is damaged: its last decision is of no stage",
                store_path(store));
    if (rc)
        return rc;
    decision.state_from = (enum rollout_state)from;
    decision.state_to = (enum rollout_state)to;
    decision.rule = (enum rollout_rule)rule;
    *ret_decision = decision;
    return 0;
}
