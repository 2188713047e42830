// SPDX-License-Identifier: Apache-2.0
// Simulates the gate on synthetic noise: how often it fails falsely, how often it finds a
// slow-down, how many pairs it takes, and what screening many cells does. The values of the
// design's own simulation stand beside. Reads nothing; writes a table to stdout; exit 1 when a rate
// leaves its limit.
//
//     gate_sim [GATES]      10,000 gates a row by default, some ten seconds on one core
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "reports/analyse/binomial.h"
#include "reports/analyse/looks.h"
#include "reports/analyse/power.h"
#include "reports/analyse/random.h"

enum { SIM_PAIRS = 28, SIM_CELLS = 50, SIM_CONFIRM = 10 };

static const struct looks_rule sim_rule = {
    .alpha = 0.01, .looks = {10, 14, 20, 28}, .look_count = 4, .margin = 0.02};

struct sim_noise {
    double pair_sd;             // normal, of a pair's log ratio; or, when 0:
    double launch_sd, drift_sd; // of each launch, and of a drift with rho .95 a slot
    double spike_rate, spike;   // share of launches hit, mean of the (exponential) hit
};

struct sim_drift {
    double level;
};

static double sim_launch(const struct sim_noise *noise, struct sim_drift *drift,
                         struct random_state *random)
{
    double innovation = noise->drift_sd * sqrt(1 - 0.95 * 0.95);
    drift->level = 0.95 * drift->level + innovation * random_normal(random);
    double value = noise->launch_sd * random_normal(random) + drift->level;
    if (random_uniform(random) < noise->spike_rate)
        value += -noise->spike * log(1 - random_uniform(random));
    return value;
}

// Oriented log ratios of `count` pairs of a candidate that is slower by `effect`, order by coin.
static void sim_pairs(const struct sim_noise *noise, double effect, double *values, int count,
                      struct random_state *random)
{
    struct sim_drift drift = {noise->drift_sd * random_normal(random)};
    for (int i = 0; i < count; i++) {
        if (noise->pair_sd > 0) {
            values[i] = log1p(effect) + noise->pair_sd * random_normal(random);
            continue;
        }
        double first = sim_launch(noise, &drift, random),
               second = sim_launch(noise, &drift, random);
        double difference = random_next(random) >> 63 ? second - first : first - second;
        values[i] = log1p(effect) + difference;
    }
}

struct sim_count {
    long pass, fail, inconclusive, pairs;
};

static struct sim_count sim_gates(const struct sim_noise *noise, double effect, long gates,
                                  uint64_t seed)
{
    struct sim_count count = {0};
    struct random_state random = {seed};
    double values[SIM_PAIRS];
    for (long i = 0; i < gates; i++) {
        sim_pairs(noise, effect, values, SIM_PAIRS, &random);
        struct looks_result result = looks_judge(&sim_rule, values, SIM_PAIRS);
        count.pass += result.state == LOOKS_PASS;
        count.fail += result.state == LOOKS_FAIL;
        count.inconclusive += result.state != LOOKS_PASS && result.state != LOOKS_FAIL;
        count.pairs += result.pairs;
    }
    return count;
}

static bool sim_row(const char *name, const struct sim_noise *noise, double effect, long gates,
                    const char *design, double fail_min, double fail_max, double pass_max)
{
    struct sim_count count = sim_gates(noise, effect, gates, 1);
    double pass = (double)count.pass / (double)gates, fail = (double)count.fail / (double)gates;
    bool ok = fail >= fail_min && fail <= fail_max && pass <= pass_max;
    printf("%-34s %6.1f%%  %6.4f  %6.4f  %6.4f  %5.1f   %-26s %s\n", name, 100 * effect, pass, fail,
           (double)count.inconclusive / (double)gates, (double)count.pairs / (double)gates, design,
           ok ? "ok" : "OUT OF ITS LIMIT");
    return ok;
}

// One look at the margin itself: there, and only there, alpha is spent in full.
static bool sim_level(long gates)
{
    const struct sim_noise noise = {.pair_sd = 0.02};
    struct sim_count count = sim_gates(&noise, 0.02, gates, 2);
    double limit = 0.01 + 4 * sqrt(0.01 * 0.99 / (double)gates);
    double fail = (double)count.fail / (double)gates, pass = (double)count.pass / (double)gates;
    bool ok = fail <= limit && pass <= limit;
    printf("\nexactly at the margin of 2 %%, pair sd 2 %%, four looks: false fail %.4f, false pass "
           "%.4f (alpha 0.01, "
           "4 sigma of the simulation: %.4f) %s\n",
           fail, pass, limit, ok ? "ok" : "OUT OF ITS LIMIT");
    return ok;
}

// Runs of 50 cells at the worst case that is still no regression (exactly the margin): how many
// runs have a false fail, by the screen alone and with fresh pairs to confirm.
static bool sim_many_cells(long runs)
{
    const struct sim_noise noise = {.pair_sd = 0.02};
    struct random_state random = {3};
    double values[SIM_PAIRS], fresh[SIM_CONFIRM];
    long screened = 0, confirmed = 0;
    for (long run = 0; run < runs; run++) {
        bool screen = false, confirm = false;
        for (int cell = 0; cell < SIM_CELLS; cell++) {
            sim_pairs(&noise, 0.02, values, SIM_PAIRS, &random);
            if (looks_judge(&sim_rule, values, SIM_PAIRS).state != LOOKS_FAIL)
                continue;
            screen = true;
            sim_pairs(&noise, 0.02, fresh, SIM_CONFIRM, &random);
            confirm = confirm || looks_once(fresh, SIM_CONFIRM, sim_rule.alpha, sim_rule.margin)
                                         .state == LOOKS_FAIL;
        }
        screened += screen;
        confirmed += confirm;
    }
    double limit = SIM_CELLS * 0.01 * 0.01;
    bool ok =
        (double)confirmed / (double)runs <= limit + 4 * sqrt(limit * (1 - limit) / (double)runs);
    printf("%d cells exactly at the margin, %ld runs: any false fail by the screen alone %.4f, "
           "confirmed on %d "
           "fresh pairs %.4f (at most %d x alpha^2 = %.4f; 95 %% bound here %.4f) %s\n",
           SIM_CELLS, runs, (double)screened / (double)runs, SIM_CONFIRM,
           (double)confirmed / (double)runs, SIM_CELLS, limit,
           binomial_upper_bound(confirmed, runs, 0.95), ok ? "ok" : "OUT OF ITS LIMIT");
    return ok;
}

int main(int argc, char **argv)
{
    long gates = argc > 1 ? strtol(argv[1], NULL, 10) : 10000;
    if (gates < 100 || argc > 2) {
        fputs("usage: gate_sim [GATES, at least 100]\n", stderr);
        return 2;
    }
    const struct sim_noise quiet = {.pair_sd = 0.005}, loud = {.pair_sd = 0.02},
                           normal = {.pair_sd = 0.01};
    const struct sim_noise design = {
        .launch_sd = 0.007, .drift_sd = 0.01, .spike_rate = 0.05, .spike = 0.10};
    const double all = 1;
    bool ok = true;
    printf(
        "%ld gates a row; alpha 0.01 one-sided over looks at 10, 14, 20, 28 pairs; margin 2 %%\n\n",
        gates);
    printf("%-34s %7s  %6s  %6s  %6s  %5s   %s\n", "noise", "effect", "pass", "fail", "incon.",
           "pairs", "design: pass/fail/incon. pairs");
    ok &= sim_row("A/A, pair sd 0.5 %", &quiet, 0, gates, "-", 0, 0.01, all);
    ok &= sim_row("A/A, pair sd 2 %", &loud, 0, gates, "-", 0, 0.01, all);
    ok &= sim_row("pair sd 0.5 %", &quiet, 0.005, gates, "-", 0, 0.01, all);
    ok &= sim_row("pair sd 0.5 %", &quiet, 0.05, gates, "-", 0.99, all, 0.01);
    ok &= sim_row("pair sd 2 %", &loud, 0.05, gates, "-", 0.95, all, 0.01);
    ok &= sim_row("pair sd 1 %", &normal, 0.03, gates, "-", 0.5, all, 0.01);
    ok &= sim_row("launch .7 %, drift 1 %, spikes", &design, 0, gates, ".979/0/.021 14.2", 0, 0.01,
                  all);
    ok &= sim_row("launch .7 %, drift 1 %, spikes", &design, 0.005, gates, ".950/0/.050 15.8", 0,
                  0.01, all);
    ok &= sim_row("launch .7 %, drift 1 %, spikes", &design, 0.01, gates, ".793/0/.207 20.3", 0,
                  0.01, all);
    ok &= sim_row("launch .7 %, drift 1 %, spikes", &design, 0.02, gates, ".006/.005/.988 27.9", 0,
                  0.0141, 0.0141);
    ok &= sim_row("launch .7 %, drift 1 %, spikes", &design, 0.03, gates, "0/.794/.206 20.4", 0.7,
                  all, 0.01);
    ok &= sim_row("launch .7 %, drift 1 %, spikes", &design, 0.04, gates, "0/.982/.018 14.0", 0.95,
                  all, 0.01);
    ok &= sim_row("launch .7 %, drift 1 %, spikes", &design, 0.05, gates, "0/.993/.007 13.0", 0.97,
                  all, 0.01);
    ok &= sim_row("launch .7 %, drift 1 %, spikes", &design, 0.10, gates, "0/1/0 11.2", 0.99, all,
                  0.01);
    ok &= sim_level(gates);
    ok &= sim_many_cells(gates / 10);
    printf("\nminimum detectable effect, one-sided alpha .01, power 80 %%, sd 1 %%: 6 pairs %.2f "
           "%%, 12 pairs %.2f %%, "
           "24 pairs %.2f %% (design: 1.75, 1.04, 0.69 of the log ratio)\n",
           100 * log1p(power_mde(0.01, 6, 0.01, 0.8)), 100 * log1p(power_mde(0.01, 12, 0.01, 0.8)),
           100 * log1p(power_mde(0.01, 24, 0.01, 0.8)));
    return ok ? 0 : 1;
}
