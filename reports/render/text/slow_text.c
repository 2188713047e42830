// SPDX-License-Identifier: Apache-2.0
// See slow_text.h. Appends to a buffer.
#include "reports/render/text/slow_text.h"

#include <stdbool.h>

#include "reports/render/text/numbers.h"

// "every 100 steps (99, 199, 299 …) of every launch", "step 70 of every launch".
static void slow_text_at(struct strbuf *text, const struct slow_steps_sum *slow, const char *unit)
{
    bool even = slow->at_count > 1;
    for (int i = 2; i < slow->at_count; i++)
        even = even && slow->at[i] - slow->at[i - 1] == slow->at[1] - slow->at[0];
    if (even)
        strbuf_add(text, ", every %lld %ss (", (long long)(slow->at[1] - slow->at[0]), unit);
    else
        strbuf_add(text, ", %s%s ", unit, slow->at_count == 1 ? "" : "s");
    for (int i = 0; i < slow->at_count; i++)
        strbuf_add(text, "%s%lld", i ? ", " : "", (long long)slow->at[i]);
    strbuf_add(text, "%s%s of every launch", slow->at_count == SLOW_STEPS_TOLD ? " …" : "",
            even ? ")" : "");
}

void slow_text(
        struct strbuf *text, const struct slow_steps_sum *sum, const char *which, const char *unit)
{
    strbuf_add(text, "%ld %s %s%s of %ld", sum->count, which, unit, sum->count == 1 ? "" : "s",
            sum->of);
    if (!sum->count)
        return;
    strbuf_add(text, ", %s beside %s", numbers_ns(sum->slow_ns, NUMBERS_BUFFER),
            numbers_ns(sum->typical_ns, NUMBERS_BUFFER));
    if (sum->period)
        strbuf_add(text, ", every %d %ss", sum->period, unit);
    else if (sum->at_count)
        slow_text_at(text, sum, unit);
    else if (sum->count > 1)
        strbuf_add(text, ", at no regular distance");
}
