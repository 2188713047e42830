// SPDX-License-Identifier: Apache-2.0
// Where an id belongs in the table of hash.cu: its bucket and its digest. The check asks it too.
#ifndef UPGATE_KERNELS_HASH_CUH
#define UPGATE_KERNELS_HASH_CUH

#include <stdint.h>

struct hash_home {
    uint32_t bucket;
    uint8_t digest; // never 0
};

static inline __host__ __device__ struct hash_home hash_home(int64_t id, uint32_t buckets)
{
    uint64_t h = (uint64_t)id + 0x9e3779b97f4a7c15u; // splitmix64
    h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9u;
    h = (h ^ h >> 27) * 0x94d049bb133111ebu;
    h ^= h >> 31;
    return {(uint32_t)((h >> 32) * buckets >> 32), (uint8_t)(1 + (uint32_t)h % 255)};
}

#endif
