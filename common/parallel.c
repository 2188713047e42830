// SPDX-License-Identifier: Apache-2.0
#include "common/parallel.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

struct parallel {
    size_t count;
    void (*each)(void *arg, size_t index);
    void *arg;
    atomic_size_t next;
};

static void *parallel_work(void *arg)
{
    struct parallel *work = arg;
    for (size_t i; (i = atomic_fetch_add(&work->next, 1)) < work->count;)
        work->each(work->arg, i);
    return NULL;
}

static size_t parallel_cpus(void)
{
    cpu_set_t cpus;
    return sched_getaffinity(0, sizeof cpus, &cpus) == 0 ? (size_t)CPU_COUNT(&cpus) : 1;
}

void parallel_each(size_t count, void (*each)(void *arg, size_t index), void *arg)
{
    struct parallel work = {.count = count, .each = each, .arg = arg};
    pthread_t threads[PARALLEL_MAX];
    size_t cpus = parallel_cpus(), wanted = cpus < PARALLEL_MAX ? cpus : PARALLEL_MAX, started = 0;
    wanted = count < wanted ? count : wanted;
    // one is ours
    while (started + 1 < wanted &&
            pthread_create(&threads[started], NULL, parallel_work, &work) == 0)
        started++;
    parallel_work(&work);
    for (size_t i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
}
