// SPDX-License-Identifier: Apache-2.0
// Slow steps of a workload in words: how many of how many, how slow, how regular. Pure on facts.
#include <stdlib.h>

#include "common/strings.h"
#include "harness/gate/cell.h"
#include "reports/render/text/slow_text.h"

static struct slow_steps_sum cell_slow_of(const struct workload_facts *facts, int side)
{
    size_t room = (size_t)(facts->main_count > 0 ? facts->main_count : 1);
    const struct slow_steps **launches = xcalloc(room, sizeof *launches);
    for (int i = 0; i < facts->main_count; i++)
        launches[i] = &facts->main[i].sides[side].slow;
    struct slow_steps_sum sum = slow_steps_sum(launches, facts->main_count);
    free(launches);
    return sum;
}

char *cell_slow_steps(const struct workload_facts *facts)
{
    struct strbuf text = {0};
    for (int side = 1; side >= 0; side--) {
        struct slow_steps_sum sum = cell_slow_of(facts, side);
        strbuf_add(&text, side ? "candidate: " : "; baseline: ");
        slow_text(&text, &sum, "slow", "step");
    }
    return strbuf_take(&text);
}
