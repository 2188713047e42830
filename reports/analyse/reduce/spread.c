// SPDX-License-Identifier: Apache-2.0
// Bins of lengths, added and kept small.
#include "reports/analyse/reduce/spread.h"

#include <math.h>

// bins of a doubling; below so many ns each ns has a bin
enum { SPREAD_LINEAR = 64, SPREAD_LINEAR_BITS = 6 };

static uint32_t spread_index(uint64_t ns)
{
    if (ns < SPREAD_LINEAR)
        return (uint32_t)ns;
    unsigned bits = 63 - (unsigned)__builtin_clzll(ns); // 6 to 63
    return (bits - SPREAD_LINEAR_BITS + 1) * SPREAD_LINEAR +
            (uint32_t)(ns >> (bits - SPREAD_LINEAR_BITS) & (SPREAD_LINEAR - 1));
}

// The shortest length of a bin of level 0.
static uint64_t spread_low(uint64_t index)
{
    if (index < SPREAD_LINEAR)
        return index;
    if (index >= SPREAD_INDEX_END)
        return UINT64_MAX;
    return (SPREAD_LINEAR + index % SPREAD_LINEAR) << (index / SPREAD_LINEAR - 1);
}

static size_t spread_bytes(const struct spread_bin *bins, size_t count)
{
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++)
        bytes += varint_size(i ? bins[i].index - bins[i - 1].index - 1 : bins[i].index) +
                varint_size(bins[i].count);
    return bytes;
}

// So many levels up; returns how many bins are left.
static size_t spread_coarsen(struct spread_bin *bins, size_t count, uint32_t levels)
{
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        struct spread_bin one = {bins[i].count, bins[i].index >> levels};
        if (kept && bins[kept - 1].index == one.index)
            bins[kept - 1].count = spread_sum(bins[kept - 1].count, one.count);
        else
            bins[kept++] = one;
    }
    return kept;
}

// Of equal levels, both by index; ret has room for all.
static size_t spread_join(const struct spread_bin *a, size_t count_a, const struct spread_bin *b,
        size_t count_b, struct spread_bin *ret)
{
    size_t count = 0;
    for (size_t i = 0, k = 0; i < count_a || k < count_b;) {
        if (k == count_b || (i < count_a && a[i].index < b[k].index)) {
            ret[count++] = a[i++];
        } else if (i == count_a || b[k].index < a[i].index) {
            ret[count++] = b[k++];
        } else {
            ret[count++] = (struct spread_bin){spread_sum(a[i].count, b[k].count), a[i].index};
            i++;
            k++;
        }
    }
    return count;
}

void spread_add(struct spread *sum, const struct spread *more, size_t bytes_max)
{
    struct spread_bin joined[2 * SPREAD_BINS_MAX];
    struct spread other = *more;
    uint32_t level = sum->level > other.level ? sum->level : other.level;
    size_t count_a = spread_coarsen(sum->bins, sum->bin_count, level - sum->level);
    size_t count_b = spread_coarsen(other.bins, other.bin_count, level - other.level);
    size_t count = spread_join(sum->bins, count_a, other.bins, count_b, joined);
    for (; spread_bytes(joined, count) > bytes_max && level < SPREAD_LEVEL_MAX; level++)
        count = spread_coarsen(joined, count, 1);
    for (size_t i = 0; i < count; i++)
        sum->bins[i] = joined[i];
    sum->level = level;
    sum->bin_count = (uint32_t)count;
    sum->sum_ns = spread_sum(sum->sum_ns, other.sum_ns);
}

void spread_put(struct spread *spread, uint64_t ns, size_t bytes_max)
{
    uint32_t index = spread_index(ns);
    for (size_t i = 0; i < spread->bin_count; i++) {
        struct spread_bin *bin = &spread->bins[i];
        if (bin->index != index >> spread->level || bin->count == UINT64_MAX ||
                varint_size(bin->count + 1) > varint_size(bin->count))
            continue;
        bin->count++; // as most are: nothing else changes
        spread->sum_ns = spread_sum(spread->sum_ns, ns);
        return;
    }
    struct spread one = {.sum_ns = ns, .bin_count = 1, .bins = {{1, index}}};
    spread_add(spread, &one, bytes_max);
}

uint64_t spread_count(const struct spread *spread)
{
    uint64_t count = 0;
    for (size_t i = 0; i < spread->bin_count; i++)
        count = spread_sum(count, spread->bins[i].count);
    return count;
}

double spread_quantile(const struct spread *spread, double q)
{
    // 1e-9: as quantile_nearest_rank has it
    double want = ceil(q * (double)spread_count(spread) - 1e-9);
    uint64_t below = 0;
    for (size_t i = 0; i < spread->bin_count; i++) {
        below = spread_sum(below, spread->bins[i].count);
        if ((double)below < want && i + 1 < spread->bin_count)
            continue;
        uint64_t low = spread_low((uint64_t)spread->bins[i].index << spread->level);
        uint64_t next = spread_low(((uint64_t)spread->bins[i].index + 1) << spread->level);
        return (double)(low + (next - low) / 2);
    }
    return NAN;
}

double spread_error(const struct spread *spread)
{
    return spread->level <= SPREAD_LEVEL_KNOWN
            ? ldexp(1.0 / (2 * SPREAD_LINEAR), (int)spread->level)
            : INFINITY;
}

size_t spread_encode(const struct spread *spread, uint8_t *ret)
{
    uint8_t *at = ret;
    at += varint_put(at, spread->level);
    at += varint_put(at, spread->bin_count);
    for (size_t i = 0; i < spread->bin_count; i++) {
        at += varint_put(at,
                i ? spread->bins[i].index - spread->bins[i - 1].index - 1 : spread->bins[i].index);
        at += varint_put(at, spread->bins[i].count);
    }
    at += varint_put(at, spread->sum_ns);
    return (size_t)(at - ret);
}

static uint64_t spread_capped(unsigned __int128 sum)
{
    return sum > UINT64_MAX ? UINT64_MAX : (uint64_t)sum;
}

// Is the sum one that lengths in these bins can have? What spread_add makes of such spreads is one
// again, full counts and sums included.
static bool spread_sum_fits(const struct spread *spread)
{
    unsigned __int128 least = 0, most = 0; // capped, as sums are
    for (size_t i = 0; i < spread->bin_count; i++) {
        const struct spread_bin *bin = &spread->bins[i];
        uint64_t low = spread_low((uint64_t)bin->index << spread->level),
                 next = spread_low(((uint64_t)bin->index + 1) << spread->level);
        least = spread_capped(least + spread_capped((unsigned __int128)bin->count * low));
        most = spread_capped(most + spread_capped((unsigned __int128)bin->count * next));
    }
    return spread->sum_ns >= least && spread->sum_ns <= most;
}

void spread_decode(struct varints *bytes, size_t bytes_max, struct spread *ret)
{
    uint64_t level = varint_get(bytes), count = varint_get(bytes), index = 0;
    *ret = (struct spread){0};
    if (level > SPREAD_LEVEL_MAX || !count || count > SPREAD_BINS_MAX) {
        bytes->bad = true;
        return;
    }
    ret->level = (uint32_t)level;
    for (uint64_t i = 0; i < count && !bytes->bad; i++) {
        uint64_t gap = varint_get(bytes), times = varint_get(bytes);
        if (gap >= SPREAD_INDEX_END || !times) {
            bytes->bad = true;
            return;
        }
        index += gap + (i > 0);
        if (index > (uint64_t)(SPREAD_INDEX_END - 1) >> level) {
            bytes->bad = true;
            return;
        }
        ret->bins[ret->bin_count++] = (struct spread_bin){times, (uint32_t)index};
    }
    ret->sum_ns = varint_get(bytes);
    bytes->bad |= spread_bytes(ret->bins, ret->bin_count) > bytes_max || !spread_sum_fits(ret);
}
