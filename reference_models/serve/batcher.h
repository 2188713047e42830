// SPDX-License-Identifier: Apache-2.0
// Dynamic batching: requests in, in the order of arrival; batches out, as soon as one is full or
// its oldest request has waited long enough. Any number of threads on both sides. Bounded: what
// does not fit is refused, not kept.
#ifndef UPGATE_SERVE_BATCHER_H
#define UPGATE_SERVE_BATCHER_H

#include "reference_models/serve/request.h"

struct batcher;

struct batcher_opts {
    size_t batch_max; // 1 or more
    int64_t wait_ns;  // of the oldest of a batch that is not full
    size_t queue_max; // requests that wait at most
};

struct batcher *batcher_new(const struct batcher_opts *opts);
void batcher_free(struct batcher *batcher); // NULL is fine; nobody may wait in it

// 0; -EAGAIN: the queue is full; -ESHUTDOWN: closed. request->arrived_ns is set.
int batcher_push(struct batcher *batcher, struct score_request *request);
// Blocks; fills up to batch_max requests. 0: closed, and everything has been taken.
size_t batcher_take(struct batcher *batcher, struct score_request **ret_requests);
void batcher_close(struct batcher *batcher); // what waits is still handed out
// arrival of the oldest that waits; 0: none waits
int64_t batcher_oldest_ns(struct batcher *batcher);

#endif
