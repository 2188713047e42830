// SPDX-License-Identifier: Apache-2.0
// Moves up are made within the plan's windows and outside its freezes; moves down always. By the
// wall clock of the windows' time zones. Sets TZ of the process for a moment: one thread at a time.
#ifndef UPGATE_HARNESS_CANARY_PLAN_WINDOW_H
#define UPGATE_HARNESS_CANARY_PLAN_WINDOW_H

#include "harness/canary/plan/rollout.h"

enum window_answer { WINDOW_OPEN, WINDOW_CLOSED, WINDOW_FROZEN };

// May we move up at this moment (CLOCK_REALTIME, seconds)? Without windows and freezes: always.
enum window_answer window_at(const struct rollout *rollout, int64_t at_s);
// The first moment from `at_s` on, a whole minute unless it is at_s itself, when we may; -1: not
// within 400 days.
int64_t window_next(const struct rollout *rollout, int64_t at_s);

// Words of a plan. 0, or -EINVAL in words.

// "mon-thu", "mon,wed,sat-sun"
int window_parse_days(const char *text, uint8_t *ret_days, struct error *err);
// "09:00" .. "24:00"
int window_parse_minute(const char *text, int *ret_minute, struct error *err);
// caller frees both days
int window_parse_freeze(const char *text, struct rollout_freeze *ret, struct error *err);
// of the time zone database
int window_check_zone(const char *zone, struct error *err);
char *window_format_days(uint8_t days); // "mon,tue"; caller frees

#endif
