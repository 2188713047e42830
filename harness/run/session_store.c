// SPDX-License-Identifier: Apache-2.0
// What the run loop writes into the store. Reads nothing of the machine; one transaction a pair, so
// that a kill at any moment leaves whole pairs only.
#include "harness/run/session_store.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/strings.h"
#include "harness/contain/host.h"
#include "harness/contain/process.h"

enum { SESSION_OUTPUT_TAIL_BYTES = 4096 };

static char *session_dump(const json_t *json)
{
    char *text = json_dumps(json, JSON_COMPACT | JSON_ENCODE_ANY);
    return text ? text : xstrdup("null");
}

enum plan_interleave session_interleave(
        const struct plan *plan, const struct plan_workload *workload)
{
    return workload->interleave != PLAN_INTERLEAVE_AUTO ? workload->interleave
                                                        : plan->schedule.interleave;
}

static int session_store_sides(
        struct store *store, const struct plan *plan, const json_t *plan_json, struct error *err)
{
    static const char *const keys[PLAN_SIDES] = {"baseline", "candidate"};
    int rc = 0;
    for (int side = 0; side < PLAN_SIDES && rc == 0; side++) {
        char *config = session_dump(json_object_get(plan_json, keys[side]));
        rc = store_exec(store, err, "INSERT INTO side (id, name, config) VALUES (?, ?, ?)", "iss",
                (int64_t)side, plan->sides[side].name, config);
        free(config);
    }
    for (int i = 0; i < plan->workload_count && rc == 0; i++) {
        const struct plan_workload *workload = &plan->workloads[i];
        enum plan_interleave interleave = session_interleave(plan, workload);
        rc = store_exec(store, err,
                "INSERT INTO workload (id, name, mode, interleave, rate_per_s) VALUES (?, ?, ?, ?, ?)",
                "isssd", (int64_t)i + 1, workload->name, plan_mode_name(workload->mode),
                interleave == PLAN_INTERLEAVE_AUTO ? NULL : plan_interleave_name(interleave),
                workload->rate_per_s > 0 ? workload->rate_per_s : NAN);
    }
    return rc;
}

int session_store_create(struct store *store, const struct plan *plan, bool aa,
        const json_t *command_line, const json_t *host, struct error *err)
{
    char *uuid = string_read_file("/proc/sys/kernel/random/uuid", 36, NULL);
    if (!uuid)
        return error_set(
                err, -errno, "failed to read /proc/sys/kernel/random/uuid: %s", strerror(errno));
    json_t *plan_json = plan_to_json(plan);
    char *plan_text = session_dump(plan_json), *command_text = session_dump(command_line);
    char *host_text = session_dump(host), *key = host_key(host);
    int64_t runs = 0;
    int rc = store_begin(store, err);
    if (rc == 0)
        rc = store_get_int(store, &runs, err, "SELECT count(*) FROM run", "");
    if (rc == 0 && runs) // two that were started together
        rc = error_set(err, -EINVAL, "'%s' is taken by another upgate; name another file with -o",
                store_path(store));
    if (rc == 0)
        rc = store_exec(store, err,
                "INSERT INTO run (id, uuid, kind, state, upgate_version, started_wall_ns, seed, plan, "
                "plan_path, command_line, host, host_key, writer_pid, writer_start) "
                "VALUES (1, ?, ?, 'running', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                "sssiisssssii", uuid, aa ? "aa" : "ab", UPGATE_VERSION, clock_wall_ns(),
                (int64_t)plan->schedule.seed, plan_text, plan->path, command_text, host_text, key,
                (int64_t)getpid(), process_start_ticks(getpid()));
    if (rc == 0)
        rc = session_store_sides(store, plan, plan_json, err);
    if (rc == 0)
        rc = store_commit(store, err);
    else
        store_rollback(store);
    json_decref(plan_json);
    free(plan_text);
    free(command_text);
    free(host_text);
    free(key);
    free(uuid);
    return rc;
}

int session_store_state(
        struct store *store, const char *state, const int64_t *ended_wall_ns, struct error *err)
{
    int64_t pid = getpid(), start = process_start_ticks(getpid());
    return store_exec(store, err,
            "UPDATE run SET state = ?, ended_wall_ns = ?, writer_pid = ?, writer_start = ?", "sIII",
            state, ended_wall_ns, ended_wall_ns ? NULL : &pid, ended_wall_ns ? NULL : &start);
}

int session_store_writer(struct store *store, const int64_t *ended_wall_ns, struct error *err)
{
    int64_t pid = getpid(), start = process_start_ticks(getpid());
    return store_exec(store, err,
            "UPDATE run SET ended_wall_ns = coalesce(?, ended_wall_ns), writer_pid = ?, writer_start = ?",
            "III", ended_wall_ns, ended_wall_ns ? NULL : &pid, ended_wall_ns ? NULL : &start);
}

static int session_store_launch(
        struct store *store, int64_t pair_id, int side, const struct pair *pair, struct error *err)
{
    const struct launch *launch = pair->launches[side];
    const struct samples *samples = &pair->samples[side];
    if (!launch && !pair->start_error[side])
        return 0;
    if (!launch)
        return store_exec(store, err,
                "INSERT INTO launch (pair_id, side, state, started_ns, ended_ns, stderr_tail, "
                "covariates) VALUES (?, ?, 'not_started', ?, ?, ?, '{}')",
                "iiiis", pair_id, (int64_t)side, pair->started_ns, pair->ended_ns,
                pair->start_error[side]);
    json_t *covariates = pair->covariates[side];
    char *text = session_dump(covariates),
         *tail = launch_output_tail(launch, SESSION_OUTPUT_TAIL_BYTES);
    int64_t code = launch->exit_code, signal = launch->exit_signal, cpu = launch->cpu_ns;
    int64_t memory = launch->peak_memory_bytes, steps = samples_steps(launch);
    double gpu_noted = samples_note_max(samples, "peak_gpu_memory_bytes");
    int64_t gpu = isnan(gpu_noted) ? -1 : (int64_t)gpu_noted;
    int64_t ranks = reader_slot_count(launch->reader), launch_id = 0;
    int64_t active = launch_active_ns(launch);
    int rc = store_insert(store, &launch_id, err,
            "INSERT INTO launch (pair_id, side, state, exit_code, exit_signal, started_ns, ended_ns, active_ns, "
            "held_ns, cpu_ns, peak_memory_bytes, peak_gpu_memory_bytes, steps, ranks, dropped, stderr_tail, "
            "covariates) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            "iisIIiiiiIIIIIiss", pair_id, (int64_t)side, launch_state_name(launch->state),
            code < 0 ? NULL : &code, signal < 0 ? NULL : &signal, launch->started_ns,
            launch->ended_ns, active, launch->ended_ns - launch->started_ns - active,
            cpu < 0 ? NULL : &cpu, memory < 0 ? NULL : &memory, gpu < 0 ? NULL : &gpu,
            steps < 0 ? NULL : &steps, ranks ? &ranks : NULL, (int64_t)samples_dropped(launch),
            tail, text);
    if (rc == 0)
        rc = samples_store(samples, launch, launch_id, store, err);
    if (rc == 0)
        rc = resident_store(&pair->resident[side], launch_id, store, err);
    free(text);
    free(tail);
    return rc;
}

// NULL for what is not told, which is below 0.
static const int64_t *session_told(const int64_t *value)
{
    return *value < 0 ? NULL : value;
}

static int session_store_blocks(
        struct store *store, int64_t pair_id, const struct pair *pair, struct error *err)
{
    int rc = 0;
    for (size_t i = 0; i < pair->block_count && rc == 0; i++) {
        const struct pair_block *block = &pair->blocks[i];
        rc = store_exec(store, err,
                "INSERT INTO block (pair_id, couple, side, ran_first, first_step, steps, begin_ns, "
                "active_ns, cpu_ns, step_cpu_ns, wait_ns, foreign_ns, steal_ns, machine_ns) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                "iiiiIIiiIIIIII", pair_id, block->couple, (int64_t)block->side,
                (int64_t)block->ran_first, session_told(&block->first_step),
                session_told(&block->steps), block->begin_ns, block->active_ns,
                session_told(&block->turn.cpu_ns), session_told(&block->turn.step_cpu_ns),
                session_told(&block->share.wait_ns), session_told(&block->turn.foreign_ns),
                session_told(&block->share.steal_ns), session_told(&block->share.machine_ns));
    }
    return rc;
}

int session_store_pair(struct store *store, const struct session_pair_row *row,
        const struct pair_spec *spec, const struct pair *pair, struct error *err)
{
    int64_t pair_id = 0, steps = (int64_t)spec->steps;
    int rc = store_begin(store, err);
    if (rc)
        return rc;
    rc = store_insert(store, &pair_id, err,
            "INSERT INTO pair (workload_id, idx, phase, seed, first_side, interleave, steps, state, "
            "reason, void_side, started_ns, ended_ns) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            "iisiisissIii", row->workload_id, row->idx, row->phase, (int64_t)spec->seed,
            (int64_t)spec->first_side, plan_interleave_name(spec->interleave), steps, row->state,
            row->reason, row->void_side < 0 ? NULL : &row->void_side, pair->started_ns,
            pair->ended_ns);
    for (int side = 0; side < PLAN_SIDES && rc == 0; side++)
        rc = session_store_launch(store, pair_id, side, pair, err);
    if (rc == 0)
        rc = session_store_blocks(store, pair_id, pair, err);
    if (rc == 0 && row->more)
        rc = row->more(row->arg, pair_id, err);
    if (rc == 0)
        return store_commit(store, err);
    store_rollback(store);
    return rc;
}

int session_store_workload(struct store *store, int64_t id, enum plan_interleave interleave,
        const char *note, double rate_per_s, struct error *err)
{
    return store_exec(store, err,
            "UPDATE workload SET interleave = ?, note = ?, rate_per_s = ? WHERE id = ?", "ssdi",
            interleave == PLAN_INTERLEAVE_AUTO ? NULL : plan_interleave_name(interleave), note,
            rate_per_s > 0 ? rate_per_s : NAN, id);
}

int session_store_fingerprint(
        struct store *store, int side, const json_t *fingerprint, struct error *err)
{
    char *text = session_dump(fingerprint);
    int rc = store_exec(
            store, err, "UPDATE side SET fingerprint = ? WHERE id = ?", "si", text, (int64_t)side);
    free(text);
    return rc;
}
