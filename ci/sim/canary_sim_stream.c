// SPDX-License-Identifier: Apache-2.0
// Draws seconds of traffic: a few ns a request.
#include "ci/sim/canary_sim_stream.h"

#include <math.h>
#include <string.h>

#include "reports/analyse/distribution.h"

static const double stream_median_s = 0.02, stream_sigma = 0.5, stream_slow = 2,
                    stream_slow_share = 0.2;
static const double stream_period_s[3] = {900, 700, 500}; // of requests, of errors, of the mix

struct random_state stream_random(uint64_t seed)
{
    // Seeds in a row would be one sequence begun one step later each.
    struct random_state random = {seed};
    return (struct random_state){random_next(&random) ^ (random_next(&random) << 1)};
}

double stream_poisson(struct random_state *random, double mean)
{
    if (mean > 60) // traffic: its own law does not matter, its size does
        return fmax(0, round(mean + sqrt(mean) * random_normal(random)));
    double product = random_uniform(random), limit = exp(-mean), count = 0;
    for (; product > limit; count++)
        product *= random_uniform(random);
    return count;
}

static void stream_alias_make(struct stream_alias *alias, double median_s)
{
    double part[CANARY_BINS], below = 0;
    int small[CANARY_BINS], large[CANARY_BINS], smalls = 0, larges = 0;
    for (int i = 0; i < CANARY_BINS; i++) {
        double to = i + 1 == CANARY_BINS
                ? 1
                : distribution_normal_cdf(log(canary_bin_low_s(i + 1) / median_s) / stream_sigma);
        part[i] = (to - below) * CANARY_BINS;
        below = to;
        if (part[i] < 1)
            small[smalls++] = i;
        else
            large[larges++] = i;
    }
    while (smalls && larges) {
        int less = small[--smalls], more = large[larges - 1];
        alias->keep[less] = part[less];
        alias->other[less] = (uint16_t)more;
        part[more] -= 1 - part[less];
        if (part[more] < 1) {
            larges--;
            small[smalls++] = more;
        }
    }
    while (larges)
        alias->keep[large[--larges]] = 1;
    while (smalls)
        alias->keep[small[--smalls]] = 1;
}

void stream_start(struct stream *stream, const struct stream_world *world,
        const struct stream_fault *fault, uint64_t seed)
{
    stream_start_odd(stream, world, fault, &(struct stream_odd){0}, seed);
}

void stream_start_odd(struct stream *stream, const struct stream_world *world,
        const struct stream_fault *fault, const struct stream_odd *odd, uint64_t seed)
{
    memset(stream, 0, sizeof *stream);
    stream->world = *world;
    stream->fault = *fault;
    stream->odd = *odd;
    stream->random = stream_random(seed);
    for (int i = 0; i < 3; i++)
        stream->phase[i] = 2 * M_PI * random_uniform(&stream->random);
    const double speeds[STREAM_SPEEDS] = {
            1, fault->latency, odd->latency_before > 0 ? odd->latency_before : 1};
    for (int speed = 0; speed < STREAM_SPEEDS; speed++)
        for (int kind = 0; kind < STREAM_KINDS; kind++)
            stream_alias_make(&stream->latency[speed][kind],
                    stream_median_s * (kind ? stream_slow : 1) * speeds[speed]);
}

static double stream_wave(const struct stream *stream, int which, double at_s)
{
    return stream->world.drift *
            sin(2 * M_PI * at_s / stream_period_s[which] + stream->phase[which]);
}

static double stream_errors(struct stream *stream, double mean, double at_s)
{
    const struct stream_world *world = &stream->world;
    double burst = at_s < world->burst_from_s ? 1 : world->burst, errors = 0;
    for (double left = stream_poisson(&stream->random, mean / burst); left > 0; left--) {
        double size = burst;
        if (world->burst_spread > 0 && burst > 1) // geometric from 1
            size = 1 + floor(log(1 - random_uniform(&stream->random)) / log(1 - 1 / burst));
        errors += size;
    }
    return errors;
}

static void stream_arm(struct stream *stream, double at_s, double mean, double error_rate,
        double slow, const struct stream_alias *tables, struct canary_second *second)
{
    struct random_state *random = &stream->random;
    uint64_t answered = (uint64_t)stream_poisson(random, mean * (1 - error_rate));
    uint64_t errors = (uint64_t)stream_errors(stream, mean * error_rate, at_s);
    second->errors += errors;
    second->rejected += errors; // another count that comes as they do; no row gates it
    second->requests += answered + errors;
    uint64_t slow_below = (uint64_t)(slow * 0x1p32);
    for (uint64_t i = 0; i < answered; i++) {
        uint64_t word = random_next(random);
        const struct stream_alias *table = &tables[(word & 0xffffffff) < slow_below];
        double at = (double)(word >> 32) * (CANARY_BINS * 0x1p-32);
        int bin = (int)at;
        second->bins[at - bin < table->keep[bin] ? bin : table->other[bin]]++;
    }
}

void stream_second_of(struct stream *stream, enum stream_phase phase, double at_s, double stage_s,
        double share, struct canary_second arms[CANARY_ARMS])
{
    const struct stream_world *world = &stream->world;
    const struct stream_fault *fault = &stream->fault;
    const struct stream_odd *odd = &stream->odd;
    double mean = world->requests_per_s * (1 + 0.5 * stream_wave(stream, 0, at_s));
    double errors = world->error_rate * exp(0.55 * stream_wave(stream, 1, at_s));
    double slow =
            world->drift > 0 ? stream_slow_share * (1 + 0.8 * stream_wave(stream, 2, at_s)) : 0;
    memset(arms, 0, CANARY_ARMS * sizeof *arms);
    stream_arm(stream, at_s, mean * (1 - share), errors, slow, stream->latency[STREAM_BASELINE],
            &arms[CANARY_BASELINE]);
    struct canary_second *candidate = &arms[CANARY_CANDIDATE];
    if (phase == STREAM_BAD && fault->crash_s > 0 && stage_s >= fault->crash_s) {
        candidate->requests = candidate->errors =
                (uint64_t)stream_poisson(&stream->random, mean * share);
        return;
    }
    const double times[] = {1, odd->errors_before > 0 ? odd->errors_before : 1, fault->errors};
    static const int speeds[] = {STREAM_BASELINE, STREAM_BEFORE, STREAM_FAULT};
    double mine = errors * times[phase];
    if (phase == STREAM_BAD && stage_s < 1)
        mine = fmin(mine + odd->first, 1);
    double part = phase == STREAM_BAD && odd->part > 0 ? odd->part : 1;
    stream_arm(stream, at_s, mean * share * part, mine, slow, stream->latency[speeds[phase]],
            candidate);
    if (part < 1)
        stream_arm(stream, at_s, mean * share * (1 - part), mine, slow,
                stream->latency[STREAM_BASELINE], candidate);
}

void stream_second(struct stream *stream, double at_s, double stage_s, double share,
        struct canary_second arms[CANARY_ARMS])
{
    stream_second_of(stream, stage_s < 0 ? STREAM_AA : STREAM_BAD, at_s, stage_s, share, arms);
}
