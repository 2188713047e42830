// SPDX-License-Identifier: Apache-2.0
// The rollout plan: ROLLOUT.yaml in, struct rollout out; errors with file, line, column and the
// nearest known word. Keys and defaults: docs/rollout.md, made from the same table.
#ifndef UPGATE_HARNESS_CANARY_PLAN_ROLLOUT_H
#define UPGATE_HARNESS_CANARY_PLAN_ROLLOUT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/error.h"
#include "reports/analyse/canary/evidence.h"

enum rollout_source_kind {
    ROLLOUT_HAPROXY_LOG,
    ROLLOUT_PROMETHEUS,
    ROLLOUT_JSONL,
    ROLLOUT_STEPS,
    ROLLOUT_SOURCE_KINDS
};

struct rollout_queries { // of one arm; NULL: not asked
    // counters: what they grew by between two looks is counted
    char *requests, *errors, *wrong, *rejected;
    char *latency_buckets; // a histogram's buckets, sum by (le)
};

struct rollout_source {
    enum rollout_source_kind kind;
    char *listen;     // haproxy_log: "127.0.0.1:5514" or "unix:/run/upgate.sock"; NULL where `file`
    char *file;       // haproxy_log: a growing file
    char *url;        // prometheus
    char *token_file; // prometheus: bearer token, NULL
    int64_t step_ns;  // prometheus: between two questions, 5 s
    struct rollout_queries queries[CANARY_ARMS];
    char *paths[CANARY_ARMS]; // jsonl, steps
};

enum rollout_traffic_kind { ROLLOUT_HAPROXY, ROLLOUT_HOOKS };

struct rollout_traffic {
    enum rollout_traffic_kind kind;
    char *socket, *backend;     // haproxy: admin socket (path, or "HOST:PORT"), backend
    char *servers[CANARY_ARMS]; // of that backend; others of it keep their weight 0 or are named in
                                // an error
    char *baseline2;            // a second baseline server for the A/A stage; NULL
    char **set, **get, **drain; // hooks: commands with {percent}, {arm}; NULL-terminated
    char *url;                  // hooks: POST JSON there instead; NULL
    int64_t timeout_ns;         // of one hook or command, 10 s
    uint64_t retries;           // of one hook or command, 3
};

struct rollout_stage {
    char *name;     // "shadow", "aa", "5%" where the plan has none
    double percent; // 0..100
    double mirror;  // fraction of requests that are sent again to the candidate; 0: no shadow stage
    bool aa;        // name is "aa", or `aa: true`
    int64_t soak_ns;
    int64_t warm_up_ns;  // at its begin, not judged: the candidate compiles and fills its caches
    uint64_t requests;   // of the candidate at least
    int64_t patience_ns; // without a verdict by then: paused. 10 times the soak, 10 minutes at
                         // least
};

struct rollout_window {
    uint8_t days;         // bit 0 = Monday
    int from_min, to_min; // of the day; to < from: over midnight
    char *zone;           // of the system's time zone database; NULL: UTC
};

struct rollout_freeze {
    char *from, *to; // days, both included, in the zone of the first window or UTC
};

struct rollout_shadow { // of the shadow stage, which asks both arms directly
    char *requests;     // file of JSON lines {"method", "path", "body"}, asked in turn
    char **methods;     // that may be sent twice; NULL-terminated. NULL: GET and HEAD
    char **ignore;      // members of JSON answers that may differ, by name; NULL-terminated or NULL
    double tolerance;   // of numbers, in units of the baseline's rms; 0: the room's own
};

struct rollout_hold {           // what is recorded when a stage fails, and why
    bool record;                // `upgate record` of both arms at the moment of the breach
    int64_t duration_ns;        // 10 s
    uint64_t pids[CANARY_ARMS]; // 0: by `cgroup`
    char *cgroups[CANARY_ARMS]; // NULL
};

struct rollout_preflight {
    char *gate;             // a store of `upgate ab` that must have passed; NULL
    char *plan;             // whose fingerprints are compared; NULL
    double free_memory;     // bytes that must be free on this machine; 0
    double free_gpu_memory; // likewise on each GPU; 0
    char **checks; // commands that must exit with 0: NULL-terminated list of shell lines; NULL
};

struct rollout {
    char *name, *path, *store;
    struct rollout_traffic traffic;
    struct rollout_source *sources;
    int source_count;
    struct rollout_stage *stages;
    int stage_count;
    struct rollout_window *windows;
    int window_count;
    struct rollout_freeze *freezes;
    int freeze_count;
    struct canary_rules rules;
    bool metrics_named;   // by the plan; else the usual ones, as far as the sources tell them
    uint64_t unreachable; // health checks in a row that fail; 3
    int64_t drain_ns;     // of a rollback, 30 s
    int64_t stale_ns;     // no evidence for so long: paused; 30 s
    struct rollout_hold why;
    struct rollout_preflight preflight;
    char *shadow_urls[CANARY_ARMS]; // shadow stage: base URL of each arm, asked directly; NULL: no
                                    // shadow stage possible
    struct rollout_shadow shadow;
    struct canary_traffic expected; // for `canary plan`
};

int rollout_load(const char *path, struct rollout **ret_rollout, struct error *err);
void rollout_free(struct rollout *rollout); // NULL ok
// The candidate's share (0..1) that passing a stage opens: that of the next one with users; 1 where
// none follows.
double rollout_opens(const struct rollout *rollout, int stage);
// What this plan cannot see and another would, in words: told, and no reason to refuse it. NULL:
// nothing; the caller frees it.
char *rollout_advice(const struct rollout *rollout);
// normalised: stored, and compared on a restart. New reference
json_t *rollout_to_json(const struct rollout *rollout);
int rollout_from_json(const json_t *json, struct rollout **ret_rollout, struct error *err);
// Which keys differ between two of these documents, and what they were and are: "gate.alpha (was
// 0.01, is 0.05), stages.1.soak_ns (…)". "" where nothing does; the caller frees it.
char *rollout_changes(const json_t *old, const json_t *new);
const char *rollout_source_kind_name(enum rollout_source_kind kind); // its key in a plan
void rollout_print_markdown(void *stream);                           // docs/rollout.md, to a FILE *

#endif
