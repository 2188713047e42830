// SPDX-License-Identifier: Apache-2.0
// Embedding tables larger than the memory of the GPU: all rows, with what the optimizer keeps of
// them, lie in pinned host memory, and a cache on the GPU holds those of the coming batches and the
// ones used last. One thread at a time; the device that was current at _new().
//
//     for the first look_ahead batches: kernel_cache_prefetch()
//     each step: kernel_cache_acquire(); if there is one, kernel_cache_prefetch() of the batch
//                look_ahead further on; kernel_bag_forward(), ..., kernel_bag_update() with what
//                kernel_cache_bags() says; kernel_cache_release()
//
// Batches are prefetched in the order in which they are acquired. What moves, moves on a stream of
// the cache's own beside the step. Exact: rows, state and outputs have the same bits as if the
// table lay on the GPU.
#ifndef UPGATE_KERNELS_CACHE_H
#define UPGATE_KERNELS_CACHE_H

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KERNEL_CACHE_AHEAD_MAX 16

// An id is a row of the host's memory, 0 to rows - 1. Several tables lie there one behind the
// other: the caller adds where each begins.
struct kernel_cache_opts {
    enum kernel_optimizer optimizer; // what a row carries: SGD nothing, row-wise Adagrad 1 float,
                                     // that of each element dim, Adam 2 * dim
    int64_t rows, dim;               // float32; up to 2^31 - 1 rows; dim a multiple of 4 up to 512
    int64_t slots; // rows on the GPU, a multiple of 32: at least four times the different rows of
                   // look_ahead + 1 batches, as an id belongs to one bucket of 32 slots, and those
                   // of the window must find a place there
    int64_t lookups; // the most of a batch
    int look_ahead;  // batches prefetched beyond the one acquired, 1 to KERNEL_CACHE_AHEAD_MAX
};
struct kernel_cache;
// -EINVAL; -ENOMEM: which memory was too small. State starts at 0, rows are as the system gave
// them: fill kernel_cache_rows().
int kernel_cache_new(
        const struct kernel_cache_opts *opts, struct kernel_cache **ret, struct error *err);
void kernel_cache_free(struct kernel_cache *cache); // NULL: nothing; does not write back
// The host's memory, [rows][dim]; state: as kernel_update's, of all rows; SGD NULL. Both also the
// GPU's addresses. To be read and written before the first prefetch, and after kernel_cache_flush()
// up to the next prefetch.
float *kernel_cache_rows(const struct kernel_cache *cache);
float *kernel_cache_state(const struct kernel_cache *cache);

// The next batch's lookups, ids[count] in device memory as `stream` makes them; may be overwritten
// by what comes later in `stream`. The ids are trusted (kernel_bags_check() sees them). -EINVAL:
// too many, or more than look_ahead batches beyond the one acquired.
int kernel_cache_prefetch(struct kernel_cache *cache, int64_t count, const int64_t *ids,
        cudaStream_t stream, struct error *err);

// A batch on the GPU, for all that comes later in the stream and up to its release. For
// kernel_bag_forward() the ids are `slots` of rows; for kernel_bag_update() they are `ranks`, the
// row's number among the batch's, in the order of the ids, which lies at places[rank]: so that what
// is added up is added in the order of a table that lies on the GPU, whatever the slots.
struct kernel_cache_batch {
    int64_t count;         // lookups
    const int64_t *slots;  // [count]
    const int64_t *ranks;  // [count]
    const int32_t *places; // [count]
    float *rows, *state;   // [slot_count][dim]; as kernel_update's, of slot_count rows
    int64_t slot_count;
};
// update: the rows will be changed and have to be written back. -ENOSPC: rows of an earlier batch
// found no place, what it computed is wrong.
int kernel_cache_acquire(struct kernel_cache *cache, bool update, cudaStream_t stream,
        struct kernel_cache_batch *ret, struct error *err);
// Puts the batch into bags: ids, and for each of bags->tables rows and row_count; update: with
// places. Offsets, weights, bags, pooling are the caller's, and `state` of the batch goes into
// kernel_update.
void kernel_cache_bags(
        const struct kernel_cache_batch *batch, bool update, struct kernel_bags *bags);
// Its last use has been put into `stream`.
int kernel_cache_release(struct kernel_cache *cache, cudaStream_t stream, struct error *err);

// Writes all back that was changed, and waits: the host's memory is the table. No batch is
// acquired, none is prefetched. -ENOSPC as above.
int kernel_cache_flush(struct kernel_cache *cache, struct error *err);

// Since _new(); waits for the cache's stream. Rows are counted once a batch.
struct kernel_cache_stats {
    uint64_t batches, lookups, rows; // acquired
    uint64_t kept;                   // rows that no copy was needed for, at prefetch
    // rows copied to the GPU at prefetch; at acquire, which the step waits for
    uint64_t ahead, late;
    uint64_t written;  // rows written back
    uint64_t no_place; // rows without a place
};
int kernel_cache_stats(
        struct kernel_cache *cache, struct kernel_cache_stats *ret, struct error *err);

// Without the books: for a caller that keeps its own on the host, by whatever rule, with any row in
// any slot and a memory of the host that grows. A row of the host is [planes][dim] in pinned memory
// that the GPU can address: its values, then what the optimizer keeps of each element. A move: what
// lies in `slot` goes to the row `out`, unless that is NULL; then the row `in` comes there. No slot
// is in two moves, no row of the host either.
struct kernel_cache_move {
    float *out;
    const float *in; // both at multiples of 16 bytes
    int64_t slot;
};
#define KERNEL_CACHE_PLANES_MAX 3
struct kernel_cache_moves {
    int64_t count, dim; // of all rows together up to 2^33 floats; dim a multiple of 4 up to 512
    int planes;         // 1 to KERNEL_CACHE_PLANES_MAX
    float *slots[KERNEL_CACHE_PLANES_MAX]; // [.][dim] on the GPU, each plane
    const struct kernel_cache_move *moves; // [count], where the GPU reads them; trusted
    bool late; // somebody waits for them: more multiprocessors take part
};
int kernel_cache_move(
        const struct kernel_cache_moves *moves, cudaStream_t stream, struct error *err);

#ifdef __cplusplus
}
#endif

#endif
