// SPDX-License-Identifier: Apache-2.0
// Re-split A/A gates. Reads arrays, counts false fails.
#include "reports/analyse/resplit.h"

#include <math.h>
#include <stdlib.h>

#include "common/strings.h"
#include "reports/analyse/random.h"

static bool resplit_cell_fails(const struct resplit_cell *cell, const double *signs, double *values)
{
    int used = 0;
    for (int i = 0; i < cell->count; i++)
        if (!isnan(cell->values[i]))
            values[used++] = signs[i] * cell->values[i];
    return looks_judge(&cell->rule, values, used).state == LOOKS_FAIL;
}

int resplit_false_fails(const struct resplit_cell *cells, int cell_count, int gates, uint64_t seed)
{
    int pairs = 0, fails = 0;
    for (int c = 0; c < cell_count; c++)
        pairs = cells[c].count > pairs ? cells[c].count : pairs;
    double *signs = xcalloc((size_t)pairs, sizeof *signs);
    double *values = xcalloc((size_t)pairs, sizeof *values);
    struct random_state random = {seed};
    for (int gate = 0; gate < gates; gate++) {
        bool failed = false;
        for (int i = 0; i < pairs; i++)
            signs[i] = random_next(&random) >> 63 ? 1 : -1;
        for (int c = 0; c < cell_count; c++)
            failed = failed || resplit_cell_fails(&cells[c], signs, values);
        fails += failed;
    }
    free(signs);
    free(values);
    return fails;
}
