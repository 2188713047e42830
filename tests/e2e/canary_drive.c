// SPDX-License-Identifier: Apache-2.0
// The C interface of traffic and sources, driven by a test: `canary_drive PLAN`, PLAN is JSON;
// commands on stdin, one a line, one line of JSON as the answer of each.
//   {"traffic": {"socket", "backend", "baseline", "candidate", "baseline2"
//                | "set": […], "get": […], "drain": […] | "hook_url",
//                "timeout_ms", "retries"},
//    "sources": [{"listen" | "file" | "url", "step_ms", "token_file",
//                 "baseline": {…}, "candidate": {…}
//                 | "baseline": PATH, "candidate": PATH, "steps": true where these are step
//                 files}]}
//   traffic | sources          opens it
//   set P | aa P | get | look | drain ARM SECONDS
//   poll MILLISECONDS          reads for so long
//   take [aa]                  all finished seconds
//   totals | state
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/clock.h"
#include "common/containers/arena.h"
#include "common/strings.h"
#include "harness/canary/sources/sources.h"
#include "harness/canary/traffic/traffic.h"

struct drive {
    struct rollout rollout;
    struct traffic *traffic;
    struct sources *sources;
    struct error err;
};

static struct arena *drive_plan; // its strings

static char *drive_text(const json_t *object, const char *key)
{
    return arena_copy(drive_plan, json_string_value(json_object_get(object, key)));
}

static char **drive_list(const json_t *object, const char *key)
{
    const json_t *list = json_object_get(object, key);
    size_t count = json_array_size(list);
    char **words = arena_alloc(drive_plan, count + 1, sizeof *words);
    for (size_t i = 0; i < count; i++)
        words[i] = arena_copy(drive_plan, json_string_value(json_array_get(list, i)));
    return count ? words : NULL;
}

static void drive_traffic(struct rollout_traffic *traffic, const json_t *json)
{
    const json_t *timeout = json_object_get(json, "timeout_ms"),
                 *retries = json_object_get(json, "retries");
    *traffic = (struct rollout_traffic){
            .kind = json_object_get(json, "socket") ? ROLLOUT_HAPROXY : ROLLOUT_HOOKS,
            .socket = drive_text(json, "socket"),
            .backend = drive_text(json, "backend"),
            .servers = {drive_text(json, "baseline"), drive_text(json, "candidate")},
            .baseline2 = drive_text(json, "baseline2"),
            .set = drive_list(json, "set"),
            .get = drive_list(json, "get"),
            .drain = drive_list(json, "drain"),
            .url = drive_text(json, "hook_url"),
            .timeout_ns = (timeout ? json_integer_value(timeout) : 10000) * 1000000,
            .retries = (uint64_t)(retries ? json_integer_value(retries) : 3),
    };
}

static void drive_source(struct rollout_source *source, const json_t *json)
{
    static const char *const arms[CANARY_ARMS] = {"baseline", "candidate"};
    source->listen = drive_text(json, "listen");
    source->file = drive_text(json, "file");
    source->url = drive_text(json, "url");
    source->token_file = drive_text(json, "token_file");
    source->step_ns = json_integer_value(json_object_get(json, "step_ms")) * 1000000;
    source->kind = source->url               ? ROLLOUT_PROMETHEUS
            : source->listen || source->file ? ROLLOUT_HAPROXY_LOG
                                             : ROLLOUT_JSONL;
    if (json_is_true(json_object_get(json, "steps")))
        source->kind = ROLLOUT_STEPS;
    for (int i = 0; i < CANARY_ARMS; i++) {
        const json_t *arm = json_object_get(json, arms[i]);
        source->paths[i] = drive_text(json, arms[i]);
        source->queries[i] = (struct rollout_queries){drive_text(arm, "requests"),
                drive_text(arm, "errors"), drive_text(arm, "wrong"), drive_text(arm, "rejected"),
                drive_text(arm, "latency_buckets")};
    }
}

static json_t *drive_error(int rc, const struct drive *drive)
{
    return rc ? json_pack("{s:i, s:s}", "error", rc, "text", drive->err.text) : json_object();
}

static json_t *drive_seconds(struct drive *drive, bool aa)
{
    struct canary_second arms[CANARY_ARMS];
    int64_t at_s;
    json_t *all = json_array();
    while (sources_take(drive->sources, aa, &at_s, arms)) {
        json_t *second = json_array();
        for (int i = 0; i < CANARY_ARMS; i++) {
            uint64_t timed = 0;
            double p50 = canary_quantile(&arms[i], 0.5), p99 = canary_quantile(&arms[i], 0.99);
            for (int bin = 0; bin < CANARY_BINS; bin++)
                timed += arms[i].bins[bin];
            json_array_append_new(second,
                    json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f}", "requests",
                            (json_int_t)arms[i].requests, "errors", (json_int_t)arms[i].errors,
                            "truncated", (json_int_t)arms[i].truncated, "wrong",
                            (json_int_t)arms[i].wrong, "rejected", (json_int_t)arms[i].rejected,
                            "timed", (json_int_t)timed, "p50", p50 == p50 ? p50 : -1.0, "p99",
                            p99 == p99 ? p99 : -1.0));
        }
        json_array_append_new(all, json_pack("{s:I, s:o}", "at", (json_int_t)at_s, "arms", second));
    }
    return all;
}

static json_t *drive_state(struct drive *drive)
{
    struct timespec used;
    json_t *all = json_array();
    for (int i = 0; i < drive->rollout.source_count; i++) {
        struct source_state state;
        sources_state(drive->sources, i, &state);
        string_make_utf8(state.problem, strlen(state.problem));
        json_array_append_new(all,
                json_pack("{s:I, s:I, s:I, s:I, s:I, s:b, s:f, s:s}", "seen",
                        (json_int_t)state.seen, "kept", (json_int_t)state.kept, "dropped",
                        (json_int_t)state.dropped, "lost", (json_int_t)state.lost, "late",
                        (json_int_t)state.late, "ever", state.last_ns != 0, "ago",
                        (double)(clock_monotonic_ns() - state.last_ns) * 1e-9, "problem",
                        state.problem));
    }
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return json_pack(
            "{s:o, s:f}", "sources", all, "cpu", (double)used.tv_sec + (double)used.tv_nsec * 1e-9);
}

static json_t *drive_traffic_command(struct drive *drive, const char *word, const char *rest)
{
    double percent = -1;
    struct traffic_arm arms[CANARY_ARMS] = {0};
    uint64_t left = 0;
    int rc = 0;
    if (strcmp(word, "set") == 0)
        rc = traffic_set(drive->traffic, atof(rest), &percent, &drive->err);
    else if (strcmp(word, "aa") == 0)
        rc = traffic_set_aa(drive->traffic, atof(rest), &percent, &drive->err);
    else if (strcmp(word, "get") == 0)
        rc = traffic_get(drive->traffic, &percent, &drive->err);
    json_t *ret = drive_error(rc, drive);
    if (strcmp(word, "look") == 0) {
        json_decref(ret);
        rc = traffic_look(drive->traffic, arms, &drive->err);
        ret = drive_error(rc, drive);
        for (int i = 0; i < CANARY_ARMS; i++)
            json_object_set_new(ret, i ? "candidate" : "baseline",
                    json_pack("{s:b, s:I, s:I}", "up", arms[i].up, "in_flight",
                            (json_int_t)arms[i].in_flight, "requests",
                            (json_int_t)arms[i].requests));
    } else if (strcmp(word, "drain") == 0) {
        const char *seconds = strchr(rest, ' ');
        enum canary_arm arm =
                strncmp(rest, "baseline", 8) == 0 ? CANARY_BASELINE : CANARY_CANDIDATE;
        json_decref(ret);
        rc = traffic_drain(drive->traffic, arm,
                clock_monotonic_ns() + (int64_t)(atof(seconds ? seconds : "0") * 1e9), &left,
                &drive->err);
        ret = drive_error(rc, drive);
        json_object_set_new(ret, "left", json_integer((json_int_t)left));
    } else {
        json_object_set_new(ret, "percent", json_real(percent));
    }
    return ret;
}

static json_t *drive_command(struct drive *drive, const char *word, const char *rest)
{
    if (strcmp(word, "traffic") == 0) {
        traffic_close(drive->traffic);
        drive->traffic = NULL;
        return drive_error(
                traffic_open(&drive->rollout, false, &drive->traffic, &drive->err), drive);
    }
    if (strcmp(word, "sources") == 0) {
        sources_close(drive->sources);
        drive->sources = NULL;
        return drive_error(sources_open(&drive->rollout, &drive->sources, &drive->err), drive);
    }
    if (strcmp(word, "poll") == 0) {
        int64_t until_ns = clock_monotonic_ns() + atoll(rest) * 1000000;
        int rc = 0;
        for (int64_t left_ns; rc == 0 && (left_ns = until_ns - clock_monotonic_ns()) > 0;)
            rc = sources_poll(drive->sources, (int)(left_ns / 1000000) + 1, &drive->err);
        return drive_error(rc, drive);
    }
    if (strcmp(word, "take") == 0)
        return drive_seconds(drive, strcmp(rest, "aa") == 0);
    if (strcmp(word, "state") == 0)
        return drive_state(drive);
    if (strcmp(word, "totals") == 0) {
        struct sources_total arms[CANARY_ARMS];
        sources_totals(drive->sources, false, arms);
        return json_pack("{s:[I,I], s:[I,I], s:[I,I]}", "requests", (json_int_t)arms[0].requests,
                (json_int_t)arms[1].requests, "errors", (json_int_t)arms[0].errors,
                (json_int_t)arms[1].errors, "refused", (json_int_t)arms[0].refused,
                (json_int_t)arms[1].refused);
    }
    return drive_traffic_command(drive, word, rest);
}

int main(int argc, char **argv)
{
    struct drive drive = {0};
    struct rollout_source sources[8] = {0};
    json_error_t bad;
    char line[256];
    json_t *plan = argc == 2 ? json_loads(argv[1], 0, &bad) : NULL;
    if (!plan) {
        fprintf(stderr, "canary_drive: PLAN is no JSON\n");
        return 2;
    }
    drive_plan = arena_new();
    const json_t *list = json_object_get(plan, "sources");
    drive.rollout = (struct rollout){
            .name = "driven", .sources = sources, .source_count = (int)json_array_size(list)};
    drive_traffic(&drive.rollout.traffic, json_object_get(plan, "traffic"));
    for (int i = 0; i < drive.rollout.source_count && i < 8; i++)
        drive_source(&sources[i], json_array_get(list, (size_t)i));
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        char *rest = strchr(line, ' ');
        if (rest)
            *rest++ = 0;
        json_t *answer = drive_command(&drive, line, rest ? rest : "");
        char *text = json_dumps(answer, JSON_COMPACT);
        puts(text ? text : "null");
        fflush(stdout);
        free(text);
        json_decref(answer);
    }
    traffic_close(drive.traffic);
    sources_close(drive.sources);
    json_decref(plan);
    arena_free(drive_plan);
    return 0;
}
