// SPDX-License-Identifier: Apache-2.0
// What a canary reads of others: a line of a log or of a JSON source, HAProxy's answers,
// Prometheus's. The first byte says which.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/canary/sources/counter.h"
#include "harness/canary/sources/log_line.h"
#include "harness/canary/traffic/haproxy_state.h"
#include "tests/fuzz/fuzz.h"

static void inside(struct text text, const char *line, size_t len)
{
    fuzz_require(text.len == 0 || (text.at >= line && text.at + text.len <= line + len),
            "a part of the line");
}

static void read_line(const char *line, size_t len)
{
    struct log_line got;
    log_line_parse(line, len, &got);
    if (got.kind != LOG_REQUEST)
        return;
    inside(got.front, line, len);
    inside(got.back, line, len);
    inside(got.server, line, len);
    fuzz_require(got.back.len && got.server.len, "names of a request");
    fuzz_require(got.took_ns >= -1 && got.took_ns <= 86400000LL * 1000000, "a time of a request");
    fuzz_require(got.end_ns >= -1, "an end of a request");
    fuzz_require(got.status == -1 || (got.status >= 100 && got.status <= 999), "a status");
}

static void read_json(const char *line, size_t len)
{
    struct json_flat json;
    struct json_member member;
    double number;
    json_flat_begin(&json, line, len);
    while (json_flat_next(&json, &member)) {
        inside(member.key, line, len);
        inside(member.value, line, len);
        if (member.kind == JSON_FLAT_NUMBER)
            fuzz_require(text_number(member.value, &number) && isfinite(number), "a number is one");
    }
    fuzz_require(!json_flat_next(&json, &member), "an end is the end");
}

static void read_tables(const char *answer)
{
    struct haproxy_backend backend = {0};
    struct error err = {0};
    fuzz_check(haproxy_read_state(answer, "ranker", &backend, &err), &err);
    fuzz_check(haproxy_read_stat(answer, "ranker", &backend, &err), &err);
    for (int i = 0; i < backend.count; i++)
        fuzz_require(haproxy_server(&backend, backend.servers[i].name) != NULL,
                "a server that is found");
    haproxy_backend_free(&backend);
}

static void read_prometheus(char *text)
{
    struct counter counter = {0};
    struct counter_look look;
    uint32_t bins[CANARY_BINS] = {0};
    for (char *next, *at = text; at; at = next) { // one answer after the other, as looks
        struct prometheus_answer answer;
        struct error err = {0};
        if ((next = strchr(at, '\n')))
            *next++ = 0;
        if (fuzz_check(prometheus_parse(200, at, &answer, &err), &err))
            continue;
        counter_look(&counter, &answer, at != text, &look);
        counter_bins(&counter, bins);
        prometheus_answer_free(&answer);
    }
    counter_free(&counter);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    int what = (int)(fuzz_take(&input, 1) % 4);
    char *text = calloc(1, input.size + 1);
    memcpy(text, input.data, input.size);
    char *exact = malloc(input.size ? input.size : 1); // nothing behind it may be read
    memcpy(exact, input.data, input.size);
    if (what == 0)
        read_line(exact, input.size);
    else if (what == 1)
        read_json(exact, input.size);
    else if (what == 2)
        read_tables(text);
    else
        read_prometheus(text);
    free(exact);
    free(text);
    return 0;
}
