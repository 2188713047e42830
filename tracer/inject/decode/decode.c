// SPDX-License-Identifier: Apache-2.0
// Completed buffers of CUPTI into records of the spool. Runs on CUPTI's worker, or on a thread of
// the workload that synchronises, and then every nanosecond is the workload's: 25 a record at most.
// So room is taken for all that a segment holds and published once, counters are added once a
// buffer, and for kernels, 99 of 100 records, the offsets are constants: CUPTI never moved their
// fields, and whether that holds of this layout is asked once a buffer.
#include "tracer/inject/decode/decode_inside.h"

#include "tracer/inject/spool/spool_writer.h"
#include "tracer/inject/spool/strings.h"

// The offsets of every version so far, as constants for the compiler.
static const struct cupti_layout usual = {
        .kernel = {.registers = 6,
                .start = 16,
                .end = 24,
                .device = 40,
                .context = 44,
                .stream = 48,
                .grid = 52,
                .block = 64,
                .static_shared = 76,
                .dynamic_shared = 80,
                .local = 84,
                .correlation = 92,
                .name = 104,
                .graph_node = 144,
                .graph = 156,
                .channel = 168,
                .channel_type = 172,
                .cluster = 176},
};

static decode_next_record next_record;

// --- kernels
// --------------------------------------------------------------------------------------

ALWAYS_INLINE uint32_t static_string(struct decoder *decoder, const char *text)
{
    if (!text)
        return 0;
    uint32_t id = strings_known(text);
    return id ? id : decode_static_string(decoder, text);
}

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

// --- the walk
// -------------------------------------------------------------------------------------

static uint32_t producers_of(uint32_t kinds)
{
    uint32_t producers = 1u << UG_PRODUCER_OTHER;
    if (kinds & (UG_WANT_KERNELS | UG_WANT_GRAPH_NODES))
        producers |= 1u << UG_PRODUCER_KERNEL | 1u << UG_PRODUCER_COPY;
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
    } else if (decode_puts[kind].put && wanted(decoder, decode_puts[kind].producer)) {
        decode_puts[kind].put(decoder, in);
    }
}

size_t decode_record_bytes(const struct cupti_layout *layout, const void *record)
{
    uint32_t kind = u32(record, 0);
    return kind < LAYOUT_KIND_COUNT ? layout->bytes[kind] : 0;
}

// Ahead of the reads by 2 KiB and of the writes by 1: 25 ns a record without, 18 with. (By number,
// not by pointer: it may lie behind the end.)
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
                    offsetof(struct cupti_layout, kernel));
}

void decode_use_next_record(decode_next_record next)
{
    __atomic_store_n(&next_record, next, __ATOMIC_RELEASE);
}

void decode_buffer(const struct cupti_layout *layout, const void *buffer, size_t valid_bytes,
        uint32_t kinds, struct decode_counts *counts)
{
    struct decoder decoder = {.layout = layout,
            .producers = producers_of(kinds),
            .keep = !(kinds & UG_WANT_NOTHING_KEPT)};
    decode_next_record next = __atomic_load_n(&next_record, __ATOMIC_ACQUIRE);
    if (!buffer || !spool_header() || !spool_enter())
        return;
    if (next)
        walk_next(&decoder, buffer, valid_bytes, next, counts);
    else if (is_usual(layout))
        walk(&decoder, buffer, valid_bytes, &usual, counts);
    else
        walk(&decoder, buffer, valid_bytes, layout, counts);
    decode_close(&decoder.batch);
    for (int i = 0; i < UG_PRODUCER_COUNT; i++)
        spool_count_many(
                (enum ug_spool_producer)i, decoder.batch.seen[i], decoder.batch.dropped[i]);
    spool_leave();
    counts->zero_time += decoder.zero_time;
}
