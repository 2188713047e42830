// SPDX-License-Identifier: Apache-2.0
// For the test of the shadow stage: shadow_drive BASELINE_URL CANDIDATE_URL REQUESTS SECONDS RATE
// MIRROR METHODS IGNORE DEADLINE: mirrors for so long and prints seconds, examples and counts as
// JSON.
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "harness/canary/shadow/shadow.h"

static void drive_split(char *text, const char **ret, int max)
{
    int count = 0;
    for (char *word; count < max - 1 && (word = strsep(&text, ","));)
        ret[count++] = word;
    ret[count] = NULL;
}

static void drive_take(struct shadow *shadow, json_t *seconds, json_t *examples)
{
    static struct canary_second arms[CANARY_ARMS];
    struct shadow_example example;
    int64_t at = 0;
    while (shadow_take(shadow, &at, arms)) {
        json_t *both = json_array();
        for (int arm = 0; arm < CANARY_ARMS; arm++) {
            double p50 = canary_quantile(&arms[arm], 0.5);
            json_array_append_new(both,
                    json_pack("{s:I, s:I, s:I, s:o}", "requests", (json_int_t)arms[arm].requests,
                            "errors", (json_int_t)arms[arm].errors, "wrong",
                            (json_int_t)arms[arm].wrong, "p50_ms",
                            isnan(p50) ? json_null() : json_real(p50 * 1e3)));
        }
        json_array_append_new(seconds, json_pack("[I, o]", (json_int_t)at, both));
    }
    while (shadow_example(shadow, &example)) {
        json_array_append_new(examples,
                json_pack("{s:s, s:s, s:s}", "request", example.request, "baseline",
                        example.baseline, "candidate", example.candidate));
        shadow_example_clear(&example);
    }
}

int main(int argc, char **argv)
{
    const char *methods[8] = {0}, *ignore[8] = {0};
    if (argc < 10)
        return 2;
    drive_split(argv[7], methods, 8);
    drive_split(argv[8], ignore, 8);
    double seconds_wanted = atof(argv[4]), rate = atof(argv[5]), owed = 0;
    const struct shadow_opts opts = {.urls = {argv[1], argv[2]},
            .requests = argv[3],
            .methods = *methods[0] ? methods : NULL,
            .ignore = ignore,
            .mirror = atof(argv[6]),
            .timeout_ns = (int64_t)(atof(argv[9]) * 1e9)};
    struct shadow *shadow = NULL;
    struct error err = {0};
    int rc = shadow_open(&opts, &shadow, &err);
    json_t *seconds = json_array(), *examples = json_array();
    int64_t begin = clock_monotonic_ns(), last = begin, longest = 0;
    uint64_t traffic = 0;
    while (rc == 0 && clock_monotonic_ns() - begin < (int64_t)(seconds_wanted * 1e9)) {
        int64_t now = clock_monotonic_ns();
        owed += rate * (double)(now - last) / 1e9;
        last = now;
        shadow_traffic(shadow, (uint64_t)owed);
        traffic += (uint64_t)owed;
        owed -= floor(owed);
        rc = shadow_poll(shadow, 10, &err);
        longest = clock_monotonic_ns() - now > longest ? clock_monotonic_ns() - now : longest;
        clock_sleep_until_ns(now + 2000000);
        drive_take(shadow, seconds, examples);
    }
    if (rc)
        fprintf(stderr, "%s\n", err.text);
    if (rc == 0) {
        struct shadow_state state;
        clock_sleep_until_ns(clock_monotonic_ns() + 1100000000);
        drive_take(shadow, seconds, examples);
        shadow_look(shadow, &state);
        json_t *document = json_pack("{s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:s, s:f}",
                "seconds", seconds, "examples", examples, "traffic", (json_int_t)traffic, "pairs",
                (json_int_t)state.pairs, "compared", (json_int_t)state.compared, "different",
                (json_int_t)state.different, "unanswered", (json_int_t)state.unanswered, "behind",
                (json_int_t)state.behind, "limit", state.limit, "ignored", state.ignored,
                "longest_ms", (double)longest / 1e6);
        json_dumpf(document, stdout, 0);
        json_decref(document);
    } else {
        json_decref(seconds);
        json_decref(examples);
    }
    shadow_close(shadow);
    return rc ? error_exit_code(rc) : 0;
}
