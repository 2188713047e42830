// SPDX-License-Identifier: Apache-2.0
// Shards, reduced and added.
#include "harness/rank/reduce.h"

#include <errno.h>
#include <stdlib.h>

#include "common/parallel.h"
#include "common/strings.h"
#include "harness/rank/choose.h"
#include "reports/analyse/reduce/reduced_load.h"

struct reduce_work {
    const struct merge_result *shards;
    uint64_t window_steps;
    struct reduced *list; // of each chosen shard
    char **why;           // it has none; NULL: it has
};

static void reduce_shard(void *arg, size_t index)
{
    struct reduce_work *work = arg;
    const struct scan_shard *shard = work->shards->chosen[index];
    const struct reduced_source source = {.run = shard->who.run,
                                          .host = shard->who.host,
                                          .boot = shard->who.boot,
                                          .restart = shard->who.launcher.restart,
                                          .rank = shard->who.launcher.rank,
                                          .ranks = shard->who.launcher.ranks,
                                          .pid = shard->pid,
                                          .wall_minus_monotonic_ns = shard->who.clock.wall_minus_monotonic_ns,
                                          .clock_error_ns = scan_clock_error_ns(shard),
                                          .ended = shard->ended};
    struct error err = {0};
    struct store *store = NULL;
    if (shard->part) { // its rows do not say whose they are
        work->why[index] = xasprintf("'%s' has several ranks in one: reduce the shards that it was made of", shard->path);
        return;
    }
    int rc = scan_open(shard, &store, &err);
    if (rc == 0)
        rc = reduced_load(store, &source, work->window_steps, &work->list[index], &err);
    store_close(store);
    if (rc)
        work->why[index] = xstrdup(err.text);
}

int reduce_add_all(struct reduced *list, size_t count, struct error *err)
{
    for (size_t width = 1; width < count; width *= 2)
        for (size_t i = 0; i + width < count; i += 2 * width) {
            int rc = reduced_add(&list[i], &list[i + width], err);
            if (rc)
                return rc;
            reduced_free(&list[i + width]);
        }
    return 0;
}

int reduce_shards(const struct merge_opts *opts, uint64_t window_steps, struct merge_result *ret_shards, struct reduced *ret, struct error *err)
{
    int rc = merge_find(opts, ret_shards, err);
    size_t count = ret_shards->chosen_count, reduced = 0;
    if (rc || opts->dry_run)
        return rc;
    struct reduce_work work = {.shards = ret_shards, .window_steps = window_steps, .list = xcalloc(count + 1, sizeof *work.list),
                               .why = xcalloc(count + 1, sizeof *work.why)};
    parallel_each(count, reduce_shard, &work);
    for (size_t i = 0; i < count; i++) {
        reduced += !work.why[i];
        for (size_t k = 0; work.why[i] && k < ret_shards->chosen[i]->held_count; k++)
            choose_add_missing(ret_shards, ret_shards->chosen[i]->held[k].rank, work.why[i]);
    }
    if (!reduced)
        rc = error_set(err, -EINVAL, "no shard of run '%s' can be reduced: %s", ret_shards->run, count ? work.why[0] : "there is none");
    if (rc == 0)
        rc = reduce_add_all(work.list, count, err);
    if (rc == 0)
        rc = reduced_add(ret, &work.list[0], err);
    for (size_t i = 0; i < count; i++) {
        reduced_free(&work.list[i]);
        free(work.why[i]);
    }
    free(work.list);
    free(work.why);
    return rc;
}
