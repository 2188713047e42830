// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/serve_world.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "tests/unit/runner.h"

static char *world_text;
static const char *world_content;

struct snapshot *world_rollout(void)
{
    struct snapshot *snapshot = snapshot_new("ranker");
    snapshot->kind = SNAPSHOT_ROLLOUT;
    snapshot->problem = NULL;
    snapshot->read_ns = WORLD_MONOTONIC_NS;
    snapshot->state = "running";
    snapshot->reason = "stage 5% began";
    snapshot->has_stage = snapshot->controlled = true;
    snapshot->stage = 1;
    snapshot->percent = snapshot->wanted = 5;
    snapshot->alpha = 0.01;
    snapshot->heartbeat_ns = WORLD_WALL_NS - WORLD_SECOND;
    snapshot->stages = arena_alloc(snapshot->arena, SNAPSHOT_STAGES_MAX, sizeof *snapshot->stages);
    snapshot->stages[0] = (struct snapshot_stage){
            .number = 0, .name = "shadow", .result = "passed", .begun = true, .ended = true};
    snapshot->stages[1] = (struct snapshot_stage){.number = 1,
            .name = "5%",
            .percent = 5,
            .begun = true,
            .arms = {{.requests = 9000, .errors = 9},
                    {.requests = 500, .errors = 4, .truncated = 1}}};
    snapshot->stages[2] = (struct snapshot_stage){.number = 2, .name = "100%", .percent = 100};
    snapshot->stage_count = 3;
    snapshot->cells = arena_alloc(snapshot->arena, SNAPSHOT_CELLS_MAX, sizeof *snapshot->cells);
    snapshot->cells[0] = (struct snapshot_cell){.stage = 1,
            .metric = "error_rate",
            .verdict = "undecided",
            .value = 1.2,
            .low = NAN,
            .high = NAN,
            .threshold = 1.5,
            .evidence = 0.3,
            .needed = 5.3,
            .requests = 500,
            .missing = 700,
            .pairs = -1,
            .gating = true};
    snapshot->cells[1] = (struct snapshot_cell){.stage = 1,
            .metric = "latency_p99",
            .verdict = "pass",
            .value = 1.031,
            .low = 1.024,
            .high = 1.039,
            .threshold = 1.1,
            .evidence = -2,
            .needed = 5.3,
            .requests = 500,
            .missing = 0,
            .pairs = -1,
            .gating = true};
    snapshot->cell_count = 2;
    return snapshot;
}

struct snapshot *world_run(const char *verdict)
{
    struct snapshot *snapshot = snapshot_new("ranker");
    snapshot->kind = SNAPSHOT_RUN;
    snapshot->problem = NULL;
    snapshot->read_ns = WORLD_MONOTONIC_NS;
    snapshot->run_id = "1-2-3";
    snapshot->run_kind = "ab";
    snapshot->run_state = "done";
    snapshot->verdict = verdict;
    snapshot->verdict_reason = verdict ? "every cell is within its margin" : NULL;
    snapshot->cells = arena_alloc(snapshot->arena, SNAPSHOT_CELLS_MAX, sizeof *snapshot->cells);
    snapshot->cells[0] = (struct snapshot_cell){.stage = -1,
            .workload = "dlrm",
            .metric = "step_time",
            .verdict = verdict ? verdict : "unchecked",
            .value = 1.001,
            .low = 0.99,
            .high = 1.01,
            .threshold = 1.02,
            .evidence = NAN,
            .needed = NAN,
            .requests = -1,
            .missing = -1,
            .pairs = 10,
            .gating = true};
    snapshot->cell_count = 1;
    return snapshot;
}

void world_state(struct snapshot *snapshot, const char *state, const char *reason)
{
    snapshot->state = state;
    snapshot->reason = reason;
}

int world_ask_at(const struct snapshot *snapshot, enum call_method method, const char *target,
        const char *body, int64_t later_ns)
{
    struct verdict_clock now = {.wall_ns = WORLD_WALL_NS, .monotonic_ns = WORLD_MONOTONIC_NS};
    struct answers *answers = answers_new(snapshot, &now);
    struct call call = {.method = method,
            .target = target,
            .target_len = strlen(target),
            .body = body,
            .body_len = body ? strlen(body) : 0,
            .now = {.wall_ns = now.wall_ns + later_ns,
                    .monotonic_ns = now.monotonic_ns + later_ns}};
    struct answer answer;
    answers_give(answers, &call, &answer);
    CHECK(answer.body_len == strlen(answer.body));
    CHECK(answer.prepared < answers_prepared(answers));
    // no JSON, and no number to anybody
    CHECK(!strstr(answer.body, "nan") && !strstr(answer.body, "NaN"));
    free(world_text);
    world_text = xstrdup(answer.body);
    world_content = answer.type;
    if (answer.prepared < 0)
        free((void *)(uintptr_t)answer.body);
    answers_free(answers);
    return answer.status;
}

int world_ask(const struct snapshot *snapshot, enum call_method method, const char *target,
        const char *body)
{
    return world_ask_at(snapshot, method, target, body, 0);
}

const char *world_body(void)
{
    return world_text;
}

const char *world_type(void)
{
    return world_content;
}
