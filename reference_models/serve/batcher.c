// SPDX-License-Identifier: Apache-2.0
// The queue between the HTTP thread and the workers. One lock, one condition; CLOCK_MONOTONIC.
#include "reference_models/serve/batcher.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "common/clock.h"
#include "common/strings.h"

#define BATCHER_S INT64_C(1000000000)

struct batcher {
    struct batcher_opts opts;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct score_request *first, **last;
    size_t count;
    bool closed;
};

struct batcher *batcher_new(const struct batcher_opts *opts)
{
    struct batcher *batcher = xcalloc(1, sizeof *batcher);
    batcher->opts = *opts;
    batcher->last = &batcher->first;
    pthread_mutex_init(&batcher->lock, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&batcher->changed, &attr);
    pthread_condattr_destroy(&attr);
    return batcher;
}

void batcher_free(struct batcher *batcher)
{
    if (!batcher)
        return;
    pthread_cond_destroy(&batcher->changed);
    pthread_mutex_destroy(&batcher->lock);
    free(batcher);
}

int batcher_push(struct batcher *batcher, struct score_request *request)
{
    int rc = 0;
    request->next = NULL;
    request->arrived_ns = clock_monotonic_ns();
    pthread_mutex_lock(&batcher->lock);
    if (batcher->closed) {
        rc = -ESHUTDOWN;
    } else if (batcher->count >= batcher->opts.queue_max) {
        rc = -EAGAIN;
    } else {
        *batcher->last = request;
        batcher->last = &request->next;
        batcher->count++;
        // The first wakes a worker; the one that fills a batch ends the wait of the worker that
        // collects it, or wakes another, which is as good.
        if (batcher->count == 1 || batcher->count == batcher->opts.batch_max)
            pthread_cond_signal(&batcher->changed);
    }
    pthread_mutex_unlock(&batcher->lock);
    return rc;
}

// Waits until a batch is due. False: closed and empty.
static bool batcher_wait(struct batcher *batcher)
{
    for (;;) {
        if (batcher->count >= batcher->opts.batch_max || (batcher->count && batcher->closed))
            return true;
        if (batcher->count == 0) {
            if (batcher->closed)
                return false;
            pthread_cond_wait(&batcher->changed, &batcher->lock);
            continue;
        }
        int64_t due = batcher->first->arrived_ns + batcher->opts.wait_ns;
        if (clock_monotonic_ns() >= due)
            return true;
        struct timespec until = {.tv_sec = due / BATCHER_S, .tv_nsec = due % BATCHER_S};
        pthread_cond_timedwait(&batcher->changed, &batcher->lock, &until);
    }
}

size_t batcher_take(struct batcher *batcher, struct score_request **ret_requests)
{
    size_t count = 0;
    pthread_mutex_lock(&batcher->lock);
    if (batcher_wait(batcher)) {
        while (batcher->first && count < batcher->opts.batch_max) {
            ret_requests[count++] = batcher->first;
            batcher->first = batcher->first->next;
        }
        batcher->count -= count;
        if (!batcher->first)
            batcher->last = &batcher->first;
        else
            pthread_cond_signal(&batcher->changed); // for another worker
    }
    pthread_mutex_unlock(&batcher->lock);
    return count;
}

void batcher_close(struct batcher *batcher)
{
    pthread_mutex_lock(&batcher->lock);
    batcher->closed = true;
    pthread_cond_broadcast(&batcher->changed);
    pthread_mutex_unlock(&batcher->lock);
}

int64_t batcher_oldest_ns(struct batcher *batcher)
{
    pthread_mutex_lock(&batcher->lock);
    int64_t oldest = batcher->first ? batcher->first->arrived_ns : 0;
    pthread_mutex_unlock(&batcher->lock);
    return oldest;
}
