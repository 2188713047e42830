// SPDX-License-Identifier: Apache-2.0
// CUPTI's activity records into the spool: records of 11.8, 12.4, 12.9, 13.0 and 13.5 put together
// here byte by byte (the offsets below are this file's own, not the table's), wrong times, full
// rings, cut and damaged buffers, a CUPTI newer than the table; and, where the build found CUPTI's
// header, its own structures.
#include <errno.h>
#include <pthread.h>

#include "tests/unit/test_spool_rig.h"
#include "tracer/inject/decode/decode.h"
#include "tracer/inject/decode/decode_inside.h"
#include "tracer/inject/decode/layout.h"
#include "tracer/inject/spool/spool_writer.h"

#ifdef UPGATE_CUPTI_HEADER
#include <cupti_version.h>
#include <cupti_activity.h>
#endif

// Sizes of: kernel, copy, peer, set, graph, sync, memory, pool, marker, overhead, device, stream,
// call, context.
struct version {
    uint32_t api_version;
    int bytes[14];
};
enum {
    KERNEL,
    COPY,
    PEER,
    SET,
    GRAPH,
    SYNC,
    MEMORY,
    POOL,
    MARKER,
    OVERHEAD,
    DEVICE,
    STREAM,
    CALL,
    CONTEXT
};

static const struct version versions[] = {
        {0, {200, 88, 96, 88, 48, 40, 120, 72, 56, 40, 176, 24, 40, 16}},  // 11.8
        {22, {208, 88, 96, 88, 56, 40, 120, 72, 56, 56, 184, 24, 40, 24}}, // 12.4
        {28, {208, 96, 96, 88, 56, 56, 128, 72, 56, 56, 184, 24, 40, 32}}, // 12.9
        {130001, {216, 96, 96, 88, 56, 56, 128, 80, 56, 56, 184, 24, 40, 32}},
        {130500, {248, 112, 96, 104, 56, 56, 128, 80, 56, 56, 192, 24, 40, 40}},
};
enum { VERSIONS = sizeof versions / sizeof versions[0], LOG_MAX = 64 };

struct buffer {
    _Alignas(8) unsigned char bytes[1 << 16];
    size_t used;
    unsigned char *record;
};

static struct buffer buffer;

static const struct cupti_layout *layout_of(uint32_t api_version)
{
    int exact = 0;
    return api_version ? cupti_layout_find(api_version, &exact) : cupti_layout_11_8();
}

static void begin(uint32_t kind, int bytes)
{
    buffer.record = buffer.bytes + buffer.used;
    memset(buffer.record, 0, (size_t)bytes);
    memcpy(buffer.record, &kind, sizeof kind);
    buffer.used += (size_t)bytes;
}

static void put(int offset, uint64_t value, size_t bytes)
{
    memcpy(buffer.record + offset, &value, bytes);
}

static const char kernel_name[] = "_Z6kernelPf", range_name[] = "step", domain_name[] = "torch";

static void add_kernel(const struct version *v, uint64_t start, uint64_t end, uint32_t correlation)
{
    begin(10, v->bytes[KERNEL]);
    put(6, 96, 2);
    put(16, start, 8);
    put(24, end, 8);
    // device, context, stream, grid, block, static and dynamic shared memory, local
    for (int i = 0; i < 12; i++)
        put(40 + 4 * i, 1000 + (uint64_t)i, 4);
    put(92, correlation, 4);
    put(104, (uintptr_t)kernel_name, 8);
    put(144, 0x100000002ull, 8);
    put(156, 77, 4);
    put(168, 9, 4);
    put(172, 1, 4);
    put(176, 2, 4);
    put(180, 3, 4);
    put(184, 1, 4);
    if (v->bytes[KERNEL] > 208)
        put(208, 1, 1);
}

static void add_call(const struct version *v, uint32_t kind, uint32_t call, uint32_t correlation)
{
    begin(kind, v->bytes[CALL]);
    put(4, call, 4);
    put(8, 500, 8);
    put(16, 600, 8);
    put(24, 1, 4);
    put(28, 4711, 4);
    put(32, correlation, 4);
    put(36, 2, 4);
}

// Copies (88 bytes of which are the same everywhere), with a pair of devices if bytes says so.
static void add_copy(uint32_t kind, int bytes)
{
    begin(kind, bytes);
    put(4, 10, 1);
    put(5, 3, 1);
    put(6, 2, 1);
    put(7, 1, 1);
    put(8, 1 << 20, 8);
    put(16, 700, 8);
    put(24, 800, 8);
    put(32, 1, 4);
    put(36, 5, 4);
    put(40, 7, 4);
    put(44, kind == 22 ? 0 : 31, 4); // of a pair: the source device
    if (kind == 22) {
        put(52, 1, 4);
        put(60, 31, 4);
    }
    put(kind == 22 ? 72 : 64, 11, 8);
    put(kind == 22 ? 80 : 72, 12, 4);
}

static void add_set(const struct version *v)
{
    begin(2, v->bytes[SET]);
    put(4, 255, 4);
    put(8, 4096, 8);
    put(16, 700, 8);
    put(24, 800, 8);
    put(32, 1, 4);
    put(44, 32, 4);
    put(48, 1, 2);
    put(50, 3, 2);
    put(64, 13, 8);
    put(72, 14, 4);
}

static void add_graph_and_sync(const struct version *v)
{
    begin(51, v->bytes[GRAPH]);
    put(4, 33, 4);
    put(8, 900, 8);
    put(16, 950, 8);
    put(28, 15, 4);
    put(32, 1, 4);
    put(36, 7, 4);
    begin(38, v->bytes[SYNC]);
    put(4, 3, 4);
    put(8, 960, 8);
    put(16, 970, 8);
    put(24, 34, 4);
    put(28, 1, 4);
    put(32, 7, 4);
    put(36, UINT32_MAX, 4); // no event
    if (v->bytes[SYNC] > 40)
        put(40, 99, 8);
}

static void add_memory(const struct version *v)
{
    begin(49, v->bytes[MEMORY]);
    put(4, 1, 4);
    put(8, 3, 4);
    put(12, 35, 4);
    put(16, 0x7f0000000000, 8);
    put(24, 1 << 21, 8);
    put(32, 980, 8);
    put(56, 1, 4);
    put(60, 7, 4);
    put(72, 1, 4);
    put(80, 1, 4); // a pool of ours
    put(88, 0x5000, 8);
    put(104, 1 << 25, 8);
    put(112, 1 << 24, 8);
    begin(50, v->bytes[POOL]);
    put(4, 3, 4); // trimmed
    put(12, 36, 4);
    put(32, 0x5000, 8);
    put(40, 1 << 23, 8);
    put(56, 990, 8);
    put(64, 1 << 22, 8);
}

static void add_others(const struct version *v)
{
    begin(12, v->bytes[MARKER]);
    put(4, 2, 4); // start
    put(8, 1001, 8);
    put(16, 5, 4);
    put(20, 2, 4); // of a thread
    put(28, 4712, 4);
    put(40, (uintptr_t)range_name, 8);
    put(48, (uintptr_t)domain_name, 8);
    begin(17, v->bytes[OVERHEAD]);
    put(4, 3 << 16, 4);
    put(8, 2, 4);
    put(16, 4713, 4);
    put(24, 1100, 8);
    put(32, 1200, 8);
    begin(9, v->bytes[CONTEXT]); // passed over
    begin(39, 24);
    begin(8, v->bytes[DEVICE]);
    put(16, 1ull << 37, 8);
    put(32, 32, 4);
    put(44, 132, 4);
    put(52, 64, 4);
    put(60, 233472, 4);
    put(64, 65536, 4);
    put(104, 9, 4);
    put(112, 1, 4);
    put(120, 0x1122334455667788, 8);
    put(136, (uintptr_t) "NVIDIA H200", 8);
    begin(37, v->bytes[STREAM]);
    put(4, 1, 4);
    put(8, 7, 4);
    put(12, (uint32_t)-5, 4);
    put(16, 3, 4); // the null stream
    begin(11, 32);
    put(4, 2, 4);
    put(12, 4711, 4);
    put(24, (uintptr_t) "loader", 8);
}

static void add_all(const struct version *v)
{
    add_kernel(v, 100, 200, 30);
    add_call(v, 4, 307, 30);
    add_call(v, 5, 211, 31);
    add_call(v, 48, 9, 32);
    add_copy(1, v->bytes[COPY]);
    add_copy(22, v->bytes[PEER]);
    add_set(v);
    add_graph_and_sync(v);
    add_memory(v);
    add_others(v);
}
// records in the buffer; in the spool, without strings and calls
enum { ALL_READ = 18, ALL_WRITTEN = 13 };

// --- what came out -------------------------------------------------------------------------------

struct log {
    int count, strings;
    union {
        struct ug_rec_head head;
        struct ug_rec_kernel kernel;
        struct ug_rec_copy copy;
        struct ug_rec_graph graph;
        struct ug_rec_call call;
        struct ug_rec_sync sync;
        struct ug_rec_memory memory;
        struct ug_rec_range range;
        struct ug_rec_overhead overhead;
        struct ug_rec_device device;
        struct ug_rec_stream stream;
        struct ug_rec_thread thread;
        unsigned char bytes[128];
    } records[LOG_MAX];
    char text[LOG_MAX][64]; // by id
};

static struct log seen;

static void see(struct spool_rig *rig, const struct ug_rec_head *head)
{
    (void)rig;
    if (head->type == UG_REC_STRING) {
        const struct ug_rec_string *record = (const void *)head;
        seen.strings++;
        if (record->id < LOG_MAX)
            snprintf(seen.text[record->id], 64, "%s", (const char *)(record + 1));
    } else if (seen.count < LOG_MAX && head->bytes <= 128) {
        memcpy(seen.records[seen.count++].bytes, head, head->bytes);
    }
}

static const uint32_t every_kind = UG_WANT_DEFAULT | UG_WANT_GRAPH_NODES;

static struct decode_counts decode(uint32_t api_version, uint32_t kinds)
{
    struct decode_counts counts = {0};
    decode_buffer(layout_of(api_version), buffer.bytes, buffer.used, kinds, &counts);
    return counts;
}

static struct spool_rig *start(void)
{
    CHECK_INT(spool_create(), 0);
    buffer.used = 0;
    return spool_rig_open(see, NULL);
}

static const void *record_of(enum ug_record_type type, int nth)
{
    static const union {
        unsigned char bytes[128];
        uint64_t align;
    } nothing;
    for (int i = 0; i < seen.count; i++)
        if (seen.records[i].head.type == type && nth-- == 0)
            return &seen.records[i];
    CHECK(!"no such record");
    return nothing.bytes;
}

// --- versions ------------------------------------------------------------------------------------

static const char *source_of(uint32_t api_version, int *exact)
{
    const struct cupti_layout *layout = cupti_layout_find(api_version, exact);
    return layout ? layout->source : NULL;
}

// What decode.c's fast path rests on: a version that moved a field would be read slowly, and should
// be known.
TEST(no_version_moved_a_field_and_none_shrank)
{
    const struct cupti_layout *before = NULL;
    CHECK(layout_table_count >= 17);
    for (size_t i = 0; i < layout_table_count; before = &layout_table[i++]) {
        const struct cupti_layout *now = &layout_table[i];
        for (int kind = 0; kind < LAYOUT_KIND_COUNT; kind++) {
            CHECK_INT(now->bytes[kind] % 8, 0);
            CHECK(!before || now->bytes[kind] >= before->bytes[kind]);
        }
        if (!before)
            continue;
        CHECK(now->api_version >= before->api_version);
        CHECK(!memcmp(&now->kernel, &before->kernel,
                offsetof(struct cupti_layout, kernel.device_launched) -
                        offsetof(struct cupti_layout, kernel)));
        CHECK(!memcmp(&now->copy, &before->copy, sizeof now->copy));
    }
}

TEST(the_layout_is_that_of_the_version_or_of_the_one_before)
{
    int exact = -1;
    CHECK(cupti_layout_find(17, &exact) == NULL);
    CHECK_CONTAINS(source_of(18, &exact), "12.1");
    CHECK_INT(exact, 1);
    CHECK_CONTAINS(source_of(22, &exact), "12.4");
    CHECK_CONTAINS(source_of(25, &exact), "12.6");
    CHECK_INT(exact, 0);
    CHECK_CONTAINS(source_of(28, &exact), "12.9");
    // the first 13.0 and its updates have the same records
    CHECK_CONTAINS(source_of(130000, &exact), "13.0");
    CHECK_INT(exact, 1);
    CHECK_CONTAINS(source_of(130002, &exact), "13.0");
    CHECK_INT(exact, 1);
    CHECK_CONTAINS(source_of(130500, &exact), "13.5");
    CHECK_CONTAINS(source_of(990000, &exact), "13.");
    CHECK_INT(exact, 0);
    uint32_t kind = 10;
    CHECK_INT(decode_record_bytes(cupti_layout_11_8(), &kind), 200);
    kind = 1000000;
    CHECK_INT(decode_record_bytes(cupti_layout_11_8(), &kind), 0);
}

static void check_kernel(const struct version *v)
{
    const struct ug_rec_kernel *kernel = record_of(UG_REC_KERNEL, 0);
    CHECK_INT(kernel->start_gpu, 100);
    CHECK_INT(kernel->end_gpu, 200);
    CHECK_INT(kernel->correlation, 30);
    CHECK_STR(seen.text[kernel->name], kernel_name);
    CHECK_INT(kernel->device, 1000);
    CHECK_INT(kernel->context, 1001);
    CHECK_INT(kernel->stream, 1002);
    CHECK(kernel->grid[0] == 1003 && kernel->grid[1] == 1004 && kernel->grid[2] == 1005);
    CHECK(kernel->block[0] == 1006 && kernel->block[1] == 1007 && kernel->block[2] == 1008);
    CHECK(kernel->cluster[0] == 2 && kernel->cluster[1] == 3 && kernel->cluster[2] == 1);
    CHECK_INT(kernel->registers, 96);
    CHECK_INT(kernel->static_shared_bytes, 1009);
    CHECK_INT(kernel->dynamic_shared_bytes, 1010);
    CHECK_INT(kernel->local_bytes, 1011);
    CHECK_INT(kernel->graph, 77);
    CHECK_INT(kernel->graph_node, 0x100000002ll);
    CHECK_INT(kernel->channel, 1 << 24 | 9);
    CHECK_INT(kernel->flags, v->bytes[KERNEL] > 208 ? 2 : 0);
}

static void check_copies(void)
{
    const struct ug_rec_copy *copy = record_of(UG_REC_COPY, 0), *peer = record_of(UG_REC_COPY, 1);
    const struct ug_rec_copy *set = record_of(UG_REC_COPY, 2);
    CHECK(copy->kind == UG_COPY_PTOP && copy->source == 3 && copy->target == 2 && copy->flags == 1);
    CHECK(copy->start_gpu == 700 && copy->end_gpu == 800 && copy->size_bytes == 1 << 20);
    CHECK(copy->device == 1 && copy->context == 5 && copy->stream == 7);
    CHECK(copy->correlation == 31 && copy->graph == 12 && copy->graph_node == 11);
    CHECK_INT(copy->peer_device, UINT32_MAX);
    CHECK(peer->correlation == 31 && peer->graph == 12 && peer->graph_node == 11);
    CHECK_INT(peer->peer_device, 0); // on device 1, from device 0
    CHECK(set->kind == UG_COPY_SET && set->value == 255 && set->target == 3 && set->flags == 1);
    CHECK(set->size_bytes == 4096 && set->correlation == 32 && set->graph_node == 13);
}

static void check_waits_and_memory(const struct version *v)
{
    const struct ug_rec_graph *graph = record_of(UG_REC_GRAPH, 0);
    const struct ug_rec_sync *sync = record_of(UG_REC_SYNC, 0);
    const struct ug_rec_memory *memory = record_of(UG_REC_MEMORY, 0),
                               *pool = record_of(UG_REC_MEMORY, 1);
    CHECK(graph->correlation == 33 && graph->graph == 15 && graph->stream == 7);
    CHECK(graph->start_gpu == 900 && graph->end_gpu == 950);
    CHECK(sync->kind == 3 && sync->correlation == 34 && sync->stream == 7 && sync->event == 0);
    CHECK_INT(sync->event_sync, v->bytes[SYNC] > 40 ? 99 : 0);
    CHECK(memory->operation == 1 && memory->kind == 3 && memory->flags == 1);
    CHECK(memory->at_gpu == 980 && memory->size_bytes == 1 << 21 && memory->correlation == 35);
    CHECK(memory->address == 0x7f0000000000 && memory->pool == 0x5000);
    CHECK(memory->pool_bytes == 1 << 25 && memory->pool_used_bytes == 1 << 24);
    CHECK(pool->operation == 5 && pool->at_gpu == 990 && pool->pool == 0x5000);
    CHECK(pool->pool_bytes == 1 << 23 && pool->pool_used_bytes == 1 << 22);
}

static void check_others(void)
{
    const struct ug_rec_range *range = record_of(UG_REC_RANGE, 0);
    const struct ug_rec_overhead *overhead = record_of(UG_REC_OVERHEAD, 0);
    const struct ug_rec_device *device = record_of(UG_REC_DEVICE, 0);
    const struct ug_rec_stream *stream = record_of(UG_REC_STREAM, 0);
    const struct ug_rec_thread *thread = record_of(UG_REC_THREAD, 0);
    CHECK(range->what == 1 && range->id == 5 && range->at_gpu == 1001 && range->head.tid == 4712);
    CHECK_STR(seen.text[range->name], range_name);
    CHECK_STR(seen.text[range->domain], domain_name);
    CHECK(overhead->kind == 3 << 16 && overhead->start_gpu == 1100 && overhead->head.tid == 4713);
    CHECK(device->device == 1 && device->sm_count == 132 && device->max_threads_sm == 2048);
    CHECK(device->cc_major == 9 && device->memory_bytes == 1ull << 37 && device->uuid[0] == 0x88);
    CHECK_STR(seen.text[device->name], "NVIDIA H200");
    CHECK(stream->stream == 7 && stream->priority == -5 && stream->flags == 2);
    CHECK_INT(thread->head.tid, 4711);
    CHECK_STR(seen.text[thread->name], "loader");
}

TEST(every_kind_of_every_version)
{
    struct spool_rig *rig = start();
    for (int i = 0; i < VERSIONS; i++) {
        buffer.used = 0;
        seen.count = 0;
        add_all(&versions[i]);
        add_all(&versions[i]); // behind a record of wrong size nothing would be found
        struct decode_counts counts = decode(versions[i].api_version, every_kind);
        spool_rig_drain(rig);
        CHECK_INT(counts.records, 2 * ALL_READ);
        CHECK_INT(counts.unknown + counts.zero_time, 0);
        CHECK_INT(seen.count, 2 * ALL_WRITTEN);
        CHECK_INT(rig->broken, 0);
        check_kernel(&versions[i]);
        check_copies();
        check_waits_and_memory(&versions[i]);
        check_others();
    }
    CHECK_INT(seen.strings, 5);
    const struct ug_spool_counts *counts = rig->header->counts;
    CHECK_INT(counts[UG_PRODUCER_KERNEL].seen, VERSIONS * 4);
    CHECK_INT(counts[UG_PRODUCER_COPY].seen, VERSIONS * 6);
    // calls are recorded by callbacks: these are passed over
    CHECK_INT(counts[UG_PRODUCER_CALL].seen, 0);
    CHECK_INT(counts[UG_PRODUCER_MEMORY].seen, VERSIONS * 4);
}

// --- times, names, kinds -------------------------------------------------------------------------

TEST(times_that_cannot_be_are_counted_and_passed_on_as_0)
{
    struct spool_rig *rig = start();
    const struct version *v = &versions[3];
    add_kernel(v, 0, 0, 1);
    add_kernel(v, 0, 50, 2);
    add_kernel(v, 60, 50, 3);
    add_kernel(v, 60, 1ull << 63, 4);
    add_kernel(v, 60, 60, 5);
    struct decode_counts counts = decode(v->api_version, every_kind);
    spool_rig_drain(rig);
    CHECK_INT(counts.records, 5);
    CHECK_INT(counts.zero_time, 4);
    for (int i = 0; i < 5; i++) {
        const struct ug_rec_kernel *kernel = record_of(UG_REC_KERNEL, i);
        CHECK_INT(kernel->correlation, i + 1);
        CHECK_INT(kernel->start_gpu, i == 4 ? 60 : 0);
        CHECK_INT(kernel->end_gpu, i == 4 ? 60 : 0);
    }
}

TEST(names_are_written_once_and_again_for_a_new_recorder)
{
    struct spool_rig *rig = start();
    const struct version *v = &versions[3];
    for (uint32_t i = 0; i < 10; i++)
        add_kernel(v, 100, 200, i);
    decode(v->api_version, every_kind);
    decode(v->api_version, every_kind);
    spool_rig_drain(rig);
    CHECK_INT(seen.strings, 1);
    spool_restart_strings();
    decode(v->api_version, every_kind);
    spool_rig_drain(rig);
    CHECK_INT(seen.strings, 2);
}

TEST(a_name_that_cannot_be_an_address_is_no_name)
{
    struct spool_rig *rig = start();
    const struct version *v = &versions[3];
    // The last one arm64 has and x86-64 has not; nothing is there.
    static const uint64_t wrong[] = {0, 8, UINT64_MAX, 1ull << 56, 1ull << 47};
    for (uint32_t i = 0; i < 5; i++) {
        add_kernel(v, 100, 200, i);
        put(104, wrong[i], 8);
    }
    CHECK_INT(decode(v->api_version, every_kind).records, 5);
    spool_rig_drain(rig);
    CHECK_INT(seen.count, 5);
    for (int i = 0; i < 5; i++)
        CHECK_INT(seen.records[i].kernel.name, 0);
    CHECK_INT(seen.strings, 0);
}

// Programs and libraries of arm64 stand just below 2^48, with large addresses up to 2^52: a name
// there is asked for, on every machine.
TEST(addresses_of_every_machine_are_looked_at)
{
    static const uint64_t right[] = {
            4096, 0x7fffffffe000, 0xaaaac1234560, 0xffff9a000000, 0xfffffffff000, (1ull << 52) - 8};
    for (size_t i = 0; i < sizeof right / sizeof right[0]; i++)
        CHECK(text_at((const unsigned char *)&right[i], 0) == (const char *)(uintptr_t)right[i]);
    static const uint64_t wrong[] = {0, 4095, 1ull << 56, 0xffff800008000000, UINT64_MAX};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        CHECK(text_at((const unsigned char *)&wrong[i], 0) == NULL);
}

TEST(only_what_is_wanted_is_kept)
{
    struct spool_rig *rig = start();
    const struct version *v = &versions[3];
    add_all(v);
    decode(v->api_version, UG_WANT_SYNC);
    spool_rig_drain(rig);
    CHECK_INT(seen.count, 4); // the wait; device, stream and thread always
    CHECK_INT(rig->header->counts[UG_PRODUCER_KERNEL].seen, 0);
    uint64_t records = rig->records;
    decode(v->api_version, every_kind | UG_WANT_NOTHING_KEPT);
    spool_rig_drain(rig);
    CHECK_INT(rig->records, records);
    CHECK_INT(rig->header->counts[UG_PRODUCER_KERNEL].seen, 2);
    CHECK_INT(rig->header->counts[UG_PRODUCER_COPY].seen, 3);
    CHECK_INT(rig->header->counts[UG_PRODUCER_COPY].dropped, 0);
}

TEST(a_full_ring_counts_what_it_drops)
{
    struct spool_rig *rig = start();
    const struct version *v = &versions[3];
    rig->hold = true;
    while (buffer.used + 256 <= sizeof buffer.bytes)
        add_kernel(v, 100, 200, 1);
    uint64_t records = 0;
    while (records < 700000)
        records += decode(v->api_version, every_kind).records;
    const struct ug_spool_counts *counts = &rig->header->counts[UG_PRODUCER_KERNEL];
    spool_rig_drain(rig);
    CHECK_INT(counts->seen, records);
    CHECK(counts->dropped > 0);
    CHECK_INT(rig->records, records - counts->dropped + (uint64_t)seen.strings);
    CHECK_INT(rig->broken, 0);
}

// --- damage --------------------------------------------------------------------------------------

TEST(a_cut_or_unknown_record_ends_the_buffer_and_is_counted)
{
    struct spool_rig *rig = start();
    const struct version *v = &versions[3];
    add_kernel(v, 100, 200, 1);
    add_kernel(v, 100, 200, 2);
    buffer.used -= 8;
    struct decode_counts counts = decode(v->api_version, every_kind);
    CHECK(counts.records == 1 && counts.unknown == 1);
    buffer.used = 0;
    add_kernel(v, 100, 200, 3);
    begin(63, 64);
    add_kernel(v, 100, 200, 4);
    counts = decode(v->api_version, every_kind);
    CHECK(counts.records == 1 && counts.unknown == 1);
    buffer.used = 3;
    counts = decode(v->api_version, every_kind);
    CHECK(counts.records == 0 && counts.unknown == 1);
    buffer.used = 0;
    counts = decode(v->api_version, every_kind);
    CHECK(counts.records == 0 && counts.unknown == 0);
    decode_buffer(layout_of(22), NULL, 100, every_kind, &counts);
    spool_rig_drain(rig);
    CHECK_INT(seen.count, 2);
}

// Pointers of records as they are now: those that are not ours are taken out. (ASan has memory of
// its own everywhere, and reports reads of it; that a wild pointer is survived is the next case's.)
static void mend_pointers(const struct cupti_layout *layout, unsigned char *bytes, size_t valid)
{
    static const struct {
        uint32_t kind;
        int offset;
    } pointers[] = {{3, 104}, {10, 104}, {12, 40}, {12, 48}, {8, 136}, {11, 24}};
    for (size_t at = 0; at + 4 <= valid;) {
        uint32_t kind;
        size_t size = decode_record_bytes(layout, bytes + at);
        memcpy(&kind, bytes + at, 4);
        if (!size || size > valid - at)
            return;
        for (size_t i = 0; i < sizeof pointers / sizeof pointers[0]; i++) {
            uintptr_t value;
            if (pointers[i].kind != kind)
                continue;
            memcpy(&value, bytes + at + pointers[i].offset, 8);
            if (value != (uintptr_t)kernel_name)
                value = value % 3 ? (uintptr_t)range_name : 0;
            memcpy(bytes + at + pointers[i].offset, &value, 8);
        }
        at += size;
    }
}

// Whatever is in a record: nothing outside the buffer is read, what is written is whole.
TEST(damaged_buffers_do_no_harm)
{
    struct spool_rig *rig = start();
    uint64_t random = 20250101, records = 0, unknown = 0;
    for (int round = 0; round < 4000; round++) {
        const struct version *v = &versions[round % VERSIONS];
        buffer.used = 0;
        add_all(v);
        size_t all = buffer.used;
        // At the end of a block of the heap, where ASan sees one byte too many.
        random = random * 6364136223846793005ull + 1442695040888963407ull;
        size_t valid = (random >> 33) % 4 ? all : (random >> 35) % all;
        unsigned char *copy = malloc(valid ? valid : 1);
        memcpy(copy, buffer.bytes, valid);
        for (int i = 0; i < round % 12 && valid; i++) {
            random = random * 6364136223846793005ull + 1442695040888963407ull;
            size_t at = (random >> 33) % valid;
            copy[at & ~(random >> 20 & 7)] = (unsigned char)(random >> 23);
        }
        mend_pointers(layout_of(v->api_version), copy, valid);
        struct decode_counts counts = {0};
        decode_buffer(layout_of(v->api_version), copy, valid, every_kind, &counts);
        records += counts.records;
        unknown += counts.unknown;
        free(copy);
        if (round % 50 == 0)
            spool_rig_drain(rig);
    }
    spool_rig_drain(rig);
    CHECK(records > 4000);
    CHECK(unknown > 100);
    CHECK_INT(rig->broken, 0);
    CHECK(rig->records > 4000);
}

TEST(names_that_lie_nowhere_are_no_names)
{
    struct spool_rig *rig = start();
    const struct version *v = &versions[3];
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *pages = mmap(NULL, 4 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(pages, 'x', 4 * page);
    munmap(pages + page, page);
    mprotect(pages + 3 * page, page, PROT_NONE);
    pages[page - 1] = 0;
    char *const names[] = {pages + page - 96, // ends with its page
            pages + page,                     // unloaded
            pages + 3 * page + 8,             // not to be read
            pages + 3 * page - 96,            // runs into what is not to be read
            pages + 3 * page - 4096};
    errno = 77;
    for (uint32_t i = 0; i < 5; i++) {
        add_kernel(v, 100, 200, i);
        put(104, (uintptr_t)names[i], 8);
    }
    CHECK_INT(decode(v->api_version, every_kind).records, 5);
    CHECK_INT(errno, 77); // the workload's
    spool_rig_drain(rig);
    CHECK_INT(seen.count, 5);
    for (int i = 0; i < 5; i++)
        CHECK_INT(seen.records[i].kernel.name != 0, i == 0 || i == 4);
    CHECK_INT(seen.strings, 2); // the last is cut at 4,000 bytes
}

// --- a CUPTI of tomorrow -------------------------------------------------------------------------

static const int tomorrow = 304; // bytes of its kernel record

static int next_of_tomorrow(uint8_t *bytes, size_t valid, void **record)
{
    uint8_t *at = *record ? (uint8_t *)*record + tomorrow : bytes;
    if (at >= bytes + valid)
        return 12; // CUPTI_ERROR_MAX_LIMIT_REACHED
    *record = at;
    return 0;
}

TEST(records_that_grew_are_stepped_over_by_cupti)
{
    struct spool_rig *rig = start();
    struct version v = versions[VERSIONS - 1];
    v.bytes[KERNEL] = tomorrow;
    add_kernel(&v, 100, 200, 1);
    begin(62, tomorrow); // a kind that only tomorrow knows
    add_kernel(&v, 300, 400, 2);
    decode_use_next_record(next_of_tomorrow);
    struct decode_counts counts = decode(990000, every_kind);
    spool_rig_drain(rig);
    CHECK(counts.records == 2 && counts.unknown == 1);
    CHECK_INT(seen.count, 2);
    CHECK_INT(seen.records[1].kernel.correlation, 2);
    CHECK_INT(seen.records[1].kernel.start_gpu, 300);
}

// --- threads -------------------------------------------------------------------------------------

enum { THREADS = 4, ROUNDS = 300 };

static void *decode_many(void *user)
{
    struct decode_counts *counts = user;
    for (int i = 0; i < ROUNDS; i++)
        decode_buffer(layout_of(130001), buffer.bytes, buffer.used, every_kind, counts);
    return NULL;
}

TEST(many_threads_decode_at_once)
{
    struct spool_rig *rig = start();
    pthread_t threads[THREADS];
    static struct decode_counts counts[THREADS];
    for (int i = 0; i < 10; i++)
        add_all(&versions[3]);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, decode_many, &counts[i]);
    for (int i = 0; i < 40; i++, usleep(1000))
        spool_rig_drain(rig);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    spool_rig_drain(rig);
    uint64_t kept = 0;
    for (int i = 0; i < UG_PRODUCER_COUNT; i++)
        kept += rig->header->counts[i].seen - rig->header->counts[i].dropped;
    for (int i = 0; i < THREADS; i++)
        CHECK_INT(counts[i].records, ROUNDS * 10 * ALL_READ);
    CHECK_INT(rig->records, kept);
    CHECK_INT(rig->broken, 0);
    CHECK(kept >= (uint64_t)THREADS * ROUNDS); // most of 180,000 where the reader gets its share
}

// --- CUPTI's own header --------------------------------------------------------------------------

TEST(the_structures_of_cuptis_header)
{
#if defined(UPGATE_CUPTI_HEADER) && CUPTI_API_VERSION >= 130000 && CUPTI_API_VERSION < 130100
    struct spool_rig *rig = start();
    CUpti_ActivityKernel10 kernel = {.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
            .registersPerThread = 40,
            .start = 10,
            .end = 20,
            .gridX = 7,
            .blockZ = 8,
            .correlationId = 9,
            .name = kernel_name,
            .graphNodeId = 11,
            .channelID = 3,
            .clusterY = 2,
            .isDeviceLaunched = 1};
    CUpti_ActivityAPI call = {
            .kind = CUPTI_ACTIVITY_KIND_RUNTIME, .cbid = 211, .threadId = 5, .correlationId = 9};
    CUpti_ActivitySynchronization2 sync = {
            .kind = CUPTI_ACTIVITY_KIND_SYNCHRONIZATION, .cudaEventSyncId = 6};
    memcpy(buffer.bytes, &kernel, sizeof kernel);
    memcpy(buffer.bytes + sizeof kernel, &call, sizeof call);
    memcpy(buffer.bytes + sizeof kernel + sizeof call, &sync, sizeof sync);
    buffer.used = sizeof kernel + sizeof call + sizeof sync;
    CHECK_INT(decode(CUPTI_API_VERSION, every_kind).records, 3);
    spool_rig_drain(rig);
    const struct ug_rec_kernel *out = &seen.records[0].kernel;
    CHECK(out->registers == 40 && out->start_gpu == 10 && out->end_gpu == 20 && out->grid[0] == 7);
    CHECK(out->block[2] == 8 && out->correlation == 9 && out->graph_node == 11 && out->flags == 2);
    CHECK(out->channel == 3 && out->cluster[1] == 2);
    CHECK_INT(seen.count, 2); // none of the call
    CHECK_INT(seen.records[1].sync.event_sync, 6);
#else
    runner_skip("no header of CUPTI 13.0 was found when this was built");
#endif
}
