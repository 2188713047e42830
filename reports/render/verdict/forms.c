// SPDX-License-Identifier: Apache-2.0
// What several forms of a report share. Pure functions of struct report.
#include "reports/render/verdict/forms.h"

#include <math.h>
#include <string.h>

#include "common/strings.h"

char *forms_ratio(const struct report_cell *cell)
{
    if (!isfinite(cell->ratio))
        return xstrdup("");
    if (!isfinite(cell->ci_lower) || !isfinite(cell->ci_upper))
        return xasprintf("ratio %.4f", cell->ratio);
    return xasprintf("ratio %.4f [%.4f, %.4f]", cell->ratio, cell->ci_lower, cell->ci_upper);
}

const char *forms_stderr(const struct report *report, const char *workload, int side)
{
    for (int i = 0; i < report->crash_count; i++) {
        const struct report_crash *crash = &report->crashes[i];
        if (strcmp(crash->workload, workload) == 0 && (side < 0 || crash->side == side) &&
            crash->stderr_tail && *crash->stderr_tail)
            return crash->stderr_tail;
    }
    return NULL;
}
