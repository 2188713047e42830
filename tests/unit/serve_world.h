// SPDX-License-Identifier: Apache-2.0
// Snapshots by hand for the tests of `upgate canary serve`, and one call that asks for an answer.
#ifndef UPGATE_TESTS_SERVE_WORLD_H
#define UPGATE_TESTS_SERVE_WORLD_H

#include "harness/canary/serve/answers.h"

#define WORLD_SECOND INT64_C(1000000000)
#define WORLD_WALL_NS (INT64_C(1700000000) * WORLD_SECOND)
#define WORLD_MONOTONIC_NS (1000 * WORLD_SECOND)

// A rollout "ranker" that runs: stage 0 "shadow" passed, stage 1 "5%" at hand with two cells, stage
// 2 "100%" to come. Change it, then ask. Freed by the caller.
struct snapshot *world_rollout(void);
struct snapshot *world_run(const char *verdict); // of `upgate ab`; NULL: not judged
void world_state(struct snapshot *snapshot, const char *state, const char *reason);

// The answer at the world's time. Status and body of the last one; the body is valid until the next
// call.
int world_ask(const struct snapshot *snapshot, enum call_method method, const char *target,
        const char *body);
int world_ask_at(const struct snapshot *snapshot, enum call_method method, const char *target,
        const char *body, int64_t later_ns);
const char *world_body(void);
const char *world_type(void);
#define WORLD_PAYLOAD \
    "{\"name\":\"ranker\",\"namespace\":\"prod\",\"phase\":\"Progressing\",\"checksum\":\"5f8\",\"metadata\":{\"a\":\"b\"}}"

#endif
