// SPDX-License-Identifier: Apache-2.0
// /metrics and /api/v1/query of `upgate canary serve`: the text format, what Flagger and Argo ask,
// and what is refused.
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/unit/runner.h"
#include "tests/unit/serve_world.h"

// The value of the last sample, as Flagger takes it; *ret_count: of samples. NULL: none.
static const char *query(const struct snapshot *snapshot, const char *escaped, int *ret_count)
{
    static char value[64];
    char target[512];
    snprintf(target, sizeof target, "/api/v1/query?query=%s&time=1700000000.5", escaped);
    CHECK_INT(world_ask(snapshot, CALL_GET, target, NULL), 200);
    json_t *json = json_loads(world_body(), 0, NULL);
    const json_t *data = json_object_get(json, "data"), *result = json_object_get(data, "result");
    CHECK_STR(json_string_value(json_object_get(json, "status")), "success");
    CHECK_STR(json_string_value(json_object_get(data, "resultType")), "vector");
    *ret_count = (int)json_array_size(result);
    const json_t *sample =
            json_object_get(json_array_get(result, json_array_size(result) - 1), "value");
    CHECK(!*ret_count || json_is_number(json_array_get(sample, 0)));
    CHECK(!*ret_count || json_is_string(json_array_get(sample, 1))); // sample values are strings
    snprintf(value, sizeof value, "%s",
            *ret_count ? json_string_value(json_array_get(sample, 1)) : "");
    json_decref(json);
    return *ret_count ? value : NULL;
}

TEST(flaggers_first_question)
{
    struct snapshot *snapshot = snapshot_new("ranker");
    int count = 0;
    CHECK_STR(query(snapshot, "vector(1)", &count), "1");
    CHECK_STR(query(snapshot, "vector%281%29", &count), "1");
    CHECK_STR(query(snapshot, "+vector+(+1+)+", &count), "1");
    CHECK_STR(query(snapshot, "vector(-2.5)", &count), "-2.5");
    CHECK_INT(world_ask(snapshot, CALL_POST, "/api/v1/query", "query=vector%281%29&time=1"), 200);
    CHECK_CONTAINS(world_body(), "\"value\":[1700000000.0,\"1\"]");
    snapshot_free(snapshot);
}

TEST(verdicts)
{
    struct snapshot *snapshot = world_rollout();
    int count = 0;
    CHECK_STR(
            query(snapshot,
                    "gate_verdict%7Brollout%3D%22ranker%22,metric%3D%22all%22,stage%3D%22all%22%7D",
                    &count),
            "1");
    CHECK_INT(count, 1);
    CHECK_STR(query(snapshot, "gate_verdict{stage=\"0\"}", &count), "0");
    CHECK_STR(query(snapshot, "gate_verdict{stage='1',metric!='all'}", &count), "0");
    CHECK_INT(count, 2);
    // of several results Flagger takes the last: the whole rollout's
    CHECK_STR(query(snapshot, "gate_verdict", &count), "1");
    CHECK_INT(count, 6);
    CHECK(!query(snapshot, "gate_verdict{rollout=\"other\"}", &count));
    CHECK(!query(snapshot, "rollback_total", &count));
    CHECK_STR(query(snapshot, "gate_ratio{metric=\"latency_p99\",stage=\"1\",}", &count), "1.031");
    CHECK_STR(query(snapshot, "gate_verdict{__name__=\"gate_verdict\",workload=\"\",stage=\"all\"}",
                      &count),
            "1");
    world_state(snapshot, "rolled_back", "p99");
    CHECK_STR(query(snapshot, "gate_verdict{stage=\"0\"}", &count), "2");
    snapshot_free(snapshot);
}

TEST(what_is_no_question_of_ours)
{
    static const char *const wrong[] = {"vector(", "vector()", "vector(x)", "vector(nan)",
            "vector(1)%2B1", "vector(1e999)", "up", "1", "", "gate_verdict%5B5m%5D",
            "sum(gate_verdict)", "gate_verdict{stage=~\"1\"}", "gate_verdict{stage==\"1\"}",
            "gate_verdict{stage}", "gate_verdict{stage=\"1\"", "gate_verdict{stage=\"1}",
            "gate_verdict{stage=1}", "gate_verdict{=\"1\"}", "gate_verdict{a=\"b\"c=\"d\"}",
            "gate_verdict{a=\"\\x\"}", "gate_verdict%3E0", "gate_verdict{} offset 5m",
            "gate_verdict{,}", "{stage=\"1\"}"};
    struct snapshot *snapshot = world_rollout();
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char target[256];
        snprintf(target, sizeof target, "/api/v1/query?query=%s", wrong[i]);
        CHECK_INT(world_ask(snapshot, CALL_GET, target, NULL), 400);
        CHECK_CONTAINS(world_body(), "\"status\":\"error\",\"errorType\":\"bad_data\"");
    }
    CHECK_INT(world_ask(snapshot, CALL_GET, "/api/v1/query", NULL), 400);
    CHECK_INT(world_ask(snapshot, CALL_POST, "/api/v1/query", NULL), 400);
    CHECK_INT(world_ask(snapshot, CALL_POST, "/api/v1/query?query=vector(1)", "query=vector(2)"),
            400);
    CHECK_INT(world_ask(snapshot, CALL_POST, "/api/v1/query", "query=vector(2)&query=vector(1)"),
            400);
    CHECK_INT(world_ask(snapshot, CALL_POST, "/api/v1/query", "query=%f"), 400);
    snapshot_free(snapshot);
}

TEST(text_format)
{
    struct snapshot *snapshot = world_rollout();
    snapshot->sources = arena_alloc(snapshot->arena, 1, sizeof *snapshot->sources);
    snapshot->sources[0] = (struct snapshot_source){.kind = "haproxy_log",
            .number = 0,
            .seen = 10,
            .kept = 9,
            .dropped = 1,
            .lost = 0,
            .late = -1};
    snapshot->source_count = 1;
    snapshot->rules = arena_alloc(snapshot->arena, 1, sizeof *snapshot->rules);
    snapshot->rules[0] = (struct snapshot_rule){"a \"rule\"\\", 2};
    snapshot->rule_count = 1;
    snapshot->up[SNAPSHOT_CANDIDATE] = 0;
    CHECK_INT(world_ask(snapshot, CALL_GET, "/metrics", NULL), 200);
    CHECK_STR(world_type(), "text/plain; version=0.0.4; charset=utf-8");
    CHECK_CONTAINS(world_body(),
            "# TYPE gate_verdict gauge\ngate_verdict{rollout=\"ranker\",metric=\"error_rate\",stage=\"1\"} 1\n");
    CHECK_CONTAINS(world_body(),
            "gate_ratio_ci_upper{rollout=\"ranker\",metric=\"latency_p99\",stage=\"1\"} 1.039\n");
    // not known: no series
    CHECK(!strstr(world_body(), "gate_ratio_ci_upper{rollout=\"ranker\",metric=\"error_rate\""));
    CHECK_CONTAINS(world_body(),
            "canary_requests_total{rollout=\"ranker\",arm=\"candidate\",code=\"ok\"} 496\n");
    CHECK_CONTAINS(world_body(),
            "canary_requests_total{rollout=\"ranker\",arm=\"candidate\",code=\"error\"} 3\n");
    CHECK_CONTAINS(world_body(),
            "canary_requests_total{rollout=\"ranker\",arm=\"candidate\",code=\"truncated\"} 1\n");
    CHECK_CONTAINS(world_body(), "canary_weight{rollout=\"ranker\",arm=\"baseline\"} 95\n");
    CHECK_CONTAINS(world_body(), "canary_up{rollout=\"ranker\",arm=\"candidate\"} 0\n");
    CHECK(!strstr(world_body(), "canary_up{rollout=\"ranker\",arm=\"baseline\"}"));
    CHECK_CONTAINS(world_body(), "canary_state{rollout=\"ranker\",state=\"running\"} 1\n");
    CHECK_CONTAINS(world_body(), "canary_state{rollout=\"ranker\",state=\"paused\"} 0\n");
    CHECK_CONTAINS(
            world_body(), "rollback_total{rollout=\"ranker\",reason=\"a \\\"rule\\\"\\\\\"} 2\n");
    CHECK_CONTAINS(world_body(),
            "canary_source_seen_total{rollout=\"ranker\",source=\"0\",kind=\"haproxy_log\"} 10\n");
    CHECK(!strstr(world_body(), "canary_source_late_total"));
    snapshot_free(snapshot);
}

TEST(metrics_of_a_run)
{
    struct snapshot *snapshot = world_run("pass");
    CHECK_INT(world_ask(snapshot, CALL_GET, "/metrics", NULL), 200);
    CHECK_CONTAINS(world_body(),
            "gate_verdict{rollout=\"ranker\",metric=\"step_time\",workload=\"dlrm\"} 0\n");
    CHECK_CONTAINS(world_body(),
            "gate_pairs_total{rollout=\"ranker\",metric=\"step_time\",workload=\"dlrm\"} 10\n");
    CHECK_CONTAINS(
            world_body(), "gate_verdict{rollout=\"ranker\",metric=\"all\",stage=\"all\"} 0\n");
    CHECK(!strstr(world_body(), "canary_"));
    snapshot_free(snapshot);
}
