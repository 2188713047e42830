// SPDX-License-Identifier: Apache-2.0
// The dynamic hash table of embedding ids: look up, insert, evict, as kernels.h says it.
//     nvcc -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a -I. -c kernels/hash.cu
// Bytes of a lookup that finds: id 8, place 4, and of the table three sectors of 32: the bucket's
// digests, the id, when it was used. An insert that evicts, 420: the lookup 44, again id and place
// 12, the lock read and written 64, digests 32, when used 128, what is written into the bucket 96,
// what it evicts 32 + 12. Bound by memory, each access in a place of its own.
//
// A thread an id. Insert is two launches: the first is a lookup, which also says that what is there
// is used now, so that the second, for the ids that are not there, evicts none of them. The second
// takes the bucket's lock. While it waits it looks again, without the lock: who finds its id there
// may trust it, as an id used in this step is not evicted in this step.
#include "kernels/device.cuh"
#include "kernels/hash.cuh"

#define HASH_THREADS 256
#define HASH_NONE INT64_MIN

struct hash_table {
    uint32_t buckets;
    int64_t *ids;
    uint32_t *used;
    uint8_t *digests;
    uint32_t *locks;
};

// Past the L1, in which another thread's stores are not seen.
static __device__ __forceinline__ uint4 load_fresh(const uint4 *from)
{
    uint4 value;
    asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
                 : "l"(from)
                 : "memory");
    return value;
}

template <bool FRESH>
static __device__ __forceinline__ void hash_digests(
        const struct hash_table &table, uint32_t bucket, uint32_t (&words)[8])
{
    const uint4 *from = (const uint4 *)(table.digests + (size_t)bucket * KERNEL_HASH_BUCKET);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const uint4 four = FRESH ? load_fresh(from + half) : from[half];
        words[4 * half] = four.x;
        words[4 * half + 1] = four.y;
        words[4 * half + 2] = four.z;
        words[4 * half + 3] = four.w;
    }
}

// Slots of the bucket, a bit each, whose digest is this.
static __device__ __forceinline__ uint32_t hash_same(const uint32_t (&words)[8], uint32_t digest)
{
    uint32_t same = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) // a bit of each byte that is equal; the product brings byte 0's to
                                // bit 28, byte 1's to 29, 30, 31
        same |= ((__vcmpeq4(words[i], digest * 0x01010101u) & 0x01010101u) * 0x10204080u >> 28)
                << 4 * i;
    return same;
}

template <bool FRESH>
static __device__ __forceinline__ int hash_find(
        const struct hash_table &table, int64_t id, struct hash_home home)
{
    const size_t first = (size_t)home.bucket * KERNEL_HASH_BUCKET;
    uint32_t words[8];
    hash_digests<FRESH>(table, home.bucket, words);
    for (uint32_t same = hash_same(words, home.digest); same; same &= same - 1) {
        const size_t at = first + (size_t)__ffs((int)same) - 1;
        const int64_t there = FRESH ? *(volatile const int64_t *)(table.ids + at) : table.ids[at];
        if (there == id)
            return (int)at;
    }
    return -1;
}

static __global__ void __launch_bounds__(HASH_THREADS) hash_lookup(struct hash_table table,
        int64_t count, const int64_t *__restrict__ ids, uint32_t step, int32_t *__restrict__ places)
{
    const int64_t i = (int64_t)blockIdx.x * HASH_THREADS + threadIdx.x;
    if (i >= count)
        return;
    const int64_t id = __ldcs(ids + i);
    const int place =
            id == HASH_NONE ? -1 : hash_find<false>(table, id, hash_home(id, table.buckets));
    if (place >= 0 && step)
        atomicMax(table.used + place, step); // a later step may have asked for it already
    __stcs(places + i, place);
}

static __device__ __forceinline__ void hash_tell(
        const struct kernel_hash_evicted &evicted, int64_t id, int place)
{
    const uint32_t at = atomicAdd(evicted.counts, 1u);
    if (!evicted.ids)
        return;
    evicted.ids[at] = id;
    evicted.places[at] = place;
}

// A place for an id that is not in its bucket, whose lock is held.
static __device__ int hash_take(const struct hash_table &table, int64_t id, struct hash_home home,
        uint32_t step, uint32_t keep, const struct kernel_hash_evicted &evicted)
{
    const size_t first = (size_t)home.bucket * KERNEL_HASH_BUCKET;
    uint32_t words[8], oldest = keep, slot = KERNEL_HASH_BUCKET;
    hash_digests<true>(table, home.bucket, words);
    const uint32_t empty = hash_same(words, 0);
    if (empty) {
        slot = (uint32_t)__ffs((int)empty) - 1;
    } else {
#pragma unroll
        for (uint32_t i = 0; i < KERNEL_HASH_BUCKET; i += 4) {
            const uint4 four = load_fresh((const uint4 *)(table.used + first + i));
            const uint32_t each[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
            for (uint32_t j = 0; j < 4; j++)
                if (each[j] < oldest) {
                    oldest = each[j];
                    slot = i + j;
                }
        }
        if (slot == KERNEL_HASH_BUCKET) {
            atomicAdd(evicted.counts + 1, 1u);
            return -1;
        }
        hash_tell(evicted, *(volatile const int64_t *)(table.ids + first + slot),
                (int)(first + slot));
    }
    *(volatile int64_t *)(table.ids + first + slot) = id;
    *(volatile uint32_t *)(table.used + first + slot) = step;
    __threadfence(); // who sees the digest sees the id
    *(volatile uint8_t *)(table.digests + first + slot) = home.digest;
    return (int)(first + slot);
}

static __global__ void __launch_bounds__(HASH_THREADS)
        hash_insert(struct hash_table table, int64_t count, const int64_t *__restrict__ ids,
                uint32_t step, uint32_t keep, int32_t *places, struct kernel_hash_evicted evicted)
{
    const int64_t i = (int64_t)blockIdx.x * HASH_THREADS + threadIdx.x;
    if (i >= count || places[i] >= 0)
        return;
    const int64_t id = ids[i];
    if (id == HASH_NONE)
        return;
    const struct hash_home home = hash_home(id, table.buckets);
    int place = -1;
    for (bool done = false; !done;) {
        place = hash_find<true>(table, id, home);
        done = place >= 0;
        if (!done && atomicCAS(table.locks + home.bucket, 0u, 1u) == 0) {
            __threadfence();
            place = hash_find<true>(table, id, home);
            if (place < 0)
                place = hash_take(table, id, home, step, keep, evicted);
            __threadfence();
            atomicExch(table.locks + home.bucket, 0u);
            done = true;
        }
    }
    places[i] = place;
}

static __global__ void __launch_bounds__(HASH_THREADS)
        hash_evict(struct hash_table table, uint32_t step, struct kernel_hash_evicted evicted)
{
    const size_t at = (size_t)blockIdx.x * HASH_THREADS + threadIdx.x;
    if (at >= (size_t)table.buckets * KERNEL_HASH_BUCKET || table.digests[at] == 0 ||
            table.used[at] >= step)
        return;
    hash_tell(evicted, table.ids[at], (int)at);
    table.digests[at] = 0;
    table.ids[at] = HASH_NONE;
}

#ifndef __CUDACC_RTC__ // what the host does: NVRTC takes the kernels alone
static int hash_refuse(const struct kernel_hash *h, struct hash_table *ret, struct error *err)
{
    if (h->slots < KERNEL_HASH_BUCKET || h->slots > 1 << 30 || h->slots % KERNEL_HASH_BUCKET != 0)
        return error_set(err, -EINVAL,
                "hash table: %lld slots are not supported: a multiple of %d up to 2^30 is",
                (long long)h->slots, KERNEL_HASH_BUCKET);
    if (!h->ids || !h->used || !h->digests || !h->locks ||
            ((uintptr_t)h->ids | (uintptr_t)h->used | (uintptr_t)h->digests | (uintptr_t)h->locks) %
                            32 !=
                    0)
        return error_set(err, -EINVAL,
                "hash table: ids, used, digests or locks is NULL or does not start at a multiple of 32 bytes");
    *ret = {(uint32_t)(h->slots / KERNEL_HASH_BUCKET), h->ids, h->used, h->digests, h->locks};
    return 0;
}

static int hash_refuse_ids(
        int64_t count, const int64_t *ids, const int32_t *places, struct error *err)
{
    if (count < 0 || count > INT32_MAX)
        return error_set(err, -EINVAL, "hash table: %lld ids: 0 to 2^31 - 1 are supported",
                (long long)count);
    if (count && (!ids || !places))
        return error_set(err, -EINVAL, "hash table: ids and places must not be NULL");
    return 0;
}

static int hash_refuse_evicted(
        const struct kernel_hash_evicted *evicted, uint32_t step, struct error *err)
{
    if (step == 0)
        return error_set(err, -EINVAL, "hash table: step 0: steps are from 1");
    if (!evicted->ids != !evicted->places || !evicted->counts)
        return error_set(err, -EINVAL,
                "hash table: what is evicted needs counts, and both ids and places or neither");
    return 0;
}

static unsigned hash_blocks(int64_t count)
{
    return (unsigned)((count + HASH_THREADS - 1) / HASH_THREADS);
}

int kernel_hash_clear(const struct kernel_hash *h, cudaStream_t stream, struct error *err)
{
    struct hash_table table;
    int rc = hash_refuse(h, &table, err);
    if (rc)
        return rc;
    cudaError_t error = cudaMemsetAsync(h->digests, 0, (size_t)h->slots, stream);
    if (error == cudaSuccess)
        error = cudaMemsetAsync(h->used, 0, (size_t)h->slots * 4, stream);
    if (error == cudaSuccess)
        error = cudaMemsetAsync(h->locks, 0, (size_t)h->slots / KERNEL_HASH_BUCKET * 4, stream);
    return device_error(error, "clear a hash table", err);
}

int kernel_hash_lookup(const struct kernel_hash *h, int64_t count, const int64_t *ids,
        uint32_t step, int32_t *places, cudaStream_t stream, struct error *err)
{
    struct hash_table table;
    int rc = hash_refuse(h, &table, err);
    if (rc || (rc = hash_refuse_ids(count, ids, places, err)))
        return rc;
    if (count)
        hash_lookup<<<hash_blocks(count), HASH_THREADS, 0, stream>>>(
                table, count, ids, step, places);
    return device_error(cudaGetLastError(), "launch hash_lookup", err);
}

int kernel_hash_insert(const struct kernel_hash *h, int64_t count, const int64_t *ids,
        uint32_t step, uint32_t keep, int32_t *places, const struct kernel_hash_evicted *evicted,
        cudaStream_t stream, struct error *err)
{
    struct hash_table table;
    int rc = hash_refuse(h, &table, err);
    if (rc || (rc = hash_refuse_ids(count, ids, places, err)) ||
            (rc = hash_refuse_evicted(evicted, step, err)))
        return rc;
    if (keep < 1 || keep > step)
        return error_set(err, -EINVAL, "hash table: keep %u: from 1 to the step, %u", keep, step);
    cudaError_t error = cudaMemsetAsync(evicted->counts, 0, 8, stream);
    if (error == cudaSuccess && count) {
        hash_lookup<<<hash_blocks(count), HASH_THREADS, 0, stream>>>(
                table, count, ids, step, places);
        hash_insert<<<hash_blocks(count), HASH_THREADS, 0, stream>>>(
                table, count, ids, step, keep, places, *evicted);
        error = cudaGetLastError();
    }
    return device_error(error, "launch hash_insert", err);
}

int kernel_hash_evict(const struct kernel_hash *h, uint32_t step,
        const struct kernel_hash_evicted *evicted, cudaStream_t stream, struct error *err)
{
    struct hash_table table;
    int rc = hash_refuse(h, &table, err);
    if (rc || (rc = hash_refuse_evicted(evicted, step, err)))
        return rc;
    cudaError_t error = cudaMemsetAsync(evicted->counts, 0, 8, stream);
    if (error == cudaSuccess) {
        hash_evict<<<hash_blocks(h->slots), HASH_THREADS, 0, stream>>>(table, step, *evicted);
        error = cudaGetLastError();
    }
    return device_error(error, "launch hash_evict", err);
}
#endif
