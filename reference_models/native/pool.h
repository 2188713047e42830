// SPDX-License-Identifier: Apache-2.0
// The threads of a workload, and the one door through which all its numeric work passes: pool_for()
// cuts a range of items into one contiguous part a thread. Because every item passes here, a
// planted slow-down repeats real items here and nowhere else. Used by one thread at a time; parts
// may not call pool_for() themselves.
#ifndef UPGATE_NATIVE_POOL_H
#define UPGATE_NATIVE_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

struct pool;

// Works on items [begin, end). `again`: these items were done before in this call and are repeated
// as ballast: do the same work and leave every result as it is.
typedef void (*pool_fn)(void *arg, size_t begin, size_t end, bool again);

struct pool_work {
    size_t count; // items
    size_t grain; // parts of threads are cut at multiples of this; 0 = 1
    double cost;  // of one item, in a unit of fn's own: its calls may have items of several sizes
    pool_fn fn;
    const char *name; // of fn, for pool_set_op()
    pool_fn other;    // does the same under another name; NULL: there is none
    void *arg;
};

// The function of a piece of work, and its name.
#define POOL_FN(function) .fn = (function), .name = #function
#define POOL_NAMED(function) function, #function // as two arguments

#define POOL_THREADS_MAX 256

// threads 1..POOL_THREADS_MAX, the caller being one of them. -EINVAL, or the error of the system.
int pool_new(size_t threads, struct pool **ret_pool, struct error *err);
void pool_free(struct pool *pool); // NULL is fine; waits for the threads to end

// From now on repeat this share of the work (0.05 = 5 % slower). Each kind of work (fn) pays for
// itself: a call adds share * its cost to the debt of its kind and repeats as many items as that
// pays for. So the mean over the steps is the share whatever a kind costs on this machine and
// build, and a step differs from it by at most an item of each kind. Debts stay when the share
// changes.
void pool_set_extra(struct pool *pool, double share);

// One kind of work alone, planted (plant.h): from now on it takes this share of a whole step more.
// The share is found from the steps themselves: call pool_step() after each.
enum pool_op {
    POOL_OP_SLOW,    // the kind is repeated
    POOL_OP_REPLACE, // likewise, and done by its `other`
    POOL_OP_ADDED    // the kind itself is what is planted: all of it together takes the share
};
void pool_set_op(struct pool *pool, enum pool_op op, const char *name, double share);
void pool_step(struct pool *pool, int64_t step_ns);
bool pool_adds(const struct pool *pool, const char *name); // is this kind planted as POOL_OP_ADDED?

void pool_for(struct pool *pool, const struct pool_work *work);

#endif
