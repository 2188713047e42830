// SPDX-License-Identifier: Apache-2.0
// The rollout plan: what is bound, what is refused and where, JSON both ways, what changed.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/strings.h"
#include "harness/canary/plan/foresight.h"
#include "harness/canary/plan/rollout.h"
#include "tests/unit/runner.h"

static struct error err;

static int load(const char *text, struct rollout **ret)
{
    char path[] = "/tmp/test_rollout_XXXXXX";
    int fd = mkstemp(path);
    CHECK(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
    err = (struct error){0};
    *ret = NULL;
    int rc = rollout_load(path, ret, &err);
    unlink(path);
    return rc;
}

// The example of INTERFACES.md.
static const char example[] =
        "name: ranker-2.6\n"
        "store: ranker.rollout.db\n"
        "traffic:\n"
        "  haproxy: {socket: /run/haproxy/admin.sock, backend: ranker, baseline: old, candidate: new}\n"
        "sources:\n"
        "  - haproxy_log: {listen: \"127.0.0.1:5514\"}\n"
        "  - prometheus: {url: \"http://127.0.0.1:9090\", baseline: {errors: E, requests: R}, candidate: {errors: F, requests: S}}\n"
        "  - jsonl: {baseline: old.jsonl, candidate: new.jsonl}\n"
        "stages:\n"
        "  - {percent: 0, name: shadow, mirror: 5%, requests: 500}\n"
        "  - {percent: 5, name: aa, soak: 30s}\n"
        "  - {percent: 1, soak: 30s, requests: 200}\n"
        "  - {percent: 25, soak: 30s}\n"
        "  - {percent: 100, soak: 60s}\n"
        "windows: [{days: mon-thu, from: \"09:00\", to: \"16:00\", zone: Europe/Berlin}]\n"
        "freeze: [\"2026-12-20/2027-01-02\"]\n"
        "gate:\n"
        "  alpha: 1%\n"
        "  metrics: {error_rate: {margin: 50%}, latency_p99: {margin: 10%}, wrong_answers: {limit: 0}}\n"
        "  tripwires: {error_rate: 20%, unreachable: 3}\n"
        "rollback: {drain: 30s}\n"
        "shadow: {baseline: \"http://127.0.0.1:8001\", candidate: \"http://127.0.0.1:8002\", requests: r.jsonl, methods: [POST]}\n";

TEST(the_example_is_bound)
{
    struct rollout *rollout;
    if (load(example, &rollout))
        runner_fail(__FILE__, __LINE__, "%s", err.text);
    CHECK_STR(rollout->name, "ranker-2.6");
    CHECK_STR(rollout->store, "ranker.rollout.db");
    CHECK_INT(rollout->traffic.kind, ROLLOUT_HAPROXY);
    CHECK_STR(rollout->traffic.servers[CANARY_CANDIDATE], "new");
    CHECK_INT(rollout->traffic.timeout_ns, 10000000000);
    CHECK_INT(rollout->traffic.retries, 3);
    CHECK_INT(rollout->source_count, 3);
    CHECK_INT(rollout->sources[1].kind, ROLLOUT_PROMETHEUS);
    CHECK_STR(rollout->sources[1].queries[CANARY_CANDIDATE].errors, "F");
    CHECK_INT(rollout->sources[1].step_ns, 5000000000);
    CHECK_STR(rollout->sources[2].paths[CANARY_BASELINE], "old.jsonl");
    CHECK_INT(rollout->stage_count, 5);
    CHECK_DBL(rollout->stages[0].mirror, 0.05, 1e-12);
    CHECK(rollout->stages[1].aa && !rollout->stages[2].aa);
    CHECK_STR(rollout->stages[2].name, "1%");
    CHECK_INT(rollout->stages[2].requests, 200);
    CHECK_INT(rollout->stages[2].patience_ns, 600000000000);
    CHECK_INT(rollout->stages[4].patience_ns, 605000000000); // 10 soaks and the warm-up
    CHECK_INT(rollout->windows[0].days, 0x0f);
    CHECK_INT(rollout->windows[0].from_min, 540);
    CHECK_STR(rollout->freezes[0].to, "2027-01-02");
    CHECK_DBL(rollout->rules.alpha, 0.01, 1e-12);
    CHECK_DBL(rollout->rules.metrics[CANARY_ERROR_RATE].margin, 0.5, 1e-12);
    CHECK(isnan(rollout->rules.metrics[CANARY_ERROR_RATE].limit));
    CHECK_DBL(rollout->rules.metrics[CANARY_WRONG_ANSWERS].limit, 0, 0);
    CHECK(!rollout->rules.metrics[CANARY_LATENCY_MEAN].gated &&
            !rollout->rules.metrics[CANARY_LATENCY_MEAN].observed);
    CHECK_INT(rollout->unreachable, 3);
    CHECK_STR(rollout->shadow.requests, "r.jsonl");
    CHECK_STR(rollout->shadow.methods[0], "POST");
    CHECK_INT(rollout->drain_ns, 30000000000);
    CHECK_INT(rollout->stale_ns, 30000000000);
    rollout_free(rollout);
}

// As it stands in INTERFACES.md, where the shadow stage's section is left out: `canary run` says
// what it needs.
TEST(the_contract_itself)
{
    struct rollout *rollout;
    char *text = xstrdup(example);
    *strstr(text, "shadow: {baseline") = 0;
    CHECK_INT(load(text, &rollout), 0);
    CHECK(!rollout->shadow_urls[CANARY_BASELINE]);
    rollout_free(rollout);
    free(text);
}

#define HEAD \
    "name: r\ntraffic:\n  hooks: {set: [s, \"{percent}\"], get: [g]}\nsources: [{jsonl: {baseline: a, candidate: b}}]\n" // lines 1-4
#define REST "sources: [{jsonl: {baseline: a, candidate: b}}]\n" STAGES
#define STAGES "stages: [{percent: 100}]\n" // line 5

TEST(defaults)
{
    struct rollout *rollout;
    CHECK_INT(load(HEAD STAGES, &rollout), 0);
    CHECK_STR(rollout->store, "r.rollout.db");
    CHECK_INT(rollout->traffic.kind, ROLLOUT_HOOKS);
    CHECK_STR(rollout->traffic.set[1], "{percent}");
    CHECK(rollout->rules.metrics[CANARY_ERROR_RATE].gated &&
            rollout->rules.metrics[CANARY_LATENCY_P99].gated);
    CHECK(rollout->rules.metrics[CANARY_LATENCY_P50].gated &&
            !rollout->rules.metrics[CANARY_LATENCY_MEAN].gated);
    CHECK_DBL(rollout->rules.metrics[CANARY_LATENCY_P50].margin,
            rollout->rules.metrics[CANARY_LATENCY_P99].margin, 0);
    CHECK_DBL(rollout->rules.tripwire_error_rate, 0.2, 1e-12);
    CHECK_INT(rollout->window_count + rollout->freeze_count, 0);
    rollout_free(rollout);
}

// What is only observed has a threshold, too: a rule without one would be no number to the
// mathematics.
TEST(an_observed_metric)
{
    struct rollout *rollout;
    CHECK_INT(
            load(HEAD STAGES
                    "gate: {metrics: {error_rate: {margin: 9%}, latency_p50: {observe: true}, wrong_answers: {observe: true}}}\n",
                    &rollout),
            0);
    CHECK(rollout->rules.metrics[CANARY_LATENCY_P50].observed &&
            !rollout->rules.metrics[CANARY_LATENCY_P50].gated);
    CHECK_DBL(rollout->rules.metrics[CANARY_LATENCY_P50].margin, 0.1, 1e-12);
    CHECK_DBL(rollout->rules.metrics[CANARY_WRONG_ANSWERS].limit, 0, 0);
    rollout_free(rollout);
}

#define PROMETHEUS "name: r\ntraffic: {hooks: {url: u}}\nsources: [{prometheus: {url: \"u\", "

// Requests by one source, wrong answers by Prometheus.
TEST(prometheus_beside_another_source)
{
    struct rollout *rollout;
    CHECK_INT(load(PROMETHEUS
                      "candidate: {wrong: W}}}, {jsonl: {baseline: a, candidate: b}}]\n" STAGES,
                      &rollout),
            0);
    CHECK_STR(rollout->sources[0].queries[CANARY_CANDIDATE].wrong, "W");
    CHECK(!rollout->sources[0].queries[CANARY_CANDIDATE].requests);
    json_t *json = rollout_to_json(rollout);
    rollout_free(rollout);
    CHECK_INT(rollout_from_json(json, &rollout, &err), 0);
    CHECK_STR(rollout->sources[0].queries[CANARY_CANDIDATE].wrong, "W");
    rollout_free(rollout);
    json_decref(json);
}

// Rejected requests are judged where the plan names no metrics, unless a source of requests cannot
// tell them.
TEST(rejected_where_they_are_told)
{
    static const char *const asked[] = {
            "requests: R, errors: E", "requests: R, errors: E, rejected: J"};
    struct rollout *rollout;
    CHECK_INT(load(HEAD STAGES, &rollout), 0);
    CHECK(rollout->rules.metrics[CANARY_REJECTED_RATE].gated);
    CHECK_DBL(rollout->rules.metrics[CANARY_REJECTED_RATE].margin, 0.5, 0);
    rollout_free(rollout);
    for (int told = 0; told < 2; told++) {
        char *text = xasprintf(
                PROMETHEUS "baseline: {%s}, candidate: {%s}}}]\n" STAGES, asked[told], asked[told]);
        CHECK_INT(load(text, &rollout), 0);
        CHECK_INT(rollout->rules.metrics[CANARY_REJECTED_RATE].gated, told);
        rollout_free(rollout);
        char *named = xasprintf("%sgate: {metrics: {rejected_rate: {margin: 20%%}}}\n", text);
        CHECK_INT(load(named, &rollout), told ? 0 : -EINVAL);
        if (told)
            rollout_free(rollout);
        else
            CHECK_CONTAINS(err.text,
                    "baseline lacks the key 'rejected', and the metric rejected_rate is judged by it");
        free(named);
        free(text);
    }
}

// So are wrong answers; where they are named and nothing tells of one, that is no plan.
TEST(wrong_answers_where_they_are_told)
{
    static const char *const asked[] = {
            "requests: R, errors: E", "requests: R, errors: E, wrong: W"};
    struct rollout *rollout, *back = NULL;
    for (int told = 0; told < 2; told++) {
        char *text = xasprintf(
                PROMETHEUS "baseline: {%s}, candidate: {%s}}}]\n" STAGES, asked[0], asked[told]);
        CHECK_INT(load(text, &rollout), 0);
        CHECK_INT(rollout->rules.metrics[CANARY_WRONG_ANSWERS].gated, told);
        CHECK(rollout->rules.metrics[CANARY_ERROR_RATE].gated);
        json_t *json = rollout_to_json(rollout), *again;
        rollout_free(rollout);
        CHECK_INT(rollout_from_json(json, &back, &err), 0);
        again = rollout_to_json(back);
        CHECK(json_equal(json, again));
        json_decref(again);
        rollout_free(back);
        // As an older version stored it, which passed them: it can be read, and it is the same
        // plan.
        json_object_set_new(json_object_get(json_object_get(json, "gate"), "metrics"),
                "wrong_answers", json_pack("{s:f,s:b}", "limit", 0.0, "observe", 0));
        CHECK_INT(rollout_from_json(json, &back, &err), 0);
        CHECK_INT(back->rules.metrics[CANARY_WRONG_ANSWERS].gated, told);
        rollout_free(back);
        json_decref(json);
        char *named = xasprintf("%sgate: {metrics: {wrong_answers: {limit: 0}}}\n", text);
        CHECK_INT(load(named, &rollout), told ? 0 : -EINVAL);
        if (told)
            rollout_free(rollout);
        else
            CHECK_CONTAINS(err.text, "wrong_answers is judged, and nothing tells of any");
        free(named);
        // What is only shown may be named, and is found as it was: else a restart would take it for
        // a changed plan.
        char *shown = xasprintf(
                "%sgate: {metrics: {error_rate: {margin: 9%%}, wrong_answers: {observe: true}}}\n",
                text);
        CHECK_INT(load(shown, &rollout), 0);
        json = rollout_to_json(rollout);
        rollout_free(rollout);
        CHECK_INT(rollout_from_json(json, &back, &err), 0);
        again = rollout_to_json(back);
        CHECK(json_equal(json, again));
        json_decref(again);
        json_decref(json);
        rollout_free(back);
        free(shown);
        free(text);
    }
    CHECK_INT(load(PROMETHEUS
                      "baseline: {requests: R, errors: E}, candidate: {requests: R, errors: E}}}]\n"
                      "stages: [{percent: 0, name: shadow, mirror: 5%}, {percent: 100}]\n",
                      &rollout),
            0);
    CHECK(rollout->rules.metrics[CANARY_WRONG_ANSWERS].gated); // its answers are compared
    rollout_free(rollout);
}

struct bad {
    const char *text, *where, *what;
};

TEST(what_is_wrong_is_refused_where_it_stands)
{
    static const struct bad cases[] = {
            {HEAD STAGES "sotre: x\n",
                    ":6:1: ", "unknown key 'sotre' of the rollout plan; did you mean 'store'?"},
            {HEAD "stages: [{percent: 100, saok: 3s}]\n",
                    ":5:25: ", "unknown key 'saok' of a stage; did you mean 'soak'?"},
            {HEAD STAGES "alpha: 1%\n", ":6:1: ", "it belongs to 'gate.alpha'"},
            {"name: r\ntraffic: {haproxi: {}}\n" REST, ":2:11: ", "did you mean 'haproxy'?"},
            {"name: r\ntraffic: {}\n" REST, ":2:10: ", "traffic is exactly one of: haproxy, hooks"},
            {"name: r\ntraffic: {haproxy: {socket: s, backend: b, baseline: o, candidate: n}, hooks: {url: u}}\n" REST,
                    ":2:10: ", "exactly one"},
            {"name: r\ntraffic: {haproxy: {socket: s, backend: b, baseline: o}}\n" REST,
                    ":2:20: ", "haproxy lacks the key 'candidate'"},
            {"name: r\ntraffic: {hooks: {set: [s, \"{percent}\"]}}\nsources: [{jsonl: {baseline: a, candidate: b}}]\n" STAGES,
                    ":2:18: ", "hooks need 'set' and 'get'"},
            {"name: r\ntraffic: {hooks: {set: [s], get: [g]}}\nsources: [{jsonl: {baseline: a, candidate: b}}]\n" STAGES,
                    ":2:24: ", "no {percent}"},
            {"name: ../r\ntraffic: {hooks: {url: u}}\nsources: [{jsonl: {baseline: a, candidate: b}}]\n" STAGES,
                    ":1:7: ", "name of a file"},
            {"name: r\ntraffic: {hooks: {url: u}}\nsources: [{jsonl: {baseline: a, candidate: a}}]\n" STAGES,
                    ":3:", "from one file"},
            {"name: r\ntraffic: {hooks: {url: u}}\nsources: [{haproxy_log: {}}]\n" STAGES,
                    ":3:", "either 'listen' or 'file'"},
            {PROMETHEUS "baseline: {requests: R, errors: E}, candidate: {requests: R}}}]\n" STAGES,
                    ":3:82: ", "candidate lacks the key 'errors'"},
            {PROMETHEUS "baseline: {requests: R, errors: E}}}]\n" STAGES,
                    ":3:24: ", "candidate lacks the key 'requests'"},
            {PROMETHEUS "candidate: {errors: E, wrong: W}}}]\n" STAGES,
                    ":3:46: ", "'errors' without 'requests'"},
            {PROMETHEUS "}}]\n" STAGES, ":3:24: ", "prometheus is asked nothing"},
            {PROMETHEUS "step: 100s, candidate: {wrong: W}}}]\n" STAGES, ":3:41: ", "out of range"},
            {"name: r\ntraffic: {hooks: {url: u}}\nsources: []\n" STAGES, ":3:10: ", "empty list"},
            {HEAD "stages: [{percent: 5}]\n", ":5:9: ", "the last stage must be 100 %"},
            {HEAD "stages: [{percent: 5}, {percent: 5, name: b}, {percent: 100}]\n",
                    ":5:34: ", "the percents must rise: 5 after 5"},
            {HEAD "stages: [{percent: 0}, {percent: 100}]\n",
                    ":5:20: ", "0 % is a stage of nothing"},
            {HEAD "stages: [{percent: 5}, {percent: 5, name: aa}, {percent: 100}]\n",
                    ":5:24: ", "comes before those with it"},
            {HEAD "stages: [{percent: 100, soak: 20min, patience: 10min}]\n",
                    ":5:48: ", "shorter than warm-up and soak"},
            {HEAD "stages: [{percent: 101}]\n", ":5:20: ", "out of range"},
            {HEAD STAGES "windows: [{days: mon-fry}]\n", ":6:11: ", "'mon-fry' are no days"},
            {HEAD STAGES "windows: [{from: \"9:00\"}]\n", ":6:11: ", "no time of day"},
            {HEAD STAGES "windows: [{zone: Europe/Berlim}]\n",
                    ":6:11: ", "time zone 'Europe/Berlim'"},
            {HEAD STAGES "windows: [{zone: ../../etc/passwd}]\n", ":6:11: ", "time zone"},
            {HEAD STAGES "windows: [{from: \"10:00\", to: \"10:00\"}]\n", ":6:11: ", "no length"},
            {HEAD STAGES "freeze: [2026-02-30]\n", ":6:10: ", "no days such as"},
            {HEAD STAGES "freeze: [2026-03-02/2026-03-01]\n", ":6:10: ", "ends before it begins"},
            {HEAD STAGES "gate: {metrics: {eror_rate: {margin: 1%}}}\n",
                    ":6:18: ", "did you mean 'error_rate'?"},
            {HEAD STAGES "gate: {metrics: {error_rate: {limit: 1}}}\n",
                    ":6:30: ", "has a margin and no limit"},
            {HEAD STAGES "gate: {metrics: {wrong_answers: {margin: 1%}}}\n",
                    ":6:33: ", "has a limit, a count"},
            {HEAD STAGES "gate: {metrics: {latency_p99: {}}}\n", ":6:31: ", "lacks its margin"},
            {HEAD STAGES "gate: {metrics: {latency_p99: {observe: true}}}\n",
                    ":6:17: ", "every metric is only observed"},
            {HEAD STAGES "gate: {tripwires: {error_rate: 0}}\n", ":6:32: ", "out of range"},
            {HEAD STAGES "why: {record: true, baseline: {pid: 1}}\n",
                    ":6:6: ", "either its pid or its cgroup"},
            {HEAD STAGES "preflight: {free_memory: lots}\n", ":6:26: ", "lots"},
            {HEAD "stages: [{percent: 100}]\nstages: [{percent: 100}]\n",
                    ":6:1: ", "duplicate key"},
            {HEAD, ":1:1: ", "lacks the key 'stages'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct rollout *rollout;
        CHECK_INT(load(cases[i].text, &rollout), -EINVAL);
        CHECK(!rollout);
        CHECK_CONTAINS(err.text, cases[i].where);
        CHECK_CONTAINS(err.text, cases[i].what);
    }
}

TEST(json_both_ways)
{
    struct rollout *rollout, *back = NULL;
    CHECK_INT(load(example, &rollout), 0);
    json_t *json = rollout_to_json(rollout);
    char *text = json_dumps(json, JSON_COMPACT);
    json_t *read = json_loads(text, 0, NULL);
    if (rollout_from_json(read, &back, &err))
        runner_fail(__FILE__, __LINE__, "%s", err.text);
    json_t *again = rollout_to_json(back);
    CHECK(json_equal(json, again));
    CHECK(isnan(back->rules.metrics[CANARY_ERROR_RATE].limit) &&
            back->rules.metrics[CANARY_ERROR_RATE].gated);
    CHECK_INT(back->windows[0].days, 0x0f);
    CHECK(back->stages[1].aa);
    char *same = rollout_changes(json, again);
    CHECK_STR(same, "");
    free(same);
    json_decref(json);
    json_decref(read);
    json_decref(again);
    free(text);
    rollout_free(back);
    rollout_free(rollout);
}

TEST(what_changed_is_told)
{
    struct rollout *old, *new;
    CHECK_INT(load(HEAD "stages: [{percent: 10, soak: 3s}, {percent: 100}]\n", &old), 0);
    CHECK_INT(
            load(HEAD
                    "stages: [{percent: 10, soak: 4s}, {percent: 100}]\ngate: {alpha: 5%}\nfreeze: [2026-12-24]\n",
                    &new),
            0);
    json_t *a = rollout_to_json(old), *b = rollout_to_json(new);
    char *changes = rollout_changes(a, b);
    CHECK_CONTAINS(changes, "stages.0.soak_ns (was 3000000000, is 4000000000)");
    CHECK_CONTAINS(changes, "gate.alpha (was 0.01, is 0.05)");
    CHECK_CONTAINS(changes, "freeze (was [], is [\"2026-12-24/2026-12-24\"])");
    CHECK(!strstr(changes, "traffic"));
    free(changes);
    json_decref(a);
    json_decref(b);
    rollout_free(old);
    rollout_free(new);
}

TEST(what_changed_is_told_without_passwords)
{
    json_t *a = json_pack(
            "{s:{s:{s:s,s:i}}}", "traffic", "hooks", "url", "http://ann:secret@h/", "retries", 3);
    json_t *b = json_pack(
            "{s:{s:{s:s,s:i}}}", "traffic", "hooks", "url", "http://ann:newer@h/", "retries", 3);
    char *changes = rollout_changes(a, b);
    CHECK_STR(changes, "traffic.hooks.url (another one)");
    free(changes);
    json_decref(a);
    json_decref(b);
}

// A store may come from anywhere: none of these ends in a crash, all are refused.
TEST(json_that_upgate_did_not_write)
{
    static const char *const documents[] = {
            "[]",
            "{}",
            "{\"schema\":\"upgate.plan/1\"}",
            "{\"schema\":\"upgate.rollout-plan/1\"}",
            "{\"schema\":\"upgate.rollout-plan/1\",\"name\":7}",
            "{\"schema\":\"upgate.rollout-plan/1\",\"name\":\"r\",\"traffic\":{},\"sources\":[{}],\"stages\":[{}]}",
            "{\"schema\":\"upgate.rollout-plan/1\",\"name\":\"r\",\"traffic\":{\"haproxy\":{}},\"sources\":[{\"jsonl\":{}}],\"stages\":[{\"percent\":100}]}",
            "{\"schema\":\"upgate.rollout-plan/1\",\"name\":\"r\",\"traffic\":{\"hooks\":{\"url\":\"u\"}},\"sources\":[{\"jsonl\":{}}],\"stages\":[{\"percent\":100}]}",
            "{\"schema\":\"upgate.rollout-plan/1\",\"name\":\"r\",\"traffic\":{\"hooks\":{\"url\":\"u\"}},\"sources\":[{\"jsonl\":{\"baseline\":\"a\",\"candidate\":\"b\"}}],\"stages\":[{\"percent\":7}]}",
            "{\"schema\":\"upgate.rollout-plan/1\",\"name\":\"r\",\"traffic\":{\"hooks\":{\"url\":\"u\"}},\"sources\":[{\"tea\":{}}],\"stages\":[{\"percent\":100}]}",
            "{\"schema\":\"upgate.rollout-plan/1\",\"name\":\"r\",\"traffic\":{\"hooks\":{\"url\":\"u\"}},\"windows\":[{\"days\":\"x\"}],\"sources\":[],\"stages\":[]}",
    };
    for (size_t i = 0; i < sizeof documents / sizeof *documents; i++) {
        struct rollout *rollout = NULL;
        json_t *json = json_loads(documents[i], 0, NULL);
        CHECK(json != NULL);
        CHECK_INT(rollout_from_json(json, &rollout, &err), -EBADMSG);
        CHECK_CONTAINS(err.text, "the stored rollout plan");
        CHECK(!rollout);
        json_decref(json);
    }
}

TEST(the_example_files_of_others_are_refused)
{
    struct rollout *rollout;
    CHECK_INT(load("baseline: {python: a}\ncandidate: {python: b}\nworkloads: []\n", &rollout),
            -EINVAL);
    CHECK_CONTAINS(err.text, "unknown key 'baseline' of the rollout plan");
    CHECK_INT(rollout_load("/no/such/rollout.yaml", &rollout, &err), -EINVAL);
}

static char *foresight(const char *more)
{
    struct rollout *rollout;
    char *text = NULL;
    size_t size = 0;
    CHECK_INT(load(more, &rollout), 0);
    FILE *file = open_memstream(&text, &size);
    foresight_print(rollout, file);
    fclose(file);
    json_t *json = foresight_to_json(rollout);
    CHECK_INT(json_array_size(json_object_get(json, "stages")), 3);
    json_decref(json);
    rollout_free(rollout);
    return text;
}

TEST(foresight_says_what_is_not_seen)
{
    char *text = foresight(HEAD
            "stages: [{percent: 1, soak: 10s, patience: 15s}, {percent: 50, soak: 20s}, {percent: 100, soak: 10s}]\n"
            "expected: {rate: 200/s}\n");
    CHECK_CONTAINS(text, "20 requests of the candidate");
    CHECK_CONTAINS(text, "latency_p99    1.2"); // of 2000
    CHECK_CONTAINS(text, "is found in 8 of 10");
    CHECK_CONTAINS(text, "longer than its patience");
    free(text);
    text = foresight(HEAD
            "stages: [{percent: 1, soak: 10s, patience: 15s}, {percent: 50, soak: 20s}, {percent: 100, soak: 10s}]\n"
            "expected: {rate: 2/s}\n");
    CHECK_CONTAINS(text, "no change is found"); // of none
    CHECK(!strstr(text, "not seen"));
    free(text);
}

// Not refused, for the contract's own example has none between 25 and 100.
TEST(a_plan_without_a_stage_of_half_the_traffic_is_told_so)
{
    static const struct {
        const char *stages, *says;
    } cases[] = {{"[{percent: 1}, {percent: 25}, {percent: 100}]", "(25 %, then 100 %)"},
            {"[{percent: 60, name: aa}, {percent: 5}, {percent: 100}]", "(5 %, then 100 %)"},
            {"[{percent: 100}]", "no baseline is left: one"},
            {"[{percent: 1}, {percent: 50}, {percent: 100}]", NULL},
            {"[{percent: 99}, {percent: 100}]", NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct rollout *rollout;
        char *text = xasprintf(HEAD "stages: %s\n", cases[i].stages);
        CHECK_INT(load(text, &rollout), 0);
        char *advice = rollout_advice(rollout);
        CHECK_INT(advice != NULL, cases[i].says != NULL);
        if (advice)
            CHECK_CONTAINS(advice, cases[i].says);
        json_t *json = foresight_to_json(rollout);
        CHECK_INT(json_is_string(json_object_get(json, "advice")), cases[i].says != NULL);
        json_decref(json);
        free(advice);
        rollout_free(rollout);
        free(text);
    }
    char *text = foresight(HEAD "stages: [{percent: 1}, {percent: 25}, {percent: 100}]\n");
    CHECK_CONTAINS(text,
            "not seen: the candidate is first seen with more than half of the traffic when no baseline is left");
    free(text);
}
