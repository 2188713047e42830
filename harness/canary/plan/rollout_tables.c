// SPDX-License-Identifier: Apache-2.0
// The keys of a rollout plan: one row each, with default and meaning; docs/rollout.md is made from
// it. Lists and maps with free keys are bound in rollout_lists.c, windows and freezes in
// rollout_windows.c.
#include "harness/canary/plan/rollout_internal.h"

// One row a key.
// clang-format off
#define ROW(name, type, member, ...) \
    {.key = name, .kind = type, .offset = offsetof(struct OWNER, member), __VA_ARGS__}
#define PART(name, table, ...) {.key = name, .kind = FIELD_MAP, .fields = table, __VA_ARGS__}
#define END {.kind = FIELD_END}

// --- traffic

#define OWNER rollout_traffic
#define CALLS \
    ROW("timeout", FIELD_DURATION, timeout_ns, .json = "timeout_ns", .default_text = "10s", .min = 1e7, .max = 3600e9, \
        .help = "of one command to the proxy, or one hook"), \
    ROW("retries", FIELD_UINT, retries, .default_text = "3", .min = 0, .max = 100, \
        .help = "how often one that failed is tried again")

static const struct field rollout_haproxy_fields[] = {
    ROW("socket", FIELD_TEXT, socket, .required = true,
        .help = "the runtime socket: a path or `HOST:PORT`, with `level admin`"),
    ROW("backend", FIELD_TEXT, backend, .required = true, .help = "with both servers in it"),
    ROW("baseline", FIELD_TEXT, servers[CANARY_BASELINE], .required = true, .help = "its server of the old stack"),
    ROW("candidate", FIELD_TEXT, servers[CANARY_CANDIDATE], .required = true, .help = "its server of the new stack"),
    ROW("baseline2", FIELD_TEXT, baseline2, .help = "a second server of the old stack, for the A/A stage"),
    CALLS,
    END};

static const struct field rollout_hooks_fields[] = {
    ROW("set", FIELD_TEXTS, set, .help = "command, run without a shell; `{percent}` becomes the candidate's share"),
    ROW("get", FIELD_TEXTS, get, .help = "command that prints the candidate's percent"),
    ROW("drain", FIELD_TEXTS, drain, .help = "command that ends when nothing is in flight on `{arm}` (baseline, candidate)"),
    ROW("url", FIELD_TEXT, url, .help = "instead of commands: JSON is posted there"),
    CALLS,
    END};

const struct field rollout_traffic_fields[] = {
    PART("haproxy", rollout_haproxy_fields, .help = "weights through HAProxy's runtime socket"),
    PART("hooks", rollout_hooks_fields, .help = "any other system, through commands or a web hook"),
    END};
#undef OWNER

// --- sources

#define OWNER rollout_source
#define QUERIES(arm) \
    {ROW("requests", FIELD_TEXT, queries[arm].requests, .help = "a counter: requests that ended; of both arms, or of none where another source counts them"), \
     ROW("errors", FIELD_TEXT, queries[arm].errors, .help = "a counter: those that failed, required with `requests`; no evidence before it has given a series, so end it in `or vector(0)` where that begins with the first error"), \
     ROW("wrong", FIELD_TEXT, queries[arm].wrong, .help = "a counter: wrong answers"), \
     ROW("rejected", FIELD_TEXT, queries[arm].rejected, .help = "a counter: answers 4xx; else as `errors`"), \
     ROW("latency_buckets", FIELD_TEXT, queries[arm].latency_buckets, \
         .help = "a histogram's buckets, seconds: `sum by (le) (…_bucket)`"), \
     END}

static const struct field rollout_haproxy_log_fields[] = {
    ROW("listen", FIELD_TEXT, listen, .help = "syslog datagrams: `127.0.0.1:5514` or `unix:/run/upgate.sock`"),
    ROW("file", FIELD_TEXT, file, .help = "instead: a file that grows"),
    END};
static const struct field rollout_baseline_query_fields[] = QUERIES(CANARY_BASELINE);
static const struct field rollout_candidate_query_fields[] = QUERIES(CANARY_CANDIDATE);
static const struct field rollout_prometheus_fields[] = {
    ROW("url", FIELD_TEXT, url, .required = true, .help = "of the server, without `/api`"),
    ROW("token_file", FIELD_TEXT, token_file, .help = "a bearer token is read from it"),
    ROW("step", FIELD_DURATION, step_ns, .json = "step_ns", .default_text = "5s", .min = 1e9, .max = 60e9,
        .help = "between two questions"),
    PART("baseline", rollout_baseline_query_fields, .help = "queries of the baseline"),
    PART("candidate", rollout_candidate_query_fields, .help = "queries of the candidate; same keys"),
    END};
static const struct field rollout_jsonl_fields[] = {
    ROW("baseline", FIELD_TEXT, paths[CANARY_BASELINE], .required = true,
        .help = "a file that grows: `{\"t\": seconds, \"status\": 200, \"ms\": 4.1, \"wrong\": false}` a line"),
    ROW("candidate", FIELD_TEXT, paths[CANARY_CANDIDATE], .required = true, .help = "likewise"),
    END};
static const struct field rollout_steps_fields[] = {
    ROW("baseline", FIELD_TEXT, paths[CANARY_BASELINE], .required = true,
        .help = "a step file, as `UPGATE_STEPS` of its servers names it: `/dev/shm/ranker-old.steps`. It is made if it is not there, and stays"),
    ROW("candidate", FIELD_TEXT, paths[CANARY_CANDIDATE], .required = true, .help = "likewise"),
    END};

const struct field rollout_source_fields[] = {
    PART("haproxy_log", rollout_haproxy_log_fields, .help = "HAProxy's log"),
    PART("prometheus", rollout_prometheus_fields, .help = "counters that a Prometheus has"),
    PART("jsonl", rollout_jsonl_fields, .help = "JSON lines, of servers that write their own"),
    PART("steps", rollout_steps_fields,
         .help = "requests that servers tell by the step protocol: `ug_request_done()` of `contracts/upgate_step.h`, `upgate.request_done()` of Python"),
    END};
#undef OWNER

// --- stages

#define OWNER rollout_stage
const struct field rollout_stage_fields[] = {
    ROW("percent", FIELD_NUMBER, percent, .required = true, .min = 0, .max = 100,
        .help = "of the traffic, to the candidate; of an A/A stage, to the second baseline"),
    ROW("name", FIELD_TEXT, name, .help = "default: the percent"),
    ROW("mirror", FIELD_FRACTION, mirror, .default_text = "0%", .min = 0, .max = 1,
        .help = "of the requests are sent again to the candidate, and its answers compared: the shadow stage, `percent: 0`"),
    ROW("aa", FIELD_BOOL, aa, .default_text = "false",
        .help = "both arms are the baseline; default: true for a stage named `aa`"),
    ROW("soak", FIELD_DURATION, soak_ns, .json = "soak_ns", .default_text = "60s", .min = 1e9, .max = 30.0 * 86400e9,
        .help = "is judged for so long at least"),
    ROW("warm_up", FIELD_DURATION, warm_up_ns, .json = "warm_up_ns", .default_text = "5s", .min = 0, .max = 86400e9,
        .help = "at its begin, not judged (the tripwires act): the candidate compiles and fills its caches"),
    ROW("requests", FIELD_UINT, requests, .default_text = "0", .min = 0, .max = 1e15, .help = "of the candidate at least"),
    ROW("patience", FIELD_DURATION, patience_ns, .json = "patience_ns", .min = 1e9, .max = 365.0 * 86400e9,
        .help = "without a verdict by then the rollout pauses; default: 10 times the soak, 10 minutes at least"),
    END};
#undef OWNER

// --- the rest

#define OWNER rollout
static const struct field rollout_tripwire_fields[] = {
    ROW("error_rate", FIELD_FRACTION, rules.tripwire_error_rate, .default_text = "20%", .min = 0, .max = 1, .above_min = true,
        .help = "of the candidate over its last 10 seconds, or fewer with 100 requests; less eight errors, with 10 requests at least"),
    ROW("unreachable", FIELD_UINT, unreachable, .default_text = "3", .min = 1, .max = 1000,
        .help = "so many looks in a row at the proxy's health check that say down, or refused connections within 10 seconds"),
    ROW("alone", FIELD_NUMBER, rules.alone_times, .default_text = "2", .min = 1, .max = 1e6, .above_min = true,
        .help = "at 100 %: a gated latency beyond so many times what the baseline had in 19 of 20 of its 10 seconds before, or a rate beyond twice as many times and 0.1 %, for three times 10 s; the decision's rule is `evidence`"),
    END};

static const struct field rollout_gate_fields[] = {
    ROW("alpha", FIELD_FRACTION, rules.alpha, .default_text = "1%", .min = 0, .max = 0.5, .above_min = true,
        .help = "probability of a false rollback, over the whole rollout"),
    {.key = "metrics", .kind = FIELD_CUSTOM, .custom = &rollout_metrics_custom, .fields = rollout_metric_fields,
     .help = "metric: {margin} or {limit}; default: error_rate 50%, rejected_rate 50%, latency_p50 10%, latency_p99 10%, wrong_answers limit 0; rejected: answered 4xx, or given up by the client before an answer began"},
    PART("tripwires", rollout_tripwire_fields, .help = "roll back without statistics"),
    END};

static const struct field rollout_rollback_fields[] = {
    ROW("drain", FIELD_DURATION, drain_ns, .json = "drain_ns", .default_text = "30s", .min = 0, .max = 86400e9,
        .help = "requests in flight may take so long to end"),
    END};

static const struct field rollout_why_baseline_fields[] = {
    ROW("pid", FIELD_UINT, why.pids[CANARY_BASELINE], .min = 1, .max = 4194304, .zero_is_absent = true, .help = "of the server"),
    ROW("cgroup", FIELD_TEXT, why.cgroups[CANARY_BASELINE], .help = "instead: the cgroup's path"),
    END};
static const struct field rollout_why_candidate_fields[] = {
    ROW("pid", FIELD_UINT, why.pids[CANARY_CANDIDATE], .min = 1, .max = 4194304, .zero_is_absent = true, .help = "of the server"),
    ROW("cgroup", FIELD_TEXT, why.cgroups[CANARY_CANDIDATE], .help = "instead: the cgroup's path"),
    END};
static const struct field rollout_why_fields[] = {
    ROW("record", FIELD_BOOL, why.record, .default_text = "false",
        .help = "record both arms when a stage fails, and explain the difference in the report"),
    ROW("duration", FIELD_DURATION, why.duration_ns, .json = "duration_ns", .default_text = "10s", .min = 1e9, .max = 600e9,
        .help = "of each recording; the candidate keeps its traffic no longer for it"),
    PART("baseline", rollout_why_baseline_fields, .help = "the server's processes; default: who listens on the port of its `shadow` URL"),
    PART("candidate", rollout_why_candidate_fields, .help = "likewise; same keys"),
    END};

static const struct field rollout_preflight_fields[] = {
    ROW("gate", FIELD_TEXT, preflight.gate, .help = "a store of `upgate ab`, not of an A/A run, whose verdict must be pass"),
    ROW("plan", FIELD_TEXT, preflight.plan, .help = "a store of `upgate ab`: what differs between its sides is told; default: that of `gate`"),
    {.key = "free_memory", .kind = FIELD_CUSTOM, .offset = offsetof(struct rollout, preflight.free_memory),
     .custom = &rollout_bytes_custom, .help = "must be free on this machine"},
    {.key = "free_gpu_memory", .kind = FIELD_CUSTOM, .offset = offsetof(struct rollout, preflight.free_gpu_memory),
     .custom = &rollout_bytes_custom, .help = "must be free on each GPU of this machine"},
    ROW("checks", FIELD_TEXTS, preflight.checks, .help = "shell lines that must end with 0"),
    END};

static const struct field rollout_shadow_fields[] = {
    ROW("baseline", FIELD_TEXT, shadow_urls[CANARY_BASELINE], .required = true, .help = "base URL that is asked directly"),
    ROW("candidate", FIELD_TEXT, shadow_urls[CANARY_CANDIDATE], .required = true, .help = "likewise"),
    ROW("requests", FIELD_TEXT, shadow.requests, .help = "a file of recorded requests: `{\"method\", \"path\", \"body\"}` a line"),
    ROW("methods", FIELD_TEXTS, shadow.methods, .help = "that may be sent twice; default: GET and HEAD, which change nothing"),
    ROW("ignore", FIELD_TEXTS, shadow.ignore, .help = "members of JSON answers that may differ, by name"),
    ROW("tolerance", FIELD_NUMBER, shadow.tolerance, .min = 0, .max = 1e6, .zero_is_absent = true,
        .help = "of numbers, in units of the baseline's root mean square; default: docs/CANARY.md"),
    END};

static const struct field rollout_expected_fields[] = {
    ROW("rate", FIELD_RATE, expected.requests_per_s, .json = "rate_per_s", .min = 0, .max = 1e9, .zero_is_absent = true,
        .help = "requests of both arms together"),
    ROW("error_rate", FIELD_FRACTION, expected.error_rate, .default_text = "0.1%", .min = 0, .max = 1,
        .help = "of the baseline; as many again are rejected"),
    ROW("latency_sigma", FIELD_NUMBER, expected.latency_sigma, .default_text = "0.5", .min = 0, .max = 10, .above_min = true,
        .help = "standard deviation of the logarithm of the latency"),
    ROW("dispersion", FIELD_NUMBER, expected.dispersion, .default_text = "1", .min = 1, .max = 1e6,
        .help = "variance over mean of counts a second; 1: independent requests"),
    END};

const struct field rollout_fields[] = {
    ROW("name", FIELD_TEXT, name, .required = true, .help = "one rollout, one store"),
    ROW("store", FIELD_TEXT, store, .help = "default: NAME.rollout.db"),
    {.key = "traffic", .kind = FIELD_CUSTOM, .required = true, .custom = &rollout_traffic_custom,
     .fields = rollout_traffic_fields, .help = "who gets the requests: one of `haproxy`, `hooks`"},
    {.key = "sources", .kind = FIELD_CUSTOM, .required = true, .custom = &rollout_sources_custom,
     .fields = rollout_source_fields, .help = "the evidence: one or more of `haproxy_log`, `prometheus`, `jsonl`, `steps`"},
    {.key = "stages", .kind = FIELD_CUSTOM, .required = true, .custom = &rollout_stages_custom,
     .fields = rollout_stage_fields, .help = "in order; the percents rise, and the last is 100"},
    {.key = "windows", .kind = FIELD_CUSTOM, .custom = &rollout_windows_custom, .fields = rollout_window_fields,
     .help = "moves up are made within one of these only; default: always"},
    {.key = "freeze", .kind = FIELD_CUSTOM, .custom = &rollout_freeze_custom,
     .help = "days without moves up, both included: `2026-12-20/2027-01-02`, or one day"},
    PART("gate", rollout_gate_fields, .help = "how it is judged"),
    PART("rollback", rollout_rollback_fields, .help = "how it goes back"),
    ROW("stale", FIELD_DURATION, stale_ns, .json = "stale_ns", .default_text = "30s", .min = 3e9, .max = 86400e9,
        .help = "no evidence for so long: paused until there is"),
    PART("why", rollout_why_fields, .help = "what is recorded when a stage fails"),
    PART("preflight", rollout_preflight_fields, .help = "what must hold before the first stage"),
    PART("shadow", rollout_shadow_fields, .help = "where the shadow stage finds both arms"),
    PART("expected", rollout_expected_fields, .help = "the traffic, for `upgate canary plan`"),
    END};
#undef OWNER
// clang-format on
