// SPDX-License-Identifier: Apache-2.0
// Hashes of what stands in memory: fast, well mixed in all 64 bits, not to be stored (they may
// change with the version).
#ifndef UPGATE_COMMON_CONTAINERS_HASH_H
#define UPGATE_COMMON_CONTAINERS_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t hash_mix(uint64_t hash, uint64_t word)
{
    __uint128_t product =
            (__uint128_t)(hash ^ word ^ 0x9e3779b97f4a7c15ull) * 0xd6e8feb86659fd93ull;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline uint64_t hash_bytes(uint64_t seed, const void *bytes, size_t len)
{
    const char *at = bytes;
    uint64_t hash = hash_mix(seed, len), word;
    for (; len >= sizeof word; len -= sizeof word, at += sizeof word) {
        memcpy(&word, at, sizeof word);
        hash = hash_mix(hash, word);
    }
    if (!len)
        return hash;
    word = 0;
    memcpy(&word, at, len);
    return hash_mix(hash, word);
}

#endif
