// SPDX-License-Identifier: Apache-2.0
// What one source is to the room.
#ifndef UPGATE_HARNESS_CANARY_SOURCES_SOURCES_INTERNAL_H
#define UPGATE_HARNESS_CANARY_SOURCES_SOURCES_INTERNAL_H

#include "harness/canary/sources/source_clock.h"
#include "harness/canary/sources/sources.h"
#include "harness/canary/sources/timeline.h"

#define SOURCE_FINISH_NS 2000000000LL // sources.h: a second is finished when its end is so long ago

struct source {
    const struct source_ops *ops;
    const struct rollout *rollout;
    const struct rollout_source *plan;
    struct timeline *timeline; // of all sources
    struct source_clock clock;
    struct source_state state;
    int64_t complete_ns; // CLOCK_MONOTONIC: whatever ended before is in
    int fd;              // tells that something has come; -1: none, it is asked again and again
    void *own;
};

struct source_ops {
    int (*open)(struct source *source, struct error *err);
    void (*close)(struct source *source); // also half-open
    // When it wants to be read again, though nothing has come at fd. For one with fd: not before,
    // though something has.
    int64_t (*due_ns)(const struct source *source);
    // Reads what has come, never waits; sets complete_ns. True: something came.
    bool (*read)(struct source *source, int64_t now_ns);
};

extern const struct source_ops source_log_ops, source_jsonl_ops, source_prometheus_ops,
        source_steps_ops;

// One request by its stamp of the source's clock (-1: it has just ended). What becomes of it is
// counted in the state.
void source_request(struct source *source, enum timeline_arm arm, int64_t stamp_ns, int64_t now_ns,
        struct timeline_request *request);
void source_problem(struct source *source, const char *fmt, ...)
        __attribute__((format(printf, 2, 3)));

#endif
