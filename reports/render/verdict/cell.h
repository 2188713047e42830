// SPDX-License-Identifier: Apache-2.0
// Numbers and short sentences of a cell, the same in every form of a report. Buffers of
// NUMBERS_SIZE are filled and returned. What was not measured is "-".
#ifndef UPGATE_REPORTS_CELL_H
#define UPGATE_REPORTS_CELL_H

#include <stdbool.h>
#include <stddef.h>

#include "reports/render/verdict/report.h"

// Does it pass, and is it better by more than its margin? One that is undecided or fails for
// another reason is no good news.
bool cell_improved(const struct report_cell *cell);

// Both medians in one unit with the same decimals: four significant digits of the smaller.
void cell_medians(const struct report_cell *cell, char *ret_a, char *ret_b);

// How far the median moved and its interval: "+5.1 %", "+4.6 to +5.6". As many decimals as it takes
// to see on which side of the margin each lies.
char *cell_change(const struct report_cell *cell, char *buf);
char *cell_interval(const struct report_cell *cell, char *buf);
// "2 %"; "-" for a cell that never gates
char *cell_margin(const struct report_cell *cell, char *buf);
// "ratio 1.031 [1.024, 1.039]", for messages of JUnit and GitHub; "" when it was not measured. The
// caller frees.
char *cell_ratio(const struct report_cell *cell);

// What the interval of these cells is: "99.5 % interval", "98 to 99.5 % interval".
char *cell_confidence(const struct report_cell *cells, int count, char *buf);

// What the medians and the change of slow_steps and warm_up_time are: a sentence with a blank
// before it, "" without such cells; the caller frees.
char *cell_steps_legend(const struct report_cell *cells, int count);

// Why the verdict of a cell is what it is and what would settle it; the caller frees, "" if there
// is nothing to say.
char *cell_remark(const struct report_cell *cell);

// "killed by signal 11 (SIGSEGV)", "exit code 1", "timed out", ...
char *crash_ending(const struct report_crash *crash, char *buf);

#endif
