// SPDX-License-Identifier: Apache-2.0
// `upgate merge --reduced`: shards in directories and reduced files become one reduced file, and
// what it says of each rank is printed.
#ifndef UPGATE_VERBS_MERGE_REDUCED_H
#define UPGATE_VERBS_MERGE_REDUCED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "contracts/exit_code.h"

// Of a window, unless somebody says otherwise: 1,000 ranks of 200 steps are 40,000 windows, of at
// most 40 MB; and 200 steps have windows enough to tell a late rank from chance (LATE_BLOCKS).
enum { MERGE_WINDOW_STEPS = 5 };
#define MERGE_WINDOW_TEXT "5"

struct merge_reduced_opts {
    char **paths;          // directories of shards, reduced files
    size_t count;          // not 0
    const char *run;       // of shards; NULL: the only one
    int64_t restart;       // -1: the last one
    uint64_t window_steps; // of shards
    bool window_given;     // files must have it, too
    const char *output;    // NULL: only printed
    bool part;             // of one node: other ranks are elsewhere; output is a directory
    bool json, dry_run;
};

ERROR_CHECKED int merge_reduced(
        const struct merge_reduced_opts *opts, enum exit_code *ret_exit, struct error *err);

#endif
