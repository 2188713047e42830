// SPDX-License-Identifier: Apache-2.0
// Numbers and short sentences of a cell, the same in every form of a report. Buffers are filled and
// returned; NUMBERS_SIZE is enough for each. What was not measured is "-".
#ifndef UPGATE_REPORTS_NUMBERS_H
#define UPGATE_REPORTS_NUMBERS_H

#include <stdbool.h>
#include <stddef.h>

#include "reports/render/verdict/report.h"

enum { NUMBERS_SIZE = 64 };

// Is it a share of the time (slow_steps)? Its medians are then percentages.
bool numbers_is_share(const struct report_cell *cell);

// Both medians in one unit with the same decimals: four significant digits of the smaller.
void numbers_medians(const struct report_cell *cell, char *ret_a, char *ret_b);

// How far the median moved and its interval: "+5.1 %", "+4.6 to +5.6". As many decimals as it takes
// to see on which side of the margin a bound lies.
char *numbers_change(const struct report_cell *cell, char *buf);
char *numbers_interval(const struct report_cell *cell, char *buf);
char *numbers_margin(const struct report_cell *cell,
                     char *buf);                    // "2 %"; "-" for a cell that never gates
char *numbers_fraction(double fraction, char *buf); // 0.0125 -> "1.25 %"
char *numbers_error(double error, char *buf);       // "1.2e-06"
char *numbers_count(int64_t count, char *buf);      // 28400 -> "28,400"
char *numbers_duration(int64_t ns, char *buf);      // "24 min", "1 h 05 min"
char *numbers_time(int64_t wall_ns, char *buf);     // "2026-11-21 12:00 UTC"

// What the interval of these cells is: "99.5 % interval", "98 to 99.5 % interval".
char *numbers_confidence(const struct report_cell *cells, int count, char *buf);

// What the medians and the change of slow_steps and warm_up_time are: a sentence with a blank
// before it, "" without such cells; the caller frees.
char *numbers_steps_legend(const struct report_cell *cells, int count);

// Why the verdict of a cell is what it is and what would settle it; the caller frees, "" if there
// is nothing to say.
char *numbers_remark(const struct report_cell *cell);

// "killed by signal 11 (SIGSEGV)", "exit code 1", "timed out", ...
char *numbers_ending(const struct report_crash *crash, char *buf);

#endif
