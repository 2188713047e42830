// SPDX-License-Identifier: Apache-2.0
// Seconds of both arms into buckets for the charts and sums for the tables; cells into one series a
// metric and stage. Reads tables rollout_second and rollout_cell; a rollout of days costs no more
// memory than one of minutes.
#include <stdlib.h>
#include <string.h>

#include "common/containers/vector.h"
#include "common/strings.h"
#include "reports/render/rollout/rollout_data.h"
#include "reports/render/rollout/rollout_words.h"

// Widths whose borders people know. The last holds for centuries.
static const int64_t series_widths[] = {1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600,
        7200, 21600, 43200, 86400, 604800, 2592000, 31536000};
static const int64_t series_at_max = INT64_C(1) << 33;       // s since 1970: the year 2242
static const int64_t series_requests_max = INT64_C(1) << 40; // of one second

static void series_quantiles(struct rollout_arm *arm)
{
    arm->p50_s = canary_quantile(&arm->sum, 0.5);
    arm->p99_s = canary_quantile(&arm->sum, 0.99);
}

static int64_t series_width(int64_t span_s)
{
    size_t at = 0;
    while (at + 1 < sizeof series_widths / sizeof *series_widths &&
            span_s / series_widths[at] >= ROLLOUT_BUCKETS_MAX)
        at++;
    return series_widths[at];
}

static int series_span(struct rollout_view *view, int64_t *ret_last, struct error *err)
{
    sqlite3_stmt *stmt =
            store_query(view->store, err, "SELECT min(at_s), max(at_s) FROM rollout_second", "");
    int rc = stmt ? store_step(view->store, stmt, err) : err->code;
    if (rc <= 0)
        return rc;
    bool empty = sqlite3_column_type(stmt, 0) == SQLITE_NULL;
    int64_t first = sqlite3_column_int64(stmt, 0), last = sqlite3_column_int64(stmt, 1);
    sqlite3_reset(stmt);
    *ret_last = last;
    if (empty)
        return 0;
    // A text sorts behind every number and reads as 0.
    if (first < 0 || last < first || last > series_at_max)
        return rollout_refuse(view, err, "it has requests of second %lld and of second %lld",
                (long long)first, (long long)last);
    view->width_s = series_width(last - first);
    view->from_s = first - first % view->width_s;
    size_t count = (size_t)((last - view->from_s) / view->width_s + 1);
    view->buckets = xcalloc(count, sizeof *view->buckets);
    view->bucket_count = count;
    return 1;
}

static int series_second(
        struct rollout_view *view, sqlite3_stmt *stmt, struct canary_second *ret, struct error *err)
{
    const int64_t at = sqlite3_column_int64(stmt, 0), arm = sqlite3_column_int64(stmt, 1);
    int64_t counts[5]; // requests, errors, truncated, wrong, rejected
    for (int i = 0; i < 5; i++)
        counts[i] = sqlite3_column_int64(stmt, i < 4 ? 3 + i : 8);
    // a text between numbers
    if (at < view->from_s || (uint64_t)((at - view->from_s) / view->width_s) >= view->bucket_count)
        return rollout_refuse(view, err, "second %lld lies outside of all seconds", (long long)at);
    if (arm < 0 || arm >= CANARY_ARMS)
        return rollout_refuse(
                view, err, "second %lld has an arm %lld", (long long)at, (long long)arm);
    for (int i = 0; i < 5; i++)
        if (counts[i] < 0 || counts[i] > (i ? counts[0] : series_requests_max))
            return rollout_refuse(view, err,
                    "second %lld has %lld requests, %lld errors, %lld of them cut off, %lld wrong answers, %lld rejected",
                    (long long)at, (long long)counts[0], (long long)counts[1], (long long)counts[2],
                    (long long)counts[3], (long long)counts[4]);
    ret->requests = (uint64_t)counts[0];
    ret->errors = (uint64_t)counts[1];
    ret->truncated = (uint64_t)counts[2];
    ret->wrong = (uint64_t)counts[3];
    ret->rejected = (uint64_t)counts[4];
    int size = sqlite3_column_bytes(stmt, 7);
    if (canary_unpack(sqlite3_column_blob(stmt, 7), (size_t)size, ret->bins))
        return rollout_refuse(
                view, err, "the latencies of second %lld are no packed bins", (long long)at);
    return 0;
}

// A second with the bins that hold anything: some dozens of the thousand, and days have hundreds of
// thousands of seconds.
enum { SERIES_STRIDE = 32 };
_Static_assert(CANARY_BINS % SERIES_STRIDE == 0, "whole strides");
struct series_second {
    struct canary_second second;
    uint16_t filled[CANARY_BINS];
    int count;
};

static void series_find(struct series_second *sparse)
{
    const uint32_t *bins = sparse->second.bins;
    sparse->count = 0;
    for (int from = 0; from < CANARY_BINS; from += SERIES_STRIDE) {
        uint32_t any = 0;
        for (int i = 0; i < SERIES_STRIDE; i++)
            any |= bins[from + i];
        for (int i = from; any && i < from + SERIES_STRIDE; i++)
            if (bins[i])
                sparse->filled[sparse->count++] = (uint16_t)i;
    }
}

// As canary_second_add().
static void series_add(struct canary_second *sum, const struct series_second *more)
{
    sum->requests += more->second.requests;
    sum->errors += more->second.errors;
    sum->truncated += more->second.truncated;
    sum->wrong += more->second.wrong;
    sum->rejected += more->second.rejected;
    for (int i = 0; i < more->count; i++) {
        uint32_t *bin = &sum->bins[more->filled[i]], add = more->second.bins[more->filled[i]];
        *bin += add < UINT32_MAX - *bin ? add : UINT32_MAX - *bin;
    }
}

// The second baseline of an A/A stage is told as the candidate: its requests are the baseline's.
// Mirrored ones are no user's.
static void series_count(struct rollout_view *view, int64_t stage_number, int arm,
        const struct series_second *second)
{
    struct rollout_view_stage *stage = NULL;
    for (size_t i = 0; i < view->stage_count; i++)
        if (view->stages[i].number == stage_number)
            stage = &view->stages[i];
    if (stage)
        series_add(&stage->arms[arm].sum, second);
    if (!stage || !stage->shadow)
        series_add(&view->arms[stage && stage->aa ? CANARY_BASELINE : arm].sum, second);
}

int rollout_load_seconds(struct rollout_view *view, struct error *err)
{
    int64_t last = 0;
    int rc = series_span(view, &last, err);
    sqlite3_stmt *stmt = NULL;
    struct series_second *second = xcalloc(1, sizeof *second);
    if (rc > 0) {
        stmt = store_query(view->store, err,
                "SELECT at_s, arm, stage, requests, errors, truncated, wrong, bins, rejected FROM rollout_second",
                "");
        rc = stmt ? 0 : err->code;
    }
    while (stmt && (rc = store_step(view->store, stmt, err)) > 0) {
        if ((rc = series_second(view, stmt, &second->second, err))) {
            sqlite3_reset(stmt);
            break;
        }
        int arm = sqlite3_column_int(stmt, 1);
        size_t bucket = (size_t)((sqlite3_column_int64(stmt, 0) - view->from_s) / view->width_s);
        series_find(second);
        series_add(&view->buckets[bucket].arms[arm].sum, second);
        series_count(view, sqlite3_column_int64(stmt, 2), arm, second);
    }
    free(second);
    for (int arm = 0; arm < CANARY_ARMS; arm++) {
        series_quantiles(&view->arms[arm]);
        for (size_t i = 0; i < view->bucket_count; i++)
            series_quantiles(&view->buckets[i].arms[arm]);
        for (size_t i = 0; i < view->stage_count; i++)
            series_quantiles(&view->stages[i].arms[arm]);
    }
    return rc;
}

static struct rollout_series *series_of(
        struct rollout_view *view, int64_t stage, const char *metric)
{
    if (view->series_count) { // rows come metric by metric
        struct rollout_series *last = &view->series[view->series_count - 1];
        if (last->stage == stage && strcmp(last->metric, metric) == 0)
            return last;
    }
    vector_push(view->series, view->series_count,
            (struct rollout_series){.stage = stage, .metric = rollout_keep(view, xstrdup(metric))});
    return &view->series[view->series_count - 1];
}

// Half of the points: every second one, the newest kept.
static void series_thin(struct rollout_series *series)
{
    size_t kept = 0;
    for (size_t i = (series->count - 1) % 2; i < series->count; i += 2)
        series->points[kept++] = series->points[i];
    series->count = kept;
}

static int series_cell(struct rollout_view *view, sqlite3_stmt *stmt, struct error *err)
{
    const char *metric = store_text(view->store, stmt, 1),
               *word = store_text(view->store, stmt, 12);
    int verdict = rollout_verdict_by_word(word);
    if (verdict < 0)
        return rollout_refuse(view, err, "the verdict of '%.60s' is '%.60s'", metric, word);
    struct rollout_point point = {.at_s = sqlite3_column_int64(stmt, 2),
            .requests = store_int64(stmt, 10, -1),
            .missing = store_int64(stmt, 11, -1),
            .verdict = (enum rollout_verdict)verdict};
    double *const numbers[] = {&point.value, &point.low, &point.high, &point.threshold,
            &point.evidence, &point.needed, &point.dispersion};
    for (int i = 0; i < 7; i++)
        *numbers[i] = rollout_column_double(stmt, 3 + i);
    if (point.at_s < 0 || point.at_s > series_at_max)
        return rollout_refuse(
                view, err, "evidence of '%.60s' is of second %lld", metric, (long long)point.at_s);
    struct rollout_series *series = series_of(view, sqlite3_column_int64(stmt, 0), metric);
    if (series->count == 2 * ROLLOUT_POINTS_MAX)
        series_thin(series);
    if (!series->points)
        series->points = xcalloc(2 * ROLLOUT_POINTS_MAX, sizeof *series->points);
    series->points[series->count++] = point;
    return 0;
}

int rollout_load_cells(struct rollout_view *view, struct error *err)
{
    sqlite3_stmt *stmt = store_query(view->store, err,
            "SELECT stage, metric, at_s, value, low, high, threshold, evidence, needed, dispersion, requests, missing, verdict FROM rollout_cell"
            " ORDER BY stage, metric, at_s",
            "");
    int rc;
    while ((rc = store_step(view->store, stmt, err)) > 0)
        if ((rc = series_cell(view, stmt, err))) {
            sqlite3_reset(stmt);
            break;
        }
    for (size_t i = 0; i < view->series_count; i++)
        while (view->series[i].count > ROLLOUT_POINTS_MAX)
            series_thin(&view->series[i]);
    return rc;
}
