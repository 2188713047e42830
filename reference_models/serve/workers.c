// SPDX-License-Identifier: Apache-2.0
// Worker threads and the model that they share by reference. Batches are steps of the step
// protocol, so that a recording of a server shows them.
#include "reference_models/serve/workers.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/strings.h"
#include "contracts/upgate_step.h"

#define WORKERS_WARM_BATCHES 20 // a model's pages and caches are touched by the first few

struct model_set { // one model, once for each worker
    struct model_choice choice;
    size_t count, users; // users: under the lock of the workers
    struct pool **pools;
    struct model **models;
    size_t values_least, values_most;
};

struct worker {
    struct workers *all;
    size_t idx;
    pthread_t thread;
    int64_t busy_ns; // under the lock
    struct score_request **batch, **placed;
};

struct workers {
    struct batcher *batcher;
    struct plants *plants;
    size_t batch_max, count, started;
    struct worker *worker;
    pthread_mutex_t lock;
    pthread_cond_t changed; // a set is there, a set is no longer used, the end
    struct model_set *set;
    bool stop;
    uint64_t batches, scored, loads;
};

static void set_free(struct model_set *set)
{
    if (!set)
        return;
    for (size_t i = 0; i < set->count; i++) {
        set->choice.ops->destroy(set->models[i]);
        pool_free(set->pools[i]);
    }
    free(set->models);
    free(set->pools);
    free(set);
}

static int set_new(const struct model_choice *choice, size_t count, size_t batch_max,
        struct model_set **ret_set, struct error *err)
{
    struct model_set *set = xcalloc(1, sizeof *set);
    set->choice = *choice;
    set->count = count;
    set->pools = xcalloc(count, sizeof *set->pools);
    set->models = xcalloc(count, sizeof *set->models);
    int rc = 0;
    for (size_t i = 0; i < count && !rc; i++) {
        rc = pool_new(1, &set->pools[i], err);
        if (rc)
            break;
        struct model_opts opts = {.seed = choice->seed,
                .size = choice->size,
                .batch = batch_max,
                .pool = set->pools[i]};
        rc = choice->ops->create(&opts, &set->models[i], err);
    }
    if (rc) {
        set_free(set);
        return rc;
    }
    set->values_most = choice->ops->request_values(set->models[0], &set->values_least);
    *ret_set = set;
    return 0;
}

// Full batches of zeros, which every model takes.
static void set_warm_up(struct model_set *set, size_t batch_max)
{
    const struct model_ops *ops = set->choice.ops;
    double *zeros = xcalloc(set->values_most, sizeof *zeros);
    for (size_t i = 0; i < set->count; i++) {
        for (size_t row = 0; row < batch_max; row++)
            ops->put(set->models[i], row, zeros, set->values_most, NULL);
        ops->set_rows(set->models[i], batch_max);
        for (int batch = 0; batch < WORKERS_WARM_BATCHES; batch++)
            ops->forward(set->models[i]);
    }
    free(zeros);
}

static struct model_set *workers_acquire(struct workers *workers)
{
    pthread_mutex_lock(&workers->lock);
    while (!workers->set && !workers->stop)
        pthread_cond_wait(&workers->changed, &workers->lock);
    struct model_set *set = workers->set;
    if (set)
        set->users++;
    pthread_mutex_unlock(&workers->lock);
    return set;
}

static void workers_release(struct workers *workers, struct model_set *set, size_t scored)
{
    pthread_mutex_lock(&workers->lock);
    workers->batches += scored > 0;
    workers->scored += scored;
    if (--set->users == 0)
        pthread_cond_broadcast(&workers->changed);
    pthread_mutex_unlock(&workers->lock);
}

static void worker_busy(struct worker *worker, int64_t since_ns)
{
    pthread_mutex_lock(&worker->all->lock);
    worker->busy_ns = since_ns;
    pthread_mutex_unlock(&worker->all->lock);
}

static int worker_put(const struct model_set *set, struct model *model, size_t row,
        const struct score_request *request, struct error *err)
{
    if (request->count < set->values_least || request->count > set->values_most)
        return error_set(err, -EINVAL, "'features' has %zu numbers; the model takes %zu to %zu",
                request->count, set->values_least, set->values_most);
    return set->choice.ops->put(model, row, request->values, request->count, err);
}

// Computes a batch; requests that the model does not take are answered, too.
static size_t worker_score(struct worker *worker, struct model_set *set, size_t count)
{
    const struct model_ops *ops = set->choice.ops;
    struct model *model = set->models[worker->idx];
    size_t rows = 0;
    for (size_t i = 0; i < count; i++) {
        struct score_request *request = worker->batch[i];
        struct error err = {0};
        if (worker_put(set, model, rows, request, &err)) {
            request->status = 400;
            snprintf(request->text, sizeof request->text, "%s", err.text);
        } else {
            worker->placed[rows++] = request;
        }
    }
    if (rows) {
        ops->set_rows(model, rows);
        ug_step_begin();
        ops->forward(model);
        ug_step_end((double)rows);
    }
    for (size_t row = 0; row < rows; row++) {
        struct score_request *request = worker->placed[row];
        request->status = 200;
        request->score = ops->score(model, row);
        memcpy(request->model, set->choice.name, sizeof request->model);
        plants_scored(worker->all->plants, request, (set->values_least + set->values_most + 1) / 2);
    }
    return rows;
}

static void *worker_run(void *arg)
{
    struct worker *worker = arg;
    struct workers *all = worker->all;
    for (;;) {
        size_t count = batcher_take(all->batcher, worker->batch);
        if (count == 0)
            return NULL;
        worker_busy(worker, clock_monotonic_ns());
        plants_worker(all->plants);
        struct model_set *set = workers_acquire(all);
        size_t scored = 0;
        if (set) {
            scored = worker_score(worker, set, count);
            workers_release(all, set, scored);
        }
        for (size_t i = 0; i < count; i++) {
            struct score_request *request = worker->batch[i];
            if (!set) {
                request->status = 503;
                snprintf(request->text, sizeof request->text, "there is no model");
            }
            plants_finish(all->plants, request);
        }
        worker_busy(worker, 0);
    }
}

int workers_new(size_t count, size_t batch_max, struct batcher *batcher, struct plants *plants,
        struct workers **ret_workers, struct error *err)
{
    struct workers *workers = xcalloc(1, sizeof *workers);
    workers->batcher = batcher;
    workers->plants = plants;
    workers->batch_max = batch_max;
    workers->count = count;
    workers->worker = xcalloc(count, sizeof *workers->worker);
    pthread_mutex_init(&workers->lock, NULL);
    pthread_cond_init(&workers->changed, NULL);
    for (size_t i = 0; i < count; i++) {
        struct worker *worker = &workers->worker[i];
        *worker = (struct worker){.all = workers, .idx = i};
        worker->batch = xcalloc(batch_max, sizeof(struct score_request *));
        worker->placed = xcalloc(batch_max, sizeof(struct score_request *));
        int rc = -pthread_create(&worker->thread, NULL, worker_run, worker);
        if (rc) {
            free(worker->batch);
            free(worker->placed);
            batcher_close(batcher);
            workers_free(workers);
            return error_set(err, rc, "failed to start worker %zu: %s", i, strerror(-rc));
        }
        workers->started++;
    }
    *ret_workers = workers;
    return 0;
}

void workers_free(struct workers *workers)
{
    if (!workers)
        return;
    pthread_mutex_lock(&workers->lock);
    workers->stop = true;
    pthread_cond_broadcast(&workers->changed);
    pthread_mutex_unlock(&workers->lock);
    for (size_t i = 0; i < workers->started; i++) {
        pthread_join(workers->worker[i].thread, NULL);
        free(workers->worker[i].batch);
        free(workers->worker[i].placed);
    }
    set_free(workers->set);
    pthread_cond_destroy(&workers->changed);
    pthread_mutex_destroy(&workers->lock);
    free(workers->worker);
    free(workers);
}

int workers_load(struct workers *workers, const struct model_choice *choice, struct error *err)
{
    struct model_set *set = NULL;
    int rc = set_new(choice, workers->count, workers->batch_max, &set, err);
    if (rc)
        return rc;
    set_warm_up(set, workers->batch_max);
    plants_warm_up(workers->plants);
    pthread_mutex_lock(&workers->lock);
    struct model_set *old = workers->set;
    workers->set = set;
    workers->loads++;
    pthread_cond_broadcast(&workers->changed);
    while (old && old->users > 0)
        pthread_cond_wait(&workers->changed, &workers->lock);
    pthread_mutex_unlock(&workers->lock);
    set_free(old);
    return 0;
}

void workers_look(struct workers *workers, struct workers_state *ret_state)
{
    pthread_mutex_lock(&workers->lock);
    *ret_state = (struct workers_state){.ready = workers->set,
            .batches = workers->batches,
            .scored = workers->scored,
            .loads = workers->loads};
    for (size_t i = 0; i < workers->started; i++) {
        int64_t busy = workers->worker[i].busy_ns;
        if (busy && (!ret_state->busy_ns || busy < ret_state->busy_ns))
            ret_state->busy_ns = busy;
    }
    if (workers->set) {
        memcpy(ret_state->model, workers->set->choice.name, sizeof ret_state->model);
        ret_state->kind = workers->set->choice.ops->name;
        ret_state->values_least = workers->set->values_least;
        ret_state->values_most = workers->set->values_most;
    }
    pthread_mutex_unlock(&workers->lock);
}
