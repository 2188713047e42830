// SPDX-License-Identifier: Apache-2.0
// Shards, reduced and added.
#include "harness/rank/reduce.h"

#include <errno.h>
#include <stdlib.h>

#include "common/containers/vector.h"
#include "common/parallel.h"
#include "common/strings.h"
#include "harness/rank/choose.h"
#include "reports/analyse/reduce/reduced_load.h"

struct reduce_work {
    const struct merge_result *shards;
    const struct reduce_opts *opts;
    struct reduced *list; // of each chosen shard
    char **why;           // it has none; NULL: it has
};

// Without what is in it.
static void reduce_member(const struct reduced_source *source, uint64_t window_steps, struct reduced *ret)
{
    const struct reduced_node node = {.boot = xstrdup(source->boot), .host = xstrdup(source->host), .error_ns = -1};
    *ret = (struct reduced){.run = xstrdup(source->run), .restart = source->restart, .ranks = source->ranks, .window_steps = window_steps};
    vector_push(ret->nodes, ret->node_count, node);
    vector_push(ret->members, ret->member_count, ((struct reduced_rank){.rank = source->rank}));
}

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
    if (work->opts->dry_run) {
        reduce_member(&source, work->opts->window_steps, &work->list[index]);
        return;
    }
    int rc = scan_open(shard, &store, &err);
    if (rc == 0)
        rc = reduced_load(store, &source, work->opts->window_steps, &work->list[index], &err);
    store_close(store);
    if (rc)
        work->why[index] = xstrdup(err.text);
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

int reduce_chosen(struct merge_result *shards, const struct reduce_opts *opts, struct reduced *ret, struct error *err)
{
    size_t count = shards->chosen_count;
    struct reduce_work work = {.shards = shards, .opts = opts, .list = xcalloc(count + 1, sizeof *work.list), .why = xcalloc(count + 1, sizeof *work.why)};
    parallel_each(count, reduce_shard, &work);
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; work.why[i] && k < shards->chosen[i]->held_count; k++)
            choose_add_missing(shards, shards->chosen[i]->held[k].rank, work.why[i]);
    int rc = reduce_add_all(work.list, count, err);
    if (rc == 0) {
        *ret = work.list[0];
        work.list[0] = (struct reduced){0};
    }
    for (size_t i = 0; i < count; i++) {
        reduced_free(&work.list[i]);
        free(work.why[i]);
    }
    free(work.list);
    free(work.why);
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

int reduce_shards(struct merge_result *shards, const struct reduce_opts *opts, struct reduced *ret, struct error *err)
{
    struct reduced sum = {0};
    int rc = reduce_chosen(shards, opts, &sum, err);
    if (rc == 0 && !sum.run)
        rc = reduce_nobody(shards, err);
    if (rc == 0)
        *ret = sum;
    return rc;
}
