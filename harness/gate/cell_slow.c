// SPDX-License-Identifier: Apache-2.0
// Slow steps of a workload in words: how many of how many, how slow, how regular. Pure on facts.
#include <math.h>
#include <stdlib.h>

#include "common/strings.h"
#include "common/units.h"
#include "harness/gate/cell.h"
#include "reports/analyse/quantile.h"

enum { CELL_SLOW_LAUNCHES_MIN = 3 }; // before that nothing is regular

struct cell_slow {
    long count, of;
    int launches;          // with a slow step
    double slow_ns, typical_ns; // medians over launches; NAN
    int period;            // shared by three launches of four; 0: none
    int64_t at;            // the first one's step, when three of four agree; -1
};

// The value that three quarters of them share, give or take one; -1: none.
static int64_t cell_slow_shared(const double *values, int count)
{
    double middle = quantile_median(values, (size_t)count);
    int near = 0;
    for (int i = 0; i < count; i++)
        near += fabs(values[i] - middle) <= 1;
    return count >= CELL_SLOW_LAUNCHES_MIN && 4 * near >= 3 * count ? (int64_t)middle : -1;
}

static struct cell_slow cell_slow_of(const struct workload_facts *facts, int side)
{
    struct cell_slow sum = {.at = -1};
    size_t room = (size_t)(facts->main_count > 0 ? facts->main_count : 1);
    double *slow = xcalloc(4 * room, sizeof *slow), *typical = slow + room;
    double *first = typical + room, *period = first + room;
    int typical_count = 0;
    for (int i = 0; i < facts->main_count; i++) {
        const struct slow_steps *one = &facts->main[i].sides[side].slow;
        sum.of += one->of;
        sum.count += one->count;
        if (one->of)
            typical[typical_count++] = one->typical_ns;
        if (!one->count)
            continue;
        first[sum.launches] = (double)one->first;
        period[sum.launches] = one->period;
        slow[sum.launches++] = one->slow_ns;
    }
    sum.slow_ns = quantile_median(slow, (size_t)sum.launches);
    sum.typical_ns = quantile_median(typical, (size_t)typical_count);
    int64_t shared = cell_slow_shared(period, sum.launches);
    sum.period = shared > 1 ? (int)shared : 0;
    // One in every launch, at the same step: the launches are too short to show a second one.
    if (sum.count == sum.launches && sum.launches == facts->main_count)
        sum.at = cell_slow_shared(first, sum.launches);
    free(slow);
    return sum;
}

static void cell_slow_add(struct strbuf *text, const struct cell_slow *slow)
{
    char slow_text[32], typical_text[32];
    strbuf_add(text, "%ld slow step%s of %ld", slow->count, slow->count == 1 ? "" : "s", slow->of);
    if (!slow->count)
        return;
    strbuf_add(text, ", %s beside %s",
               unit_format_ns(slow_text, sizeof slow_text, slow->slow_ns),
               unit_format_ns(typical_text, sizeof typical_text, slow->typical_ns));
    if (slow->period)
        strbuf_add(text, ", every %d steps", slow->period);
    else if (slow->at >= 0)
        strbuf_add(text, ", step %lld of every launch", (long long)slow->at);
    else if (slow->count > 1)
        strbuf_add(text, ", at no regular distance");
}

char *cell_slow_steps(const struct workload_facts *facts)
{
    struct cell_slow a = cell_slow_of(facts, 0), b = cell_slow_of(facts, 1);
    struct strbuf text = {0};
    strbuf_add(&text, "candidate: ");
    cell_slow_add(&text, &b);
    strbuf_add(&text, "; baseline: ");
    cell_slow_add(&text, &a);
    return strbuf_take(&text);
}
