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
    // The oldest goes when the next one is ten seconds old, too: the first is the count before the
    // window.
    while (recent->count > 1 &&
            (look->at_ns - looks[1].at_ns >= RECENT_NS || recent->count == CANARY_RECENT)) {
        memmove(looks, looks + 1, ((size_t)recent->count - 1) * sizeof *looks);
        recent->count--;
    }
    looks[recent->count++] = *look;
}

// What the baseline did between two looks. False: too little to tell.
static bool recent_baseline(const struct canary_recent_look *then,
        const struct canary_recent_look *now, struct canary_recent_baseline *ret)
{
    const struct canary_recent_baseline *a = &then->baseline, *b = &now->baseline;
    // counted anew
    if (b->requests < a->requests || b->errors < a->errors || b->refused < a->refused ||
            b->given_up < a->given_up)
        return false;
    *ret = (struct canary_recent_baseline){b->requests - a->requests, b->errors - a->errors,
            b->refused - a->refused, b->given_up - a->given_up};
    return ret->requests >= RECENT_WHOLE_MIN;
}

static double recent_given_up(uint64_t given_up, uint64_t requests, double usual)
{
    return fmax(0, (double)given_up - 2 * usual * (double)requests); // 0 for NaN
}

// The baseline failed half as much, or more, in the same time. Of its errors, too, two bursts are
// no outage: at 10 requests one error would be a rate of 10 %, and would excuse a candidate with 20
// %.
static bool recent_shared(const struct canary_recent_look *then,
        const struct canary_recent_look *now, double rate, double usual)
{
    struct canary_recent_baseline baseline;
    if (!recent_baseline(then, now, &baseline))
        return false;
    double errors =
            (double)baseline.errors + recent_given_up(baseline.given_up, baseline.requests, usual);
    return errors > CANARY_BURSTS && 2 * errors >= rate * (double)baseline.requests;
}

static double recent_rate(
        const struct canary_recent *recent, double usual, bool with_lost, bool compares)
{
    double worst = NAN;
    const struct canary_recent_look *now = recent->looks + (recent->count ? recent->count - 1 : 0);
    for (int i = recent->count - 2; i >= 0; i--) {
        const struct canary_recent_look *then = &recent->looks[i];
        uint64_t lost = with_lost && now->lost > then->lost ? now->lost - then->lost : 0;
        uint64_t requests = now->requests - then->requests + lost;
        double errors = (double)(now->errors - then->errors + lost);
        errors += recent_given_up(now->given_up - then->given_up, requests, usual);
        if (requests < (i == 0 ? RECENT_WHOLE_MIN : RECENT_PART_MIN) || (with_lost && !lost))
            continue;
        double rate = fmax(0, errors - CANARY_BURSTS) / (double)requests;
        if (compares && recent_shared(then, now, rate, usual))
            rate = 0;
        worst = fmax(worst, rate); // not NaN, where either is a number
    }
    return worst;
}

double canary_recent_errors(const struct canary_recent *recent, double usual)
{
    return recent_rate(recent, usual, false, true);
}

double canary_recent_errors_alone(const struct canary_recent *recent, double usual)
{
    return recent_rate(recent, usual, false, false);
}

double canary_recent_errors_lost(const struct canary_recent *recent, double usual)
{
    return recent_rate(recent, usual, true, false);
}

uint64_t canary_recent_refused_alone(const struct canary_recent *recent)
{
    return recent->count ? recent->looks[recent->count - 1].refused - recent->looks[0].refused : 0;
}

uint64_t canary_recent_refused(const struct canary_recent *recent)
{
    if (!recent->count)
        return 0;
    const struct canary_recent_look *then = &recent->looks[0],
                                    *now = &recent->looks[recent->count - 1];
    struct canary_recent_baseline baseline;
    uint64_t refused = canary_recent_refused_alone(recent);
    double requests = (double)(now->requests - then->requests);
    bool shared = recent_baseline(then, now, &baseline) && baseline.refused &&
            2 * (double)baseline.refused * requests >= (double)refused * (double)baseline.requests;
    return shared ? 0 : refused;
}
