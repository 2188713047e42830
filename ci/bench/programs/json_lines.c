// SPDX-License-Identifier: Apache-2.0
// What a line of evidence costs to read: harness/canary/sources/json_flat.h against jansson, for
// HAProxy's JSON log and for the source jsonl. Exit 1 where our own reader is not twice as fast:
// then it is not worth its code.
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "harness/canary/sources/log_line.h"

enum { LINES = 100000, ROUNDS = 9 };

static const char log_text[] =
        "{\"upgate\":1,\"pid\":4711,\"front\":\"in\",\"seq\":123456,\"back\":\"ranker\",\"server\":\"old\",\"status\":200,"
        "\"end_us\":1795465329123456,\"us\":\"1500\",\"ms\":\"1\",\"term\":\"--\",\"bytes\":\"131\",\"wrong\":\"\"}";
static const char row_text[] =
        "{\"t\": 1763859022.251234, \"status\": 200, \"ms\": 4.123, \"wrong\": false}";
static volatile double sink;

static void log_flat(void)
{
    struct log_line line;
    log_line_parse(log_text, sizeof log_text - 1, &line);
    sink += line.status;
}

static void log_jansson(void)
{
    static const char *const keys[] = {"pid", "front", "seq", "back", "server", "status", "end_us",
            "us", "ms", "term", "wrong"};
    json_t *line = json_loadb(log_text, sizeof log_text - 1, 0, NULL);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        sink += json_object_get(line, keys[i]) != NULL;
    json_decref(line);
}

static void row_flat(void)
{
    struct json_flat json;
    struct json_member member;
    double number;
    json_flat_begin(&json, row_text, sizeof row_text - 1);
    while (json_flat_next(&json, &member))
        if (member.kind == JSON_FLAT_NUMBER && text_number(member.value, &number))
            sink += number + text_is(member.key, "t");
}

static void row_jansson(void)
{
    json_t *row = json_loadb(row_text, sizeof row_text - 1, 0, NULL);
    sink += json_number_value(json_object_get(row, "t")) +
            json_number_value(json_object_get(row, "status")) +
            json_number_value(json_object_get(row, "ms")) +
            json_is_true(json_object_get(row, "wrong"));
    json_decref(row);
}

static double cpu_ns(void)
{
    struct timespec used;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return (double)used.tv_sec * 1e9 + (double)used.tv_nsec;
}

// The least of the rounds: of the others the machine has its share.
static double ns_a_line(void (*read_one)(void))
{
    double least = INFINITY;
    for (int round = 0; round < ROUNDS; round++) {
        double began = cpu_ns();
        for (int i = 0; i < LINES; i++)
            read_one();
        least = fmin(least, (cpu_ns() - began) / LINES);
    }
    return least;
}

int main(void)
{
    double flat[] = {ns_a_line(log_flat), ns_a_line(row_flat)},
           jansson[] = {ns_a_line(log_jansson), ns_a_line(row_jansson)};
    printf("a line of HAProxy's JSON log  own %5.0f ns  jansson %5.0f ns\n", flat[0], jansson[0]);
    printf("a line of a JSON source       own %5.0f ns  jansson %5.0f ns\n", flat[1], jansson[1]);
    return jansson[0] < 2 * flat[0] || jansson[1] < 2 * flat[1];
}
