// SPDX-License-Identifier: Apache-2.0
// Evidence from JSON lines, one file an arm: {"t": 1763859022.25, "status": 200, "ms": 4.1,
// "wrong": false, "truncated": false} t: the request's end in seconds since 1970, as a number.
// status 0 or none: not answered. Other members are passed over.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/strings.h"
#include "harness/canary/sources/json_flat.h"
#include "harness/canary/sources/sources_internal.h"
#include "harness/canary/sources/tail.h"

#define SOURCE_JSONL_LOOK_NS 50000000LL
#define SOURCE_JSONL_TIME_MAX_S 9e9 // in nanoseconds it fits into 63 bits

struct source_jsonl {
    struct source_jsonl_arm {
        struct source *source;
        enum timeline_arm arm;
        struct tail tail;
        struct source_clock clock; // each file has its own writer
    } arms[CANARY_ARMS];
    int64_t now_ns, read_ns;
    char unknown[120];
};

static int source_jsonl_open(struct source *source, struct error *err)
{
    struct source_jsonl *jsonl = xcalloc(1, sizeof *jsonl);
    (void)err;
    source->own = jsonl;
    for (int i = 0; i < CANARY_ARMS; i++) {
        jsonl->arms[i] = (struct source_jsonl_arm){
                .source = source, .arm = (enum timeline_arm)i, .clock = source->clock};
        if (source->plan->paths[i])
            tail_begin(&jsonl->arms[i].tail, source->plan->paths[i]);
    }
    return 0;
}

static void source_jsonl_close(struct source *source)
{
    struct source_jsonl *jsonl = source->own;
    for (int i = 0; jsonl && i < CANARY_ARMS; i++)
        tail_end(&jsonl->arms[i].tail);
    free(jsonl);
}

static int64_t source_jsonl_due_ns(const struct source *source)
{
    return ((const struct source_jsonl *)source->own)->read_ns + SOURCE_JSONL_LOOK_NS;
}

static bool source_jsonl_bool(const struct json_member *member, bool *ret)
{
    *ret = member->kind == JSON_FLAT_TRUE;
    return member->kind == JSON_FLAT_TRUE || member->kind == JSON_FLAT_FALSE ||
            member->kind == JSON_FLAT_NULL;
}

// False: not such a line.
static bool source_jsonl_parse(
        const char *line, size_t len, double *ret_t, struct timeline_request *ret)
{
    struct json_flat json;
    struct json_member member;
    double t = NAN, ms = NAN, status = 0;
    bool ok = true;
    *ret = (struct timeline_request){0};
    json_flat_begin(&json, line, len);
    while (ok && json_flat_next(&json, &member)) {
        bool number = member.kind == JSON_FLAT_NUMBER;
        if (text_is(member.key, "t"))
            ok = number && text_number(member.value, &t);
        else if (text_is(member.key, "status"))
            ok = member.kind == JSON_FLAT_NULL || (number && text_number(member.value, &status));
        else if (text_is(member.key, "ms"))
            ok = member.kind == JSON_FLAT_NULL || (number && text_number(member.value, &ms));
        else if (text_is(member.key, "wrong"))
            ok = source_jsonl_bool(&member, &ret->wrong);
        else if (text_is(member.key, "truncated"))
            ok = source_jsonl_bool(&member, &ret->truncated);
    }
    if (!ok || json.bad || !(t > 0 && t < SOURCE_JSONL_TIME_MAX_S) || ms < 0)
        return false;
    ret->error = status < 100 || status >= 500 || ret->truncated;
    ret->rejected = !ret->error && status >= 400;
    ret->latency_s = ms / 1000;
    *ret_t = t;
    return true;
}

static void source_jsonl_take(void *arg, const char *line, size_t len)
{
    struct source_jsonl_arm *arm = arg;
    struct source *source = arm->source;
    struct source_jsonl *jsonl = source->own;
    struct timeline_request request;
    double t;
    source->state.seen++;
    if (!source_jsonl_parse(line, len, &t, &request)) {
        source->state.dropped++;
        snprintf(jsonl->unknown, sizeof jsonl->unknown, "%.*s", (int)(len < 100 ? len : 100), line);
        string_make_plain(jsonl->unknown, strlen(jsonl->unknown));
        return;
    }
    source->clock = arm->clock;
    source_request(source, arm->arm, llrint(t * 1e6) * 1000, jsonl->now_ns, &request);
    arm->clock = source->clock;
}

static bool source_jsonl_read(struct source *source, int64_t now_ns)
{
    struct source_jsonl *jsonl = source->own;
    uint64_t before = source->state.seen;
    bool more = false;
    const char *problem = "";
    jsonl->now_ns = jsonl->read_ns = now_ns;
    for (int i = 0; i < CANARY_ARMS; i++) {
        struct tail *tail = &jsonl->arms[i].tail;
        if (!tail->path)
            continue;
        uint64_t too_long = tail->too_long;
        more |= tail_read(tail, now_ns, source_jsonl_take, &jsonl->arms[i]);
        source->state.dropped += tail->too_long - too_long;
        problem = tail->problem[0] ? tail->problem : problem;
    }
    if (!more)
        source->complete_ns = now_ns;
    if (!problem[0] && source->state.dropped && !source->state.kept)
        source_problem(source,
                "%llu lines were not understood ({\"t\": seconds, \"status\": 200, \"ms\": 4.1} is wanted), the "
                "last: %s",
                (unsigned long long)source->state.dropped, jsonl->unknown);
    else
        source_problem(source, "%s", problem);
    return source->state.seen != before;
}

const struct source_ops source_jsonl_ops = {
        source_jsonl_open, source_jsonl_close, source_jsonl_due_ns, source_jsonl_read};
