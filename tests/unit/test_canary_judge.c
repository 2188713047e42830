// SPDX-License-Identifier: Apache-2.0
// What the evidence of a stage says: which cells a kind of stage needs, tripwires, what is missing
// in words.
#include "harness/canary/decide/judge.h"
#include "tests/unit/runner.h"

static struct rollout_stage stages[] = {
        {.name = "shadow", .mirror = 0.05, .soak_ns = 10, .requests = 5},
        {.name = "aa", .aa = true, .percent = 10, .soak_ns = 10},
        {.name = "10%", .percent = 10, .soak_ns = 10, .requests = 50},
        {.name = "100%", .percent = 100, .soak_ns = 10}};

static struct rollout plan(void)
{
    struct rollout rollout = {.stages = stages,
            .stage_count = 4,
            .unreachable = 3,
            .rules = {.tripwire_error_rate = 0.2}};
    for (int i = 0; i < CANARY_METRICS; i++)
        rollout.rules.metrics[i] = (struct canary_rule){.margin = NAN, .limit = NAN};
    rollout.rules.metrics[CANARY_ERROR_RATE] =
            (struct canary_rule){.gated = true, .margin = 0.5, .limit = NAN};
    rollout.rules.metrics[CANARY_WRONG_ANSWERS] =
            (struct canary_rule){.gated = true, .margin = NAN, .limit = 2};
    rollout.rules.metrics[CANARY_LATENCY_P99] =
            (struct canary_rule){.observed = true, .margin = NAN, .limit = NAN};
    return rollout;
}

static bool passes(
        int stage, enum canary_verdict errors, enum canary_verdict wrong, enum canary_verdict p99)
{
    struct rollout rollout = plan();
    struct canary_cell cells[] = {{.metric = CANARY_ERROR_RATE, .verdict = errors},
            {.metric = CANARY_WRONG_ANSWERS, .verdict = wrong},
            {.metric = CANARY_LATENCY_P99, .verdict = p99}};
    struct judge_facts facts = {.cells = cells,
            .cell_count = 3,
            .requests = {500, 500},
            .judged_ns = 10,
            .recent_errors = NAN};
    struct judge_answer answer;
    judge_stage(&rollout, stage, &facts, &answer);
    CHECK(!answer.tripped && answer.soaked && answer.requests_enough);
    CHECK_INT(answer.failed >= 0, errors == CANARY_FAIL || wrong == CANARY_FAIL);
    return answer.cells_passed;
}

TEST(which_cells_a_stage_needs)
{
    const enum canary_verdict open = CANARY_UNDECIDED, pass = CANARY_PASS, fail = CANARY_FAIL;
    CHECK(passes(2, pass, pass, fail)); // what is observed gates nothing
    CHECK(!passes(2, open, pass, pass));
    CHECK(!passes(2, pass, open, pass));
    CHECK(!passes(2, fail, pass, pass));
    CHECK(passes(0, open, pass, open)); // the shadow stage compares answers
    CHECK(!passes(0, pass, open, open));
    CHECK(!passes(0, fail, pass, open));
    CHECK(passes(1, open, open, open)); // two equal arms: none has failed
    CHECK(!passes(1, fail, pass, pass));
    CHECK(passes(3, open, open, open)); // nothing is left to compare with
    CHECK(!passes(3, pass, fail, pass));
}

TEST(without_a_baseline)
{
    struct rollout rollout = plan();
    struct canary_cell cells[] = {{.metric = CANARY_ERROR_RATE,
                                          .verdict = CANARY_UNDECIDED,
                                          .threshold = 2,
                                          .alone_open = true},
            {.metric = CANARY_WRONG_ANSWERS, .verdict = CANARY_PASS}};
    struct judge_facts facts = {.cells = cells,
            .cell_count = 2,
            .requests = {0, 500},
            .judged_ns = 10,
            .recent_errors = NAN};
    struct judge_answer answer;
    judge_stage(&rollout, 3, &facts, &answer);
    CHECK(!answer.cells_passed);
    CHECK_CONTAINS(
            answer.text, "error_rate: 10 s without a baseline, and 100 requests, are not over yet");
    cells[0].requests = 700;
    judge_stage(&rollout, 2, &facts, &answer); // its baseline is there
    CHECK(!answer.cells_passed);
    CHECK_CONTAINS(answer.text, "error_rate is undecided after 700 requests");
    cells[0].alone_windows = 1;
    cells[0].alone_value = 0.05;
    judge_stage(&rollout, 3, &facts, &answer);
    CHECK(!answer.cells_passed && answer.failed < 0);
    CHECK_CONTAINS(answer.text, "error_rate is 5 % in the candidate's last 10 s");
    CHECK_CONTAINS(answer.text, "of the baseline's had 0 % at most");
    cells[0].alone_windows = 3;
    cells[0].verdict = CANARY_FAIL;
    judge_stage(&rollout, 3, &facts, &answer);
    CHECK_INT(answer.failed, 0);
    CHECK_CONTAINS(answer.text, "beyond 2 times that, 3 times in a row");
    cells[0] = (struct canary_cell){.metric = CANARY_ERROR_RATE, .verdict = CANARY_UNDECIDED};
    judge_stage(&rollout, 3, &facts, &answer);
    CHECK(answer.cells_passed);
}

TEST(what_an_earlier_stage_said_is_no_pass)
{
    struct rollout rollout = plan();
    struct canary_cell cells[] = {
            {.metric = CANARY_ERROR_RATE, .verdict = CANARY_PASS, .repeated = true},
            {.metric = CANARY_WRONG_ANSWERS, .verdict = CANARY_PASS}};
    struct judge_facts facts = {.cells = cells,
            .cell_count = 2,
            .requests = {500, 500},
            .judged_ns = 10,
            .recent_errors = NAN};
    struct judge_answer answer;
    judge_stage(&rollout, 2, &facts, &answer);
    CHECK(!answer.cells_passed && answer.failed < 0);
    CHECK_CONTAINS(answer.text, "error_rate: no request of the baseline has ended");
    judge_stage(&rollout, 3, &facts, &answer); // where the plan leaves none, it is all there is
    CHECK(answer.cells_passed);
    stages[2].percent = 99.6; // one weight of 256 is none
    judge_stage(&rollout, 2, &facts, &answer);
    CHECK(answer.cells_passed);
    stages[2].percent = 10;
    judge_cells(&stages[3], cells, 2);
    CHECK_INT(cells[0].verdict, CANARY_PASS);
    judge_cells(&stages[2], cells, 2);
    CHECK_INT(cells[0].verdict, CANARY_UNDECIDED);
    CHECK_INT(cells[1].verdict, CANARY_PASS);
    cells[0] = (struct canary_cell){.metric = CANARY_ERROR_RATE, .verdict = CANARY_PASS};
    judge_stage(&rollout, 2, &facts, &answer);
    CHECK(answer.cells_passed);
}

TEST(what_was_lost_withholds_a_pass)
{
    struct rollout rollout = plan();
    struct canary_cell cells[] = {{.metric = CANARY_ERROR_RATE,
                                          .verdict = CANARY_UNDECIDED,
                                          .requests = 500,
                                          .withheld = 7,
                                          .requests_missing = 90},
            {.metric = CANARY_WRONG_ANSWERS, .verdict = CANARY_PASS}};
    struct judge_facts facts = {.cells = cells,
            .cell_count = 2,
            .requests = {500, 500},
            .judged_ns = 10,
            .recent_errors = NAN,
            .lost = 7};
    struct judge_answer answer;
    for (int stage = 0; stage < 4; stage++) { // also where a cell that is undecided would do
        judge_stage(&rollout, stage, &facts, &answer);
        CHECK(!answer.cells_passed && answer.withheld && !answer.tripped && answer.failed < 0);
        CHECK_CONTAINS(
                answer.text, "error_rate would pass, but 7 log lines of this stage were lost");
        CHECK_CONTAINS(answer.text, "it would not; about 90 more; `resume`");
    }
    cells[0] = (struct canary_cell){.metric = CANARY_ERROR_RATE, .verdict = CANARY_PASS};
    judge_stage(&rollout, 3, &facts, &answer);
    CHECK(answer.cells_passed && !answer.withheld);
    facts.maybe_tripped = true;
    judge_stage(&rollout, 3, &facts, &answer);
    CHECK(!answer.cells_passed && answer.withheld);
    CHECK_CONTAINS(answer.text,
            "7 log lines were lost, so many together that the tripwire would have fired");
    facts.maybe_tripped = false;
    facts.shared = true;
    judge_stage(&rollout, 3, &facts, &answer);
    CHECK(!answer.cells_passed && answer.withheld && !answer.tripped);
    CHECK_CONTAINS(answer.text, "both arms failed together by more than the tripwire");
}

TEST(wrong_answers_are_told_whatever_else_fails)
{
    struct rollout rollout = plan();
    struct canary_cell cells[] = {{.metric = CANARY_ERROR_RATE, .verdict = CANARY_FAIL},
            {.metric = CANARY_WRONG_ANSWERS, .verdict = CANARY_PASS}};
    struct judge_facts facts = {.cells = cells,
            .cell_count = 2,
            .requests = {500, 500},
            .judged_ns = 10,
            .recent_errors = 0.9};
    struct judge_answer answer;
    judge_stage(&rollout, 2, &facts, &answer);
    CHECK(answer.tripped && answer.tripwire == RULE_TRIPWIRE_ERRORS && !answer.wrong);
    facts.wrong = 3; // the limit is 2
    judge_stage(&rollout, 2, &facts, &answer);
    CHECK(answer.tripped && answer.tripwire == RULE_TRIPWIRE_ERRORS && answer.wrong);
    facts.wrong = 0;
    cells[1].verdict = CANARY_FAIL;
    judge_stage(&rollout, 2, &facts, &answer);
    CHECK(answer.failed == 0 && answer.wrong);
}

TEST(a_cell_that_is_not_there_has_not_passed)
{
    struct rollout rollout = plan();
    struct canary_cell cells[] = {{.metric = CANARY_ERROR_RATE, .verdict = CANARY_PASS}};
    struct judge_facts facts = {.cells = cells,
            .cell_count = 1,
            .requests = {500, 500},
            .judged_ns = 10,
            .recent_errors = NAN};
    struct judge_answer answer;
    judge_stage(&rollout, 2, &facts, &answer);
    CHECK(!answer.cells_passed);
}

TEST(soak_and_requests)
{
    struct rollout rollout = plan();
    struct canary_cell cells[] = {{.metric = CANARY_ERROR_RATE, .verdict = CANARY_PASS},
            {.metric = CANARY_WRONG_ANSWERS, .verdict = CANARY_PASS}};
    struct judge_facts facts = {.cells = cells,
            .cell_count = 2,
            .requests = {500, 49},
            .judged_ns = 9,
            .recent_errors = NAN};
    struct judge_answer answer;
    judge_stage(&rollout, 2, &facts, &answer);
    CHECK(!answer.soaked && !answer.requests_enough && answer.cells_passed);
    CHECK_CONTAINS(answer.text, "judged for 9 ns of 10 ns");
    facts.judged_ns = 10;
    judge_stage(&rollout, 2, &facts, &answer);
    CHECK_CONTAINS(answer.text, "49 of 50 requests");
    facts.requests[CANARY_CANDIDATE] = 0; // of nothing nothing follows, whatever the plan asks for
    judge_stage(&rollout, 3, &facts, &answer);
    CHECK(!answer.requests_enough);
    // an A/A stage without a second baseline has its requests on the first
    facts.requests[CANARY_BASELINE] = 7;
    judge_stage(&rollout, 1, &facts, &answer);
    CHECK(answer.requests_enough);
    rollout.traffic.baseline2 = "old2";
    judge_stage(&rollout, 1, &facts, &answer);
    CHECK(!answer.requests_enough);
}

TEST(tripwires)
{
    struct rollout rollout = plan();
    struct judge_answer answer;
    struct judge_facts facts = {.requests = {1, 1}, .recent_errors = 0.2};
    judge_stage(&rollout, 2, &facts, &answer);
    CHECK(!answer.tripped); // at the limit, not beyond
    facts.recent_errors = 0.21;
    judge_stage(&rollout, 2, &facts, &answer);
    CHECK(answer.tripped && answer.tripwire == RULE_TRIPWIRE_ERRORS);
    rollout.rules.tripwire_error_rate = NAN; // none
    judge_stage(&rollout, 2, &facts, &answer);
    CHECK(!answer.tripped);
    facts.wrong = 2;
    judge_stage(&rollout, 2, &facts, &answer);
    CHECK(!answer.tripped);
    facts.wrong = 3;
    judge_stage(&rollout, 2, &facts, &answer);
    CHECK(answer.tripped && answer.tripwire == RULE_TRIPWIRE_WRONG);
    facts.down = 2;
    facts.refused = 2;
    judge_stage(&rollout, 2, &facts, &answer);
    CHECK_INT(answer.tripwire, RULE_TRIPWIRE_WRONG);
    facts.refused = 3;
    judge_stage(&rollout, 2, &facts, &answer);
    CHECK_INT(answer.tripwire, RULE_TRIPWIRE_UNREACHABLE);
    facts.refused = 0;
    facts.down = 3;
    judge_stage(&rollout, 2, &facts, &answer);
    CHECK_INT(answer.tripwire, RULE_TRIPWIRE_UNREACHABLE);
}

TEST(a_fail_says_since_when)
{
    struct rollout rollout = plan();
    struct canary_cell cells[] = {{.metric = CANARY_ERROR_RATE,
                                          .verdict = CANARY_FAIL,
                                          .value = 1.3,
                                          .low = 1.1,
                                          .high = 1.6,
                                          .requests = 75000},
            {.metric = CANARY_WRONG_ANSWERS, .verdict = CANARY_PASS}};
    struct judge_facts facts = {.cells = cells,
            .cell_count = 2,
            .requests = {500, 500},
            .judged_ns = 10,
            .recent_errors = NAN};
    struct judge_answer answer;
    judge_stage(&rollout, 2, &facts, &answer);
    CHECK_STR(answer.text,
            "error_rate: 1.3 times the baseline's (1.1 to 1.6) after 75000 requests of the candidate, beyond its margin");
    cells[0].low = NAN; // not known yet
    judge_stage(&rollout, 2, &facts, &answer);
    CHECK_CONTAINS(answer.text, "1.3 times the baseline's (1.6 at most) after");
    cells[0].high = NAN;
    judge_stage(&rollout, 2, &facts, &answer);
    CHECK_CONTAINS(answer.text, "1.3 times the baseline's after");
    cells[0].low = 1.1;
    judge_stage(&rollout, 2, &facts, &answer);
    CHECK_CONTAINS(answer.text, "1.3 times the baseline's (1.1 or more) after");
    cells[0].high = 1.6;
    cells[0].since_s = 25;
    cells[0].since_ratio = 5.1;
    judge_stage(&rollout, 2, &facts, &answer);
    CHECK_STR(answer.text,
            "error_rate: for the last 25 s 5.1 times the baseline's, beyond its margin; over the whole stage, 75000 requests of the "
            "candidate, 1.3 times the baseline's (1.1 to 1.6)");
    cells[0].since_ratio = NAN;
    judge_stage(&rollout, 2, &facts, &answer);
    CHECK_CONTAINS(answer.text, "for the last 25 s the candidate's alone, beyond");
    rollout.rules.metrics[CANARY_LATENCY_P99].gated = true;
    cells[0].metric = CANARY_LATENCY_P99;
    cells[0].since_ratio = 2.4;
    judge_stage(&rollout, 2, &facts, &answer);
    CHECK_CONTAINS(answer.text,
            "latency_p99: for the last 25 s 2.4 times as many requests above the baseline's p99 as it has, beyond its margin;");
}

TEST(a_fail_where_the_baseline_has_none)
{
    struct rollout rollout = plan();
    struct canary_cell cells[] = {{.metric = CANARY_ERROR_RATE,
                                          .verdict = CANARY_FAIL,
                                          .value = NAN,
                                          .low = 3,
                                          .high = NAN,
                                          .requests = 700},
            {.metric = CANARY_WRONG_ANSWERS, .verdict = CANARY_PASS}};
    struct judge_facts facts = {.cells = cells,
            .cell_count = 2,
            .requests = {500, 700},
            .judged_ns = 10,
            .recent_errors = NAN};
    struct judge_answer answer;
    judge_stage(&rollout, 2, &facts, &answer);
    CHECK_STR(answer.text,
            "error_rate: none on the baseline; at least 3 times its rate after 700 requests of the candidate, beyond its margin");
    cells[0].low = NAN;
    judge_stage(&rollout, 2, &facts, &answer);
    CHECK_STR(answer.text,
            "error_rate: none on the baseline after 700 requests of the candidate, beyond its margin");
    rollout.rules.metrics[CANARY_LATENCY_P99].gated = true;
    cells[0].metric = CANARY_LATENCY_P99;
    judge_stage(&rollout, 2, &facts, &answer);
    CHECK_STR(answer.text,
            "latency_p99: longer than any of the baseline's after 700 requests of the candidate, beyond its margin");
}
