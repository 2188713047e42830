// SPDX-License-Identifier: Apache-2.0
// A share of a CPU: what is asked for without an end gets its share, and one that rests may begin
// at once.
#include "common/budget.h"

#include <time.h>

#include "common/clock.h"
#include "tests/unit/runner.h"

static int64_t cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static void work_for(struct budget *budget, int64_t ns)
{
    budget_begin(budget);
    for (int64_t end_ns = cpu_ns() + ns; cpu_ns() < end_ns;)
        ;
    budget_end(budget);
}

// 20 pieces of 1 ms are asked for at once: the burst lets in 5 (the piece that exceeds it is done,
// too), then a tenth.
TEST(gets_its_burst_and_then_its_share)
{
    struct budget budget = {.divisor = 10, .burst_ns = 5000000};
    int64_t begin_ns = clock_monotonic_ns();
    for (int pieces = 0; pieces < 20;) {
        if (!budget_affords(&budget))
            continue;
        work_for(&budget, 1000000);
        pieces++;
    }
    // 15 of them had to be earned, the last one in part: not sooner than in 10 times what they
    // took.
    int64_t took_ns = clock_monotonic_ns() - begin_ns;
    CHECK(took_ns >= 140000000);
}

TEST(a_rest_earns_no_more_than_the_burst)
{
    bool affords;
    struct budget budget;
    int64_t took_ns;
    do { // once more where the machine kept us from asking before it was earned
        budget = (struct budget){.divisor = 10, .burst_ns = 2000000};
        CHECK(budget_affords(&budget));
        clock_sleep_until_ns(clock_monotonic_ns() + 100000000); // 10 ms would be earned
        int64_t begin_ns = clock_monotonic_ns();
        CHECK(budget_affords(&budget));
        budget_owe(&budget, 8000000);
        affords = budget_affords(&budget);
        took_ns = clock_monotonic_ns() - begin_ns;
    } while (took_ns > 50000000);
    CHECK(!affords);
    clock_sleep_until_ns(clock_monotonic_ns() + 100000000);
    CHECK(budget_affords(&budget));
}

TEST(what_is_told_is_owed)
{
    struct budget budget = {.divisor = 10, .burst_ns = 2000000};
    CHECK(budget_affords(&budget));
    budget_owe(&budget, 1000000);
    CHECK(budget_affords(&budget));
    budget_owe(&budget, INT64_C(1000000000000));
    CHECK(!budget_affords(&budget));
}

// Asked more often than the clock earns a nanosecond.
TEST(asking_often_forgets_no_time)
{
    // a nanosecond is earned in 100 us, what is owed in 90 ms
    struct budget budget = {.divisor = 100000, .burst_ns = 100};
    CHECK(budget_affords(&budget));
    budget_owe(&budget, 1000);
    int64_t end_ns = clock_monotonic_ns() + INT64_C(10000000000);
    while (!budget_affords(&budget) && clock_monotonic_ns() < end_ns)
        ;
    CHECK(clock_monotonic_ns() < end_ns);
}
