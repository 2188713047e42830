// SPDX-License-Identifier: Apache-2.0
// When a late rank is the headline: late at most collectives, and waited for by as much as the
// waits grew.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reports/analyse/diff/explain/explain.h"
#include "tests/unit/runner.h"

struct late_case {
    int64_t last[2], collectives; // of rank 1 by side
    double wait[2], delta_ns;     // what others wait for it; of the step
    enum diff_kind kind;
    const char *name, *why; // name: of the contribution, on the candidate's side
};

// Is it the headline: with the rank's side, and first in the evidence? -1: it is not.
static int late_of(const struct late_case *given, size_t *ret_suspects, bool *ret_first)
{
    struct arena *arena = arena_new();
    const struct diff_evidence old[] = {
            {.kind = DIFF_EVIDENCE_TIMES, .sides = {"step", {0, 1e6}, {0, 0}}}};
    struct diff_contribution contribution = {.rank = 1,
            .kind = given->kind,
            .label = "what people read",
            .name_b = given->name,
            .delta_ns = given->delta_ns / 2,
            .named = true,
            .evidence = old,
            .evidence_count = 1,
            .suspect_count = 1};
    struct diff_straggler stragglers[] = {{.rank = 0,
                                                  .side = 0,
                                                  .last_count = given->collectives - given->last[0],
                                                  .collectives = given->collectives,
                                                  .wait_ns = 1e3},
            {.rank = 1,
                    .side = 0,
                    .last_count = given->last[0],
                    .collectives = given->collectives,
                    .wait_ns = given->wait[0],
                    .late_ns = 5e5,
                    .deed = given->why ? DIFF_DEED_FUNCTION : DIFF_DEED_UNKNOWN,
                    .why = given->why,
                    .why_name = given->why ? "slow" : NULL,
                    .why_ns = NAN},
            {.rank = 1,
                    .side = 1,
                    .last_count = given->last[1],
                    .collectives = given->collectives,
                    .wait_ns = given->wait[1],
                    .late_ns = 5e5,
                    .deed = given->why ? DIFF_DEED_FUNCTION : DIFF_DEED_UNKNOWN,
                    .why = given->why,
                    .why_name = given->why ? "slow" : NULL,
                    .why_ns = 9e5}};
    struct diff_workload workload = {.delta_ns = given->delta_ns,
            .delta_lo_ns = given->delta_ns * 0.9,
            .delta_hi_ns = given->delta_ns * 1.1,
            .traced_ratio = {1, 1},
            .contributions = &contribution,
            .contribution_count = 1,
            .stragglers = stragglers,
            .straggler_count = 3};
    diff_late(arena, &workload);
    const struct diff_straggler *late = workload.late;
    const struct diff_evidence *evidence = contribution.evidence;
    CHECK(!late || (late->rank == 1 && late->told));
    *ret_suspects = contribution.suspect_count;
    *ret_first = contribution.evidence_count == 2 && evidence[0].kind == DIFF_EVIDENCE_LATE_RANK &&
            evidence[0].late == late && evidence[1].kind == DIFF_EVIDENCE_TIMES;
    CHECK(*ret_first || (contribution.evidence_count == 1 && evidence == old));
    arena_free(arena);
    return late ? late->side : -1;
}

TEST(straggler_is_told_by_how_often_and_by_what_it_costs)
{
    // Of 3 launches: excess, variance, cost of rank 1; of the same rank on the other side.
    static const struct {
        double excess, variance, cost;
        size_t ahead;
        double other_excess;
        bool told;
    } cases[] = {{90, 400, 6e4, 3, 0, true}, {50, 400, 6e4, 3, 0, false}, // 2.5 standard errors
            {90, 400, 4e4, 3, 0, false},  // nobody waits for it: 0.4 % of a step
            {90, 400, 6e4, 2, 0, false},  // in one launch it came last less often than the others
            {50, 400, 6e4, 3, -50, true}, // 3.5 standard errors more than on the other side
            {50, 400, 6e4, 3, -20, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct diff_straggler stragglers[] = {{.rank = 1,
                                                      .side = 0,
                                                      .excess = cases[i].other_excess,
                                                      .variance = 400,
                                                      .launches = 3,
                                                      .ahead = 1},
                {.rank = 1,
                        .side = 1,
                        .excess = cases[i].excess,
                        .variance = cases[i].variance,
                        .cost_ns = cases[i].cost,
                        .launches = 3,
                        .ahead = cases[i].ahead}};
        struct diff_workload workload = {.step_a_ns = 1e7,
                .step_b_ns = 1e7,
                .traced_ratio = {1, 1.1},
                .stragglers = stragglers,
                .straggler_count = 2};
        diff_stragglers_judge(&workload);
        CHECK_INT(stragglers[1].told, cases[i].told);
        CHECK(!stragglers[0].told);
    }
}

TEST(late_rank_is_the_headline_when_the_difference_is_its)
{
    const struct late_case plain = {
            {40, 90}, 100, {1e5, 2e6}, 1e6, DIFF_COMM_EXPOSED, "AllReduce", "slow"};
    struct late_case cases[13];
    int sides[13] = {1}; // the late rank's; -1: it is not told
    size_t count = 0;
    for (size_t i = 0; i < 13; i++)
        cases[i] = plain;
    sides[count++] = 1;
    cases[count].last[0] = 85; // as often on the other side, by next to nothing
    sides[count++] = 1;
    cases[count].wait[0] = 19e5; // as late on the other side
    sides[count++] = -1;
    cases[count].last[1] = 64; // late at about half of them
    sides[count++] = -1;
    cases[count].wait[1] = 2e5; // the collective itself takes longer
    sides[count++] = -1;
    cases[count].kind = DIFF_KERNEL_SLOWER; // another thing is what changed
    sides[count++] = -1;
    cases[count].delta_ns = -1e6; // got faster, and the rank of the baseline was not late
    sides[count++] = -1;
    cases[count].kind = DIFF_CPU_FUNCTION_ADDED; // what it does is told by itself: the same cause
    cases[count].name = "slow";
    sides[count++] = 1;
    cases[count].why = NULL;
    sides[count++] = 1;
    cases[count].last[1] = 100;
    cases[count].why = NULL;
    sides[count++] = 1;
    cases[count] = (struct late_case){
            {90, 40}, 100, {2e6, 1e5}, -1e6, DIFF_COMM_EXPOSED, "AllReduce", "slow"};
    sides[count++] = 0;
    for (size_t i = 0; i < count; i++) {
        size_t suspects;
        bool first, told = sides[i] >= 0;
        CHECK_INT(late_of(&cases[i], &suspects, &first), sides[i]);
        CHECK(first == told);
        CHECK_INT((int64_t)suspects, told && cases[i].kind == DIFF_COMM_EXPOSED ? 0 : 1);
    }
}
