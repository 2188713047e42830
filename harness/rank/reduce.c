// SPDX-License-Identifier: Apache-2.0
// Shards, reduced and added.
#include "harness/rank/reduce.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "common/containers/vector.h"
#include "common/parallel.h"
#include "common/strings.h"
#include "harness/rank/choose.h"
#include "reports/analyse/reduce/reduced_load.h"

enum { REDUCE_SUMS = 24 }; // of SCAN_SHARDS_MAX shards 17

struct reduce_work {
    const struct merge_result *shards;
    const struct reduce_opts *opts;
    char **why; // of each chosen shard that cannot be reduced; NULL: it can
    // What follows, and waits for the others.
    pthread_mutex_t lock;
    struct reduced sums[REDUCE_SUMS]; // [n]: of 2^n shards, or nothing
    int rc;
    struct error err;
};

// Without what is in it.
static void reduce_member(
        const struct reduced_source *source, uint64_t window_steps, struct reduced *ret)
{
    const struct reduced_node node = {
            .boot = xstrdup(source->boot), .host = xstrdup(source->host), .error_ns = -1};
    *ret = (struct reduced){.run = xstrdup(source->run),
            .restart = source->restart,
            .ranks = source->ranks,
            .window_steps = window_steps};
    vector_push(ret->nodes, ret->node_count, node);
    for (size_t i = 0; i < source->several_count; i++)
        vector_push(ret->members, ret->member_count,
                ((struct reduced_rank){.rank = source->several[i]}));
    if (!source->several)
        vector_push(ret->members, ret->member_count, ((struct reduced_rank){.rank = source->rank}));
}

// Sums of 1, 2, 4, … shards, as a number counts in binary: where one of as many is there already,
// both become one of twice as many. So each shard is added few times, and nothing but sums is held.
// Shards of a node come one after the other: what each knows of a collective is soon one. Takes
// `one`.
static void reduce_put(struct reduce_work *work, struct reduced *one)
{
    pthread_mutex_lock(&work->lock);
    for (size_t n = 0; n < REDUCE_SUMS && one->run; n++) {
        struct reduced sum = work->sums[n];
        work->sums[n] = (struct reduced){0};
        if (sum.run && work->rc == 0)
            work->rc = reduced_add(&sum, one, &work->err);
        if (sum.run) {
            reduced_free(one);
            *one = sum;
            continue;
        }
        work->sums[n] = *one;
        *one = (struct reduced){0};
    }
    pthread_mutex_unlock(&work->lock);
}

// All sums into one.
static int reduce_total(struct reduce_work *work, struct reduced *ret, struct error *err)
{
    struct reduced all = {0};
    if (work->rc)
        *err = work->err;
    int rc = work->rc;
    for (size_t n = 0; n < REDUCE_SUMS && rc == 0; n++) { // the smaller is added to the larger one
        if (!work->sums[n].run)
            continue;
        rc = reduced_add(&work->sums[n], &all, err);
        reduced_free(&all);
        all = work->sums[n];
        work->sums[n] = (struct reduced){0};
    }
    if (rc == 0)
        *ret = all;
    else
        reduced_free(&all);
    return rc;
}

static void reduce_shard(void *arg, size_t index)
{
    struct reduce_work *work = arg;
    struct reduced reduced = {0};
    const struct scan_shard *shard = work->shards->chosen[index];
    int32_t *several =
            scan_has_several(shard) ? xcalloc(shard->held_count + 1, sizeof *several) : NULL;
    for (size_t i = 0; i < shard->held_count && several; i++)
        several[i] = shard->held[i].rank;
    const struct reduced_source source = {.run = shard->who.run,
            .host = shard->who.host,
            .boot = shard->who.boot,
            .restart = shard->who.launcher.restart,
            .rank = shard->who.launcher.rank,
            .ranks = shard->who.launcher.ranks,
            .several = several,
            .several_count = several ? shard->held_count : 0,
            .pid = shard->pid,
            .wall_minus_monotonic_ns = shard->who.clock.wall_minus_monotonic_ns,
            .clock_error_ns = scan_clock_error_ns(shard),
            .ended = shard->ended};
    struct error err = {0};
    struct store *store = NULL;
    if (shard->part) { // its rows do not say whose they are, and several is NULL
        work->why[index] =
                xasprintf("'%s' has several ranks in one: reduce the shards that it was made of",
                        shard->path);
        return;
    }
    int rc = work->opts->dry_run ? 0 : scan_open(shard, &store, &err);
    if (work->opts->dry_run)
        reduce_member(&source, work->opts->window_steps, &reduced);
    else if (rc == 0)
        rc = reduced_load(store, &source, work->opts->window_steps, &reduced, &err);
    store_close(store);
    free(several);
    if (rc)
        work->why[index] = xstrdup(err.text);
    else
        reduce_put(work, &reduced);
}

int reduce_add_all(struct reduced *list, size_t count, struct error *err)
{
    for (size_t width = 1; width < count; width *= 2)
        for (size_t i = 0; i + width < count; i += 2 * width) {
            struct reduced *more = &list[i + width];
            int rc = list[i].run ? reduced_add(&list[i], more, err) : 0;
            if (rc)
                return rc;
            if (list[i].run)
                reduced_free(more);
            else
                list[i] = *more;
            *more = (struct reduced){0};
        }
    return 0;
}

int reduce_chosen(struct merge_result *shards, const struct reduce_opts *opts, struct reduced *ret,
        struct error *err)
{
    size_t count = shards->chosen_count;
    struct reduce_work work = {.shards = shards,
            .opts = opts,
            .why = xcalloc(count + 1, sizeof *work.why),
            .lock = PTHREAD_MUTEX_INITIALIZER};
    parallel_each(count, reduce_shard, &work);
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; work.why[i] && k < shards->chosen[i]->held_count; k++)
            choose_add_missing(shards, shards->chosen[i]->held[k].rank, work.why[i]);
    int rc = reduce_total(&work, ret, err);
    for (size_t n = 0; n < REDUCE_SUMS; n++)
        reduced_free(&work.sums[n]);
    for (size_t i = 0; i < count; i++)
        free(work.why[i]);
    free(work.why);
    pthread_mutex_destroy(&work.lock);
    return rc;
}

int reduce_nobody(const struct merge_result *shards, struct error *err)
{
    const char *why = "there is none";
    for (size_t i = 0; i < shards->missing_count && shards->chosen_count; i++)
        if (shards->missing[i].rank == shards->chosen[0]->held[0].rank)
            why = shards->missing[i].why;
    return error_set(err, -EINVAL, "no shard of run '%s' can be reduced: %s", shards->run, why);
}

int reduce_shards(struct merge_result *shards, const struct reduce_opts *opts, struct reduced *ret,
        struct error *err)
{
    struct reduced sum = {0};
    int rc = reduce_chosen(shards, opts, &sum, err);
    if (rc == 0 && !sum.run)
        rc = reduce_nobody(shards, err);
    if (rc == 0)
        *ret = sum;
    return rc;
}
