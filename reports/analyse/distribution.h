// SPDX-License-Identifier: Apache-2.0
// The few distributions the gate needs. Accurate to about 1e-12 relative in the range used (tests
// hold them against scipy). Probabilities outside (0, 1) give NAN.
#ifndef UPGATE_ANALYSE_DISTRIBUTION_H
#define UPGATE_ANALYSE_DISTRIBUTION_H

#include <stddef.h>

// ln of the sum of weight times exp(log)
double distribution_log_sum(const double *logs, const double *weights, size_t count);
double distribution_normal_cdf(double z);
double distribution_normal_quantile(double p);
double distribution_beta_cdf(double a, double b, double x); // regularised incomplete beta I_x(a, b)
double distribution_beta_quantile(double a, double b, double p);
double distribution_t_cdf(double t, double degrees);
double distribution_t_quantile(double p, double degrees);

#endif
