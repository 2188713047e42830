// SPDX-License-Identifier: Apache-2.0
// The GPU side of a recording, for the recorder: looks for prepared processes among those of the
// target, hands them to tracer/gpu, and tells who their threads are. A process in a pid namespace
// of its own names threads by its own numbers: they are translated. One thread, the recorder's.
#ifndef UPGATE_TRACER_RECORD_GPU_SIDE_H
#define UPGATE_TRACER_RECORD_GPU_SIDE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/mapping_event.h"
#include "tracer/gpu/gpu.h"
#include "tracer/record/tasks.h"

struct gpu_side;

struct gpu_side_opts {
    uint32_t kinds; // enum ug_spool_want
    const int64_t *launch_id;
    const char *library; // path of the library, for the sentence that says how to prepare a
                         // process; NULL ok
};

int gpu_side_new(struct store *store, int64_t recording_id, struct writer *writer,
        struct tasks *tasks, const struct gpu_side_opts *opts, struct gpu_side **ret_side,
        struct error *err);
void gpu_side_free(struct gpu_side *side); // NULL ok; before the writer

// Looks at the target's processes when it is time; true: one of them is prepared.
bool gpu_side_search(struct gpu_side *side, int64_t now_ns);
// A process of the machine has mapped a file. One of the target's with our library is looked at in
// the next round, and told of when it ended unread.
void gpu_side_mapping(struct gpu_side *side, const struct mapping_event *event);
// Takes what is in the spools. 0, or -errno: the store cannot be written.
int gpu_side_poll(struct gpu_side *side, int64_t now_ns, struct error *err);
int gpu_side_stop(struct gpu_side *side, struct error *err); // waits at most 2 s for the libraries
void gpu_side_totals(const struct gpu_side *side, struct gpu_totals *ret_totals);
// A sentence about each kind of process whose GPU side is missing; the caller frees each. At most
// max.
size_t gpu_side_missing(const struct gpu_side *side, char **ret_sentences, size_t max);

#endif
