// SPDX-License-Identifier: Apache-2.0
// Random numbers of the workloads: splitmix64, xoshiro256++ (both public-domain algorithms of Vigna
// and Blackman, written from their papers) and Zipf by Vose's alias method. No global state.
#include "reference_models/native/rng.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

uint64_t rng_mix(uint64_t value)
{
    value += 0x9e3779b97f4a7c15u;
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
    return value ^ (value >> 31);
}

struct rng rng_stream(uint64_t seed, uint64_t a, uint64_t b)
{
    struct rng rng;
    uint64_t key = rng_mix(rng_mix(rng_mix(seed) ^ a) ^ b);
    for (int i = 0; i < 4; i++) {
        rng.state[i] = rng_mix(key);
        key += 0x9e3779b97f4a7c15u;
    }
    return rng;
}

static uint64_t rng_rotate(uint64_t value, int bits)
{
    return (value << bits) | (value >> (64 - bits));
}

uint64_t rng_next(struct rng *rng)
{
    uint64_t *s = rng->state;
    uint64_t result = rng_rotate(s[0] + s[3], 23) + s[0];
    uint64_t t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rng_rotate(s[3], 45);
    return result;
}

double rng_uniform(struct rng *rng)
{
    return (double)(rng_next(rng) >> 11) * 0x1p-53;
}

double rng_signed(struct rng *rng)
{
    return 2 * rng_uniform(rng) - 1;
}

uint64_t rng_below(struct rng *rng, uint64_t limit)
{
    // Lemire: multiply and reject the few values that would bias the result.
    unsigned __int128 product = (unsigned __int128)rng_next(rng) * limit;
    uint64_t low = (uint64_t)product;
    if (low < limit) {
        uint64_t threshold = -limit % limit;
        while (low < threshold) {
            product = (unsigned __int128)rng_next(rng) * limit;
            low = (uint64_t)product;
        }
    }
    return (uint64_t)(product >> 64);
}

static uint64_t zipf_coprime(uint64_t count)
{
    // Near the golden section of count: neighbours in rank land far apart.
    uint64_t multiplier = (uint64_t)((double)count * 0.6180339887498949) | 1;
    for (;; multiplier += 2) {
        uint64_t a = multiplier, b = count;
        while (b) {
            uint64_t rest = a % b;
            a = b;
            b = rest;
        }
        if (a == 1)
            return multiplier;
    }
}

// Vose: pair every rank that has less than the mean with one that has more.
static void zipf_fill_alias(struct zipf *zipf, double *scaled, uint32_t *work)
{
    uint64_t n = zipf->count, small = 0, large = n;
    for (uint64_t i = 0; i < n; i++) {
        if (scaled[i] < 1)
            work[small++] = (uint32_t)i;
        else
            work[--large] = (uint32_t)i;
    }
    while (small > 0 && large < n) {
        uint32_t less = work[--small], more = work[large];
        zipf->accept[less] = scaled[less];
        zipf->alias[less] = more;
        scaled[more] = (scaled[more] + scaled[less]) - 1;
        if (scaled[more] < 1) {
            large++;
            work[small++] = more;
        }
    }
    // What is left over holds exactly the mean, up to rounding.
    while (small > 0)
        zipf->accept[work[--small]] = 1;
    while (large < n)
        zipf->accept[work[large++]] = 1;
}

int zipf_init(struct zipf *zipf, uint64_t count, double exponent, struct error *err)
{
    *zipf = (struct zipf){0};
    if (count == 0 || count > UINT32_MAX)
        return error_set(err, -EINVAL, "failed to build a Zipf table of %llu ids: 1 to 2^32-1",
                (unsigned long long)count);
    if (!(exponent >= 0 && exponent <= 10))
        return error_set(err, -EINVAL, "failed to build a Zipf table: exponent %g is not in 0..10",
                exponent);
    double *scaled = malloc(count * sizeof *scaled);
    uint32_t *work = malloc(count * sizeof *work);
    zipf->accept = malloc(count * sizeof *zipf->accept);
    zipf->alias = calloc(count, sizeof *zipf->alias);
    int rc = 0;
    if (!scaled || !work || !zipf->accept || !zipf->alias) {
        zipf_free(zipf);
        rc = error_set(err, -ENOMEM, "failed to build a Zipf table of %llu ids: out of memory",
                (unsigned long long)count);
        goto out;
    }
    zipf->count = count;
    zipf->multiplier = zipf_coprime(count);
    double sum = 0;
    for (uint64_t i = count; i-- > 0;) { // small terms first: the sum keeps its digits
        scaled[i] = pow((double)i + 1, -exponent);
        sum += scaled[i];
    }
    for (uint64_t i = 0; i < count; i++)
        scaled[i] *= (double)count / sum;
    zipf_fill_alias(zipf, scaled, work);
out:
    free(scaled);
    free(work);
    return rc;
}

void zipf_free(struct zipf *zipf)
{
    free(zipf->accept);
    free(zipf->alias);
    *zipf = (struct zipf){0};
}

uint64_t zipf_id_of_rank(const struct zipf *zipf, uint64_t rank)
{
    return (uint64_t)((unsigned __int128)rank * zipf->multiplier % zipf->count);
}

uint64_t zipf_draw(const struct zipf *zipf, struct rng *rng)
{
    // One number serves both choices: the column from the high bits, the coin from the low ones.
    // The coin has at least 32 bits left, and each column is hit with an error below count / 2^64.
    unsigned __int128 product = (unsigned __int128)rng_next(rng) * zipf->count;
    uint64_t column = (uint64_t)(product >> 64);
    double coin = (double)((uint64_t)product >> 11) * 0x1p-53;
    uint64_t rank = coin < zipf->accept[column] ? column : zipf->alias[column];
    // 32-bit operands: count and multiplier are below 2^32, so the product fits 64 bits.
    return rank * zipf->multiplier % zipf->count;
}

void zipf_table_probabilities(const struct zipf *zipf, double *ret)
{
    double share = 1 / (double)zipf->count;
    for (uint64_t i = 0; i < zipf->count; i++)
        ret[i] = 0;
    for (uint64_t i = 0; i < zipf->count; i++) {
        ret[i] += zipf->accept[i] * share;
        if (zipf->accept[i] < 1)
            ret[zipf->alias[i]] += (1 - zipf->accept[i]) * share;
    }
}
