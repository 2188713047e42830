// SPDX-License-Identifier: Apache-2.0
// Simulates rollouts: how often equal arms are rolled back, how soon what is worse is found, also
// late, what two other judges make of the same streams, and how often the intervals miss the truth.
// Seeded, no clock but for the speed of the fold. Prints Markdown. Exit 1 when a rate leaves its
// limit.
//
//     canary_sim [--rollouts N] [--jobs N] [--table 0..9] [--write FILE]     1,000 rollouts a row,
//         12 to 20 min; docs/CANARY-SIM.md is written with it
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ci/sim/canary_sim_grid.h"
#include "ci/sim/canary_sim_run.h"
#include "reports/analyse/quantile.h"

enum { SIM_TEXT = 32 };

struct sim {
    FILE *file;
    int rollouts, jobs, table; // -1: all
    bool ok;
};

static struct canary_rules sim_rules(double error_margin, double p99_margin)
{
    struct canary_rules rules = {.alpha = 0.01, .tripwire_error_rate = 0.2, .alone_times = 2};
    rules.metrics[CANARY_ERROR_RATE] = (struct canary_rule){true, false, error_margin, NAN};
    rules.metrics[CANARY_LATENCY_P99] = (struct canary_rule){true, false, p99_margin, NAN};
    rules.metrics[CANARY_WRONG_ANSWERS] = (struct canary_rule){true, false, NAN, 0};
    return rules;
}

static bool sim_at_most(double rate, double limit, int count)
{
    return rate <= limit + 3 * sqrt(limit * (1 - limit) / count);
}

static const char *sim_mark(struct sim *sim, bool kept)
{
    sim->ok &= kept;
    return kept ? "" : ": MISSED";
}

// Quantile p of values[count] where those that never happened count as later than all.
static double sim_quantile(double *values, int found, int count, double p)
{
    int at = (int)ceil(p * count) - 1;
    quantile_sort(values, (size_t)found);
    return at < found ? values[at] : INFINITY;
}

static const char *sim_number(double value, char text[SIM_TEXT])
{
    if (isfinite(value))
        snprintf(text, SIM_TEXT, "%.0f", value);
    else
        snprintf(text, SIM_TEXT, "-");
    return text;
}

static const char *sim_seconds(double value, char text[SIM_TEXT])
{
    sim_number(value, text);
    return isfinite(value) ? strcat(text, " s") : text;
}

// --- equal arms ----------------------------------------------------------------------------------

static const struct sim_world_row {
    const char *name;
    struct stream_world world;
} sim_equal[] = {
        {"errors 0.1 %, alone, nothing drifts", {1000, 1e-3, 1, 0, 0, 0}},
        {"errors 0.1 %, in bursts of 4", {1000, 1e-3, 4, 0, 0, 0}},
        {"the same, traffic, errors and mix drift", {1000, 1e-3, 4, 0, 0, 1}},
        {"bursts of 1 to many, 4 in the mean, drifting", {1000, 1e-3, 4, 1, 0, 1}},
        {"bursts of 4 that begin at 25 %, drifting", {1000, 1e-3, 4, 0, 300, 1}},
        {"errors 0.01 %, in bursts of 4, drifting", {1000, 1e-4, 4, 0, 0, 1}},
        {"errors 0.001 %, in bursts of 4, drifting", {1000, 1e-5, 4, 0, 0, 1}},
        {"errors 2 %, in bursts of 4, 100 requests/s, drifting", {100, 0.02, 4, 0, 0, 1}},
        {"no error ever, drifting", {1000, 0, 1, 0, 0, 1}},
};

static const struct run_stage sim_stages[] = {{0.05, 60, 0, true}, {0.01, 120, 0.05, false},
        {0.05, 120, 0.25, false}, {0.25, 300, 0, false}, {0.5, 300, 0, false}};
enum { SIM_STAGES = sizeof sim_stages / sizeof *sim_stages, SIM_AT_25 = 3 };

static void sim_table_equal(struct sim *sim)
{
    struct run_plan plan = {
            .count = SIM_STAGES, .rules = sim_rules(0.5, 0.05), .fault = {1, 1, 0}, .cells_s = 15};
    memcpy(plan.stages, sim_stages, sizeof sim_stages);
    fprintf(sim->file,
            "\n## Equal arms\n\n%d rollouts a row: A/A 60 s, 1 %% and 5 %% of the traffic 120 s each, 25 %% and 50 %% "
            "300 s each, a look a second, no stage left early. Gated: error rate (margin 50 %%), p99 (margin "
            "5 %%), wrong answers. The right columns say when all cells of a stage pass "
            "(looked at each 15 s), in half of the rollouts.\n\n"
            "| traffic | rolled back | at most | passes at 1 %% after | at 5 %% | at 25 %% |\n|---|---|---|---|---|---|\n",
            sim->rollouts);
    for (size_t i = 0; i < sizeof sim_equal / sizeof *sim_equal; i++) {
        plan.world = sim_equal[i].world;
        struct run_result *results = run_many(&plan, sim->rollouts, 1000000 * (i + 1), sim->jobs);
        double *values = calloc((size_t)sim->rollouts, sizeof *values);
        int back = 0;
        char text[3][SIM_TEXT];
        for (int k = 0; k < sim->rollouts; k++)
            back += results[k].failed_stage >= 0;
        for (int stage = 1; stage <= SIM_AT_25; stage++) {
            int passed = 0;
            for (int k = 0; k < sim->rollouts; k++)
                if (results[k].pass_s[stage] > 0)
                    values[passed++] = results[k].pass_s[stage];
            sim_seconds(sim_quantile(values, passed, sim->rollouts, 0.5), text[stage - 1]);
        }
        double rate = (double)back / sim->rollouts;
        fprintf(sim->file, "| %s | %.2f %% | 1 %%%s | %s | %s | %s |\n", sim_equal[i].name,
                100 * rate, sim_mark(sim, sim_at_most(rate, 0.01, sim->rollouts)), text[0], text[1],
                text[2]);
        fflush(sim->file);
        free(values);
        run_free(results, sim->rollouts);
    }
}

// --- worse ---------------------------------------------------------------------------------------

static const struct sim_found_row {
    const char *name;
    struct stream_fault fault;
    double error_margin, p99_margin, burst;
    double requests_max; // mean; 0: shown only
} sim_found[] = {
        {"error rate x2, margin 50 %", {2, 1, 0}, 0.5, 0.05, 1, 150000},
        {"error rate x2, bursts of 4, margin 50 %", {2, 1, 0}, 0.5, 0.05, 4, 0},
        {"error rate x3, margin 50 %", {3, 1, 0}, 0.5, 0.05, 1, 0},
        {"error rate x5, margin 50 %", {5, 1, 0}, 0.5, 0.05, 1, 0},
        {"p99 +10 %, margin 5 %", {1, 1.1, 0}, 0.5, 0.05, 1, 30000},
        {"p99 +10 %, margin 10 %: exactly at it", {1, 1.1, 0}, 0.5, 0.1, 1, 0},
        {"p99 +20 %, margin 10 %", {1, 1.2, 0}, 0.5, 0.1, 1, 0},
        {"answers 5xx at 0.5 % more, x6", {6, 1, 0}, 0.5, 0.05, 1, 0},
};

static void sim_table_found(struct sim *sim)
{
    fprintf(sim->file,
            "\n## A candidate that is worse, at 25 %% of 1,000 requests/s\n\n%d rollouts a row, errors of the baseline "
            "0.1 %%; after 180 s of A/A at 5 %%. Requests are those of "
            "both arms since the 25 %% began.\n\n"
            "| candidate | found within 20 min | mean requests | median | 90 %% below | target for the mean |\n|---|---|---|---|---|---|\n",
            sim->rollouts);
    for (size_t i = 0; i < sizeof sim_found / sizeof *sim_found; i++) {
        const struct sim_found_row *row = &sim_found[i];
        // The stages before are of the A/A kind, so that the fault begins where it is measured.
        struct run_plan plan = {
                .stages = {{0.05, 60, 0, true}, {0.05, 120, 0, true}, {0.25, 1200, 0, false}},
                .count = 3,
                .rules = sim_rules(row->error_margin, row->p99_margin),
                .world = {1000, 1e-3, row->burst, 0, 0, 0},
                .fault = row->fault};
        struct run_result *results =
                run_many(&plan, sim->rollouts, 30000000 + 1000000 * i, sim->jobs);
        double *values = calloc((size_t)sim->rollouts, sizeof *values), sum = 0;
        int found = 0;
        char text[2][SIM_TEXT], target[SIM_TEXT];
        for (int k = 0; k < sim->rollouts; k++)
            if (results[k].failed_stage == 2) {
                values[found++] = results[k].failed_requests;
                sum += results[k].failed_requests;
            }
        double median = sim_quantile(values, found, sim->rollouts, 0.5);
        double most = sim_quantile(values, found, sim->rollouts, 0.9);
        double mean = found ? sum / found : INFINITY;
        bool kept = !(row->requests_max > 0) ||
                (mean <= row->requests_max && found >= 0.98 * sim->rollouts);
        fprintf(sim->file, "| %s | %.1f %% | %.0f | %s | %s | %s%s |\n", row->name,
                100.0 * found / sim->rollouts, mean, sim_number(median, text[0]),
                sim_number(most, text[1]),
                row->requests_max > 0 ? sim_number(row->requests_max, target) : "-",
                sim_mark(sim, kept));
        fflush(sim->file);
        free(values);
        run_free(results, sim->rollouts);
    }
}

static void sim_crash(struct sim *sim)
{
    struct run_plan plan = {.stages = {{0.05, 60, 0, true}, {0, 60, 0, false}},
            .count = 2,
            .rules = sim_rules(0.5, 0.05),
            .world = {1000, 1e-3, 4, 0, 0, 1},
            .fault = {1, 1, 20}};
    static const double shares[] = {0.01, 0.05, 0.25, 0.5};
    fprintf(sim->file,
            "\nA crash, all requests of the candidate fail from the 20th second of the stage on; seconds "
            "until the evidence or the tripwire (20 %%) rolls back, of %d rollouts:\n\n| share | median | worst | at "
            "most |\n|---|---|---|---|\n",
            sim->rollouts);
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
        plan.stages[1].share = shares[i];
        struct run_result *results =
                run_many(&plan, sim->rollouts, 60000000 + 100000 * i, sim->jobs);
        double *values = calloc((size_t)sim->rollouts, sizeof *values);
        int found = 0;
        for (int k = 0; k < sim->rollouts; k++) // rolled back before it crashed: not found
            if (results[k].failed_stage == 1 && results[k].failed_s > 20)
                values[found++] = results[k].failed_s - 20;
        double median = sim_quantile(values, found, sim->rollouts, 0.5);
        double worst = found ? values[found - 1] : INFINITY;
        bool kept =
                worst <= 1 && sim_at_most(1 - (double)found / sim->rollouts, 0.01, sim->rollouts);
        bool limited = shares[i] >= 0.25;
        fprintf(sim->file, "| %.0f %% | %.0f s | %.0f s | %s%s |\n", 100 * shares[i], median, worst,
                limited ? "1 s" : "-", sim_mark(sim, kept || !limited));
        free(values);
        run_free(results, sim->rollouts);
    }
}

struct sim_late_row {
    const char *name;
    struct stream_fault fault;
    double burst, drift, late_s;
};

// Rows of a candidate that turns bad in the last of these stages; its time there is late_s and 20
// minutes.
static void sim_late_rows(struct sim *sim, const struct sim_late_row *rows, size_t count,
        struct run_plan plan, uint64_t seed)
{
    int rollouts = sim->rollouts / 2, last = plan.count - 1;
    fprintf(sim->file,
            "| candidate | found within 20 min | median | 90 %% below | rolled back before |\n|---|---|---|---|---|\n");
    for (size_t i = 0; i < count; i++) {
        plan.stages[last].seconds = rows[i].late_s + 1200;
        plan.world = (struct stream_world){1000, 1e-3, rows[i].burst, 0, 0, rows[i].drift};
        plan.fault = rows[i].fault;
        plan.late_s = rows[i].late_s;
        struct run_result *results = run_many(&plan, rollouts, seed + 100000 * i, sim->jobs);
        double *values = calloc((size_t)rollouts, sizeof *values);
        int found = 0, before = 0;
        char text[2][SIM_TEXT];
        for (int k = 0; k < rollouts; k++) {
            bool late = results[k].failed_stage == last && results[k].failed_s > plan.late_s;
            before += results[k].failed_stage >= 0 && !late;
            if (late)
                values[found++] = results[k].failed_s - plan.late_s;
        }
        double median = sim_quantile(values, found, rollouts, 0.5);
        double most = sim_quantile(values, found, rollouts, 0.9);
        double false_rate = (double)before / rollouts;
        fprintf(sim->file, "| %s | %.1f %% | %s | %s | %.2f %%%s |\n", rows[i].name,
                100.0 * found / rollouts, sim_seconds(median, text[0]), sim_seconds(most, text[1]),
                100 * false_rate, sim_mark(sim, sim_at_most(false_rate, 0.01, rollouts)));
        fflush(sim->file);
        free(values);
        run_free(results, rollouts);
    }
}

// What turns bad must not have to outweigh how long it was good.
static void sim_late(struct sim *sim)
{
    static const struct sim_late_row rows[] = {{"error rate x2", {2, 1, 0}, 1, 0, 300},
            {"error rate x5", {5, 1, 0}, 1, 0, 300},
            {"error rate x5, drifting", {5, 1, 0}, 1, 1, 300},
            {"error rate x5, bursts of 4, drifting", {5, 1, 0}, 4, 1, 300},
            {"error rate x5, after half an hour", {5, 1, 0}, 1, 0, 1800},
            {"error rate x20", {20, 1, 0}, 1, 0, 300}, {"p99 +10 %", {1, 1.1, 0}, 1, 0, 300},
            {"p99 +20 %", {1, 1.2, 0}, 1, 0, 300}, {"p99 +20 %, drifting", {1, 1.2, 0}, 1, 1, 300},
            {"p99 +50 %", {1, 1.5, 0}, 1, 0, 300}};
    struct run_plan plan = {.stages = {{0.05, 60, 0, true}, {0.25, 0, 0, false}},
            .count = 2,
            .rules = sim_rules(0.5, 0.05)};
    fprintf(sim->file,
            "\n## Bad after five good minutes\n\n%d rollouts a row, at 25 %% of 1,000 requests/s; margins 50 %% and 5 %%; seconds "
            "since it turned bad. Rolled back before: while it was good.\n\n",
            sim->rollouts / 2);
    sim_late_rows(sim, rows, sizeof rows / sizeof *rows, plan, 200000000);
}

static void sim_alone(struct sim *sim)
{
    static const struct sim_late_row rows[] = {{"as the baseline", {1, 1, 0}, 4, 0, 1200},
            {"as the baseline, drifting", {1, 1, 0}, 4, 1, 1200},
            {"latency x1.5", {1, 1.5, 0}, 4, 0, 600}, {"latency x2.5", {1, 2.5, 0}, 4, 0, 600},
            {"latency x3, drifting", {1, 3, 0}, 4, 1, 600},
            {"latency x10, drifting", {1, 10, 0}, 4, 1, 600},
            {"error rate x5", {5, 1, 0}, 4, 0, 600}, {"error rate x10", {10, 1, 0}, 4, 0, 600},
            {"error rate x50, drifting", {50, 1, 0}, 4, 1, 600}};
    struct run_plan plan = {.stages = {{0.05, 60, 0, true}, {0.25, 300, 0, false},
                                    {0.5, 300, 0, false}, {1, 0, 0, false}},
            .count = 4,
            .rules = sim_rules(0.5, 0.1),
            .good_before = true};
    fprintf(sim->file,
            "\n## Bad at 100 %%\n\n%d rollouts a row: A/A 60 s, 25 %% and 50 %% of 1,000 requests/s for 300 s each, then 100 %%, where "
            "the candidate turns bad after 600 s (the first two rows: never, within 40 minutes). Nothing is left to compare with: twice the latency of the "
            "baseline's ten seconds, or four times its errors, for 30 s. Errors 0.1 %%, in bursts of 4; margins 50 %% and 10 %%.\n\n",
            sim->rollouts / 2);
    sim_late_rows(sim, rows, sizeof rows / sizeof *rows, plan, 400000000);
}

// Nothing was tuned to these.
static void sim_attacks(struct sim *sim)
{
    static const struct {
        const char *name;
        struct stream_world world;
        struct stream_fault fault;
        struct stream_odd odd;
        double late_s;
        bool passes_never;
    } rows[] = {{"equal, drifting", {1000, 1e-3, 1, 0, 0, 1}, {1, 1, 0}, {0, 0, 0, 0}, 0, false},
            {"20 % of the first second of each stage fail, then none", {1000, 1e-3, 1, 0, 0, 1},
                    {1, 1, 0}, {0, 0.2, 0, 0}, 0, false},
            {"2 % of the requests twice as slow", {1000, 1e-3, 1, 0, 0, 1}, {1, 2, 0},
                    {0.02, 0, 0, 0}, 0, false},
            {"2 % of the requests five times as slow", {1000, 1e-3, 1, 0, 0, 1}, {1, 5, 0},
                    {0.02, 0, 0, 0}, 0, false},
            {"0.5 % of the requests five times as slow", {1000, 1e-3, 1, 0, 0, 1}, {1, 5, 0},
                    {0.005, 0, 0, 0}, 0, false},
            {"errors and latency halved, after 300 s at 25 % errors x2", {1000, 1e-3, 1, 0, 0, 1},
                    {2, 0.5, 0}, {0, 0, 0.5, 0.5}, 300, false},
            {"latency -20 %, after 300 s at 25 % +10 %", {1000, 1e-3, 1, 0, 0, 1}, {1, 1.1, 0},
                    {0, 0, 0, 0.8}, 300, false},
            {"equal, 5 requests/s, errors 0.1 %", {5, 1e-3, 1, 0, 0, 0}, {1, 1, 0}, {0, 0, 0, 0}, 0,
                    true},
            {"equal, 5 requests/s, no error", {5, 0, 1, 0, 0, 0}, {1, 1, 0}, {0, 0, 0, 0}, 0, true},
            {"errors x5, 5 requests/s", {5, 1e-3, 1, 0, 0, 0}, {5, 1, 0}, {0, 0, 0, 0}, 0, true}};
    int rollouts = sim->rollouts / 5;
    fprintf(sim->file,
            "\n## What nothing was tuned to\n\n%d rollouts a row: A/A 60 s, 1 %% of the traffic for 600 s, 25 %% for 1,500 s; each would open 100 %%, margins "
            "50 %% and 5 %%. Seconds since the 25 %% began, or since it turned bad. Passed: all cells at some look (each 15 s).\n\n"
            "| candidate | rolled back at 1 %% | at 25 %% | median | passed at 1 %% | at 25 %% |\n|---|---|---|---|---|---|\n",
            rollouts);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct run_plan plan = {
                .stages = {{0.05, 60, 0, true}, {0.01, 600, 0, false}, {0.25, 1500, 0, false}},
                .count = 3,
                .rules = sim_rules(0.5, 0.05),
                .world = rows[i].world,
                .fault = rows[i].fault,
                .odd = rows[i].odd,
                .late_s = rows[i].late_s,
                .good_before = rows[i].late_s > 0,
                .cells_s = 15};
        struct run_result *results = run_many(&plan, rollouts, 300000000 + 100000 * i, sim->jobs);
        double *values = calloc((size_t)rollouts, sizeof *values);
        int found = 0, early = 0, passed[2] = {0, 0};
        char text[SIM_TEXT];
        for (int k = 0; k < rollouts; k++) {
            early += results[k].failed_stage == 1;
            if (results[k].failed_stage == 2)
                values[found++] = results[k].failed_s - plan.late_s;
            for (int stage = 0; stage < 2; stage++)
                passed[stage] += results[k].pass_s[1 + stage] > 0;
        }
        double median = found ? sim_quantile(values, found, found, 0.5) : INFINITY;
        bool kept = !rows[i].passes_never || passed[0] == 0;
        fprintf(sim->file, "| %s | %.1f %% | %.1f %% | %s | %.1f %%%s | %.1f %% |\n", rows[i].name,
                100.0 * early / rollouts, 100.0 * found / rollouts, sim_seconds(median, text),
                100.0 * passed[0] / rollouts, sim_mark(sim, kept), 100.0 * passed[1] / rollouts);
        fflush(sim->file);
        free(values);
        run_free(results, rollouts);
    }
}

static const struct sim_within_row {
    const char *name;
    struct stream_fault fault;
    bool limited; // at most alpha
} sim_within[] = {
        {"errors x1.125 (a quarter of the margin)", {1.125, 1, 0}, true},
        {"errors x1.25 (half)", {1.25, 1, 0}, false},
        {"errors x1.375 (three quarters)", {1.375, 1, 0}, false},
        {"errors x1.5 (exactly the margin)", {1.5, 1, 0}, false},
        {"p99 +2.5 % (a quarter)", {1, 1.025, 0}, true},
        {"p99 +5 % (half)", {1, 1.05, 0}, false},
        {"p99 +7.5 % (three quarters)", {1, 1.075, 0}, false},
        {"p99 +10 % (exactly the margin)", {1, 1.1, 0}, false},
};

static void sim_table_within(struct sim *sim)
{
    int rollouts = sim->rollouts / 2;
    fprintf(sim->file,
            "\n## Worse, but within the margin (errors 50 %%, p99 10 %%)\n\n%d rollouts a row through the stages above, "
            "errors in bursts of 4, drifting. Of what lies at the margin a test that decides "
            "soon must roll back some.\n\n| candidate | rolled back | at most |\n|---|---|---|\n",
            rollouts);
    for (size_t i = 0; i < sizeof sim_within / sizeof *sim_within; i++) {
        struct run_plan plan = {.count = SIM_STAGES,
                .rules = sim_rules(0.5, 0.1),
                .world = {1000, 1e-3, 4, 0, 0, 1},
                .fault = sim_within[i].fault};
        memcpy(plan.stages, sim_stages, sizeof sim_stages);
        struct run_result *results = run_many(&plan, rollouts, 80000000 + 1000000 * i, sim->jobs);
        int back = 0;
        for (int k = 0; k < rollouts; k++)
            back += results[k].failed_stage >= 0;
        double rate = (double)back / rollouts;
        bool kept = !sim_within[i].limited || sim_at_most(rate, 0.01, rollouts);
        fprintf(sim->file, "| %s | %.2f %% | %s%s |\n", sim_within[i].name, 100 * rate,
                sim_within[i].limited ? "1 %" : "-", sim_mark(sim, kept));
        fflush(sim->file);
        run_free(results, rollouts);
    }
}

// --- beside others -------------------------------------------------------------------------------

static const struct sim_judged_row {
    const char *name;
    struct stream_world world;
    struct stream_fault fault;
    double late_s;
} sim_judged[] = {
        {"equal, nothing drifts", {1000, 1e-3, 1, 0, 0, 0}, {1, 1, 0}, 0},
        {"equal, errors in bursts of 4, drifting", {1000, 1e-3, 4, 0, 0, 1}, {1, 1, 0}, 0},
        {"equal, errors 0.9 %, drifting", {1000, 9e-3, 1, 0, 0, 1}, {1, 1, 0}, 0},
        {"equal, 100 requests/s, errors in bursts of 4", {100, 1e-3, 4, 0, 0, 1}, {1, 1, 0}, 0},
        {"errors x1.25, drifting", {1000, 1e-3, 1, 0, 0, 1}, {1.25, 1, 0}, 0},
        {"errors x2, drifting", {1000, 1e-3, 1, 0, 0, 1}, {2, 1, 0}, 0},
        {"errors x5, drifting", {1000, 1e-3, 1, 0, 0, 1}, {5, 1, 0}, 0},
        {"p99 +5 %, drifting", {1000, 1e-3, 1, 0, 0, 1}, {1, 1.05, 0}, 0},
        {"p99 +10 %, drifting", {1000, 1e-3, 1, 0, 0, 1}, {1, 1.1, 0}, 0},
        {"p99 +20 %, drifting", {1000, 1e-3, 1, 0, 0, 1}, {1, 1.2, 0}, 0},
        {"crash after 10 min", {1000, 1e-3, 1, 0, 0, 1}, {1, 1, 600}, 0},
        {"errors x2 after 30 min, drifting", {1000, 1e-3, 1, 0, 0, 1}, {2, 1, 0}, 1800},
        {"errors x5 after 30 min, drifting", {1000, 1e-3, 1, 0, 0, 1}, {5, 1, 0}, 1800},
        {"errors x20 after 30 min, drifting", {1000, 1e-3, 1, 0, 0, 1}, {20, 1, 0}, 1800},
        {"p99 +20 % after 30 min, drifting", {1000, 1e-3, 1, 0, 0, 1}, {1, 1.2, 0}, 1800},
        {"p99 +50 % after 30 min, drifting", {1000, 1e-3, 1, 0, 0, 1}, {1, 1.5, 0}, 1800},
};
enum { SIM_JUDGES = 6 };

static void sim_table_judged(struct sim *sim)
{
    int rollouts = sim->rollouts / 10;
    fprintf(sim->file,
            "\n## Beside other judges\n\nThe same %d streams a row, one hour at 25 %% of the traffic, to six judges: rolled back, and "
            "the median time until then; for what turns bad after 30 minutes, since it did.\n\n"
            "* upgate: as above (margins 50 %% and 5 %%, A/A of 60 s before), a look a second, for the whole hour.\n"
            "* Kayenta, 1 h: its Mann-Whitney judge as released (98 %% interval, tolerance 0.25, direction increase, score below 75 fails) on error rate and "
            "p99 by the minute, judged once after an hour, as its guide asks for 50 points or more.\n"
            "* Kayenta, 10 min: the same judged every 10 minutes on what came since the begin.\n"
            "* Argo: success rate >= 99 %%, p99 <= 1.1 of the baseline's, by the minute, 5 measurements, failureLimit 0; and failureLimit 3; and "
            "without an end, for the whole hour, failureLimit 0.\n\n"
            "| traffic | upgate | Kayenta, 1 h | Kayenta, 10 min | Argo, limit 0 | Argo, limit 3 | Argo, the whole hour |\n|---|---|---|---|---|---|---|\n",
            rollouts);
    for (size_t i = 0; i < sizeof sim_judged / sizeof *sim_judged; i++) {
        struct run_plan plan = {.stages = {{0.25, 60, 0, true}, {0.25, 3600, 0, false}},
                .count = 2,
                .rules = sim_rules(0.5, 0.05),
                .world = sim_judged[i].world,
                .fault = sim_judged[i].fault,
                .late_s = sim_judged[i].late_s,
                .judges = true};
        struct run_result *results = run_many(&plan, rollouts, 120000000 + 1000000 * i, sim->jobs);
        double *values = calloc((size_t)rollouts, sizeof *values);
        fprintf(sim->file, "| %s |", sim_judged[i].name);
        for (int judge = 0; judge < SIM_JUDGES; judge++) {
            int found = 0;
            for (int k = 0; k < rollouts; k++) {
                const struct run_result *result = &results[k];
                double upgate = result->failed_stage >= 0 ? fmax(result->failed_s, 1) : 0;
                const double times[SIM_JUDGES] = {upgate, result->kayenta_s,
                        result->kayenta_often_s, result->fixed_s, result->fixed_patient_s,
                        result->fixed_always_s};
                if (times[judge] > plan.late_s)
                    values[found++] = times[judge] - plan.late_s;
            }
            double median = found ? sim_quantile(values, found, found, 0.5) : 0;
            fprintf(sim->file, found ? " %.1f %%, %.0f s |" : " %.1f %% |",
                    100.0 * found / rollouts, median);
        }
        fputc('\n', sim->file);
        fflush(sim->file);
        free(values);
        run_free(results, rollouts);
    }
}

// --- intervals -----------------------------------------------------------------------------------

static void sim_table_coverage(struct sim *sim)
{
    int rollouts = sim->rollouts / 2;
    static const struct {
        const char *name;
        struct stream_world world;
        struct stream_fault fault;
        double share;
    } rows[] = {
            {"25 %, errors x1.3, latency x1.07", {1000, 5e-3, 1, 0, 0, 0}, {1.3, 1.07, 0}, 0.25},
            {"25 %, bursts of 4, drifting", {1000, 5e-3, 4, 0, 0, 1}, {1.3, 1.07, 0}, 0.25},
            {"5 %, bursts of 4, drifting", {1000, 5e-3, 4, 0, 0, 1}, {1, 1, 0}, 0.05},
            {"50 %, 100 requests/s, errors x0.7, latency x0.93", {100, 2e-2, 1, 0, 0, 0},
                    {0.7, 0.93, 0}, 0.5},
    };
    fprintf(sim->file,
            "\n## Intervals\n\n%d rollouts a row, A/A of 60 s, then 600 s with a look each 5 s: how often an end of the confidence "
            "sequence (each at 1 %%) was on the wrong side of the truth at any look, lower / upper end.\n\n"
            "| traffic | error rate | p50 | p99 | mean |\n|---|---|---|---|---|\n",
            rollouts);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct run_plan plan = {.stages = {{0.05, 60, 0, true}, {rows[i].share, 600, 0, false}},
                .count = 2,
                .rules = sim_rules(50, 50), // no rollback ends the look
                .world = rows[i].world,
                .fault = rows[i].fault,
                .cells_s = 5};
        plan.rules.metrics[CANARY_LATENCY_P50] = plan.rules.metrics[CANARY_LATENCY_MEAN] =
                (struct canary_rule){false, true, 50, NAN};
        struct run_result *results = run_many(&plan, rollouts, 160000000 + 1000000 * i, sim->jobs);
        static const enum canary_metric metrics[] = {
                CANARY_ERROR_RATE, CANARY_LATENCY_P50, CANARY_LATENCY_P99, CANARY_LATENCY_MEAN};
        fprintf(sim->file, "| %s |", rows[i].name);
        for (size_t m = 0; m < sizeof metrics / sizeof *metrics; m++) {
            int low = 0, high = 0;
            for (int k = 0; k < rollouts; k++) {
                low += results[k].missed_low[metrics[m]];
                high += results[k].missed_high[metrics[m]];
            }
            double worst = (double)(low > high ? low : high) / rollouts;
            fprintf(sim->file, " %.2f / %.2f %%%s |", 100.0 * low / rollouts,
                    100.0 * high / rollouts, sim_mark(sim, sim_at_most(worst, 0.01, rollouts)));
        }
        fputc('\n', sim->file);
        fflush(sim->file);
        run_free(results, rollouts);
    }
}

static void sim_power(struct sim *sim)
{
    fprintf(sim->file, "\n## Power by itself\n");
    grid_counts(sim->file, sim->rollouts, sim->jobs);
}

static void sim_all(struct sim *sim)
{
    fprintf(sim->file,
            "# The canary's evidence, simulated\n\n"
            "Written by `canary_sim --write docs/CANARY-SIM.md` (ci/sim/canary_sim.c); seeded, so that the same command "
            "gives the same numbers. It exits with 1 where a limit of a table is missed by more than three "
            "standard errors of the simulation. alpha is 1 %% of a rollout.\n");
    static void (*const tables[])(struct sim *) = {sim_table_equal, sim_table_found, sim_crash,
            sim_table_within, sim_table_judged, sim_table_coverage, sim_power, sim_late,
            sim_attacks, sim_alone};
    for (int i = 0; i < (int)(sizeof tables / sizeof *tables); i++)
        if (sim->table < 0 || sim->table == i)
            tables[i](sim);
    if (sim->table >= 0)
        return; // the speed is a matter of clocks: of the whole document only
    fprintf(sim->file, "\n## Speed\n");
    sim->ok &= grid_speed(sim->file);
}

static int sim_usage(void)
{
    fputs("usage: canary_sim [--rollouts N, at least 100] [--jobs N, 1 to 64] [--table 0..9] [--write FILE]\n",
            stderr);
    return 2;
}

int main(int argc, char **argv)
{
    struct sim sim = {.file = stdout, .rollouts = 1000, .jobs = 2, .table = -1, .ok = true};
    const char *path = NULL;
    for (int at = 1; at < argc; at += 2) {
        const char *value = at + 1 < argc ? argv[at + 1] : NULL;
        if (!value)
            return sim_usage();
        if (!strcmp(argv[at], "--rollouts"))
            sim.rollouts = atoi(value);
        else if (!strcmp(argv[at], "--jobs"))
            sim.jobs = atoi(value);
        else if (!strcmp(argv[at], "--table"))
            sim.table = atoi(value);
        else if (!strcmp(argv[at], "--write"))
            path = value;
        else
            return sim_usage();
    }
    if (sim.rollouts < 100 || sim.jobs < 1 || sim.jobs > 64)
        return sim_usage();
    if (path && !(sim.file = fopen(path, "w"))) {
        perror("canary_sim: cannot write the file");
        return 4;
    }
    sim_all(&sim);
    if (path && fclose(sim.file)) {
        perror("canary_sim: cannot write the file");
        return 4;
    }
    return sim.ok ? 0 : 1;
}
