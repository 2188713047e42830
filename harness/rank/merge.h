// SPDX-License-Identifier: Apache-2.0
// `upgate merge`: the shards of one run and restart in one store, as one recording: times on one
// clock, processes that several recorders of a node saw only once, CPUs of nodes numbered one
// behind the other. Which rank stands on which node, and within what its clock is known, stands in
// recording.target ("nodes", "ranks"), where reports/analyse/stalls reads it. One shard at a time
// is open; the store has its name only when it is whole. The shards of a node may be merged there,
// into a part, and the parts of all nodes then: the store is the same.
#ifndef UPGATE_HARNESS_RANK_MERGE_H
#define UPGATE_HARNESS_RANK_MERGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/error.h"
#include "harness/rank/clock_fit.h"
#include "harness/rank/scan.h"

#define MERGE_ERROR_NS_END ((int64_t)1 << 61) // of a clock; two of them can be added

struct merge_opts {
    const char *dir, *path;   // path: of the store, which must not exist yet; of parts, the
                              // directory: PATH/RUN/RESTART-RANK.part.db
    bool part;                // of one node: ranks without a shard are elsewhere
    const char *run;          // NULL: the only one
    int64_t restart;          // -1: the last one
    const char *command_line; // of upgate, JSON array
    bool dry_run;             // all checks, no store
    const struct scan_visitor *visitor; // NULL ok
};

struct merge_rank { // that is missing, or there twice
    int32_t rank;
    char *why;
};

struct merge_node {
    const char *host, *boot; // of a shard
    int64_t ranks;
    // two clocks are known within the sum of their errors; -1: not known
    int64_t wall_minus_monotonic_ns, error_ns;
    struct clock_map map; // its times onto the clock of the first node
    bool by_collectives;  // they told more of its clock than its kernel
    int64_t process_first, process_last, cpu_first, cpus;
};

struct merge_result {
    struct scan scan;
    struct scan_shard **chosen; // of the run and the restart, by node and rank; into scan
    size_t chosen_count;
    const char *run;
    int64_t restart;
    int32_t ranks;  // of the job
    int64_t merged; // of them
    char *path;     // of the store; NULL: not known yet
    bool *lacks;    // by rank: it is in missing
    struct merge_rank *missing, *duplicates;
    size_t missing_count, duplicate_count;
    struct merge_node *nodes;
    size_t node_count;
    char **notes; // what a person should know, sentences
    size_t note_count;
    int64_t begin_ns, end_ns;  // when all of them recorded, on the clock of the first node
    int64_t clock_residual_ns; // between the two nodes whose clocks are known least; 0: one node;
                               // -1: not known
    size_t by_collectives;     // nodes whose clocks are known so; 0: none
    int64_t steps, bytes;      // steps of the rank that made most; bytes of the shards
};

// Which shards there are, into ret->scan. Of opts dir and visitor count. Returns as scan_dir.
int merge_scan(const struct merge_opts *opts, struct merge_result *ret, struct error *err);
// Which shards there are, and which of them are of that run and restart: chosen, by rank. Of opts
// dir, run and restart count. Returns as merge_run, of which it is the first half.
int merge_find(const struct merge_opts *opts, struct merge_result *ret, struct error *err);
// 0, ranks may be missing. -EINVAL: no shards, several runs, a rank that is there twice, shards of
// jobs of different sizes, a part of several nodes or of a job that runs: nothing is written, and
// *ret has what is known. Else -errno. merge_free in any case.
int merge_run(const struct merge_opts *opts, struct merge_result *ret, struct error *err);
void merge_free(struct merge_result *result);

// Where a file grows that will be `path`; what killed merges of this host left of theirs is taken
// away. The caller frees, and unlinks.
char *merge_partial(const char *path);
// What has grown gets its name. -EINVAL: somebody else took it meanwhile, and keeps it.
ERROR_CHECKED int merge_settle(const char *partial, const char *path, struct error *err);

#endif
