// SPDX-License-Identifier: Apache-2.0
// The shards in a directory: which there are, whose they are, from when to when they recorded.
// Reads one row of each, and leaves it as it is. What cannot be read is in the list all the same,
// with the reason. A part is a shard of all ranks of a node, which `upgate merge --part` made
// there. Where `upgate rank` stood in front of a launcher, one recorder has recorded all ranks that
// it started: who they are is told by their environment, of whose job the launcher's own number
// says nothing.
#ifndef UPGATE_HARNESS_RANK_SCAN_H
#define UPGATE_HARNESS_RANK_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "harness/rank/identity.h"
#include "tracer/store/store.h"

enum { SCAN_SHARDS_MAX = 65536 };

// Of a rank whose launcher counts no restarts, in the directory of a run: the last restart that the
// run has, or the next one where this rank has been in that, with a shard or a reason in its place.
// 0: there is no such directory.
int32_t scan_next_restart(const char *dir, int32_t rank);

struct scan_rank {
    int32_t rank;
    int64_t begin_ns, end_ns; // when it was recorded, of the node's CLOCK_MONOTONIC
};

struct scan_shard {
    char *path;
    char *run;             // the name of its directory
    int64_t restart, rank; // by its name
    char *why; // it cannot be merged, or was never made: a sentence; NULL: it can, and the rest is
               // filled
    bool read; // who it is of was known when somebody who read more of it set `why`
    struct identity who; // of a part, or of several ranks, the first one
    bool part;
    int32_t outer_rank, outer_ranks; // of several ranks: which of how many their launcher is by its
                                     // own environment; outer_ranks 0: of one, or a part
    struct scan_rank *held; // its own one, with those that joined it (upgate rank --shared), or all
                            // of them, as they rise
    bool joined_lives; // of those that joined one has not ended, as far as can be told on this node
    size_t held_count;
    json_t *missing; // of a part, which ranks it lacks for a reason: [{"rank", "why"}]; NULL: none
    struct identity_clock end_clock; // as its end says; wall_minus_monotonic_ns 0: it was not ended
                                     // in order, or is a part
    int64_t pid; // of the worker, or of the launcher of several ranks; 0: a part
    // Of the node's CLOCK_MONOTONIC; end: of its last event, where it was not ended in order. Of a
    // part, when all of its ranks were recorded.
    int64_t begin_ns, end_ns;
    int64_t threshold_ns, sample_hz;
    bool ended;  // in order
    bool alive;  // its recorder lives, on this node
    bool ending; // the worker has ended, as far as can be told, and its recorder writes the end
    int64_t started_wall_ns, bytes;
    int64_t cpus; // one behind the last that it saw; scan_cpus
    size_t node;  // of those that choose_shards chose: 0, 1, … as their nodes follow each other
};

// Of ranks that share their recorder (upgate rank --shared).
static inline bool scan_is_shared(const struct scan_shard *shard)
{
    return !shard->part && !shard->outer_ranks && shard->held_count > 1;
}

// Or that their launcher has in common: whose its rows are is told by the processes that they are
// of.
static inline bool scan_has_several(const struct scan_shard *shard)
{
    return shard->outer_ranks || scan_is_shared(shard);
}

struct scan {
    struct scan_shard *shards; // by run, restart, rank, path
    size_t count;
};

// Who reads more of the shards while they are open for the scan.
struct scan_visitor {
    const char *run;          // only shards of this one; NULL: all
    void (*begin)(void *arg); // a scan begins, perhaps not the first
    // Of each shard that can be read, by any of several threads. index: in scan.shards. May set
    // shard->why.
    void (*visit)(void *arg, struct scan_shard *shard, size_t index, struct store *store);
    void *arg;
};

// dir: with directories of runs in it, or that of one run. visitor: NULL ok. -EINVAL: there is no
// such directory, or no shard in it. -E2BIG: more than SCAN_SHARDS_MAX.
int scan_dir(
        const char *dir, const struct scan_visitor *visitor, struct scan *ret, struct error *err);
void scan_free(struct scan *scan); // {0} ok
void scan_sort(struct scan *scan); // as scan_dir leaves it

// Fills the shard's cpus: reads all of its waits and samples. 0 where it cannot be read.
void scan_cpus(struct scan_shard *shard);
// Within what the clock of its node is known over the whole recording; -1: it is not.
int64_t scan_clock_error_ns(const struct scan_shard *shard);
// Opened to be read, whatever it says of its rank. -errno in words.
int scan_open(const struct scan_shard *shard, struct store **ret, struct error *err);

#endif
