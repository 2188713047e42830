// SPDX-License-Identifier: Apache-2.0
// From the hash of a content to the row it was stored as. Open addressing, 12 bytes an entry, bounded.
// Contents are told apart by 64 bits: with a million of them two are taken for one with probability 3e-8.
#ifndef UPGATE_TRACER_RECORD_IDMAP_H
#define UPGATE_TRACER_RECORD_IDMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct idmap {
    uint64_t *keys; // 0: free
    uint32_t *values;
    size_t capacity, count, max;
};

void idmap_init(struct idmap *map, size_t max);
void idmap_free(struct idmap *map);
uint32_t idmap_get(const struct idmap *map, uint64_t key); // 0: absent
bool idmap_put(struct idmap *map, uint64_t key, uint32_t value); // false: full
uint64_t idmap_hash(uint64_t seed, const void *bytes, size_t len);

#endif
