// SPDX-License-Identifier: Apache-2.0
// Shards that several processes see, as upgate-mpi-reduce puts them together: each recording once,
// whoever sees it, and who of them is to reduce it. The same file seen twice, or a copy of it under
// its name, is told by what it says of itself: run, restart, rank, the node's boot, the worker's
// pid and when it began; of copies of different sizes the largest counts. Device and inode would
// not do: of a network file system each node has a device number of its own. What another process
// sent may be anybody's: -EBADMSG where it cannot be.
#ifndef UPGATE_HARNESS_RANK_SEEN_H
#define UPGATE_HARNESS_RANK_SEEN_H

#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "common/error.h"
#include "common/strings.h"
#include "harness/rank/merge.h"

struct seen {            // {0}: nobody has looked
    const char *version; // of the program, which the others must have, too; NULL: ""
    json_t *shards;      // by what tells them apart; NULL: none
    int64_t blind;       // processes that see no shard
    char *why;           // the first of them, a sentence
};

void seen_put(struct seen *seen, const struct scan *scan, int process);
void seen_put_none(struct seen *seen, const char *why);
ERROR_CHECKED int seen_encode(const struct seen *seen, struct strbuf *ret, struct error *err);
// What others see, as they encoded it. -EINVAL: by a program of another version.
ERROR_CHECKED int seen_add(struct seen *seen, const void *bytes, size_t size, struct error *err);
void seen_free(struct seen *seen); // {0} ok

// As a scan of one directory with all of them in it, for choose_shards. When each rank recorded is
// not in it. scan_free.
ERROR_CHECKED int seen_scan(const struct seen *seen, struct scan *ret, struct error *err);
// Who reduces which of the chosen shards of that scan: of the processes that see one, who has the
// fewest bytes so far.
ERROR_CHECKED int seen_share(const struct seen *seen, const struct merge_result *shards,
        int processes, uint64_t window_steps, struct strbuf *ret, struct error *err);
// The share of a process, of the shards in mine->scan: fills its run, ranks, chosen and lacks.
ERROR_CHECKED int seen_take_share(const void *bytes, size_t size, int process,
        struct merge_result *mine, uint64_t *ret_window_steps, struct error *err);

// Ranks that are missing, with the reason; what is added is of the same job.
ERROR_CHECKED int seen_missing_encode(
        const struct merge_result *shards, struct strbuf *ret, struct error *err);
ERROR_CHECKED int seen_missing_add(
        struct merge_result *shards, const void *bytes, size_t size, struct error *err);

#endif
