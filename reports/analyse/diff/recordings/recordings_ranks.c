// SPDX-License-Identifier: Apache-2.0
// The typical and the slowest rank of a recorded job, by the median of each one's steps. By how much the slowest takes longer is told by the steps that
// both made, second by second: what a step had more to do than another one is in both. Ranks that wait for each other in each step take as long, and
// are not told apart so: who of them comes late is the stall analysis's to say.
#include "reports/analyse/diff/recordings/recordings_ranks.h"

#include <math.h>
#include <stdlib.h>

#include "common/containers/vector.h"
#include "common/strings.h"
#include "reports/analyse/mean_interval.h"
#include "reports/analyse/quantile.h"

static const int64_t ranks_second_ns = 1000000000;

struct ranks_step {
    int64_t idx, begin_ns, dur_ns;
    int32_t rank;
};

struct ranks_one {
    struct recordings_rank told;
    const struct ranks_step *steps; // by idx
    size_t count;
};

// By rank and idx.
static int ranks_read(const struct recordings_window *window, struct ranks_step **ret_steps, size_t *ret_count, struct error *err)
{
    sqlite3_stmt *stmt = store_query(window->store, err,
                                     "SELECT rank, idx, begin_ns, dur_ns FROM recorded_step WHERE recording_id = ? AND rank BETWEEN 0 AND 2147483646 AND "
                                     "begin_ns >= ? AND begin_ns < ? AND dur_ns > 0 ORDER BY rank, idx",
                                     "iii", window->recording_id, window->begin_ns, window->begin_ns + window->slices * ranks_second_ns);
    int rc = stmt ? 0 : err->code;
    while (stmt && (rc = store_step(window->store, stmt, err)) > 0)
        vector_push(*ret_steps, *ret_count,
                    ((struct ranks_step){.rank = (int32_t)sqlite3_column_int64(stmt, 0), .idx = sqlite3_column_int64(stmt, 1),
                                         .begin_ns = sqlite3_column_int64(stmt, 2), .dur_ns = sqlite3_column_int64(stmt, 3)}));
    return rc;
}

static int ranks_by_step(const void *left, const void *right)
{
    const struct ranks_one *a = left, *b = right;
    if (a->told.step_ns != b->told.step_ns)
        return a->told.step_ns < b->told.step_ns ? -1 : 1;
    return (a->told.rank > b->told.rank) - (a->told.rank < b->told.rank);
}

// Ranks with enough steps, by the median of them. The caller frees.
static struct ranks_one *ranks_group(const struct recordings_window *window, const struct ranks_step *steps, size_t count, size_t *ret_count)
{
    struct ranks_one *list = NULL;
    double *ns = xcalloc(count + 1, sizeof *ns);
    for (size_t first = 0, end; first < count; first = end) {
        for (end = first; end < count && steps[end].rank == steps[first].rank; end++)
            ns[end - first] = (double)steps[end].dur_ns;
        if (end - first < (size_t)window->least)
            continue;
        vector_push(list, *ret_count, ((struct ranks_one){.told = {.rank = steps[first].rank, .step_ns = quantile_median(ns, end - first)},
                                                          .steps = steps + first, .count = end - first}));
    }
    free(ns);
    if (*ret_count)
        qsort(list, *ret_count, sizeof *list, ranks_by_step);
    return list;
}

// Of each second of the typical rank, the mean of what the slowest took more in the steps that began there. Gives how many have one.
static size_t ranks_more(const struct recordings_window *window, const struct ranks_one *typical, const struct ranks_one *slowest, double *ret_ns)
{
    int64_t *counts = xcalloc((size_t)window->slices, sizeof *counts);
    size_t seconds = 0;
    for (size_t i = 0, k = 0; i < typical->count && k < slowest->count;) {
        const struct ranks_step *a = &typical->steps[i], *b = &slowest->steps[k];
        if (a->idx == b->idx) {
            int64_t second = (a->begin_ns - window->begin_ns) / ranks_second_ns;
            ret_ns[second] += (double)(b->dur_ns - a->dur_ns);
            counts[second]++;
        }
        i += a->idx <= b->idx;
        k += b->idx <= a->idx;
    }
    for (int32_t second = 0; second < window->slices; second++)
        if (counts[second])
            ret_ns[seconds++] = ret_ns[second] / (double)counts[second];
    free(counts);
    return seconds;
}

static void ranks_compare(const struct recordings_window *window, const struct ranks_one *typical, const struct ranks_one *slowest,
                          struct recordings_ranks *ranks)
{
    double *more = xcalloc((size_t)window->slices, sizeof *more);
    size_t seconds = ranks_more(window, typical, slowest, more);
    // The slowest one is the worst of all others.
    struct interval of = mean_interval(more, (int)seconds, window->alpha / 2 / (double)(ranks->count - 1));
    ranks->more_ns = of.estimate;
    if (seconds >= (size_t)window->least && of.has_bounds && of.upper > of.lower) {
        ranks->lo_ns = of.lower;
        ranks->hi_ns = of.upper;
        ranks->told = ranks->lo_ns > 0;
    }
    free(more);
}

int recordings_ranks_find(const struct recordings_window *window, struct recordings_ranks *ranks, struct error *err)
{
    struct ranks_step *steps = NULL;
    size_t step_count = 0, count = 0;
    int rc = ranks_read(window, &steps, &step_count, err);
    struct ranks_one *list = rc ? NULL : ranks_group(window, steps, step_count, &count);
    ranks->count = count;
    ranks->more_ns = ranks->lo_ns = ranks->hi_ns = NAN;
    if (count > 1) {
        const struct ranks_one *typical = &list[(count - 1) / 2], *slowest = &list[count - 1];
        ranks->typical = typical->told;
        ranks->slowest = slowest->told;
        ranks_compare(window, typical, slowest, ranks);
    }
    free(list);
    free(steps);
    return rc;
}
