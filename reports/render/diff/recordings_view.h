// SPDX-License-Identifier: Apache-2.0
// Two recordings compared, as people and machines read it: terminal table, Markdown, upgate.diff/1.
// Shows what reports/analyse/diff/recordings/recordings.c found and judges nothing.
#ifndef UPGATE_REPORTS_RECORDINGS_VIEW_H
#define UPGATE_REPORTS_RECORDINGS_VIEW_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "common/error.h"
#include "reports/analyse/diff/recordings/recordings.h"

// all: what is not told too
void recordings_view_table(const struct recordings_diff *diff, bool all, FILE *stream);
// "### …" first; the caller frees
char *recordings_view_markdown(const struct recordings_diff *diff, const char *heading);
// upgate.diff/1 with one workload, "recording": its step times are null (no steps were compared),
// `unit` says of what times are.
json_t *recordings_view_json(const struct recordings_diff *diff);

// "A request of the candidate takes 1.84 ms of CPU time more (3.10 ms -> 4.94 ms)." or that nothing
// is told; the caller frees.
char *recordings_view_answer(const struct recordings_diff *diff);
// "The recording of the baseline was cut off: ..."; the caller frees
char *recordings_view_note(const struct recordings_note *note);

#endif
