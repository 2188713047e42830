// SPDX-License-Identifier: Apache-2.0
// What is kept of a rank in a window of steps: how long its steps, its waits and its GPU's kernels
// took, and its phases. At most GIST_BYTES_MAX bytes, whatever is put in, and however many are
// added. Gists are added in any order and by any tree with the same bytes as result: spreads are
// (spread.h), and of more phases than there is room for the first by name are kept, with all of
// their time in every part that could have a say, and the others are one.
#ifndef UPGATE_REPORTS_ANALYSE_REDUCE_GIST_H
#define UPGATE_REPORTS_ANALYSE_REDUCE_GIST_H

#include "reports/analyse/reduce/spread.h"

enum gist_spread { // stored: never renumbered
    GIST_STEP = 0,
    GIST_WAIT_RANKS = 1, // of the main thread on the host, in a collective, a send or a receive
    GIST_WAIT_OTHER = 2, // of the main thread, for anything else, a CPU included; as far as waits
                         // are recorded (--threshold)
    GIST_KERNEL_MATRIX = 3,
    GIST_KERNEL_ATTENTION = 4,
    GIST_KERNEL_CONVOLUTION = 5,
    GIST_KERNEL_REDUCTION = 6,
    GIST_KERNEL_POINTWISE = 7,
    GIST_KERNEL_COLLECTIVE = 8,
    GIST_KERNEL_OTHER = 9, // also graphs of kernels as a whole
    GIST_COPY = 10,        // and sets
    GIST_SPREAD_COUNT
};

enum {
    GIST_PHASES_MAX = 6,
    GIST_NAME_MAX = 12, // bytes; longer names are cut
    // Of spreads, for their bins. Steps and waits are what ranks are compared by; those of kernels
    // are 23 bins.
    GIST_STEP_BYTES = 96,
    GIST_WAIT_BYTES = 72,
    GIST_KERNEL_BYTES = 46,
    GIST_BYTES_MAX = 1 + GIST_SPREAD_COUNT * (1 + SPREAD_HEAD_MAX) + GIST_STEP_BYTES +
            2 * GIST_WAIT_BYTES + (GIST_SPREAD_COUNT - 3) * GIST_KERNEL_BYTES + 1 +
            GIST_PHASES_MAX * (1 + GIST_NAME_MAX) + (GIST_PHASES_MAX + 1) * 2 * VARINT_SIZE_MAX
};
_Static_assert(GIST_BYTES_MAX <= 1000, "a rank and window has 1 KB, with what says whose it is");

struct gist_phase {
    char name[GIST_NAME_MAX + 1]; // "": of the others
    uint64_t count, ns;
};

struct gist { // {0}: empty
    struct spread spreads[GIST_SPREAD_COUNT];
    struct gist_phase phases[GIST_PHASES_MAX]; // by name
    uint32_t phase_count;
    struct gist_phase others; // whose names come behind theirs
};

void gist_put(struct gist *gist, enum gist_spread what, uint64_t ns);
// A name that is empty is "?".
void gist_put_phase(struct gist *gist, const char *name, uint64_t ns);
void gist_add(struct gist *sum, const struct gist *more);

// Where the time of a kernel goes, by its name.
enum gist_spread gist_kernel(const char *name);
const char *gist_name(enum gist_spread what); // as in JSON: "matrix"

size_t gist_encode(const struct gist *gist, uint8_t ret[GIST_BYTES_MAX]); // how many bytes
// false: these bytes, all of them, are none.
bool gist_decode(const uint8_t *bytes, size_t size, struct gist *ret);

#endif
