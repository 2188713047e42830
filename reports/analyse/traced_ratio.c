// SPDX-License-Identifier: Apache-2.0
#include "reports/analyse/traced_ratio.h"

#include <math.h>
#include <stdio.h>

char *traced_ratio_text(char *text, size_t size, const char *unit, const double ratio[2])
{
    char times[2][32];
    for (int side = 0; side < 2; side++) {
        if (isfinite(ratio[side]))
            snprintf(times[side], sizeof times[side], "%.3f", ratio[side]);
        else
            snprintf(times[side], sizeof times[side], "unknown");
    }
    snprintf(text, size, "a traced %s took %s (a) and %s (b) times as long as an untraced one", unit,
             times[0], times[1]);
    return text;
}
