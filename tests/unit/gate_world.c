// SPDX-License-Identifier: Apache-2.0
// Synthetic stores. A pair draws its own ratio between launches and noise for each step; blocks of
// four steps take turns.
#include "tests/unit/gate_world.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "harness/gate/gate.h"

static const double world_step_ns = 5e6;

static void world_die(const char *what, const struct error *err)
{
    printf("    world: %s: %s\n", what, err->text);
    exit(1);
}

static void world_exec(struct world *world, int rc, const char *what, const struct error *err)
{
    if (rc) {
        store_rollback(world->store);
        world_die(what, err);
    }
}

static json_t *world_plan(
        struct world *world, const char *workloads, const char *gate, struct plan **ret_plan)
{
    struct error err = {0};
    char path[128];
    snprintf(path, sizeof path, "%s/plan.yaml", world->dir);
    FILE *file = fopen(path, "w");
    fprintf(file,
            "baseline: {name: old, python: /usr/bin/python3}\ncandidate: {name: new, python: "
            "/usr/bin/python3}\n%s\n"
            "schedule: {looks: [10, 14, 20, 28]}\n%s\n",
            workloads ? workloads
                      : "workloads: [{name: w, mode: train, command: [x, \"{steps}\"]}]",
            gate ? gate : "gate: {parity: {rule: fp64-anchored}}");
    fclose(file);
    if (plan_load(path, ret_plan, &err))
        world_die("plan", &err);
    unlink(path);
    return plan_to_json(*ret_plan);
}

static void world_open_kind(
        struct world *world, const char *workloads, const char *gate, const char *kind)
{
    struct error err = {0};
    struct plan *plan = NULL;
    *world = (struct world){.random = {42}};
    // in memory: the store waits for the disk, and that took half of the tests' time
    strcpy(world->dir, "/dev/shm/test_gate_XXXXXX");
    if (!mkdtemp(world->dir))
        exit(1);
    setenv("UPGATE_STATE_DIR", world->dir, 1);
    snprintf(world->path, sizeof world->path, "%s/run.db", world->dir);
    json_t *json = world_plan(world, workloads, gate, &plan);
    char *text = json_dumps(json, JSON_COMPACT);
    if (store_open(world->path, STORE_CREATE, &world->store, &err))
        world_die("store", &err);
    world_exec(world,
            store_exec(world->store, &err,
                    "INSERT INTO run (id, uuid, kind, state, upgate_version, started_wall_ns, seed, "
                    "plan, command_line, host, host_key) VALUES (1, 'uuid', ?, 'done', '0', ?, 7, ?, "
                    "'[]', '{}', 'host-1')",
                    "sis", kind, clock_wall_ns(), text),
            "run", &err);
    world_sql(
            world, "INSERT INTO side (id, name, config) VALUES (0, 'old', '{}'), (1, 'new', '{}')");
    for (int i = 0; i < plan->workload_count; i++)
        world_exec(world,
                store_exec(world->store, &err,
                        "INSERT INTO workload (id, name, mode, interleave) VALUES (?, ?, ?, 'steps')",
                        "iss", (int64_t)i + 1, plan->workloads[i].name,
                        plan_mode_name(plan->workloads[i].mode)),
                "workload", &err);
    free(text);
    json_decref(json);
    plan_free(plan);
}

void world_open(struct world *world, const char *workloads, const char *gate)
{
    world_open_kind(world, workloads, gate, "ab");
}

void world_open_aa(struct world *world, const char *workloads, const char *gate)
{
    world_open_kind(world, workloads, gate, "aa");
}

void world_close(struct world *world)
{
    char command[128];
    store_close(world->store);
    snprintf(command, sizeof command, "rm -rf '%s'", world->dir);
    if (system(command))
        exit(1);
}

void world_sql(struct world *world, const char *sql)
{
    struct error err = {0};
    char *text = NULL;
    if (sqlite3_exec(store_db(world->store), sql, NULL, NULL, &text) != SQLITE_OK) {
        error_set(&err, -1, "%s: %s", sql, text);
        world_die("sql", &err);
    }
}

double world_number(struct world *world, const char *sql)
{
    sqlite3_stmt *stmt = NULL;
    double value = NAN;
    if (sqlite3_prepare_v2(store_db(world->store), sql, -1, &stmt, NULL) != SQLITE_OK)
        world_sql(world, sql);
    if (sqlite3_step(stmt) == SQLITE_ROW && sqlite3_column_type(stmt, 0) != SQLITE_NULL)
        value = sqlite3_column_double(stmt, 0);
    sqlite3_finalize(stmt);
    return value;
}

const char *world_text(struct world *world, const char *sql)
{
    static char buf[4096];
    sqlite3_stmt *stmt = NULL;
    buf[0] = 0;
    if (sqlite3_prepare_v2(store_db(world->store), sql, -1, &stmt, NULL) != SQLITE_OK)
        world_sql(world, sql);
    if (sqlite3_step(stmt) == SQLITE_ROW && sqlite3_column_type(stmt, 0) != SQLITE_NULL)
        snprintf(buf, sizeof buf, "%s", sqlite3_column_text(stmt, 0));
    sqlite3_finalize(stmt);
    return buf;
}

void world_state(struct world *world, const char *state)
{
    char sql[96];
    snprintf(sql, sizeof sql, "UPDATE run SET state = '%s'", state);
    world_sql(world, sql);
}

void world_certificate(struct world *world, const char *scope, const char *interleave, double bound)
{
    static const char *const kinds[] = {
            "train model", "train command", "infer model", "infer command", "command command"};
    struct error err = {0};
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++)
        for (int m = 0; m < METRIC_COUNT; m++)
            world_exec(world,
                    store_exec(world->store, &err,
                            "INSERT INTO control (scope, kind, interleave, metric, margin, "
                            "made_wall_ns, aa_pairs, aa_lower, aa_upper, mde, pair_sd, held, "
                            "planted, held_pairs, held_lower, held_upper, gates, "
                            "false_fails, upper_bound, source_run) VALUES (?, ?, ?, ?, 0, ?, "
                            "28, -0.001, 0.001, 0.002, 1, 0.02, 0.0198, 28, 0.019, 0.021, "
                            "5, 0, ?, 'other')",
                            "ssssid", scope, kinds[kind], interleave, metric_infos[m].name,
                            clock_wall_ns() - 3600000000000, bound),
                    "certificate", &err);
}

void world_open_calibrated(struct world *world, const char *workloads, const char *gate)
{
    world_open(world, workloads, gate);
    world_certificate(world, "host", "steps", 0.01);
}

// --- pairs ---------------------------------------------------------------------------------------

static void world_steps(struct world *world, int64_t launch, int side,
        const struct world_pair *pair, double scale, double *durations)
{
    struct error err = {0};
    double (*shape)(int) = side ? pair->shape_b : pair->shape_a;
    int64_t at = 1000000;
    for (int rank = 0; rank < pair->ranks; rank++) {
        at = 1000000;
        for (int i = 0; i < pair->steps; i++) {
            double duration = world_step_ns * scale * (shape ? shape(i) : 1) * (i == 0 ? 8 : 1) *
                    (1 + (side ? pair->held : 0)) *
                    exp(pair->step_noise * random_normal(&world->random));
            int64_t late = (int64_t)(2e5 - 1e5 * log(1 - random_uniform(&world->random)));
            if (rank == 0)
                durations[i] = duration;
            world_exec(world,
                    store_exec(world->store, &err,
                            "INSERT INTO step (launch_id, rank, idx, begin_ns, dur_ns, late_ns, samples) "
                            "VALUES (?, ?, ?, ?, ?, ?, ?)",
                            "iiiiiId", launch, (int64_t)rank, (int64_t)i, at, (int64_t)duration,
                            pair->rate > 0 ? &late : NULL, pair->no_samples ? NAN : 32.0),
                    "step", &err);
            at += (int64_t)duration + 10000;
        }
    }
}

static void world_launch(struct world *world, int64_t id, int side, const struct world_pair *pair,
        double scale, double *durations)
{
    struct error err = {0};
    const char *fate = side ? pair->fate_b : pair->fate_a;
    bool has_steps = !(side ? pair->no_steps_b : pair->no_steps_a);
    int64_t steps = has_steps ? pair->steps : 0;
    int64_t memory = (int64_t)(1e9 * (side ? pair->memory_ratio : 1));
    int64_t gpu = side ? 1 << 20 : 0;
    fate = fate ? fate : "ok";
    if (!*fate)
        return;
    bool ok = strcmp(fate, "ok") == 0;
    int64_t active = (int64_t)(1e9 * scale * exp(0.001 * random_normal(&world->random)));
    int64_t cpu = (int64_t)(9e8 * scale * exp(0.001 * random_normal(&world->random)));
    char covariates[160] = "{}";
    double waited = (double)active * pair->held;
    if (side && pair->held > 0)
        snprintf(covariates, sizeof covariates,
                "{\"control_ppm\":%.0f,\"control_frozen\":%s,\"control_wait_ns\":%.0f}",
                1e6 * pair->held, has_steps ? "false" : "true", waited);
    if (side && pair->held > 0)
        active += (int64_t)waited;
    world_exec(world,
            store_exec(world->store, &err,
                    "INSERT INTO launch (id, pair_id, side, state, exit_code, started_ns, "
                    "ended_ns, active_ns, "
                    "cpu_ns, peak_memory_bytes, peak_gpu_memory_bytes, steps, covariates) "
                    "VALUES (?, ?, ?, ?, ?, 1, 2, ?, ?, ?, ?, ?, ?)",
                    "iiisIIIIIIs", id, (id + 1) / 2, (int64_t)side, fate, NULL, ok ? &active : NULL,
                    ok ? &cpu : NULL, ok ? &memory : NULL, pair->zero_gpu_a > 0 ? &gpu : NULL,
                    has_steps && ok ? &steps : NULL, covariates),
            "launch", &err);
    if (has_steps && ok)
        world_steps(world, id, side, pair, scale, durations);
}

static void world_blocks(
        struct world *world, int64_t pair_id, const struct world_pair *pair, double *durations[2])
{
    struct error err = {0};
    for (int first = 0, couple = 0; first + pair->block_steps <= pair->steps;
            first += pair->block_steps, couple++) {
        for (int side = 0; side < 2; side++) {
            double active = 0;
            for (int i = 0; i < pair->block_steps; i++)
                active += durations[side][first + i] + 10000;
            world_exec(world,
                    store_exec(world->store, &err,
                            "INSERT INTO block (pair_id, couple, side, ran_first, "
                            "first_step, steps, begin_ns, "
                            "active_ns) VALUES (?, ?, ?, ?, ?, ?, 0, ?)",
                            "iiiiiii", pair_id, (int64_t)couple, (int64_t)side,
                            (int64_t)(side == 0), (int64_t)first, (int64_t)pair->block_steps,
                            (int64_t)active),
                    "block", &err);
        }
    }
}

int64_t world_pair(struct world *world, struct world_pair pair)
{
    struct error err = {0};
    int64_t id = ++world->pair_id, void_side = pair.void_side - 1;
    pair.workload = pair.workload ? pair.workload : 1;
    pair.steps = pair.steps ? pair.steps : 120;
    pair.ranks = pair.ranks ? pair.ranks : 1;
    pair.block_steps = pair.block_steps ? pair.block_steps : 4;
    pair.ratio = pair.ratio > 0 ? pair.ratio : 1;
    pair.memory_ratio = pair.memory_ratio > 0 ? pair.memory_ratio : 1;
    pair.step_noise = pair.step_noise > 0 ? pair.step_noise : 0.01;
    const char *interleave = pair.interleave ? pair.interleave : "steps";
    double *durations[2] = {
            calloc((size_t)pair.steps, sizeof(double)), calloc((size_t)pair.steps, sizeof(double))};
    world_exec(world, store_begin(world->store, &err), "begin", &err);
    world_exec(world,
            store_exec(world->store, &err,
                    "INSERT INTO pair (id, workload_id, idx, phase, seed, first_side, "
                    "interleave, steps, state, "
                    "reason, void_side, started_ns, ended_ns) VALUES (?, ?, ?, ?, ?, 0, ?, "
                    "?, ?, ?, ?, 1, 2)",
                    "iiisisissI", id, (int64_t)pair.workload, id, pair.phase ? pair.phase : "main",
                    pair.seed ? pair.seed : id, interleave, (int64_t)pair.steps,
                    pair.state ? pair.state : "valid", pair.state ? "planted by the test" : NULL,
                    pair.void_side ? &void_side : NULL),
            "pair", &err);
    double spread = (pair.pair_sd > 0 ? pair.pair_sd : 0.003) * random_normal(&world->random);
    world_launch(world, 2 * id - 1, 0, &pair, 1, durations[0]);
    world_launch(world, 2 * id, 1, &pair, pair.ratio * exp(spread), durations[1]);
    if (strcmp(interleave, "steps") == 0 && durations[0][0] > 0 && durations[1][0] > 0)
        world_blocks(world, id, &pair, durations);
    world_exec(world, store_commit(world->store, &err), "commit", &err);
    free(durations[0]);
    free(durations[1]);
    return id;
}

void world_pairs(struct world *world, int count, struct world_pair pair)
{
    for (int i = 0; i < count; i++)
        world_pair(world, pair);
}

void world_losses(
        struct world *world, int64_t pair_id, int steps, double (*value)(int, int, int64_t))
{
    struct error err = {0};
    world_exec(world, store_begin(world->store, &err), "begin", &err);
    for (int side = 0; side < 2; side++)
        for (int i = 0; i < steps; i++) {
            double loss = value(i, side, pair_id);
            world_exec(world,
                    store_exec(world->store, &err,
                            "INSERT INTO loss (launch_id, rank, step, value, bits) VALUES (?, 0, ?, ?, ?)",
                            "iidb", 2 * pair_id - 1 + side, (int64_t)i, loss, (const void *)&loss,
                            sizeof loss),
                    "loss", &err);
        }
    world_exec(world, store_commit(world->store, &err), "commit", &err);
}

static void world_tensor_bytes(struct world *world, int64_t launch_id, int step, const char *name,
        const char *dtype, const void *bytes, int count, size_t len)
{
    struct error err = {0};
    char digest[17];
    uint64_t hash = 1469598103934665603u;
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ ((const unsigned char *)bytes)[i]) * 1099511628211u;
    snprintf(digest, sizeof digest, "%016llx", (unsigned long long)hash);
    world_exec(world,
            store_exec(world->store, &err,
                    "INSERT INTO tensor (launch_id, rank, step, name, dtype, count, digest, data) "
                    "VALUES (?, 0, ?, ?, ?, ?, ?, ?)",
                    "iissisb", launch_id, (int64_t)step, name, dtype, (int64_t)count, digest, bytes,
                    len),
            "tensor", &err);
}

void world_tensor(struct world *world, int64_t launch_id, int step, const char *name,
        const float *values, int count)
{
    world_tensor_bytes(
            world, launch_id, step, name, "f32", values, count, (size_t)count * sizeof *values);
}

void world_tensor_f64(struct world *world, int64_t launch_id, int step, const char *name,
        const double *values, int count)
{
    world_tensor_bytes(
            world, launch_id, step, name, "f64", values, count, (size_t)count * sizeof *values);
}

int world_judge(struct world *world)
{
    struct error err = {0};
    enum exit_code exit_code = EXIT_CODE_USAGE;
    if (gate_judge(world->store, NULL, &exit_code, &err)) {
        printf("    gate_judge: %s\n", err.text);
        return -1;
    }
    return (int)exit_code;
}
