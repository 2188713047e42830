// SPDX-License-Identifier: Apache-2.0
// Questions about the steps of the ranks of one launch. Pure.
#include "harness/gate/measure/rank_rows.h"

#include <math.h>

#include "common/strings.h"

// The rank whose steps took longest in sum: the others wait for it.
const struct rank_rows *rank_rows_slowest(const struct launch_rows *launch)
{
    const struct rank_rows *slowest = NULL;
    double longest = -1;
    for (int i = 0; i < launch->rank_count; i++) {
        double sum = 0;
        for (int k = 0; k < launch->ranks[i].count; k++)
            sum += (double)launch->ranks[i].dur_ns[k];
        if (sum > longest) {
            longest = sum;
            slowest = &launch->ranks[i];
        }
    }
    return slowest;
}

double *rank_rows_durations(const struct rank_rows *rank)
{
    double *durations = xcalloc((size_t)rank->count, sizeof *durations);
    for (int i = 0; i < rank->count; i++)
        durations[i] =
                rank->dur_ns[i] > 0 ? (double)rank->dur_ns[i] : 1; // a clock that stood still
    return durations;
}

// Position of step idx in a rank, or -1. Steps are dense but for lost records: look near idx first.
int rank_rows_find(const struct rank_rows *rank, int64_t idx)
{
    if (idx < 0 || rank->count == 0)
        return -1;
    int at = idx < rank->count ? (int)idx : rank->count - 1;
    while (at > 0 && rank->idx[at] > idx)
        at--;
    return rank->idx[at] == idx ? at : -1;
}

// Samples of all ranks in the steps [from, to).
double rank_rows_samples(const struct launch_rows *rows, int64_t from, int64_t to)
{
    double sum = 0;
    for (int i = 0; i < rows->rank_count; i++) {
        const struct rank_rows *rank = &rows->ranks[i];
        int at = rank_rows_find(rank, from);
        for (int k = at < 0 ? 0 : at; k < rank->count && rank->idx[k] < to; k++)
            if (rank->idx[k] >= from)
                sum += rank->samples[k]; // one NAN makes it unknown
    }
    return sum > 0 ? sum : NAN;
}
