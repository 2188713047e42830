// SPDX-License-Identifier: Apache-2.0
// Between pair.c, which runs a pair, and pair_check.c, which looks at it afterwards.
#ifndef UPGATE_HARNESS_RUN_PAIR_INTERNAL_H
#define UPGATE_HARNESS_RUN_PAIR_INTERNAL_H

#include "harness/run/pair.h"

// The pair has failed; the first reason stays. reason is taken.
void pair_fail(struct pair *pair, char *reason);
// Fails a pair whose launches say they went well and lost records, ranks or steps. Not for a pair that
// was stopped.
void pair_check(const struct pair_spec *spec, struct pair *pair);
// Fails a pair whose sides were cut by different rules, as far as they have said by now.
void pair_check_rules(const struct pair_spec *spec, struct pair *pair);
// Fails a pair for a side that ended without a step.
void pair_miss_steps(const struct pair_spec *spec, struct pair *pair, int side);
// From arrivals to lengths. A block whose first step was lost has none: it is taken out, with its partner.
void pair_close_blocks(struct pair *pair);

// In a turn, steps being marked by our library: a process has stood at the gate for long while another marks none. The launch is ended then, and
// the pair has failed.
bool pair_check_even(const struct pair_spec *spec, struct pair *pair, int side);

#endif
