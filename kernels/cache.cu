// SPDX-License-Identifier: Apache-2.0
// The look-ahead cache of embedding rows between pinned host memory and the GPU, as cache.h says
// it.
//     nvcc -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a -I. -c kernels/cache.cu
// Bytes: each row that is not there crosses the link once, with its state; each changed one that
// has to go, too, the other way. The link works both ways at once. Bound by it.
//
// The hash table says where a row's slot is, and who must leave: its steps are batches, and a row's
// last use is the latest batch of the window that names it. So what a batch of the window needs
// stays, and of the rest the least recently used goes. `held` says whose row lies in a slot,
// `changed` whether the host's is older: what has to move follows from these two, whoever was
// evicted.
//
//   prefetch  ids become 32-bit keys (in the caller's stream), are sorted, numbered and made
//             different; hash insert; move
//   acquire   hash insert again, for a row that found no place or was evicted since; move; slots of
//             the lookups
//   move      32 different rows a warp; those that are not there are copied to and fro by the
//             warp's lanes, 16 bytes each, four in flight
//
// Everything that touches slots is on the cache's stream, in its order: a row that is written back
// and comes again in the next batch is read after it was written. That stream waits for the release
// of the last batch: no row leaves before its update.
#ifndef __CUDACC_RTC__
#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_scan.cuh>
#include <new>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>
#endif

#include "kernels/cache.h"
#include "kernels/device.cuh"

#define CACHE_THREADS 256
#define CACHE_WARPS (CACHE_THREADS / 32)
#define CACHE_PLANES \
    KERNEL_CACHE_PLANES_MAX // rows; Adam's m and v, or the squares of Adagrad of each element
#define CACHE_RING (KERNEL_CACHE_AHEAD_MAX + 2)
#define CACHE_NO_ID INT64_MIN // of the hash table: of no use
#define CACHE_MOVE_BLOCKS \
    32 // beside a step: up to 512 KiB in flight keep the link busy, the other multiprocessors are
       // the step's
#define CACHE_LATE_BLOCKS 128 // the step waits

enum cache_count {
    CACHE_KEPT,
    CACHE_AHEAD,
    CACHE_LATE,
    CACHE_WRITTEN,
    CACHE_NO_PLACE,
    CACHE_ROWS,
    CACHE_COUNTS
};

struct cache_plane {
    float4 *host, *slots; // [rows][vectors], [slots + 1][vectors]
};

struct cache_move {
    int planes, vectors;
    struct cache_plane plane[CACHE_PLANES];
    float *host_square, *square; // row-wise Adagrad's state, else NULL
    const int64_t *unique;
    const uint32_t *unique_count;
    int32_t *places;
    int32_t trash; // the slot behind all: of rows without a place
    int32_t *held;
    uint8_t *changed;
    unsigned long long *counts;
    bool acquire, update;
};

static __global__ void __launch_bounds__(CACHE_THREADS)
        cache_expand(int64_t count, const int64_t *__restrict__ ids, uint32_t *__restrict__ keys)
{
    const int64_t i = (int64_t)blockIdx.x * CACHE_THREADS + threadIdx.x;
    if (i < count)
        keys[i] = (uint32_t)ids[i];
}

static __global__ void __launch_bounds__(CACHE_THREADS)
        cache_iota(int64_t count, uint32_t *__restrict__ to)
{
    const int64_t i = (int64_t)blockIdx.x * CACHE_THREADS + threadIdx.x;
    if (i < count)
        to[i] = (uint32_t)i;
}

struct cache_begins {
    const uint32_t *keys;
    __host__ __device__ uint32_t operator()(uint32_t i) const
    {
#ifdef __CUDA_ARCH__
        return i == 0 || keys[i] != keys[i - 1];
#else
        return i == 0; // never called: the iterator wants it
#endif
    }
};

// numbers[i]: how many different keys there are up to i.
static __global__ void __launch_bounds__(CACHE_THREADS)
        cache_number(int64_t count, const uint32_t *__restrict__ keys,
                const uint32_t *__restrict__ values, const uint32_t *__restrict__ numbers,
                int64_t *__restrict__ ranks, int64_t *__restrict__ unique, uint32_t *unique_count)
{
    const int64_t i = (int64_t)blockIdx.x * CACHE_THREADS + threadIdx.x;
    if (i >= count)
        return;
    const uint32_t number = numbers[i] - 1, total = numbers[count - 1];
    ranks[values[i]] = number;
    if (i == 0 || keys[i] != keys[i - 1])
        unique[number] = keys[i];
    if (i >= total)
        unique[i] = CACHE_NO_ID;
    if (i == 0)
        *unique_count = total;
}

// What the lanes of a warp copy: of row `to_gpu` of the host into slot `slot`, and, before, the
// slot into row `to_host`, unless that is -1.
struct cache_job {
    int32_t slot, to_gpu, to_host;
};

static __device__ __forceinline__ void cache_copy(
        const struct cache_move &p, const struct cache_job *jobs, int count, int lane)
{
    constexpr int TURNS = 4;
    const int items = count * p.vectors;
    for (int plane = 0; plane < p.planes; plane++) {
        float4 *host = p.plane[plane].host, *slots = p.plane[plane].slots;
        for (int base = lane; base < items; base += 32 * TURNS) {
            float4 in[TURNS], out[TURNS]; // all are asked for before the first is needed
#pragma unroll
            for (int t = 0; t < TURNS; t++) {
                const int item = base + 32 * t, at = item / p.vectors,
                          vector = item - at * p.vectors;
                if (item >= items)
                    continue;
                const struct cache_job job = jobs[at];
                in[t] = __ldcs(host + (size_t)job.to_gpu * (size_t)p.vectors + vector);
                if (job.to_host >= 0)
                    out[t] = __ldcs(slots + (size_t)job.slot * (size_t)p.vectors + vector);
            }
#pragma unroll
            for (int t = 0; t < TURNS; t++) {
                const int item = base + 32 * t, at = item / p.vectors,
                          vector = item - at * p.vectors;
                if (item >= items)
                    continue;
                const struct cache_job job = jobs[at];
                if (job.to_host >= 0)
                    __stcs(host + (size_t)job.to_host * (size_t)p.vectors + vector, out[t]);
                slots[(size_t)job.slot * (size_t)p.vectors + vector] = in[t];
            }
        }
    }
    if (p.square && lane < count) {
        const float in = __ldcs(p.host_square + jobs[lane].to_gpu);
        if (jobs[lane].to_host >= 0)
            p.host_square[jobs[lane].to_host] = p.square[jobs[lane].slot];
        p.square[jobs[lane].slot] = in;
    }
}

static __device__ __forceinline__ void cache_add(
        unsigned long long *counts, enum cache_count which, unsigned mask, int lane)
{
    if (lane == 0 && mask)
        atomicAdd(counts + which, (unsigned long long)__popc(mask));
}

static __global__ void __launch_bounds__(CACHE_THREADS)
        cache_move(const __grid_constant__ struct cache_move p)
{
    __shared__ struct cache_job jobs[CACHE_WARPS][32];
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const uint32_t total = *p.unique_count, warps = gridDim.x * CACHE_WARPS;
    for (uint32_t base = (blockIdx.x * CACHE_WARPS + (uint32_t)warp) * 32; base < total;
            base += warps * 32) {
        const uint32_t i = base + (uint32_t)lane;
        const int32_t id = i < total ? (int32_t)p.unique[i] : -1;
        int32_t place = i < total ? p.places[i] : -1;
        const int32_t held = place >= 0 ? p.held[place] : -1;
        const bool none = i < total && place < 0, miss = place >= 0 && held != id;
        const bool back = miss && held >= 0 && p.changed[place];
        if (miss)
            p.held[place] = id;
        if (place >= 0 && (miss || p.update))
            p.changed[place] = p.update;
        if (none && p.acquire)
            p.places[i] = p.trash;
        const unsigned misses = __ballot_sync(0xffffffffu, miss),
                       backs = __ballot_sync(0xffffffffu, back);
        const unsigned nones = __ballot_sync(0xffffffffu, none),
                       kept = __ballot_sync(0xffffffffu, place >= 0 && !miss);
        cache_add(p.counts, p.acquire ? CACHE_LATE : CACHE_AHEAD, misses, lane);
        cache_add(p.counts, CACHE_WRITTEN, backs, lane);
        if (p.acquire) {
            cache_add(p.counts, CACHE_NO_PLACE, nones, lane);
            cache_add(p.counts, CACHE_ROWS, nones | kept | misses, lane);
        } else {
            cache_add(p.counts, CACHE_KEPT, kept, lane);
        }
        if (miss)
            jobs[warp][__popc(misses & ((1u << lane) - 1))] = {place, id, back ? held : -1};
        __syncwarp();
        cache_copy(p, jobs[warp], __popc(misses), lane);
        __syncwarp();
    }
}

static __global__ void __launch_bounds__(CACHE_THREADS)
        cache_slots(int64_t count, const int64_t *__restrict__ ranks,
                const int32_t *__restrict__ places, int64_t *__restrict__ slots)
{
    const int64_t i = (int64_t)blockIdx.x * CACHE_THREADS + threadIdx.x;
    if (i < count)
        slots[i] = places[ranks[i]];
}

// Of a caller's own books. A thread takes 16 bytes of a row, four times: all are asked for before
// the first is needed.
static __global__ void __launch_bounds__(CACHE_THREADS)
        cache_follow(const __grid_constant__ struct kernel_cache_moves p)
{
    constexpr int TURNS = 4;
    const uint32_t vectors = (uint32_t)p.dim / 4, row = vectors * (uint32_t)p.planes,
                   items = (uint32_t)p.count * row;
    const uint32_t step = gridDim.x * CACHE_THREADS;
    for (uint32_t base = blockIdx.x * CACHE_THREADS + threadIdx.x; base < items;
            base += step * TURNS) {
        float4 in[TURNS], out[TURNS], *slot[TURNS], *to_host[TURNS];
#pragma unroll
        for (int t = 0; t < TURNS; t++) {
            const uint32_t item = base + (uint32_t)t * step, vector = item % row;
            slot[t] = to_host[t] = NULL;
            if (item >= items)
                continue;
            const struct kernel_cache_move move = p.moves[item / row];
            slot[t] = (float4 *)p.slots[vector / vectors] + (size_t)move.slot * vectors +
                    vector % vectors;
            in[t] = __ldcs((const float4 *)move.in + vector);
            if (move.out) {
                to_host[t] = (float4 *)move.out + vector;
                out[t] = *slot[t];
            }
        }
#pragma unroll
        for (int t = 0; t < TURNS; t++) {
            if (to_host[t])
                __stcs(to_host[t], out[t]);
            if (slot[t])
                *slot[t] = in[t];
        }
    }
}

// All changed rows to the host. A warp looks at 32 slots.
static __global__ void __launch_bounds__(CACHE_THREADS)
        cache_flush(const __grid_constant__ struct cache_move p)
{
    const int lane = (int)threadIdx.x % 32;
    for (int32_t base = (int32_t)((blockIdx.x * CACHE_THREADS + threadIdx.x) / 32 * 32);
            base < p.trash; base += (int32_t)(gridDim.x * CACHE_THREADS)) {
        const int32_t held = p.held[base + lane];
        const bool back = held >= 0 && p.changed[base + lane];
        const unsigned backs = __ballot_sync(0xffffffffu, back);
        if (back)
            p.changed[base + lane] = 0;
        if (back && p.square)
            p.host_square[held] = p.square[base + lane];
        cache_add(p.counts, CACHE_WRITTEN, backs, lane);
        for (unsigned left = backs; left; left &= left - 1) {
            const int from = __ffs((int)left) - 1;
            const size_t to = (size_t)__shfl_sync(0xffffffffu, held, from) * (size_t)p.vectors;
            for (int plane = 0; plane < p.planes; plane++)
                for (int v = lane; v < p.vectors; v += 32)
                    __stcs(p.plane[plane].host + to + v,
                            p.plane[plane].slots[(size_t)(base + from) * (size_t)p.vectors + v]);
        }
    }
}

#ifndef __CUDACC_RTC__ // what the host does: NVRTC takes the kernels alone
struct cache_window {  // a batch of the window
    int64_t count;
    uint32_t *keys; // [lookups], not sorted
    int64_t *ranks, *unique, *slots;
    uint32_t *unique_count;
    int32_t *places; // [lookups]
    cudaEvent_t expanded, acquired;
};

struct kernel_cache {
    struct kernel_cache_opts opts;
    float *host_rows, *host_state;
    float *rows, *state;
    struct kernel_hash hash;
    struct kernel_hash_evicted evicted;
    struct cache_move move;
    struct cache_window window[CACHE_RING];
    uint32_t *iota, *keys, *values, *numbers;
    void *temp;
    size_t temp_bytes;
    // on the GPU; pinned: the counts after the last acquire that has run
    unsigned long long *counts, *told;
    cudaStream_t stream;
    cudaEvent_t released;
    uint64_t prefetched, acquired, finished, lookups; // batches; finished: released
    void *memory[64];
    int memory_count;
};

static int cache_refuse(const struct kernel_cache_opts *opts, struct error *err)
{
    if (opts->rows < 1 || opts->rows > INT32_MAX)
        return error_set(err, -EINVAL,
                "embedding cache: %lld rows are not supported: 1 to 2^31 - 1 are",
                (long long)opts->rows);
    if (opts->dim < 4 || opts->dim > 512 || opts->dim % 4 != 0)
        return error_set(err, -EINVAL,
                "embedding cache: rows of %lld float32 are not supported: a multiple of 4 up to 512 is",
                (long long)opts->dim);
    if (opts->slots < KERNEL_HASH_BUCKET || opts->slots > 1 << 30 ||
            opts->slots % KERNEL_HASH_BUCKET != 0)
        return error_set(err, -EINVAL,
                "embedding cache: %lld slots are not supported: a multiple of %d up to 2^30 is",
                (long long)opts->slots, KERNEL_HASH_BUCKET);
    if (opts->lookups < 1 || opts->lookups > INT32_MAX)
        return error_set(err, -EINVAL,
                "embedding cache: batches of %lld lookups are not supported: 1 to 2^31 - 1 are",
                (long long)opts->lookups);
    if (opts->look_ahead < 1 || opts->look_ahead > KERNEL_CACHE_AHEAD_MAX)
        return error_set(err, -EINVAL,
                "embedding cache: a look-ahead of %d batches is not supported: 1 to %d are",
                opts->look_ahead, KERNEL_CACHE_AHEAD_MAX);
    return 0;
}

template <typename T>
static int cache_take(
        struct kernel_cache *cache, T **ret, int64_t count, const char *what, struct error *err)
{
    void *place = NULL;
    const size_t bytes = sizeof(T) * (size_t)count;
    int rc = device_error(cudaMalloc(&place, bytes), "", NULL);
    if (rc) {
        cudaGetLastError();
        return error_set(err, rc, "embedding cache: the GPU has no %.1f MiB for %s",
                (double)bytes / 0x1p20, what);
    }
    cache->memory[cache->memory_count++] = place;
    *ret = (T *)place;
    return 0;
}

static int cache_pinned(float **ret, size_t bytes, const char *what, struct error *err)
{
    void *place = NULL;
    const cudaError_t error =
            cudaHostAlloc(&place, bytes, cudaHostAllocPortable | cudaHostAllocMapped);
    *ret = (float *)place;
    if (error == cudaSuccess)
        return 0;
    cudaGetLastError();
    return error_set(err, error == cudaErrorMemoryAllocation ? -ENOMEM : -EIO,
            "embedding cache: the host has no %.1f MiB to pin for %s: %s", (double)bytes / 0x1p20,
            what, cudaGetErrorString(error));
}

// Floats of the optimizer's that a row carries.
static int64_t cache_state(const struct kernel_cache_opts *opts)
{
    const int64_t floats[] = {0, 1, 2 * opts->dim, opts->dim};
    return floats[opts->optimizer];
}

static cudaError_t cache_sort(
        struct kernel_cache *cache, void *temp, size_t *bytes, const uint32_t *keys, int64_t count)
{
    int bits = 1;
    while (bits < 32 && cache->opts.rows > 1ll << bits)
        bits++;
    return cub::DeviceRadixSort::SortPairs(temp, *bytes, keys, cache->keys, cache->iota,
            cache->values, (int)count, 0, bits, cache->stream);
}

static cudaError_t cache_scan(struct kernel_cache *cache, void *temp, size_t *bytes, int64_t count)
{
    const struct cache_begins begins = {cache->keys};
    return cub::DeviceScan::InclusiveSum(temp, *bytes,
            thrust::make_transform_iterator(thrust::counting_iterator<uint32_t>(0), begins),
            cache->numbers, (int)count, cache->stream);
}

static int cache_memory_host(struct kernel_cache *cache, struct error *err)
{
    const struct kernel_cache_opts *opts = &cache->opts;
    const size_t row = (size_t)opts->dim * sizeof(float),
                 state = (size_t)cache_state(opts) * sizeof(float);
    float *told = NULL;
    int rc = cache_pinned(&cache->host_rows, (size_t)opts->rows * row, "the rows", err);
    if (!rc && state)
        rc = cache_pinned(&cache->host_state, (size_t)opts->rows * state, "the state", err);
    if (!rc)
        rc = cache_pinned(&told, CACHE_COUNTS * sizeof *cache->told, "counts", err);
    cache->told = (unsigned long long *)told;
    if (rc)
        return rc;
    if (state)
        memset(cache->host_state, 0, (size_t)opts->rows * state);
    memset(told, 0, CACHE_COUNTS * sizeof *cache->told);
    return 0;
}

static int cache_memory(struct kernel_cache *cache, struct error *err)
{
    const struct kernel_cache_opts *opts = &cache->opts;
    const int64_t slots = opts->slots + 1, state = cache_state(opts);
    size_t sort = 0, scan = 0;
    uint8_t *temp = NULL;
    int rc = cache_memory_host(cache, err);

    if (rc || (rc = cache_take(cache, &cache->rows, slots * opts->dim, "the slots' rows", err)) ||
            (state &&
                    (rc = cache_take(
                             cache, &cache->state, slots * state, "the slots' state", err))) ||
            (rc = cache_take(cache, &cache->hash.ids, slots, "the hash table", err)) ||
            (rc = cache_take(cache, &cache->hash.used, slots, "the hash table", err)) ||
            (rc = cache_take(cache, &cache->hash.digests, slots, "the hash table", err)) ||
            (rc = cache_take(cache, &cache->hash.locks, slots, "the hash table", err)) ||
            (rc = cache_take(cache, &cache->move.held, slots, "the slots", err)) ||
            (rc = cache_take(cache, &cache->move.changed, slots, "the slots", err)) ||
            (rc = cache_take(cache, &cache->evicted.counts, 2, "counts", err)) ||
            (rc = cache_take(cache, &cache->counts, CACHE_COUNTS, "counts", err)) ||
            (rc = cache_take(cache, &cache->iota, opts->lookups, "the lookups of a batch", err)) ||
            (rc = cache_take(cache, &cache->keys, opts->lookups, "the lookups of a batch", err)) ||
            (rc = cache_take(
                     cache, &cache->values, opts->lookups, "the lookups of a batch", err)) ||
            (rc = cache_take(cache, &cache->numbers, opts->lookups, "the lookups of a batch", err)))
        return rc;
    rc = device_error(cache_sort(cache, NULL, &sort, cache->numbers, opts->lookups),
            "ask for the scratch of the sort", err);
    if (!rc)
        rc = device_error(cache_scan(cache, NULL, &scan, opts->lookups),
                "ask for the scratch of the scan", err);
    cache->temp_bytes = sort > scan ? sort : scan;
    if (!rc)
        rc = cache_take(cache, &temp, (int64_t)cache->temp_bytes, "the sort", err);
    cache->temp = temp;
    for (int i = 0; !rc && i < opts->look_ahead + 2; i++) {
        struct cache_window *window = &cache->window[i];
        int64_t *three = NULL; // ranks, unique, slots
        uint32_t *pair = NULL; // keys, places, the count
        if ((rc = cache_take(cache, &three, 3 * opts->lookups, "a batch of the window", err)) ||
                (rc = cache_take(
                         cache, &pair, 2 * opts->lookups + 1, "a batch of the window", err)))
            break;
        window->ranks = three;
        window->unique = three + opts->lookups;
        window->slots = three + 2 * opts->lookups;
        window->keys = pair;
        window->places = (int32_t *)(pair + opts->lookups);
        window->unique_count = pair + 2 * opts->lookups;
        cudaError_t error = cudaEventCreateWithFlags(&window->expanded, cudaEventDisableTiming);
        if (error == cudaSuccess)
            error = cudaEventCreateWithFlags(&window->acquired, cudaEventDisableTiming);
        rc = device_error(error, "create an event", err);
    }
    return rc;
}

// What a move needs to know that does not change.
static void cache_describe(struct kernel_cache *cache)
{
    const struct kernel_cache_opts *opts = &cache->opts;
    struct cache_move *move = &cache->move;
    const size_t slots = (size_t)opts->slots + 1;
    cache->hash.slots = opts->slots;
    move->vectors = (int)opts->dim / 4;
    move->planes = 1 + (int)(cache_state(opts) / opts->dim);
    move->plane[0] = {(float4 *)cache->host_rows, (float4 *)cache->rows};
    for (int i = 1; i < move->planes; i++)
        move->plane[i] = {(float4 *)(cache->host_state +
                                  (size_t)(i - 1) * (size_t)opts->rows * (size_t)opts->dim),
                (float4 *)(cache->state + (size_t)(i - 1) * slots * (size_t)opts->dim)};
    move->host_square = opts->optimizer == KERNEL_ADAGRAD ? cache->host_state : NULL;
    move->square = opts->optimizer == KERNEL_ADAGRAD ? cache->state : NULL;
    move->trash = (int32_t)opts->slots;
    move->counts = cache->counts;
}

static unsigned cache_blocks(int64_t count)
{
    return (unsigned)((count + CACHE_THREADS - 1) / CACHE_THREADS);
}

static int cache_begin(struct kernel_cache *cache, struct error *err)
{
    const size_t slots = (size_t)cache->opts.slots + 1;
    cudaError_t error = cudaMemsetAsync(cache->move.held, 0xff, slots * 4, cache->stream);
    if (error == cudaSuccess)
        error = cudaMemsetAsync(cache->move.changed, 0, slots, cache->stream);
    if (error == cudaSuccess)
        error = cudaMemsetAsync(
                cache->counts, 0, CACHE_COUNTS * sizeof *cache->counts, cache->stream);
    if (error == cudaSuccess) // of rows without a place: nothing that is not a number
        error = cudaMemsetAsync(cache->rows + (slots - 1) * (size_t)cache->opts.dim, 0,
                (size_t)cache->opts.dim * 4, cache->stream);
    if (error != cudaSuccess)
        return device_error(error, "clear the slots", err);
    cache_iota<<<cache_blocks(cache->opts.lookups), CACHE_THREADS, 0, cache->stream>>>(
            cache->opts.lookups, cache->iota);
    int rc = device_error(cudaGetLastError(), "launch cache_iota", err);
    if (!rc)
        rc = kernel_hash_clear(&cache->hash, cache->stream, err);
    if (!rc)
        rc = device_error(cudaStreamSynchronize(cache->stream), "begin a cache", err);
    return rc;
}

int kernel_cache_new(
        const struct kernel_cache_opts *opts, struct kernel_cache **ret, struct error *err)
{
    int rc = cache_refuse(opts, err);
    if (rc)
        return rc;
    struct kernel_cache *cache = new (std::nothrow) kernel_cache();
    if (!cache)
        return error_set(err, -ENOMEM, "out of memory");
    cache->opts = *opts;
    cudaError_t error = cudaStreamCreateWithFlags(&cache->stream, cudaStreamNonBlocking);
    if (error == cudaSuccess)
        error = cudaEventCreateWithFlags(&cache->released, cudaEventDisableTiming);
    rc = device_error(error, "create a stream", err);
    if (!rc)
        rc = cache_memory(cache, err);
    if (!rc) {
        cache_describe(cache);
        rc = cache_begin(cache, err);
    }
    if (rc)
        kernel_cache_free(cache);
    else
        *ret = cache;
    return rc;
}

void kernel_cache_free(struct kernel_cache *cache)
{
    if (!cache)
        return;
    if (cache->stream)
        cudaStreamSynchronize(cache->stream);
    for (int i = 0; i < cache->memory_count; i++)
        cudaFree(cache->memory[i]); // waits for the device
    for (struct cache_window &window : cache->window) {
        if (window.expanded)
            cudaEventDestroy(window.expanded);
        if (window.acquired)
            cudaEventDestroy(window.acquired);
    }
    if (cache->released)
        cudaEventDestroy(cache->released);
    if (cache->stream)
        cudaStreamDestroy(cache->stream);
    cudaFreeHost(cache->host_rows);
    cudaFreeHost(cache->host_state);
    cudaFreeHost(cache->told);
    delete cache;
}

float *kernel_cache_rows(const struct kernel_cache *cache)
{
    return cache->host_rows;
}

float *kernel_cache_state(const struct kernel_cache *cache)
{
    return cache->host_state;
}

static struct cache_window *cache_at(struct kernel_cache *cache, uint64_t batch)
{
    return &cache->window[batch % (uint64_t)(cache->opts.look_ahead + 2)];
}

// Slots for the different rows of a batch, and what has to move for it.
static int cache_place(struct kernel_cache *cache, struct cache_window *window, uint64_t batch,
        uint64_t keep, bool acquire, bool update, struct error *err)
{
    struct cache_move move = cache->move;
    int rc = kernel_hash_insert(&cache->hash, window->count, window->unique, (uint32_t)batch + 1,
            (uint32_t)keep + 1, window->places, &cache->evicted, cache->stream, err);
    if (rc)
        return rc;
    move.unique = window->unique;
    move.unique_count = window->unique_count;
    move.places = window->places;
    move.acquire = acquire;
    move.update = update;
    const unsigned blocks = cache_blocks(window->count),
                   most = acquire ? CACHE_LATE_BLOCKS : CACHE_MOVE_BLOCKS;
    const unsigned grid = blocks < most ? blocks : most;
    cache_move<<<grid, CACHE_THREADS, 0, cache->stream>>>(move);
    return device_error(cudaGetLastError(), "launch cache_move", err);
}

int kernel_cache_prefetch(struct kernel_cache *cache, int64_t count, const int64_t *ids,
        cudaStream_t stream, struct error *err)
{
    struct cache_window *window = cache_at(cache, cache->prefetched);
    if (count < 1 || count > cache->opts.lookups || !ids)
        return error_set(err, -EINVAL,
                "embedding cache: a batch of %lld lookups: 1 to %lld are supported%s",
                (long long)count, (long long)cache->opts.lookups, ids ? "" : "; ids is NULL");
    if (cache->prefetched >= cache->acquired + (uint64_t)cache->opts.look_ahead)
        return error_set(err, -EINVAL,
                "embedding cache: batch %llu prefetched while %llu are acquired: the look-ahead is %d",
                (unsigned long long)cache->prefetched, (unsigned long long)cache->acquired,
                cache->opts.look_ahead);
    window->count = count;
    // of the batch that was here before
    cudaError_t error = cudaStreamWaitEvent(stream, window->acquired, 0);
    if (error != cudaSuccess)
        return device_error(error, "wait for a batch of the window", err);
    cache_expand<<<cache_blocks(count), CACHE_THREADS, 0, stream>>>(count, ids, window->keys);
    if ((error = cudaGetLastError()) != cudaSuccess ||
            (error = cudaEventRecord(window->expanded, stream)) != cudaSuccess ||
            (error = cudaStreamWaitEvent(cache->stream, window->expanded, 0)) != cudaSuccess ||
            (error = cudaStreamWaitEvent(cache->stream, cache->released, 0)) != cudaSuccess ||
            (error = cache_sort(cache, cache->temp, &cache->temp_bytes, window->keys, count)) !=
                    cudaSuccess ||
            (error = cache_scan(cache, cache->temp, &cache->temp_bytes, count)) != cudaSuccess)
        return device_error(error, "sort the lookups", err);
    cache_number<<<cache_blocks(count), CACHE_THREADS, 0, cache->stream>>>(count, cache->keys,
            cache->values, cache->numbers, window->ranks, window->unique, window->unique_count);
    int rc = device_error(cudaGetLastError(), "launch cache_number", err);
    // Rows of the batch that is acquired stay, and of all that wait.
    if (!rc)
        rc = cache_place(cache, window, cache->prefetched, cache->finished, false, false, err);
    if (!rc)
        cache->prefetched++;
    return rc;
}

static int cache_told(const struct kernel_cache *cache, struct error *err)
{
    const unsigned long long none = *(volatile unsigned long long *)&cache->told[CACHE_NO_PLACE];
    if (!none)
        return 0;
    return error_set(err, -ENOSPC,
            "embedding cache: %llu rows of a batch found no place among %lld slots: %d batches' rows do not fit; more slots, "
            "or a shorter look-ahead",
            none, (long long)cache->opts.slots, cache->opts.look_ahead + 1);
}

int kernel_cache_acquire(struct kernel_cache *cache, bool update, cudaStream_t stream,
        struct kernel_cache_batch *ret, struct error *err)
{
    struct cache_window *window = cache_at(cache, cache->acquired);
    if (cache->acquired != cache->finished)
        return error_set(err, -EINVAL, "embedding cache: batch %llu is acquired and not released",
                (unsigned long long)cache->acquired - 1);
    if (cache->acquired == cache->prefetched)
        return error_set(err, -EINVAL, "embedding cache: batch %llu was not prefetched",
                (unsigned long long)cache->acquired);
    int rc = cache_told(cache, err);
    if (!rc)
        rc = device_error(cudaStreamWaitEvent(cache->stream, cache->released, 0),
                "wait for the batch before", err);
    if (!rc)
        rc = cache_place(cache, window, cache->acquired, cache->acquired, true, update, err);
    if (rc)
        return rc;
    cache_slots<<<cache_blocks(window->count), CACHE_THREADS, 0, cache->stream>>>(
            window->count, window->ranks, window->places, window->slots);
    cudaError_t error = cudaGetLastError();
    if (error == cudaSuccess)
        error = cudaMemcpyAsync(cache->told, cache->counts, CACHE_COUNTS * sizeof *cache->told,
                cudaMemcpyDeviceToHost, cache->stream);
    if (error == cudaSuccess)
        error = cudaEventRecord(window->acquired, cache->stream);
    if (error == cudaSuccess)
        error = cudaStreamWaitEvent(stream, window->acquired, 0);
    if (error != cudaSuccess)
        return device_error(error, "acquire a batch", err);
    *ret = {window->count, window->slots, window->ranks, window->places, cache->rows, cache->state,
            cache->opts.slots + 1};
    cache->acquired++;
    cache->lookups += (uint64_t)window->count;
    return 0;
}

void kernel_cache_bags(
        const struct kernel_cache_batch *batch, bool update, struct kernel_bags *bags)
{
    bags->ids_count = batch->count;
    bags->ids = update ? batch->ranks : batch->slots;
    bags->places = update ? batch->places : NULL;
    bags->slots = update ? batch->slot_count : 0;
    for (int64_t t = 0; t < bags->tables; t++) {
        bags->rows[t] = batch->rows;
        bags->row_counts[t] = update ? batch->count : batch->slot_count;
    }
}

int kernel_cache_release(struct kernel_cache *cache, cudaStream_t stream, struct error *err)
{
    if (cache->acquired == cache->finished)
        return error_set(err, -EINVAL, "embedding cache: no batch is acquired");
    int rc = device_error(cudaEventRecord(cache->released, stream), "release a batch", err);
    if (!rc)
        cache->finished++;
    return rc;
}

int kernel_cache_flush(struct kernel_cache *cache, struct error *err)
{
    if (cache->acquired != cache->finished)
        return error_set(err, -EINVAL, "embedding cache: batch %llu is acquired and not released",
                (unsigned long long)cache->acquired - 1);
    cudaError_t error = cudaStreamWaitEvent(cache->stream, cache->released, 0);
    if (error == cudaSuccess) {
        cache_flush<<<CACHE_LATE_BLOCKS, CACHE_THREADS, 0, cache->stream>>>(cache->move);
        error = cudaGetLastError();
    }
    if (error == cudaSuccess)
        error = cudaStreamSynchronize(cache->stream);
    int rc = device_error(error, "write the rows back", err);
    return rc ? rc : cache_told(cache, err);
}

static int cache_refuse_moves(const struct kernel_cache_moves *moves, struct error *err)
{
    if (moves->dim < 4 || moves->dim > 512 || moves->dim % 4 != 0 || moves->planes < 1 ||
            moves->planes > CACHE_PLANES)
        return error_set(err, -EINVAL,
                "embedding cache: rows of %d times %lld float32 are not supported: 1 to %d times a multiple of 4 up to 512 is",
                moves->planes, (long long)moves->dim, CACHE_PLANES);
    if (moves->count < 0 || moves->count > INT32_MAX / (moves->planes * (moves->dim / 4)))
        return error_set(err, -EINVAL,
                "embedding cache: %lld moves of rows of %d times %lld: up to 2^33 float32 in all are supported",
                (long long)moves->count, moves->planes, (long long)moves->dim);
    for (int i = 0; i < moves->planes; i++)
        if (!moves->slots[i] || (uintptr_t)moves->slots[i] % 16 != 0)
            return error_set(err, -EINVAL,
                    "embedding cache: plane %d of the slots is NULL or does not start at a multiple of 16 bytes",
                    i);
    if (moves->count && !moves->moves)
        return error_set(err, -EINVAL, "embedding cache: moves is NULL");
    return 0;
}

int kernel_cache_move(
        const struct kernel_cache_moves *moves, cudaStream_t stream, struct error *err)
{
    int rc = cache_refuse_moves(moves, err);
    if (rc || !moves->count)
        return rc;
    const unsigned blocks = cache_blocks(moves->count * moves->planes * (moves->dim / 4)),
                   most = moves->late ? CACHE_LATE_BLOCKS : CACHE_MOVE_BLOCKS;
    const unsigned grid = blocks < most ? blocks : most;
    cache_follow<<<grid, CACHE_THREADS, 0, stream>>>(*moves);
    return device_error(cudaGetLastError(), "launch cache_follow", err);
}

int kernel_cache_stats(
        struct kernel_cache *cache, struct kernel_cache_stats *ret, struct error *err)
{
    unsigned long long counts[CACHE_COUNTS];
    cudaError_t error = cudaStreamSynchronize(cache->stream);
    if (error == cudaSuccess)
        error = cudaMemcpy(counts, cache->counts, sizeof counts, cudaMemcpyDeviceToHost);
    if (error != cudaSuccess)
        return device_error(error, "read the counts", err);
    *ret = {cache->acquired, cache->lookups, counts[CACHE_ROWS], counts[CACHE_KEPT],
            counts[CACHE_AHEAD], counts[CACHE_LATE], counts[CACHE_WRITTEN], counts[CACHE_NO_PLACE]};
    return 0;
}
#endif
