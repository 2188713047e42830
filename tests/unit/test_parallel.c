// SPDX-License-Identifier: Apache-2.0
// Every index is met once, whoever meets it, and all is done when the call returns.
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "common/parallel.h"
#include "tests/unit/runner.h"

enum { MANY = 10000 };

struct met {
    unsigned char times[MANY];
    atomic_int inside, most;
};

static void meet(void *arg, size_t index)
{
    struct met *met = arg;
    int inside = atomic_fetch_add(&met->inside, 1) + 1, most = atomic_load(&met->most);
    while (inside > most && !atomic_compare_exchange_weak(&met->most, &most, inside))
        ;
    if (index % 1000 == 0)
        usleep(1000);
    met->times[index]++; // no other thread's: TSan looks
    atomic_fetch_sub(&met->inside, 1);
}

TEST(each_once)
{
    static struct met met;
    parallel_each(MANY, meet, &met);
    for (int i = 0; i < MANY; i++)
        CHECK_INT(met.times[i], 1);
    CHECK(atomic_load(&met.most) <= PARALLEL_MAX);
    CHECK_INT(atomic_load(&met.inside), 0);
}

TEST(none_and_one)
{
    static struct met met;
    parallel_each(0, meet, &met);
    CHECK_INT(met.times[0], 0);
    parallel_each(1, meet, &met);
    CHECK_INT(met.times[0], 1);
    CHECK_INT(atomic_load(&met.most), 1);
}
