// SPDX-License-Identifier: Apache-2.0
// Simulates the gate: how often it passes what is worse, fails what is equal, finds a slow-down,
// and how many pairs it takes. Twice: thousands of gates on drawn log ratios of pairs through
// looks_judge; hundreds on drawn steps, through measure_pair and cells_judge (gate_sim_steps.c).
// Reads nothing; writes tables to stdout; exit 1 when a rate leaves its limit.
//
//     gate_sim [--markdown] [GATES]   10,000 gates a row of ratios, a hundredth of that a row of
//                                     steps
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ci/sim/gate_sim_rows.h"
#include "reports/analyse/binomial.h"
#include "reports/analyse/looks.h"
#include "reports/analyse/power.h"
#include "reports/analyse/random.h"

enum { SIM_PAIRS = 28, SIM_CELLS = 50, SIM_STEPS_SHARE = 100 };
static const double sim_alpha = 0.01;

static const struct looks_rule sim_rule = {
        .alpha = 0.01, .looks = {10, 14, 20, 28}, .look_count = 4, .margin = 0.02};

static const char *const sim_must_text[] = {[SIM_SHOWN] = "-",
        [SIM_EQUAL] = "fail ≤ 1 % a cell",
        [SIM_MARGIN] = "fail, pass ≤ 1 % a cell",
        [SIM_WORSE] = "pass ≤ 1 %",
        [SIM_FOUND] = "fail ≥ 95 %"};

struct sim_rates {
    long gates;
    double pass, fail, inconclusive, pairs;
    double cell_fail, cell_pass; // of the worst cell
};

static bool sim_markdown;

static bool sim_below(double rate, double limit, long gates)
{
    return rate <= limit + 4 * sqrt(limit * (1 - limit) / (double)gates);
}

static bool sim_keeps(enum sim_must must, const struct sim_rates *rates)
{
    bool cell_fails = sim_below(rates->cell_fail, sim_alpha, rates->gates);
    switch (must) {
    case SIM_EQUAL:
        return cell_fails;
    case SIM_MARGIN:
        return cell_fails && sim_below(rates->cell_pass, sim_alpha, rates->gates);
    case SIM_WORSE:
        return sim_below(rates->pass, sim_alpha, rates->gates);
    case SIM_FOUND:
        return sim_below(rates->pass, sim_alpha, rates->gates) &&
                sim_below(1 - rates->fail, 0.05, rates->gates);
    default:
        return true;
    }
}

static void sim_head(const char *what, long gates)
{
    if (sim_markdown)
        printf("\n%s (%ld gates a row):\n\n"
               "| scenario | mean worse by | pass | fail | inconclusive | pairs | fails, worst cell | must |\n"
               "|---|---|---|---|---|---|---|---|\n",
                what, gates);
    else
        printf("\n%s, %ld gates a row\n%-52s %7s  %6s %6s %6s %5s  %6s  %s\n", what, gates,
                "scenario", "mean", "pass", "fail", "incon.", "pairs", "cell", "must");
}

static bool sim_print(
        const char *name, double effect, const struct sim_rates *rates, enum sim_must must)
{
    bool keeps = sim_keeps(must, rates);
    printf(sim_markdown ? "| %s | %.1f %% | %.3f | %.3f | %.3f | %.1f | %.3f | %s%s |\n"
                        : "%-52s %6.1f%%  %6.4f %6.4f %6.4f %5.1f  %6.4f  %s%s\n",
            name, 100 * effect, rates->pass, rates->fail, rates->inconclusive, rates->pairs,
            rates->cell_fail, sim_must_text[must], keeps ? "" : ": MISSED");
    return keeps;
}

// --- log ratios of pairs -------------------------------------------------------------------------

// The mean of each noise is 0, so that the effect is the mean's.
struct sim_noise {
    double normal;      // sd
    double t3, laplace; // heavy tails: scale of Student's t of 3 degrees of freedom; of Laplace's
    double skew;        // exponential to the slow side, its mean taken out
    double rho;         // of the last pair
    double ties;        // the noise comes in multiples of this
    double mix_share, mix_size; // share of launches of the candidate that lose this much
    // of the design's own simulation: each launch, a drift with rho .95 …
    double launch_sd, drift_sd;
    double spike_rate, spike; // … and a share of launches hit, mean of the (exponential) hit
};

struct sim_state {
    struct random_state random;
    double last, drift;
};

static double sim_exponential(struct random_state *random)
{
    return -log(1 - random_uniform(random));
}

static double sim_launch(const struct sim_noise *noise, struct sim_state *state)
{
    struct random_state *random = &state->random;
    double innovation = noise->drift_sd * sqrt(1 - 0.95 * 0.95);
    state->drift = 0.95 * state->drift + innovation * random_normal(random);
    double value = noise->launch_sd * random_normal(random) + state->drift;
    if (random_uniform(random) < noise->spike_rate)
        value += noise->spike * sim_exponential(random);
    return value;
}

static double sim_value(const struct sim_noise *noise, struct sim_state *state)
{
    struct random_state *random = &state->random;
    double value = noise->normal * random_normal(random);
    if (noise->t3 > 0) {
        double chi = 0, normal = random_normal(random);
        for (int i = 0; i < 3; i++) {
            double one = random_normal(random);
            chi += one * one;
        }
        value += noise->t3 * normal / sqrt(chi / 3);
    }
    if (noise->laplace > 0)
        value += noise->laplace * sim_exponential(random) * (random_next(random) >> 63 ? 1 : -1);
    if (noise->skew > 0)
        value += noise->skew * (sim_exponential(random) - 1);
    if (noise->rho > 0)
        value = state->last = noise->rho * state->last + sqrt(1 - noise->rho * noise->rho) * value;
    if (noise->mix_share > 0 && random_uniform(random) < noise->mix_share)
        value += log1p(noise->mix_size);
    if (noise->launch_sd > 0) {
        double first = sim_launch(noise, state), second = sim_launch(noise, state);
        value += random_next(random) >> 63 ? second - first : first - second;
    }
    return value;
}

// Oriented log ratios of `count` pairs of a candidate that is slower by `effect`.
static void sim_pairs(const struct sim_noise *noise, double effect, double *values, int count,
        struct sim_state *state)
{
    state->drift = noise->drift_sd * random_normal(&state->random);
    state->last = 0;
    for (int i = 0; i < count; i++) {
        double value = sim_value(noise, state);
        if (noise->ties > 0)
            value = round(value / noise->ties) * noise->ties;
        values[i] = log1p(effect) + value;
    }
}

// As the run loop does it: no pair is made behind the look that decides.
static struct looks_result sim_judge(const struct looks_rule *rule, const double *values)
{
    struct looks_result result = {.look = -1};
    for (int k = 0; k < rule->look_count && result.look < 0; k++)
        result = looks_judge(rule, values, (int)rule->looks[k]);
    return result;
}

static struct sim_rates sim_ratios(
        const struct sim_noise *noise, double effect, long gates, uint64_t seed)
{
    long pass = 0, fail = 0, pairs = 0;
    struct sim_state state = {.random = {seed}};
    double values[SIM_PAIRS], all = (double)gates;
    for (long i = 0; i < gates; i++) {
        sim_pairs(noise, effect, values, SIM_PAIRS, &state);
        struct looks_result result = sim_judge(&sim_rule, values);
        pass += result.state == LOOKS_PASS;
        fail += result.state == LOOKS_FAIL;
        pairs += result.pairs;
    }
    double passes = (double)pass / all, fails = (double)fail / all;
    return (struct sim_rates){
            gates, passes, fails, 1 - passes - fails, (double)pairs / all, fails, passes};
}

static bool sim_table_ratios(long gates)
{
    const struct sim_noise half = {.normal = 0.005}, one = {.normal = 0.01}, two = {.normal = 0.02},
                           heavy = {.t3 = 0.006}, laplace = {.laplace = 0.01},
                           skew = {.skew = 0.015}, rho = {.normal = 0.01, .rho = 0.5},
                           ties = {.normal = 0.01, .ties = 0.005},
                           mix20 = {.normal = 0.003, .mix_share = 0.2, .mix_size = 0.5},
                           mix10 = {.normal = 0.003, .mix_share = 0.1, .mix_size = 0.3},
                           mix50 = {.normal = 0.003, .mix_share = 0.5, .mix_size = 0.1},
                           design = {.launch_sd = 0.007,
                                   .drift_sd = 0.01,
                                   .spike_rate = 0.05,
                                   .spike = 0.10};
    const struct {
        const char *name;
        const struct sim_noise *noise;
        double effect;
        enum sim_must must;
    } rows[] = {
            {"normal, sd 0.5 %", &half, 0, SIM_EQUAL},
            {"normal, sd 0.5 %", &half, 0.005, SIM_EQUAL},
            {"normal, sd 0.5 %", &half, 0.05, SIM_FOUND},
            {"normal, sd 1 %", &one, 0, SIM_EQUAL},
            {"normal, sd 1 %", &one, 0.02, SIM_MARGIN},
            {"normal, sd 1 %", &one, 0.03, SIM_WORSE},
            {"normal, sd 2 %", &two, 0, SIM_EQUAL},
            {"normal, sd 2 %", &two, 0.02, SIM_MARGIN},
            {"normal, sd 2 %", &two, 0.05, SIM_FOUND},
            {"heavy tails (t, 3 degrees, 0.6 %)", &heavy, 0, SIM_EQUAL},
            {"heavy tails (t, 3 degrees, 0.6 %)", &heavy, 0.02, SIM_MARGIN},
            {"heavy tails (t, 3 degrees, 0.6 %)", &heavy, 0.05, SIM_FOUND},
            {"Laplace, 1 %", &laplace, 0.02, SIM_MARGIN},
            {"skew to the slow side (exponential, 1.5 %)", &skew, 0, SIM_EQUAL},
            {"skew to the slow side (exponential, 1.5 %)", &skew, 0.02, SIM_SHOWN},
            {"skew to the slow side (exponential, 1.5 %)", &skew, 0.05, SIM_WORSE},
            {"pairs resemble the last one (rho 0.5, sd 1 %)", &rho, 0, SIM_EQUAL},
            {"pairs resemble the last one (rho 0.5, sd 1 %)", &rho, 0.02, SIM_SHOWN},
            {"ties (sd 1 %, in steps of 0.5 %)", &ties, 0, SIM_EQUAL},
            {"ties (sd 1 %, in steps of 0.5 %)", &ties, 0.02, SIM_MARGIN},
            {"20 % of the launches 50 % slower", &mix20, 0, SIM_SHOWN},
            {"10 % of the launches 30 % slower", &mix10, 0, SIM_SHOWN},
            {"half of the launches 10 % slower", &mix50, 0, SIM_WORSE},
            {"launch .7 %, drift 1 %, spikes", &design, 0, SIM_EQUAL},
            {"launch .7 %, drift 1 %, spikes", &design, 0.02, SIM_SHOWN},
            {"launch .7 %, drift 1 %, spikes", &design, 0.03, SIM_WORSE},
            {"launch .7 %, drift 1 %, spikes", &design, 0.05, SIM_WORSE},
            {"launch .7 %, drift 1 %, spikes", &design, 0.10, SIM_FOUND},
    };
    bool ok = true;
    sim_head("drawn log ratios of pairs, margin 2 %, alpha 1 %, looks at 10, 14, 20, 28", gates);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct sim_rates rates = sim_ratios(rows[i].noise, rows[i].effect, gates, 1 + i);
        double mixed = rows[i].noise->mix_share * rows[i].noise->mix_size;
        ok &= sim_print(rows[i].name, rows[i].effect + mixed, &rates, rows[i].must);
    }
    return ok;
}

// Does a cell fail by the screen, and by fresh pairs too? `worse` is the true difference.
static void sim_confirm(double sd, double worse, struct sim_state *state, bool *screen, bool *both)
{
    const struct sim_noise noise = {.normal = sd};
    double values[SIM_PAIRS];
    sim_pairs(&noise, worse, values, SIM_PAIRS, state);
    struct looks_result result = sim_judge(&sim_rule, values);
    *screen = result.state == LOOKS_FAIL, *both = false;
    if (!*screen)
        return;
    struct looks_rule rule = looks_confirm(&sim_rule, result.pairs);
    sim_pairs(&noise, worse, values, SIM_PAIRS, state);
    *both = sim_judge(&rule, values).state == LOOKS_FAIL;
}

// Runs of 50 cells at the worst case that is still no regression (exactly the margin): how many
// runs have a false fail, by the screen alone and with fresh pairs to confirm. And what confirming
// costs of the power.
static bool sim_many_cells(long runs)
{
    struct sim_state state = {.random = {3}};
    long screened = 0, confirmed = 0;
    for (long run = 0; run < runs; run++) {
        bool screens = false, fails = false;
        for (int cell = 0; cell < SIM_CELLS; cell++) {
            bool screen, both;
            sim_confirm(0.02, 0.02, &state, &screen, &both);
            screens |= screen, fails |= both;
        }
        screened += screens;
        confirmed += fails;
    }
    double limit = SIM_CELLS * sim_alpha * sim_alpha;
    bool ok = sim_below((double)confirmed / (double)runs, limit, runs);
    printf("\n%d cells exactly at the margin, %ld runs: any false fail by the screen alone in %.1f "
           "%%, confirmed on fresh pairs in %.2f %% (at most %.2f %%)%s\n",
            SIM_CELLS, runs, 100 * (double)screened / (double)runs,
            100 * (double)confirmed / (double)runs, 100 * limit, ok ? "" : ": MISSED");
    static const double sds[] = {0.0075, 0.01, 0.0125};
    for (size_t i = 0; i < sizeof sds / sizeof *sds; i++) {
        screened = confirmed = 0;
        for (long run = 0; run < 10 * runs; run++) {
            bool screen, both;
            sim_confirm(sds[i], 0.03, &state, &screen, &both);
            screened += screen, confirmed += both;
        }
        printf("3 %% slower, margin 2 %%, sd of a pair %.2f %%: found by the screen %.1f %%, confirmed "
               "%.1f %%\n",
                100 * sds[i], 10.0 * (double)screened / (double)runs,
                10.0 * (double)confirmed / (double)runs);
    }
    return ok;
}

// --- steps ---------------------------------------------------------------------------------------

static bool sim_steps_row(const struct sim_steps_row *row, long gates, uint64_t seed)
{
    struct steps_count count;
    steps_gates(&row->scenario, gates, seed, &count);
    double all = (double)count.gates;
    struct sim_rates rates = {count.gates, (double)count.pass / all, (double)count.fail / all,
            (double)count.inconclusive / all, (double)count.pairs / all, 0, 0};
    for (int m = 0; m < METRIC_COUNT; m++) {
        if (!count.cell_gated[m])
            continue;
        rates.cell_fail = fmax(rates.cell_fail, (double)count.cell_fail[m] / all);
        // What is slower by the margin is the typical step: that memory or warm-up pass is right.
        if (m == METRIC_STEP_TIME || m == METRIC_MEAN_STEP_TIME || m == METRIC_THROUGHPUT)
            rates.cell_pass = fmax(rates.cell_pass, (double)count.cell_pass[m] / all);
    }
    return sim_print(row->name, steps_effect(&row->scenario.candidate), &rates, row->must);
}

static bool sim_table_steps(long gates)
{
    bool ok = true;
    sim_head("drawn steps, equal sides and sides that differ by the margin", gates);
    for (size_t i = 0; i < sizeof sim_equal_rows / sizeof *sim_equal_rows; i++)
        ok &= sim_steps_row(&sim_equal_rows[i], gates, 100 + i);
    sim_head("drawn steps, a candidate that is worse", gates);
    for (size_t i = 0; i < sizeof sim_worse_rows / sizeof *sim_worse_rows; i++)
        ok &= sim_steps_row(&sim_worse_rows[i], gates, 200 + i);
    return ok;
}

int main(int argc, char **argv)
{
    int at = 1;
    sim_markdown = argc > at && strcmp(argv[at], "--markdown") == 0;
    at += sim_markdown;
    long gates = argc > at ? strtol(argv[at], NULL, 10) : 10000;
    if (gates < 1000 || argc > at + 1) {
        fputs("usage: gate_sim [--markdown] [GATES, at least 1000]\n", stderr);
        return 2;
    }
    bool ok = sim_table_ratios(gates);
    ok &= sim_table_steps(gates / SIM_STEPS_SHARE);
    ok &= sim_many_cells(gates / 10);
    printf("\nminimum detectable effect, one-sided alpha 1 %%, power 80 %%, sd 1 %%: 6 pairs %.2f "
           "%%, 12 pairs %.2f %%, 24 pairs %.2f %% (design: 1.75, 1.04, 0.69 of the log ratio)\n",
            100 * log1p(power_mde(0.01, 6, 0.01, 0.8)), 100 * log1p(power_mde(0.01, 12, 0.01, 0.8)),
            100 * log1p(power_mde(0.01, 24, 0.01, 0.8)));
    return ok ? 0 : 1;
}
