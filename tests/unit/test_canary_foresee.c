// SPDX-License-Identifier: Apache-2.0
// What a stage is said to see, against the design's simulations and against the evidence itself.
#include "ci/sim/canary_sim_stream.h"
#include "tests/unit/canary_cells.h"

static const struct canary_traffic usual = {1000, 1e-3, 0.5, 1, 0, 0};

TEST(more_traffic_sees_more)
{
    struct canary_rules rules = rules_of(0.5, 0.05, 0.05);
    static const double shares[] = {0.01, 0.05, 0.25, 0.5};
    for (int metric = 0; metric < CANARY_METRICS; metric++) {
        double last_seen = INFINITY, last_pass = INFINITY;
        if (metric == CANARY_WRONG_ANSWERS)
            continue;
        for (int i = 0; i < 4; i++) {
            struct canary_foresight sight = canary_foresee(&rules, metric, shares[i], 300, &usual);
            CHECK_INT(sight.requests, (long long)(300000 * shares[i] + 0.5));
            CHECK(sight.seen_ratio <= last_seen);
            CHECK(sight.pass_s <= last_pass);
            CHECK(sight.seen_ratio > 1 + rules.metrics[metric].margin);
            last_seen = sight.seen_ratio;
            last_pass = sight.pass_s;
        }
        CHECK(last_seen < 2.2);
    }
}

// The design: 1 % of the traffic cannot find a doubled error rate in 400,000 requests, 25 % finds
// it within about 100,000.
TEST(as_the_design_says)
{
    struct canary_rules rules = rules_of(0.5, 0.05, 0.05);
    struct canary_foresight one = canary_foresee(&rules, CANARY_ERROR_RATE, 0.01, 400, &usual);
    struct canary_foresight quarter = canary_foresee(&rules, CANARY_ERROR_RATE, 0.25, 200, &usual);
    CHECK(one.seen_ratio > 3);
    CHECK_DBL(quarter.seen_ratio, 2, 0.25);
    struct canary_foresight p99 = canary_foresee(&rules, CANARY_LATENCY_P99, 0.25, 40, &usual);
    CHECK_DBL(p99.seen_ratio, 1.1, 0.02);
    // 4,603 requests
    CHECK_DBL(canary_foresee(&rules, CANARY_ERROR_RATE, 0.25, 18.41, &usual).zero_error_bound, 1e-3,
            6e-5);
}

TEST(a_quarter_sees_what_it_was_said_to)
{
    struct canary_rules rules = rules_of(0.5, 0.05, 0.05);
    struct canary_foresight sight = canary_foresee(&rules, CANARY_LATENCY_P99, 0.25, 30, &usual);
    struct stream_world world = {1000, 1e-3, 1, 0, 0, 0};
    struct stream_fault fault = {1, sight.seen_ratio, 0};
    static struct stream stream;
    int found = 0;
    for (uint64_t i = 0; i < 40; i++) {
        struct canary_evidence *evidence = canary_evidence_new(&rules);
        struct canary_second arms[CANARY_ARMS];
        stream_start(&stream, &world, &fault, 40 + i);
        canary_evidence_stage(evidence, 0, true);
        for (int at = 0; at < 40 + 30 && canary_evidence_failed(evidence) < 0; at++) {
            if (at == 40)
                canary_evidence_stage(evidence, 1, false);
            stream_second(&stream, at, at < 40 ? -1 : at, 0.25, arms);
            canary_evidence_add(evidence, arms);
        }
        found += canary_evidence_failed(evidence) == CANARY_LATENCY_P99;
        canary_evidence_free(evidence);
    }
    CHECK(found >= 24 && found <= 40); // 32 of 40 expected
}

TEST(what_can_not_be)
{
    struct canary_rules rules = rules_of(0.5, 0.05, 0.05);
    struct canary_traffic silent = {0, 1e-3, 0.5, 1, 0, 0}, clean = {1000, 0, 0, 0, 0, 0},
                          bursty = {1000, 1e-3, 0.5, 4, 0, 0};
    CHECK(isinf(canary_foresee(&rules, CANARY_ERROR_RATE, 0.25, 300, &silent).pass_s));
    CHECK_DBL(canary_foresee(&rules, CANARY_ERROR_RATE, 0.25, 300, &silent).zero_error_bound, 1, 0);
    // nothing to compare with
    CHECK(isinf(canary_foresee(&rules, CANARY_LATENCY_P99, 1, 300, &usual).seen_ratio));
    CHECK(isinf(canary_foresee(&rules, CANARY_LATENCY_P99, 0, 300, &usual).pass_s));
    struct canary_foresight sight = canary_foresee(&rules, CANARY_ERROR_RATE, 0.25, 300, &clean);
    CHECK(isinf(sight.seen_ratio));     // of no errors no multiple
    CHECK_DBL(sight.pass_s, 19.3, 0.5); // but the zero-failure bound
    CHECK(canary_foresee(&rules, CANARY_ERROR_RATE, 0.25, 600, &bursty).seen_ratio >
            canary_foresee(&rules, CANARY_ERROR_RATE, 0.25, 600, &usual).seen_ratio);
    CHECK_DBL(canary_foresee(&rules, CANARY_WRONG_ANSWERS, 0.25, 10, &usual).pass_s, 0.004, 1e-9);
    struct canary_traffic small = usual;
    small.opens = 0.05;
    small.stage_requests = 200;
    CHECK(canary_foresee(&rules, CANARY_LATENCY_P99, 0.01, 60, &small).pass_s <
            0.3 * canary_foresee(&rules, CANARY_LATENCY_P99, 0.01, 60, &usual).pass_s);
    CHECK(canary_foresee(&rules, CANARY_ERROR_RATE, 0.01, 60, &small).pass_s <= 20);
}
