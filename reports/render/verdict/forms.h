// SPDX-License-Identifier: Apache-2.0
// The forms of a report that are built whole in memory before a byte is written: JUnit and
// Markdown. Internal to this room. Pure functions of struct report; the caller frees what is
// returned.
#ifndef UPGATE_REPORTS_FORMS_H
#define UPGATE_REPORTS_FORMS_H

#include <stdbool.h>
#include <stddef.h>

#include "reports/render/verdict/report.h"

enum {
    FORMS_MARKDOWN_BYTES_MAX = 1000000, // GitHub drops a step summary above 1,024 KiB whole; below
                                        // it with room to spare
    FORMS_MARKDOWN_BYTES_MIN = 65536    // less room than this is not worth a part of a report
};

// JUnit: suites > suite (a workload) > case (a metric, a parity check, a finding). The first suite
// has one case, the verdict itself, so that a file without cells is never green.
char *junit_make(const struct report *report, bool inconclusive_skip);

// Markdown of at most bytes_max (at least FORMS_MARKDOWN_BYTES_MIN are needed): failures open, the
// rest folded; rows that do not fit are counted in their place.
char *markdown_make(const struct report *report, size_t bytes_max);

#endif
