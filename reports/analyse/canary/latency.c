// SPDX-License-Identifier: Apache-2.0
// Bins summed over a stage, and quantile ratios bisected from counts above thresholds.
#include "reports/analyse/canary/latency.h"

#include <math.h>
#include <stdbool.h>

#include "common/containers/search.h"

enum { LATENCY_BISECTIONS = 16 }; // of 1152 bins: to 0.02 of one

double canary_position(double ratio)
{
    return log(ratio) / CANARY_BIN_STEP;
}

double canary_moved(double position)
{
    return exp(position * CANARY_BIN_STEP);
}

static double latency_answered(const struct canary_second *second)
{
    uint64_t sum = 0;
    for (int i = 0; i < CANARY_BINS; i++)
        sum += second->bins[i];
    return (double)sum;
}

void canary_latency_add(struct canary_latency *latency,
        const struct canary_second arms[CANARY_ARMS], double ret_answered[CANARY_ARMS])
{
    for (int arm = 0; arm < CANARY_ARMS; arm++)
        ret_answered[arm] = latency_answered(&arms[arm]);
    double baseline = ret_answered[CANARY_BASELINE], candidate = ret_answered[CANARY_CANDIDATE];
    if (!(baseline > 0) || !(candidate > 0))
        return;
    double share = candidate / (baseline + candidate);
    for (int arm = 0; arm < CANARY_ARMS; arm++) {
        const uint32_t *restrict bins = arms[arm].bins;
        double *restrict count = latency->count[arm], *restrict shares = latency->share[arm];
        for (int i = 0; i < CANARY_BINS; i++) {
            count[i] += bins[i];
            shares[i] += share * bins[i];
        }
    }
}

double canary_above(const uint32_t bins[CANARY_BINS], double position)
{
    if (position >= CANARY_BINS)
        return 0;
    int first = position > 0 ? (int)position : 0;
    uint64_t sum = 0;
    for (int i = first + 1; i < CANARY_BINS; i++)
        sum += bins[i];
    return (double)sum + (first + 1 - fmax(position, 0)) * bins[first];
}

double canary_tail_above(const double tail[CANARY_BINS + 1], double position)
{
    if (position >= CANARY_BINS)
        return 0;
    int bin = position > 0 ? (int)position : 0;
    double within = fmax(position, 0) - bin;
    return tail[bin] + within * (tail[bin + 1] - tail[bin]);
}

int canary_threshold(const double tail[CANARY_BINS + 1], double fraction)
{
    double nearest = INFINITY;
    int border = -1;
    for (int i = CANARY_BINS - 1; i >= 0; i--) {
        if (!(tail[i] > 0))
            continue;
        double off = fabs(log(tail[i] / tail[0] / fraction));
        if (off > nearest)
            break;           // further down it is further off still
        if (off < nearest) { // of equal ones (empty bins below) the highest border
            nearest = off;
            border = i;
        }
    }
    return border;
}

void canary_tails_of(const struct canary_latency *latency, struct canary_tails *ret_tails)
{
    for (int arm = 0; arm < CANARY_ARMS; arm++) {
        double count = 0, share = 0;
        ret_tails->count[arm][CANARY_BINS] = ret_tails->share[arm][CANARY_BINS] = 0;
        for (int i = CANARY_BINS - 1; i >= 0; i--) {
            ret_tails->count[arm][i] = count += latency->count[arm][i];
            ret_tails->share[arm][i] = share += latency->share[arm][i];
        }
    }
}

// The candidate's requests above `position` beside the baseline's above `threshold`.
static struct canary_counts latency_counts(
        const struct canary_tails *tails, int threshold, double position, double dispersion)
{
    double candidate = canary_tail_above(tails->count[CANARY_CANDIDATE], position) / dispersion;
    double share = canary_tail_above(tails->share[CANARY_CANDIDATE], position) / dispersion;
    return (struct canary_counts){.candidate = candidate,
            .all = candidate + tails->count[CANARY_BASELINE][threshold] / dispersion,
            .share = share + tails->share[CANARY_BASELINE][threshold] / dispersion};
}

// No more of the candidate's requests lie above `position` than its share.
static bool latency_few(const struct canary_tails *tails, int threshold, double position)
{
    struct canary_counts counts = latency_counts(tails, threshold, position, 1);
    return counts.candidate <= counts.share;
}

static bool latency_refuted(
        const struct canary_counts *counts, enum canary_side side, double needed)
{
    return canary_counts_evidence((struct canary_trail){counts, 1}, side) >= needed;
}

double canary_tails_ratio(const struct canary_tails *tails, int threshold)
{
    if (threshold < 0 || !(tails->count[CANARY_BASELINE][threshold] > 0) ||
            !(tails->count[CANARY_CANDIDATE][0] > 0))
        return NAN;
    double lo = 0, hi = CANARY_BINS;
    search_narrow(mid, lo, hi, 2 * LATENCY_BISECTIONS, latency_few(tails, threshold, mid));
    return canary_moved(hi - threshold);
}

void canary_tails_bounds(const struct canary_tails *tails, int threshold, double dispersion,
        double alpha, double *ret_low, double *ret_high)
{
    double ratio = canary_tails_ratio(tails, threshold), needed = log(1 / alpha);
    *ret_low = *ret_high = NAN;
    if (isnan(ratio))
        return;
    double likely = threshold + canary_position(ratio);
    for (int side = CANARY_WORSE; side <= CANARY_BETTER; side++) {
        double inside = likely, end = side == CANARY_WORSE ? 0 : CANARY_BINS, outside = end;
        struct canary_counts counts = latency_counts(tails, threshold, end, dispersion);
        if (!latency_refuted(&counts, side, needed))
            continue;
        search_narrow(at, inside, outside, LATENCY_BISECTIONS,
                (counts = latency_counts(tails, threshold, at, dispersion),
                        latency_refuted(&counts, side, needed)));
        if (outside == end)
            continue;
        *(side == CANARY_WORSE ? ret_low : ret_high) = canary_moved(outside - threshold);
    }
}
