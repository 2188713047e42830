// SPDX-License-Identifier: Apache-2.0
// What work may cost that somebody else can ask for again and again: a share of one CPU, and more
// for a moment. The owner asks before the work, and what the work took is counted: CPU time of the
// thread and of the process that reads files for it, since wall time would count the times when
// somebody else had the CPU. One thread.
#ifndef UPGATE_COMMON_BUDGET_H
#define UPGATE_COMMON_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

struct budget {
    int64_t divisor;  // the share: one part of so many
    int64_t burst_ns; // what may be owed; it is there at the begin
    int64_t owed_ns, paid_at_ns, began_ns;
};

bool budget_affords(struct budget *budget);
void budget_begin(struct budget *budget);
int64_t budget_took_ns(const struct budget *budget); // since budget_begin()
void budget_end(struct budget *budget);              // that is owed
// known by other means: work that is shorter than two looks at the clock
void budget_owe(struct budget *budget, int64_t ns);

#endif
