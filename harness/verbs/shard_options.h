// SPDX-License-Identifier: Apache-2.0
// What `upgate merge` and `upgate query` let a user say of the shards in a directory, and how both
// tell of ranks.
#ifndef UPGATE_VERBS_SHARD_OPTIONS_H
#define UPGATE_VERBS_SHARD_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "common/options.h"
#include "harness/rank/merge.h"

struct shard_values {
    const char *run;
    uint64_t restart;
    bool restart_given;
};

// clang-format off
#define OPTIONS_SHARDS(type, member) \
    {"Which shards", 0, "job", OPTION_TEXT, "NAME", NULL, "the only one", "of several runs in DIR this one", \
     offsetof(type, member.run), 0, 0, 0}, \
    {NULL, 0, "restart", OPTION_UINT, "N", NULL, "the last one", "of a job that its launcher restarted, counted from 0", \
     offsetof(type, member.restart), 0, INT32_MAX, offsetof(type, member.restart_given)}
// clang-format on

int64_t shard_values_restart(const struct shard_values *values); // -1: the last one
// [{rank, why}]; a new reference
json_t *shard_ranks_json(const struct merge_rank *ranks, size_t count);
// A line on stdout of what shards say of themselves, without its end: nothing in it reaches the
// terminal as more than text.
void shard_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

#endif
