// SPDX-License-Identifier: Apache-2.0
// The fold end to end: what is rolled back, what passes, what must do neither; stages, shares and
// restarts.
#include "reports/analyse/canary/evidence.h"

#include "ci/sim/canary_sim_stream.h"
#include "reports/analyse/canary/rate.h"
#include "tests/unit/canary_cells.h"

// Seconds of a stage into the evidence; ends early at a fail. Returns seconds taken.
static int drive(
        struct canary_evidence *evidence, struct stream *stream, double share, int seconds, bool aa)
{
    struct canary_second arms[CANARY_ARMS];
    for (int i = 1; i <= seconds; i++) {
        stream_second(stream, i, aa ? -1 : i, share, arms);
        canary_evidence_add(evidence, arms);
        if (canary_evidence_failed(evidence) >= 0)
            return i;
    }
    return seconds;
}

static void start(struct stream *stream, double requests_per_s, double error_rate, double burst,
        struct stream_fault fault, uint64_t seed)
{
    struct stream_world world = {requests_per_s, error_rate, burst, 0, 0, 1};
    stream_start(stream, &world, &fault, seed);
}

static const struct stream_fault none = {1, 1, 0};

TEST(names)
{
    for (int i = 0; i < CANARY_METRICS; i++)
        CHECK_INT(canary_metric_by_name(canary_metric_name(i)), i);
    CHECK_INT(canary_metric_by_name("latency"), -1);
    CHECK_INT(canary_metric_by_name(""), -1);
}

TEST(observed_without_a_margin)
{
    struct canary_rules rules = rules_of(0.5, 0.05, 0.1);
    for (int i = 0; i < CANARY_METRICS; i++)
        rules.metrics[i] = (struct canary_rule){false, true, NAN, NAN};
    static struct stream stream;
    struct canary_evidence *evidence = canary_evidence_new(&rules);
    start(&stream, 200, 5e-3, 1, none, 5);
    canary_evidence_stage(evidence, 0, true);
    drive(evidence, &stream, 0.05, 30, true);
    canary_evidence_stage(evidence, 1, false);
    drive(evidence, &stream, 0.25, 30, false);
    for (int i = 0; i < CANARY_METRICS; i++) {
        struct canary_cell cell = cell_of(evidence, i);
        CHECK_INT(cell.verdict, CANARY_UNDECIDED);
        CHECK(i == CANARY_WRONG_ANSWERS || (cell.value > 0.2 && cell.value < 5));
    }
    canary_evidence_free(evidence);
}

TEST(equal_arms_are_not_rolled_back)
{
    enum { ROLLOUTS = 60 };
    struct canary_rules rules = rules_of(0.5, 0.05, 0.1);
    static struct stream stream;
    int back = 0;
    for (uint64_t i = 0; i < ROLLOUTS; i++) {
        struct canary_evidence *evidence = canary_evidence_new(&rules);
        start(&stream, 200, 5e-3, 4, none, 10 + i);
        canary_evidence_stage(evidence, 0, true);
        drive(evidence, &stream, 0.05, 60, true);
        for (int stage = 1; stage <= 3 && canary_evidence_failed(evidence) < 0; stage++) {
            canary_evidence_stage(evidence, stage, false);
            drive(evidence, &stream, stage == 1 ? 0.01 : stage == 2 ? 0.25 : 0.5, 100, false);
        }
        back += canary_evidence_failed(evidence) >= 0;
        canary_evidence_free(evidence);
    }
    CHECK(back <= 3); // 0.6 expected at most
}

TEST(worse_arms_are_found)
{
    struct canary_rules rules = rules_of(0.5, 0.05, 0.1);
    static struct stream stream;
    static const struct {
        struct stream_fault fault;
        enum canary_metric metric;
        int seconds;
    } rows[] = {{{4, 1, 0}, CANARY_ERROR_RATE, 120}, {{1, 1.2, 0}, CANARY_LATENCY_P99, 60},
            {{1, 1, 5}, CANARY_ERROR_RATE, 6}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct canary_evidence *evidence = canary_evidence_new(&rules);
        start(&stream, 1000, 1e-3, 1, rows[i].fault, 3);
        canary_evidence_stage(evidence, 0, true);
        drive(evidence, &stream, 0.05, 60, true);
        CHECK_INT(canary_evidence_failed(evidence), -1);
        canary_evidence_stage(evidence, 1, false);
        int taken = drive(evidence, &stream, 0.25, rows[i].seconds, false);
        CHECK_INT(canary_evidence_failed(evidence), rows[i].metric);
        CHECK(taken <= rows[i].seconds);
        struct canary_cell cell = cell_of(evidence, rows[i].metric);
        CHECK_INT(cell.verdict, CANARY_FAIL);
        CHECK(cell.evidence >= cell.needed);
        CHECK(cell.value > cell.threshold);
        // A fail stays, whatever comes.
        stream.fault = none;
        drive(evidence, &stream, 0.25, 5, true);
        CHECK_INT(cell_of(evidence, rows[i].metric).verdict, CANARY_FAIL);
        canary_evidence_free(evidence);
    }
}

TEST(what_is_better_passes_and_is_not_rolled_back)
{
    struct canary_rules rules = rules_of(0.5, 0.1, 0.1);
    static struct stream stream;
    struct canary_evidence *evidence = canary_evidence_new(&rules);
    start(&stream, 1000, 4e-3, 1, (struct stream_fault){0.3, 0.8, 0}, 7);
    canary_evidence_stage(evidence, 0, true);
    drive(evidence, &stream, 0.25, 60, true);
    canary_evidence_stage(evidence, 1, false);
    drive(evidence, &stream, 0.25, 120, false);
    CHECK_INT(canary_evidence_failed(evidence), -1);
    struct canary_cell errors = cell_of(evidence, CANARY_ERROR_RATE),
                       p99 = cell_of(evidence, CANARY_LATENCY_P99);
    CHECK_INT(errors.verdict, CANARY_PASS);
    CHECK_INT(p99.verdict, CANARY_PASS);
    CHECK_DBL(errors.value, 0.3, 0.15);
    CHECK_DBL(p99.value, 0.8, 0.05);
    CHECK(errors.high < errors.pass_below && errors.high > errors.value);
    CHECK(p99.low < 0.8 && p99.high > 0.8);
    CHECK_DBL(cell_of(evidence, CANARY_LATENCY_MEAN).value, 0.8, 0.03);
    CHECK_DBL(cell_of(evidence, CANARY_LATENCY_P50).value, 0.8, 0.03);
    canary_evidence_free(evidence);
}

static void quiet(
        struct canary_evidence *evidence, int seconds, uint64_t baseline, uint64_t candidate)
{
    struct canary_second arms[CANARY_ARMS];
    memset(arms, 0, sizeof arms);
    for (int arm = 0; arm < CANARY_ARMS; arm++) {
        arms[arm].requests = arm == CANARY_BASELINE ? baseline : candidate;
        for (uint64_t i = 0; i < arms[arm].requests; i++) // 10 to 30 ms
            arms[arm].bins[465 + i * 7 % 55]++;
    }
    for (int i = 0; i < seconds; i++)
        canary_evidence_add(evidence, arms);
}

static void error_in(struct canary_evidence *evidence, uint64_t baseline, uint64_t candidate)
{
    struct canary_second arms[CANARY_ARMS] = {
            {.requests = 100, .errors = baseline}, {.requests = 100, .errors = candidate}};
    canary_evidence_add(evidence, arms);
}

// No error at all: nothing is known of a ratio, and yet it passes, with the bound stated.
TEST(no_errors_on_either_side)
{
    struct canary_rules rules = rules_of(0.5, 0.1, 0.1);
    struct canary_evidence *evidence = canary_evidence_new(&rules);
    canary_evidence_stage(evidence, 1, false);
    quiet(evidence, 40, 300, 100);
    struct canary_cell cell = cell_of(evidence, CANARY_ERROR_RATE);
    CHECK_INT(cell.verdict, CANARY_UNDECIDED); // 4,000 requests bound it by 0.12 %
    CHECK(isnan(cell.value) && isnan(cell.high));
    CHECK_DBL(cell.rate_bound, canary_rate_bound(0, 4000, 0.01), 1e-12);
    CHECK_INT(cell.requests, 4000);
    CHECK(cell.requests_missing > 700 && cell.requests_missing < 900);
    quiet(evidence, 9, 300, 100);
    cell = cell_of(evidence, CANARY_ERROR_RATE);
    CHECK_INT(cell.verdict, CANARY_PASS); // 4,900: the zero-failure bound of 0.1 %
    CHECK(cell.rate_bound <= 1e-3);
    CHECK_INT(cell.requests_missing, 0);
    canary_evidence_free(evidence);
}

TEST(one_stray_error_does_not_hold_it_for_ever)
{
    for (int arm = 0; arm < CANARY_ARMS; arm++) {
        struct canary_rules rules = rules_of(0.5, 0.1, 0.1);
        struct canary_evidence *evidence = canary_evidence_new(&rules);
        canary_evidence_stage(evidence, 1, false);
        error_in(evidence, arm == CANARY_BASELINE, arm == CANARY_CANDIDATE);
        quiet(evidence, 48, 300, 100);
        CHECK_INT(cell_of(evidence, CANARY_ERROR_RATE).verdict,
                arm == CANARY_BASELINE ? CANARY_PASS : CANARY_UNDECIDED);
        quiet(evidence, 60, 300, 100);
        CHECK_INT(cell_of(evidence, CANARY_ERROR_RATE).verdict, CANARY_PASS);
        CHECK_INT(canary_evidence_failed(evidence), -1);
        canary_evidence_free(evidence);
    }
}

// Half a percent of errors where the baseline has none must fail before the floor lets it pass.
TEST(errors_of_the_candidate_alone)
{
    struct canary_rules rules = rules_of(0.5, 0.1, 0.1);
    struct canary_evidence *evidence = canary_evidence_new(&rules);
    canary_evidence_stage(evidence, 1, false);
    int seconds = 0;
    for (; seconds < 100 && canary_evidence_failed(evidence) < 0; seconds++) {
        quiet(evidence, 1, 300, 100);
        error_in(evidence, 0, 1); // one of 200
        CHECK(cell_of(evidence, CANARY_ERROR_RATE).verdict != CANARY_PASS);
    }
    CHECK_INT(canary_evidence_failed(evidence), CANARY_ERROR_RATE);
    CHECK(seconds < 40);
    canary_evidence_free(evidence);
}

// Answers 4xx: as errors are, and none of their alpha where they are not gated.
TEST(rejected_of_the_candidate)
{
    struct canary_rules rules = rules_of(0.5, 0.1, 0.1);
    rules.metrics[CANARY_REJECTED_RATE].gated = true;
    for (int same = 0; same < 2; same++) {
        struct canary_evidence *evidence = canary_evidence_new(&rules);
        struct canary_second arms[CANARY_ARMS] = {
                {.requests = 300, .rejected = 6}, {.requests = 100, .rejected = same ? 2 : 6}};
        canary_evidence_stage(evidence, 1, false);
        for (int i = 0; i < 300; i++)
            canary_evidence_add(evidence, arms);
        struct canary_cell cell = cell_of(evidence, CANARY_REJECTED_RATE);
        CHECK_INT(cell.verdict, same ? CANARY_PASS : CANARY_FAIL);
        CHECK_DBL(cell.value, same ? 1 : 3, 0.1);
        CHECK_INT(canary_evidence_failed(evidence), same ? -1 : (int)CANARY_REJECTED_RATE);
        canary_evidence_lost(evidence, 2000); // of which each may have been one
        if (same)
            CHECK_INT(cell_of(evidence, CANARY_REJECTED_RATE).verdict, CANARY_UNDECIDED);
        canary_evidence_free(evidence);
    }
}

TEST(a_small_stage_passes_for_what_it_opens)
{
    struct canary_rules rules = rules_of(0.5, 0.1, 0.1);
    for (int told = 0; told < 2; told++) {
        struct canary_evidence *evidence = canary_evidence_new(&rules);
        canary_evidence_stage(evidence, 0, true);
        quiet(evidence, 30, 950, 50);
        CHECK_INT(cell_of(evidence, CANARY_LATENCY_P99).verdict, CANARY_PASS); // learnt
        canary_evidence_stage(evidence, 1, false);
        if (told)
            canary_evidence_opens(evidence, 0.05, 200);
        quiet(evidence, 19, 990, 10);
        CHECK_INT(cell_of(evidence, CANARY_ERROR_RATE).verdict, CANARY_UNDECIDED); // 190 requests
        quiet(evidence, 5, 990, 10);
        CHECK_INT(cell_of(evidence, CANARY_ERROR_RATE).verdict,
                told ? CANARY_PASS : CANARY_UNDECIDED);
        struct canary_cell p99 = cell_of(evidence, CANARY_LATENCY_P99);
        CHECK_DBL(p99.threshold, 1.1, 1e-12);
        if (told)
            CHECK(p99.pass_below > 1.2);
        else
            CHECK_DBL(p99.pass_below, 1.1, 1e-9);
        canary_evidence_free(evidence);
    }
}

TEST(a_hundred_percent_repeats_the_last_stage)
{
    struct canary_rules rules = rules_of(0.5, 0.1, 0.1);
    struct canary_evidence *evidence = canary_evidence_new(&rules);
    canary_evidence_stage(evidence, 1, false);
    quiet(evidence, 300, 300, 300);
    struct canary_cell before = cell_of(evidence, CANARY_LATENCY_P99);
    CHECK_INT(before.verdict, CANARY_PASS);
    canary_evidence_stage(evidence, 2, false);
    quiet(evidence, 2, 3, 600); // the last ones of the baseline come home
    CHECK_INT(cell_of(evidence, CANARY_LATENCY_P99).verdict, CANARY_UNDECIDED);
    quiet(evidence, 10, 0, 600);
    struct canary_cell cell = cell_of(evidence, CANARY_LATENCY_P99);
    CHECK_INT(cell.verdict, CANARY_PASS);
    CHECK_INT(cell.stage, 2);
    CHECK_INT(cell.requests, 7200);
    CHECK_DBL(cell.high, before.high, 0);
    CHECK_INT(cell_of(evidence, CANARY_ERROR_RATE).verdict, CANARY_PASS);
    quiet(evidence, 1, 1, 600); // a stray request on a connection kept open
    CHECK_INT(cell_of(evidence, CANARY_LATENCY_P99).verdict, CANARY_PASS);
    struct canary_second arms[CANARY_ARMS] = {{0}, {.requests = 600, .wrong = 1}};
    canary_evidence_add(evidence, arms); // wrong answers are watched on
    CHECK_INT(canary_evidence_failed(evidence), CANARY_WRONG_ANSWERS);
    canary_evidence_free(evidence);
    evidence = canary_evidence_new(&rules); // nothing was ever compared: nothing passes
    canary_evidence_stage(evidence, 0, false);
    quiet(evidence, 60, 0, 600);
    quiet(evidence, 1, 1, 600);
    CHECK_INT(cell_of(evidence, CANARY_ERROR_RATE).verdict, CANARY_UNDECIDED);
    CHECK_INT(cell_of(evidence, CANARY_LATENCY_P99).verdict, CANARY_UNDECIDED);
    canary_evidence_free(evidence);
}

TEST(wrong_answers_against_their_limit)
{
    struct canary_rules rules = rules_of(0.5, 0.1, 0.1);
    rules.metrics[CANARY_WRONG_ANSWERS].limit = 2;
    struct canary_evidence *evidence = canary_evidence_new(&rules);
    struct canary_second arms[CANARY_ARMS] = {
            {.requests = 10, .wrong = 5}, {.requests = 10, .wrong = 1}};
    canary_evidence_stage(evidence, 0, false);
    CHECK_INT(cell_of(evidence, CANARY_WRONG_ANSWERS).verdict, CANARY_UNDECIDED); // no request yet
    canary_evidence_add(evidence, arms);
    canary_evidence_add(evidence, arms);
    struct canary_cell cell = cell_of(evidence, CANARY_WRONG_ANSWERS);
    CHECK_INT(cell.verdict, CANARY_PASS);
    CHECK_DBL(cell.value, 2, 0);
    CHECK_DBL(cell.threshold, 2, 0);
    canary_evidence_stage(evidence, 1, false); // the count is the stage's
    canary_evidence_add(evidence, arms);
    CHECK_DBL(cell_of(evidence, CANARY_WRONG_ANSWERS).value, 1, 0);
    canary_evidence_add(evidence, arms);
    canary_evidence_add(evidence, arms);
    CHECK_INT(canary_evidence_failed(evidence), CANARY_WRONG_ANSWERS);
    canary_evidence_free(evidence);
}

TEST(an_aa_stage_finds_arms_that_differ)
{
    struct canary_rules rules = rules_of(0.5, 0.1, 0.1);
    for (int better = 0; better < 2; better++) {
        struct canary_evidence *evidence = canary_evidence_new(&rules);
        canary_evidence_stage(evidence, 0, true);
        for (int i = 0; i < 200 && canary_evidence_failed(evidence) < 0; i++)
            error_in(evidence, better ? 5 : i % 2, better ? i % 2 : 5);
        CHECK_INT(canary_evidence_failed(evidence), CANARY_ERROR_RATE);
        canary_evidence_free(evidence);
    }
    // the baseline alone: nothing to differ
    struct canary_evidence *evidence = canary_evidence_new(&rules);
    canary_evidence_stage(evidence, 0, true);
    CHECK_INT(cell_of(evidence, CANARY_LATENCY_P99).verdict, CANARY_UNDECIDED);
    quiet(evidence, 5, 300, 0);
    CHECK_INT(cell_of(evidence, CANARY_LATENCY_P99).verdict, CANARY_PASS);
    CHECK_INT(cell_of(evidence, CANARY_ERROR_RATE).verdict, CANARY_PASS);
    canary_evidence_free(evidence);
}

TEST(the_same_seconds_give_the_same_state)
{
    struct canary_rules rules = rules_of(0.5, 0.05, 0.1);
    static struct stream stream;
    struct canary_cell cells[2][CANARY_METRICS];
    int count[2];
    for (int round = 0; round < 2; round++) {
        struct canary_evidence *evidence = canary_evidence_new(&rules);
        start(&stream, 300, 5e-3, 4, none, 99);
        canary_evidence_stage(evidence, 0, true);
        drive(evidence, &stream, 0.1, 30, true);
        canary_evidence_stage(evidence, 1, false);
        canary_evidence_opens(evidence, 0.5, 100);
        drive(evidence, &stream, 0.2, 50, false);
        memset(cells[round], 0, sizeof cells[round]);
        canary_evidence_cells(evidence, cells[round], &count[round]);
        canary_evidence_free(evidence);
    }
    CHECK_INT(count[0], CANARY_METRICS);
    CHECK_INT(count[0], count[1]);
    CHECK(!memcmp(cells[0], cells[1], (size_t)count[0] * sizeof *cells[0]));
}

TEST(bursts_that_begin_later_do_not_decide)
{
    enum { ROLLOUTS = 40 };
    struct canary_rules rules = rules_of(0.5, 0.05, 0.1);
    static struct stream stream;
    int back = 0;
    for (uint64_t i = 0; i < ROLLOUTS; i++) {
        struct canary_evidence *evidence = canary_evidence_new(&rules);
        start(&stream, 200, 5e-3, 1, none, 500 + i);
        canary_evidence_stage(evidence, 0, true);
        drive(evidence, &stream, 0.05, 120, true);
        canary_evidence_stage(evidence, 1, false);
        drive(evidence, &stream, 0.25, 100, false);
        stream.world.burst = 4;
        drive(evidence, &stream, 0.25, 200, false);
        back += canary_evidence_failed(evidence) >= 0;
        canary_evidence_free(evidence);
    }
    CHECK(back <= 3);
}

TEST(shares_that_change_between_stages_stay_valid)
{
    enum { ROLLOUTS = 300 };
    struct canary_rules rules = rules_of(0.5, 0.05, 0.1);
    rules.metrics[CANARY_LATENCY_P99].gated = rules.metrics[CANARY_LATENCY_P99].observed = false;
    rules.metrics[CANARY_LATENCY_P50].observed = rules.metrics[CANARY_LATENCY_MEAN].observed =
            false;
    int back = 0;
    for (uint64_t i = 0; i < ROLLOUTS; i++) {
        struct canary_evidence *evidence = canary_evidence_new(&rules);
        struct random_state random = stream_random(7000 + i);
        for (int stage = 0; stage < 40; stage++) { // more than a trail holds
            double share = stage % 3 == 0 ? 0.02
                    : stage % 3 == 1      ? 0.3
                                          : 0.7,
                   rate = stage % 2 ? 0.002 : 0.01;
            canary_evidence_stage(evidence, stage, false);
            for (int second = 0; second < 20; second++) {
                struct canary_second arms[CANARY_ARMS] = {{0}};
                for (int arm = 0; arm < CANARY_ARMS; arm++) {
                    arms[arm].requests =
                            (uint64_t)stream_poisson(&random, 300 * (arm ? share : 1 - share));
                    arms[arm].errors =
                            (uint64_t)stream_poisson(&random, rate * (double)arms[arm].requests);
                }
                canary_evidence_add(evidence, arms);
            }
        }
        back += canary_evidence_failed(evidence) >= 0;
        canary_evidence_free(evidence);
    }
    CHECK(back <= 8); // 3 expected at most
}

TEST(nothing_and_odd_input)
{
    struct canary_rules rules = rules_of(0.5, 0.1, 0.1);
    struct canary_evidence *evidence = canary_evidence_new(&rules);
    static struct canary_second arms[CANARY_ARMS];
    canary_evidence_stage(evidence, 0, false);
    CHECK(!canary_evidence_add(evidence, arms));
    CHECK_INT(cell_of(evidence, CANARY_LATENCY_P99).verdict, CANARY_UNDECIDED);
    CHECK(isnan(cell_of(evidence, CANARY_LATENCY_MEAN).value));
    // a source that lies must not bring it down
    arms[0].requests = arms[1].requests = UINT64_MAX / 4;
    arms[0].errors = arms[1].errors = UINT64_MAX / 2;
    arms[0].bins[CANARY_BINS - 1] = arms[1].bins[0] = UINT32_MAX;
    CHECK(canary_evidence_add(evidence, arms));
    cell_of(evidence, CANARY_LATENCY_P99);
    canary_evidence_stage(evidence, 1, true);
    canary_evidence_stage(evidence, 2, false);
    canary_evidence_add(evidence, arms);
    cell_of(evidence, CANARY_LATENCY_P99);
    canary_evidence_free(evidence);
    canary_evidence_free(NULL);
}

// What turns bad late is found soon, and the cell says since when: the stage as a whole is still
// within its margin then.
TEST(bad_late)
{
    static const struct {
        struct stream_fault fault;
        enum canary_metric metric;
        int seconds;      // at most
        double low, high; // of the ratio since
    } rows[] = {{{5, 1, 0}, CANARY_ERROR_RATE, 60, 2.5, 10},
            {{1, 1.2, 0}, CANARY_LATENCY_P99, 60, 1.5, 4},
            {{1, 1.5, 0}, CANARY_LATENCY_P50, 15, 1.2, 3},
            // a second of means speaks with half a nat at most
            {{1, 1.5, 0}, CANARY_LATENCY_MEAN, 120, 0, 0}};
    static struct stream stream;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct canary_rules rules = rules_of(0.5, 0.05, 0.1);
        for (int metric = 0; metric < CANARY_METRICS; metric++)
            rules.metrics[metric] = (struct canary_rule){
                    metric == (int)rows[i].metric, false, metric ? 0.05 : 0.5, NAN};
        struct canary_evidence *evidence = canary_evidence_new(&rules);
        start(&stream, 1000, 1e-3, 1, none, 60 + i);
        canary_evidence_stage(evidence, 0, true);
        drive(evidence, &stream, 0.25, 60, true);
        canary_evidence_stage(evidence, 1, false);
        drive(evidence, &stream, 0.25, 400, false);
        CHECK_INT(canary_evidence_failed(evidence), -1);
        start(&stream, 1000, 1e-3, 1, rows[i].fault, 80 + i);
        int taken = drive(evidence, &stream, 0.25, 400, false);
        CHECK_INT(canary_evidence_failed(evidence), rows[i].metric);
        CHECK(taken <= rows[i].seconds);
        struct canary_cell cell = cell_of(evidence, rows[i].metric);
        CHECK_INT(cell.verdict, CANARY_FAIL);
        if (rows[i].high > 0) {
            CHECK(cell.value < cell.threshold);
            // few errors tell it not exactly
            CHECK(cell.since_s >= 1 && cell.since_s <= (uint64_t)taken + 120);
            CHECK(cell.since_ratio > rows[i].low && cell.since_ratio < rows[i].high);
        }
        canary_evidence_free(evidence);
    }
}

// Worse from the begin on is told of the whole rollout.
TEST(bad_from_the_begin)
{
    struct canary_rules rules = rules_of(0.5, 0.05, 0.1);
    struct canary_evidence *evidence = canary_evidence_new(&rules);
    static struct stream stream;
    start(&stream, 1000, 1e-3, 1, (struct stream_fault){3, 1, 0}, 11);
    canary_evidence_stage(evidence, 1, false);
    drive(evidence, &stream, 0.25, 400, false);
    CHECK_INT(canary_evidence_failed(evidence), CANARY_ERROR_RATE);
    CHECK_INT(cell_of(evidence, CANARY_ERROR_RATE).since_s, 0);
    canary_evidence_free(evidence);
}

// A stage that was good for long and has turned bad does not pass while it is not yet rolled back.
TEST(no_pass_while_it_turns_bad)
{
    struct canary_rules rules = rules_of(0.5, 0.1, 0.1);
    struct canary_evidence *evidence = canary_evidence_new(&rules);
    canary_evidence_stage(evidence, 1, false);
    for (int i = 0; i < 1500; i++)
        error_in(evidence, i % 4 == 0, i % 4 == 2);
    CHECK_INT(cell_of(evidence, CANARY_ERROR_RATE).verdict, CANARY_PASS);
    int held = 0, seconds = 0;
    for (; seconds < 200 && canary_evidence_failed(evidence) < 0; seconds++) {
        error_in(evidence, seconds % 4 == 0, 1);
        struct canary_cell cell = cell_of(evidence, CANARY_ERROR_RATE);
        held += cell.verdict == CANARY_UNDECIDED && cell.high < cell.pass_below;
    }
    CHECK(held >= 3);
    CHECK_INT(canary_evidence_failed(evidence), CANARY_ERROR_RATE);
    CHECK(seconds <= 90); // 0.24 a second in ln e
    canary_evidence_free(evidence);
}

// 1 % of 5 requests/s: nothing is known of the candidate, whatever the plan asks for and the stage
// opens.
TEST(little_traffic_never_passes)
{
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct canary_rules rules = rules_of(0.5, 0.1, 0.1);
        struct canary_evidence *evidence = canary_evidence_new(&rules);
        static struct stream stream;
        start(&stream, 5, seed % 2 ? 1e-3 : 0, 1, none, 300 + seed);
        canary_evidence_stage(evidence, 0, true);
        drive(evidence, &stream, 0.2, 300, true);
        canary_evidence_stage(evidence, 1, false);
        canary_evidence_opens(evidence, 0.05, 1000);
        for (int i = 0; i < 60; i++) {
            drive(evidence, &stream, 0.01, 10, false);
            CHECK(cell_of(evidence, CANARY_ERROR_RATE).verdict != CANARY_PASS);
            CHECK(cell_of(evidence, CANARY_LATENCY_P99).verdict != CANARY_PASS);
        }
        CHECK_INT(canary_evidence_failed(evidence), -1);
        canary_evidence_free(evidence);
    }
}
