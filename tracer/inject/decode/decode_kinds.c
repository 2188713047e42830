// SPDX-License-Identifier: Apache-2.0
// The records of CUPTI that are not kernels or calls: copies, sets, graph launches, waits, memory,
// NVTX, CUPTI's own overhead, devices, streams and names. One of a hundred, so the offsets are
// looked up in the layout. Runs where decode.c runs.
#include "tracer/inject/decode/decode_inside.h"

enum { OBJECT_THREAD = 2, OBJECT_STREAM = 5 };                 // CUpti_ActivityObjectKind
enum { MARKER_INSTANT = 1, MARKER_START = 2, MARKER_END = 4 }; // CUpti_ActivityFlag
enum { STREAM_NAME_ONLY = 8 };                                 // ug_rec_stream.flags

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
    *out = (struct ug_rec_memory){.head = head(UG_REC_MEMORY, sizeof *out, 0),
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
    uint32_t name = decode_passing_string(decoder, text_at(in, layout->marker.name));
    uint32_t domain = decode_passing_string(decoder, text_at(in, layout->marker.domain));
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
            .what = flags & MARKER_START     ? 1
                    : flags & MARKER_END     ? 2
                    : flags & MARKER_INSTANT ? 3
                                             : 0};
    decoder->zero_time += !out->at_gpu;
}

static void put_overhead(struct decoder *decoder, const unsigned char *in)
{
    const struct cupti_layout *layout = decoder->layout;
    struct ug_rec_overhead *out = batch_room(&decoder->batch, UG_PRODUCER_OVERHEAD, sizeof *out);
    if (!out)
        return;
    bool thread = u32(in, layout->overhead.object) == OBJECT_THREAD;
    *out = (struct ug_rec_overhead){.head = head(UG_REC_OVERHEAD, sizeof *out,
                                            thread ? u32(in, layout->overhead.thread) : 0),
            .kind = u32(in, layout->overhead.kind)};
    put_times(decoder, u64(in, layout->overhead.start), u64(in, layout->overhead.end),
            &out->start_gpu, &out->end_gpu);
}

static void put_device(struct decoder *decoder, const unsigned char *in)
{
    const struct cupti_layout *layout = decoder->layout;
    uint32_t name = decode_passing_string(decoder, text_at(in, layout->device.name));
    struct ug_rec_device *out = batch_room(&decoder->batch, UG_PRODUCER_OTHER, sizeof *out);
    if (!out)
        return;
    *out = (struct ug_rec_device){.head = head(UG_REC_DEVICE, sizeof *out, 0),
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
    uint32_t name = decode_passing_string(decoder, text_at(in, layout->name.name));
    size_t bytes =
            object == OBJECT_THREAD ? sizeof(struct ug_rec_thread) : sizeof(struct ug_rec_stream);
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

// What is not here (contexts, events, ...) is passed over.
const struct decode_put decode_puts[LAYOUT_KIND_COUNT] = {
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
