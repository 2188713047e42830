// SPDX-License-Identifier: Apache-2.0
// Bins of latency, their quantiles, and their form in the store.
#include "reports/analyse/canary/second.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "common/containers/varint.h"

static const double second_origin_s = 1e-6;

int canary_bin(double latency_s)
{
    if (!(latency_s > second_origin_s)) // NaN, too
        return 0;
    double at = log(latency_s / second_origin_s) / CANARY_BIN_STEP;
    // A border belongs to the bin that it begins, whatever the logarithm rounds to.
    int bin = at >= CANARY_BINS - 1 ? CANARY_BINS - 1 : (int)at;
    if (bin + 1 < CANARY_BINS && latency_s >= canary_bin_low_s(bin + 1))
        return bin + 1;
    return bin > 0 && latency_s < canary_bin_low_s(bin) ? bin - 1 : bin;
}

double canary_bin_low_s(int bin)
{
    return second_origin_s * exp(CANARY_BIN_STEP * bin);
}

double canary_quantile(const struct canary_second *second, double q)
{
    uint64_t total = 0, below = 0;
    for (int i = 0; i < CANARY_BINS; i++)
        total += second->bins[i];
    if (!total || !(q >= 0 && q <= 1))
        return NAN;
    double rank = q * (double)total;
    for (int i = 0; i < CANARY_BINS; i++) {
        uint32_t here = second->bins[i];
        // within the bin evenly, on the scale of the bins
        if (here && (double)(below + here) >= rank)
            return second_origin_s *
                    exp(CANARY_BIN_STEP * (i + fmax(rank - (double)below, 0) / (double)here));
        below += here;
    }
    return NAN;
}

void canary_second_add(struct canary_second *sum, const struct canary_second *more)
{
    sum->requests += more->requests;
    sum->errors += more->errors;
    sum->truncated += more->truncated;
    sum->wrong += more->wrong;
    sum->rejected += more->rejected;
    for (int i = 0; i < CANARY_BINS; i++) { // so written that it becomes a loop of vectors
        uint32_t bin = sum->bins[i] + more->bins[i];
        // a full bin stays full rather than beginning anew
        sum->bins[i] = bin | -(uint32_t)(bin < sum->bins[i]);
    }
}

size_t canary_pack(const uint32_t bins[CANARY_BINS], uint8_t ret[CANARY_PACKED_MAX])
{
    size_t size = 0;
    uint32_t skipped = 0;
    for (int i = 0; i < CANARY_BINS; i++) {
        if (!bins[i]) {
            skipped++;
            continue;
        }
        size += varint_put(ret + size, skipped);
        size += varint_put(ret + size, bins[i]);
        skipped = 0;
    }
    return size;
}

int canary_unpack(const uint8_t *bytes, size_t size, uint32_t bins[CANARY_BINS])
{
    // of an empty BLOB SQLite gives NULL
    struct varints in = {.at = bytes, .end = size ? bytes + size : bytes};
    uint32_t bin = 0;
    memset(bins, 0, CANARY_BINS * sizeof *bins);
    while (in.at != in.end) {
        uint64_t skipped = varint_get(&in), count = varint_get(&in);
        if (in.bad || !count || count > UINT32_MAX || skipped >= CANARY_BINS - bin)
            return -EBADMSG;
        bins[bin + skipped] = (uint32_t)count;
        bin += (uint32_t)skipped + 1;
        if (bin == CANARY_BINS && in.at != in.end)
            return -EBADMSG;
    }
    return 0;
}
