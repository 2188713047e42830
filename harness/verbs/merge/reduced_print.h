// SPDX-License-Identifier: Apache-2.0
// What `upgate merge --reduced` prints: each rank, which are missing, who is late.
#ifndef UPGATE_VERBS_MERGE_REDUCED_PRINT_H
#define UPGATE_VERBS_MERGE_REDUCED_PRINT_H

#include <stddef.h>

#include "common/error.h"
#include "harness/rank/merge.h"
#include "reports/analyse/reduce/reduced_table.h"

struct reduced_told {
    const struct reduced *all;
    const struct reduced_table *table;
    const struct merge_rank *missing; // of the job
    size_t missing_count;
    size_t file_bytes, gist_median, gist_most; // of a window
};

void reduced_print(const struct reduced_told *told);
// One document. -EIO, -ENOSPC, -EPIPE: stdout did not take it.
ERROR_CHECKED int reduced_print_json(const struct reduced_told *told, struct error *err);

#endif
