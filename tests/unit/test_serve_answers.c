// SPDX-License-Identifier: Apache-2.0
// Answers of `upgate canary serve` without a socket: Argo's and Flagger's questions in every state
// of a rollout, and what must never be answered with success.
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/runner.h"
#include "tests/unit/serve_world.h"

static const char *const confirms[] = {"confirm-rollout", "pre-rollout", "rollout",
        "confirm-traffic-increase", "confirm-promotion"};

static const char *gate(const struct snapshot *snapshot, const char *query)
{
    static char verdict[32];
    char target[128];
    snprintf(target, sizeof target, "/v1/gate/ranker%s", query);
    CHECK_INT(world_ask(snapshot, CALL_GET, target, NULL), 200);
    CHECK_STR(world_type(), "application/json");
    json_t *json = json_loads(world_body(), 0, NULL);
    snprintf(verdict, sizeof verdict, "%s", json_string_value(json_object_get(json, "verdict")));
    CHECK_STR(json_string_value(json_object_get(json, "schema")), "gate/1");
    CHECK(json_string_length(json_object_get(json, "reason")) > 0);
    json_decref(json);
    return verdict;
}

static int hook(const struct snapshot *snapshot, const char *name)
{
    char target[128];
    snprintf(target, sizeof target, "/v1/flagger/ranker/%s", name);
    return world_ask(snapshot, CALL_POST, target, WORLD_PAYLOAD);
}

// Nothing but a pass may let Flagger go on, and nothing but a fail may make it go back.
static void check_hooks(const struct snapshot *snapshot, bool pass, bool fail, int refusal)
{
    for (size_t i = 0; i < sizeof confirms / sizeof *confirms; i++)
        CHECK_INT(hook(snapshot, confirms[i]), pass ? 200 : refusal);
    CHECK_INT(hook(snapshot, "rollback"), fail ? 200 : 403);
    CHECK_INT(hook(snapshot, "event"), 200);
    CHECK_INT(hook(snapshot, "post-rollout"), 200);
}

TEST(no_measurement_is_inconclusive)
{
    struct snapshot *snapshot = snapshot_new("ranker");
    CHECK_STR(gate(snapshot, ""), "inconclusive");
    CHECK_STR(gate(snapshot, "?stage=2"), "inconclusive"); // no stage is known yet
    CHECK_CONTAINS(world_body(), "no measurement yet");
    CHECK_CONTAINS(world_body(), "\"retry_after_s\":5");
    check_hooks(snapshot, false, false, 412);
    snapshot_free(snapshot);
    snapshot = world_rollout();
    world_state(snapshot, "waiting", "before its window");
    snapshot->has_stage = false;
    snapshot->stage_count = snapshot->cell_count = 0;
    CHECK_STR(gate(snapshot, ""), "inconclusive");
    check_hooks(snapshot, false, false, 403);
    snapshot_free(snapshot);
}

TEST(a_stage_passes_when_the_controller_says_so)
{
    struct snapshot *snapshot = world_rollout();
    CHECK_STR(gate(snapshot, "?stage=0"), "pass");
    CHECK_STR(gate(snapshot, "?stage=shadow"), "pass");
    CHECK_STR(gate(snapshot, "?stage=1&stable=abc&canary=def"), "inconclusive");
    CHECK_CONTAINS(world_body(), "error_rate 1.2, limit 1.5, about 700 requests more");
    CHECK_CONTAINS(
            world_body(), "\"n_canary\":500,\"n_stable\":9000,\"alpha\":0.01,\"run_id\":null");
    CHECK_STR(gate(snapshot, "?stage=5%25"), "inconclusive");
    CHECK_STR(gate(snapshot, "?stage=2"), "inconclusive");
    CHECK_CONTAINS(world_body(), "has not begun");
    CHECK_STR(gate(snapshot, ""), "inconclusive");
    CHECK_CONTAINS(world_body(), "\"stage\":1,\"percent\":5");
    snapshot->cells[0].verdict = "pass"; // all cells: the soak may still go on
    CHECK_STR(gate(snapshot, "?stage=1"), "inconclusive");
    snapshot->stages[1].result = "passed";
    CHECK_STR(gate(snapshot, "?stage=1"), "pass");
    CHECK_STR(gate(snapshot, ""), "inconclusive"); // not the whole
    snapshot->stages[1].result = "aborted";
    CHECK_STR(gate(snapshot, "?stage=1"), "inconclusive");
    snapshot_free(snapshot);
}

TEST(a_failed_cell_fails_at_once)
{
    struct snapshot *snapshot = world_rollout();
    snapshot->cells[1].verdict = "fail";
    snapshot->controlled = false; // also when nobody is left to roll back
    CHECK_STR(gate(snapshot, ""), "fail");
    CHECK_CONTAINS(world_body(), "latency_p99 1.031 [1.024, 1.039], limit 1.1");
    CHECK_STR(gate(snapshot, "?stage=1"), "fail");
    check_hooks(snapshot, false, true, 403);
    snapshot->cells[1].verdict = "undecided";
    snapshot->stages[1].result = "failed";
    CHECK_STR(gate(snapshot, "?stage=1"), "fail");
    snapshot_free(snapshot);
}

TEST(what_is_no_fail_of_the_candidate)
{
    struct snapshot *snapshot = world_rollout();
    snapshot->cells[1].verdict = "fail";
    snapshot->cells[1].gating = false; // a metric that is only observed
    CHECK_STR(gate(snapshot, "?stage=1"), "inconclusive");
    CHECK(!strstr(world_body(), "latency_p99"));
    check_hooks(snapshot, false, false, 403);
    snapshot->cells[1].gating = true;
    snapshot->stages[1].aa = true; // two baselines that differ
    CHECK_STR(gate(snapshot, "?stage=1"), "inconclusive");
    CHECK_CONTAINS(world_body(), "the baselines differ");
    check_hooks(snapshot, false, false, 412);
    snapshot_free(snapshot);
}

TEST(states)
{
    static const struct {
        const char *state, *verdict;
        bool pass, fail;
        int refusal;
    } cases[] = {{"promoted", "pass", true, false, 0}, {"rolled_back", "fail", false, true, 403},
            {"aborted", "fail", false, true, 403}, {"paused", "inconclusive", false, false, 409},
            {"failed", "inconclusive", false, false, 412},
            {"no such state", "inconclusive", false, false, 412}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct snapshot *snapshot = world_rollout();
        world_state(snapshot, cases[i].state, "why it is so");
        CHECK_STR(gate(snapshot, ""), cases[i].verdict);
        CHECK_CONTAINS(world_body(), "why it is so");
        // whatever stage 0 has shown before
        CHECK_STR(gate(snapshot, "?stage=0"), cases[i].verdict);
        check_hooks(snapshot, cases[i].pass, cases[i].fail, cases[i].refusal);
        CHECK_CONTAINS(world_body(), "why it is so");
        snapshot_free(snapshot);
    }
}

// Decided, and it waits for a baseline that is down.
TEST(a_rollback_that_waits_is_a_fail)
{
    struct snapshot *snapshot = world_rollout();
    world_state(snapshot, "running", "why it is so");
    snapshot->stages[1].result = "passed";
    snapshot->rolls_back = true;
    CHECK_STR(gate(snapshot, ""), "fail");
    CHECK_CONTAINS(world_body(), "to be rolled back: why it is so");
    CHECK_STR(gate(snapshot, "?stage=0"), "fail");
    check_hooks(snapshot, false, true, 403);
    snapshot_free(snapshot);
}

TEST(a_dead_controller_passes_nothing)
{
    for (int i = 0; i < 3; i++) {
        struct snapshot *snapshot = world_rollout();
        snapshot->controlled = i != 0;
        snapshot->heartbeat_ns = i == 1 ? WORLD_WALL_NS - 31 * WORLD_SECOND
                : i == 2                ? WORLD_WALL_NS + 3600 * WORLD_SECOND
                                        : WORLD_WALL_NS;
        CHECK_STR(gate(snapshot, "?stage=0"), "inconclusive");
        snapshot->wanted = 25;
        check_hooks(snapshot, false, false, 412);
        snapshot_free(snapshot);
    }
}

TEST(old_answers_know_nothing)
{
    struct snapshot *snapshot = world_rollout();
    world_state(snapshot, "promoted", "all stages passed");
    CHECK_INT(world_ask_at(snapshot, CALL_GET, "/v1/gate/ranker", NULL, 9 * WORLD_SECOND), 200);
    CHECK_CONTAINS(world_body(), "\"verdict\":\"pass\"");
    CHECK_INT(world_ask_at(snapshot, CALL_GET, "/v1/gate/ranker?stage=0", NULL, 11 * WORLD_SECOND),
            200);
    CHECK_CONTAINS(world_body(), "\"verdict\":\"inconclusive\"");
    CHECK_INT(world_ask_at(snapshot, CALL_POST, "/v1/flagger/ranker/confirm-promotion",
                      WORLD_PAYLOAD, 11 * WORLD_SECOND),
            412);
    CHECK_INT(world_ask_at(snapshot, CALL_GET, "/healthz", NULL, 11 * WORLD_SECOND), 503);
    CHECK_INT(world_ask_at(snapshot, CALL_GET, "/metrics", NULL, 11 * WORLD_SECOND), 200);
    CHECK_CONTAINS(
            world_body(), "gate_verdict{rollout=\"ranker\",metric=\"all\",stage=\"all\"} 1\n");
    CHECK(!strstr(world_body(), "canary_state"));
    // the thread lives, the store cannot be read
    snapshot->read_ns = WORLD_MONOTONIC_NS - 11 * WORLD_SECOND;
    CHECK_STR(gate(snapshot, ""), "inconclusive");
    snapshot_free(snapshot);
}

TEST(traffic_increases_as_the_controller_wants)
{
    struct snapshot *snapshot = world_rollout();
    CHECK_INT(hook(snapshot, "confirm-traffic-increase"), 403);
    snapshot->wanted = 25; // decided: the proxy, here Flagger, has not done it yet
    CHECK_INT(hook(snapshot, "confirm-traffic-increase"), 200);
    CHECK_INT(hook(snapshot, "confirm-promotion"), 403);
    CHECK_INT(world_ask(snapshot, CALL_POST, "/v1/flagger/ranker/confirm-traffic-increase?stage=1",
                      WORLD_PAYLOAD),
            403);
    snapshot->percent = 25;
    CHECK_INT(hook(snapshot, "confirm-traffic-increase"), 403);
    snapshot->percent = NAN;
    CHECK_INT(hook(snapshot, "confirm-traffic-increase"), 403);
    snapshot->percent = 5;
    world_state(snapshot, "paused", "by a person");
    CHECK_INT(hook(snapshot, "confirm-traffic-increase"), 409);
    snapshot_free(snapshot);
}

TEST(stages_of_flagger)
{
    struct snapshot *snapshot = world_rollout();
    const char *path = "/v1/flagger/ranker/confirm-rollout";
    CHECK_INT(world_ask(snapshot, CALL_POST, path,
                      "{\"name\":\"a\",\"phase\":\"Waiting\",\"metadata\":{\"stage\":\"shadow\"}}"),
            200);
    CHECK_INT(world_ask(snapshot, CALL_POST, path,
                      "{\"name\":\"a\",\"phase\":\"Waiting\",\"metadata\":{\"stage\":\"9\"}}"),
            404);
    CHECK_INT(world_ask(snapshot, CALL_POST, "/v1/flagger/ranker/confirm-rollout?stage=0",
                      WORLD_PAYLOAD),
            200);
    CHECK_INT(world_ask(snapshot, CALL_POST, path,
                      "{\"name\":\"a\",\"phase\":\"Waiting\",\"metadata\":null}"),
            403);
    snapshot_free(snapshot);
}

TEST(exact_paths_only)
{
    static const char *const nowhere[] = {"/", "/v1/gate", "/v1/gate/", "/v1/gate/other",
            "/v1/gate/ranker/", "/v1/gate/ranker/x", "//v1/gate/ranker", "/v1/gate/Ranker",
            "/V1/gate/ranker", "/v1/flagger/ranker", "/v1/flagger/ranker/rollbacks",
            "/v1/flagger/ranker/rollback/", "/v1/flagger/other/rollback", "/metrics/",
            "/api/v1/queries", "/api/v1/query_range", "/healthz/x", "/v1/gate/ranker%2f",
            "/v1/gate/.%2e/gate/ranker"};
    struct snapshot *snapshot = world_rollout();
    world_state(snapshot, "rolled_back", "p99");
    for (size_t i = 0; i < sizeof nowhere / sizeof *nowhere; i++) {
        CHECK_INT(world_ask(snapshot, CALL_GET, nowhere[i], NULL), 404);
        CHECK_INT(world_ask(snapshot, CALL_POST, nowhere[i], WORLD_PAYLOAD), 404);
    }
    // the same name, written otherwise
    CHECK_INT(world_ask(snapshot, CALL_GET, "/v1/gate/ran%6ber", NULL), 200);
    static const char *const malformed[] = {"", "v1/gate/ranker", "*", "http://x/v1/gate/ranker",
            "/v1/gate/ranker%", "/v1/gate/ranker%0", "/v1/gate/%00", "/v1/gate/ranker?stage=%zz",
            "/v1/gate/ranker#x", "/v1/gate/\nranker", "/v1/gate/ranker%0d%0a"};
    for (size_t i = 0; i < sizeof malformed / sizeof *malformed; i++)
        CHECK_INT(world_ask(snapshot, CALL_GET, malformed[i], NULL), 400);
    CHECK_INT(world_ask(snapshot, CALL_GET, "/a/b/c/d/e/f/g/h/i", NULL), 414);
    char longer[6000] = "/v1/gate/";
    memset(longer + 9, 'a', sizeof longer - 10);
    CHECK_INT(world_ask(snapshot, CALL_GET, longer, NULL), 414);
    snapshot_free(snapshot);
}

TEST(wrong_requests)
{
    struct snapshot *snapshot = world_rollout();
    world_state(snapshot, "rolled_back", "p99");
    CHECK_INT(world_ask(snapshot, CALL_POST, "/v1/gate/ranker", WORLD_PAYLOAD), 405);
    // a probe is no order to go back
    CHECK_INT(world_ask(snapshot, CALL_GET, "/v1/flagger/ranker/rollback", NULL), 405);
    CHECK_INT(world_ask(snapshot, CALL_HEAD, "/v1/flagger/ranker/rollback", NULL), 405);
    CHECK_INT(world_ask(snapshot, CALL_OTHER, "/v1/gate/ranker", NULL), 405);
    CHECK_INT(world_ask(snapshot, CALL_POST, "/metrics", ""), 405);
    CHECK_INT(world_ask(snapshot, CALL_GET, "/v1/gate/ranker?stge=1", NULL), 400);
    CHECK_INT(world_ask(snapshot, CALL_GET, "/v1/gate/ranker?stage=1&stage=0", NULL), 400);
    CHECK_INT(world_ask(snapshot, CALL_GET, "/v1/gate/ranker?stage=9", NULL), 404);
    CHECK_INT(world_ask(snapshot, CALL_GET, "/v1/gate/ranker?stage=", NULL), 404);
    static const char *const bodies[] = {NULL, "", "{}", "[]", "null", "x", "{\"name\":\"a\"}",
            "{\"phase\":\"Failed\"}", "{\"name\":\"\",\"phase\":\"x\"}",
            "{\"name\":1,\"phase\":\"x\"}", "{\"name\":\"a\",\"phase\":\"x\",\"metadata\":[]}",
            "{\"name\":\"a\",\"name\":\"b\",\"phase\":\"x\"}", "{\"name\":\"a\",\"phase\":\"x\"}}"};
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++)
        CHECK_INT(world_ask(snapshot, CALL_POST, "/v1/flagger/ranker/rollback", bodies[i]), 400);
    snapshot_free(snapshot);
}

TEST(runs_of_ab)
{
    struct snapshot *snapshot = world_run("pass");
    CHECK_STR(gate(snapshot, ""), "pass");
    CHECK_CONTAINS(
            world_body(), "\"final\":true,\"retry_after_s\":null,\"evidence\":{\"pairs\":10");
    CHECK_INT(world_ask(snapshot, CALL_GET, "/v1/gate/ranker?stage=1", NULL), 404);
    check_hooks(snapshot, true, false, 0);
    snapshot->run_kind = "aa"; // the baseline against itself
    CHECK_STR(gate(snapshot, ""), "inconclusive");
    check_hooks(snapshot, false, false, 412);
    snapshot->run_kind = "ab";
    snapshot->run_state = "running";
    CHECK_STR(gate(snapshot, ""), "inconclusive");
    snapshot_free(snapshot);
    snapshot = world_run("fail");
    CHECK_STR(gate(snapshot, ""), "fail");
    check_hooks(snapshot, false, true, 403);
    snapshot_free(snapshot);
    snapshot = world_run("inconclusive");
    CHECK_STR(gate(snapshot, ""), "inconclusive");
    check_hooks(snapshot, false, false, 412);
    snapshot_free(snapshot);
    snapshot = world_run(NULL);
    CHECK_STR(gate(snapshot, ""), "inconclusive");
    CHECK_CONTAINS(world_body(), "not judged yet");
    snapshot_free(snapshot);
}

TEST(what_needs_no_token)
{
    static const char *const closed[] = {"/", "", "/v1/gate/ranker", "/metrics/", "/metricsx",
            "/healthz/", "/v1/gate/healthz", "?/healthz", "/healthz%20"};
    for (size_t i = 0; i < sizeof closed / sizeof *closed; i++)
        CHECK(!answers_open(closed[i], strlen(closed[i]), true));
    CHECK(answers_open("/healthz", 8, false) && answers_open("/healthz?x", 10, false));
    CHECK(!answers_open("/metrics", 8, false) && answers_open("/metrics", 8, true));
}
