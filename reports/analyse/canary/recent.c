// SPDX-License-Identifier: Apache-2.0
// A ring of totals, one a look: differences to its older entries are what happened since.
#include "reports/analyse/canary/recent.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#define RECENT_NS 10000000000 // as the tripwire of errors is worded
enum { RECENT_WHOLE_MIN = 10, RECENT_PART_MIN = 100 };

void canary_recent_add(struct canary_recent *recent, const struct canary_recent_look *look)
{
    struct canary_recent_look *looks = recent->looks;
    if (recent->count && look->requests < looks[recent->count - 1].requests)
        recent->count = 0;
    // The oldest goes when the next one is ten seconds old, too: the first is the count before the window.
    while (recent->count > 1 && (look->at_ns - looks[1].at_ns >= RECENT_NS || recent->count == CANARY_RECENT)) {
        memmove(looks, looks + 1, ((size_t)recent->count - 1) * sizeof *looks);
        recent->count--;
    }
    looks[recent->count++] = *look;
}

static double recent_rate(const struct canary_recent *recent, double usual, bool with_lost)
{
    double worst = NAN;
    const struct canary_recent_look *now = recent->looks + (recent->count ? recent->count - 1 : 0);
    for (int i = recent->count - 2; i >= 0; i--) {
        const struct canary_recent_look *then = &recent->looks[i];
        uint64_t lost = with_lost && now->lost > then->lost ? now->lost - then->lost : 0;
        uint64_t requests = now->requests - then->requests + lost;
        double errors = (double)(now->errors - then->errors + lost);
        errors += fmax(0, (double)(now->given_up - then->given_up) - 2 * usual * (double)requests); // 0 for NaN
        if (requests < (i == 0 ? RECENT_WHOLE_MIN : RECENT_PART_MIN) || (with_lost && !lost))
            continue;
        worst = fmax(worst, fmax(0, errors - CANARY_BURSTS) / (double)requests); // not NaN, where either is a number
    }
    return worst;
}

double canary_recent_errors(const struct canary_recent *recent, double usual)
{
    return recent_rate(recent, usual, false);
}

double canary_recent_errors_lost(const struct canary_recent *recent, double usual)
{
    return recent_rate(recent, usual, true);
}

uint64_t canary_recent_refused(const struct canary_recent *recent)
{
    return recent->count ? recent->looks[recent->count - 1].refused - recent->looks[0].refused : 0;
}
