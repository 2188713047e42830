// SPDX-License-Identifier: Apache-2.0
// The threads of the workloads: every item exactly once, parts cut at the grain, and the planted
// share of repeats met on every call and in the mean.
#include <stdatomic.h>
#include <stdlib.h>

#include "reference_models/native/pool.h"
#include "runner.h"

enum { ITEMS = 1000 };

struct tally {
    atomic_int done[ITEMS], again[ITEMS];
    atomic_int again_total, misaligned, foreign;
    size_t grain;
};

static void tally_part(void *arg, size_t begin, size_t end, bool again)
{
    struct tally *tally = arg;
    if (!again && begin % tally->grain != 0)
        tally->misaligned++;
    for (size_t i = begin; i < end; i++) {
        if (again)
            tally->again[i]++;
        else
            tally->done[i]++;
        if (again && tally->done[i] == 0)
            tally->foreign++; // repeated before it was done: not a repeat
    }
    if (again)
        tally->again_total += (int)(end - begin);
}

static void check_coverage(size_t threads, size_t count, size_t grain)
{
    struct pool *pool;
    CHECK_INT(pool_new(threads, &pool, NULL), 0);
    struct tally *tally = calloc(1, sizeof *tally);
    tally->grain = grain ? grain : 1;
    for (int round = 0; round < 20; round++)
        pool_for(pool,
                &(struct pool_work){
                        .count = count, .grain = grain, .cost = 1, .fn = tally_part, .arg = tally});
    int wrong = 0;
    for (size_t i = 0; i < ITEMS; i++)
        wrong += tally->done[i] != (i < count ? 20 : 0);
    CHECK_INT(wrong, 0);
    CHECK_INT(tally->misaligned, 0);
    CHECK_INT(tally->again_total, 0);
    free(tally);
    pool_free(pool);
}

TEST(every_item_once)
{
    static const size_t counts[] = {0, 1, 2, 3, 7, 64, 999, 1000};
    for (size_t threads = 1; threads <= 5; threads++) {
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
            check_coverage(threads, counts[i], 0);
            check_coverage(threads, counts[i], 16);
        }
    }
}

// Steps of three calls with different costs; each step must repeat its share.
static void check_share(double share, size_t threads)
{
    static const size_t counts[] = {1000, 37, 250};
    static const double costs[] = {1, 8, 2.5};
    struct pool *pool;
    CHECK_INT(pool_new(threads, &pool, NULL), 0);
    struct tally *tally = calloc(1, sizeof *tally);
    tally->grain = 1;
    pool_set_extra(pool, share);
    enum { STEPS = 200 };
    double step_cost = 0, total = 0, largest = 0;
    for (int call = 0; call < 3; call++)
        step_cost += (double)((counts[call] + threads - 1) / threads) * costs[call];
    for (int step = 0; step < STEPS; step++) {
        double extra = 0;
        for (int call = 0; call < 3; call++) {
            tally->again_total = 0;
            pool_for(pool,
                    &(struct pool_work){.count = counts[call],
                            .cost = costs[call],
                            .fn = tally_part,
                            .arg = tally});
            extra += (double)(tally->again_total / (int)threads) * costs[call];
        }
        total += extra;
        largest = fmax(largest, fabs(extra - share * step_cost));
    }
    CHECK_DBL(total / (STEPS * step_cost), share, 8 / (STEPS * step_cost) + 1e-9);
    CHECK(largest <= 8 + 8); // what one step owes, another may pay: an item each way
    CHECK_INT(tally->foreign, 0);
    free(tally);
    pool_free(pool);
}

TEST(repeats_meet_the_share)
{
    check_share(0.05, 1);
    check_share(0.005, 1);
    check_share(0.5, 1);
    check_share(2.5, 1);
}

TEST(repeats_meet_the_share_on_two_threads)
{
    // Counts that do not divide by two round up, so the share is that of the fullest thread.
    check_share(0.05, 2);
}

TEST(repeats_visit_all_items)
{
    struct pool *pool;
    CHECK_INT(pool_new(1, &pool, NULL), 0);
    struct tally *tally = calloc(1, sizeof *tally);
    tally->grain = 1;
    pool_set_extra(pool, 0.05);
    for (int round = 0; round < 400; round++)
        pool_for(pool,
                &(struct pool_work){.count = ITEMS, .cost = 1, .fn = tally_part, .arg = tally});
    int never = 0;
    for (int i = 0; i < ITEMS; i++)
        never += tally->again[i] == 0;
    CHECK_INT(never, 0);
    free(tally);
    pool_free(pool);
}

static int other_calls;

static void other_part(void *arg, size_t begin, size_t end, bool again)
{
    other_calls++;
    tally_part(arg, begin, end, again);
}

// 10 steps in which the planted kind takes next to nothing of a step of 1 s: it must be repeated a
// lot, alone.
TEST(one_kind_is_planted)
{
    struct pool *pool;
    struct tally *planted = calloc(1, sizeof *planted), *others = calloc(1, sizeof *others);
    planted->grain = others->grain = 1;
    CHECK_INT(pool_new(1, &pool, NULL), 0);
    pool_set_op(pool, POOL_OP_REPLACE, "tally_part", 1e-5);
    CHECK(!pool_adds(pool, "tally_part"));
    for (int step = 0; step < 10; step++) {
        pool_for(pool,
                &(struct pool_work){.count = 10,
                        .cost = 1,
                        POOL_FN(tally_part),
                        .other = other_part,
                        .arg = planted});
        pool_for(
                pool, &(struct pool_work){.count = 10, .cost = 1, .fn = tally_part, .arg = others});
        pool_step(pool, 1000000000);
    }
    CHECK(planted->again_total > 10); // of 10 us a step, where the kind itself takes some 0.1
    CHECK_INT(others->again_total, 0);
    CHECK(other_calls >= 10);
    for (int i = 0; i < 10; i++)
        CHECK_INT(planted->done[i], 10);
    pool_set_op(pool, POOL_OP_ADDED, "tally_part", 0.1);
    CHECK(pool_adds(pool, "tally_part") && !pool_adds(pool, "other_part"));
    free(planted);
    free(others);
    pool_free(pool);
}

TEST(bad_thread_counts)
{
    struct pool *pool = NULL;
    struct error err = {0};
    CHECK_INT(pool_new(0, &pool, &err), -22);
    CHECK_INT(pool_new(POOL_THREADS_MAX + 1, &pool, &err), -22);
    CHECK_CONTAINS(err.text, "threads");
    CHECK(pool == NULL);
    pool_free(NULL);
}
