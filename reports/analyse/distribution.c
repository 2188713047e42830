// SPDX-License-Identifier: Apache-2.0
// Normal, Student t and beta distributions: the incomplete beta function by its continued fraction
// (Lentz). Quantiles by bisection, which cannot diverge; Student's t, of which simulations take
// millions, by Newton's method inside a bracket: some 12 evaluations where bisection takes 55.
#include "reports/analyse/distribution.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>

#include "common/containers/search.h"

enum {
    DISTRIBUTION_BISECTIONS_MAX = 1100, // a quantile near 1e-308 is halved so often
    DISTRIBUTION_FRACTION_TERMS_MAX = 10000,
    DISTRIBUTION_NEWTON_STEPS_MAX = 60
};

double distribution_log_sum(const double *logs, const double *weights, size_t count)
{
    double highest = -INFINITY, sum = 0;
    for (size_t i = 0; i < count; i++)
        highest = fmax(highest, logs[i]);
    if (isinf(highest))
        return highest;
    for (size_t i = 0; i < count; i++)
        sum += weights[i] * exp(logs[i] - highest);
    return highest + log(sum);
}

double distribution_normal_cdf(double z)
{
    return 0.5 * erfc(-z / M_SQRT2);
}

double distribution_normal_quantile(double p)
{
    if (!(p > 0 && p < 1))
        return NAN;
    if (p > 0.5) // erfc keeps its digits in the lower tail only
        return -distribution_normal_quantile(1 - p);
    double lo = -40, hi = 0;
    search_narrow(mid, lo, hi, DISTRIBUTION_BISECTIONS_MAX, distribution_normal_cdf(mid) >= p);
    return 0.5 * (lo + hi);
}

// Continued fraction of I_x(a, b), converging fast for x < (a + 1) / (a + b + 2).
static double distribution_beta_fraction(double a, double b, double x)
{
    double c = 1, d = 1 - (a + b) * x / (a + 1);
    d = 1 / (fabs(d) < DBL_MIN ? DBL_MIN : d);
    double result = d;
    for (int m = 1; m < DISTRIBUTION_FRACTION_TERMS_MAX; m++) {
        double terms[2] = {
                m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
                -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        };
        double step = 1;
        for (int i = 0; i < 2; i++) {
            d = 1 + terms[i] * d;
            d = 1 / (fabs(d) < DBL_MIN ? DBL_MIN : d);
            c = 1 + terms[i] / c;
            c = fabs(c) < DBL_MIN ? DBL_MIN : c;
            step = c * d;
            result *= step;
        }
        if (fabs(step - 1) < 1e-15)
            break;
    }
    return result;
}

double distribution_beta_cdf(double a, double b, double x)
{
    if (x <= 0)
        return 0;
    if (x >= 1)
        return 1;
    bool swap = x > (a + 1) / (a + b + 2);
    double p = swap ? b : a, q = swap ? a : b, y = swap ? 1 - x : x;
    double front = exp(lgamma(p + q) - lgamma(p) - lgamma(q) + p * log(y) + q * log1p(-y)) / p;
    double tail = front * distribution_beta_fraction(p, q, y);
    return swap ? 1 - tail : tail;
}

double distribution_beta_quantile(double a, double b, double p)
{
    if (!(p > 0 && p < 1))
        return NAN;
    double lo = 0, hi = 1;
    search_narrow(mid, lo, hi, DISTRIBUTION_BISECTIONS_MAX, distribution_beta_cdf(a, b, mid) >= p);
    return 0.5 * (lo + hi);
}

double distribution_t_cdf(double t, double degrees)
{
    double tail = 0.5 * distribution_beta_cdf(degrees / 2, 0.5, degrees / (degrees + t * t));
    return t > 0 ? 1 - tail : tail;
}

double distribution_t_quantile(double p, double degrees)
{
    if (!(p > 0 && p < 1) || !(degrees > 0))
        return NAN;
    if (p > 0.5)
        return -distribution_t_quantile(1 - p, degrees);
    double lo = -1, hi = 0;
    while (distribution_t_cdf(lo, degrees) > p)
        lo *= 2;
    double log_scale = lgamma((degrees + 1) / 2) - lgamma(degrees / 2) - 0.5 * log(degrees * M_PI);
    double t = hi;
    for (int i = 0; i < DISTRIBUTION_NEWTON_STEPS_MAX; i++) {
        double beyond = distribution_t_cdf(t, degrees) - p;
        *(beyond > 0 ? &hi : &lo) = t;
        double density = exp(log_scale - 0.5 * (degrees + 1) * log1p(t * t / degrees));
        double next = t - beyond / density;
        if (fabs(next - t) <= 1e-9 * fabs(next)) // what remains is of the order of its square
            return next;
        t = next > lo && next < hi ? next : 0.5 * (lo + hi);
    }
    search_narrow(mid, lo, hi, DISTRIBUTION_BISECTIONS_MAX, distribution_t_cdf(mid, degrees) >= p);
    return 0.5 * (lo + hi);
}
