// SPDX-License-Identifier: Apache-2.0
// The generator of the reference workloads: the same numbers on every machine, framework and type.
// xoshiro256++ seeded by splitmix64; streams are derived, never shared, so that the value of an
// input depends only on (seed, what it is, step, index) and not on threads or order. Fp64 only.
#ifndef UPGATE_NATIVE_RNG_H
#define UPGATE_NATIVE_RNG_H

#include <stddef.h>
#include <stdint.h>

#include "common/error.h"

struct rng {
    uint64_t state[4];
};

// Which stream of the seed a value comes from: `a` of rng_stream().
enum rng_use { RNG_USE_PARAM = 1, RNG_USE_INPUT = 2, RNG_USE_TEACHER = 3 };

uint64_t rng_mix(uint64_t value); // one round of splitmix64: a good hash of 64 bits

// The stream of (seed, a, b): e.g. a = what is drawn, b = which step or table.
struct rng rng_stream(uint64_t seed, uint64_t a, uint64_t b);
uint64_t rng_next(struct rng *rng);
double rng_uniform(struct rng *rng);                 // [0, 1), 53 bits
double rng_signed(struct rng *rng);                  // [-1, 1)
uint64_t rng_below(struct rng *rng, uint64_t limit); // [0, limit), unbiased; limit > 0

// Zipf over ids 0..count-1: P(id with rank k) ~ (k + 1)^-exponent, drawn in O(1) from an alias
// table; ranks are spread over the ids by a fixed permutation so that hot rows are not neighbours.
struct zipf {
    uint64_t count;
    uint64_t multiplier; // permutation: id = (rank * multiplier) % count
    double *accept;      // alias table: keep column i with this probability ...
    uint32_t *alias;     // ... else take this rank
};

// count 1..2^32-1. -EINVAL or -ENOMEM. The caller frees with zipf_free.
int zipf_init(struct zipf *zipf, uint64_t count, double exponent, struct error *err);
void zipf_free(struct zipf *zipf);
uint64_t zipf_draw(const struct zipf *zipf, struct rng *rng);
uint64_t zipf_id_of_rank(const struct zipf *zipf, uint64_t rank);

// Probability that the table itself gives to each rank; adds up what the alias columns hold. For
// the test that the distribution is exact. `ret` has count entries.
void zipf_table_probabilities(const struct zipf *zipf, double *ret);

#endif
