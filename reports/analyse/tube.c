// SPDX-License-Identifier: Apache-2.0
// The loss tube and the final loss. Reads arrays.
#include "reports/analyse/tube.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

#include "common/strings.h"
#include "reports/analyse/quantile.h"

// Two runs that share nothing but the distribution differ by sqrt(2) sd: of those 2 % lie beyond 4
// sd estimated from 10 seeds, 5 % from 5. A curve of another shape leaves with most of its points.
static const double tube_width_sd = 4;
static const double tube_share_max = 0.10;
static const double tube_equal = 1e-3; // relative: floor where seeds make no difference

static bool tube_finite(const double *values, int count)
{
    for (int i = 0; i < count; i++)
        if (!isfinite(values[i]))
            return false;
    return true;
}

struct tube_result tube_compare(const struct tube_input *input)
{
    int seeds = input->seed_count, steps = input->step_count;
    struct tube_result result = {.state = TUBE_FEW_SEEDS};
    if (!tube_finite(input->a, seeds * steps) || !tube_finite(input->b, seeds * steps)) {
        result.state = tube_finite(input->a, seeds * steps) ? TUBE_NOT_FINITE_B : TUBE_NOT_FINITE_A;
        return result;
    }
    double *column = xcalloc((size_t)seeds, sizeof *column);
    long outside = 0, unequal = 0;
    for (int t = 0; t < steps; t++) {
        for (int s = 0; s < seeds; s++)
            column[s] = input->a[s * steps + t];
        double sd = seeds >= TUBE_SEEDS_MIN ? quantile_sd(column, (size_t)seeds) : 0;
        for (int s = 0; s < seeds; s++) {
            double a = column[s], distance = fabs(input->b[s * steps + t] - a);
            double floor_width = tube_equal * fabs(a);
            double width = fmax(tube_width_sd * sd, floor_width);
            double over = distance == 0 ? 0 : width > 0 ? distance / width : INFINITY;
            outside += over > 1;
            unequal += distance > floor_width;
            if (a != 0 && distance / fabs(a) > result.difference)
                result.difference = distance / fabs(a);
            if (over > result.worst) {
                result.worst = over;
                result.worst_step = t;
                result.worst_seed = s;
                result.worst_width = width;
                result.worst_distance = distance;
            }
        }
    }
    free(column);
    result.share_outside = steps > 0 && seeds > 0 ? (double)outside / ((double)seeds * steps) : 0;
    if (unequal == 0 && seeds > 0 && steps > 0)
        result.state = TUBE_INSIDE;
    else if (seeds >= TUBE_SEEDS_MIN)
        result.state = result.share_outside > tube_share_max ? TUBE_OUTSIDE : TUBE_INSIDE;
    return result;
}

struct interval tube_final(const struct tube_input *input, double alpha)
{
    int tail = input->step_count >= 10 ? input->step_count / 10 : 1;
    double *relative =
        xcalloc((size_t)(input->seed_count > 0 ? input->seed_count : 1), sizeof *relative);
    int used = 0;
    for (int s = 0; s < input->seed_count && input->step_count > 0; s++) {
        size_t from = (size_t)(s + 1) * (size_t)input->step_count - (size_t)tail;
        double a = quantile_mean(input->a + from, (size_t)tail);
        double b = quantile_mean(input->b + from, (size_t)tail);
        double scale = fmax(fabs(a), 0.1 * fabs(input->a[(size_t)s * (size_t)input->step_count]));
        if (isfinite(a) && isfinite(b) && scale > 0)
            relative[used++] = (b - a) / scale;
    }
    struct interval result = signed_rank_interval(relative, used, alpha);
    free(relative);
    return result;
}
