// SPDX-License-Identifier: Apache-2.0
// What one launch recorded through the step protocol, taken out of shared memory into plain arrays
// until the pair is over and goes to the store in one transaction. Owned by the run loop's thread.
#ifndef UPGATE_HARNESS_RUN_SAMPLES_H
#define UPGATE_HARNESS_RUN_SAMPLES_H

#include <stdbool.h>
#include <stdint.h>

#include "common/containers/map.h"
#include "common/error.h"
#include "harness/run/launch.h"
#include "tracer/store/store.h"

struct samples_step {
    uint32_t slot, idx;
    int64_t begin_ns, end_ns, sched_ns; // sched 0 = not a request
    double samples;
};
struct samples_loss {
    uint32_t slot, idx;
    double value;
};
struct samples_tensor {
    uint32_t slot, idx;
    char *name;
    int dtype;
    uint64_t count, digest;
    void *data; // at most SAMPLES_TENSOR_VALUES_MAX values; none beyond SAMPLES_TENSOR_BYTES_MAX,
                // but for the first of a name
    size_t data_bytes;
    double *sketch; // of a longer one: TENSOR_SKETCH_BYTES of sums over all its values; NULL
};

// Phases of one name summed over the launch; for a note the last value stands in value.
struct samples_named {
    uint32_t slot;
    char name[UG_STEP_NAME_BYTES];
    int64_t count, total_ns;
    double value;
};

// One phase, of a traced launch.
struct samples_span {
    uint32_t phase; // index into samples.phases: its slot and name
    int32_t depth;
    int64_t begin_ns, end_ns;
};

// By which a process was cut: "optimizer", "module", …; "!WHY": the rule did not hold.
struct samples_rule {
    uint32_t slot;
    char *text;
};

struct samples {
    bool traced; // set before the first drain: phases are kept one by one as well
    struct samples_span *spans;
    size_t span_count;
    uint64_t spans_over; // beyond SAMPLES_SPANS_MAX, or of a name that is not kept
    struct samples_step *steps;
    size_t step_count;
    struct samples_loss *losses;
    size_t loss_count;
    struct samples_tensor *tensors;
    size_t tensor_count;
    struct samples_named *phases, *notes;
    size_t phase_count, note_count;
    char *fingerprint;          // JSON text of the process, NULL
    struct samples_rule *rules; // of each process whose steps were found
    size_t rule_count;
    char *found;              // what they are, in words of the last that said it; NULL
    uint64_t requests;        // that servers told by ug_request_done()
    uint64_t requests_failed; // of them: not answered, or by an error of the server
    uint64_t requests_wrong;  // of them: the server knew that its answer was wrong
    uint64_t broken;          // rings the process scribbled over
    struct map tensor_names;  // of the kept, by the hash of slot and name
    uint64_t tensor_bytes;    // kept, but for the late
    uint64_t tensors_late; // beyond SAMPLES_TENSOR_BYTES_MAX, with their values: the first of their
                           // names
    uint64_t tensors_digests; // beyond it: kept without their values
    uint64_t tensors_over;    // beyond SAMPLES_TENSOR_DIGESTS_MAX of those: not kept
};

enum {
    SAMPLES_TENSOR_VALUES_MAX = 4096,
    SAMPLES_TENSOR_BYTES_MAX = 16 << 20, // of a launch: outputs of the first steps are compared by
                                         // their values, the rest by digest
    SAMPLES_TENSOR_LATE_MAX = 64,        // of a launch, names: 3 MiB of float32
    SAMPLES_TENSOR_WIDTH_MAX = 16,       // bytes of a value: complex128
    SAMPLES_TENSOR_DIGESTS_MAX = 16384,  // of a launch: 4 MiB
    SAMPLES_TENSOR_BYTES_MIN = 256, // what one takes in it without any value: its name, its row
    SAMPLES_SPANS_MAX = 1 << 20, // of a traced launch: 24 MiB; four phases in each of 260,000 steps
    SAMPLES_STEPS_MAX = 4 << 20  // of a launch: 200 MiB; a run of hours in steps of milliseconds
};

// Take what the reader has. Call at least every 30,000 steps of a slot.
void samples_drain(struct samples *samples, struct reader *reader);
// Write ranks, steps, phases, losses, tensors, counters of a launch. Inside the caller's
// transaction.
ERROR_CHECKED int samples_store(const struct samples *samples, const struct launch *launch,
        int64_t launch_id, struct store *store, struct error *err);
void samples_free(struct samples *samples); // frees the arrays, not the struct
// The rule by which the steps of all processes of a launch were found: NULL with *ret_why where
// there is none that holds, NULL without where the program made its step calls itself, or none.
const char *samples_rule(const struct samples *samples, const char **ret_why);
// Steps completed by the slowest slot; -1 = no step call was made.
int64_t samples_steps(const struct launch *launch);
uint64_t samples_dropped(const struct launch *launch);
// Largest value noted under a name by any process; NAN = nobody did.
double samples_note_max(const struct samples *samples, const char *name);

#endif
