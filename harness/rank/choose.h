// SPDX-License-Identifier: Apache-2.0
// Between the files of `upgate merge`: which of the shards found are merged, and what is said of
// the others.
#ifndef UPGATE_HARNESS_RANK_CHOOSE_H
#define UPGATE_HARNESS_RANK_CHOOSE_H

#include "harness/rank/merge.h"

// Of the shards in result->scan. Fills run, restart, ranks, chosen, missing, duplicates, notes of
// the result. -EINVAL as merge_run.
int choose_shards(const struct merge_opts *opts, struct merge_result *result, struct error *err);
// Nodes are known: the time in which all chosen ones recorded, and how many ranks they have. Who
// recorded for less than half of what most did is missing instead; in a part, whose node may be an
// odd one, also who has half of the longest and no end in order.
void choose_window(struct merge_result *result, bool part);
// What a person should know, a sentence.
void choose_note(struct merge_result *result, const char *fmt, ...)
        __attribute__((format(printf, 2, 3)));
// rank: of the job. The first reason counts.
void choose_add_missing(struct merge_result *result, int32_t rank, const char *why);

#endif
