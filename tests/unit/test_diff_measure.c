// SPDX-License-Identifier: Apache-2.0
// What untraced launches say of a step: of the sides' own pairs alone. Control pairs, the baseline
// against itself, tell nothing of the candidate.
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reports/analyse/diff/estimate/estimate.h"
#include "tests/unit/runner.h"

enum { US = 1000, PAIRS = 10, CONTROLS = 12 };

static struct store *store;
static struct diff_input input;
static struct diff_notes notes;
static struct diff_untraced measured;
static int pair_count, launch_count;

static void sql(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void sql(const char *fmt, ...)
{
    char *text = NULL, *why = NULL;
    va_list args;
    va_start(args, fmt);
    CHECK(vasprintf(&text, fmt, args) > 0);
    va_end(args);
    if (sqlite3_exec(store_db(store), text, NULL, NULL, &why)) {
        printf("%s: %s\n", text, why);
        exit(1);
    }
    free(text);
}

// Steps of 10 ms of side a, and of side b of so many us, every 20th of which takes so much longer.
static void pairs(const char *phase, int count, int b_us, int slow_us)
{
    for (int i = 0; i < count; i++) {
        sql("INSERT INTO pair VALUES (%d, 1, %d, '%s', 1, 0, 'steps', 40, 'valid', NULL, NULL, 1, 2)",
                ++pair_count, i, phase);
        for (int side = 0; side < 2; side++) {
            sql("INSERT INTO launch (id, pair_id, side, state, started_ns, ended_ns, covariates) VALUES (%d, %d, %d, 'ok', 0, 1000, '{}')",
                    ++launch_count, pair_count, side);
            sql("WITH RECURSIVE i (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM i WHERE n < 39) INSERT INTO step (launch_id, rank, idx, begin_ns, dur_ns) "
                "SELECT %d, 0, n, n * 1000000000, %d + (n %% 20 = 10) * %d FROM i",
                    launch_count, (side ? b_us : 10000) * US, (side ? slow_us : 0) * US);
        }
    }
}

static void begin(void)
{
    struct error err = {0};
    CHECK_INT(store_open("", STORE_CREATE, &store, &err), 0);
    sql("INSERT INTO side VALUES (0, 'old', '{}', NULL), (1, 'new', '{}', NULL)");
    sql("INSERT INTO workload (id, name, mode) VALUES (1, 'w', 'train')");
    pair_count = launch_count = 0;
    input = (struct diff_input){
            .store = store, .workload = "w", .workload_id = 1, .arena = arena_new()};
    notes = (struct diff_notes){.arena = input.arena};
}

static const struct diff_untraced *measure(void)
{
    struct error err = {0};
    CHECK_INT(diff_measure(&input, &notes, &measured, &err), 0);
    return &measured;
}

static void end(void)
{
    arena_free(input.arena);
    store_close(store);
}

static void judged(void)
{
    sql("INSERT INTO cell (workload, metric, unit, direction, gating, median_a, ratio, ci_lower, ci_upper, alpha, pairs, verdict, improved, reason) "
        "VALUES ('w', 'step_time', 'ns', 'lower', 1, 1e7, 1.0, 0.998, 1.002, 0.01, 10, 'pass', 0, '')");
}

// Two steps of 35 that count take 100 ms longer: the mean by 57 %.
TEST(the_mean_step_is_of_both_sides_pairs)
{
    static const char *const others[] = {NULL, "control", "anchor", "pilot"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        begin();
        judged();
        pairs("main", PAIRS, 10000, 100000);
        if (others[i])
            pairs(others[i], CONTROLS, 10100, 0);
        const struct diff_untraced *untraced = measure();
        CHECK(untraced->mean);
        CHECK_INT(untraced->ratio_count, PAIRS);
        CHECK_DBL(untraced->step[0], 1e7, 1);
        CHECK_DBL(untraced->step[1] / untraced->step[0], 1 + 20.0 / 35, 1e-6);
        CHECK_INT(notes.count, 1);
        CHECK_INT(notes.all[0].kind, DIFF_NOTE_MEAN);
        CHECK_DBL(notes.all[0].share[0], 20.0 / 35, 1e-6);
        CHECK_DBL(notes.all[0].share[1], 0, 1e-6);
        end();
    }
}

TEST(a_control_makes_no_tail)
{
    begin();
    judged();
    pairs("main", PAIRS, 10000, 0);
    pairs("control", CONTROLS, 10000, 100000); // whatever befell it
    const struct diff_untraced *untraced = measure();
    CHECK(!untraced->mean);
    CHECK_DBL(untraced->delta, 0, 1);
    CHECK_INT(notes.count, 0);
    end();
}

// Interrupted before it was judged.
TEST(without_a_cell_the_steps_of_both_sides_pairs_count)
{
    begin();
    pairs("main", 4, 12000, 0);
    pairs("confirm", 2, 12000, 0);
    pairs("control", CONTROLS, 10100, 0);
    const struct diff_untraced *untraced = measure();
    CHECK_STR(untraced->unit, "step");
    CHECK_DBL(untraced->step[1] / untraced->step[0], 1.2, 1e-6);
    CHECK_INT(untraced->ratio_count, 6);
    CHECK_INT(notes.all[0].kind, DIFF_NOTE_NOT_JUDGED);
    end();
    begin(); // of controls alone nothing is known
    pairs("control", CONTROLS, 10100, 0);
    CHECK(isnan(measure()->delta));
    end();
}

TEST(traced_launches_stand_in_where_there_are_no_others)
{
    begin();
    pairs("control", CONTROLS, 10100, 0);
    pairs("traced", 2, 11000, 0);
    const struct diff_untraced *untraced = measure();
    CHECK_DBL(untraced->step[1] / untraced->step[0], 1.1, 1e-6);
    CHECK_INT(untraced->ratio_count, 0);
    CHECK_INT(notes.all[0].kind, DIFF_NOTE_TRACED_ONLY);
    end();
}
