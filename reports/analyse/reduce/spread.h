// SPDX-License-Identifier: Apache-2.0
// How long things took, all of them, in few bytes: counts in bins whose width grows with the
// length, and the exact sum. A bin is 1/64 of a doubling wide, so that a quantile is known within
// 1/128 (0.8 %); where a spread would need more bytes than it may have, neighbouring bins become
// one, and again, until it fits: each level doubles the error, and the spread says which it has. By
// integers only: no machine's logarithm has a say.
//
// Adding is that of counts, at the coarser of both levels. The level is the first at which the sum
// fits, and the bytes of a sum are never fewer than those of a part; so the level, and every byte,
// is that of all values together, in whatever order and by whatever tree they were added.
#ifndef UPGATE_REPORTS_ANALYSE_REDUCE_SPREAD_H
#define UPGATE_REPORTS_ANALYSE_REDUCE_SPREAD_H

#include "common/containers/varint.h"

enum {
    SPREAD_BYTES_MIN = 11, // a level at which all is one bin fits
    SPREAD_BYTES_MAX = 96,
    SPREAD_BINS_MAX = SPREAD_BYTES_MAX / 2, // none takes less than 2 bytes
    SPREAD_LEVEL_MAX = 12,                  // all is one bin
    // of an encoded spread beside its bins: level, number of bins, sum
    SPREAD_HEAD_MAX = 2 + VARINT_SIZE_MAX,
    SPREAD_INDEX_END = 3776, // bins of level 0: 64 ns and less, then 58 doublings
    SPREAD_LEVEL_KNOWN = 6   // to here a bin is at most a doubling wide
};

// A sum that stays full where it does not fit: so it does not matter in which order things are
// added.
static inline uint64_t spread_sum(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

struct spread_bin {
    uint64_t count; // not 0; what is more than 64 bits stays at its end
    uint32_t index;
};

struct spread {      // {0}: empty
    uint64_t sum_ns; // as count
    uint32_t level, bin_count;
    struct spread_bin bins[SPREAD_BINS_MAX]; // by index
};

// bytes_max: what its bins may have, the same in all calls for spreads that are ever added;
// SPREAD_BYTES_MIN to SPREAD_BYTES_MAX.
void spread_put(struct spread *spread, uint64_t ns, size_t bytes_max);
void spread_add(struct spread *sum, const struct spread *more, size_t bytes_max);

uint64_t spread_count(const struct spread *spread);
// Nearest rank, the middle of its bin; 0 < q <= 1. NaN: it is empty.
double spread_quantile(const struct spread *spread, double q);
// By how much of itself a quantile may be wrong, of lengths of 64 ns and more (of shorter ones: by
// 2^level ns); INFINITY beyond 50 %.
double spread_error(const struct spread *spread);

// Not of an empty one. ret has SPREAD_HEAD_MAX + bytes_max bytes. Returns how many were written.
size_t spread_encode(const struct spread *spread, uint8_t *ret);
// bytes->bad: it is none that may have so many bytes.
void spread_decode(struct varints *bytes, size_t bytes_max, struct spread *ret);

#endif
