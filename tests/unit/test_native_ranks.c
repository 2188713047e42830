// SPDX-License-Identifier: Apache-2.0
// All-reduce: exact sums for several rank counts, a check that notices one wrong value, ranks that
// meet at the barrier, and a parent that does not wait for ever when one of them dies.
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "reference_models/native/ops/reduce.h"
#include "reference_models/native/ranks/ranks.h"
#include "runner.h"

enum { COUNT = 40 * 2048 };

// All ranks in one process, one after the other: the barriers are the loop borders.
static void reduce_all(
        const struct reduce_ops *ops, struct reduce *rank, uint32_t ranks, uint64_t step)
{
    for (uint32_t i = 0; i < ranks; i++)
        ops->fill(&rank[i], step);
    for (uint32_t i = 0; i < ranks; i++)
        ops->scatter(&rank[i]);
    for (uint32_t i = 0; i < ranks; i++)
        ops->gather(&rank[i]);
}

static struct reduce *reduce_new(const struct reduce_ops *ops, uint32_t ranks, double extra)
{
    struct reduce *rank = calloc(ranks, sizeof *rank);
    for (uint32_t i = 0; i < ranks; i++) {
        rank[i].rank = i;
        rank[i].ranks = ranks;
        rank[i].count = COUNT;
        rank[i].seed = 4;
        CHECK_INT(pool_new(1, &rank[i].pool, NULL), 0);
        pool_set_extra(rank[i].pool, extra);
        rank[i].spare = calloc(COUNT, ops->real_bytes);
        rank[i].block_square = calloc(COUNT / REDUCE_BLOCK, sizeof(double));
        rank[i].block_wrong = calloc(COUNT / REDUCE_BLOCK, sizeof(uint64_t));
        void *input = calloc(COUNT, ops->real_bytes), *output = calloc(COUNT, ops->real_bytes);
        for (uint32_t j = 0; j < ranks; j++) {
            rank[j].input[i] = input;
            rank[j].output[i] = output;
        }
    }
    return rank;
}

static void reduce_free(struct reduce *rank, uint32_t ranks)
{
    for (uint32_t i = 0; i < ranks; i++) {
        free(rank[0].input[i]);
        free(rank[0].output[i]);
        free(rank[i].spare);
        free(rank[i].block_square);
        free(rank[i].block_wrong);
        pool_free(rank[i].pool);
    }
    free(rank);
}

static void check_sums(const struct reduce_ops *ops, uint32_t ranks, double extra)
{
    struct reduce *rank = reduce_new(ops, ranks, extra);
    for (uint64_t step = 0; step < 9; step++) {
        double loss = -1;
        reduce_all(ops, rank, ranks, step);
        for (uint32_t i = 0; i < ranks; i++)
            CHECK_INT(ops->check(&rank[i], step, &loss), 0);
        CHECK(loss > 0);
        for (uint32_t i = 1; i < ranks; i++)
            CHECK(memcmp(rank[0].output[0], rank[0].output[i], COUNT * ops->real_bytes) == 0);
    }
    reduce_free(rank, ranks);
}

TEST(sums_are_exact)
{
    static const uint32_t counts[] = {1, 2, 3, 5, 8};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        check_sums(&reduce_ops_f32, counts[i], 0);
        check_sums(&reduce_ops_f64, counts[i], 0);
    }
    check_sums(&reduce_ops_f32, 3, 1.5);
}

TEST(sums_match_a_plain_loop)
{
    struct reduce *rank = reduce_new(&reduce_ops_f32, 3, 0);
    reduce_all(&reduce_ops_f32, rank, 3, 5);
    uint64_t wrong = 0;
    double lowest = 0, highest = 0;
    for (size_t i = 0; i < COUNT; i++) {
        float sum = 0;
        for (int r = 0; r < 3; r++)
            sum += ((float *)rank[0].input[r])[i];
        wrong += sum != ((float *)rank[0].output[2])[i];
        lowest = fmin(lowest, ((float *)rank[0].input[1])[i]);
        highest = fmax(highest, ((float *)rank[0].input[1])[i]);
    }
    CHECK_INT(wrong, 0);
    CHECK_DBL(lowest, -1024, 0); // the inputs use their whole range
    CHECK_DBL(highest, 1023, 0);
    reduce_free(rank, 3);
}

// Repeats change nothing; sharded, nothing is written behind the chunk that a rank keeps.
static void check_means(uint32_t ranks, bool sharded)
{
    struct reduce *rank = reduce_new(&reduce_ops_f64, ranks, 0.7);
    double *whole = calloc(COUNT, sizeof *whole), *want = calloc(COUNT, sizeof *want);
    for (uint32_t i = 0; i < ranks; i++) {
        rank[i].mean = true;
        rank[i].sharded = sharded;
        rank[i].whole = whole;
        reduce_ops_f64.fill(&rank[i], 3);
        for (size_t j = 0; j < COUNT; j++)
            want[j] += ((double *)rank[i].input[i])[j] / ranks;
    }
    for (uint32_t i = 0; i < ranks; i++)
        reduce_ops_f64.scatter(&rank[i]);
    for (uint32_t i = 0; i < ranks; i++) {
        const double *got = sharded ? whole : rank[i].output[i];
        size_t chunk = (reduce_first_block(&rank[i], i + 1) - reduce_first_block(&rank[i], i)) *
                REDUCE_BLOCK;
        uint64_t wrong = 0;
        if (sharded && chunk < COUNT)
            CHECK_DBL(((double *)rank[i].output[i])[chunk], 0, 0);
        memset(whole, 0xff, COUNT * sizeof *whole);
        reduce_ops_f64.gather(&rank[i]);
        for (size_t j = 0; j < COUNT; j++)
            wrong += !(fabs(got[j] - want[j]) <= 1e-9);
        CHECK_INT(wrong, 0);
    }
    free(whole);
    free(want);
    reduce_free(rank, ranks);
}

TEST(means_and_their_parts)
{
    // 40 blocks: not as many for each, and none for one
    static const uint32_t counts[] = {1, 2, 3, 7, 41};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        check_means(counts[i], false);
        check_means(counts[i], true);
    }
}

// Every position is looked at within 8 steps, and one wrong value there is noticed.
TEST(one_wrong_value_is_noticed)
{
    static const size_t places[] = {0, 1, 2047, 2048, COUNT / 2 + 77, COUNT - 1};
    struct reduce *rank = reduce_new(&reduce_ops_f32, 2, 0);
    for (size_t p = 0; p < sizeof places / sizeof *places; p++) {
        uint64_t wrong = 0;
        for (uint64_t step = 0; step < 8; step++) {
            double loss;
            reduce_all(&reduce_ops_f32, rank, 2, step);
            ((float *)rank[1].output[1])[places[p]] += 1;
            wrong += reduce_ops_f32.check(&rank[1], step, &loss);
        }
        CHECK_INT(wrong, 1);
    }
    reduce_free(rank, 2);
}

TEST(poison_reaches_every_rank)
{
    struct reduce *rank = reduce_new(&reduce_ops_f64, 2, 0);
    double loss;
    for (uint32_t i = 0; i < 2; i++)
        reduce_ops_f64.fill(&rank[i], 0);
    reduce_ops_f64.poison(&rank[0]);
    for (uint32_t i = 0; i < 2; i++)
        reduce_ops_f64.scatter(&rank[i]);
    for (uint32_t i = 0; i < 2; i++)
        reduce_ops_f64.gather(&rank[i]);
    CHECK(reduce_ops_f64.check(&rank[1], 0, &loss) > 0);
    CHECK(isnan(loss));
    reduce_free(rank, 2);
}

struct meeting {
    struct ranks_barrier barrier;
    atomic_int arrived, early, env_wrong;
};

enum { MEETING_RANKS = 3, ROUNDS = 300 };

static int meeting_rank(uint32_t rank, void *arg)
{
    struct meeting *meeting = arg;
    const char *text = getenv("RANK"), *world = getenv("WORLD_SIZE");
    meeting->env_wrong += !text || atoi(text) != (int)rank || !world || strcmp(world, "3") != 0;
    for (int round = 1; round <= ROUNDS; round++) {
        meeting->arrived++;
        ranks_barrier_wait(&meeting->barrier, MEETING_RANKS);
        meeting->early += meeting->arrived < round * MEETING_RANKS;
        ranks_barrier_wait(&meeting->barrier, MEETING_RANKS);
    }
    return 0;
}

TEST(barrier_holds_until_all_are_there)
{
    void *memory;
    int status = -1;
    CHECK_INT(ranks_share(sizeof(struct meeting), &memory, NULL), 0);
    struct meeting *meeting = memory;
    CHECK_INT(ranks_run(MEETING_RANKS, meeting_rank, meeting, &status, NULL), 0);
    CHECK_INT(status, 0);
    CHECK_INT(meeting->arrived, MEETING_RANKS * ROUNDS);
    CHECK_INT(meeting->early, 0);
    CHECK_INT(meeting->env_wrong, 0);
    ranks_unshare(memory, sizeof(struct meeting));
}

static int dying_rank(uint32_t rank, void *arg)
{
    int how = *(int *)arg;
    if (rank == 1 && how == 0)
        raise(SIGKILL);
    if (rank == 1)
        return how;
    for (;;)
        pause(); // what a rank does whose partner is gone
}

TEST(a_dead_rank_ends_all)
{
    int status = 0, how = 0;
    alarm(200); // a parent that waits for ever fails here
    CHECK_INT(ranks_run(3, dying_rank, &how, &status, NULL), 0);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    how = 7;
    CHECK_INT(ranks_run(3, dying_rank, &how, &status, NULL), 0);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    CHECK_INT(waitpid(-1, NULL, WNOHANG), -1); // nobody left behind
}
