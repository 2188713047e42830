// SPDX-License-Identifier: Apache-2.0
// A spool as the library in a workload makes it, and a store with a recording.
#include "tests/unit/gpu_world.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/strings.h"

void spool_world_new(struct spool_world *world)
{
    memset(world, 0, sizeof *world);
    size_t data_offset = UG_SPOOL_HEADER_BYTES + WORLD_SEGMENTS * sizeof(struct ug_spool_segment);
    data_offset = (data_offset + 4095) / 4096 * 4096;
    world->bytes = data_offset + (size_t)WORLD_SEGMENTS * WORLD_SEGMENT_BYTES;
    world->fd = memfd_create(UG_SPOOL_NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (world->fd < 0 || ftruncate(world->fd, (off_t)world->bytes) < 0 ||
            fcntl(world->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) < 0)
        abort();
    world->header = mmap(NULL, world->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, world->fd, 0);
    if (world->header == MAP_FAILED)
        abort();
    world->segments = (struct ug_spool_segment *)((char *)world->header + UG_SPOOL_HEADER_BYTES);
    world->data = (unsigned char *)world->header + data_offset;
    *world->header = (struct ug_spool_header){.magic = UG_SPOOL_MAGIC,
            .version = UG_SPOOL_VERSION,
            .header_bytes = sizeof(struct ug_spool_header),
            .segment_bytes = WORLD_SEGMENT_BYTES,
            .segment_count = WORLD_SEGMENTS,
            .data_offset = data_offset,
            .file_bytes = world->bytes,
            .pid = (uint32_t)getpid(),
            .state = UG_SPOOL_DORMANT,
            .have_kinds = UG_WANT_DEFAULT,
            .cupti_version = 130000,
            .driver_version = 13000,
            .per_thread_buffers = UINT32_MAX,
            .cupti_path = "/usr/lib/libcupti.so.13"};
    for (int i = 0; i < 8; i++)
        world->at[i] = -1;
}

void spool_world_free(struct spool_world *world)
{
    munmap(world->header, world->bytes);
    close(world->fd);
}

void spool_world_full(struct spool_world *world, int writer)
{
    if (world->at[writer] >= 0)
        __atomic_store_n(&world->segments[world->at[writer]].state, (uint32_t)UG_SEGMENT_FULL,
                __ATOMIC_RELEASE);
    world->at[writer] = -1;
}

static bool world_take(struct spool_world *world, int writer)
{
    for (int i = 0; i < WORLD_SEGMENTS; i++) {
        struct ug_spool_segment *segment = &world->segments[i];
        uint32_t state = UG_SEGMENT_FREE;
        if (!__atomic_compare_exchange_n(&segment->state, &state, (uint32_t)UG_SEGMENT_WRITING,
                    false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
            continue;
        __atomic_store_n(&segment->committed, 0, __ATOMIC_RELAXED);
        segment->tid = (uint32_t)writer;
        __atomic_store_n(&segment->sequence, ++world->sequence, __ATOMIC_RELEASE);
        world->at[writer] = i;
        return true;
    }
    return false;
}

static enum ug_spool_producer world_producer(uint16_t type)
{
    switch (type) {
    case UG_REC_KERNEL:
    case UG_REC_GRAPH:
        return UG_PRODUCER_KERNEL;
    case UG_REC_COPY:
        return UG_PRODUCER_COPY;
    case UG_REC_CALL:
        return UG_PRODUCER_CALL;
    case UG_REC_SYNC:
        return UG_PRODUCER_SYNC;
    case UG_REC_MEMORY:
        return UG_PRODUCER_MEMORY;
    case UG_REC_RANGE:
        return UG_PRODUCER_NVTX;
    case UG_REC_OVERHEAD:
        return UG_PRODUCER_OVERHEAD;
    case UG_REC_NCCL:
        return UG_PRODUCER_NCCL;
    case UG_REC_MARK:
    case UG_REC_GC:
    case UG_REC_LAUNCH_STACK:
        return UG_PRODUCER_PYTHON;
    default:
        return UG_PRODUCER_OTHER;
    }
}

void spool_world_put(struct spool_world *world, int writer, const void *record)
{
    const struct ug_rec_head *head = record;
    struct ug_spool_counts *counts = &world->header->counts[world_producer(head->type)];
    counts->seen++;
    int at = world->at[writer];
    if (at >= 0 && world->segments[at].committed + head->bytes > WORLD_SEGMENT_BYTES)
        spool_world_full(world, writer);
    if (world->at[writer] < 0 && !world_take(world, writer)) {
        counts->dropped++;
        return;
    }
    at = world->at[writer];
    struct ug_spool_segment *segment = &world->segments[at];
    memcpy(world->data + (size_t)at * WORLD_SEGMENT_BYTES + segment->committed, record,
            head->bytes);
    __atomic_store_n(&segment->committed, segment->committed + head->bytes, __ATOMIC_RELEASE);
}

uint32_t spool_world_string(struct spool_world *world, int writer, const char *text)
{
    size_t len = strlen(text), bytes = (sizeof(struct ug_rec_string) + len + 1 + 7) / 8 * 8;
    struct ug_rec_string *record = xcalloc(1, bytes);
    record->head = (struct ug_rec_head){.type = UG_REC_STRING, .bytes = (uint16_t)bytes};
    record->id = ++world->strings;
    record->text_bytes = (uint32_t)len;
    memcpy(record + 1, text, len);
    spool_world_put(world, writer, record);
    free(record);
    return world->strings;
}

void spool_world_clock(struct spool_world *world, uint64_t host_ns, uint64_t gpu_ns)
{
    struct ug_rec_clock clock = {
            WORLD_HEAD(UG_REC_CLOCK, clock), host_ns - 100, gpu_ns, host_ns + 100};
    spool_world_put(world, 0, &clock);
}

void spool_world_device(struct spool_world *world, uint32_t context)
{
    struct ug_rec_device device = {.head = WORLD_HEAD(UG_REC_DEVICE, device),
            .context = context,
            .name = spool_world_string(world, 0, "NVIDIA H200"),
            .cc_major = 9,
            .sm_count = 132,
            .max_threads_sm = 2048,
            .registers_sm = 65536,
            .shared_sm_bytes = 233472,
            .memory_bytes = 150000000000,
            .uuid = {0xab, 0xcd}};
    spool_world_put(world, 0, &device);
}

struct ug_rec_kernel spool_world_kernel(
        uint32_t name, uint32_t correlation, uint64_t start_gpu, uint64_t end_gpu)
{
    struct ug_rec_kernel kernel = {.start_gpu = start_gpu,
            .end_gpu = end_gpu,
            .correlation = correlation,
            .name = name,
            .context = 1,
            .stream = 7,
            .grid = {128, 1, 1},
            .block = {256, 1, 1},
            .registers = 32,
            .channel = UINT32_MAX};
    kernel.head = (struct ug_rec_head){.type = UG_REC_KERNEL, .bytes = sizeof kernel};
    return kernel;
}

struct ug_rec_call spool_world_call(
        uint32_t name, uint32_t tid, uint32_t correlation, uint64_t start_gpu, uint64_t end_gpu)
{
    struct ug_rec_call call = {.start_gpu = start_gpu,
            .end_gpu = end_gpu,
            .correlation = correlation,
            .call = 211,
            .name = name};
    call.head = (struct ug_rec_head){.type = UG_REC_CALL, .bytes = sizeof call, .tid = tid};
    return call;
}

// --- store ---------------------------------------------------------------------------------------

struct store *gpu_world_store(const char *path)
{
    struct store *store = NULL;
    struct error err = {0};
    unlink(path);
    if (store_open(path, STORE_CREATE, &store, &err)) {
        fprintf(stderr, "%s\n", err.text);
        abort();
    }
    static const char sql[] =
            "INSERT INTO recording VALUES (1, NULL, 0, NULL, 1000000, 0, 0, '{}', '[]');"
            "INSERT INTO process VALUES (1, 1, 100, 0, 1, 'python', 'python train.py', 'target', NULL, NULL, NULL);"
            "INSERT INTO thread VALUES (11, 1, 1, 'python', NULL, NULL), (12, 1, 2, 'pt_autograd_0', NULL, NULL);";
    if (sqlite3_exec(store_db(store), sql, NULL, NULL, NULL) != SQLITE_OK)
        abort();
    return store;
}

static uint32_t world_process(void *context, pid_t pid)
{
    (void)context, (void)pid;
    return WORLD_PROCESS_ROW;
}

static uint32_t world_thread(void *context, pid_t pid, uint32_t tid)
{
    (void)context, (void)pid;
    return tid == 1 || tid == 2 ? 10 + tid : 0;
}

const struct gpu_callbacks gpu_world_callbacks = {.process = world_process, .thread = world_thread};
