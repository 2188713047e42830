// SPDX-License-Identifier: Apache-2.0
// Index of dispersion from pairs of blocks, drawn to a prior while little is known.
#include "reports/analyse/canary/dispersion.h"

#include <math.h>

static const int dispersion_block_s[CANARY_SCALES] = {1, 10};
// What is believed before: bursts of four, worth five events. Chosen by ci/sim/canary_sim: with
// bursts that come so rarely that none was seen before the candidate has one, equal arms stay below
// alpha.
static const double dispersion_prior = 4, dispersion_prior_weight = 5;
// The long blocks begin at what the short ones say, and need so much to leave it: 10 pairs of many
// events.
static const double dispersion_long_weight = 40;
// They are the noisier ones: only what lies above the short ones by their standard error is a burst
// that lasts.
static const double dispersion_long_part = 0.85;
// A pair tells as much as its events while they are few (each says whether it came alone), not
// beyond: then it is one number with a relative standard error of 1.4 however many events it has.
static const double dispersion_pair_known_max = 4;
// Of what was seen so much is remembered: bursts that begin are known after about two hundred
// errors of the baseline …
static const double dispersion_known_max = 400;
// … and guarded against after three or four bursts: of 8 pairs of many events, and of 32, what is
// left less their standard error.
static const double dispersion_together_max[CANARY_MEMORIES] = {32, 128};
static const double dispersion_together_part[CANARY_MEMORIES] = {0.67, 0.8};

// What lies above 1 is taken for a fifth more: the e-value of a burst is convex in its size, so
// that the mean size of bursts that vary does not cover the large ones.
static const double dispersion_above_one = 1.2;

static void dispersion_pair(struct canary_pairs *pairs, double known_max, double events_a,
        double requests_a, double events_b, double requests_b)
{
    double events = events_a + events_b, requests = requests_a + requests_b;
    if (!(events > 0) || !(requests_a > 0) || !(requests_b > 0))
        return;
    double share = requests_a / requests, deviation = events_a - share * events;
    pairs->deviations += deviation * deviation / (share * (1 - share));
    pairs->events += events;
    pairs->known += fmin(events, dispersion_pair_known_max);
    if (pairs->known <= known_max)
        return;
    double keep = known_max / pairs->known;
    pairs->deviations *= keep;
    pairs->events *= keep;
    pairs->known = known_max;
}

static void dispersion_blocks(struct canary_dispersion *dispersion, int scale, double events_a,
        double requests_a, double events_b, double requests_b)
{
    dispersion_pair(&dispersion->pairs[scale], dispersion_known_max, events_a, requests_a, events_b,
            requests_b);
}

void canary_dispersion_see(struct canary_dispersion *dispersion, double events, double requests)
{
    if (!(requests > 0))
        return;
    for (int i = 0; i < CANARY_MEMORIES; i++)
        dispersion_pair(&dispersion->together[i], dispersion_together_max[i],
                dispersion->together_events, dispersion->together_requests, events, requests);
    dispersion->together_events = events;
    dispersion->together_requests = requests;
}

void canary_dispersion_add(struct canary_dispersion *dispersion, double events, double requests,
        double events_second, double requests_second)
{
    for (int scale = 0; scale < CANARY_SCALES; scale++) {
        struct canary_block *now = &dispersion->now[scale], *before = &dispersion->before[scale];
        now->events[0] += events;
        now->requests[0] += requests;
        now->events[1] += events_second;
        now->requests[1] += requests_second;
        if (++now->seconds < dispersion_block_s[scale])
            continue;
        dispersion_blocks(dispersion, scale, now->events[0], now->requests[0], now->events[1],
                now->requests[1]);
        if (before->seconds) { // each block is in one pair: the next begins afresh
            dispersion_blocks(dispersion, scale, before->events[0], before->requests[0],
                    now->events[0], now->requests[0]);
            *before = (struct canary_block){0};
        } else {
            *before = *now;
        }
        *now = (struct canary_block){0};
    }
}

// What the pairs say, drawn to `prior` as if that were worth `weight` events.
static double dispersion_drawn(const struct canary_pairs *pairs, double prior, double weight)
{
    double found = pairs->events > 0 ? pairs->deviations / pairs->events : 0;
    return (found * pairs->known + prior * weight) / (pairs->known + weight);
}

double canary_dispersion_value(const struct canary_dispersion *dispersion)
{
    const struct canary_pairs *pairs = dispersion->pairs, *together = dispersion->together;
    double recent = dispersion_drawn(&together[0], dispersion_prior, dispersion_prior_weight);
    double prior = fmin(fmax(1, recent), dispersion_prior);
    double brief = dispersion_drawn(&pairs[0], prior, dispersion_prior_weight);
    double lasting =
            dispersion_long_part * dispersion_drawn(&pairs[1], brief, dispersion_long_weight);
    double guard = 1;
    for (int i = 0; i < CANARY_MEMORIES && together[i].known > 0; i++)
        guard = fmax(guard, dispersion_together_part[i] * dispersion_drawn(&together[i], 0, 0));
    guard = fmin(guard, dispersion_prior);
    return 1 + fmax(0, dispersion_above_one * (fmax(guard, fmax(brief, lasting)) - 1));
}
