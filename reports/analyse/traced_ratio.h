// SPDX-License-Identifier: Apache-2.0
// How long a traced step took against an untraced one, in words: the same in the log and the notes
// of `upgate ab`, in `upgate diff` and in the page. Pure.
#ifndef UPGATE_ANALYSE_TRACED_RATIO_H
#define UPGATE_ANALYSE_TRACED_RATIO_H

#include <stddef.h>

// "a traced step took 1.040 (a) and 1.050 (b) times as long as an untraced one"; a side that is NAN
// is "unknown". unit: "step", "request", "launch". Returns text.
char *traced_ratio_text(char *text, size_t size, const char *unit, const double ratio[2]);

#endif
