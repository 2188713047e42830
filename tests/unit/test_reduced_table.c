// SPDX-License-Identifier: Apache-2.0
// What reduced ranks say of each rank: who is named by collectives and by waits, and when nobody
// is.
#include "reports/analyse/reduce/reduced_table.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/containers/vector.h"
#include "reports/analyse/random.h"
#include "tests/unit/runner.h"

enum { RANKS = 8, A_NODE = 4, WINDOWS = 40, STEPS = 5, COLLECTIVES = 400 };
static const int64_t step_ns = 20000000;

// A job whose ranks wait in collectives: of NCCL, which tells of them, or on the host. Rank `late`
// comes so much later each time.
struct job {
    int late;
    int64_t late_ns, error_ns;
    uint32_t flags;      // of all ranks
    int group;           // ranks of a communicator; 0: all
    int windows, a_node; // 0: A_NODE
    bool nccl, silent;   // silent: no wait was recorded
};

static int64_t noise(struct random_state *random)
{
    return (int64_t)(random_next(random) % 2000000); // up to a tenth of a step
}

static void job_rank(const struct job *job, int rank, struct reduced *ret)
{
    static struct gist gist;
    uint8_t bytes[GIST_BYTES_MAX];
    char boot[16];
    *ret = (struct reduced){.run = xstrdup("job"), .ranks = RANKS, .window_steps = STEPS};
    int node_number = rank / (job->a_node ? job->a_node : A_NODE);
    snprintf(boot, sizeof boot, "boot-%d", node_number);
    // Clocks of nodes begin at other times.
    struct reduced_node node = {.boot = xstrdup(boot),
            .host = xasprintf("node%d", node_number),
            .wall_minus_monotonic_ns = node_number * 1000000000000LL,
            .error_ns = job->error_ns};
    vector_push(ret->nodes, ret->node_count, node);
    vector_push(ret->members, ret->member_count,
            ((struct reduced_rank){
                    .rank = rank, .flags = job->flags | (job->nccl ? REDUCED_NCCL : 0u)}));
    for (uint64_t window = 0; window < (uint64_t)job->windows; window++) {
        gist = (struct gist){0};
        for (uint64_t step = 0; step < STEPS; step++) {
            int64_t came[RANKS], last = 0;
            for (int i = 0; i < RANKS; i++) { // the same for each rank that asks
                struct random_state random = {(window * STEPS + step) * RANKS + (uint64_t)i};
                came[i] = noise(&random) + (i == job->late ? job->late_ns : 0);
                last = came[i] > last ? came[i] : last;
            }
            gist_put(&gist, GIST_STEP, (uint64_t)step_ns);
            if (!job->nccl && !job->silent && last > came[rank])
                gist_put(&gist, GIST_WAIT_RANKS, (uint64_t)(last - came[rank]));
        }
        size_t size = gist_encode(&gist, bytes);
        reduced_put_gist(ret, rank, window, bytes, size);
    }
    for (int i = 0; i < COLLECTIVES && job->nccl; i++) {
        struct random_state random = {(uint64_t)(i * RANKS + rank)};
        int64_t at = (i + 1) * step_ns + noise(&random) + (rank == job->late ? job->late_ns : 0) -
                node.wall_minus_monotonic_ns;
        vector_push(ret->meetings, ret->meeting_count,
                ((struct reduced_meeting){
                        .communicator = job->group ? (uint64_t)(rank / job->group) : 0,
                        .number = (uint64_t)i,
                        .count = 1,
                        .last = rank,
                        .last_ns = at}));
    }
}

static void job_table(const struct job *job, struct reduced *all, struct reduced_table *ret)
{
    struct error err = {0};
    *all = (struct reduced){0};
    for (int rank = RANKS - 1; rank >= 0; rank--) {
        struct reduced one;
        job_rank(job, rank, &one);
        CHECK_INT(reduced_add(all, &one, &err), 0);
        reduced_free(&one);
    }
    reduced_table_make(all, ret);
    CHECK_INT(ret->count, RANKS);
}

static int job_named(const struct reduced_table *table) // how many
{
    int named = 0;
    for (size_t i = 0; i < table->count; i++)
        named += table->rows[i].late;
    return named;
}

static void job_close(struct reduced *all, struct reduced_table *table)
{
    reduced_table_free(table);
    reduced_free(all);
}

TEST(who_comes_last_to_collectives_is_named)
{
    struct reduced all;
    struct reduced_table table;
    job_table(&(struct job){.late = 5, .late_ns = 4000000, .windows = WINDOWS, .nccl = true}, &all,
            &table);
    CHECK(table.by_collectives);
    CHECK_INT(table.why, REDUCED_TOLD);
    CHECK_INT(table.collectives, COLLECTIVES);
    CHECK_INT(table.unclear, 0);
    CHECK_INT(job_named(&table), 1);
    CHECK(table.rows[0].late);
    CHECK_INT(table.rows[0].rank, 5);
    CHECK_STR(table.rows[0].host, "node1");
    CHECK_INT(table.rows[0].last, COLLECTIVES); // the noise is less
    // the others come in the middle of the noise, and so does it
    CHECK_DBL(table.rows[0].late_ns / COLLECTIVES, 4e6, 2e5);
    CHECK_DBL(table.rows[0].more_share, 4e6 * COLLECTIVES / ((double)step_ns * WINDOWS * STEPS),
            0.05);
    CHECK_INT(table.rows[0].steps, WINDOWS * STEPS);
    CHECK_DBL(table.rows[0].step_p50_ns, (double)step_ns, (double)step_ns / 128);
    CHECK_DBL(table.rows[0].step_p99_ns, (double)step_ns, (double)step_ns / 128);
    CHECK_DBL(table.rows[0].ns[GIST_STEP], (double)step_ns * WINDOWS * STEPS, 0);
    job_close(&all, &table);
}

TEST(who_waits_least_is_named_where_nothing_tells_of_collectives)
{
    struct reduced all;
    struct reduced_table table;
    job_table(&(struct job){.late = 2, .late_ns = 4000000, .windows = WINDOWS}, &all, &table);
    CHECK(!table.by_collectives);
    CHECK_INT(table.why, REDUCED_TOLD);
    CHECK_INT(job_named(&table), 1);
    CHECK_INT(table.rows[0].rank, 2);
    CHECK(table.rows[0].late);
    CHECK_DBL(table.rows[0].late_ns / (WINDOWS * STEPS), 4e6, 2e5);
    CHECK_DBL(table.rows[0].more_share, 0.2, 0.02);
    job_close(&all, &table);
}

TEST(nobody_is_named_in_a_clean_run)
{
    for (int nccl = 0; nccl < 2; nccl++) {
        struct reduced all;
        struct reduced_table table;
        job_table(&(struct job){.late = -1, .windows = WINDOWS, .nccl = nccl}, &all, &table);
        CHECK_INT(table.why, REDUCED_TOLD);
        CHECK_INT(job_named(&table), 0);
        job_close(&all, &table);
    }
}

TEST(below_what_clocks_are_known_within_a_node_keeps_to_itself)
{
    struct reduced all;
    struct reduced_table table;
    job_table(&(struct job){.late = 5,
                      .late_ns = 4000000,
                      .error_ns = 10000000,
                      .windows = WINDOWS,
                      .nccl = true},
            &all, &table);
    CHECK_INT(table.unclear, COLLECTIVES);
    CHECK_INT(table.rows[0].rank, 5); // those of its node wait for it
    CHECK_INT(table.rows[0].last, COLLECTIVES);
    CHECK(table.rows[0].late);
    uint64_t last = 0;
    for (size_t i = 0; i < table.count; i++)
        last += table.rows[i].last;
    CHECK_INT(last, 2 * COLLECTIVES); // of each node one
    job_close(&all, &table);
    job_table(&(struct job){.late = 5,
                      .late_ns = 4000000,
                      .error_ns = -1,
                      .windows = WINDOWS,
                      .nccl = true},
            &all, &table);
    CHECK_INT(table.unclear, COLLECTIVES); // not known at all
    job_close(&all, &table);
}

TEST(where_clocks_and_nodes_tell_nothing_it_is_not_known)
{
    struct reduced all;
    struct reduced_table table;
    struct job job = {.late = 5,
            .late_ns = 4000000,
            .error_ns = -1,
            .windows = WINDOWS,
            .a_node = 1,
            .nccl = true};
    job_table(&job, &all, &table);
    CHECK_INT(table.collectives, COLLECTIVES);
    CHECK_INT(table.unclear, COLLECTIVES);
    CHECK_INT(table.told, 0);
    CHECK_INT(table.why, REDUCED_WHY_CLOCKS);
    CHECK_INT(job_named(&table), 0);
    for (size_t i = 0; i < table.count; i++)
        CHECK(isnan(table.rows[i].late_ns) && isnan(table.rows[i].more_share));
    job_close(&all, &table);
    job.error_ns = 0; // the same with clocks that are known
    job_table(&job, &all, &table);
    CHECK_INT(table.told, COLLECTIVES);
    CHECK_INT(table.why, REDUCED_TOLD);
    CHECK(table.rows[0].late);
    CHECK_INT(table.rows[0].rank, 5);
    job_close(&all, &table);
}

TEST(without_waits_nobody_is_known_to_be_in_time)
{
    struct reduced all;
    struct reduced_table table;
    job_table(&(struct job){.late = 2, .late_ns = 4000000, .windows = WINDOWS, .silent = true},
            &all, &table);
    CHECK_INT(table.why, REDUCED_WHY_FEW);
    CHECK_INT(job_named(&table), 0);
    CHECK(isnan(table.rows[0].late_ns));
    CHECK_INT(table.rows[0].steps, WINDOWS * STEPS);
    job_close(&all, &table);
}

TEST(a_row_says_whether_its_recorder_ended)
{
    struct reduced all;
    struct reduced_table table;
    for (unsigned ended = 0; ended < 2; ended++) {
        job_table(
                &(struct job){.late = -1, .windows = WINDOWS, .flags = ended ? REDUCED_ENDED : 0u},
                &all, &table);
        for (size_t i = 0; i < table.count; i++)
            CHECK_INT(table.rows[i].ended, ended);
        job_close(&all, &table);
    }
}

TEST(nobody_is_named_where_ranks_hand_on_lateness)
{
    struct reduced all;
    struct reduced_table table;
    job_table(
            &(struct job){
                    .late = 5, .late_ns = 4000000, .group = 2, .windows = WINDOWS, .nccl = true},
            &all, &table);
    CHECK_INT(table.why, REDUCED_WHY_GROUPS);
    CHECK_INT(job_named(&table), 0);
    CHECK_INT(table.rows[0].rank, 5); // it came last all the same
    job_close(&all, &table);
    job_table(
            &(struct job){
                    .late = 2, .late_ns = 4000000, .flags = REDUCED_MESSAGES, .windows = WINDOWS},
            &all, &table);
    CHECK_INT(table.why, REDUCED_WHY_MESSAGES);
    CHECK_INT(job_named(&table), 0);
    job_close(&all, &table);
}

TEST(nobody_is_named_by_too_little)
{
    struct reduced all, one;
    struct reduced_table table;
    struct job job = {.late = 2, .late_ns = 4000000, .windows = 23};
    job_table(&job, &all, &table);
    CHECK_INT(table.why, REDUCED_WHY_FEW);
    CHECK_INT(job_named(&table), 0);
    CHECK(isnan(table.rows[0].late_ns));
    job_close(&all, &table);
    job = (struct job){.late = 2, .late_ns = 4000000, .windows = 0, .nccl = true};
    job_table(&job, &all, &table);
    CHECK_INT(table.why, REDUCED_WHY_NO_STEPS);
    CHECK(isnan(table.rows[0].step_p50_ns));
    CHECK_INT(job_named(&table), 0);
    job_close(&all, &table);
    job_rank(&(struct job){.late = 0, .late_ns = 4000000, .windows = WINDOWS, .nccl = true}, 0,
            &one);
    reduced_table_make(&one, &table);
    CHECK_INT(table.why, REDUCED_WHY_ALONE);
    CHECK_INT(table.count, 1);
    job_close(&one, &table);
    one = (struct reduced){0};
    reduced_table_make(&one, &table);
    CHECK_INT(table.count, 0);
    job_close(&one, &table);
}

TEST(a_window_that_one_rank_lacks_is_not_compared)
{
    struct reduced all = {0};
    struct reduced_table table;
    struct error err = {0};
    struct job job = {.late = -1, .windows = 2 * WINDOWS};
    for (int rank = 0; rank < RANKS; rank++) { // rank 3 was recorded for half as long: in the other
                                               // half it seems never to wait
        struct reduced one;
        struct job own = job;
        own.windows = rank == 3 ? WINDOWS : job.windows;
        job_rank(&own, rank, &one);
        CHECK_INT(reduced_add(&all, &one, &err), 0);
        reduced_free(&one);
    }
    reduced_table_make(&all, &table);
    CHECK_INT(table.why, REDUCED_TOLD);
    CHECK_INT(job_named(&table), 0);
    job_close(&all, &table);
}
