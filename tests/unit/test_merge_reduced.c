// SPDX-License-Identifier: Apache-2.0
// Who is missing of a job whose reduced ranks are there.
#include "harness/verbs/merge/reduced_job.h"

#include <stdlib.h>

#include "common/containers/vector.h"
#include "common/strings.h"
#include "tests/unit/runner.h"

// One rank after the other, each with its steps in windows of 10.
static void put_rank(struct reduced *all, int32_t rank, uint32_t flags, uint64_t steps)
{
    static struct gist gist;
    uint8_t bytes[GIST_BYTES_MAX];
    vector_push(
            all->members, all->member_count, ((struct reduced_rank){.rank = rank, .flags = flags}));
    for (uint64_t first = 0; first < steps; first += 10) {
        gist = (struct gist){0};
        for (uint64_t step = first; step < steps && step < first + 10; step++)
            gist_put(&gist, GIST_STEP, 1000000 + step);
        size_t size = gist_encode(&gist, bytes);
        reduced_put_gist(all, rank, first / 10, bytes, size);
    }
}

TEST(who_was_recorded_for_less_than_half_is_missing)
{
    // Whose recorder saw the end made no more of them, whatever the others did; half is enough.
    static const struct {
        uint32_t flags;
        uint64_t steps;
        bool missing;
    } ranks[] = {{REDUCED_ENDED, 100, false}, {0, 100, false}, {0, 12, true},
            {REDUCED_ENDED, 12, false}, {0, 50, false}, {REDUCED_ENDED, 100, false}, {0, 0, true},
            {REDUCED_ENDED, 100, false}, {0, 100, false}};
    enum { RANKS = sizeof ranks / sizeof *ranks };
    for (int part = 0; part < 2; part++) {
        struct reduced_job job = {
                .all = {.run = xstrdup("job"), .ranks = RANKS + 1, .window_steps = 10}};
        struct error err = {0};
        for (int i = 0; i < RANKS; i++)
            put_rank(&job.all, i, ranks[i].flags, ranks[i].steps);
        CHECK_INT(reduced_job_settle(&job, part, "there", &err), 0);
        CHECK_INT(job.missing_count, part ? 0 : 3);
        CHECK_INT(reduced_job_exit(&job), part ? EXIT_CODE_PASS : EXIT_CODE_INCONCLUSIVE);
        for (size_t i = 0, at = 0; i < RANKS && !part; i++) {
            if (!ranks[i].missing)
                continue;
            CHECK_INT(job.missing[at].rank, i);
            CHECK_CONTAINS(job.missing[at++].why,
                    ranks[i].steps ? "it has 12 steps of 100 only" : "it has 0 steps of 100 only");
        }
        if (!part)
            CHECK_CONTAINS(job.missing[2].why, "it is in nothing that was given"); // the last one
        CHECK_INT(job.all.member_count, RANKS);                                    // they stay
        reduced_job_free(&job);
    }
}

// Of a job that makes no steps, or whose recorders were all killed with it, nobody is short.
TEST(nobody_is_short_where_all_are_alike)
{
    for (uint64_t steps = 0; steps <= 30; steps += 30) {
        struct reduced_job job = {.all = {.run = xstrdup("job"), .ranks = 3, .window_steps = 10}};
        struct error err = {0};
        for (int i = 0; i < 3; i++)
            put_rank(&job.all, i, 0, steps);
        CHECK_INT(reduced_job_settle(&job, false, "there", &err), 0);
        CHECK_INT(job.missing_count, 0);
        reduced_job_free(&job);
    }
}
