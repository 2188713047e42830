// SPDX-License-Identifier: Apache-2.0
// A candidate without a baseline beside it: what turns bad there is found, what is as it was,
// drifts or bursts is not.
#include "reports/analyse/canary/alone.h"

#include <math.h>

#include "ci/sim/canary_sim_stream.h"
#include "tests/unit/canary_cells.h"

static struct stream stream;

// A/A, a stage of half the traffic, both good; then all of it for so long. Gives the second of the
// fail there; 0: none.
static int whole_traffic(struct stream_world world, struct stream_fault fault, int seconds,
        uint64_t seed, int *ret_metric)
{
    struct canary_rules rules = rules_of(0.5, 0.1, NAN);
    struct canary_evidence *evidence = canary_evidence_new(&rules);
    struct canary_second arms[CANARY_ARMS];
    int failed = 0, at = 0;
    stream_start(&stream, &world, &fault, seed);
    canary_evidence_stage(evidence, 0, true);
    for (int i = 0; i < 60; i++, at++) {
        stream_second_of(&stream, STREAM_AA, at, i, 0.05, arms);
        canary_evidence_add(evidence, arms);
    }
    canary_evidence_stage(evidence, 1, false);
    for (int i = 0; i < 60; i++, at++) {
        stream_second_of(&stream, STREAM_GOOD, at, i, 0.5, arms);
        canary_evidence_add(evidence, arms);
    }
    CHECK_INT(canary_evidence_failed(evidence), -1);
    canary_evidence_stage(evidence, 2, false);
    for (int i = 1; i <= seconds && !failed; i++, at++) {
        stream_second_of(&stream, STREAM_BAD, at, i, 1, arms);
        canary_evidence_add(evidence, arms);
        if (canary_evidence_failed(evidence) >= 0) {
            failed = i;
            *ret_metric = canary_evidence_failed(evidence);
            struct canary_cell cell = cell_of(evidence, (enum canary_metric) * ret_metric);
            CHECK_INT(cell.verdict, CANARY_FAIL);
            CHECK(cell.alone_windows >= CANARY_ALONE_RUN &&
                    cell.alone_value > 2 * cell.alone_usual);
        }
    }
    canary_evidence_free(evidence);
    return failed;
}

TEST(what_turns_bad_is_found)
{
    static const struct {
        struct stream_fault fault;
        double requests_per_s;
        enum canary_metric metric;
    } cases[] = {{{1, 3, 0}, 1000, CANARY_LATENCY_P99}, {{1, 4, 0}, 20, CANARY_LATENCY_P99},
            {{20, 1, 0}, 1000, CANARY_ERROR_RATE}, {{200, 1, 0}, 100, CANARY_ERROR_RATE}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int metric = -1;
        int at = whole_traffic((struct stream_world){cases[i].requests_per_s, 1e-3, 1, 0, 0, 0},
                cases[i].fault, 120, i + 1, &metric);
        CHECK(at > 0 && at <= 45);
        CHECK_INT(metric, cases[i].metric);
    }
}

TEST(what_is_as_it_was_is_not)
{
    static const struct stream_world worlds[] = {{1000, 1e-3, 4, 1, 0, 1}, {1000, 0, 1, 0, 0, 1},
            {100, 0.02, 4, 0, 0, 1}, {20, 1e-3, 4, 0, 0, 1}};
    for (uint64_t i = 0; i < 40; i++) {
        int metric = -1;
        CHECK_INT(whole_traffic(worlds[i % 4], (struct stream_fault){1, i % 3 ? 1 : 1.2, 0}, 600,
                          100 + i, &metric),
                0);
    }
}

static struct canary_second answers(uint64_t requests, uint64_t errors, double latency_s)
{
    struct canary_second second = {.requests = requests, .errors = errors};
    second.bins[canary_bin(latency_s)] = (uint32_t)(requests - errors);
    return second;
}

static void seconds(struct canary_alone *alone, int count, struct canary_second baseline,
        struct canary_second candidate)
{
    struct canary_rules rules = rules_of(0.5, 0.1, NAN);
    const struct canary_second arms[CANARY_ARMS] = {baseline, candidate};
    for (int i = 0; i < count; i++)
        canary_alone_add(alone, arms, &rules, true);
}

TEST(windows)
{
    static struct canary_alone alone, empty;
    struct canary_second none = {0}, good = answers(50, 0, 0.01), slow = answers(50, 0, 0.03);
    seconds(&alone, 50, none, slow); // nothing to be held against
    CHECK(!canary_alone_open(&alone, CANARY_LATENCY_P99) &&
            !canary_alone_fails(&alone, CANARY_LATENCY_P99));
    alone = empty;
    seconds(&alone, 30, good, good);
    CHECK_INT(alone.kept_count, 3);
    CHECK(canary_alone_open(&alone, CANARY_LATENCY_P99)); // no window of the candidate yet
    seconds(&alone, 10, none, good);
    CHECK(!canary_alone_open(&alone, CANARY_LATENCY_P99));
    seconds(&alone, 29, none, slow);
    CHECK(canary_alone_open(&alone, CANARY_LATENCY_P99) &&
            !canary_alone_fails(&alone, CANARY_LATENCY_P99));
    seconds(&alone, 1, none, slow);
    CHECK(canary_alone_fails(&alone, CANARY_LATENCY_P99));
    CHECK(!canary_alone_fails(&alone, CANARY_ERROR_RATE));
    seconds(&alone, 1, good, slow); // a baseline again: the windows begin anew
    CHECK(!canary_alone_fails(&alone, CANARY_LATENCY_P99));
    // Of few requests a window takes as long as it must; a second without any is none.
    seconds(&alone, 9, none, answers(1, 0, 0.01));
    seconds(&alone, 50, none, none);
    seconds(&alone, 90, none, answers(1, 0, 0.01));
    CHECK_INT(alone.windows, 0);
    seconds(&alone, 1, none, answers(1, 0, 0.01));
    CHECK_INT(alone.windows, 1);
}

TEST(bursts_and_strays)
{
    static struct canary_alone alone;
    struct canary_second none = {0}, good = answers(50, 0, 0.01), stray = answers(1, 0, 0.01);
    seconds(&alone, 30, good, good);
    for (int window = 0; window < 3; window++) { // 0.5 % each, but eight errors are no regression
        seconds(&alone, 1, none, answers(50, window < 2 ? 3 : 2, 0.01));
        seconds(&alone, 9, stray, answers(200, 0, 0.01));
    }
    CHECK(canary_alone_open(&alone, CANARY_ERROR_RATE) &&
            !canary_alone_fails(&alone, CANARY_ERROR_RATE));
    seconds(&alone, 1, none, answers(50, 4, 0.01));
    seconds(&alone, 9, stray, answers(200, 0, 0.01));
    CHECK(canary_alone_fails(&alone, CANARY_ERROR_RATE));
    // A rate that doubles below 0.1 % is none either.
    seconds(&alone, 10, good, good);
    seconds(&alone, 60, none, answers(5000, 4, 0.01));
    CHECK(!canary_alone_open(&alone, CANARY_ERROR_RATE));
}

// One request of a connection kept open, each ten seconds, at 20 requests/s: no baseline. One in
// ten of 2 requests/s: it is one.
TEST(strays_of_thin_traffic)
{
    static struct canary_alone alone, empty;
    struct canary_second none = {0}, one = answers(1, 0, 0.01), slow = answers(20, 0, 0.03);
    seconds(&alone, 30, answers(20, 0, 0.01), answers(20, 0, 0.01));
    for (int window = 0; window < 3; window++) {
        CHECK(!canary_alone_fails(&alone, CANARY_LATENCY_P99));
        seconds(&alone, 9, none, slow);
        seconds(&alone, 1, one, slow);
    }
    CHECK(canary_alone_fails(&alone, CANARY_LATENCY_P99));
    alone = empty;
    for (int i = 0; i < 100; i++) {
        seconds(&alone, 9, none, answers(2, 0, 0.01));
        seconds(&alone, 1, one, answers(2, 0, 0.01));
        CHECK_INT(alone.windows, 0);
    }
}

// Of a histogram's buckets: 0.158 is the middle of the one to 0.25 s, 0.354 of the next.
TEST(coarse_buckets)
{
    static struct canary_alone alone, empty;
    for (int more = 0; more < 2; more++) {
        struct canary_second none = {0}, good = answers(1000, 0, 0.158),
                             other = answers(1000, 0, 0.158);
        good.bins[canary_bin(0.354)] = 9;
        good.bins[canary_bin(0.158)] = 991;
        other.bins[canary_bin(0.354)] = more ? 170 : 12; // twice as slow; a trifle
        other.bins[canary_bin(0.158)] = more ? 830 : 988;
        alone = empty;
        seconds(&alone, 30, good, good);
        seconds(&alone, 30, none, other);
        CHECK_INT(canary_alone_fails(&alone, CANARY_LATENCY_P99), more);
    }
}

TEST(one_bad_time_of_the_baseline_does_not_blind)
{
    static struct canary_alone alone;
    struct canary_second none = {0}, good = answers(50, 0, 0.01), slow = answers(50, 0, 1);
    seconds(&alone, 20, slow, good);
    seconds(&alone, 380, good, good);
    seconds(&alone, 30, none, answers(50, 0, 0.03));
    CHECK(canary_alone_fails(&alone, CANARY_LATENCY_P99));
    seconds(&alone, 10000 * CANARY_ALONE_SECONDS, good, good); // a day and a bit: as much memory
    CHECK(alone.kept_count <= CANARY_ALONE_KEPT && alone.kept_count >= CANARY_ALONE_KEPT / 2);
    seconds(&alone, 30, none, answers(50, 0, 0.03));
    CHECK(canary_alone_fails(&alone, CANARY_LATENCY_P99));
}
