// SPDX-License-Identifier: Apache-2.0
// A job's ranks, reduced: of each rank and window of steps a gist, of each collective who came to
// it last. Made of a shard where it lies (reduced_load.h), and added: what comes of it is the same,
// byte by byte, in whatever order and by whatever tree.
//
// A collective is kept for each node apart, whose ranks have one clock: how many of them came, who
// was the last one and when, and how long the others waited for that one together. So how far
// clocks of two nodes can be trusted is asked when somebody reads it, not before.
#ifndef UPGATE_REPORTS_ANALYSE_REDUCE_REDUCED_H
#define UPGATE_REPORTS_ANALYSE_REDUCE_REDUCED_H

#include <stdio.h>

#include "common/error.h"
#include "common/strings.h"
#include "reports/analyse/reduce/gist.h"

enum {
    REDUCED_VERSION = 2,         // 1 is read, too: ranks have no GPU in it
    REDUCED_RANKS_MAX = 1 << 20, // of a job, as `upgate merge` takes them
    REDUCED_NAME_MAX = 255,      // bytes of a run, a host, a boot
    REDUCED_UUID_SIZE = 16,
    // bytes of "H100 80GB HBM3": with the rest of a rank and its window 1 KB
    REDUCED_MODEL_MAX = 24,
    REDUCED_BYTES_MAX = 1 << 30,   // of a file: a million gists
    REDUCED_MEETINGS_MAX = 1 << 22 // collectives, of each node its own: 200 steps of 100
                                   // collectives on 200 nodes, 235 MB of memory
};
#define REDUCED_NS_END ((int64_t)1 << 61) // as times in stores (tracer/store/ranges.h)
#define REDUCED_WAITS_NS_END \
    ((uint64_t)1 << 62) // of all ranks of a node in one collective: a million ranks that wait for
                        // an hour

enum reduced_flag {       // stored
    REDUCED_ENDED = 1,    // its recorder was ended in order
    REDUCED_NCCL = 2,     // NCCL told of its collectives
    REDUCED_KERNELS = 4,  // it came when their kernels began, else when they were called for
    REDUCED_MESSAGES = 8, // it sends to some of the others, like the stages of a pipeline
    REDUCED_GPU = 16,     // it has one that is known
    REDUCED_FLAGS = 31,
    REDUCED_FLAGS_1 = 15 // of version 1
};

struct reduced_node {
    char *boot, *host; // boot: of one clock
    int64_t wall_minus_monotonic_ns;
    int64_t error_ns; // of its wall clock; -1: not known
};

struct reduced_rank {
    int32_t rank;
    uint32_t node, flags;
    uint64_t dropped;               // records that its recorder lost
    uint8_t gpu[REDUCED_UUID_SIZE]; // of REDUCED_GPU, the UUID of the one that it uses most; else 0
    char model[REDUCED_MODEL_MAX + 1]; // of that, without "NVIDIA "; "": not known
};

struct reduced_gist {
    int32_t rank;
    uint32_t size;
    uint64_t window; // steps window * window_steps and so on
    size_t at;       // in gist_bytes, where they lie in any order
};

struct reduced_meeting { // a collective on one node
    uint64_t communicator, number;
    uint32_t node, count; // of its ranks that came
    int32_t last;         // rank; of several at once the highest
    bool repeats;         // one of them has that number twice: it tells nothing
    int64_t last_ns;      // of the node's CLOCK_MONOTONIC
    uint64_t waits_ns;    // of the others for the last one, together
};

struct reduced { // {0}: nothing, to which anything can be added
    char *run;   // NULL: nothing
    int64_t restart;
    int32_t ranks; // of the job
    uint64_t window_steps;
    struct reduced_node *nodes;   // by boot
    struct reduced_rank *members; // by rank
    struct reduced_gist *gists;   // by rank and window
    struct strbuf gist_bytes;
    struct reduced_meeting *meetings; // by communicator, number and node
    size_t node_count, member_count, gist_count, meeting_count;
};

// -EINVAL: they are of different jobs, or have a rank in common, which would count twice. -E2BIG:
// REDUCED_MEETINGS_MAX. -EBADMSG: the waits in a collective would be REDUCED_WAITS_NS_END or
// longer, so that one of both is damaged. sum is then as before.
ERROR_CHECKED int reduced_add(struct reduced *sum, const struct reduced *more, struct error *err);
void reduced_free(struct reduced *reduced); // {0} ok
// NULL: it is not there
const struct reduced_rank *reduced_member(const struct reduced *reduced, int64_t rank);

// Added to ret. -E2BIG: the file would be larger than reduced_read takes; ret is as before then.
ERROR_CHECKED int reduced_encode(
        const struct reduced *reduced, struct strbuf *ret, struct error *err);
// The same bytes into a file; NULL: they are only counted. Whether the file took them, its owner
// asks. -E2BIG: some may have been written.
ERROR_CHECKED int reduced_encode_file(
        const struct reduced *reduced, FILE *file, size_t *ret_bytes, struct error *err);
// -EBADMSG: damaged; -EINVAL: no reduced file, or one of a newer version. name: for the sentence.
// ret is {0} then.
ERROR_CHECKED int reduced_decode(
        const void *bytes, size_t size, const char *name, struct reduced *ret, struct error *err);
ERROR_CHECKED int reduced_read(const char *path, struct reduced *ret, struct error *err);
// what the last 8 bytes of a file say of those before, little endian
uint64_t reduced_checksum(const void *bytes, size_t size);

// For who makes one. Behind the others, by rank and window.
void reduced_put_gist(
        struct reduced *reduced, int32_t rank, uint64_t window, const uint8_t *bytes, size_t size);
// of one rank, in any order: what is there twice is one that repeats
void reduced_sort_meetings(struct reduced *reduced);

#endif
