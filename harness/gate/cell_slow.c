// SPDX-License-Identifier: Apache-2.0
// Slow steps of a workload in words: how many of how many, how slow, how regular. Pure on facts.
#include <math.h>
#include <stdlib.h>

#include "common/strings.h"
#include "common/units.h"
#include "harness/gate/cell.h"
#include "reports/analyse/quantile.h"

enum {
    CELL_SLOW_LAUNCHES_MIN = 3, // before that nothing is regular
    CELL_SLOW_AT = 4            // steps that are told
};

struct cell_slow {
    long count, of;
    double slow_ns, typical_ns; // medians over launches; NAN
    int period;                 // that three launches of four show; 0: none
    int64_t at[CELL_SLOW_AT];   // steps that are slow in three launches of four
    int at_count;
};

// The value that three quarters of `launches` share; 0: none.
static int cell_slow_shared(const double *values, int count, int launches)
{
    double middle = quantile_median(values, (size_t)count);
    int same = 0;
    for (int i = 0; i < count; i++)
        same += values[i] == middle;
    return launches >= CELL_SLOW_LAUNCHES_MIN && 4 * same >= 3 * launches ? (int)middle : 0;
}

// Steps that are slow again and again: `steps` of all launches, sorted.
static void cell_slow_recurrent(const double *steps, int count, int launches, struct cell_slow *sum)
{
    for (int i = 0, end; i < count; i = end) {
        for (end = i + 1; end < count && steps[end] == steps[i];)
            end++;
        if (launches >= CELL_SLOW_LAUNCHES_MIN && 4 * (end - i) >= 3 * launches &&
            sum->at_count < CELL_SLOW_AT)
            sum->at[sum->at_count++] = (int64_t)steps[i];
    }
}

static struct cell_slow cell_slow_of(const struct workload_facts *facts, int side)
{
    struct cell_slow sum = {0};
    size_t room = (size_t)(facts->main_count > 0 ? facts->main_count : 1);
    double *slow = xcalloc(3 * room, sizeof *slow), *typical = slow + room, *period = typical + room;
    double *steps = xcalloc(room * SLOW_STEPS_KEPT, sizeof *steps);
    int launches = 0, with_slow = 0, periods = 0, step_count = 0;
    for (int i = 0; i < facts->main_count; i++) {
        const struct slow_steps *one = &facts->main[i].sides[side].slow;
        sum.of += one->of;
        sum.count += one->count;
        if (one->of)
            typical[launches++] = one->typical_ns;
        if (one->count)
            slow[with_slow++] = one->slow_ns;
        if (one->period)
            period[periods++] = one->period;
        for (int k = 0; k < one->count && k < SLOW_STEPS_KEPT; k++)
            steps[step_count++] = (double)one->at[k];
    }
    sum.slow_ns = quantile_median(slow, (size_t)with_slow);
    sum.typical_ns = quantile_median(typical, (size_t)launches);
    sum.period = cell_slow_shared(period, periods, launches);
    quantile_sort(steps, (size_t)step_count);
    cell_slow_recurrent(steps, step_count, launches, &sum);
    free(slow);
    free(steps);
    return sum;
}

// "every 100 steps (99, 199, 299 …) of every launch", "step 70 of every launch".
static void cell_slow_add_at(struct strbuf *text, const struct cell_slow *slow)
{
    bool even = slow->at_count > 1;
    for (int i = 2; i < slow->at_count; i++)
        even = even && slow->at[i] - slow->at[i - 1] == slow->at[1] - slow->at[0];
    if (even)
        strbuf_add(text, ", every %lld steps (", (long long)(slow->at[1] - slow->at[0]));
    else
        strbuf_add(text, ", step%s ", slow->at_count == 1 ? "" : "s");
    for (int i = 0; i < slow->at_count; i++)
        strbuf_add(text, "%s%lld", i ? ", " : "", (long long)slow->at[i]);
    strbuf_add(text, "%s%s of every launch", slow->at_count == CELL_SLOW_AT ? " …" : "",
               even ? ")" : "");
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
    else if (slow->at_count)
        cell_slow_add_at(text, slow);
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
