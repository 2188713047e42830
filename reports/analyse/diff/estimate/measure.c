// SPDX-License-Identifier: Apache-2.0
// What the untraced launches say: how long a step takes on either side, how sure that is, how far
// launches of one side differ from each other. Reads the judged cells; where a run was interrupted
// before it was judged, the steps themselves. The contributions are scaled to these numbers:
// tracing costs both sides something, and not the same.
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/containers/vector.h"
#include "common/strings.h"
#include "reports/analyse/diff/estimate/estimate.h"
#include "reports/analyse/diff/thresholds.h"
#include "reports/analyse/mean_interval.h"
#include "reports/analyse/quantile.h"

enum { MEASURE_COLD_STEPS = 5 };

static const struct diff_cell measure_none = {
        .a = NAN, .ratio = NAN, .lo = NAN, .hi = NAN, .margin = NAN, .unit = ""};

static bool measure_usable(const struct diff_cell *cell)
{
    return isfinite(cell->a) && cell->a > 0 && isfinite(cell->ratio) && cell->ratio > 0;
}

int diff_cells(
        const struct diff_input *input, struct diff_cell cells[METRIC_COUNT], struct error *err)
{
    for (int i = 0; i < METRIC_COUNT; i++)
        cells[i] = measure_none;
    sqlite3_stmt *stmt = store_query(input->store, err,
            "SELECT metric, median_a, ratio, ci_lower, ci_upper, margin, gating, verdict, unit FROM cell WHERE workload = ?",
            "s", input->workload);
    int rc;
    while ((rc = store_step(input->store, stmt, err)) > 0) {
        const char *metric = (const char *)sqlite3_column_text(stmt, 0),
                   *verdict = (const char *)sqlite3_column_text(stmt, 7);
        const char *unit = (const char *)sqlite3_column_text(stmt, 8);
        const struct diff_cell cell = {.a = store_double(stmt, 1),
                .ratio = store_double(stmt, 2),
                .lo = store_double(stmt, 3),
                .hi = store_double(stmt, 4),
                .margin = store_double(stmt, 5),
                .gates = sqlite3_column_int(stmt, 6),
                .fails = verdict && strcmp(verdict, "fail") == 0,
                .inconclusive = verdict && strcmp(verdict, "inconclusive") == 0,
                .unit = arena_copy(input->arena, unit ? unit : "")};
        for (int i = 0; i < METRIC_COUNT && metric; i++)
            if (strcmp(metric, metric_infos[i].name) == 0)
                cells[i] = cell;
    }
    return rc;
}

static void measure_take(
        struct diff_untraced *untraced, const struct diff_cell *cell, const char *unit)
{
    untraced->unit = unit;
    untraced->step[0] = cell->a;
    untraced->step[1] = cell->a * cell->ratio;
    untraced->delta = cell->a * (cell->ratio - 1);
    untraced->lo = cell->a * (cell->lo - 1);
    untraced->hi = cell->a * (cell->hi - 1);
}

static int measure_ratios(const struct diff_input *input, const char *metric,
        struct diff_untraced *untraced, struct error *err)
{
    sqlite3_stmt *stmt = store_query(input->store, err,
            "SELECT r.log_ratio FROM pair_ratio r JOIN pair p ON p.id = r.pair_id "
            "WHERE p.workload_id = ? AND r.metric = ? AND p.state = 'valid' "
            "AND p.phase IN ('main', 'confirm') ORDER BY p.id LIMIT 4096",
            "is", input->workload_id, metric);
    if (!stmt)
        return err->code;
    untraced->ratios = arena_alloc(input->arena, 4096, sizeof *untraced->ratios);
    int rc;
    while ((rc = store_step(input->store, stmt, err)) > 0 && untraced->ratio_count < 4096) {
        double ratio = store_double(stmt, 0);
        if (isfinite(ratio))
            untraced->ratios[untraced->ratio_count++] = ratio;
    }
    if (rc > 0)
        sqlite3_reset(stmt);
    return rc < 0 ? rc : 0;
}

struct measure_launch {
    int64_t pair;
    int side;
    double median, mean;
};

static void measure_close(struct measure_launch *launch, double *steps, size_t count)
{
    size_t skip = count > 4 * MEASURE_COLD_STEPS ? MEASURE_COLD_STEPS : count > 1;
    launch->median = quantile_median(steps + skip, count - skip);
    launch->mean = quantile_mean(steps + skip, count - skip);
}

// Those that were judged, or the traced ones: of a control both launches are the baseline's.
#define MEASURE_PAIRS \
    "p.workload_id = ? AND p.state = 'valid' AND CASE WHEN ? THEN p.phase = 'traced' ELSE p.phase IN ('main', 'confirm') END"
// On a GPU the steps of a block are launched one after the other and the last one waits for all:
// only a block as a whole tells.
static const char *const measure_queries[] = {
        "SELECT l.id, p.id, l.side, 1.0 * b.active_ns / b.steps AS step_ns FROM pair p JOIN launch l ON l.pair_id "
        "= p.id JOIN block b ON "
        "b.pair_id = p.id AND b.side = l.side WHERE b.steps > 0 AND " MEASURE_PAIRS
        " ORDER BY l.id, b.couple",
        "SELECT l.id, p.id, l.side, s.dur_ns FROM pair p JOIN launch l ON l.pair_id = p.id JOIN step s "
        "ON s.launch_id = l.id "
        "WHERE s.rank = 0 AND " MEASURE_PAIRS " ORDER BY l.id, s.idx",
};

// Launches with their blocks, or with their steps (of rank 0) where they took no turns; of the
// traced pairs or of those that were judged.
static int measure_query(const struct diff_input *input, const char *query, bool traced,
        struct measure_launch **ret, size_t *ret_count, struct error *err)
{
    sqlite3_stmt *stmt =
            store_query(input->store, err, query, "ii", input->workload_id, (int64_t)traced);
    if (!stmt)
        return err->code;
    struct measure_launch *launches = NULL;
    double *steps = NULL;
    size_t count = 0, step_count = 0;
    int64_t last = 0;
    int rc;
    while ((rc = store_step(input->store, stmt, err)) > 0) {
        int64_t id = sqlite3_column_int64(stmt, 0);
        if (count == 0 || id != last) {
            if (count)
                measure_close(&launches[count - 1], steps, step_count);
            vector_push(launches, count,
                    (struct measure_launch){.pair = sqlite3_column_int64(stmt, 1),
                            .side = sqlite3_column_int(stmt, 2) == 1});
            last = id;
            step_count = 0;
        }
        vector_push(steps, step_count, sqlite3_column_double(stmt, 3));
    }
    if (count)
        measure_close(&launches[count - 1], steps, step_count);
    free(steps);
    *ret = launches;
    *ret_count = count;
    return rc < 0 ? rc : 0;
}

static int measure_launches(const struct diff_input *input, bool traced,
        struct measure_launch **ret, size_t *ret_count, struct error *err)
{
    int rc = 0;
    *ret_count = 0;
    for (size_t i = 0;
            i < sizeof measure_queries / sizeof *measure_queries && rc == 0 && *ret_count == 0; i++)
        rc = measure_query(input, measure_queries[i], traced, ret, ret_count, err);
    return rc;
}

enum measure_what { MEASURE_MEDIAN, MEASURE_MEAN };

static double measure_value(const struct measure_launch *launch, enum measure_what what)
{
    return what == MEASURE_MEDIAN ? launch->median : launch->mean;
}

struct measure_made { // a cell of launches
    struct diff_cell cell;
    double *ratios; // ln(b / a) of its pairs, in the arena
    size_t ratio_count;
};

// The cell that the gate would make of these launches, roughly: median over launches, mean of the
// pairs' log ratios.
static struct measure_made measure_make(struct arena *arena, const struct measure_launch *launches,
        size_t count, enum measure_what what)
{
    struct measure_made made = {
            .cell = measure_none, .ratios = arena_alloc(arena, count + 1, sizeof *made.ratios)};
    double *values = xcalloc(count + 1, sizeof *values), medians[2];
    for (int side = 0; side < 2; side++) {
        size_t n = 0;
        for (size_t i = 0; i < count; i++)
            if (launches[i].side == side && measure_value(&launches[i], what) > 0)
                values[n++] = measure_value(&launches[i], what);
        medians[side] = quantile_median(values, n);
    }
    free(values);
    for (size_t i = 0; i + 1 < count; i++) { // launches of a pair stand side by side
        const struct measure_launch *x = &launches[i], *y = &launches[i + 1];
        double vx = measure_value(x, what), vy = measure_value(y, what);
        if (x->pair == y->pair && x->side != y->side && vx > 0 && vy > 0)
            made.ratios[made.ratio_count++] = x->side ? log(vx / vy) : log(vy / vx);
    }
    made.cell.a = medians[0];
    made.cell.ratio = made.ratio_count ? exp(quantile_mean(made.ratios, made.ratio_count))
                                       : medians[1] / medians[0];
    struct interval interval = mean_interval(made.ratios, (int)made.ratio_count, measure_alpha);
    if (interval.has_bounds) {
        made.cell.lo = exp(interval.lower);
        made.cell.hi = exp(interval.upper);
    }
    return made;
}

static void measure_take_made(struct diff_untraced *untraced, const struct measure_made *made)
{
    measure_take(untraced, &made->cell, "step");
    untraced->ratios = made->ratios;
    untraced->ratio_count = made->ratio_count;
}

// No cell: the run was not judged. Its steps say the same, less surely.
static int measure_steps(const struct diff_input *input, bool traced,
        struct diff_untraced *untraced, struct diff_notes *notes, struct error *err)
{
    struct measure_launch *launches = NULL;
    struct measure_made made = {.cell = measure_none};
    size_t count = 0;
    int rc = measure_launches(input, traced, &launches, &count, err);
    if (rc == 0)
        made = measure_make(input->arena, launches, count, MEASURE_MEDIAN);
    if (measure_usable(&made.cell)) {
        measure_take_made(untraced, &made);
        if (traced) // it is the traced pairs that say how far they are apart, and they are asked
            untraced->ratio_count = 0;
        if (!isfinite(made.cell.lo))
            untraced->lo = untraced->hi = NAN;
        diff_note(notes,
                (struct diff_note){.kind = traced ? DIFF_NOTE_TRACED_ONLY : DIFF_NOTE_NOT_JUDGED});
    }
    free(launches);
    return rc;
}

// Does the mean step change by another factor than the median does, in all pairs? 97.5 % a side: it
// only picks what is explained.
static bool measure_tail_differs(const struct measure_launch *launches, size_t count)
{
    double *apart = xcalloc(count + 1, sizeof *apart);
    size_t pairs = 0;
    for (size_t i = 0; i + 1 < count; i++) {
        const struct measure_launch *x = &launches[i], *y = &launches[i + 1];
        double value = log(y->mean / x->mean) - log(y->median / x->median);
        if (x->pair == y->pair && x->side != y->side && isfinite(value))
            apart[pairs++] = x->side ? -value : value;
    }
    struct interval interval = mean_interval(apart, (int)pairs, measure_tail_alpha);
    double mean = quantile_mean(apart, pairs);
    free(apart);
    return interval.has_bounds && interval.lower * interval.upper > 0 && fabs(mean) > measure_tail;
}

// The median says what most steps do. What hits few of them moves the mean only, and then the mean
// is what is explained. (The cell of the throughput cannot tell: its ratio is of couples, and as
// robust as the median's.)
static bool measure_is_mean(
        const struct diff_cell *mean, const struct diff_cell *step, bool differs)
{
    double apart = fabs(log(mean->ratio / step->ratio));
    bool outside = isfinite(mean->lo) && (step->ratio < mean->lo || step->ratio > mean->hi);
    return apart > measure_tail && (differs || (outside && apart > measure_tail_far));
}

static int measure_mean(const struct diff_input *input, const struct diff_cell *step,
        struct diff_untraced *untraced, struct diff_notes *notes, struct error *err)
{
    struct measure_launch *launches = NULL;
    struct measure_made mean = {.cell = measure_none};
    size_t count = 0;
    int rc = measure_launches(input, false, &launches, &count, err);
    bool differs = rc == 0 && measure_tail_differs(launches, count);
    if (rc == 0)
        mean = measure_make(input->arena, launches, count, MEASURE_MEAN);
    free(launches);
    if (!measure_usable(&mean.cell) || !measure_is_mean(&mean.cell, step, differs))
        return rc;
    measure_take_made(untraced, &mean);
    untraced->mean = true;
    diff_note(notes,
            (struct diff_note){
                    .kind = DIFF_NOTE_MEAN, .share = {mean.cell.ratio - 1, step->ratio - 1}});
    return 0;
}

static struct diff_untraced_once measure_once(const struct diff_cell *cell)
{
    if (!measure_usable(cell))
        return (struct diff_untraced_once){{NAN, NAN}, NAN, NAN};
    return (struct diff_untraced_once){
            {cell->a, cell->a * cell->ratio}, cell->a * (cell->lo - 1), cell->a * (cell->hi - 1)};
}

int diff_measure(const struct diff_input *input, struct diff_notes *notes,
        struct diff_untraced *untraced, struct error *err)
{
    static const struct {
        enum metric_id metric;
        const char *unit;
    } typical[] = {{METRIC_STEP_TIME, "step"}, {METRIC_LATENCY_P50, "request"},
            {METRIC_TOTAL_TIME, "launch"}};
    struct diff_cell cells[METRIC_COUNT];
    int rc = diff_cells(input, cells, err);
    *untraced = (struct diff_untraced){.unit = "step",
            .step = {NAN, NAN},
            .delta = NAN,
            .lo = NAN,
            .hi = NAN,
            .cold = measure_once(&cells[METRIC_FIRST_STEP_TIME]),
            .cpu = measure_once(&cells[METRIC_CPU_TIME])};
    int64_t steps = 0;
    struct error none = {0};
    bool has_steps = store_get_int(input->store, &steps, &none,
                             "SELECT 1 FROM step s JOIN launch l ON l.id = s.launch_id JOIN "
                             "pair p ON p.id = l.pair_id "
                             "WHERE p.workload_id = ? LIMIT 1",
                             "i", input->workload_id) == 0;
    for (size_t i = 0; i < sizeof typical / sizeof *typical && rc == 0 && isnan(untraced->delta);
            i++) {
        const struct diff_cell *cell = &cells[typical[i].metric];
        // without a cell of the steps the run was not judged; its steps say more
        if (typical[i].metric == METRIC_TOTAL_TIME && has_steps)
            break;
        if (!measure_usable(cell))
            continue;
        measure_take(untraced, cell, typical[i].unit);
        untraced->launches = typical[i].metric == METRIC_TOTAL_TIME;
        rc = measure_ratios(input, metric_infos[typical[i].metric].name, untraced, err);
        if (rc == 0 && typical[i].metric == METRIC_STEP_TIME)
            rc = measure_mean(input, cell, untraced, notes, err);
    }
    if (rc == 0 && isnan(untraced->delta) && has_steps)
        rc = measure_steps(input, false, untraced, notes, err);
    if (rc == 0 && isnan(untraced->delta) && has_steps)
        rc = measure_steps(input, true, untraced, notes, err);
    return rc;
}
