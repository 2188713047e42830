// SPDX-License-Identifier: Apache-2.0
// The forms of a report that are built whole in memory before a byte is written: JUnit and
// Markdown. Internal to this room. Pure functions of struct report; the caller frees what is
// returned.
#ifndef UPGATE_REPORTS_FORMS_H
#define UPGATE_REPORTS_FORMS_H

#include <stdbool.h>
#include <stddef.h>

#include "reports/render/verdict/report.h"

// GitHub drops a step summary above 1,024 KiB whole; below it with room to spare.
enum { FORMS_MARKDOWN_BYTES_MAX = 1000000 };

// JUnit: suites > suite (a workload) > case (a metric, a parity check, a finding). The first suite
// has one case, the verdict itself, so that a file without cells is never green.
char *junit_make(const struct report *report, bool inconclusive_skip);

// Markdown of at most bytes_max (at least 64 KiB are needed): failures open, the rest folded; rows
// that do not fit are counted in their place.
char *markdown_make(const struct report *report, size_t bytes_max);

#endif
