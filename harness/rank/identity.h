// SPDX-License-Identifier: Apache-2.0
// Who a rank is: what its launcher says (common/launcher.h), which run that makes, on which node,
// and how far the node's clock can be compared with those of others. Written into each shard as
// recording.target's "rank", and read there by `upgate merge`.
#ifndef UPGATE_HARNESS_RANK_IDENTITY_H
#define UPGATE_HARNESS_RANK_IDENTITY_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "common/launcher.h"

enum { IDENTITY_RUN_MAX = 160, IDENTITY_NAME_MAX = 80 };

// The node's wall clock against its CLOCK_MONOTONIC, in which all times of a shard are. Where the
// kernel knows that the wall clock is synchronised, it also knows within what.
struct identity_clock {
    int64_t wall_minus_monotonic_ns;
    int64_t error_ns; // -1: not synchronised, so that nothing is known
};
void identity_clock_read(struct identity_clock *ret);

struct identity {
    struct launcher_rank launcher; // .launcher NULL: nobody says so; it is then rank 0 of 1
    // letters, digits, '.', '-' and '_'; never starts with '.': the name of a directory
    char run[IDENTITY_RUN_MAX];
    // boot: one clock, one numbering of CPUs and processes
    char host[IDENTITY_NAME_MAX], boot[IDENTITY_NAME_MAX];
    struct identity_clock clock;
};

// run: the user's name of it, or NULL: the launcher's job, else a new one. A name that cannot be a
// directory's is made one.
void identity_find(const char *run, struct identity *ret);

json_t *identity_json(const struct identity *identity); // the caller's
// false: it is no identity as identity_json makes it.
bool identity_parse(const json_t *json, struct identity *ret);

#endif
