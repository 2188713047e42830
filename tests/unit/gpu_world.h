// SPDX-License-Identifier: Apache-2.0
// A spool as the library in a workload makes it, written by hand, and a store with a recording to
// read it into.
#ifndef UPGATE_TESTS_UNIT_GPU_WORLD_H
#define UPGATE_TESTS_UNIT_GPU_WORLD_H

#include <stddef.h>
#include <stdint.h>

#include "contracts/spool.h"
#include "tracer/gpu/gpu.h"
#include "tracer/store/store.h"

enum { WORLD_SEGMENTS = 64, WORLD_SEGMENT_BYTES = 64 << 10, WORLD_PROCESS_ROW = 1 };

struct spool_world {
    int fd;
    struct ug_spool_header *header;
    struct ug_spool_segment *segments;
    unsigned char *data;
    size_t bytes;
    uint64_t sequence;
    uint32_t strings;
    int at[8]; // segment of writer 0 to 7, -1: none
};

void spool_world_new(struct spool_world *world);
void spool_world_free(struct spool_world *world);
// head.bytes long; drops when full
void spool_world_put(struct spool_world *world, int writer, const void *record);
// gives the writer's segment to the reader
void spool_world_full(struct spool_world *world, int writer);
uint32_t spool_world_string(struct spool_world *world, int writer, const char *text);
void spool_world_clock(struct spool_world *world, uint64_t host_ns, uint64_t gpu_ns);
void spool_world_device(struct spool_world *world, uint32_t context);
struct ug_rec_kernel spool_world_kernel(
        uint32_t name, uint32_t correlation, uint64_t start_gpu, uint64_t end_gpu);
struct ug_rec_call spool_world_call(
        uint32_t name, uint32_t tid, uint32_t correlation, uint64_t start_gpu, uint64_t end_gpu);

// A new store with recording 1, process 1 (pid 100) and threads: row 10 + tid.
struct store *gpu_world_store(const char *path);
extern const struct gpu_callbacks gpu_world_callbacks;

#define WORLD_HEAD(kind, type_) \
    { \
        .type = (kind), .bytes = sizeof(type_), .tid = 0 \
    }

#endif
