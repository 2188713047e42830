// SPDX-License-Identifier: Apache-2.0
// Completed buffers of CUPTI into records of the spool. Runs on CUPTI's worker, or on a thread of the workload that
// synchronises, and then every nanosecond is the workload's: 25 a record at most. So room is taken for all that a segment
// holds and published once, counters are added once a buffer, and for kernels and calls, 99 of 100 records, the offsets
// are constants: CUPTI never moved their fields, and whether that holds of this layout is asked once a buffer.
#include "tracer/inject/decode.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "contracts/spool.h"
#include "tracer/inject/layout.h"
#include "tracer/inject/spool_writer.h"
#include "tracer/inject/strings.h"

// CUpti_ActivityKind
enum {
    KIND_MEMCPY = 1,
    KIND_MEMSET = 2,
    KIND_KERNEL = 3,
    KIND_DRIVER = 4,
    KIND_RUNTIME = 5,
    KIND_DEVICE = 8,
    KIND_CONCURRENT_KERNEL = 10,
    KIND_NAME = 11,
    KIND_MARKER = 12,
    KIND_OVERHEAD = 17,
    KIND_MEMCPY2 = 22,
    KIND_STREAM = 37,
    KIND_SYNCHRONIZATION = 38,
    KIND_INTERNAL_LAUNCH_API = 48,
    KIND_MEMORY2 = 49,
    KIND_MEMORY_POOL = 50,
    KIND_GRAPH_TRACE = 51,
};

enum { OBJECT_THREAD = 2, OBJECT_STREAM = 5 };           // CUpti_ActivityObjectKind
enum { MARKER_INSTANT = 1, MARKER_START = 2, MARKER_END = 4 }; // CUpti_ActivityFlag
enum { CALL_NAMES = 1024, TEXT_BYTES_MAX = 4001 };       // 13.0 has 500 runtime and 800 driver calls
#define CALL_NOT_WANTED UINT32_MAX // call_name gave NULL: where CUPTI cannot select calls, all come
enum { PAGE_BYTES = 4096, PAGES_KNOWN = 16 };
enum { STREAM_NAME_ONLY = 8 };                           // ug_rec_stream.flags: only the name is told

struct batch {
    unsigned char *start, *at, *end; // from start to at: written and not published
    uint64_t seen[UG_PRODUCER_COUNT], dropped[UG_PRODUCER_COUNT];
};

struct decoder {
    struct batch batch;
    const struct cupti_layout *layout;
    decode_call_name call_name;
    uint32_t producers; // bit by enum ug_spool_producer: wanted
    bool keep;
    uint64_t zero_time;
    uintptr_t pages[PAGES_KNOWN]; // that were readable in this buffer
};

#define ALWAYS_INLINE static inline __attribute__((always_inline))

// The offsets of every version so far, as constants for the compiler.
static const struct cupti_layout usual = {
    .kernel = {.registers = 6, .start = 16, .end = 24, .device = 40, .context = 44, .stream = 48,
               .grid = 52, .block = 64, .static_shared = 76, .dynamic_shared = 80, .local = 84,
               .correlation = 92, .name = 104, .graph_node = 144, .graph = 156, .channel = 168,
               .channel_type = 172, .cluster = 176},
    .api = {.call = 4, .start = 8, .end = 16, .thread = 28, .correlation = 32, .result = 36},
};

static decode_next_record next_record;
static uint64_t call_names[2][CALL_NAMES]; // run of the strings << 32 | id

// --- reading and writing --------------------------------------------------------------------------

ALWAYS_INLINE uint32_t u32(const unsigned char *record, int offset)
{
    uint32_t value;
    memcpy(&value, record + offset, sizeof value);
    return value;
}

ALWAYS_INLINE uint64_t u64(const unsigned char *record, int offset)
{
    uint64_t value;
    memcpy(&value, record + offset, sizeof value);
    return value;
}

ALWAYS_INLINE uint16_t u16(const unsigned char *record, int offset)
{
    uint16_t value;
    memcpy(&value, record + offset, sizeof value);
    return value;
}

// A pointer that CUPTI gave; what no process can have at an address is no text.
ALWAYS_INLINE const char *text_at(const unsigned char *record, int offset)
{
    uint64_t value = u64(record, offset);
    return value >= 4096 && value < 1ull << 47 ? (const char *)(uintptr_t)value : NULL;
}

static void batch_close(struct batch *batch)
{
    if (batch->at > batch->start)
        spool_publish((size_t)(batch->at - batch->start));
    batch->start = batch->at = batch->end = NULL;
}

static __attribute__((noinline)) bool batch_refill(struct batch *batch, size_t bytes)
{
    size_t room = 0;
    batch_close(batch);
    batch->start = batch->at = spool_room(bytes, &room);
    if (!batch->at)
        return false;
    batch->end = batch->at + room;
    return true;
}

ALWAYS_INLINE void *batch_room(struct batch *batch, enum ug_spool_producer producer, size_t bytes)
{
    batch->seen[producer]++;
    if (__builtin_expect((size_t)(batch->end - batch->at) < bytes, 0) &&
        !batch_refill(batch, bytes)) {
        batch->dropped[producer]++;
        return NULL;
    }
    void *record = batch->at;
    batch->at += bytes;
    return record;
}

// CUPTI has handed out names of modules that were gone. The kernel says EFAULT for what cannot be read, and EINVAL for a
// `how` that there is not: a cheap call that no sandbox forbids. Only for names that are new, so not in 999 of 1,000 records.
static bool readable(struct decoder *decoder, const char *text)
{
    uintptr_t page = (uintptr_t)text / PAGE_BYTES;
    uintptr_t *known = &decoder->pages[page % PAGES_KNOWN];
    if (*known == page)
        return true;
    int saved = errno;
    bool good = syscall(SYS_rt_sigprocmask, ~0, (uintptr_t)text & ~(uintptr_t)7, NULL, 8) == 0 ||
                errno != EFAULT;
    errno = saved;
    if (good)
        *known = page;
    return good;
}

// Its bytes, as far as it can be read. 0: none.
static size_t text_length(struct decoder *decoder, const char *text)
{
    size_t bytes = 0;
    while (bytes < TEXT_BYTES_MAX && readable(decoder, text + bytes)) {
        size_t part = PAGE_BYTES - (uintptr_t)(text + bytes) % PAGE_BYTES;
        size_t found = strnlen(text + bytes, part);
        bytes += found;
        if (found < part)
            return bytes;
    }
    return bytes < TEXT_BYTES_MAX ? 0 : bytes;
}

// Strings write records of their own: what is open is published before. So ask before batch_room.
static __attribute__((noinline)) uint32_t new_static_string(struct decoder *decoder, const char *text)
{
    batch_close(&decoder->batch);
    return text_length(decoder, text) ? spool_static_string(text) : 0;
}

ALWAYS_INLINE uint32_t static_string(struct decoder *decoder, const char *text)
{
    if (!text)
        return 0;
    uint32_t id = strings_known(text);
    return id ? id : new_static_string(decoder, text);
}

// Of a text that need not stay: by content, always.
static uint32_t passing_string(struct decoder *decoder, const char *text)
{
    if (!text)
        return 0;
    batch_close(&decoder->batch);
    return spool_string(text, text_length(decoder, text));
}

ALWAYS_INLINE struct ug_rec_head head(enum ug_record_type type, size_t bytes, uint32_t tid)
{
    return (struct ug_rec_head){.type = (uint16_t)type, .bytes = (uint16_t)bytes, .tid = tid};
}

// CUPTI gives 0 where it could not take a time, and at times an end before the start.
ALWAYS_INLINE void put_times(struct decoder *decoder, uint64_t start, uint64_t end,
                             uint64_t *ret_start, uint64_t *ret_end)
{
    if (__builtin_expect(!start || end < start || end >> 63, 0)) {
        decoder->zero_time++;
        start = end = 0;
    }
    *ret_start = start;
    *ret_end = end;
}

// --- kernels and calls ----------------------------------------------------------------------------

ALWAYS_INLINE void put_kernel(struct decoder *decoder, const unsigned char *in,
                              const struct cupti_layout *layout, int device_launched)
{
    uint32_t name = static_string(decoder, text_at(in, layout->kernel.name));
    struct ug_rec_kernel *out = batch_room(&decoder->batch, UG_PRODUCER_KERNEL, sizeof *out);
    if (!out)
        return;
    out->head = head(UG_REC_KERNEL, sizeof *out, 0);
    put_times(decoder, u64(in, layout->kernel.start), u64(in, layout->kernel.end), &out->start_gpu,
              &out->end_gpu);
    out->correlation = u32(in, layout->kernel.correlation);
    out->name = name;
    out->device = u32(in, layout->kernel.device);
    out->context = u32(in, layout->kernel.context);
    out->stream = u32(in, layout->kernel.stream);
    memcpy(out->grid, in + layout->kernel.grid, sizeof out->grid);
    memcpy(out->block, in + layout->kernel.block, sizeof out->block);
    for (int i = 0; i < 3; i++)
        out->cluster[i] = (uint16_t)u32(in, layout->kernel.cluster + 4 * i);
    out->registers = u16(in, layout->kernel.registers);
    out->static_shared_bytes = u32(in, layout->kernel.static_shared);
    out->dynamic_shared_bytes = u32(in, layout->kernel.dynamic_shared);
    out->local_bytes = u32(in, layout->kernel.local);
    out->graph = u32(in, layout->kernel.graph);
    out->graph_node = u64(in, layout->kernel.graph_node);
    out->channel = u32(in, layout->kernel.channel_type) << 24 |
                   (u32(in, layout->kernel.channel) & 0xffffff);
    out->flags = device_launched >= 0 && in[device_launched] ? 2 : 0;
}

// CUPTI calls the runtime's by the release that brought them, "cudaLaunchKernel_v7000"; cuMemAlloc_v2 is called so.
static size_t call_name_length(const char *text)
{
    size_t length = strlen(text), digits = 0;
    while (digits < length && text[length - 1 - digits] >= '0' && text[length - 1 - digits] <= '9')
        digits++;
    bool release = digits >= 4 && length > digits + 2 && text[length - digits - 1] == 'v' &&
                   text[length - digits - 2] == '_';
    return release ? length - digits - 2 : length;
}

static __attribute__((noinline)) uint32_t new_call_name(struct decoder *decoder, bool driver,
                                                        uint32_t call)
{
    const char *text = decoder->call_name ? decoder->call_name(driver, call) : NULL;
    uint64_t run = strings_run();
    batch_close(&decoder->batch);
    uint32_t id = text ? spool_string(text, call_name_length(text)) : CALL_NOT_WANTED;
    if (id && call < CALL_NAMES)
        __atomic_store_n(&call_names[driver][call], run << 32 | id, __ATOMIC_RELEASE);
    return id;
}

ALWAYS_INLINE uint32_t call_name_id(struct decoder *decoder, bool driver, uint32_t call)
{
    if (call < CALL_NAMES) {
        uint64_t known = __atomic_load_n(&call_names[driver][call], __ATOMIC_ACQUIRE);
        if (known >> 32 == strings_run())
            return (uint32_t)known;
    }
    return new_call_name(decoder, driver, call);
}

ALWAYS_INLINE void put_call(struct decoder *decoder, const unsigned char *in, uint32_t kind,
                            const struct cupti_layout *layout)
{
    bool driver = kind != KIND_RUNTIME;
    uint32_t call = u32(in, layout->api.call);
    uint32_t name = call_name_id(decoder, driver, call);
    if (name == CALL_NOT_WANTED)
        return;
    if (!decoder->keep) {
        decoder->batch.seen[UG_PRODUCER_CALL]++;
        return;
    }
    struct ug_rec_call *out = batch_room(&decoder->batch, UG_PRODUCER_CALL, sizeof *out);
    if (!out)
        return;
    out->head = head(UG_REC_CALL, sizeof *out, u32(in, layout->api.thread));
    put_times(decoder, u64(in, layout->api.start), u64(in, layout->api.end), &out->start_gpu,
              &out->end_gpu);
    out->correlation = u32(in, layout->api.correlation);
    out->call = call | (driver ? 1u << 31 : 0);
    out->name = name;
    out->result = (int32_t)u32(in, layout->api.result);
}

// --- the others -----------------------------------------------------------------------------------

static void put_copy(struct decoder *decoder, const unsigned char *in)
{
    const struct cupti_layout *layout = decoder->layout;
    struct ug_rec_copy *out = batch_room(&decoder->batch, UG_PRODUCER_COPY, sizeof *out);
    if (!out)
        return;
    *out = (struct ug_rec_copy){.head = head(UG_REC_COPY, sizeof *out, 0),
                                .size_bytes = u64(in, layout->copy.size),
                                .graph_node = u64(in, layout->copy.graph_node),
                                .correlation = u32(in, layout->copy.correlation),
                                .graph = u32(in, layout->copy.graph),
                                .device = u32(in, layout->copy.device),
                                .context = u32(in, layout->copy.context),
                                .stream = u32(in, layout->copy.stream),
                                .kind = in[layout->copy.kind],
                                .source = in[layout->copy.source],
                                .target = in[layout->copy.target],
                                .flags = in[layout->copy.flags] & 1,
                                .peer_device = UINT32_MAX};
    put_times(decoder, u64(in, layout->copy.start), u64(in, layout->copy.end), &out->start_gpu,
              &out->end_gpu);
}

static void put_peer(struct decoder *decoder, const unsigned char *in)
{
    const struct cupti_layout *layout = decoder->layout;
    struct ug_rec_copy *out = batch_room(&decoder->batch, UG_PRODUCER_COPY, sizeof *out);
    if (!out)
        return;
    uint32_t device = u32(in, layout->peer.device), source = u32(in, layout->peer.source_device);
    uint32_t target = u32(in, layout->peer.target_device);
    *out = (struct ug_rec_copy){.head = head(UG_REC_COPY, sizeof *out, 0),
                                .size_bytes = u64(in, layout->peer.size),
                                .graph_node = u64(in, layout->peer.graph_node),
                                .correlation = u32(in, layout->peer.correlation),
                                .graph = u32(in, layout->peer.graph),
                                .device = device,
                                .context = u32(in, layout->peer.context),
                                .stream = u32(in, layout->peer.stream),
                                .kind = in[layout->peer.kind],
                                .source = in[layout->peer.source],
                                .target = in[layout->peer.target],
                                .flags = in[layout->peer.flags] & 1,
                                .peer_device = device == source ? target : source};
    put_times(decoder, u64(in, layout->peer.start), u64(in, layout->peer.end), &out->start_gpu,
              &out->end_gpu);
}

static void put_set(struct decoder *decoder, const unsigned char *in)
{
    const struct cupti_layout *layout = decoder->layout;
    struct ug_rec_copy *out = batch_room(&decoder->batch, UG_PRODUCER_COPY, sizeof *out);
    if (!out)
        return;
    *out = (struct ug_rec_copy){.head = head(UG_REC_COPY, sizeof *out, 0),
                                .size_bytes = u64(in, layout->set.size),
                                .graph_node = u64(in, layout->set.graph_node),
                                .correlation = u32(in, layout->set.correlation),
                                .graph = u32(in, layout->set.graph),
                                .device = u32(in, layout->set.device),
                                .context = u32(in, layout->set.context),
                                .stream = u32(in, layout->set.stream),
                                .kind = UG_COPY_SET,
                                .target = (uint8_t)u16(in, layout->set.kind),
                                .flags = u16(in, layout->set.flags) & 1,
                                .peer_device = UINT32_MAX,
                                .value = u32(in, layout->set.value)};
    put_times(decoder, u64(in, layout->set.start), u64(in, layout->set.end), &out->start_gpu,
              &out->end_gpu);
}

static void put_graph(struct decoder *decoder, const unsigned char *in)
{
    const struct cupti_layout *layout = decoder->layout;
    struct ug_rec_graph *out = batch_room(&decoder->batch, UG_PRODUCER_KERNEL, sizeof *out);
    if (!out)
        return;
    *out = (struct ug_rec_graph){.head = head(UG_REC_GRAPH, sizeof *out, 0),
                                 .correlation = u32(in, layout->graph.correlation),
                                 .graph = u32(in, layout->graph.graph),
                                 .device = u32(in, layout->graph.device),
                                 .context = u32(in, layout->graph.context),
                                 .stream = u32(in, layout->graph.stream)};
    put_times(decoder, u64(in, layout->graph.start), u64(in, layout->graph.end), &out->start_gpu,
              &out->end_gpu);
}

static void put_sync(struct decoder *decoder, const unsigned char *in)
{
    const struct cupti_layout *layout = decoder->layout;
    struct ug_rec_sync *out = batch_room(&decoder->batch, UG_PRODUCER_SYNC, sizeof *out);
    if (!out)
        return;
    uint32_t event = u32(in, layout->sync.event); // -1: none
    *out = (struct ug_rec_sync){.head = head(UG_REC_SYNC, sizeof *out, 0),
                                .correlation = u32(in, layout->sync.correlation),
                                .context = u32(in, layout->sync.context),
                                .stream = u32(in, layout->sync.stream),
                                .kind = u32(in, layout->sync.kind),
                                .event = event == UINT32_MAX ? 0 : event};
    if (layout->sync.event_sync >= 0)
        out->event_sync = u64(in, layout->sync.event_sync);
    put_times(decoder, u64(in, layout->sync.start), u64(in, layout->sync.end), &out->start_gpu,
              &out->end_gpu);
}

static void put_memory(struct decoder *decoder, const unsigned char *in)
{
    const struct cupti_layout *layout = decoder->layout;
    struct ug_rec_memory *out = batch_room(&decoder->batch, UG_PRODUCER_MEMORY, sizeof *out);
    if (!out)
        return;
    uint32_t pool_type = u32(in, layout->memory.pool_type); // 0 none, 1 ours, 2 another process's
    *out = (struct ug_rec_memory){
        .head = head(UG_REC_MEMORY, sizeof *out, 0),
        .at_gpu = u64(in, layout->memory.at),
        .address = u64(in, layout->memory.address),
        .size_bytes = u64(in, layout->memory.size),
        .correlation = u32(in, layout->memory.correlation),
        .device = u32(in, layout->memory.device),
        .context = u32(in, layout->memory.context),
        .stream = u32(in, layout->memory.stream),
        .operation = (uint8_t)u32(in, layout->memory.operation),
        .kind = (uint8_t)u32(in, layout->memory.kind),
        .flags = u32(in, layout->memory.async) ? 1 : 0,
        .pool = pool_type ? u64(in, layout->memory.pool) : 0,
        .pool_used_bytes = pool_type == 1 ? u64(in, layout->memory.pool_used) : 0,
        .pool_bytes = pool_type == 1 ? u64(in, layout->memory.pool_size) : 0};
    decoder->zero_time += !out->at_gpu;
}

static void put_pool(struct decoder *decoder, const unsigned char *in)
{
    const struct cupti_layout *layout = decoder->layout;
    struct ug_rec_memory *out = batch_room(&decoder->batch, UG_PRODUCER_MEMORY, sizeof *out);
    if (!out)
        return;
    *out = (struct ug_rec_memory){.head = head(UG_REC_MEMORY, sizeof *out, 0),
                                  .at_gpu = u64(in, layout->pool.at),
                                  .correlation = u32(in, layout->pool.correlation),
                                  .device = u32(in, layout->pool.device),
                                  // created, destroyed, trimmed
                                  .operation = (uint8_t)(u32(in, layout->pool.operation) + 2),
                                  .pool = u64(in, layout->pool.address),
                                  .pool_used_bytes = u64(in, layout->pool.used),
                                  .pool_bytes = u64(in, layout->pool.size)};
    decoder->zero_time += !out->at_gpu;
}

static void put_marker(struct decoder *decoder, const unsigned char *in)
{
    const struct cupti_layout *layout = decoder->layout;
    uint32_t name = passing_string(decoder, text_at(in, layout->marker.name));
    uint32_t domain = passing_string(decoder, text_at(in, layout->marker.domain));
    struct ug_rec_range *out = batch_room(&decoder->batch, UG_PRODUCER_NVTX, sizeof *out);
    if (!out)
        return;
    uint32_t flags = u32(in, layout->marker.flags);
    bool thread = u32(in, layout->marker.object) == OBJECT_THREAD;
    *out = (struct ug_rec_range){
        .head = head(UG_REC_RANGE, sizeof *out, thread ? u32(in, layout->marker.thread) : 0),
        .at_gpu = u64(in, layout->marker.at),
        .id = u32(in, layout->marker.id),
        .name = name,
        .domain = domain,
        .what = flags & MARKER_START ? 1 : flags & MARKER_END ? 2 : flags & MARKER_INSTANT ? 3 : 0};
    decoder->zero_time += !out->at_gpu;
}

static void put_overhead(struct decoder *decoder, const unsigned char *in)
{
    const struct cupti_layout *layout = decoder->layout;
    struct ug_rec_overhead *out = batch_room(&decoder->batch, UG_PRODUCER_OVERHEAD, sizeof *out);
    if (!out)
        return;
    bool thread = u32(in, layout->overhead.object) == OBJECT_THREAD;
    *out = (struct ug_rec_overhead){
        .head = head(UG_REC_OVERHEAD, sizeof *out, thread ? u32(in, layout->overhead.thread) : 0),
        .kind = u32(in, layout->overhead.kind)};
    put_times(decoder, u64(in, layout->overhead.start), u64(in, layout->overhead.end),
              &out->start_gpu, &out->end_gpu);
}

static void put_device(struct decoder *decoder, const unsigned char *in)
{
    const struct cupti_layout *layout = decoder->layout;
    uint32_t name = passing_string(decoder, text_at(in, layout->device.name));
    struct ug_rec_device *out = batch_room(&decoder->batch, UG_PRODUCER_OTHER, sizeof *out);
    if (!out)
        return;
    *out = (struct ug_rec_device){
        .head = head(UG_REC_DEVICE, sizeof *out, 0),
        .device = u32(in, layout->device.id),
        .name = name,
        .cc_major = u32(in, layout->device.cc_major),
        .cc_minor = u32(in, layout->device.cc_minor),
        .sm_count = u32(in, layout->device.sm_count),
        .max_threads_sm = u32(in, layout->device.warps_sm) * u32(in, layout->device.warp),
        .registers_sm = u32(in, layout->device.registers_sm),
        .shared_sm_bytes = u32(in, layout->device.shared_sm),
        .memory_bytes = u64(in, layout->device.memory)};
    memcpy(out->uuid, in + layout->device.uuid, sizeof out->uuid);
}

static void put_stream(struct decoder *decoder, const unsigned char *in)
{
    static const uint8_t flags[4] = {0, 1, 0, 2}; // unknown, default, non-blocking, null
    const struct cupti_layout *layout = decoder->layout;
    struct ug_rec_stream *out = batch_room(&decoder->batch, UG_PRODUCER_OTHER, sizeof *out);
    if (!out)
        return;
    *out = (struct ug_rec_stream){.head = head(UG_REC_STREAM, sizeof *out, 0),
                                  .context = u32(in, layout->stream.context),
                                  .stream = u32(in, layout->stream.stream),
                                  .priority = (int32_t)u32(in, layout->stream.priority),
                                  .flags = flags[u32(in, layout->stream.flag) & 3]};
}

// NVTX names of threads and streams.
static void put_name(struct decoder *decoder, const unsigned char *in)
{
    const struct cupti_layout *layout = decoder->layout;
    uint32_t object = u32(in, layout->name.object);
    if (object != OBJECT_THREAD && object != OBJECT_STREAM)
        return;
    uint32_t name = passing_string(decoder, text_at(in, layout->name.name));
    size_t bytes = object == OBJECT_THREAD ? sizeof(struct ug_rec_thread) : sizeof(struct ug_rec_stream);
    void *room = batch_room(&decoder->batch, UG_PRODUCER_OTHER, bytes);
    if (!room)
        return;
    if (object == OBJECT_THREAD)
        *(struct ug_rec_thread *)room = (struct ug_rec_thread){
            .head = head(UG_REC_THREAD, bytes, u32(in, layout->name.thread)), .name = name};
    else
        *(struct ug_rec_stream *)room =
            (struct ug_rec_stream){.head = head(UG_REC_STREAM, bytes, 0),
                                   .context = u32(in, layout->name.context),
                                   .stream = u32(in, layout->name.stream),
                                   .name = name,
                                   .flags = STREAM_NAME_ONLY};
}

// --- the walk -------------------------------------------------------------------------------------

struct put {
    uint8_t producer;
    void (*put)(struct decoder *decoder, const unsigned char *in);
};

// What is not here (contexts, events, ...) is passed over.
static const struct put puts_by_kind[LAYOUT_KIND_COUNT] = {
    [KIND_MEMCPY] = {UG_PRODUCER_COPY, put_copy},
    [KIND_MEMSET] = {UG_PRODUCER_COPY, put_set},
    [KIND_DEVICE] = {UG_PRODUCER_OTHER, put_device},
    [KIND_NAME] = {UG_PRODUCER_OTHER, put_name},
    [KIND_MARKER] = {UG_PRODUCER_NVTX, put_marker},
    [KIND_OVERHEAD] = {UG_PRODUCER_OVERHEAD, put_overhead},
    [KIND_MEMCPY2] = {UG_PRODUCER_COPY, put_peer},
    [KIND_STREAM] = {UG_PRODUCER_OTHER, put_stream},
    [KIND_SYNCHRONIZATION] = {UG_PRODUCER_SYNC, put_sync},
    [KIND_MEMORY2] = {UG_PRODUCER_MEMORY, put_memory},
    [KIND_MEMORY_POOL] = {UG_PRODUCER_MEMORY, put_pool},
    [KIND_GRAPH_TRACE] = {UG_PRODUCER_KERNEL, put_graph},
};

static uint32_t producers_of(uint32_t kinds)
{
    const uint32_t work = UG_WANT_KERNELS | UG_WANT_GRAPH_NODES;
    uint32_t producers = 1u << UG_PRODUCER_OTHER;
    if (kinds & work)
        producers |= 1u << UG_PRODUCER_KERNEL | 1u << UG_PRODUCER_COPY;
    if (kinds & (work | UG_WANT_SYNC | UG_WANT_MEMORY))
        producers |= 1u << UG_PRODUCER_CALL;
    if (kinds & UG_WANT_SYNC)
        producers |= 1u << UG_PRODUCER_SYNC;
    if (kinds & UG_WANT_MEMORY)
        producers |= 1u << UG_PRODUCER_MEMORY;
    if (kinds & UG_WANT_NVTX)
        producers |= 1u << UG_PRODUCER_NVTX;
    if (kinds & UG_WANT_OVERHEAD)
        producers |= 1u << UG_PRODUCER_OVERHEAD;
    return producers;
}

ALWAYS_INLINE bool wanted(struct decoder *decoder, enum ug_spool_producer producer)
{
    if (!(decoder->producers >> producer & 1))
        return false;
    if (!decoder->keep)
        decoder->batch.seen[producer]++;
    return decoder->keep;
}

// One record, whole and of a kind of the table. hot: constants, or the layout itself.
ALWAYS_INLINE void put_record(struct decoder *decoder, const unsigned char *in, uint32_t kind,
                              const struct cupti_layout *hot)
{
    if (kind == KIND_CONCURRENT_KERNEL || kind == KIND_KERNEL) {
        if (wanted(decoder, UG_PRODUCER_KERNEL))
            put_kernel(decoder, in, hot, decoder->layout->kernel.device_launched);
    } else if (kind == KIND_RUNTIME || kind == KIND_DRIVER || kind == KIND_INTERNAL_LAUNCH_API) {
        if (decoder->producers >> UG_PRODUCER_CALL & 1)
            put_call(decoder, in, kind, hot);
    } else if (puts_by_kind[kind].put && wanted(decoder, puts_by_kind[kind].producer)) {
        puts_by_kind[kind].put(decoder, in);
    }
}

size_t decode_record_bytes(const struct cupti_layout *layout, const void *record)
{
    uint32_t kind = u32(record, 0);
    return kind < LAYOUT_KIND_COUNT ? layout->bytes[kind] : 0;
}

// Ahead of the reads by 2 KiB and of the writes by 1: 25 ns a record without, 18 with. (By number, not by pointer: it may
// lie behind the end.)
ALWAYS_INLINE void fetch_ahead(const struct batch *batch, const unsigned char *at, size_t bytes)
{
    for (size_t line = 0; line < bytes; line += 64)
        __builtin_prefetch((const void *)((uintptr_t)at + 2048 + line));
    __builtin_prefetch((const void *)((uintptr_t)batch->at + 1024), 1);
    __builtin_prefetch((const void *)((uintptr_t)batch->at + 1088), 1);
}

// The sizes are the table's. A record that is unknown or cut hides all that follows it.
ALWAYS_INLINE void walk(struct decoder *decoder, const unsigned char *at, size_t left,
                        const struct cupti_layout *hot, struct decode_counts *counts)
{
    while (left >= sizeof(uint32_t)) {
        uint32_t kind = u32(at, 0);
        size_t bytes = kind < LAYOUT_KIND_COUNT ? decoder->layout->bytes[kind] : 0;
        if (!bytes || bytes > left) {
            counts->unknown++;
            return;
        }
        counts->records++;
        fetch_ahead(&decoder->batch, at, bytes);
        put_record(decoder, at, kind, hot);
        at += bytes;
        left -= bytes;
    }
    counts->unknown += left > 0;
}

// The steps are CUPTI's, the fields the table's.
static void walk_next(struct decoder *decoder, const unsigned char *buffer, size_t valid_bytes,
                      decode_next_record next, struct decode_counts *counts)
{
    void *record = NULL;
    while (next((uint8_t *)(uintptr_t)buffer, valid_bytes, &record) == 0) {
        const unsigned char *at = record;
        if (at < buffer || (size_t)(at - buffer) + sizeof(uint32_t) > valid_bytes) {
            counts->unknown++;
            return;
        }
        size_t bytes = decode_record_bytes(decoder->layout, at);
        if (!bytes || bytes > valid_bytes - (size_t)(at - buffer)) {
            counts->unknown++;
            continue;
        }
        counts->records++;
        put_record(decoder, at, u32(at, 0), decoder->layout);
    }
}

static bool is_usual(const struct cupti_layout *layout)
{
    return !memcmp(&layout->kernel, &usual.kernel,
                   offsetof(struct cupti_layout, kernel.device_launched) -
                       offsetof(struct cupti_layout, kernel)) &&
           !memcmp(&layout->api, &usual.api, sizeof usual.api);
}

void decode_use_next_record(decode_next_record next)
{
    __atomic_store_n(&next_record, next, __ATOMIC_RELEASE);
}

void decode_buffer(const struct cupti_layout *layout, const void *buffer, size_t valid_bytes,
                   uint32_t kinds, decode_call_name call_name, struct decode_counts *counts)
{
    struct decoder decoder = {.layout = layout,
                              .call_name = call_name,
                              .producers = producers_of(kinds),
                              .keep = !(kinds & UG_WANT_NOTHING_KEPT)};
    decode_next_record next = __atomic_load_n(&next_record, __ATOMIC_ACQUIRE);
    if (!buffer || !spool_header())
        return;
    if (next)
        walk_next(&decoder, buffer, valid_bytes, next, counts);
    else if (is_usual(layout))
        walk(&decoder, buffer, valid_bytes, &usual, counts);
    else
        walk(&decoder, buffer, valid_bytes, layout, counts);
    batch_close(&decoder.batch);
    for (int i = 0; i < UG_PRODUCER_COUNT; i++)
        spool_count_many((enum ug_spool_producer)i, decoder.batch.seen[i],
                         decoder.batch.dropped[i]);
    counts->zero_time += decoder.zero_time;
}
