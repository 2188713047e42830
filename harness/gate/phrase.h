// SPDX-License-Identifier: Apache-2.0
// Words for numbers: what a tired engineer reads in reasons and summaries. No arithmetic of its
// own.
#ifndef UPGATE_GATE_PHRASE_H
#define UPGATE_GATE_PHRASE_H

#include <stddef.h>

#include "contracts/metrics.h"
#include "reports/analyse/signed_rank.h"

enum { PHRASE_SIZE = 160 };

// "5.1 % slower", "0.3 % less memory", "equal": a ratio of this metric, candidate over baseline.
char *phrase_ratio(char *buf, size_t size, enum metric_id metric, double ratio);
// The same with more digits where it would read as the margin that is told beside it and is not:
// "2.04 % slower".
char *phrase_ratio_beside(
        char *buf, size_t size, enum metric_id metric, double ratio, double margin);
// "1.0512 (1.0461 to 1.0563)"; without bounds "1.0512".
char *phrase_interval(char *buf, size_t size, double ratio, double lower, double upper);
// "+1.9 % (+1.7 to +2.1 %)": an oriented interval of log ratios; positive = worse.
char *phrase_change(char *buf, size_t size, const struct interval *interval);
// "2 %", "0.5 %": what was measured, in two digits.
char *phrase_fraction(char *buf, size_t size, double fraction);
// "85 %", "1.25 %": what was set, a floor, a margin or an error rate, of which a rounded number
// would be another one.
char *phrase_floor(char *buf, size_t size, double fraction);

#endif
