// SPDX-License-Identifier: Apache-2.0
// A debt that is paid off as time goes by.
#include "common/budget.h"

#include <time.h>

#include "common/clock.h"
#include "common/target/reader.h"

static int64_t budget_cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec + target_reader_cpu_ns();
}

bool budget_affords(struct budget *budget)
{
    int64_t paid_ns = (clock_monotonic_ns() - budget->paid_at_ns) / budget->divisor;
    budget->owed_ns = budget->owed_ns > paid_ns ? budget->owed_ns - paid_ns : 0;
    // what the division leaves over is paid another time
    budget->paid_at_ns += paid_ns * budget->divisor;
    return budget->owed_ns < budget->burst_ns;
}

void budget_begin(struct budget *budget)
{
    budget->began_ns = budget_cpu_ns();
}

int64_t budget_took_ns(const struct budget *budget)
{
    return budget_cpu_ns() - budget->began_ns;
}

void budget_end(struct budget *budget)
{
    budget_owe(budget, budget_took_ns(budget));
}

void budget_owe(struct budget *budget, int64_t ns)
{
    budget->owed_ns += ns;
}
