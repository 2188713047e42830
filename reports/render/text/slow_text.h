// SPDX-License-Identifier: Apache-2.0
// Slow steps in words: the same in a reason of the gate and where they are explained.
#ifndef UPGATE_REPORTS_SLOW_TEXT_H
#define UPGATE_REPORTS_SLOW_TEXT_H

#include "common/strings.h"
#include "reports/analyse/slow_steps.h"

// "4 slow steps of 1000, 250 ms beside 1 ms, every 250 steps". which: "slow", or "slowest" of
// slow_steps_tail(). unit: "step", "request".
void slow_text(
        struct strbuf *text, const struct slow_steps_sum *sum, const char *which, const char *unit);

#endif
