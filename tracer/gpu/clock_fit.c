// SPDX-License-Identifier: Apache-2.0
// From CUPTI's clock to CLOCK_MONOTONIC. Times are shifted to a sample of the window before they
// become floating point: 2^53 ns are 104 days, and a wall clock in ns is 200 times that.
#include "tracer/gpu/clock_fit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/containers/sort.h"
#include "tracer/store/ranges.h"

enum {
    FIT_WIDTH_MAX_NS = 1000000, // a reader that was off the CPU inside the bracket
    FIT_WIDTH_FACTOR = 4,       // times the median width of the window
    FIT_WIDTH_FLOOR_NS = 2000,
    FIT_WIDE_MAX = 16, // in a row are no accident: reading takes longer now (another clock source,
                       // a throttled CPU)
    FIT_SPAN_MIN_NS = 200000000, // a slope from less is noise: 100 ns in 0.2 s are 0.5 ppm
    FIT_JUMP_NS = 50000,         // beyond what drift explains
    FIT_JUMP_PPM = 500,          // the kernel slews a clock by no more
};

static double fit_median(double *values, size_t count)
{
    sort_in_place(values, count, x, y, *x < *y);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

static int64_t piece_convert(const struct clock_piece *piece, int64_t gpu_ns)
{
    // The clocks differ by some ppm: only the difference goes through floating point.
    int64_t ahead;
    if (__builtin_sub_overflow(gpu_ns, piece->gpu_base_ns, &ahead))
        return piece->host_base_ns;
    double turn = piece->turn * (double)ahead;
    return (int64_t)((uint64_t)piece->host_base_ns + (uint64_t)ahead +
            (uint64_t)(int64_t)(turn + (turn < 0 ? -0.5 : 0.5)));
}

static void piece_update(struct clock_piece *piece)
{
    double slopes[CLOCK_FIT_WINDOW * (CLOCK_FIT_WINDOW - 1) / 2], offsets[CLOCK_FIT_WINDOW];
    const struct clock_sample *base =
            &piece->samples[(piece->next + CLOCK_FIT_WINDOW - 1) % CLOCK_FIT_WINDOW];
    size_t count = 0;
    for (uint32_t i = 0; i < piece->count; i++)
        for (uint32_t j = i + 1; j < piece->count; j++) {
            const struct clock_sample *a = &piece->samples[i], *b = &piece->samples[j];
            double span = (double)(b->gpu_ns - a->gpu_ns);
            if (fabs(span) >= FIT_SPAN_MIN_NS)
                slopes[count++] =
                        (double)(b->host_ns - a->host_ns - (b->gpu_ns - a->gpu_ns)) / span;
        }
    double turn = count ? fit_median(slopes, count) : 0;
    turn = fmax(-FIT_JUMP_PPM * 1e-6, fmin(FIT_JUMP_PPM * 1e-6, turn));
    for (uint32_t i = 0; i < piece->count; i++) {
        int64_t gpu = piece->samples[i].gpu_ns - base->gpu_ns,
                host = piece->samples[i].host_ns - base->host_ns;
        offsets[i] = (double)(host - gpu) - turn * (double)gpu;
    }
    piece->turn = turn;
    piece->gpu_base_ns = base->gpu_ns;
    piece->host_base_ns = base->host_ns + llround(fit_median(offsets, piece->count));
}

static void piece_add(struct clock_piece *piece, const struct clock_sample *sample)
{
    if (!piece->count)
        piece->gpu_first_ns = piece->gpu_last_ns = sample->gpu_ns;
    piece->samples[piece->next] = *sample;
    piece->next = (piece->next + 1) % CLOCK_FIT_WINDOW;
    piece->count += piece->count < CLOCK_FIT_WINDOW;
    piece->gpu_last_ns = sample->gpu_ns > piece->gpu_last_ns ? sample->gpu_ns : piece->gpu_last_ns;
    piece_update(piece);
}

static const struct clock_piece *fit_last(const struct clock_fit *fit)
{
    return &fit->pieces[fit->piece_count - 1];
}

// Too wide to be of use, compared with its neighbours.
static bool fit_too_wide(const struct clock_fit *fit, int64_t width_ns)
{
    if (width_ns > FIT_WIDTH_MAX_NS)
        return fit->piece_count > 0; // better than nothing
    if (!fit->piece_count || width_ns <= FIT_WIDTH_FLOOR_NS)
        return false;
    const struct clock_piece *piece = fit_last(fit);
    double widths[CLOCK_FIT_WINDOW];
    for (uint32_t i = 0; i < piece->count; i++)
        widths[i] = (double)piece->samples[i].width_ns;
    return (double)width_ns > FIT_WIDTH_FACTOR * fit_median(widths, piece->count);
}

static bool fit_agrees(const struct clock_sample *sample, int64_t expected_ns, int64_t gap_ns)
{
    int64_t allowed = FIT_JUMP_NS + sample->width_ns + llabs(gap_ns) / 1000000 * FIT_JUMP_PPM;
    return llabs(sample->host_ns - expected_ns) <= allowed;
}

static void fit_residual(struct clock_fit *fit, int64_t distance_ns)
{
    distance_ns = llabs(distance_ns);
    int bucket = distance_ns < 4 ? (int)distance_ns : 0;
    if (distance_ns >= 4) {
        int octave = 63 - __builtin_clzll((unsigned long long)distance_ns);
        bucket = octave * 4 + (int)((distance_ns >> (octave - 2)) & 3);
    }
    fit->histogram[bucket]++;
    fit->residuals++;
    fit->residual_max_ns = distance_ns > fit->residual_max_ns ? distance_ns : fit->residual_max_ns;
}

static void fit_start_piece(struct clock_fit *fit, const struct clock_sample *sample)
{
    if (fit->piece_count == CLOCK_FIT_PIECES) {
        memmove(fit->pieces, fit->pieces + 1, sizeof fit->pieces[0] * (CLOCK_FIT_PIECES - 1));
        fit->piece_count--;
    }
    struct clock_piece *piece = &fit->pieces[fit->piece_count++];
    memset(piece, 0, sizeof *piece);
    piece_add(piece, sample);
}

bool clock_fit_add(struct clock_fit *fit, uint64_t before_ns, uint64_t gpu_ns, uint64_t after_ns)
{
    fit->samples++;
    if (after_ns < before_ns || after_ns >= RANGE_NS_END || gpu_ns == 0 || gpu_ns >= RANGE_NS_END) {
        fit->ignored++;
        return false;
    }
    struct clock_sample sample = {.gpu_ns = (int64_t)gpu_ns,
            .host_ns = (int64_t)(before_ns + (after_ns - before_ns) / 2),
            .width_ns = (int64_t)(after_ns - before_ns)};
    if (!fit->piece_count) {
        fit_start_piece(fit, &sample);
        return true;
    }
    if (fit_too_wide(fit, sample.width_ns) && ++fit->wide < FIT_WIDE_MAX) {
        fit->ignored++;
        return false;
    }
    fit->wide = 0;
    struct clock_piece *piece = &fit->pieces[fit->piece_count - 1];
    int64_t expected = piece_convert(piece, sample.gpu_ns);
    if (fit_agrees(&sample, expected, sample.gpu_ns - piece->gpu_last_ns)) {
        fit->ignored += fit->has_candidate;
        fit->has_candidate = false;
        fit_residual(fit, sample.host_ns - expected);
        piece_add(piece, &sample);
        return true;
    }
    int64_t gap = sample.gpu_ns - fit->candidate.gpu_ns;
    if (!fit->has_candidate || !fit_agrees(&sample, fit->candidate.host_ns + gap, gap)) {
        fit->ignored += fit->has_candidate;
        fit->candidate = sample; // the next one decides
        fit->has_candidate = true;
        return true;
    }
    fit->has_candidate = false;
    fit->jumps++;
    fit_start_piece(fit, &fit->candidate);
    piece_add(&fit->pieces[fit->piece_count - 1], &sample);
    return true;
}

bool clock_fit_ready(const struct clock_fit *fit)
{
    return fit->piece_count > 0;
}

int64_t clock_fit_until_ns(const struct clock_fit *fit)
{
    return fit->piece_count ? fit_last(fit)->gpu_last_ns : INT64_MIN;
}

int64_t clock_fit_convert(const struct clock_fit *fit, uint64_t gpu_ns)
{
    int64_t gpu = gpu_ns > RANGE_NS_END ? RANGE_NS_END : (int64_t)gpu_ns;
    if (!fit->piece_count)
        return gpu;
    if (fit->piece_count == 1)
        return piece_convert(&fit->pieces[0], gpu);
    // A time belongs to the piece whose samples are nearest; of overlapping pieces (a jump back) to
    // the newer.
    const struct clock_piece *best = fit_last(fit);
    int64_t best_away = INT64_MAX;
    for (uint32_t i = fit->piece_count; i-- > 0;) {
        const struct clock_piece *piece = &fit->pieces[i];
        int64_t away = gpu < piece->gpu_first_ns ? piece->gpu_first_ns - gpu
                : gpu > piece->gpu_last_ns       ? gpu - piece->gpu_last_ns
                                                 : 0;
        if (away < best_away) {
            best = piece;
            best_away = away;
        }
    }
    return piece_convert(best, gpu);
}

int64_t clock_fit_span(const struct clock_fit *fit, int64_t gpu_ns)
{
    double turn = fit->piece_count ? fit_last(fit)->turn * (double)gpu_ns : 0;
    return gpu_ns + (int64_t)(turn + (turn < 0 ? -0.5 : 0.5));
}

double clock_fit_slope(const struct clock_fit *fit)
{
    return fit->piece_count ? 1 + fit_last(fit)->turn : 1;
}

int64_t clock_fit_residual_ns(const struct clock_fit *fit)
{
    uint64_t below = 0;
    for (int bucket = 0; bucket < 64 * 4 && fit->residuals; bucket++) {
        below += fit->histogram[bucket];
        if (below * 2 < fit->residuals)
            continue;
        if (bucket < 4)
            return bucket;
        int octave = bucket / 4; // the middle of the bucket
        return ((int64_t)(4 + bucket % 4) << (octave - 2)) + ((int64_t)1 << (octave - 2)) / 2;
    }
    return -1;
}
